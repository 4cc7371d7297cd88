/* Random numbers that nobody can predict: seeds and names, not sampling. */
#ifndef SL_BASE_RANDOM_H
#define SL_BASE_RANDOM_H

#include <stddef.h>

/* Fill n <= 256 bytes from the system's generator. Opens no file. Any thread. */
void sl_random_bytes(void *out, size_t n);

#endif
