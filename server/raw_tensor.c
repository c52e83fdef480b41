#include "server/raw_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "server/json_private.h"

enum {
    CHUNK = 512 /* elements that are converted at a time where they cannot go to their place */
};

struct srv_raw_tensor {
    srv_json_reader *into;
    size_t field;
    attn_tensor like;
    size_t size, out_size; /* of an element, stored and in the array */
    size_t bytes, read;    /* of the whole, and so far */
    srv_block data;
    unsigned char carry[8]; /* an element that the end of a piece has cut */
    size_t carried;
    /* Where the next stored element goes when the order is column-major. */
    size_t index[ATTN_MAX_RANK], stride[ATTN_MAX_RANK], at;
};

/* --- what a member takes ---------------------------------------------------------------------- */

static attn_status check_kind(const srv_field *f, const attn_tensor *like, attn_error *err)
{
    attn_error at = {0};
    const char *names = NULL;

    (void)attn_fail(&at, ATTN_EINVAL, "/%s", f->name);
    if (f->kind == SRV_LABELS || f->kind == SRV_VALUE || f->kind == SRV_OPTION)
        return attn_fail_at(err, ATTN_EINVAL, at.text, "%s is an option and cannot be a tensor",
                            at.text);
    if (!srv_kind_takes(f->kind, like->dtype, &names))
        return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: dtype %.40s is not read here; %s are",
                            at.text, like->dtype_name, names);
    return srv_check_rank(f, at.text, like->rank, err);
}

static attn_status measure(srv_raw_tensor *t, attn_error *err)
{
    const srv_field *f = &t->into->fields[t->field];
    attn_tensor *like = &t->like;
    size_t widest = 0;

    t->size = attn_dtype_size(like->dtype);
    t->out_size = f->kind == SRV_MASK   ? sizeof(unsigned char)
                  : f->kind == SRV_INTS ? sizeof(int64_t)
                                        : sizeof(float);
    if (!attn_size_product(like->dim, like->rank, &like->count) ||
        !attn_size_mul(like->count, t->size, &t->bytes) ||
        !attn_size_mul(like->count, t->out_size, &widest))
        return attn_fail(err, ATTN_EINVAL, "/%s: its shape is larger than any memory", f->name);
    for (size_t k = like->rank, stride = 1; k-- > 0; stride *= like->dim[k])
        t->stride[k] = stride;
    like->column_major = like->column_major && like->rank > 1 && like->count > 0;
    return ATTN_OK;
}

attn_status srv_raw_tensor_new(srv_raw_tensor **out, srv_json_reader *into, const char *name,
                               const attn_tensor *like, attn_error *err)
{
    srv_raw_tensor *t = calloc(1, sizeof *t);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (t == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a tensor");
    t->into = into;
    t->like = *like;
    rc = srv_json_reader_claim(into, name, &t->field, err);
    if (rc == ATTN_OK)
        rc = check_kind(&into->fields[t->field], like, err);
    if (rc == ATTN_OK)
        rc = measure(t, err);
    if (rc == ATTN_OK && t->like.column_major) {
        rc = srv_json_grow_within(into, &t->data, t->like.count, t->like.count, t->out_size, err);
        t->data.n = t->like.count;
    }
    if (rc != ATTN_OK) {
        t->data.n = 0;
        srv_raw_tensor_free(t);
        return rc;
    }
    *out = t;
    return ATTN_OK;
}

void srv_raw_tensor_free(srv_raw_tensor *t)
{
    if (t == NULL)
        return;
    srv_json_drop(t->into, &t->data, t->out_size);
    free(t);
}

size_t srv_raw_tensor_left(const srv_raw_tensor *t)
{
    return t->bytes - t->read;
}

/* --- elements --------------------------------------------------------------------------------- */

static void swap_bytes(unsigned char *out, const unsigned char *in, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++, in += size, out += size) {
        for (size_t k = 0; k < size; k++)
            out[k] = in[size - 1 - k];
    }
}

static attn_status fail_element(const srv_raw_tensor *t, size_t i, const char *what,
                                attn_error *err)
{
    attn_error at = {0};

    (void)attn_fail(&at, ATTN_EINVAL, "/%s", t->into->fields[t->field].name);
    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: element %zu %s", at.text, i, what);
}

