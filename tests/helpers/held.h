/* Test helper: what this process holds of the kernel, for finding what an engine leaves behind. */
#ifndef SL_TESTS_HELD_H
#define SL_TESTS_HELD_H

/* Setup and teardown of a cmocka test: afterwards there are as many descriptors, threads and, but under sanitizers, bytes
 * of address space (a little for the C library's heap aside) as before. Threads of the kernel's rings take a moment to
 * end: they are waited for. What a program makes once, such as the demo store, has to be there before. */
int test_held_note(void **state);
int test_held_compare(void **state);

#define TEST_LEAVES_NOTHING(f) cmocka_unit_test_setup_teardown(f, test_held_note, test_held_compare)

#endif
