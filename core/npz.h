/* npz.h: NumPy's .npz, a zip of .npy members; the library's only door to libzip.
 *
 * Members are stored or deflated. At opening each one's .npy header is read and held against the
 * sizes that the zip states; the data are inflated when they are read, as a stream, so that memory
 * stays bounded whatever they inflate to. Members that do not end in ".npy" are passed over. */
#ifndef ATTN_NPZ_H
#define ATTN_NPZ_H

#include "file.h"
#include "tensor.h"

typedef struct {
    attn_tensor *tensor; /* in the order of the zip; `source` is the member's number in it */
    size_t count;
    char *strings; /* owns their names, without ".npy", and the spellings of their types */
} attn_npz;

/* Reads the table. The tensors' `file` is f->path, borrowed. On failure *z is empty. ATTN_EIO;
 * ATTN_EFORMAT; ATTN_EUNSUPPORTED: another compression, encrypted, or as attn_npy_parse(). */
ATTN_NODISCARD attn_status attn_npz_init(attn_npz *z, const attn_file *f, attn_error *err);
void attn_npz_deinit(attn_npz *z); /* takes an empty one */

typedef struct attn_npz_member attn_npz_member; /* one tensor being read; for one thread */

/* Opens tensor t and stands at the first byte of its data. f is borrowed until _close(). Several
 * may be open at a time. */
ATTN_NODISCARD attn_status attn_npz_member_open(attn_npz_member **out, const attn_file *f,
                                                const attn_tensor *t, attn_error *err);

/* The next n bytes. ATTN_EFORMAT: they do not inflate, or are too few. */
ATTN_NODISCARD attn_status attn_npz_member_read(attn_npz_member *m, void *out, size_t n,
                                                attn_error *err);

/* Having read all: holds the checksum and that nothing more follows. ATTN_EFORMAT. */
ATTN_NODISCARD attn_status attn_npz_member_finish(attn_npz_member *m, attn_error *err);
void attn_npz_member_close(attn_npz_member *m); /* takes NULL */

#endif
