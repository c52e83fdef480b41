#include "server/safetensors_body.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/safetensors.h"
#include "server/json_private.h"
#include "server/json_writer.h"
#include "server/raw_tensor.h"

#define WHAT "the body"

struct srv_safetensors_body {
    srv_json_reader *into;
    uint64_t total, received;
    srv_block header;        /* the prefix, then the JSON */
    size_t header_bytes;     /* of both; 0 = not known yet */
    srv_raw_tensor **tensor; /* in the order of their data; NULL until the header is read */
    size_t count, next;
};

attn_status srv_safetensors_body_new(srv_safetensors_body **out, srv_json_reader *into,
                                     uint64_t total, attn_error *err)
{
    srv_safetensors_body *b = calloc(1, sizeof *b);

    *out = b;
    if (b == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to read a body");
    b->into = into;
    b->total = total;
    return ATTN_OK;
}

void srv_safetensors_body_free(srv_safetensors_body *b)
{
    if (b == NULL)
        return;
    for (size_t i = 0; b->tensor != NULL && i < b->count; i++)
        srv_raw_tensor_free(b->tensor[i]);
    free(b->tensor);
    srv_json_drop(b->into, &b->header, 1);
    free(b);
}

/* What is damaged in a file is wrong by itself in a request. */
static attn_status as_invalid(attn_status rc, const attn_error *why, attn_error *err)
{
    if (rc == ATTN_OK)
        return ATTN_OK;
    return attn_fail(err, rc == ATTN_ENOMEM ? rc : ATTN_EINVAL, "%s", why->text);
}

/* --- the header ------------------------------------------------------------------------------- */

static attn_status measure(srv_safetensors_body *b, uint64_t total, attn_error *err)
{
    attn_error why = {0};
    size_t n = 0;
    attn_status rc = attn_safetensors_measure(&n, b->header.p, b->header.n, total, WHAT, &why);

    ATTN_TRY(as_invalid(rc, &why, err));
    if (n > SRV_SAFETENSORS_HEADER) {
        rc = attn_fail(err, ATTN_ETOOBIG, WHAT " has a header of %zu bytes; at most %u are read", n,
                       SRV_SAFETENSORS_HEADER);
        if (err != NULL) {
            err->needed = n;
            err->limit = SRV_SAFETENSORS_HEADER;
        }
        return rc;
    }
    b->header_bytes = n + ATTN_SAFETENSORS_PREFIX;
    return ATTN_OK;
}

static attn_status read_options(const srv_safetensors_body *b, const attn_json *metadata,
                                attn_error *err)
{
    const attn_json *value = NULL;
    const char *key = NULL, *text = NULL;
    void *it = NULL;

    while (metadata != NULL && attn_json_next(metadata, &it, &key, &value)) {
        if (strcmp(key, "format") == 0)
            continue;
        (void)attn_json_string(value, &text); /* it is one: the parser has seen to it */
        ATTN_TRY(srv_json_reader_member(b->into, key, text, strlen(text), err));
    }
    return ATTN_OK;
}

static attn_status read_table(srv_safetensors_body *b, const attn_safetensors *s, attn_error *err)
{
    b->tensor = calloc(s->count + 1, sizeof(srv_raw_tensor *)); /* never of zero bytes */
    if (b->tensor == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu tensors", s->count);
    b->count = s->count;
    ATTN_TRY(read_options(b, attn_json_get(s->document, "__metadata__"), err));
    for (size_t i = 0; i < s->count; i++)
        ATTN_TRY(srv_raw_tensor_new(&b->tensor[i], b->into, s->tensor[i].name, &s->tensor[i], err));
    return ATTN_OK;
}

static attn_status read_header(srv_safetensors_body *b, attn_error *err)
{
    const char *text = (const char *)b->header.p + ATTN_SAFETENSORS_PREFIX;
    size_t n = b->header_bytes - ATTN_SAFETENSORS_PREFIX, tree = n * SRV_VALUE_COST;
    uint64_t data = b->total == UINT64_MAX ? ATTN_SAFETENSORS_UNKNOWN : b->total - b->header_bytes;
    attn_safetensors s = {0};
    attn_error why = {0};

    ATTN_TRY(srv_json_charge(b->into, tree, err));
    attn_status rc = as_invalid(attn_safetensors_parse(&s, text, n, data, WHAT, &why), &why, err);
    if (rc == ATTN_OK)
        rc = read_table(b, &s, err);
    attn_safetensors_deinit(&s);
    srv_json_discharge(b->into, tree);
    srv_json_drop(b->into, &b->header, 1);
    return rc;
}

/* Takes bytes up to the end of the header: *used of n. */
static attn_status feed_header(srv_safetensors_body *b, const char *bytes, size_t n, size_t *used,
                               attn_error *err)
{
    bool measured = b->header_bytes != 0;
    size_t end = measured ? b->header_bytes : ATTN_SAFETENSORS_PREFIX, have = b->header.n;

    *used = n < end - have ? n : end - have;
    ATTN_TRY(srv_json_grow_within(b->into, &b->header, *used, end, 1, err));
    memcpy((char *)b->header.p + have, bytes, *used);
    b->header.n += *used;
    if (b->header.n < end)
        return ATTN_OK;
    return measured ? read_header(b, err) : measure(b, b->total, err);
}

/* --- the data --------------------------------------------------------------------------------- */

/* Goes to the first tensor that wants bytes; false when there is none. */
static bool next_tensor(srv_safetensors_body *b)
{
    while (b->next < b->count && srv_raw_tensor_left(b->tensor[b->next]) == 0)
        b->next++;
    return b->next < b->count;
}

attn_status srv_safetensors_body_feed(srv_safetensors_body *b, const char *bytes, size_t n,
                                      attn_error *err)
{
    size_t used = 0;

    b->received += n;
    for (; n > 0; bytes += used, n -= used) {
        if (b->tensor == NULL) {
            ATTN_TRY(feed_header(b, bytes, n, &used, err));
        } else if (!next_tensor(b)) {
            return attn_fail(err, ATTN_EINVAL, WHAT " goes on behind the data of its last tensor");
        } else {
            ATTN_TRY(srv_raw_tensor_feed(b->tensor[b->next], bytes, n, &used, err));
        }
    }
    return ATTN_OK;
}

attn_status srv_safetensors_body_finish(srv_safetensors_body *b, attn_error *err)
{
    size_t missing = 0;

    if (b->header_bytes == 0)
        ATTN_TRY(measure(b, b->received, err));
    if (b->tensor == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         WHAT " is cut within its header, after %" PRIu64 " bytes", b->received);
    for (size_t i = 0; i < b->count; i++)
        missing += srv_raw_tensor_left(b->tensor[i]);
    if (missing > 0)
        return attn_fail(err, ATTN_EINVAL, WHAT " is cut: its tensors need %zu bytes more",
                         missing);
    for (size_t i = 0; i < b->count; i++)
        ATTN_TRY(srv_raw_tensor_finish(b->tensor[i], err));
    return ATTN_OK;
}

/* --- answer ----------------------------------------------------------------------------------- */

static void write_entry(srv_json_writer *w, const srv_safetensors_entry *e, size_t begin,
                        size_t end)
{
    static const char *const names[] = {
        [ATTN_F32] = "F32",   [ATTN_F16] = "F16", [ATTN_BF16] = "BF16", [ATTN_F64] = "F64",
        [ATTN_BOOL] = "BOOL", [ATTN_I8] = "I8",   [ATTN_U8] = "U8",     [ATTN_I16] = "I16",
        [ATTN_U16] = "U16",   [ATTN_I32] = "I32", [ATTN_U32] = "U32",   [ATTN_I64] = "I64",
        [ATTN_U64] = "U64",   [ATTN_OTHER] = ""};

    srv_json_writer_string(w, e->name);
    srv_json_writer_format(w, ":{\"dtype\":\"%s\",\"shape\":[", names[e->dtype]);
    for (size_t i = 0; i < e->rank; i++)
        srv_json_writer_format(w, i == 0 ? "%zu" : ",%zu", e->dim[i]);
    srv_json_writer_format(w, "],\"data_offsets\":[%zu,%zu]}", begin, end);
}

/* False: the sizes overflow. */
static bool write_table(srv_json_writer *w, const srv_safetensors_entry *entry, size_t n)
{
    size_t begin = 0;

    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0, end = 0;
        if (!attn_size_product(entry[i].dim, entry[i].rank, &bytes) ||
            !attn_size_mul(bytes, attn_dtype_size(entry[i].dtype), &bytes) ||
            !attn_size_add(begin, bytes, &end))
            return false;
        if (i > 0)
            srv_json_writer_raw(w, ",", 1);
        write_entry(w, &entry[i], begin, end);
        begin = end;
    }
    return true;
}

/* The text that the writer gives, behind the prefix and with spaces up to a multiple of 64. */
static char *print_header(srv_json_writer *w, size_t *bytes)
{
    enum { ALIGNMENT = 64 };
    char *out = NULL;
    size_t n = ATTN_SAFETENSORS_PREFIX, room = 0, got = 1;

    while (got > 0) {
        if (room - n < ALIGNMENT || out == NULL) {
            room = room * 2 + 1024;
            char *more = realloc(out, room);
            if (more == NULL) {
                free(out);
                return NULL;
            }
            out = more;
        }
        got = srv_json_writer_read(w, out + n, room - n);
        n += got;
    }
    size_t end = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* room - n >= ALIGNMENT */
    memset(out + n, ' ', end - n);
    uint64_t length = end - ATTN_SAFETENSORS_PREFIX;
    memcpy(out, &length, sizeof length); /* little-endian, as all that we run on */
    *bytes = end;
    return out;
}

char *srv_safetensors_header(const srv_safetensors_entry *entry, size_t n,
                             const srv_safetensors_option *option, size_t num_options,
                             size_t *bytes)
{
    srv_json_writer *w = srv_json_writer_new();
    char *out = NULL;

    if (w == NULL)
        return NULL;
    srv_json_writer_raw(w, "{", 1);
    for (size_t i = 0; i < num_options; i++) {
        srv_json_writer_format(w, i == 0 ? "\"__metadata__\":{" : ",");
        srv_json_writer_string(w, option[i].key);
        srv_json_writer_raw(w, ":", 1);
        srv_json_writer_string(w, option[i].value);
    }
    if (num_options > 0)
        srv_json_writer_raw(w, n > 0 ? "}," : "}", n > 0 ? 2 : 1);
    bool fits = write_table(w, entry, n);
    srv_json_writer_raw(w, "}", 1);
    if (fits && srv_json_writer_status(w) == ATTN_OK)
        out = print_header(w, bytes);
    srv_json_writer_free(w);
    return out;
}
