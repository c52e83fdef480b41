/* A request for attention of any media type and coding, from its body to its answer: whatever the pieces and, where it
 * fits, the memory, the same answer or the same error; JSON answers are JSON. Input: kind, media types and coding; how
 * it is cut; then, for .npy, the query and a line "--"; then the body. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "server/answer.h"
#include "server/query.h"
#include "tests/fuzz/answering.h"

enum { LARGE = 64 << 20, SMALL = 400 << 10, MAX_BODY = 1 << 20 };

typedef struct {
    srv_request_kind kind;
    srv_source_options source;
    srv_format format;
    char *query; /* for .npy */
    fuzz_input body;
} asked;

typedef struct {
    attn_error err;
    char *text;
    size_t n;
    size_t needed; /* as the plan says */
} answered;

static attn_status parse(srv_request *r, const asked *a, fuzz_cuts cuts, attn_error *err)
{
    srv_query query = {0};

    r->format = a->format;
    ATTN_TRY(srv_query_parse(&query, a->query, err));
    attn_status rc = srv_request_open(r, &a->source, &query, err);
    srv_query_deinit(&query);
    for (size_t at = 0; rc == ATTN_OK && at < a->body.n;) {
        size_t piece = fuzz_cut(&cuts, a->body.n - at);
        char *copy = fuzz_copy(a->body.at + at, piece);
        rc = srv_request_feed(r, copy, piece, err);
        free(copy);
        at += piece;
    }
    return rc == ATTN_OK ? srv_request_parse(r, 1, err) : rc;
}

static char *estimate(const srv_request *r, size_t *n)
{
    enum { ROOM = 8192 };
    srv_json_writer *w = srv_answer_estimate(r);
    char *text = malloc(ROOM);

    FUZZ_CHECK(w != NULL && text != NULL);
    *n = srv_json_writer_read(w, text, ROOM);
    FUZZ_CHECK(*n < ROOM);
    srv_json_writer_free(w);
    return text;
}

static answered ask(const asked *a, fuzz_cuts cuts, size_t memory)
{
    const attn_model *model = a->kind == SRV_SDPA ? NULL : answering_model();
    srv_request *r = NULL;
    attn_budget budget;
    answered out = {0};

    (void)answering_pool();
    attn_budget_init(&budget, memory);
    attn_status rc = srv_request_new(&r, a->kind, model, &budget, &out.err);
    if (rc == ATTN_OK)
        rc = parse(r, a, cuts, &out.err);
    if (rc == ATTN_OK)
        out.text =
            a->kind == SRV_ESTIMATE ? estimate(r, &out.n) : answering_text(r, &out.n, &out.err);
    FUZZ_CHECK((out.text == NULL) == (out.err.code != ATTN_OK));
    out.needed = rc == ATTN_OK ? r->plan.needed : 0;
    srv_request_free(r);
    FUZZ_CHECK(budget.used == 0);
    if (out.text != NULL && a->format == SRV_AS_JSON) {
        attn_json *document = NULL;
        FUZZ_CHECK(attn_json_parse(&document, out.text, out.n, "answer", NULL) == ATTN_OK);
        attn_json_free(document);
    }
    return out;
}

/* Memory and time depend on how much there is; where zlib notices damage on the pieces. */
static bool may_differ(const attn_error *e)
{
    return e->code == ATTN_ETOOBIG || e->code == ATTN_ETIMEDOUT ||
           strstr(e->text, " damaged near byte ") != NULL;
}

/* Is the memory for reading such a body no more than what its plan counts? Not where bytes stand beside what they become
 * while they are read: other types of numbers, compressed bodies. */
static bool is_counted(const asked *a)
{
    return a->source.type == SRV_BODY_JSON && a->source.coding == SRV_IDENTITY &&
           memmem(a->body.at, a->body.n, "dtype", 5) == NULL &&
           memchr(a->body.at, '\\', a->body.n) == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));
    asked a = {.kind = (srv_request_kind)((how & 3) % 3),
               .format = (srv_format)(how >> 6) % SRV_AS_PNG,
               .source = {.type = (srv_body_type)((how >> 2 & 3) % SRV_BODY_TYPES),
                          .coding = how & 16 ? SRV_GZIP : SRV_IDENTITY,
                          .max_bytes = MAX_BODY,
                          .member = "inputs_embeds"}};

    if (a.kind == SRV_ESTIMATE || (a.kind == SRV_SDPA && a.source.type == SRV_BODY_NPY))
        a.source.type = SRV_BODY_JSON;
    if (a.kind == SRV_ESTIMATE)
        a.format = SRV_AS_JSON;
    if (a.source.type == SRV_BODY_NPY) {
        fuzz_input query = fuzz_part(&in);
        a.query = fuzz_text(query.at, query.n);
    }
    a.body = in;
    a.source.length = how & 32 ? in.n : UINT64_MAX;
    answered whole = ask(&a, fuzz_cuts_of(0), LARGE);
    answered pieces = ask(&a, cuts, SMALL);
    if (!may_differ(&whole.err) && !may_differ(&pieces.err)) {
        FUZZ_CHECK(fuzz_same_error(&whole.err, &pieces.err));
        FUZZ_CHECK(whole.text == NULL || a.kind == SRV_ESTIMATE ||
                   answering_same(whole.text, whole.n, pieces.text, pieces.n));
    }
    if (whole.text != NULL && a.kind != SRV_ESTIMATE && is_counted(&a)) {
        answered least = ask(&a, cuts, whole.needed);
        FUZZ_CHECK(least.text != NULL);
        FUZZ_CHECK(answering_same(whole.text, whole.n, least.text, least.n));
        free(least.text);
    }
    free(whole.text);
    free(pieces.text);
    free(a.query);
    return 0;
}
