/* A body of the Open Inference Protocol, JSON and then bytes, from its first byte to its answer: the same answer or the
 * same error whatever the pieces. Input: coding; how it is cut; the line of Inference-Header-Content-Length, which may
 * be empty; then the body. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "server/oip.h"
#include "tests/fuzz/answering.h"

enum { LARGE = 64 << 20, SMALL = 400 << 10, MAX_BODY = 1 << 20 };

typedef struct {
    attn_error err;
    char *text;
    size_t n;
} answered;

static attn_status parse(srv_oip *o, fuzz_input body, fuzz_cuts cuts, attn_error *err)
{
    for (size_t at = 0; at < body.n;) {
        size_t piece = fuzz_cut(&cuts, body.n - at);
        char *copy = fuzz_copy(body.at + at, piece);
        attn_status rc = srv_oip_feed(o, copy, piece, err);
        free(copy);
        if (rc != ATTN_OK)
            return rc;
        at += piece;
    }
    return srv_oip_parse(o, 1, err);
}

static answered ask(const srv_oip_body *how, fuzz_input body, fuzz_cuts cuts, size_t memory)
{
    srv_request *r = NULL;
    srv_oip *o = NULL;
    attn_budget budget;
    answered out = {0};

    attn_budget_init(&budget, memory);
    attn_status rc = srv_request_new(&r, SRV_ATTENTION, answering_model(), &budget, &out.err);
    if (rc == ATTN_OK)
        rc = srv_oip_new(&o, r, how, &out.err);
    if (rc == ATTN_OK)
        rc = parse(o, body, cuts, &out.err);
    if (rc == ATTN_OK)
        out.text = answering_text(r, &out.n, &out.err);
    FUZZ_CHECK((out.text == NULL) == (out.err.code != ATTN_OK));
    srv_oip_translate(&out.err);
    srv_oip_free(o);
    srv_request_free(r);
    FUZZ_CHECK(budget.used == 0);
    return out;
}

/* Memory and time depend on how much there is; where zlib notices damage on the pieces. */
static bool may_differ(const attn_error *e)
{
    return e->code == ATTN_ETOOBIG || e->code == ATTN_ETIMEDOUT ||
           strstr(e->text, " damaged near byte ") != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));
    uint64_t json_bytes = UINT64_MAX;

    for (unsigned c; in.n > 0 && (c = fuzz_byte(&in)) != '\n';) {
        if (c >= '0' && c <= '9' && (json_bytes == UINT64_MAX || json_bytes < MAX_BODY))
            json_bytes = (json_bytes == UINT64_MAX ? 0 : json_bytes * 10) + c - '0';
    }
    srv_oip_body body = {.json_bytes = json_bytes,
                         .length = how & 4 ? UINT64_MAX : in.n,
                         .max_bytes = MAX_BODY,
                         .coding = (srv_coding)((how & 3) % SRV_CODINGS)};
    if (json_bytes != UINT64_MAX && /* as srv_oip_read_fields() has it */
        (json_bytes > MAX_BODY || (body.coding == SRV_IDENTITY && json_bytes > body.length)))
        return -1;
    answered whole = ask(&body, in, fuzz_cuts_of(0), LARGE);
    answered pieces = ask(&body, in, cuts, SMALL);
    if (!may_differ(&whole.err) && !may_differ(&pieces.err)) {
        FUZZ_CHECK(fuzz_same_error(&whole.err, &pieces.err));
        FUZZ_CHECK(whole.text == NULL ||
                   answering_same(whole.text, whole.n, pieces.text, pieces.n));
    }
    free(whole.text);
    free(pieces.text);
    return 0;
}
