/* The memory limit of control groups, from files as both versions have them, in a folder that stands for the root. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process.h"
#include "helpers/scratch.h"

#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"

static char root[512];

// A new root, with what /proc/self/cgroup says.
static void machine(const char *name, const char *groups) {
    (void)snprintf(root, sizeof(root), "%s", test_scratch_path(name));
    assert_int_equal(mkdir(root, 0777), 0);
    if (!groups)
        return;
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/proc", root);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/proc/self", root);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(groups, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

// A file below the root, with the folders on the way.
static void file(const char *name, const char *text) {
    char path[1200];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect(uint64_t limit) {
    assert_int_equal(sl_cgroup_memory_limit_under(root), limit);
}

static void version_1(void **state) {
    (void)state;
    machine("v1", "12:memory:/a/b\n3:cpu,cpuacct:/c\n0::/unified\n");
    expect(UINT64_MAX); // nothing is mounted
    file(V1 "/memory.limit_in_bytes", "9223372036854771712\n");
    file(V1 "/a/memory.limit_in_bytes", "9223372036854771712\n");
    file(V1 "/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    expect(UINT64_MAX);
    file(V1 "/a/b/memory.limit_in_bytes", "67108864\n");
    expect(67108864);
    file(V1 "/a/b/memory.limit_in_bytes", "33554432\n"); // lowered, while we run
    expect(33554432);
    file(V1 "/a/memory.limit_in_bytes", "16777216\n"); // of a group that holds ours
    expect(16777216);
    file(V1 "/memory.limit_in_bytes", "8388608\n");
    expect(8388608);
    file(V1 "/c/memory.limit_in_bytes", "4096\n"); // of another controller's group
    expect(8388608);
}

static void version_2(void **state) {
    (void)state;
    machine("v2", "0::/user.slice/app.scope\n");
    file(V2 "/cgroup.controllers", "cpu memory\n");
    file(V2 "/user.slice/app.scope/memory.max", "max\n");
    file(V2 "/user.slice/memory.max", "max\n");
    expect(UINT64_MAX);
    file(V2 "/user.slice/app.scope/memory.max", "1073741824\n");
    expect(1073741824);
    file(V2 "/user.slice/memory.max", "536870912\n");
    expect(536870912);
    file(V2 "/user.slice/app.scope/memory.max", "0\n");
    expect(0);
}

/* In a container the groups' own path is often not there: the mount's root is the container's group. */
static void in_a_container(void **state) {
    (void)state;
    machine("container", "7:memory:/docker/0123\n");
    file(V1 "/memory.limit_in_bytes", "134217728\n");
    expect(134217728);
    machine("container2", "0::/../../elsewhere\n");
    file(V2 "/cgroup.controllers", "memory\n");
    file(V2 "/memory.max", "268435456\n");
    expect(268435456);
}

static void what_cannot_be_read_is_no_limit(void **state) {
    (void)state;
    char longer[5000];
    machine("nothing", NULL);
    expect(UINT64_MAX);
    machine("empty", "");
    expect(UINT64_MAX);
    machine("nonsense", "memory\n:::\n5:memory\n");
    expect(UINT64_MAX);
    machine("text", "0::/a\n");
    file(V2 "/cgroup.controllers", "memory\n");
    file(V2 "/a/memory.max", "-1\n");
    file(V2 "/memory.max", "");
    expect(UINT64_MAX);
    memset(longer, 'x', sizeof(longer));
    memcpy(longer, "0::/", 4);
    longer[sizeof(longer) - 1] = '\0';
    machine("long", longer);
    file(V2 "/cgroup.controllers", "memory\n");
    expect(UINT64_MAX);
}

/* Here: no less than what this process holds already. */
static void of_this_machine(void **state) {
    (void)state;
    sl_process_memory m;
    sl_error err;
    assert_int_equal(sl_process_memory_read(&m, &err), SL_OK);
    assert_int_equal(sl_cgroup_memory_limit(), sl_cgroup_memory_limit_under(""));
    assert_true(sl_cgroup_memory_limit() > m.anonymous_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1),       cmocka_unit_test(version_2),
        cmocka_unit_test(in_a_container),  cmocka_unit_test(what_cannot_be_read_is_no_limit),
        cmocka_unit_test(of_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
