/* Folders and the names in them: what conversion needs of a file system besides reading and writing. */
#ifndef SL_IO_FOLDER_H
#define SL_IO_FOLDER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

/* Longest path that is put together here, the NUL included. */
#define SL_PATH_MAX 4096u

typedef enum sl_path_kind {
    SL_PATH_NONE,
    SL_PATH_FILE,
    SL_PATH_FOLDER,
    SL_PATH_OTHER
} sl_path_kind;

typedef struct sl_path_info {
    sl_path_kind kind; /* symbolic links are followed */
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t device;  /* of the file system */
    uint64_t n_links; /* names that the file has */
} sl_path_info;

/* A path that is not there is SL_PATH_NONE, no error. Errors: SL_ERR_IO. */
SL_MUST_USE sl_status sl_path_stat(const char *path, sl_path_info *out, sl_error *err);
/* Is the name itself a symbolic link, wherever it leads? Slashes at its end do not count. A path that is
 * not there is none. Errors: SL_ERR_IO, SL_ERR_ARGUMENT. */
SL_MUST_USE sl_status sl_path_is_link(const char *path, bool *out, sl_error *err);
/* folder/name into out; name may be "". Errors: SL_ERR_ARGUMENT when it is longer than cap. */
SL_MUST_USE sl_status sl_path_join(const char *folder, const char *name, char *out, size_t cap,
                                   sl_error *err);
/* The path with slashes at its end removed, except for "/". */
SL_MUST_USE sl_status sl_path_trim(const char *path, char *out, size_t cap, sl_error *err);

/* The names in a folder, sorted by byte value, as NUL-terminated strings one after another in the
 * growable buffer `names`; *n counts them. "." and ".." are left out. */
SL_MUST_USE sl_status sl_folder_list(const char *path, sl_buf *names, uint32_t *n, sl_error *err);
/* Make a folder; one that is there is fine. The folder above must exist. */
SL_MUST_USE sl_status sl_folder_make(const char *path, sl_error *err);
/* Make the names in a folder durable. */
SL_MUST_USE sl_status sl_folder_sync(const char *path, sl_error *err);
/* Remove an empty folder. */
SL_MUST_USE sl_status sl_folder_remove(const char *path, sl_error *err);
/* Remove a file; one that is not there is fine. */
SL_MUST_USE sl_status sl_path_remove(const char *path, sl_error *err);
/* Give a range of a file back to the drive: it reads as zeros, the length stays. *given is false where the file system
 * cannot. Errors: SL_ERR_IO. */
SL_MUST_USE sl_status sl_path_give_back(const char *path, uint64_t offset, uint64_t bytes,
                                        bool *given, sl_error *err);
SL_MUST_USE sl_status sl_path_rename(const char *from, const char *to, sl_error *err);
/* Exchange two paths in one step where the system can (*atomic tells); elsewhere by way of the unused
 * name `spare`, which for a moment holds what was at b. */
SL_MUST_USE sl_status sl_path_exchange(const char *a, const char *b, const char *spare,
                                       bool *atomic, sl_error *err);
/* Bytes that this user may still write on the file system of a path that exists. */
SL_MUST_USE sl_status sl_path_free_bytes(const char *path, uint64_t *out, sl_error *err);

/* Open (create) a file for appending and take its lock, which ends with the file descriptor or the
 * process. Errors: SL_ERR_STATE when another process holds it. */
SL_MUST_USE sl_status sl_log_open(const char *path, int *fd, sl_error *err);
/* Append bytes and wait until they are on the drive. */
SL_MUST_USE sl_status sl_log_append(int fd, const void *bytes, size_t n, sl_error *err);
/* Cut the log to its first `bytes` bytes. */
SL_MUST_USE sl_status sl_log_cut(int fd, uint64_t bytes, sl_error *err);
/* Accepts -1. */
void sl_log_close(int fd);

/* Read a whole file of at most `max` bytes into the growable buffer (replacing what it holds). Its pages
 * leave the page cache. Errors: SL_ERR_MISSING, SL_ERR_IO, SL_ERR_CORRUPT when it is longer than max. */
SL_MUST_USE sl_status sl_file_slurp(const char *path, uint64_t max, sl_buf *out, sl_error *err);

#endif
