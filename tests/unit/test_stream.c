/* A streamed answer, in pieces of any size, is the text that the whole one would have been; what is wrong is known
 * before its first byte; and no more is held than was planned. */
#include "server/stream.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "server/answer.h"
#include "tests/asking.h"
#include "tests/body.h"
#include "tests/st.h"

enum { WORKERS = 2, MODELS = 4 };

static const asking_model ASKING[MODELS + 1] = {
    {.d_model = 24,
     .num_heads = 4,
     .num_kv_heads = 2,
     .head_dim = 6,
     .v_head_dim = 6,
     .rotary = true},
    {.d_model = 40, .num_heads = 6, .num_kv_heads = 1, .head_dim = 16, .v_head_dim = 9},
    {.d_model = 17, .num_heads = 1, .num_kv_heads = 1, .head_dim = 33, .v_head_dim = 4},
    {.d_model = 32,
     .num_heads = 3,
     .num_kv_heads = 3,
     .head_dim = 8,
     .v_head_dim = 8,
     .rotary = true},
    {.d_model = 0, .num_heads = 4, .num_kv_heads = 2, .head_dim = 7, .v_head_dim = 5}};

static attn_model *model_[MODELS];
static attn_pool *pool_;
static attn_budget budget_;

static attn_model *make_model(size_t i, uint32_t *seed)
{
    const asking_model *a = &ASKING[i];
    size_t q = a->num_heads * a->head_dim, k = a->num_kv_heads * a->head_dim;
    size_t v = a->num_kv_heads * a->v_head_dim, joined = a->num_heads * a->v_head_dim;
    attn_layer_spec spec = {.d_model = a->d_model,
                            .d_kv = a->d_model,
                            .d_out = i == 2 ? 5 : a->d_model,
                            .num_heads = a->num_heads,
                            .num_kv_heads = a->num_kv_heads,
                            .head_dim = a->head_dim,
                            .v_head_dim = a->v_head_dim,
                            .scale = 1 / sqrtf((float)a->head_dim),
                            .window = {-1, -1},
                            .alibi = i == 1};
    size_t n = (q + k + v) * a->d_model + spec.d_out * joined + q;
    float *w = malloc(n * sizeof *w);
    attn_layer **layers = malloc(sizeof(attn_layer *));
    attn_model *m = NULL;
    attn_error err = {0};

    if (a->rotary)
        spec.rope = (attn_rope){.style = i == 0 ? ATTN_ROPE_HALF : ATTN_ROPE_INTERLEAVED,
                                .dims = a->head_dim / 2 * 2,
                                .theta = 10000};
    assert_non_null(w);
    assert_non_null(layers);
    st_random(seed, w, n);
    attn_layer_weights weights = {.wq = w,
                                  .wk = w + q * a->d_model,
                                  .wv = w + (q + k) * a->d_model,
                                  .wo = w + (q + k + v) * a->d_model,
                                  .bq = w + (q + k + v) * a->d_model + spec.d_out * joined};
    assert_int_equal(attn_layer_new(layers, &spec, &weights, &err), ATTN_OK);
    assert_int_equal(attn_model_take_layers(&m, "m", "attnd", layers, 1, &err), ATTN_OK);
    free(w);
    return m;
}

static int start(void **state)
{
    attn_error err = {0};
    uint32_t seed = 17;
    (void)state;

    if (attn_kern_init(getenv("ATTND_ISA"), &err) != ATTN_OK ||
        attn_pool_new(&pool_, WORKERS, false, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    attn_budget_init(&budget_, (size_t)1 << 30);
    for (size_t i = 0; i < MODELS; i++)
        model_[i] = make_model(i, &seed);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++)
        attn_model_free(model_[i]);
    attn_pool_free(pool_);
    return 0;
}

/* For the first model: three sequences of 40 tokens, with `odd` among the last one's numbers. */
static char *ask_three_sequences(float odd)
{
    enum { D = 24 };
    float *x = malloc(3 * 40 * D * sizeof *x);
    uint32_t seed = 5;
    test_body b;

    assert_non_null(x);
    st_random(&seed, x, 3 * 40 * D);
    x[(2 * 40 + 35) * D] = odd;
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(3, 40, D));
    body_raw(&b, "return_attentions", "true");
    free(x);
    return (char *)(uintptr_t)body_text(&b);
}

/* --- answers ----------------------------------------------------------------------------------- */

static srv_request *parse(size_t model, const char *body)
{
    srv_request *r = NULL;
    attn_error err = {0};

    assert_int_equal(srv_request_new(&r, model < MODELS ? SRV_ATTENTION : SRV_SDPA,
                                     model < MODELS ? model_[model] : NULL, &budget_, &err),
                     ATTN_OK);
    if (srv_request_feed(r, body, strlen(body), &err) != ATTN_OK ||
        srv_request_parse(r, WORKERS, &err) != ATTN_OK)
        fail_msg("%s: %s\n%s", attn_status_name(err.code), err.text, body);
    return r;
}

