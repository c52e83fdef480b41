/* file.h: reading regular files. Every sentence starts with the path. */
#ifndef ATTN_FILE_H
#define ATTN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Opens a regular file for reading and gives its descriptor, which the caller closes, and its size.
 * A folder, pipe or device is refused without blocking. ATTN_EIO with the system's reason. */
ATTN_NODISCARD attn_status attn_file_open(const char *path, int *fd, uint64_t *size,
                                          attn_error *err);

/* Reads n bytes at `offset`. ATTN_EIO: the system refuses, or the file ends before. */
ATTN_NODISCARD attn_status attn_file_read(int fd, const char *path, uint64_t offset, void *out,
                                          size_t n, attn_error *err);

#endif
