/* See random.h. */
#define _GNU_SOURCE
#include "base/random.h"

#include <assert.h>
#include <unistd.h>

void sl_random_bytes(void *out, size_t n) {
    int rc = getentropy(out, n); // fails for more than 256 bytes, and on kernels before 3.17
    assert(rc == 0);
    (void)rc;
}
