#include "safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "file.h"

#define METADATA "__metadata__"

enum { MAX_EXACT_BITS = 53 }; /* integers up to 2^53 are the same in every JSON reader */

attn_status attn_safetensors_measure(size_t *header_bytes, const void *start, size_t n,
                                     uint64_t total, const char *what, attn_error *err)
{
    const unsigned char *byte = start;
    const char *other = attn_file_looks_like(start, n);
    uint64_t length = 0;

    if (total == 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: is empty (0 bytes)", what);
    if (n >= ATTN_SAFETENSORS_PREFIX) {
        for (size_t i = 0; i < ATTN_SAFETENSORS_PREFIX; i++)
            length |= (uint64_t)byte[i] << (8 * i);
    }
    if (other != NULL && (length < 2 || length > total || length > ATTN_SAFETENSORS_HEADER_MAX))
        return attn_fail(err, ATTN_EFORMAT, "%s: not a safetensors file: it looks like %s", what,
                         other);
    if (total < ATTN_SAFETENSORS_PREFIX || n < ATTN_SAFETENSORS_PREFIX)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: not a safetensors file: %" PRIu64 " bytes cannot hold the 8 of the "
                         "header length",
                         what, total);
    if (length > total)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: header length %" PRIu64 " is larger than the file (%" PRIu64
                         " bytes)",
                         what, length, total);
    if (length > total - ATTN_SAFETENSORS_PREFIX)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: header length %" PRIu64 " is larger than what follows it in the file "
                         "(%" PRIu64 " bytes)",
                         what, length, total - ATTN_SAFETENSORS_PREFIX);
    if (length > ATTN_SAFETENSORS_HEADER_MAX)
        return attn_fail(err, ATTN_EFORMAT, "%s: header length %" PRIu64 " is over the limit of %d",
                         what, length, ATTN_SAFETENSORS_HEADER_MAX);
    if (length < 2)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: header length %" PRIu64 " is too short for a JSON object", what,
                         length);
    *header_bytes = (size_t)length;
    return ATTN_OK;
}

/* Fills dtype and name; *bits = bits of an element, 0 for a spelling that we do not know. */
static void read_dtype(attn_tensor *t, const char *name, size_t *bits)
{
    static const struct {
        const char *name;
        attn_dtype dtype;
        size_t bits;
    } known[] = {
        {"F32", ATTN_F32, 32},      {"F16", ATTN_F16, 16},          {"BF16", ATTN_BF16, 16},
        {"F64", ATTN_F64, 64},      {"BOOL", ATTN_BOOL, 8},         {"I8", ATTN_I8, 8},
        {"U8", ATTN_U8, 8},         {"I16", ATTN_I16, 16},          {"U16", ATTN_U16, 16},
        {"I32", ATTN_I32, 32},      {"U32", ATTN_U32, 32},          {"I64", ATTN_I64, 64},
        {"U64", ATTN_U64, 64},      {"F4", ATTN_OTHER, 4},          {"F6_E2M3", ATTN_OTHER, 6},
        {"F6_E3M2", ATTN_OTHER, 6}, {"F8_E5M2", ATTN_OTHER, 8},     {"F8_E4M3", ATTN_OTHER, 8},
        {"F8_E8M0", ATTN_OTHER, 8}, {"F8_E4M3FNUZ", ATTN_OTHER, 8}, {"F8_E5M2FNUZ", ATTN_OTHER, 8},
        {"C64", ATTN_OTHER, 64},
    };

    t->dtype_name = name;
    t->dtype = ATTN_OTHER;
    *bits = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            t->dtype = known[i].dtype;
            *bits = known[i].bits;
            return;
        }
    }
}

static bool read_size(const attn_json *v, size_t *out)
{
    int64_t i = 0;
    if (!attn_json_integer(v, &i) || i < 0 || i > INT64_C(1) << MAX_EXACT_BITS)
        return false;
    *out = (size_t)i;
    return true;
}

static attn_status read_shape(attn_tensor *t, const attn_json *shape, attn_error *err)
{
    if (!attn_json_is_array(shape))
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\": shape is %s, not an array", t->file,
                         t->name, attn_json_type_name(shape));
    t->rank = attn_json_length(shape);
    if (t->rank > ATTN_MAX_RANK)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: tensor \"%s\" has %zu dimensions, at most %d are read", t->file,
                         t->name, t->rank, ATTN_MAX_RANK);
    for (size_t i = 0; i < t->rank; i++) {
        if (!read_size(attn_json_at(shape, i), &t->dim[i]))
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: tensor \"%s\": shape[%zu] is not an integer from 0 to 2^53",
                             t->file, t->name, i);
    }
    if (!attn_size_product(t->dim, t->rank, &t->count))
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\": the product of its shape overflows",
                         t->file, t->name);
    return ATTN_OK;
}

/* `offset` counts from the start of the data until the table is whole. */
static attn_status read_range(attn_tensor *t, const attn_json *offsets, size_t element_bits,
                              attn_error *err)
{
    size_t begin = 0, end = 0, bits = 0;

    if (!attn_json_is_array(offsets) || attn_json_length(offsets) != 2 ||
        !read_size(attn_json_at(offsets, 0), &begin) || !read_size(attn_json_at(offsets, 1), &end))
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: tensor \"%s\": data_offsets are not two integers from 0 to 2^53",
                         t->file, t->name);
    if (end < begin)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: tensor \"%s\": data_offsets [%zu,%zu] end before they begin", t->file,
                         t->name, begin, end);
    t->offset = begin;
    t->bytes = end - begin;
    if (element_bits == 0)
        return ATTN_OK;
    if (!attn_size_mul(t->count, element_bits, &bits))
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\": the size of its shape overflows",
                         t->file, t->name);
    if (bits % 8 != 0)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: tensor \"%s\": %zu elements of %s do not fill whole bytes", t->file,
                         t->name, t->count, t->dtype_name);
    if (bits / 8 != t->bytes)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: tensor \"%s\": data_offsets [%zu,%zu] hold %zu bytes, its shape and "
                         "dtype %s need %zu",
                         t->file, t->name, begin, end, t->bytes, t->dtype_name, bits / 8);
    return ATTN_OK;
}