/* out[n] = the elements in[n], little-endian. `first` is the number of the first one. */
static attn_status convert(const srv_raw_tensor *t, void *out, const unsigned char *in, size_t n,
                           size_t first, attn_error *err)
{
    srv_field_kind kind = t->into->fields[t->field].kind;
    attn_dtype dtype = t->like.dtype;

    if (kind == SRV_INTS) {
        for (size_t i = 0; i < n; i++)
            ((int64_t *)out)[i] = srv_integer_at(in, i, dtype);
        return ATTN_OK;
    }
    if (kind == SRV_MASK) {
        for (size_t i = 0; i < n; i++) {
            int64_t x = srv_integer_at(in, i, dtype);
            if (x != 0 && x != 1)
                return fail_element(t, first + i, "is neither 0 nor 1 (1 = may attend)", err);
            ((unsigned char *)out)[i] = (unsigned char)x;
        }
        return ATTN_OK;
    }
    if (attn_widen(out, in, n, dtype, NULL) == ATTN_OK)
        return ATTN_OK;
    for (size_t i = 0; i < n; i++) {
        if (attn_widen(out, in + i * t->size, 1, dtype, NULL) != ATTN_OK)
            return fail_element(t, first + i, "is beyond float32", err);
    }
    return ATTN_OK;
}

/* Puts one converted element where it belongs in row-major order, and moves on. */
static void scatter(srv_raw_tensor *t, const unsigned char *element)
{
    memcpy((unsigned char *)t->data.p + t->at * t->out_size, element, t->out_size);
    for (size_t k = 0; k < t->like.rank; k++) {
        t->at += t->stride[k];
        if (++t->index[k] < t->like.dim[k])
            return;
        t->at -= t->stride[k] * t->like.dim[k];
        t->index[k] = 0;
    }
}

/* The next n whole elements. */
static attn_status store(srv_raw_tensor *t, const unsigned char *in, size_t n, attn_error *err)
{
    _Alignas(8) unsigned char swapped[CHUNK * 8], converted[CHUNK * 8];
    const bool direct = !t->like.big_endian && !t->like.column_major;
    size_t first = (t->read - t->carried) / t->size, k = 0;

    if (!t->like.column_major)
        ATTN_TRY(srv_json_grow_within(t->into, &t->data, n, t->like.count, t->out_size, err));
    for (; n > 0; n -= k, in += k * t->size, first += k) {
        k = direct || n < CHUNK ? n : CHUNK;
        const unsigned char *from = t->like.big_endian ? swapped : in;
        if (t->like.big_endian)
            swap_bytes(swapped, in, k, t->size);
        if (t->like.column_major) {
            ATTN_TRY(convert(t, converted, from, k, first, err));
            for (size_t i = 0; i < k; i++)
                scatter(t, converted + i * t->out_size);
        } else {
            ATTN_TRY(convert(t, (unsigned char *)t->data.p + t->data.n * t->out_size, from, k,
                             first, err));
            t->data.n += k;
        }
    }
    return ATTN_OK;
}

attn_status srv_raw_tensor_feed(srv_raw_tensor *t, const char *bytes, size_t n, size_t *used,
                                attn_error *err)
{
    const unsigned char *in = (const unsigned char *)bytes;
    size_t left = t->bytes - t->read, whole = 0;

    n = n < left ? n : left;
    *used = n;
    if (t->carried > 0) {
        size_t missing = t->size - t->carried, k = n < missing ? n : missing;
        memcpy(t->carry + t->carried, in, k);
        if (t->carried + k == t->size) {
            ATTN_TRY(store(t, t->carry, 1, err));
            t->carried = 0;
        } else {
            t->carried += k;
        }
        t->read += k;
        in += k;
        n -= k;
    }
    whole = n / t->size;
    if (whole > 0)
        ATTN_TRY(store(t, in, whole, err));
    n -= whole * t->size;
    if (n > 0) {
        memcpy(t->carry, in + whole * t->size, n);
        t->carried = n;
    }
    t->read += whole * t->size + n;
    return ATTN_OK;
}

attn_status srv_raw_tensor_finish(srv_raw_tensor *t, attn_error *err)
{
    srv_array *a = &t->into->slots[t->field].array;

    if (t->read != t->bytes)
        return attn_fail(err, ATTN_EINTERNAL, "a tensor is finished before its end");
    if (t->data.p == NULL) /* an array that is present has data */
        ATTN_TRY(srv_json_grow_within(t->into, &t->data, 1, 1, t->out_size, err));
    srv_json_fit(t->into, &t->data, t->out_size);
    a->present = true;
    a->rank = (unsigned)t->like.rank;
    memcpy(a->dim, t->like.dim, t->like.rank * sizeof *a->dim);
    a->count = t->like.count;
    a->data.any = t->data.p;
    a->bytes = t->data.capacity * t->out_size;
    t->data = (srv_block){NULL, 0, 0}; /* the array owns it now */
    return ATTN_OK;
}
