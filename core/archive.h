/* archive.h: a weight file or model folder, seen as a set of named tensors.
 *
 * Understood, by what `path` is:
 *
 *   folder           its model.safetensors.index.json; without one all its *.safetensors together;
 *                    without any its only .npz. Where the index names files that are missing, but
 *                    model.safetensors stands beside it, that one is taken: it is the whole model
 *   *.index.json     the shards that its weight_map names, plain file names beside it; each tensor
 *                    must be where the map says; tensors that the map omits are there as well
 *   *.npz            NumPy's zip of arrays, members stored or deflated
 *   *.npy            one tensor, named after the file without ".npy"
 *   *.safetensors    one file
 *   any other file   by its first bytes: .npy, .npz, else safetensors
 *
 * A tensor in two files is an error. What is open is validated whole (sizes, offsets, names; of a
 * .npz the headers and the sizes that the zip states), so that reading a tensor later can fail only
 * by I/O, by its values or, deflated, by its stream. Data stay on disk until read: files are read
 * with pread(), never mapped, so a file that shrinks is an error and not a signal. Each file is
 * opened once and held, so a file renamed over it changes nothing. An open archive is immutable and
 * may be read by several threads.
 */
#ifndef ATTN_ARCHIVE_H
#define ATTN_ARCHIVE_H

#include "tensor.h"

typedef struct attn_archive attn_archive;

/* Opens and validates `path`. On failure *out is NULL and err names file, tensor and values.
 * ATTN_EIO: cannot be opened or read (with the system's reason); ATTN_EFORMAT: damaged;
 * ATTN_ENOTFOUND: a folder without weights, or a shard that is not there; ATTN_EUNSUPPORTED: more
 * than ATTN_MAX_RANK dimensions, Python objects, a compression that is not read; ATTN_EINVAL:
 * several .npz in a folder. */
ATTN_NODISCARD attn_status attn_archive_open(attn_archive **out, const char *path, attn_error *err);

/* Takes NULL. */
void attn_archive_close(attn_archive *a);

/* Tensors are sorted by name. Pointers are valid until attn_archive_close(). */
size_t attn_archive_count(const attn_archive *a);
const attn_tensor *attn_archive_at(const attn_archive *a, size_t i);
/* NULL = not there */
const attn_tensor *attn_archive_find(const attn_archive *a, const char *name);

/* out[t->count] = the tensor as float32, row-major whatever the file's order and byte order.
 * ATTN_EUNSUPPORTED: its dtype is none of F32, F16, BF16, F64 (err names tensor and dtype);
 * ATTN_EINVAL: a finite F64 beyond float32 (err names tensor, index and value); ATTN_EIO: the file
 * changed or shrank since it was opened; ATTN_EFORMAT: a deflated member is damaged. */
ATTN_NODISCARD attn_status attn_archive_read_f32(const attn_archive *a, const attn_tensor *t,
                                                 float *out, attn_error *err);

/* out[t->bytes] = the stored bytes, unconverted and in the order of the file. */
ATTN_NODISCARD attn_status attn_archive_read_raw(const attn_archive *a, const attn_tensor *t,
                                                 void *out, attn_error *err);

#endif
