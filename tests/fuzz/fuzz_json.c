/* The streaming reader of request bodies: the same members or the same error whatever the pieces, all that it charged
 * is given back, and what it takes is JSON for jansson, too. Input: how the body is cut, then the body. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "server/json_reader.h"

static const srv_field fields[] = {
    {"inputs_embeds", SRV_FLOATS, 2, 3, true}, {"query", SRV_FLOATS, 4, 4, false},
    {"attention_mask", SRV_MASK, 2, 4, false}, {"attention_bias", SRV_BIAS, 0, 4, false},
    {"lengths", SRV_INTS, 1, 1, false},        {"causal_offset", SRV_INTS, 0, 1, false},
    {"position_ids", SRV_INTS, 1, 2, false},   {"tokens", SRV_LABELS, 1, 2, false},
    {"layer", SRV_VALUE, 0, 0, false},         {"return_attentions", SRV_VALUE, 0, 0, false},
    {"user", SRV_OPTION, 0, 0, false}};
enum { FIELDS = sizeof fields / sizeof fields[0] };

typedef struct {
    srv_json_reader *r;
    size_t charged;
    attn_status rc;
    attn_error err;
} reading;

static attn_status charge(void *arg, ptrdiff_t bytes, attn_error *err)
{
    reading *d = arg;

    (void)err;
    FUZZ_CHECK(bytes >= 0 || d->charged >= (size_t)-bytes);
    d->charged += (size_t)bytes;
    return ATTN_OK;
}

static void read_all(reading *d, const char *text, size_t n, fuzz_cuts cuts)
{
    d->rc = srv_json_reader_new(&d->r, fields, FIELDS, charge, d, &d->err);
    for (size_t at = 0; d->rc == ATTN_OK && at < n;) {
        size_t piece = fuzz_cut(&cuts, n - at);
        char *copy = fuzz_copy(text + at, piece);
        d->rc = srv_json_reader_feed(d->r, copy, piece, &d->err);
        memset(copy, '#', piece); /* nothing may be kept by its address */
        free(copy);
        at += piece;
    }
    if (d->rc == ATTN_OK)
        d->rc = srv_json_reader_finish(d->r, &d->err);
    FUZZ_CHECK(d->rc == d->err.code);
    FUZZ_CHECK(d->charged == srv_json_reader_charged(d->r));
}

static size_t element_size(srv_field_kind kind)
{
    switch (kind) {
    case SRV_FLOATS:
    case SRV_BIAS:
        return sizeof(float);
    case SRV_INTS:
        return sizeof(int64_t);
    default:
        return 1;
    }
}

static bool same_array(const srv_field *f, const srv_array *a, const srv_array *b)
{
    if (a->present != b->present || a->rank != b->rank || a->count != b->count ||
        a->unknown_width != b->unknown_width || (a->lengths == NULL) != (b->lengths == NULL) ||
        memcmp(a->dim, b->dim, sizeof a->dim) != 0)
        return false;
    if (a->lengths != NULL && memcmp(a->lengths, b->lengths, a->dim[0] * sizeof *a->lengths) != 0)
        return false;
    return !a->present || memcmp(a->data.any, b->data.any, a->count * element_size(f->kind)) == 0;
}

/* jansson compares only what it may also change. */
static bool same_value(const attn_json *a, const attn_json *b)
{
    union {
        const attn_json *in;
        json_t *out;
    } x = {a}, y = {b};

    return a == NULL || b == NULL ? a == b : json_equal(x.out, y.out) != 0;
}

/* Integers beyond 64 bits are numbers for us and too much for jansson. */
static void check_is_json(const char *text, size_t n)
{
    attn_json *document = NULL;
    attn_error err = {0};
    char *copy = fuzz_copy(text, n);

    if (attn_json_parse(&document, copy, n, "body", &err) != ATTN_OK)
        FUZZ_CHECK(strstr(err.text, "too big") != NULL);
    attn_json_free(document);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));
    const char *text = (const char *)in.at;
    reading whole = {0}, pieces = {0};

    read_all(&whole, text, in.n, fuzz_cuts_of(0));
    read_all(&pieces, text, in.n, cuts);
    FUZZ_CHECK(whole.rc == pieces.rc && fuzz_same_error(&whole.err, &pieces.err));
    for (size_t i = 0; i < FIELDS && whole.rc == ATTN_OK; i++) {
        FUZZ_CHECK(same_array(&fields[i], srv_json_reader_array(whole.r, i),
                              srv_json_reader_array(pieces.r, i)));
        FUZZ_CHECK(
            same_value(srv_json_reader_value(whole.r, i), srv_json_reader_value(pieces.r, i)));
    }
    if (whole.rc == ATTN_OK)
        check_is_json(text, in.n);
    srv_json_reader_free(whole.r);
    srv_json_reader_free(pieces.r);
    FUZZ_CHECK(whole.charged == 0 && pieces.charged == 0);
    return 0;
}
