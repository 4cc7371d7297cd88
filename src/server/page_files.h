/* The files of web/, compressed with gzip: written into page_files.c by cmake/embed.cmake. They are always sent
 * compressed: every browser takes that. */
#ifndef SL_SERVER_PAGE_FILES_H
#define SL_SERVER_PAGE_FILES_H

#include <stddef.h>

typedef struct sl_page_file {
    const char *name;           /* "index.html" */
    const unsigned char *bytes; /* [n_bytes], a gzip file */
    size_t n_bytes;
} sl_page_file;

extern const sl_page_file sl__page_files[];
extern const size_t sl__n_page_files;

#endif
