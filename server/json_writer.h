/* json_writer.h: an answer as a list of texts and tensors, written out piece by piece.
 *
 * Only the list is held; a tensor's text is made when it is read, into the reader's buffer. */
#ifndef SRV_JSON_WRITER_H
#define SRV_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "core/tensor.h"

typedef struct srv_json_writer srv_json_writer;

/* Memory that a tensor takes in the list, with the texts around it, at most. */
#define SRV_JSON_TENSOR_BYTES 768

srv_json_writer *srv_json_writer_new(void);    /* NULL: no memory */
void srv_json_writer_free(srv_json_writer *w); /* takes NULL */

/* Appending. A failed allocation is remembered and reported by srv_json_writer_status(). */
void srv_json_writer_raw(srv_json_writer *w, const char *text, size_t n); /* copied as it is */
void srv_json_writer_format(srv_json_writer *w, const char *format, ...) ATTN_PRINTF(2, 3);
void srv_json_writer_string(srv_json_writer *w, const char *utf8); /* with quotes and escapes */

/* Nested arrays of dim[0..rank) float32, borrowed until the writer is freed. Values that are not finite
 * are printed as null. With `base64`: {"shape":[..],"dtype":"float32","data":"..."} instead, little-
 * endian, not-finite values as they are. rank 0 is one number. */
void srv_json_writer_tensor(srv_json_writer *w, const float *data, size_t rank, const size_t *dim,
                            bool base64);

/* How a tensor stands in the answer: nested arrays, a tensor object, or its bytes alone, little-endian, in an
 * answer that is not JSON. */
typedef enum { SRV_LISTS, SRV_BASE64, SRV_BYTES } srv_form;

/* The same in any form and type. float32 leave as ATTN_F32; rounded as ATTN_F16; as ATTN_U8, 0 to 1 becoming 0 to
 * 255. ATTN_I32: `data` are int32. NULL: they come in parts, see below. */
void srv_json_writer_values(srv_json_writer *w, const void *data, size_t rank, const size_t *dim,
                            srv_form form, attn_dtype dtype);

/* The bytes of n float32 as they lie in memory. */
void srv_json_writer_bytes(srv_json_writer *w, const float *data, size_t n);

/* For numbers that come later, in order: srv_json_writer_read() stops where they end, and
 * srv_json_writer_waits() is true, until srv_json_writer_part() brings the next n > 0 of them. They are borrowed
 * until it waits again or the writer is freed. */
void srv_json_writer_tensor_in_parts(srv_json_writer *w, size_t rank, const size_t *dim,
                                     bool base64);
bool srv_json_writer_waits(const srv_json_writer *w);
void srv_json_writer_part(srv_json_writer *w, const float *data, size_t n);

void srv_json_writer_fail(srv_json_writer *w); /* there was no memory for what should be appended */
attn_status srv_json_writer_status(const srv_json_writer *w); /* ATTN_OK or ATTN_ENOMEM */

/* Writes the next bytes of the answer, at most n (n >= 64, or any where only texts and bytes are left), into out; 0 =
 * all is written that is there. The bytes do not depend on how they are cut. More may be appended behind what was
 * read. */
size_t srv_json_writer_read(srv_json_writer *w, char *out, size_t n);

/* All bytes of an answer of texts and bytes alone, when nothing was read yet; else UINT64_MAX. */
uint64_t srv_json_writer_length(const srv_json_writer *w);

/* Reading begins again; for a list without numbers that come in parts. */
void srv_json_writer_rewind(srv_json_writer *w);

/* Most bytes that the text of `count` floats in a tensor can take, commas and brackets included. */
size_t srv_json_writer_bound(size_t count, size_t rank, const size_t *dim, bool base64);

#endif
