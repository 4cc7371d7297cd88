/* The keys of those who may use the server, from the file of --api-key-file. */
#ifndef SL_SERVE_KEYS_H
#define SL_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVE_KEYS_MAX 64
#define SERVE_KEYS_FILE_MAX 65536 // bytes
#define SERVE_KEY_MAX 255         // bytes of one, as sl_http_options.keys has it

typedef struct serve_keys {
    const char *key[SERVE_KEYS_MAX]; // in the text that was parsed
    uint32_t n;
} serve_keys;

/* Find the keys in text [n], which is NUL-terminated and is changed: one a line, blanks around it
 * left out, as are empty lines and those that begin with '#'. There has to be one. False: problem
 * names the line, and never what is in it. */
bool serve_keys_parse(char *text, size_t n, serve_keys *out, char problem[160]);

#endif