typedef struct {
    char *text;
    size_t n, room;
} growing;

static char *room_for(growing *g, size_t more)
{
    if (g->room - g->n < more) {
        g->room = 2 * g->room + more;
        g->text = realloc(g->text, g->room);
        assert_non_null(g->text);
    }
    return g->text + g->n;
}

/* Takes the usage away and checks it: the rest does not depend on the way. */
static size_t cut_usage(growing *g, const srv_request *r)
{
    *room_for(g, 1) = '\0';
    char *usage = strstr(g->text, "\"usage\":");
    assert_non_null(usage);
    char *text = st_path("{%s", usage);
    json_t *root = answer_parse(text, strlen(text));
    assert_int_equal(json_integer_value(answer_get(root, "usage.peak_bytes")), r->plan.reserved);
    assert_int_equal(json_integer_value(answer_get(root, "usage.micro_batches")),
                     r->plan.micro_batches);
    size_t masked = (size_t)json_integer_value(answer_get(root, "usage.fully_masked_rows"));
    json_decref(root);
    free(text);
    *usage = '\0';
    return masked;
}

/* Computes and reads an admitted request whose results stand in memory. */
static char *finish_whole(srv_request *r, size_t *masked)
{
    attn_error err = {0};
    srv_step next = SRV_STEP_MORE;
    growing g = {0};

    while (next == SRV_STEP_MORE) {
        if (srv_request_step(r, pool_, NULL, &next, &err) != ATTN_OK)
            fail_msg("%s", err.text);
    }
    srv_json_writer *w = srv_answer(r);
    assert_non_null(w);
    for (size_t n = 1; n > 0; g.n += n)
        n = srv_json_writer_read(w, room_for(&g, 4096), 4096);
    *masked = cut_usage(&g, r);
    srv_json_writer_free(w);
    srv_request_free(r);
    assert_int_equal(budget_.used, 0);
    return g.text;
}

static char *answer_whole(size_t model, const char *body, size_t *masked)
{
    srv_request *r = parse(model, body);
    attn_error err = {0};

    assert_false(r->plan.streamed);
    assert_int_equal(srv_request_admit(r, &err), ATTN_OK);
    return finish_whole(r, masked);
}

/* Reads until nothing is there, in blocks of any size. */
static ssize_t read_some(srv_stream *s, growing *g, uint32_t *seed, size_t *pieces)
{
    ssize_t n = 1;

    while (n > 0) {
        *seed = *seed * 1664525 + 1013904223;
        size_t room = 64 + (*seed >> 16) % 3000;
        bool took = false;
        n = srv_stream_read(s, room_for(g, room), room, &took);
        *pieces += took;
        if (n > 0)
            g->n += (size_t)n;
    }
    return n;
}

static char *finish_streamed(srv_request *r, uint32_t *seed, size_t *masked)
{
    attn_error err = {0};
    srv_step next = SRV_STEP_MORE;
    growing g = {0};
    size_t taken = 0, waits = 0;

    while (next != SRV_STEP_DONE) {
        if (srv_request_step(r, pool_, NULL, &next, &err) != ATTN_OK)
            fail_msg("%s", err.text);
        if (next == SRV_STEP_WAITS) {
            waits++;
            assert_int_equal(read_some(r->stream, &g, seed, &taken), SRV_READ_LATER);
        }
    }
    srv_stream_end(r->stream, true);
    srv_request_drop_inputs(r);
    assert_int_equal(read_some(r->stream, &g, seed, &taken), 0);
    assert_int_equal(taken, r->plan.micro_batches);
    assert_true(taken <= r->plan.slots || waits > 0); /* no more are made than there is room for */
    *masked = cut_usage(&g, r);
    srv_request_free(r);
    assert_int_equal(budget_.used, 0);
    return g.text;
}

static char *answer_streamed(size_t model, const char *body, size_t bytes, size_t slots,
                             uint32_t *seed, size_t *masked)
{
    srv_request *r = parse(model, body);
    attn_error err = {0};

    srv_plan_pieces(r, WORKERS, bytes, slots);
    assert_int_equal(srv_request_admit(r, &err), ATTN_OK);
    assert_int_equal(budget_.used, r->plan.reserved);
    return finish_streamed(r, seed, masked);
}

static void a_streamed_answer_is_the_whole_one(void **state)
{
    enum { CASES = 150 };
    static const size_t sizes[] = {0, 300, 4000, 50000, 4 << 20};
    const char *cases = getenv("TEST_CASES");
    uint32_t seed = 1;
    size_t n = cases != NULL ? strtoul(cases, NULL, 10) : CASES;
    (void)state;

    for (size_t i = 0; i < n; i++) {
        uint32_t began = seed;
        size_t model = i % (MODELS + 1), masked = 0, masked_too = 0;
        char *body = asking_random(&ASKING[model], i % 20 == 0 ? 700 : 70, &seed);
        char *whole = answer_whole(model, body, &masked);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            char *pieces = answer_streamed(model, body, sizes[k], 1 + k % 2, &seed, &masked_too);
            if (strcmp(whole, pieces) != 0)
                fail_msg("case %zu, seed %u, pieces of %zu:\n%.2000s\n%.2000s\n%.20000s", i, began,
                         sizes[k], whole, pieces, body);
            assert_int_equal(masked, masked_too);
            free(pieces);
        }
        free(whole);
        free(body);
    }
}

