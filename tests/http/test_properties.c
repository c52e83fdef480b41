/* What must hold for every attention, whatever the numbers: tried with random shapes and options over HTTP.
 * TEST_CASES says how many of each. */
#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/st.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { D = 24, MOST = 40, MOST_HEADS = 6, MOST_SIZE = 20 };

/* Another order of the sums moves a result by a few units of its last place: in 20,000 cases the largest difference was
 * 9e-7. */
static const double CLOSE = 2e-6;

static test_daemon *daemon_;
static char *folder_;
static uint32_t seed_ = 2026;

static size_t cases(void)
{
    const char *n = getenv("TEST_CASES");
    return n != NULL && atol(n) > 0 ? (size_t)atol(n) : 200;
}

static size_t between(size_t least, size_t most)
{
    seed_ = seed_ * 1664525 + 1013904223; /* Numerical Recipes' */
    return least + (size_t)((uint64_t)seed_ * (most - least + 1) >> 32);
}

static int start(void **state)
{
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/model", folder_), *model = st_path("model=%s", dir);
    const st_native m = {.d_model = D, .num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
    st_write_random(dir, &m, 7);
    daemon_ =
        daemon_start((const char *const[]){"--model", model, "--set", "log.level=error", NULL});
    free(dir);
    free(model);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    st_remove_dir(folder_);
    return 0;
}

/* --- one sequence of heads and what comes out of it -------------------------------------------- */

typedef struct {
    size_t heads, groups, t, s, d;
    float *query, *key, *value;      /* [heads,t,d], [groups,s,d] twice */
    float *bias;                     /* [t,s]; NULL = none */
    unsigned char *mask;             /* [t,s]; NULL = none */
    const char *more;                /* another member, "\"is_causal\":true"; NULL = none */
    test_tensor outputs, attentions; /* [1,heads,t,d], [1,heads,t,s] */
} heads;

static float *random_floats(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    st_random(&seed_, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= 2;
    return x;
}

static heads random_heads(void)
{
    heads h = {.groups = between(1, 3),
               .t = between(1, MOST),
               .s = between(1, MOST),
               .d = between(1, MOST_SIZE)};
    h.heads = h.groups * between(1, MOST_HEADS / h.groups);
    h.query = random_floats(h.heads * h.t * h.d);
    h.key = random_floats(h.groups * h.s * h.d);
    h.value = random_floats(h.groups * h.s * h.d);
    return h;
}

static void free_heads(heads *h)
{
    free(h->query);
    free(h->key);
    free(h->value);
    free(h->bias);
    free(h->mask);
    answer_free(&h->outputs);
    answer_free(&h->attentions);
    *h = (heads){0};
}

static void random_mask(heads *h)
{
    h->mask = malloc(h->t * h->s);
    assert_non_null(h->mask);
    for (size_t i = 0; i < h->t * h->s; i++)
        h->mask[i] = between(0, 3) != 0;
}

static void compute(heads *h)
{
    test_body b;

    body_init(&b, true);
    body_floats(&b, "query", h->query, DIMS(1, h->heads, h->t, h->d));
    body_floats(&b, "key", h->key, DIMS(1, h->groups, h->s, h->d));
    body_floats(&b, "value", h->value, DIMS(1, h->groups, h->s, h->d));
    if (h->bias != NULL)
        body_floats(&b, "attention_bias", h->bias, DIMS(1, 1, h->t, h->s));
    if (h->mask != NULL)
        body_bools(&b, "attention_mask", h->mask, DIMS(1, h->t, h->s));
    body_raw(&b, "return_attentions", "true");
    if (h->more != NULL) {
        char name[64] = "";
        size_t n = strcspn(h->more, ":");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, h->more);
        body_raw(&b, name, h->more + n + 1);
    }
    test_reply r = daemon_post(daemon_, "/v1/scaled-dot-product-attention", body_text(&b), 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    h->outputs =
        answer_tensor(answer_get(root, "outputs"), "outputs", DIMS(1, h->heads, h->t, h->d));
    h->attentions =
        answer_tensor(answer_get(root, "attentions"), "attentions", DIMS(1, h->heads, h->t, h->s));
    json_decref(root);
    reply_free(&r);
    body_free(&b);
}

static void near_(const char *what, float got, float want)
{
    if (!(fabs((double)got - (double)want) <= CLOSE))
        fail_msg("%s: %.9g, and %.9g the other way", what, (double)got, (double)want);
}

static void all_near(const char *what, const test_tensor *got, const test_tensor *want)
{
    assert_int_equal(got->count, want->count);
    for (size_t i = 0; i < got->count; i++)
        near_(what, got->data[i], want->data[i]);
}

/* --- properties -------------------------------------------------------------------------------- */

static void rows_of_a_map_sum_to_one_or_are_zero(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads h = random_heads();
        random_mask(&h);
        compute(&h);
        for (size_t row = 0; row < h.heads * h.t; row++) {
            double sum = 0;
            bool any = false;
            for (size_t j = 0; j < h.s; j++) {
                float w = h.attentions.data[row * h.s + j];
                bool open = h.mask[row % h.t * h.s + j] != 0;
                assert_true(w >= 0 && w <= 1 && (open || w == 0.0f));
                sum += (double)w;
                any = any || open;
            }
            if (fabs(sum - any) > 1e-5)
                fail_msg("a row sums to %.9g", sum);
        }
        free_heads(&h);
    }
}

static void permuted_keys_permute_the_map(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads a = random_heads();
        size_t to[MOST];
        random_mask(&a);
        for (size_t j = 0; j < a.s; j++)
            to[j] = j;
        for (size_t j = a.s - 1; j > 0; j--) {
            size_t k = between(0, j), kept = to[j];
            to[j] = to[k];
            to[k] = kept;
        }
        heads b = {.heads = a.heads, .groups = a.groups, .t = a.t, .s = a.s, .d = a.d};
        b.query = random_floats(a.heads * a.t * a.d);
        memcpy(b.query, a.query, a.heads * a.t * a.d * sizeof *b.query);
        b.key = random_floats(a.groups * a.s * a.d);
        b.value = random_floats(a.groups * a.s * a.d);
        b.mask = malloc(a.t * a.s);
        assert_non_null(b.mask);
        for (size_t g = 0; g < a.groups; g++) {
            for (size_t j = 0; j < a.s; j++) {
                size_t from = (g * a.s + j) * a.d, at = (g * a.s + to[j]) * a.d;
                memcpy(b.key + at, a.key + from, a.d * sizeof *b.key);
                memcpy(b.value + at, a.value + from, a.d * sizeof *b.value);
            }
        }
        for (size_t i = 0; i < a.t; i++) {
            for (size_t j = 0; j < a.s; j++)
                b.mask[i * a.s + to[j]] = a.mask[i * a.s + j];
        }
        compute(&a);
        compute(&b);
        all_near("outputs", &b.outputs, &a.outputs);
        for (size_t row = 0; row < a.heads * a.t; row++) {
            for (size_t j = 0; j < a.s; j++)
                near_("map", b.attentions.data[row * a.s + to[j]],
                      a.attentions.data[row * a.s + j]);
        }
        free_heads(&a);
        free_heads(&b);
    }
}

