/* Tensor objects: {"shape":[..],"dtype":"..","data":"base64"}, members in any order. */
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "server/json_private.h"

static const char *const part_names[] = {"shape", "dtype", "data"};

static srv_field_kind kind_of(const srv_json_reader *r)
{
    return r->fields[r->field].kind;
}

static attn_status fail_part(const srv_json_reader *r, attn_error *err, const char *format, ...)
    ATTN_PRINTF(3, 4);

static attn_status fail_part(const srv_json_reader *r, attn_error *err, const char *format, ...)
{
    srv_pointer at = srv_json_pointer(r);
    char reason[320];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: %s", at.text, reason);
}

attn_status srv_json_tensor_key(srv_json_reader *r, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    size_t i = 0;

    while (i < SRV_TENSOR_MEMBERS && strcmp(part_names[i], r->text) != 0)
        i++;
    if (i == SRV_TENSOR_MEMBERS)
        return fail_part(r, err,
                         "unknown member \"%s\"; a tensor object has \"shape\", \"dtype\" and "
                         "\"data\"",
                         srv_json_quote(r->text, strlen(r->text)).text);
    t->part = (srv_part)i;
    if (t->seen[i])
        return fail_part(r, err, "duplicate member \"%s\"", part_names[i]);
    t->seen[i] = true;
    return ATTN_OK;
}

attn_status srv_json_tensor_begin(srv_json_reader *r, srv_json_type type, attn_error *err)
{
    bool shape = r->tensor.part == SRV_TENSOR_SHAPE;

    if (r->scan.depth == 3) {
        if (type != SRV_JSON_NUMBER)
            return fail_part(r, err, "expected an integer, found %s", srv_json_type_name(type));
        return ATTN_OK;
    }
    if (type != (shape ? SRV_JSON_ARRAY : SRV_JSON_STRING))
        return fail_part(r, err, "expected %s, found %s",
                         shape ? "an array of integers" : "a string", srv_json_type_name(type));
    return ATTN_OK;
}

attn_status srv_json_tensor_number(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    size_t x = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return fail_part(r, err, "expected an integer of 0 or more, found %s",
                             srv_json_quote(text, n).text);
        if (!attn_size_mul(x, 10, &x) || !attn_size_add(x, (size_t)(text[i] - '0'), &x))
            return fail_part(r, err, "%s is larger than any dimension",
                             srv_json_quote(text, n).text);
    }
    if (t->rank == SRV_LIST_DEPTH)
        return fail_part(r, err, "more than %d dimensions", SRV_LIST_DEPTH);
    t->dim[t->rank++] = x;
    return ATTN_OK;
}

attn_status srv_json_tensor_string(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    attn_error why = {0};
    size_t written = 0;

    if (t->part != SRV_TENSOR_DATA) {
        srv_json_keep_text(r, text, n);
        return ATTN_OK;
    }
    ATTN_TRY(srv_json_grow(r, &r->data, ATTN_BASE64_DECODED(n), 1, err));
    attn_status rc = attn_base64_decode(&t->base64, text, n, (unsigned char *)r->data.p + r->data.n,
                                        &written, &why);
    r->data.n += written;
    return rc == ATTN_OK ? ATTN_OK : fail_part(r, err, "%s", why.text);
}

bool srv_kind_takes(srv_field_kind kind, attn_dtype dtype, const char **names)
{
    static const struct {
        unsigned dtypes; /* bits */
        const char *names;
    } allowed[] = {
        [SRV_FLOATS] = {1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
                        "float32, float16, bfloat16 and float64"},
        [SRV_BIAS] = {1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
                      "float32, float16, bfloat16 and float64"},
        [SRV_MASK] = {1u << ATTN_BOOL | 1u << ATTN_I32 | 1u << ATTN_I64, "bool, int32 and int64"},
        [SRV_INTS] = {1u << ATTN_I32 | 1u << ATTN_I64, "int32 and int64"}};

    *names = allowed[kind].names;
    return (allowed[kind].dtypes & 1u << dtype) != 0;
}

static attn_status read_dtype(srv_json_reader *r, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    const char *names = NULL;

    t->dtype = ATTN_OTHER;
    bool known = r->text_n < sizeof r->text && attn_dtype_parse(r->text, &t->dtype);
    if (srv_kind_takes(kind_of(r), t->dtype, &names) && known)
        return ATTN_OK;
    return fail_part(r, err, "\"%s\" is not read here; %s are",
                     srv_json_quote(r->text, strlen(r->text)).text, names);
}

attn_status srv_json_tensor_end(srv_json_reader *r, srv_json_type type, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    attn_error why = {0};

    if (r->scan.depth != 2)
        return ATTN_OK; /* a dimension, or the object itself */
    if (type == SRV_JSON_STRING && t->part == SRV_TENSOR_DTYPE)
        ATTN_TRY(read_dtype(r, err));
    else if (type == SRV_JSON_STRING && attn_base64_finish(&t->base64, &why) != ATTN_OK)
        return fail_part(r, err, "%s", why.text);
    t->part = SRV_TENSOR_MEMBERS;
    return ATTN_OK;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void print_shape(char *out, size_t room, const size_t *dim, size_t rank)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, i == 0 ? "%zu" : ",%zu", dim[i]);
}

