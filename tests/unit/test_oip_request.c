/* A body of the Open Inference Protocol becomes a request for attention, however it was cut; it asks for what was
 * asked for and nothing else; and what it was charged comes back. */
#include "server/oip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "server/demo.h"
#include "server/request_private.h"
#include "tests/oip_wire.h"

enum { B = 2, T = 3, D = 16, WORKERS = 2 };

static attn_model *model_;
static attn_budget budget_;
static float x_[B * T * D];

static int start(void **state)
{
    attn_layer **layers = NULL;
    size_t n = 0;
    (void)state;

    assert_int_equal(attn_kern_init(NULL, NULL), ATTN_OK);
    assert_int_equal(srv_demo_layers(&layers, &n, NULL), ATTN_OK);
    assert_int_equal(attn_model_take_layers(&model_, "demo", "attnd", layers, n, NULL), ATTN_OK);
    for (size_t i = 0; i < B * T * D; i++)
        x_[i] = (float)(i % 7) - 3;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    attn_model_free(model_);
    return 0;
}

typedef struct {
    srv_request *r;
    srv_oip *oip;
} reading;

static void end(reading *d)
{
    srv_oip_free(d->oip);
    srv_request_free(d->r);
    assert_int_equal(budget_.used, 0);
}

/* Reads the body in such pieces within the budget, and plans and admits it. */
static attn_status read_body(reading *d, const wire_bytes *b, size_t json_bytes, size_t piece,
                             size_t budget, attn_error *err)
{
    const srv_oip_body body = {
        .json_bytes = json_bytes, .length = b->n, .max_bytes = (uint64_t)1 << 30};
    attn_status rc = ATTN_OK;

    memset(d, 0, sizeof *d);
    attn_budget_init(&budget_, budget);
    rc = srv_request_new(&d->r, SRV_ATTENTION, model_, &budget_, err);
    if (rc == ATTN_OK)
        rc = srv_oip_new(&d->oip, d->r, &body, err);
    for (size_t at = 0; rc == ATTN_OK && at < b->n; at += piece) {
        size_t n = b->n - at < piece ? b->n - at : piece;
        char *copy = malloc(n); /* exactly these bytes */
        assert_non_null(copy);
        memcpy(copy, b->at + at, n);
        rc = srv_oip_feed(d->oip, copy, n, err);
        free(copy);
    }
    if (rc == ATTN_OK)
        rc = srv_oip_parse(d->oip, WORKERS, err);
    return rc == ATTN_OK ? srv_request_admit(d->r, err) : rc;
}

/* Hidden states and a mask, as bytes and in JSON. */
static wire_bytes make_body(size_t *json_bytes, const char *outputs, bool binary)
{
    static const unsigned char mask[B * T] = {1, 1, 1, 1, 0, 1};
    wire_request r = {0};

    if (outputs != NULL)
        wire_output(&r, outputs, NULL);
    wire_member(&r, "\"parameters\":{\"layer\":1,\"window\":\"{\\\"left\\\":1}\"}");
    if (binary) {
        wire_input_bytes(&r, "attend_mask", "BOOL", DIMS(B, T), mask, sizeof mask);
        wire_input_bytes(&r, "hidden_states", "FP32", DIMS(B, T, D), x_, sizeof x_);
    } else {
        wire_input(&r, "attend_mask", "BOOL", DIMS(B, T), "\"data\":[[1,1,true],[1,false,1]]");
        wire_input_floats(&r, "hidden_states", DIMS(B, T, D), x_);
    }
    wire_bytes b = wire_body(&r, json_bytes);
    wire_free(&r);
    return b;
}

static void a_body_may_be_cut_anywhere(void **state)
{
    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        size_t json_bytes = 0;
        wire_bytes b = make_body(&json_bytes, NULL, binary);
        for (size_t piece = 1; piece <= b.n; piece = piece < 9 ? piece + 1 : piece * 3) {
            attn_error err = {0};
            reading d;
            if (read_body(&d, &b, binary ? json_bytes : UINT64_MAX, piece, 1 << 20, &err) !=
                ATTN_OK)
                fail_msg("%s", err.text);
            const srv_array *x = srv_request_array(d.r, SRV_F_INPUTS_EMBEDS);
            const srv_array *mask = srv_request_array(d.r, SRV_F_ATTENTION_MASK);
            assert_int_equal(x->rank, 3);
            assert_memory_equal(x->data.f32, x_, sizeof x_);
            assert_memory_equal(mask->data.u8, ((unsigned char[]){1, 1, 1, 1, 0, 1}), B * T);
            assert_int_equal(d.r->layer_index, 1);
            assert_int_equal(d.r->options.window.left, 1);
            assert_int_equal(d.r->options.window.right, -1);
            end(&d);
        }
        free(b.at);
    }
}

