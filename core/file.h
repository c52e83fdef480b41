/* file.h: reading regular files. Every sentence starts with the path. */
#ifndef ATTN_FILE_H
#define ATTN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "status.h"

typedef struct {
    const char *path; /* borrowed: must live until attn_file_close() */
    int fd;
    uint64_t size; /* bytes, when it was opened */
    struct timespec modified;
} attn_file;

/* Opens a regular file for reading. A folder, pipe or device is refused without blocking. ATTN_EIO
 * with the system's reason; *f is then closed. */
ATTN_NODISCARD attn_status attn_file_open(attn_file *f, const char *path, attn_error *err);
void attn_file_close(attn_file *f); /* again is harmless; so is one that was never opened: fd -1 */

/* Reads n bytes at `offset`, from any thread. ATTN_EIO: the system refuses, or the file ends. */
ATTN_NODISCARD attn_status attn_file_read(const attn_file *f, uint64_t offset, void *out, size_t n,
                                          attn_error *err);

/* ATTN_EIO when size or time of modification are no longer those at opening: what was read in
 * between may be a mix. A file renamed over the path does not matter, we hold the old one. */
ATTN_NODISCARD attn_status attn_file_check_unchanged(const attn_file *f, attn_error *err);

/* The folder that a model's files lie in: the path itself if it is a folder, else what the file lies in. The caller
 * frees; NULL = no memory. */
char *attn_file_folder(const char *path);

/* What a file that starts with these n bytes probably is, to complete "it looks like ...", or NULL.
 * 64 bytes are enough. */
const char *attn_file_looks_like(const void *start, size_t n);

#endif
