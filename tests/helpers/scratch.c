#define _GNU_SOURCE
#include "helpers/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[512];

const char *test_scratch(void) {
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "%s/scratch.XXXXXX", SL_TEST_SCRATCH);
        if (!mkdtemp(folder)) {
            perror(folder);
            exit(1);
        }
        atexit(test_scratch_remove);
    }
    return folder;
}

const char *test_scratch_path(const char *name) {
    static char paths[8][768];
    static unsigned at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_scratch(), name);
    return path;
}

// Places of its own: callers keep a scratch path over many of these.
const char *test_path_in(const char *parent, const char *name) {
    static char paths[4][2048];
    static unsigned at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", parent, name);
    return path;
}

const char *test_golden(const char *name) {
    static char path[512];
    snprintf(path, sizeof(path), SL_TEST_DATA "/goldens/%s", name);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void test_scratch_remove(void) {
    if (folder[0])
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    folder[0] = '\0';
}
