/* base64: whatever the pieces, the wide road and the plain one decode the same; what is decoded encodes to the same
 * text, and what is encoded decodes to the same bytes. Input: how it is cut, then the text. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/base64.h"

typedef struct {
    attn_status rc;
    attn_error err;
    unsigned char *bytes;
    size_t n;
} decoded;

static decoded decode(const char *text, size_t n, fuzz_cuts cuts)
{
    decoded d = {.bytes = malloc(ATTN_BASE64_DECODED(n) + 3)};
    attn_base64 state = {0};

    FUZZ_CHECK(d.bytes != NULL);
    for (size_t at = 0; d.rc == ATTN_OK && at < n;) {
        size_t piece = fuzz_cut(&cuts, n - at), written = 0;
        char *in = fuzz_copy(text + at, piece);
        unsigned char *out = malloc(ATTN_BASE64_DECODED(piece));
        FUZZ_CHECK(out != NULL);
        d.rc = attn_base64_decode(&state, in, piece, out, &written, &d.err);
        FUZZ_CHECK(written <= ATTN_BASE64_DECODED(piece));
        memcpy(d.bytes + d.n, out, written);
        d.n += written;
        at += piece;
        free(out);
        free(in);
    }
    if (d.rc == ATTN_OK)
        d.rc = attn_base64_finish(&state, &d.err);
    return d;
}

static void check_encoding(const void *bytes, size_t n)
{
    size_t length = ATTN_BASE64_ENCODED(n);
    char *text = malloc(length > 0 ? length : 1);

    FUZZ_CHECK(text != NULL);
    attn_base64_encode(text, bytes, n);
    decoded d = decode(text, length, fuzz_cuts_of(0));
    FUZZ_CHECK(d.rc == ATTN_OK && d.n == n && (n == 0 || memcmp(d.bytes, bytes, n) == 0));
    free(d.bytes);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));
    const char *text = (const char *)in.at;

    decoded whole = decode(text, in.n, fuzz_cuts_of(0));
    decoded pieces = decode(text, in.n, cuts);
    decoded single = decode(text, in.n, fuzz_cuts_of(1)); /* never wide */
    FUZZ_CHECK(whole.rc == single.rc && pieces.rc == single.rc);
    FUZZ_CHECK(fuzz_same_error(&whole.err, &single.err));
    FUZZ_CHECK(fuzz_same_error(&pieces.err, &single.err));
    FUZZ_CHECK(whole.n == single.n && memcmp(whole.bytes, single.bytes, whole.n) == 0);
    FUZZ_CHECK(pieces.n == single.n && memcmp(pieces.bytes, single.bytes, pieces.n) == 0);
    if (single.rc == ATTN_OK) {
        char *again = malloc(ATTN_BASE64_ENCODED(single.n) + 1);
        FUZZ_CHECK(again != NULL && ATTN_BASE64_ENCODED(single.n) == in.n);
        attn_base64_encode(again, single.bytes, single.n);
        FUZZ_CHECK(in.n == 0 || memcmp(again, text, in.n) == 0);
        free(again);
    }
    check_encoding(in.at, in.n);
    free(whole.bytes);
    free(pieces.bytes);
    free(single.bytes);
    return 0;
}
