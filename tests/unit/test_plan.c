/* How requests are planned within a budget, for random shapes and budgets, without computing any. */
#include "server/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "server/request.h"
#include "tests/st.h"

enum { MODELS = 3 };

static const struct {
    size_t d_model, num_heads, num_kv_heads, head_dim;
} SIZE[MODELS] = {{64, 4, 2, 16}, {96, 12, 12, 8}, {16, 1, 1, 64}};

static attn_model *model_[MODELS];
static uint32_t seed_ = 5;

static size_t below(size_t n)
{
    seed_ = seed_ * 1664525 + 1013904223; /* Numerical Recipes' */
    return (size_t)((uint64_t)seed_ * n >> 32);
}

static int start(void **state)
{
    attn_error err = {0};
    (void)state;

    assert_int_equal(attn_kern_init(getenv("ATTND_ISA"), &err), ATTN_OK);
    for (size_t i = 0; i < MODELS; i++) {
        attn_layer_spec spec = {.d_model = SIZE[i].d_model,
                                .d_kv = SIZE[i].d_model,
                                .d_out = SIZE[i].d_model,
                                .num_heads = SIZE[i].num_heads,
                                .num_kv_heads = SIZE[i].num_kv_heads,
                                .head_dim = SIZE[i].head_dim,
                                .v_head_dim = SIZE[i].head_dim,
                                .scale = 1,
                                .window = {-1, -1}};
        float *zeros = calloc(spec.d_model * spec.num_heads * spec.head_dim, sizeof *zeros);
        attn_layer **layers = malloc(sizeof(attn_layer *));
        assert_true(zeros != NULL && layers != NULL);
        attn_layer_weights w = {.wq = zeros, .wk = zeros, .wv = zeros, .wo = zeros};
        assert_int_equal(attn_layer_new(layers, &spec, &w, &err), ATTN_OK);
        assert_int_equal(attn_model_take_layers(&model_[i], "m", "attnd", layers, 1, &err),
                         ATTN_OK);
        free(zeros);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++)
        attn_model_free(model_[i]);
    return 0;
}

typedef struct {
    size_t model, batch, tokens, context, workers;
    const char *options; /* members with a comma before each */
} shape;

static shape random_shape(void)
{
    static const char *const options[] = {
        "",
        ",\"return_attentions\":true",
        ",\"return_attentions\":{\"reduce_heads\":\"mean\"}",
        ",\"return_attentions\":{\"heads\":[0],\"stage\":\"masked\"},\"return_outputs\":false",
        ",\"return_intermediates\":[\"query\",\"key\",\"value\",\"logsumexp\",\"context\"]",
        ",\"return_attentions\":true,\"return_intermediates\":[\"logsumexp\"]",
        ",\"return_attentions\":{\"pool\":{\"size\":64,\"kind\":\"max\"}}",
        ",\"return_attentions\":{\"pool\":{\"size\":7},\"reduce_heads\":\"mean\"}",
        ",\"return_attentions\":{\"top_k\":1},\"return_outputs\":false",
        ",\"return_attentions\":{\"top_k\":1,\"stage\":\"scores\",\"dtype\":\"float16\"}",
        ",\"return_outputs\":false"};
    static const size_t most[] = {2, 64, 700, 5000, 40000};
    shape s = {.model = below(MODELS),
               .batch = below(3) == 0 ? below(200) : 1 + below(3),
               .workers = 1 + below(8),
               .options = options[below(sizeof options / sizeof *options)]};

    s.tokens = below(most[below(5)] + 1);
    s.context = below(4) == 0 ? 1 + below(most[below(5)]) : 0;
    return s;
}

static srv_plan plan_of(const shape *s, size_t limit)
{
    char *context = s->context > 0 ? st_path(",\"context_length\":%zu", s->context) : strdup("");
    char *text = st_path("{\"shape\":[%zu,%zu,%zu]%s%s}", s->batch, s->tokens,
                         SIZE[s->model].d_model, context, s->options);
    attn_budget budget;
    srv_request *r = NULL;
    attn_error err = {0};

    attn_budget_init(&budget,
                     1 << 20); /* for the body of the estimate, which counts as any other */
    assert_int_equal(srv_request_new(&r, SRV_ESTIMATE, model_[s->model], &budget, &err), ATTN_OK);
    assert_int_equal(srv_request_feed(r, text, strlen(text), &err), ATTN_OK);
    budget.limit = limit;
    if (srv_request_parse(r, s->workers, &err) != ATTN_OK)
        fail_msg("%s: %s", text, err.text);
    srv_plan plan = r->plan;
    srv_request_free(r);
    assert_int_equal(budget.used, 0);
    free(text);
    free(context);
    return plan;
}