/* A query's scores all moved by the same amount have the same softmax. */
static void a_constant_on_a_row_of_scores_changes_nothing(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads h = random_heads();
        compute(&h);
        test_tensor outputs = h.outputs, attentions = h.attentions;
        h.bias = random_floats(h.t * h.s);
        for (size_t i = 0; i < h.t; i++) {
            float c = (float)between(0, 64) / 4 -
                      8; /* exact: the scores are rounded once, by 8 at most */
            for (size_t j = 0; j < h.s; j++)
                h.bias[i * h.s + j] = c;
        }
        compute(&h);
        all_near("map", &h.attentions, &attentions);
        all_near("outputs", &h.outputs, &outputs);
        answer_free(&outputs);
        answer_free(&attentions);
        free_heads(&h);
    }
}

static void a_masked_key_is_as_one_that_is_not_there(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads a = random_heads();
        bool open[MOST];
        size_t left = 0;
        a.mask = malloc(a.t * a.s);
        assert_non_null(a.mask);
        for (size_t j = 0; j < a.s; j++) {
            open[j] = between(0, 1) != 0 || (j + 1 == a.s && left == 0);
            left += open[j];
            for (size_t i = 0; i < a.t; i++)
                a.mask[i * a.s + j] = open[j];
        }
        heads b = {.heads = a.heads, .groups = a.groups, .t = a.t, .s = left, .d = a.d};
        b.query = random_floats(a.heads * a.t * a.d);
        memcpy(b.query, a.query, a.heads * a.t * a.d * sizeof *b.query);
        b.key = random_floats(a.groups * left * a.d);
        b.value = random_floats(a.groups * left * a.d);
        for (size_t g = 0; g < a.groups; g++) {
            for (size_t j = 0, k = 0; j < a.s; j++) {
                if (!open[j])
                    continue;
                memcpy(b.key + (g * left + k) * a.d, a.key + (g * a.s + j) * a.d,
                       a.d * sizeof *b.key);
                memcpy(b.value + (g * left + k++) * a.d, a.value + (g * a.s + j) * a.d,
                       a.d * sizeof *b.value);
            }
        }
        compute(&a);
        compute(&b);
        all_near("outputs", &a.outputs, &b.outputs);
        for (size_t row = 0; row < a.heads * a.t; row++) {
            for (size_t j = 0, k = 0; j < a.s; j++) {
                float w = a.attentions.data[row * a.s + j];
                if (open[j])
                    near_("map", w, b.attentions.data[row * left + k++]);
                else
                    assert_true(w == 0.0f);
            }
        }
        free_heads(&a);
        free_heads(&b);
    }
}

