/* A request for a whole encoder, in each of its three dialects, from its JSON to its answer: whatever the pieces and,
 * where it fits, the memory, the same answer or the same error. Input: dialect; how the body is cut; then the body. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "server/request.h"
#include "tests/fuzz/answering.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

enum { LARGE = 64 << 20, SMALL = 400 << 10 };

typedef struct {
    attn_error err;
    char *text;
    size_t n;
} answered;

static attn_model *tiny;

static void free_tiny(void)
{
    attn_model_free(tiny);
}

static void load_tiny(void)
{
    char *folder = st_temp_dir(), *path = st_path("%s/tiny", folder);
    const attn_model_options o = {.name = "tiny", .path = path};

    (void)answering_model(); /* chooses the kernels */
    tiny_encoder_write(path, 3, 1, NULL);
    FUZZ_CHECK(attn_model_load(&tiny, &o, NULL) == ATTN_OK);
    FUZZ_CHECK(atexit(free_tiny) == 0);
    free(path);
    st_remove_dir(folder);
}

static answered ask(srv_request_kind kind, fuzz_input body, fuzz_cuts cuts, size_t memory)
{
    srv_request *r = NULL;
    attn_budget budget;
    answered out = {0};

    attn_budget_init(&budget, memory);
    attn_status rc = srv_request_new(&r, kind, tiny, &budget, &out.err);
    for (size_t at = 0; rc == ATTN_OK && at < body.n;) {
        size_t piece = fuzz_cut(&cuts, body.n - at);
        char *copy = fuzz_copy(body.at + at, piece);
        rc = srv_request_feed(r, copy, piece, &out.err);
        free(copy);
        at += piece;
    }
    if (rc == ATTN_OK)
        rc = srv_request_parse(r, 1, &out.err);
    if (rc == ATTN_OK)
        out.text = answering_text(r, &out.n, &out.err);
    FUZZ_CHECK((out.text == NULL) == (out.err.code != ATTN_OK));
    srv_request_free(r);
    FUZZ_CHECK(budget.used == 0);
    if (out.text != NULL) {
        attn_json *document = NULL;
        FUZZ_CHECK(attn_json_parse(&document, out.text, out.n, "answer", NULL) == ATTN_OK);
        attn_json_free(document);
    }
    return out;
}

static bool may_differ(const attn_error *e)
{
    return e->code == ATTN_ETOOBIG || e->code == ATTN_ETIMEDOUT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const srv_request_kind kinds[] = {SRV_ENCODE, SRV_EMBEDDINGS, SRV_EMBED};
    fuzz_input in = {data, n};
    srv_request_kind kind = kinds[fuzz_byte(&in) % 3];
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));

    if (tiny == NULL)
        load_tiny();
    answered whole = ask(kind, in, fuzz_cuts_of(0), LARGE);
    answered pieces = ask(kind, in, cuts, SMALL);
    if (!may_differ(&whole.err) && !may_differ(&pieces.err)) {
        FUZZ_CHECK(fuzz_same_error(&whole.err, &pieces.err));
        FUZZ_CHECK(whole.text == NULL ||
                   answering_same(whole.text, whole.n, pieces.text, pieces.n));
    }
    free(whole.text);
    free(pieces.text);
    return 0;
}