/* Only outputs: no maps are formed. Only maps: no outputs, nor what they alone need. */
static void what_is_not_asked_for_is_not_computed(void **state)
{
    static const char *const names[] = {"output", "attention", "lse", NULL};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        size_t json_bytes = 0;
        wire_bytes b = make_body(&json_bytes, names[i], true);
        attn_error err = {0};
        reading d;
        assert_int_equal(read_body(&d, &b, json_bytes, b.n, 1 << 20, &err), ATTN_OK);
        bool all = names[i] == NULL;
        assert_int_equal(d.r->want[SRV_OUTPUTS], i == 0 || all);
        assert_int_equal(d.r->want[SRV_MAPS], i == 1 || all);
        assert_int_equal(d.r->options.want_maps, i == 1 || all);
        assert_int_equal(d.r->want[SRV_LOGSUMEXP], i == 2 || all);
        assert_false(d.r->want[SRV_CONTEXT] || d.r->want[SRV_QUERY]);
        assert_int_equal(d.r->num_results, all ? 3 : 1);
        for (size_t s = 0; s < B; s++) {
            srv_request_point_at_results(d.r, s);
            const attn_sequence *q = &d.r->seqs[s];
            assert_int_equal(q->output != NULL, i == 0 || all);
            assert_int_equal(q->maps.data != NULL, i == 1 || all);
            assert_int_equal(q->logsumexp != NULL, i == 2 || all);
            assert_null(q->joined_context);
        }
        end(&d);
        free(b.at);
    }
}

/* However little there is: refused with what is needed, and all is given back. */
static void any_budget_is_kept(void **state)
{
    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        size_t json_bytes = 0;
        wire_bytes b = make_body(&json_bytes, NULL, binary);
        attn_status rc = ATTN_ETOOBIG;
        for (size_t budget = 1; rc != ATTN_OK; budget += budget / 8 + 61) {
            attn_error err = {0};
            reading d;
            rc = read_body(&d, &b, binary ? json_bytes : UINT64_MAX, 40, budget, &err);
            if (rc != ATTN_OK) { /* and never "not now": nobody else is there */
                assert_int_equal(rc, ATTN_ETOOBIG);
                assert_true(err.needed > 0 && err.limit > 0);
            }
            assert_true(budget_.peak <= budget);
            end(&d);
        }
        free(b.at);
    }
}

/* A body that ends early, wherever: refused, and all is given back. */
static void a_body_that_ends_early_leaves_nothing_behind(void **state)
{
    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        size_t json_bytes = 0;
        wire_bytes b = make_body(&json_bytes, NULL, binary);
        for (size_t n = 0; n < b.n; n++) {
            const wire_bytes part = {b.at, n, 0};
            attn_error err = {0};
            reading d;
            assert_int_not_equal(
                read_body(&d, &part, binary ? json_bytes : UINT64_MAX, 64, 1 << 20, &err), ATTN_OK);
            assert_true(err.text[0] != '\0');
            end(&d);
        }
        free(b.at);
    }
}

static void messages_are_translated_where_a_name_stands_alone(void **state)
{
    attn_error err = {.text =
                          "/inputs_embeds: my_inputs_embeds is no inputs_embeds, attention_mask",
                      .pointer = "/encoder_hidden_states/0"};
    (void)state;

    srv_oip_translate(&err);
    assert_string_equal(err.text,
                        "/hidden_states: my_inputs_embeds is no hidden_states, attend_mask");
    assert_string_equal(err.pointer, "/kv_states/0");
    memset(err.text, 'x', sizeof err.text - 1);
    memcpy(err.text, "attention_bias ", 15); /* the same in both: stays */
    srv_oip_translate(&err);
    assert_memory_equal(err.text, "attention_bias xxx", 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_may_be_cut_anywhere),
        cmocka_unit_test(what_is_not_asked_for_is_not_computed),
        cmocka_unit_test(any_budget_is_kept),
        cmocka_unit_test(a_body_that_ends_early_leaves_nothing_behind),
        cmocka_unit_test(messages_are_translated_where_a_name_stands_alone),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
