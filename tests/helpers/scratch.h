/* Test helper: a temporary folder beside the test program (never in /tmp, which may be a tmpfs, where direct
 * I/O is not true), removed at the end. */
#ifndef SL_TESTS_SCRATCH_H
#define SL_TESTS_SCRATCH_H

/* The folder's path, made on first use. */
const char *test_scratch(void);
/* folder/name; valid until the next eight calls. */
const char *test_scratch_path(const char *name);
void test_scratch_remove(void);

#endif