attn_status srv_check_rank(const srv_field *f, const char *pointer, size_t rank, attn_error *err)
{
    char allowed[32] = "";

    if (rank >= f->min_rank && rank <= f->max_rank)
        return ATTN_OK;
    if (f->min_rank != f->max_rank)
        (void)snprintf(allowed, sizeof allowed, "%u to ", f->min_rank);
    return attn_fail_at(err, ATTN_ESHAPE, pointer, "%s has rank %zu, expected %s%u", f->name, rank,
                        allowed, f->max_rank);
}

/* Holds shape, dtype and bytes against each other and the field. */
static attn_status check_tensor(srv_json_reader *r, size_t *count, attn_error *err)
{
    srv_json_tensor *t = &r->tensor;
    const srv_field *f = &r->fields[r->field];
    char shape[SRV_LIST_DEPTH * 21 + 1];
    size_t bytes = 0;

    for (unsigned i = 0; i < SRV_TENSOR_MEMBERS; i++) {
        if (!t->seen[i])
            return fail_part(r, err,
                             "\"%s\" is missing; a tensor object has \"shape\", \"dtype\" and "
                             "\"data\"",
                             part_names[i]);
    }
    print_shape(shape, sizeof shape, t->dim, t->rank);
    t->part = SRV_TENSOR_SHAPE;
    if (!attn_size_product(t->dim, t->rank, count) ||
        !attn_size_mul(*count, attn_dtype_size(t->dtype), &bytes))
        return fail_part(r, err, "[%s] is larger than any memory", shape);
    t->part = SRV_TENSOR_DATA;
    if (bytes != r->data.n)
        return fail_part(r, err, "%zu bytes do not fit shape [%s] of %s, which takes %zu",
                         r->data.n, shape, attn_dtype_name(t->dtype), bytes);
    t->part = SRV_TENSOR_SHAPE;
    ATTN_TRY(srv_check_rank(f, srv_json_pointer(r).text, t->rank, err));
    t->part = SRV_TENSOR_DATA;
    return ATTN_OK;
}

int64_t srv_integer_at(const void *p, size_t i, attn_dtype dtype)
{
    int64_t x = 0;

    if (dtype == ATTN_BOOL)
        return ((const unsigned char *)p)[i];
    if (dtype == ATTN_I64) {
        memcpy(&x, (const char *)p + i * sizeof x, sizeof x);
    } else {
        int32_t narrow = 0;
        memcpy(&narrow, (const char *)p + i * sizeof narrow, sizeof narrow);
        x = narrow;
    }
    return x;
}

/* In place: element i becomes byte i, which lies in front of every later element. */
static attn_status convert_mask(srv_json_reader *r, size_t count, attn_error *err)
{
    unsigned char *out = r->data.p;

    for (size_t i = 0; i < count; i++) {
        int64_t x = srv_integer_at(r->data.p, i, r->tensor.dtype);
        if (x != 0 && x != 1)
            return fail_part(r, err,
                             "element %zu is %lld; only 0 and 1 are allowed (1 = may "
                             "attend)",
                             i, (long long)x);
        out[i] = (unsigned char)x;
    }
    r->data.n = count;
    return ATTN_OK;
}

/* Replaces the decoded bytes by `count` elements of another size. */
static attn_status convert_wider(srv_json_reader *r, size_t count, size_t size, attn_error *err)
{
    srv_block out = {NULL, 0, 0}, *data = &r->data;
    attn_error why = {0};

    ATTN_TRY(srv_json_grow(r, &out, count, size, err));
    out.n = count;
    if (kind_of(r) == SRV_INTS) {
        for (size_t i = 0; i < count; i++)
            ((int64_t *)out.p)[i] = srv_integer_at(data->p, i, r->tensor.dtype);
    } else if (attn_widen(out.p, data->p, count, r->tensor.dtype, &why) != ATTN_OK) {
        srv_json_drop(r, &out, size);
        return fail_part(r, err, "%s", why.text);
    }
    srv_json_drop(r, data, 1);
    data->p = out.p;
    data->n = out.n * size;
    data->capacity = out.capacity * size;
    return ATTN_OK;
}

attn_status srv_json_tensor_finish(srv_json_reader *r, attn_error *err)
{
    srv_array *a = &r->slots[r->field].array;
    srv_json_tensor *t = &r->tensor;
    srv_block *b = &r->data;
    size_t count = 0;

    ATTN_TRY(check_tensor(r, &count, err));
    if (kind_of(r) == SRV_MASK)
        ATTN_TRY(convert_mask(r, count, err));
    else if (t->dtype == ATTN_I32)
        ATTN_TRY(convert_wider(r, count, sizeof(int64_t), err));
    else if (t->dtype != ATTN_F32 && t->dtype != ATTN_I64)
        ATTN_TRY(convert_wider(r, count, sizeof(float), err));
    if (b->p == NULL)
        ATTN_TRY(srv_json_grow(r, b, 1, 1, err)); /* an array that is present has data */
    srv_json_fit(r, b, 1);
    a->present = true;
    a->rank = (unsigned)t->rank;
    memcpy(a->dim, t->dim, t->rank * sizeof *a->dim);
    a->count = count;
    a->data.any = b->p;
    a->bytes = b->capacity;
    *b = (srv_block){NULL, 0, 0}; /* the array owns it now */
    return ATTN_OK;
}