static void what_is_needed_is_enough_and_a_byte_less_is_not(void **state)
{
    enum { CASES = 60 };
    const size_t large = budget_.limit;
    uint32_t seed = 99;
    size_t streamed = 0;
    (void)state;

    for (size_t i = 0; i < CASES; i++) {
        size_t model = i % (MODELS + 1), masked = 0, masked_too = 0;
        attn_error err = {0};
        char *body = asking_random(&ASKING[model], i % 3 == 0 ? 1000 : 300, &seed), *text;
        srv_request *r = parse(model, body);
        size_t needed = r->plan.needed;
        srv_request_free(r);
        char *whole = answer_whole(model, body, &masked);

        budget_.limit = needed;
        r = parse(model, body);
        assert_int_equal(r->plan.needed, needed);
        assert_int_equal(r->plan.reserved, needed);
        assert_int_equal(srv_request_admit(r, &err), ATTN_OK);
        assert_int_equal(budget_.used, needed);
        streamed += r->plan.streamed;
        text = r->plan.streamed ? finish_streamed(r, &seed, &masked_too)
                                : finish_whole(r, &masked_too);
        assert_string_equal(text, whole);
        assert_int_equal(masked, masked_too);

        budget_.limit = needed - 1;
        r = parse(model, body);
        assert_int_equal(srv_request_admit(r, &err), ATTN_ETOOBIG);
        assert_int_equal(err.needed, needed);
        assert_int_equal(err.limit, needed - 1);
        srv_request_free(r);
        assert_int_equal(budget_.used, 0);
        budget_.limit = large;
        free(whole);
        free(text);
        free(body);
    }
    printf("%zu of %d in pieces\n", streamed, CASES);
    assert_true(streamed >= 10);
}

/* --- readers that leave, and failures ----------------------------------------------------------- */

static void an_answer_may_end_before_its_end(void **state)
{
    char *body = ask_three_sequences(0);
    attn_error err = {0};
    srv_step next = SRV_STEP_MORE;
    growing g = {0};
    uint32_t seed = 1;
    size_t taken = 0;
    atomic_bool cancel = false;
    (void)state;

    srv_request *r = parse(0, body);
    srv_plan_pieces(r, WORKERS, 1000, 2);
    assert_int_equal(srv_request_admit(r, &err), ATTN_OK);
    assert_false(srv_request_answers(r));
    while (next == SRV_STEP_MORE)
        assert_int_equal(srv_request_step(r, pool_, NULL, &next, &err), ATTN_OK);
    assert_int_equal(next, SRV_STEP_WAITS);
    assert_true(srv_request_answers(r));
    assert_int_equal(read_some(r->stream, &g, &seed, &taken), SRV_READ_LATER);
    assert_int_equal(taken, 2);
    atomic_store(&cancel, true);
    assert_int_equal(srv_request_step(r, pool_, &cancel, &next, &err), ATTN_ECANCELED);
    srv_stream_end(r->stream, false);
    assert_int_equal(read_some(r->stream, &g, &seed, &taken), SRV_READ_FAILED);
    srv_request_free(r);
    assert_int_equal(budget_.used, 0);
    free(g.text);
    free(body);
}

static void what_is_attended_and_no_number_is_known_before_the_first_piece(void **state)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38F};
    (void)state;

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char *body = ask_three_sequences(odd[i]);
        attn_error err = {0};
        srv_step next = SRV_STEP_MORE;
        attn_status rc = ATTN_OK;
        srv_request *r = parse(0, body);
        srv_plan_pieces(r, WORKERS, 1000, 2);
        assert_int_equal(srv_request_admit(r, &err), ATTN_OK);
        while (rc == ATTN_OK && next == SRV_STEP_MORE)
            rc = srv_request_step(r, pool_, NULL, &next, &err);
        assert_int_equal(rc, ATTN_ENONFINITE);
        /* What is finite is no fault in itself: it is the first row that cannot be told. */
        const char *place = isfinite(odd[i]) ? "sequence 2, token 0:" : "sequence 2, token 35 ";
        if (strstr(err.text, place) == NULL)
            fail_msg("%g: %s", (double)odd[i], err.text);
        assert_false(srv_request_answers(r));
        srv_request_free(r);
        free(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_streamed_answer_is_the_whole_one),
        cmocka_unit_test(what_is_needed_is_enough_and_a_byte_less_is_not),
        cmocka_unit_test(an_answer_may_end_before_its_end),
        cmocka_unit_test(what_is_attended_and_no_number_is_known_before_the_first_piece),
    };
    return cmocka_run_group_tests_name("stream", tests, start, stop);
}
