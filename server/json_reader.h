/* json_reader.h: reads a request body, one JSON object, as it arrives.
 *
 * Members that hold tensors never become a tree: their numbers go straight into arrays of float32,
 * bytes or int64, as nested arrays or as tensor objects {"shape","dtype","data":base64}. The other
 * members are small and go to jansson. The result does not depend on how the body was cut. */
#ifndef SRV_JSON_READER_H
#define SRV_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"

typedef enum {
    SRV_FLOATS, /* float32; NaN and Inf are possible by base64 alone */
    SRV_BIAS,   /* the same, and the string "-inf" stands for -Infinity */
    SRV_MASK,   /* 0, 1, true, false (0.0 and 1.0 too); one byte each */
    SRV_INTS,   /* integers without fraction or exponent, int64 */
    SRV_LABELS, /* strings, in one list or in lists of any lengths; kept as their JSON text */
    SRV_VALUE,  /* anything else: parsed by jansson, at most SRV_VALUE_BYTES of text */
    SRV_OPTION  /* the same, and null is as good as nothing */
} srv_field_kind;

#define SRV_VALUE_BYTES (4u << 20)
#define SRV_VALUE_DEPTH 64 /* brackets that may be open in such a text */

/* What jansson's tree takes at most for a byte of text; charged for as long as the tree lives. */
#define SRV_VALUE_COST 80

typedef struct {
    const char *name;
    srv_field_kind kind;
    unsigned min_rank, max_rank; /* of arrays; min_rank 0 takes a bare number as rank 0 */
    bool
        ragged; /* [B][T][D], or [B][T] when max_rank is 2: T may differ from sequence to sequence */
} srv_field;

/* A tensor member. `dim` holds rank sizes. A ragged array has rank 3 (or max_rank 2), dim[0] = B, dim[1] = the longest
 * and, where the lengths really differ, `lengths` [B] (else NULL: a rectangle); its rows follow each
 * other without padding. "[]" has rank max_rank (max_rank >= 1) and sizes 0; "[[]]" is, for a ragged
 * field, one sequence of no tokens: rank 3, dim [1,0,0] (no token tells the width: unknown_width).
 * Other arrays without an element have the rank of their brackets, but at least min_rank.
 *
 * Labels of rank 2 always have `lengths`; their `data.u8` is the member's text as it was sent, of
 * `count` bytes. */
typedef struct {
    bool present;
    bool unknown_width; /* the last dimension is 0 only because there is no token */
    unsigned rank;
    size_t dim[4];
    size_t *lengths;
    size_t count; /* elements */
    size_t bytes; /* charged for data and lengths */
    union {
        float *f32;
        unsigned char *u8;
        int64_t *i64;
        void *any;
    } data; /* malloc()ed, not NULL when present; owned by the reader */
} srv_array;

/* Asked before the reader's arrays grow by `bytes` (and told with negative `bytes` when they shrink):
 * ATTN_OK, or the refusal that ends the request. */
typedef attn_status srv_charge(void *arg, ptrdiff_t bytes, attn_error *err);

typedef struct srv_json_reader srv_json_reader;

/* `fields` must outlive the reader. Member numbers below are indices into it. */
ATTN_NODISCARD attn_status srv_json_reader_new(srv_json_reader **out, const srv_field *fields,
                                               size_t n, srv_charge *charge, void *charge_arg,
                                               attn_error *err);
void srv_json_reader_free(srv_json_reader *r); /* takes NULL; gives back what was charged */

/* The next piece of the body, any size. After a failure the reader may only be freed.
 * ATTN_EINVAL with a JSON Pointer or "at byte N": not JSON, not an object, an unknown member (with
 * the nearest known one), a duplicate, a wrong type, a number that is not finite as float32, uneven
 * rows, a tensor object whose bytes do not fit its shape, a value longer or deeper than it may be.
 * ATTN_ESHAPE: a rank outside min_rank..max_rank. ATTN_ENOMEM, or what `charge` says. */
ATTN_NODISCARD attn_status srv_json_reader_feed(srv_json_reader *r, const char *text, size_t n,
                                                attn_error *err);
/* The body has ended. */
ATTN_NODISCARD attn_status srv_json_reader_finish(srv_json_reader *r, attn_error *err);

/* Members that do not stand in one JSON body, in place of feed and finish: for bodies of other media types
 * (source.h), whose tensors are bytes (raw_tensor.h) and whose options are texts.
 *
 * _claim    takes a member's name: ATTN_EINVAL when it is unknown or was there already
 * _member   one member with the JSON text of its value; failures as by feed, at a byte of this text
 * _close    there are no more */
ATTN_NODISCARD attn_status srv_json_reader_claim(srv_json_reader *r, const char *name,
                                                 size_t *field, attn_error *err);
ATTN_NODISCARD attn_status srv_json_reader_member(srv_json_reader *r, const char *name,
                                                  const char *text, size_t n, attn_error *err);
ATTN_NODISCARD attn_status srv_json_reader_close(srv_json_reader *r, attn_error *err);

/* After finish or close. Borrowed from the reader. */
const srv_array *srv_json_reader_array(const srv_json_reader *r, size_t field); /* never NULL */
const attn_json *srv_json_reader_value(const srv_json_reader *r, size_t field); /* NULL = absent */
/* After these: frees the values, so that only the arrays stay charged. */
void srv_json_reader_drop_values(srv_json_reader *r);
size_t srv_json_reader_charged(const srv_json_reader *r); /* bytes now charged */
size_t srv_array_bytes(const srv_array *a);               /* of them, for this array; 0 = absent */

#endif