static attn_status read_tensor(attn_tensor *t, const attn_json *entry, attn_error *err)
{
    const char *dtype = NULL;
    size_t element_bits = 0;

    if (!attn_json_is_object(entry))
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\" is %s, not an object", t->file,
                         t->name, attn_json_type_name(entry));
    if (!attn_json_string(attn_json_get(entry, "dtype"), &dtype))
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\": dtype is %s, not a string", t->file,
                         t->name, attn_json_type_name(attn_json_get(entry, "dtype")));
    read_dtype(t, dtype, &element_bits);
    ATTN_TRY(read_shape(t, attn_json_get(entry, "shape"), err));
    return read_range(t, attn_json_get(entry, "data_offsets"), element_bits, err);
}

static attn_status check_metadata(const attn_json *metadata, const char *what, attn_error *err)
{
    const attn_json *value = NULL;
    const char *key = NULL, *text = NULL;
    void *it = NULL;

    if (!attn_json_is_object(metadata))
        return attn_fail(err, ATTN_EFORMAT, "%s: " METADATA " is %s, not an object", what,
                         attn_json_type_name(metadata));
    while (attn_json_next(metadata, &it, &key, &value)) {
        if (!attn_json_string(value, &text))
            return attn_fail(err, ATTN_EFORMAT, "%s: " METADATA ": \"%s\" is %s, not a string",
                             what, key, attn_json_type_name(value));
    }
    return ATTN_OK;
}

/* Empty tensors first where several begin at one place. */
static int compare_ranges(const void *a, const void *b)
{
    const attn_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static attn_status check_coverage(const attn_safetensors *s, uint64_t data_bytes, const char *what,
                                  attn_error *err)
{
    uint64_t end = 0;

    for (size_t i = 0; i < s->count; i++) {
        const attn_tensor *t = &s->tensor[i];
        if (t->offset < end)
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: tensor \"%s\" begins at %" PRIu64 " of the data and overlaps "
                             "\"%s\", which ends at %" PRIu64,
                             what, t->name, t->offset, s->tensor[i - 1].name, end);
        if (t->offset > end)
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: bytes %" PRIu64 " to %" PRIu64 " of the data, before tensor "
                             "\"%s\", belong to no tensor",
                             what, end, t->offset, t->name);
        end += t->bytes;
    }
    if (end > data_bytes)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: is cut: tensor \"%s\" ends at byte %" PRIu64 " of the data, the file "
                         "holds %" PRIu64,
                         what, s->tensor[s->count - 1].name, end, data_bytes);
    if (end < data_bytes && data_bytes != ATTN_SAFETENSORS_UNKNOWN)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: bytes %" PRIu64 " to %" PRIu64 " of the data, after the last tensor, "
                         "belong to no tensor",
                         what, end, data_bytes);
    return ATTN_OK;
}

static attn_status read_tensors(attn_safetensors *s, const char *what, attn_error *err)
{
    const attn_json *entry = NULL;
    const char *name = NULL;
    void *it = NULL;

    while (attn_json_next(s->document, &it, &name, &entry)) {
        if (strcmp(name, METADATA) == 0) {
            ATTN_TRY(check_metadata(entry, what, err));
            continue;
        }
        attn_tensor *t = &s->tensor[s->count++];
        t->name = name;
        t->file = what;
        ATTN_TRY(read_tensor(t, entry, err));
    }
    return ATTN_OK;
}

attn_status attn_safetensors_parse(attn_safetensors *s, const char *header, size_t n,
                                   uint64_t data_bytes, const char *what, attn_error *err)
{
    attn_status rc = ATTN_OK;
    size_t entries = 0;
    char label[sizeof err->text];

    *s = (attn_safetensors){0};
    (void)snprintf(label, sizeof label, "%s: header", what);
    ATTN_TRY(attn_json_parse(&s->document, header, n, label, err));
    if (!attn_json_is_object(s->document)) {
        rc = attn_fail(err, ATTN_EFORMAT, "%s: the header is %s, not an object", what,
                       attn_json_type_name(s->document));
        goto done;
    }
    entries = attn_json_length(s->document);
    s->tensor = calloc(entries + 1, sizeof *s->tensor); /* never of zero bytes */
    if (s->tensor == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for %zu tensors", what, entries);
        goto done;
    }
    rc = read_tensors(s, what, err);
    if (rc != ATTN_OK)
        goto done;
    qsort(s->tensor, s->count, sizeof *s->tensor, compare_ranges);
    rc = check_coverage(s, data_bytes, what, err);
    for (size_t i = 0; i < s->count; i++)
        s->tensor[i].offset += ATTN_SAFETENSORS_PREFIX + n;
done:
    if (rc != ATTN_OK)
        attn_safetensors_deinit(s);
    return rc;
}

void attn_safetensors_deinit(attn_safetensors *s)
{
    free(s->tensor);
    attn_json_free(s->document);
    *s = (attn_safetensors){0};
}
