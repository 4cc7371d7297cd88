/* Feeds saved inputs to a fuzz target, so that the corpus runs as a plain test with any compiler.
 *
 * usage: replay_NAME FILE|FOLDER...
 * Every file is handed over in a heap block of exactly its size: a sanitizer sees a read past its end.
 * Fails when there is nothing to run, because an empty corpus would test nothing. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_run;

static int run_file(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int ok = file && data && fread(data, 1, size, file) == size;
    if (ok) {
        LLVMFuzzerTestOneInput(data, size);
        n_run++;
    } else {
        fprintf(stderr, "cannot read %s\n", path);
    }
    free(data);
    if (file) {
        fclose(file);
    }
    return ok ? 0 : 1;
}

static int run_folder(const char *path) {
    int failed = 0;
    DIR *folder = opendir(path);
    if (!folder) {
        fprintf(stderr, "cannot open %s\n", path);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char child[4096];
        struct stat st;
        int n = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (n > 0 && (size_t)n < sizeof child && stat(child, &st) == 0 && S_ISREG(st.st_mode)) {
            failed |= run_file(child, (size_t)st.st_size);
        }
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0) {
            fprintf(stderr, "%s is not there\n", argv[i]);
            failed = 1;
        } else if (S_ISDIR(st.st_mode)) {
            failed |= run_folder(argv[i]);
        } else {
            failed |= run_file(argv[i], (size_t)st.st_size);
        }
    }
    printf("%u inputs\n", n_run);
    return failed || n_run == 0;
}
