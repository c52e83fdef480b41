#include "tests/asking.h"

#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/body.h"
#include "tests/st.h"

typedef struct {
    test_body body;
    uint32_t *seed;
    const asking_model *m;
    size_t batch, t, s_new, past; /* of the longest */
    bool ragged, single, cross;
    size_t length[4]; /* of each sequence */
} asking;

static size_t below(asking *a, size_t n)
{
    *a->seed = *a->seed * 1664525 + 1013904223; /* Numerical Recipes' */
    return (size_t)((uint64_t)*a->seed * n >> 32);
}

static bool chance(asking *a, size_t one_in)
{
    return below(a, one_in) == 0;
}

static float *floats(asking *a, size_t n, float scale)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    st_random(a->seed, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
    return x;
}

static void add_floats(asking *a, const char *key, size_t rank, const size_t *dim, float scale)
{
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= dim[i];
    float *x = floats(a, n, scale);
    body_floats(&a->body, key, x, rank, dim);
    free(x);
}

/* Sequences of different lengths: lists, whatever the form of the others. */
static void add_ragged(asking *a)
{
    char *text = strdup("[");
    assert_non_null(text);
    for (size_t b = 0; b < a->batch; b++) {
        test_body one;
        float *x = floats(a, a->length[b] * a->m->d_model, 1);
        body_init(&one, false);
        body_floats(&one, "x", x, DIMS(a->length[b], a->m->d_model));
        char *more = st_path("%s%s%s", text, b > 0 ? "," : "", one.text + strlen("{\"x\":"));
        free(text);
        text = more;
        body_free(&one);
        free(x);
    }
    char *whole = st_path("%s]", text);
    body_raw(&a->body, "inputs_embeds", whole);
    free(whole);
    free(text);
}

static void add_inputs(asking *a)
{
    const asking_model *m = a->m;
    size_t t = a->t, s = a->s_new;

    if (m->d_model == 0) {
        add_floats(a, "query", DIMS(a->batch, m->num_heads, t, m->head_dim), 1);
        add_floats(a, "key", DIMS(a->batch, m->num_kv_heads, s, m->head_dim), 1);
        add_floats(a, "value", DIMS(a->batch, m->num_kv_heads, s, m->v_head_dim), 1);
    } else if (a->ragged) {
        add_ragged(a);
    } else {
        size_t skip = a->single ? 1 : 0;
        const size_t x[] = {a->batch, t, m->d_model}, context[] = {a->batch, s, m->d_model};
        add_floats(a, "inputs_embeds", 3 - skip, x + skip, 1);
        if (a->cross)
            add_floats(a, "encoder_hidden_states", 3 - skip, context + skip, 1);
    }
    if (a->past > 0) {
        add_floats(a, "past_key", DIMS(a->batch, m->num_kv_heads, a->past, m->head_dim), 1);
        add_floats(a, "past_value", DIMS(a->batch, m->num_kv_heads, a->past, m->v_head_dim), 1);
    }
}

static void add_masks(asking *a)
{
    size_t s = a->past + a->s_new;
    size_t full[] = {a->batch, a->m->num_heads, a->t, s};

    if (chance(a, 3)) {
        size_t n = 1;
        for (size_t i = 0; i < 4; i++) {
            full[i] = i < 3 && chance(a, 3) ? 1 : full[i];
            n *= full[i];
        }
        unsigned char *mask = malloc(n + 1);
        assert_non_null(mask);
        for (size_t i = 0; i < n; i++)
            mask[i] = !chance(a, 4);
        body_bools(&a->body, "attention_mask", mask, 4, full);
        free(mask);
    }
    if (chance(a, 3)) {
        size_t skip = below(a, 4);
        const size_t bias[] = {chance(a, 2) ? 1 : a->batch, a->m->num_heads, a->t, s};
        add_floats(a, "attention_bias", 4 - skip, bias + skip, 2);
    }
    if (!a->ragged && chance(a, 3)) {
        bool of_keys = a->cross || a->m->d_model == 0;
        int64_t length[4];
        for (size_t b = 0; b < a->batch; b++)
            length[b] = (int64_t)below(a, (of_keys ? a->s_new : a->t) + 1);
        body_ints(&a->body, "lengths", length, DIMS(a->batch));
    }
}

static void add_numbers(asking *a)
{
    bool given = chance(a, 2);

    body_raw(&a->body, "is_causal", given ? "true" : "false");
    if (given)
        body_printf(&a->body, "causal_offset", "%d", (int)below(a, 12) - 4 + (int)a->past);
    if (chance(a, 3))
        body_printf(&a->body, "window", "{\"left\":%d,\"right\":%d}", (int)below(a, 30) - 1,
                    (int)below(a, 9) - 1);
    if (chance(a, 4))
        body_printf(&a->body, "softcap", "%d", 1 + (int)below(a, 9));
    if (a->m->rotary && chance(a, 3))
        body_printf(&a->body, "position_offset", "%d", (int)below(a, 100));
    if (a->m->rotary && !a->ragged && chance(a, 3)) {
        int64_t *position = malloc((a->batch * a->t + 1) * sizeof *position);
        assert_non_null(position);
        for (size_t i = 0; i < a->batch * a->t; i++)
            position[i] = (int64_t)below(a, 500);
        body_ints(&a->body, "position_ids", position, DIMS(a->batch, a->t));
        free(position);
    }
}

