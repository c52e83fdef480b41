/* gzip and deflate: the same bytes and the same error whatever the pieces, never more than the limit; and what is
 * compressed for an answer comes back. Input: coding, limit, how it is cut, then the stream. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "server/deflate.h"
#include "server/inflate.h"

typedef struct {
    attn_status rc;
    attn_error err;
    unsigned char *bytes;
    size_t n, room;
} inflated;

static attn_status collect(void *arg, const char *bytes, size_t n, attn_error *err)
{
    inflated *d = arg;

    (void)err;
    FUZZ_CHECK(n > 0);
    if (d->room - d->n < n) {
        d->room = 2 * d->room + n;
        d->bytes = realloc(d->bytes, d->room);
        FUZZ_CHECK(d->bytes != NULL);
    }
    memcpy(d->bytes + d->n, bytes, n);
    d->n += n;
    return ATTN_OK;
}

static inflated inflate_all(const void *bytes, size_t n, srv_coding coding, uint64_t max,
                            fuzz_cuts cuts)
{
    inflated d = {0};
    srv_inflate *z = NULL;

    d.rc = srv_inflate_new(&z, coding, max, collect, &d, &d.err);
    for (size_t at = 0; d.rc == ATTN_OK && at < n;) {
        size_t piece = fuzz_cut(&cuts, n - at);
        char *in = fuzz_copy((const char *)bytes + at, piece);
        d.rc = srv_inflate_feed(z, in, piece, &d.err);
        free(in);
        at += piece;
    }
    if (d.rc == ATTN_OK)
        d.rc = srv_inflate_finish(z, &d.err);
    FUZZ_CHECK(d.n <= max);
    srv_inflate_free(z);
    return d;
}

typedef struct {
    fuzz_input in;
    fuzz_cuts cuts;
} source;

static ssize_t give(void *arg, char *out, size_t n)
{
    source *s = arg;
    size_t k = s->in.n > 0 ? fuzz_cut(&s->cuts, s->in.n) : 0;

    k = k < n ? k : n;
    if (k > 0)
        memcpy(out, s->in.at, k);
    s->in.at += k;
    s->in.n -= k;
    return (ssize_t)k;
}

static void check_round_trip(fuzz_input in, srv_coding coding, fuzz_cuts cuts)
{
    source s = {in, cuts};
    inflated text = {0};
    srv_deflate *z = NULL;
    char out[128];
    ssize_t got = 0;

    FUZZ_CHECK(srv_deflate_new(&z, coding, give, &s, NULL) == ATTN_OK);
    while ((got = srv_deflate_read(z, out, 64 + cuts.how % 64)) > 0)
        FUZZ_CHECK(collect(&text, out, (size_t)got, NULL) == ATTN_OK);
    FUZZ_CHECK(got == 0);
    srv_deflate_free(z);
    inflated again = inflate_all(text.bytes, text.n, coding, UINT64_MAX, cuts);
    FUZZ_CHECK(again.rc == ATTN_OK && again.n == in.n);
    FUZZ_CHECK(in.n == 0 || memcmp(again.bytes, in.at, in.n) == 0);
    free(again.bytes);
    free(text.bytes);
}

/* Where zlib notices damage depends a little on how much it could look ahead. */
static bool same_error(const attn_error *a, const attn_error *b)
{
    static const char near[] = " damaged near byte ";

    if (strstr(a->text, near) != NULL)
        return a->code == b->code && strstr(b->text, near) != NULL;
    return fuzz_same_error(a, b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    srv_coding coding = how & 1 ? SRV_DEFLATE : SRV_GZIP;
    /* Below what the ratio leaves free: that one counts what came, and so depends on the pieces. */
    uint64_t max = (uint64_t)1 << (how >> 1) % 22;
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));

    inflated whole = inflate_all(in.at, in.n, coding, max, fuzz_cuts_of(0));
    inflated pieces = inflate_all(in.at, in.n, coding, max, cuts);
    FUZZ_CHECK(whole.rc == pieces.rc && same_error(&whole.err, &pieces.err));
    if (whole.rc == ATTN_OK) {
        FUZZ_CHECK(whole.n == pieces.n);
        FUZZ_CHECK(whole.n == 0 || memcmp(whole.bytes, pieces.bytes, whole.n) == 0);
    }
    check_round_trip(in, coding, cuts);
    free(whole.bytes);
    free(pieces.bytes);
    return 0;
}