static float *head_prefix(const float *x, size_t n, size_t of, size_t t, size_t d)
{
    float *out = malloc(n * t * d * sizeof *out);
    assert_non_null(out);
    for (size_t h = 0; h < n; h++)
        memcpy(out + h * t * d, x + h * of * d, t * d * sizeof *out);
    return out;
}

/* What comes later does not matter: the first rows of a causal attention are those of the first tokens alone. */
static void causal_rows_do_not_see_what_follows(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads a = random_heads();
        free(a.key);
        free(a.value);
        a.s = a.t;
        a.key = random_floats(a.groups * a.s * a.d);
        a.value = random_floats(a.groups * a.s * a.d);
        a.more = "is_causal:true";
        size_t t = between(1, a.t);
        heads b = {.heads = a.heads, .groups = a.groups, .t = t, .s = t, .d = a.d, .more = a.more};
        b.query = head_prefix(a.query, a.heads, a.t, t, a.d);
        b.key = head_prefix(a.key, a.groups, a.t, t, a.d);
        b.value = head_prefix(a.value, a.groups, a.t, t, a.d);
        compute(&a);
        compute(&b);
        for (size_t h = 0; h < a.heads; h++) {
            for (size_t i = 0; i < t; i++) {
                for (size_t c = 0; c < a.d; c++)
                    near_("output", a.outputs.data[(h * a.t + i) * a.d + c],
                          b.outputs.data[(h * t + i) * a.d + c]);
                for (size_t j = 0; j < a.t; j++)
                    near_("map", a.attentions.data[(h * a.t + i) * a.t + j],
                          j < t ? b.attentions.data[(h * t + i) * t + j] : 0.0f);
            }
        }
        free_heads(&a);
        free_heads(&b);
    }
}

static float *repeated(const float *x, size_t groups, size_t times, size_t n)
{
    float *out = malloc(groups * times * n * sizeof *out);
    assert_non_null(out);
    for (size_t h = 0; h < groups * times; h++)
        memcpy(out + h * n, x + h / times * n, n * sizeof *out);
    return out;
}

static void same_bits(const char *what, const test_tensor *got, const test_tensor *want)
{
    assert_int_equal(got->count, want->count);
    if (memcmp(got->data, want->data, got->count * sizeof *got->data) != 0)
        fail_msg("%s: other bits", what);
}