static void add_attentions(asking *a)
{
    static const char *const stages[] = {"probabilities", "scores", "softcapped", "masked"};
    static const char *const reductions[] = {"none", "none", "mean", "max"};
    static const char *const dtypes[] = {"float32", "float16", "uint8"};
    size_t t = a->t, s = a->past + a->s_new, heads = a->m->num_heads, from = 0;
    char chosen[256] = "\"all\"", queries[64] = "", keys[64] = "", kept[64] = "";
    size_t most = a->ragged ? a->past : s; /* keys that every sequence has */

    if (chance(a, 2)) {
        size_t n = 1 + below(a, heads), first = below(a, heads), used = 0;
        for (size_t i = 0; i < n; i++) /* different ones, not in order */
            used += (size_t)snprintf(chosen + used, sizeof chosen - used, "%s%zu",
                                     i > 0 ? "," : "[", (first + (n - 1 - i)) % heads);
        (void)snprintf(chosen + used, sizeof chosen - used, "]");
    }
    if (!a->ragged && t > 0 && chance(a, 3)) {
        from = below(a, t);
        (void)snprintf(queries, sizeof queries, ",\"queries\":[%zu,%zu]", from,
                       from + 1 + below(a, t - from));
    }
    if (!a->ragged && s > 0 && chance(a, 3)) {
        from = below(a, s);
        most = 1 + below(a, s - from);
        (void)snprintf(keys, sizeof keys, ",\"keys\":[%zu,%zu]", from, from + most);
    }
    size_t stage = chance(a, 2) ? 0 : below(a, 4);
    if (chance(a, 4) && most > 0)
        (void)snprintf(kept, sizeof kept, ",\"top_k\":%zu", 1 + below(a, most < 9 ? most : 9));
    else if (chance(a, 4))
        (void)snprintf(kept, sizeof kept, ",\"pool\":{\"size\":%zu,\"kind\":\"%s\"}",
                       1 + below(a, 12), chance(a, 2) ? "mean" : "max");
    body_printf(&a->body, "return_attentions",
                "{\"heads\":%s,\"reduce_heads\":\"%s\",\"stage\":\"%s\",\"dtype\":\"%s\"%s%s%s}",
                chosen, reductions[below(a, 4)], stages[stage],
                dtypes[chance(a, 2) ? 0 : below(a, stage == 0 ? 3 : 2)], queries, keys, kept);
}

static void add_wishes(asking *a)
{
    static const char *const names[] = {"query", "key", "value", "logsumexp", "context"};
    char list[128] = "";

    if (chance(a, 3))
        body_raw(&a->body, "return_outputs", "false");
    if (!chance(a, 3))
        add_attentions(a);
    if (chance(a, 2)) {
        size_t used = 0, first = below(a, 5), n = 1 + below(a, 5);
        for (size_t i = 0; i < n; i++)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\"", i > 0 ? "," : "",
                                     names[(first + 2 * i) % 5]);
        body_printf(&a->body, "return_intermediates", "[%s]", list);
    }
}

static void add_labels(asking *a)
{
    char *text = strdup("[");

    for (size_t b = 0; b < a->batch; b++) {
        size_t n = a->ragged ? a->length[b] : a->t;
        char *labels = malloc(n * 8 + 8);
        size_t used = 1;
        assert_non_null(labels);
        labels[0] = '[';
        for (size_t i = 0; i < n; i++)
            used += (size_t)snprintf(labels + used, 8, "%s\"w%zu\"", i > 0 ? "," : "", i % 100);
        (void)snprintf(labels + used, 2, "]");
        char *more = st_path("%s%s%s", text, b > 0 ? "," : "", labels);
        free(labels);
        free(text);
        text = more;
    }
    char *whole = st_path("%s]", text);
    body_raw(&a->body, "tokens", whole);
    free(whole);
    free(text);
}

char *asking_random(const asking_model *m, size_t longest, uint32_t *seed)
{
    asking a = {.seed = seed, .m = m};

    a.batch = chance(&a, 2) ? 1 : 1 + below(&a, 3);
    a.t = chance(&a, 4) ? below(&a, 4) : 1 + below(&a, longest);
    a.s_new = a.t;
    a.cross = m->d_model > 0 && chance(&a, 4);
    if (a.cross || m->d_model == 0)
        a.s_new = chance(&a, 6) ? below(&a, 3) : 1 + below(&a, longest);
    if (m->d_model == 0) { /* lists without a token do not tell a width */
        a.t += a.t == 0;
        a.s_new += a.s_new == 0;
    } else if (a.t == 0 || a.s_new == 0) { /* nor their number */
        a.batch = 1;
    }
    a.ragged = m->d_model > 0 && !a.cross && a.t > 0 && chance(&a, 4);
    a.single =
        m->d_model > 0 && a.batch == 1 && !a.ragged && a.t > 0 && a.s_new > 0 && chance(&a, 4);
    for (size_t b = 0; b < a.batch; b++)
        a.length[b] = a.ragged && b > 0 ? 1 + below(&a, a.t) : a.t;
    a.past = !a.cross && !a.ragged && chance(&a, 5) ? 1 + below(&a, longest) : 0;
    body_init(&a.body, chance(&a, 2));
    add_inputs(&a);
    if (!a.ragged && a.t > 0 && a.s_new > 0)
        add_masks(&a);
    add_numbers(&a);
    add_wishes(&a);
    if (m->d_model > 0 && !a.single && chance(&a, 5))
        add_labels(&a);
    return (char *)(uintptr_t)body_text(&a.body);
}
