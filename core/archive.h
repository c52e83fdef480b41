/* archive.h: a weight file or model folder, seen as a set of named tensors.
 *
 * Understood: one .safetensors file; a folder or its model.safetensors.index.json with shards;
 * a folder with *.safetensors; .npz (stored or deflated members); .npy (one tensor, named after
 * the file without ".npy"). What is open is validated whole (LAYOUTS: sizes, offsets, names), so
 * that reading a tensor later can fail only by I/O or by its values. Data stay on disk until read:
 * files are read with pread(), never mapped, so a file that shrinks is an error and not a signal.
 * An open archive is immutable and may be read by several threads. */
#ifndef ATTN_ARCHIVE_H
#define ATTN_ARCHIVE_H

#include "tensor.h"

typedef struct attn_archive attn_archive;

/* Opens and validates `path`. On failure *out is NULL and err names file, tensor and values.
 * ATTN_EIO: cannot be opened or read (with the system's reason); ATTN_EFORMAT: damaged;
 * ATTN_ENOTFOUND: a folder without weights, or a shard that is not there. */
ATTN_NODISCARD attn_status attn_archive_open(attn_archive **out, const char *path, attn_error *err);

/* Takes NULL. */
void attn_archive_close(attn_archive *a);

/* Tensors are sorted by name. Pointers are valid until attn_archive_close(). */
size_t attn_archive_count(const attn_archive *a);
const attn_tensor *attn_archive_at(const attn_archive *a, size_t i);
const attn_tensor *attn_archive_find(const attn_archive *a,
                                     const char *name); /* NULL = not there */

/* out[t->count] = the tensor as float32, row-major whatever the file's order and byte order.
 * ATTN_EUNSUPPORTED: its dtype is none of F32, F16, BF16, F64 (err names tensor and dtype);
 * ATTN_EIO: the file changed or shrank since it was opened. */
ATTN_NODISCARD attn_status attn_archive_read_f32(const attn_archive *a, const attn_tensor *t,
                                                 float *out, attn_error *err);

/* out[t->bytes] = the stored bytes, unconverted. */
ATTN_NODISCARD attn_status attn_archive_read_raw(const attn_archive *a, const attn_tensor *t,
                                                 void *out, attn_error *err);

#endif