static void check(const shape *s, const srv_plan *p, size_t limit, size_t needed)
{
    bool empty =
        s->batch == 0 || s->tokens == 0 || strcmp(s->options, ",\"return_outputs\":false") == 0;

    assert_int_equal(p->needed, needed); /* whatever the budget */
    assert_int_equal(p->inputs + p->least_workspace + p->outputs + p->attentions, needed);
    assert_int_equal(p->inputs + p->results + p->keys + p->workspace, p->reserved);
    assert_true(p->reserved >= needed);
    assert_true(p->reserved <= limit || needed > limit);
    if (!empty)
        assert_true(p->micro_batches > 0);
    if (p->streamed) {
        assert_true(p->slots == 1 || p->slots == 2);
        assert_true(p->results % p->slots == 0);
        assert_true(p->keys > 0 && p->workspace > 0);
    } else {
        assert_int_equal(p->keys, 0);
        assert_true(p->micro_batches <= s->batch);
    }
}

static void plans_fit_every_budget_that_is_enough(void **state)
{
    enum { SHAPES = 400, BUDGETS = 12 };
    size_t streamed = 0, whole = 0;
    (void)state;

    for (size_t i = 0; i < SHAPES; i++) {
        shape s = random_shape();
        srv_plan p = plan_of(&s, (size_t)1 << 40);
        size_t needed = p.needed, limit = needed;
        check(&s, &p, (size_t)1 << 40, needed);
        for (size_t k = 0; k < BUDGETS; k++, limit = needed + needed * below(1 << k) / 16) {
            p = plan_of(&s, limit);
            check(&s, &p, limit, needed);
            if (limit == needed)
                assert_int_equal(p.reserved, needed);
            streamed += p.streamed;
            whole += !p.streamed;
        }
        p = plan_of(&s, needed - 1);
        check(&s, &p, needed - 1, needed);
        assert_true(p.reserved > needed - 1);
    }
    printf("%zu streamed, %zu whole\n", streamed, whole);
    assert_true(streamed > 500 && whole > 500);
}

static void a_larger_request_needs_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < 300; i++) {
        shape s = random_shape();
        size_t needed = plan_of(&s, 1 << 20).needed;
        shape more = s;
        more.batch += 1 + below(3);
        assert_true(plan_of(&more, 1 << 20).needed >= needed);
        more = s;
        more.tokens = 2 * s.tokens + 8; /* a token more may fit the tiles better */
        assert_true(plan_of(&more, 1 << 20).needed >= needed);
        more = s;
        more.workers++;
        assert_true(plan_of(&more, 1 << 20).needed >= needed);
    }
}

static void maps_need_no_room_of_their_size(void **state)
{
    const shape s = {.model = 1,
                     .batch = 1,
                     .tokens = 4096,
                     .workers = 2,
                     .options = ",\"return_attentions\":true"};
    srv_plan p = plan_of(&s, (size_t)64 << 20);
    (void)state;

    assert_true(p.streamed);
    assert_true(p.needed < (size_t)12 << 20);
    assert_true(p.reserved < (size_t)24 << 20); /* others find room beside it */
    assert_true(p.results <= (size_t)8 << 20);
    assert_true(p.micro_batches >= 12);
}

static void small_requests_are_computed_whole(void **state)
{
    static const shape small[] = {{0, 8, 128, 0, 2, ",\"return_attentions\":true"},
                                  {0, 1, 512, 0, 2, ""},
                                  {2, 64, 16, 0, 2, ""}};
    (void)state;

    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        srv_plan p = plan_of(&small[i], (size_t)64 << 20);
        assert_false(p.streamed);
        assert_true(p.micro_batches <= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_fit_every_budget_that_is_enough),
        cmocka_unit_test(a_larger_request_needs_more),
        cmocka_unit_test(maps_need_no_room_of_their_size),
        cmocka_unit_test(small_requests_are_computed_whole),
    };
    return cmocka_run_group_tests_name("plan", tests, start, stop);
}
