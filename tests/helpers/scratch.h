/* Test helper: a temporary folder beside the test program (never in /tmp, which may be a tmpfs, where direct
 * I/O is not true), removed at the end. */
#ifndef SL_TESTS_SCRATCH_H
#define SL_TESTS_SCRATCH_H

/* The folder's path, made on first use. */
const char *test_scratch(void);
/* folder/name; valid until the next eight calls. */
const char *test_scratch_path(const char *name);
void test_scratch_remove(void);

/* folder/name; valid until the next four calls. */
const char *test_path_in(const char *folder, const char *name);
/* A folder of tests/data/goldens; valid until the next call. */
const char *test_golden(const char *name);

#endif