static void shared_key_heads_are_repeated_ones(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        heads a = random_heads();
        heads b = {.heads = a.heads, .groups = a.heads, .t = a.t, .s = a.s, .d = a.d};
        b.query = repeated(a.query, a.heads, 1, a.t * a.d);
        b.key = repeated(a.key, a.groups, a.heads / a.groups, a.s * a.d);
        b.value = repeated(a.value, a.groups, a.heads / a.groups, a.s * a.d);
        compute(&a);
        compute(&b);
        same_bits("outputs", &b.outputs, &a.outputs);
        same_bits("map", &b.attentions, &a.attentions);
        free_heads(&a);
        free_heads(&b);
    }
}

/* --- layers ------------------------------------------------------------------------------------ */

static test_tensor layer_outputs(test_body *b, size_t t)
{
    test_reply r = daemon_post(daemon_, "/v1/models/model/attention", body_text(b), 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    test_tensor out = answer_tensor(answer_get(root, "outputs"), "outputs", DIMS(1, t, D));
    json_decref(root);
    reply_free(&r);
    body_free(b);
    return out;
}

static void cross_attention_to_itself_is_self_attention(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        size_t t = between(1, MOST);
        float *x = random_floats(t * D);
        test_tensor out[2];
        for (int cross = 0; cross < 2; cross++) {
            test_body b;
            body_init(&b, between(0, 1) != 0);
            body_floats(&b, "inputs_embeds", x, DIMS(1, t, D));
            if (cross)
                body_floats(&b, "encoder_hidden_states", x, DIMS(1, t, D));
            out[cross] = layer_outputs(&b, t);
        }
        same_bits("outputs", &out[1], &out[0]);
        answer_free(&out[0]);
        answer_free(&out[1]);
        free(x);
    }
}

/* The estimate's need is what a request of that shape is admitted by: its answer is given within it. */
static void what_is_reserved_is_what_was_estimated(void **state)
{
    (void)state;
    for (size_t n = cases(); n > 0; n--) {
        size_t batch = between(1, 3), t = between(1, MOST);
        bool maps = between(0, 1) != 0;
        test_body b;
        body_init(&b, true);
        body_printf(&b, "shape", "[%zu,%zu,%d]", batch, t, (int)D);
        body_raw(&b, "return_attentions", maps ? "true" : "false");
        test_reply r =
            daemon_post(daemon_, "/v1/models/model/attention/estimate", body_text(&b), 200);
        json_t *root = answer_parse(r.body, r.body_bytes);
        json_int_t needed = json_integer_value(answer_get(root, "needed_bytes"));
        json_int_t limit = json_integer_value(answer_get(root, "limit_bytes"));
        assert_true(json_is_true(answer_get(root, "fits")) && needed > 0 && needed <= limit);
        json_decref(root);
        reply_free(&r);
        body_free(&b);

        float *x = random_floats(batch * t * D);
        body_init(&b, true);
        body_floats(&b, "inputs_embeds", x, DIMS(batch, t, D));
        body_raw(&b, "return_attentions", maps ? "true" : "false");
        r = daemon_post(daemon_, "/v1/models/model/attention", body_text(&b), 200);
        root = answer_parse(r.body, r.body_bytes);
        json_int_t peak = json_integer_value(answer_get(root, "usage.peak_bytes"));
        assert_true(peak >= needed && peak <= limit); /* needed: the least that works */
        json_decref(root);
        reply_free(&r);
        body_free(&b);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_map_sum_to_one_or_are_zero),
        cmocka_unit_test(permuted_keys_permute_the_map),
        cmocka_unit_test(a_constant_on_a_row_of_scores_changes_nothing),
        cmocka_unit_test(a_masked_key_is_as_one_that_is_not_there),
        cmocka_unit_test(causal_rows_do_not_see_what_follows),
        cmocka_unit_test(shared_key_heads_are_repeated_ones),
        cmocka_unit_test(cross_attention_to_itself_is_self_attention),
        cmocka_unit_test(what_is_reserved_is_what_was_estimated),
    };
    return cmocka_run_group_tests_name("properties", tests, start, stop);
}
