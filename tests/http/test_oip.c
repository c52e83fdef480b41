/* Inference requests of the Open Inference Protocol: what is asked is what POST /v1/models/{model}/attention
 * answers, bit for bit, in JSON and as bytes. */
#include "tests/command.h"
#include "tests/oip_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/tensor.h"

enum { B = 2, T = 5, D = 16, H = 6 };

static test_daemon *daemon_;
static float x_[B * T * D];

static int start(void **state)
{
    uint32_t seed = 7;
    (void)state;
    daemon_ = daemon_start(COMMAND("serve"));
    for (size_t i = 0; i < B * T * D; i++) {
        seed = seed * 1664525 + 1013904223;
        x_[i] = (float)(int32_t)seed / 2147483648.0F;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

static wire_answer ask(const wire_request *r, int status)
{
    return wire_ask(daemon_url(daemon_), WIRE_INFER, "", r, status);
}

/* A request with the hidden states, as bytes or in JSON. */
static wire_request asking(bool binary)
{
    wire_request r = {0};

    if (binary)
        wire_input_bytes(&r, "hidden_states", "FP32", DIMS(B, T, D), x_, sizeof x_);
    else
        wire_input_floats(&r, "hidden_states", DIMS(B, T, D), x_);
    return r;
}

/* --- as in /v1 --------------------------------------------------------------------------------- */

/* The results of /v1; `more` is what stands beside the hidden states, each member with a comma behind it. */
typedef struct {
    test_tensor output, attention, lse;
} results;

static results reference(const char *more)
{
    results r = {0};
    test_body b;
    char *json = NULL;

    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
    body_raw(&b, "return_intermediates", "[\"logsumexp\"]");
    if (strstr(more, "return_attentions") == NULL)
        body_raw(&b, "return_attentions", "true");
    assert_true(asprintf(&json, "{%s%s", more, body_text(&b) + 1) > 0);
    test_reply reply = daemon_post(daemon_, "/v1/models/demo/attention", json, 200);
    json_t *answer = answer_parse(reply.body, reply.body_bytes);
    r.output = answer_any(answer_get(answer, "outputs"), "outputs");
    r.attention = answer_any(answer_get(answer, "attentions"), "attentions");
    r.lse = answer_any(answer_get(answer, "intermediates.logsumexp"), "logsumexp");
    json_decref(answer);
    reply_free(&reply);
    body_free(&b);
    free(json);
    return r;
}

static void free_results(results *r)
{
    answer_free(&r->output);
    answer_free(&r->attention);
    answer_free(&r->lse);
}

/* JSON shows an infinity as null, which is read as -inf. */
static void same_bits(const wire_answer *a, const char *name, bool binary, const test_tensor *want)
{
    test_tensor got = wire_tensor(a, name, binary, want->rank, want->dim);

    assert_memory_equal(got.data, want->data, want->count * sizeof(float));
    answer_free(&got);
}

typedef struct {
    const char *v1, *parameters; /* the same options, in the words of each */
    bool lengths, mask, bias, kv;
} option;

static const option options_[] = {
    {"", "", false, false, false, false},
    {"\"layer\":1,", "\"layer\":1", false, false, false, false},
    {"\"is_causal\":true,", "\"is_causal\":true", false, false, false, false},
    {"\"is_causal\":true,\"causal_offset\":[0,1],", "\"causal\":true,\"causal_offset\":\"[0,1]\"",
     false, false, false, false},
    {"\"window\":{\"left\":1,\"right\":0},", "\"window\":\"{\\\"left\\\":1,\\\"right\\\":0}\"",
     false, false, false, false},
    {"\"window\":{\"left\":2},", "\"window_left\":2", false, false, false, false},
    {"\"scale\":0.25,\"softcap\":3,", "\"scale\":0.25,\"softcap\":3", false, false, false, false},
    {"\"return_attentions\":{\"heads\":[3,0],\"queries\":[1,4]},",
     "\"return_attentions\":\"{\\\"heads\\\":[3,0],\\\"queries\\\":[1,4]}\"", false, false, false,
     false},
    {"\"return_attentions\":{\"stage\":\"scores\",\"reduce_heads\":\"mean\",\"keys\":[0,2]},",
     "\"maps.stage\":\"scores\",\"maps.reduce_heads\":\"mean\",\"maps.keys\":\"[0,2]\"", false,
     false, false, false},
    {"\"return_attentions\":{\"heads\":\"all\"},", "\"maps.heads\":\"all\"", false, false, false,
     false},
    {"\"timeout_ms\":30000,", "\"timeout\":30000000,\"priority\":1", false, false, false, false},
    {"\"lengths\":[5,3],", "", true, false, false, false},
    {"\"attention_mask\":[[1,1,0,1,1],[0,0,0,0,0]],", "", false, true, false, false},
    {"\"attention_bias\":[0.5,0,-1,\"-inf\",2],", "", false, false, true, false},
    {"\"encoder_hidden_states\":", "\"layer\":0", false, false, false, true},
};

static void add_inputs(wire_request *r, const option *o, bool binary)
{
    static const int64_t lengths[] = {5, 3};
    static const unsigned char mask[] = {1, 1, 0, 1, 1, 0, 0, 0, 0, 0};
    static const float bias[] = {0.5F, 0, -1, -INFINITY, 2};

    if (o->lengths && binary)
        wire_input_bytes(r, "lengths", "INT64", DIMS(B), lengths, sizeof lengths);
    else if (o->lengths)
        wire_input(r, "lengths", "INT32", DIMS(B), "\"data\":[5,3]");
    if (o->mask && binary)
        wire_input_bytes(r, "attend_mask", "BOOL", DIMS(B, T), mask, sizeof mask);
    else if (o->mask)
        wire_input(r, "attend_mask", "BOOL", DIMS(B, T),
                   "\"data\":[[true,true,false,true,1],[0,0,0,0,false]]");
    if (o->bias && binary)
        wire_input_bytes(r, "attention_bias", "FP32", DIMS(T), bias, sizeof bias);
    else if (o->bias)
        wire_input(r, "attention_bias", "FP32", DIMS(T), "\"data\":[0.5,0,-1,\"-inf\",2]");
    if (o->kv && binary)
        wire_input_bytes(r, "kv_states", "FP32", DIMS(B, 3, D), x_ + 20, B * 3 * D * 4);
    else if (o->kv)
        wire_input_floats(r, "kv_states", DIMS(B, 3, D), x_ + 20);
}

/* The /v1 member for kv_states. */
static char *context_member(void)
{
    test_body b;

    body_init(&b, true);
    body_floats(&b, "encoder_hidden_states", x_ + 20, DIMS(B, 3, D));
    char *text = strdup(body_text(&b) + 1);
    assert_non_null(text);
    text[strlen(text) - 1] = '\0';
    body_free(&b);
    char *member = NULL;
    /* body_text() adds the encoding for the whole body: it stands there once more, without this one's. */
    char *encoding = strstr(text, ",\"encoding_format\"");
    if (encoding != NULL)
        *encoding = '\0';
    encoding = strstr(text, "\"encoding_format\":\"base64\",");
    char *begin = encoding != NULL ? encoding + strlen("\"encoding_format\":\"base64\",") : text;
    assert_true(asprintf(&member, "%s,", begin) > 0);
    free(text);
    return member;
}

static void every_option_gives_the_bits_of_v1_in_json_and_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof options_ / sizeof *options_; i++) {
        const option *o = &options_[i];
        char *v1 = o->kv ? context_member() : strdup(o->v1);
        results want = reference(v1);
        for (int how = 0; how < 4; how++) {
            bool in = (how & 1) != 0, out = (how & 2) != 0;
            wire_request r = asking(in);
            char member[400];
            (void)snprintf(member, sizeof member, "\"parameters\":{\"binary_data_output\":%s%s%s}",
                           out ? "true" : "false", o->parameters[0] != '\0' ? "," : "",
                           o->parameters);
            wire_member(&r, member);
            add_inputs(&r, o, in);
            wire_answer a = ask(&r, 200);
            same_bits(&a, "output", out, &want.output);
            same_bits(&a, "attention", out, &want.attention);
            same_bits(&a, "lse", out, &want.lse);
            assert_int_equal(a.has_bytes, out);
            wire_done(&a);
            wire_free(&r);
        }
        free_results(&want);
        free(v1);
    }
}

/* --- outputs ----------------------------------------------------------------------------------- */

/* What is listed comes in that order and nothing else; nothing listed is everything. */
static void outputs_come_as_listed(void **state)
{
    static const char *const lists[][4] = {
        {"output"}, {"attention"}, {"lse"}, {"lse", "output"}, {"attention", "lse", "output"},
        {NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        wire_request r = asking(true);
        size_t n = 0;
        for (; lists[i][n] != NULL; n++)
            wire_output(&r, lists[i][n], "{\"binary_data\":true}");
        wire_answer a = ask(&r, 200);
        const json_t *outputs = json_object_get(a.json, "outputs");
        assert_int_equal(json_array_size(outputs), n > 0 ? n : 3);
        for (size_t k = 0; k < n; k++)
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(outputs, k), "name")),
                lists[i][k]);
        wire_done(&a);
        wire_free(&r);
    }
}

/* Implementations, not the document's words: binary_data_output is for outputs that are not listed; one that is
 * listed says itself how it comes, and without a word it comes as JSON. */
static void binary_data_and_binary_data_output_in_every_combination(void **state)
{
    static const char *const own[] = {NULL, "{}", "{\"binary_data\":false}",
                                      "{\"binary_data\":true}"};
    static const char *const whole[] = {NULL, "\"parameters\":{}",
                                        "\"parameters\":{\"binary_data_output\":false}",
                                        "\"parameters\":{\"binary_data_output\":true}"};
    results want = reference("");
    (void)state;

    for (size_t w = 0; w < 4; w++) {
        for (size_t o = 0; o < 4; o++) {
            for (int listed = 0; listed < 2; listed++) {
                wire_request r = asking(false);
                if (whole[w] != NULL)
                    wire_member(&r, whole[w]);
                if (listed)
                    wire_output(&r, "output", own[o]);
                wire_answer a = ask(&r, 200);
                bool binary = listed ? o == 3 : w == 3;
                same_bits(&a, "output", binary, &want.output);
                assert_int_equal(wire_has(&a, "lse"), !listed);
                if (!listed)
                    same_bits(&a, "lse", binary, &want.lse);
                assert_int_equal(a.has_bytes, binary);
                wire_done(&a);
                wire_free(&r);
            }
        }
    }
    free_results(&want);
}

/* Of several outputs each comes as it was asked for; the bytes stand in the order of the list. */
static void json_and_bytes_may_be_mixed_in_any_order(void **state)
{
    static const char *const names[] = {"output", "attention", "lse"};
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    results want = reference("");
    const test_tensor *tensors[] = {&want.output, &want.attention, &want.lse};
    (void)state;

    for (size_t order = 0; order < 6; order++) {
        for (unsigned bits = 0; bits < 8; bits++) {
            wire_request r = asking(true);
            for (int i = 0; i < 3; i++) {
                int k = orders[order][i];
                wire_output(&r, names[k],
                            bits & 1u << k ? "{\"binary_data\":true}" : "{\"binary_data\":false}");
            }
            wire_answer a = ask(&r, 200);
            size_t bytes = 0;
            for (int k = 0; k < 3; k++) {
                bool binary = (bits & 1u << k) != 0;
                same_bits(&a, names[k], binary, tensors[k]);
                bytes += binary ? tensors[k]->count * sizeof(float) : 0;
            }
            assert_int_equal(a.http.body_bytes, a.json_bytes + bytes);
            wire_done(&a);
            wire_free(&r);
        }
    }
    free_results(&want);
}

/* --- maps of every kind --- */

static void flatten(const json_t *list, json_t *into)
{
    size_t i;
    json_t *item;

    if (!json_is_array(list)) {
        assert_int_equal(json_array_append(into, (json_t *)(uintptr_t)list), 0);
        return;
    }
    json_array_foreach(list, i, item)
    {
        flatten(item, into);
    }
}

static const json_t *output_named(const json_t *answer, const char *name, size_t *offset)
{
    size_t i;
    const json_t *o;

    json_array_foreach(json_object_get(answer, "outputs"), i, o)
    {
        if (strcmp(json_string_value(json_object_get(o, "name")), name) == 0)
            return o;
        *offset += (size_t)json_integer_value(
            json_object_get(json_object_get(o, "parameters"), "binary_data_size"));
    }
    fail_msg("no output %s", name);
    return NULL;
}

/* Element i of bytes of a datatype, as its JSON would be read. */
static double element(const char *bytes, const char *datatype, size_t i)
{
    float f;
    uint16_t half;
    int32_t integer;

    if (strcmp(datatype, "UINT8") == 0)
        return ((const unsigned char *)bytes)[i];
    if (strcmp(datatype, "FP16") == 0) {
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return (double)attn_f16_to_f32(half);
    }
    if (strcmp(datatype, "INT32") == 0) {
        memcpy(&integer, bytes + i * sizeof integer, sizeof integer);
        return integer;
    }
    assert_string_equal(datatype, "FP32");
    memcpy(&f, bytes + i * sizeof f, sizeof f);
    return (double)f;
}

/* One output in JSON and as bytes against /v1's nested lists. */
static void same_output(const wire_answer *in_json, const wire_answer *in_bytes, const char *name,
                        const json_t *v1, const char *datatype)
{
    json_t *want = json_array();
    size_t ignored = 0, offset = in_bytes->json_bytes, i;
    const json_t *o = output_named(in_json->json, name, &ignored), *number;
    const json_t *b = output_named(in_bytes->json, name, &offset);

    flatten(v1, want);
    assert_string_equal(json_string_value(json_object_get(o, "datatype")), datatype);
    assert_string_equal(json_string_value(json_object_get(b, "datatype")), datatype);
    assert_true(json_equal(json_object_get(o, "shape"), json_object_get(b, "shape")));
    assert_true(json_array_size(want) > 0);
    assert_true(json_equal(json_object_get(o, "data"), want));
    json_array_foreach(want, i, number)
    {
        double x = element(in_bytes->http.body + offset, datatype, i);
        assert_true((float)json_number_value(number) == (float)x);
    }
    for (int k = 0; k < 2; k++) { /* what a byte stands for */
        const json_t *scale =
            json_object_get(json_object_get(k == 0 ? o : b, "parameters"), "scale");
        assert_int_equal(scale != NULL, strcmp(datatype, "UINT8") == 0);
        assert_true(scale == NULL || (float)json_number_value(scale) == 1.0F / 255.0F);
    }
    json_decref(want);
}

static void maps_of_every_kind_are_those_of_v1(void **state)
{
    static const struct {
        const char *v1, *parameters, *datatype;
        bool top_k, uint8;
    } kinds[] = {
        {"{\"top_k\":2}", "\"maps.top_k\":2", "FP32", true, false},
        {"{\"top_k\":2,\"dtype\":\"float16\"}", "\"maps.top_k\":2,\"maps.dtype\":\"float16\"",
         "FP16", true, false},
        {"{\"pool\":{\"size\":2,\"kind\":\"mean\"}}",
         "\"maps.pool\":\"{\\\"size\\\":2,\\\"kind\\\":\\\"mean\\\"}\"", "FP32", false, false},
        {"{\"dtype\":\"float16\"}", "\"maps.dtype\":\"float16\"", "FP16", false, false},
        {"{\"dtype\":\"uint8\"}", "\"return_attentions\":\"{\\\"dtype\\\":\\\"uint8\\\"}\"",
         "UINT8", false, true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        wire_answer a[2];
        test_body b;
        body_init(&b, false);
        body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
        body_raw(&b, "return_attentions", kinds[i].v1);
        test_reply reply = daemon_post(daemon_, "/v1/models/demo/attention", body_text(&b), 200);
        json_t *v1 = answer_parse(reply.body, reply.body_bytes);
        for (int out = 0; out < 2; out++) {
            wire_request r = asking(true);
            char member[300];
            (void)snprintf(member, sizeof member, "\"parameters\":{\"binary_data_output\":%s,%s}",
                           out ? "true" : "false", kinds[i].parameters);
            wire_member(&r, member);
            a[out] = ask(&r, 200);
            wire_free(&r);
        }
        const json_t *maps = json_object_get(v1, "attentions");
        if (kinds[i].top_k) {
            same_output(&a[0], &a[1], "attention_indices", json_object_get(maps, "indices"),
                        "INT32");
            same_output(&a[0], &a[1], "attention_rest", json_object_get(maps, "rest"), "FP32");
        }
        same_output(&a[0], &a[1], "attention",
                    kinds[i].top_k || kinds[i].uint8 ? json_object_get(maps, "values") : maps,
                    kinds[i].datatype);
        same_output(&a[0], &a[1], "output", json_object_get(v1, "outputs"), "FP32");
        wire_done(&a[0]);
        wire_done(&a[1]);
        json_decref(v1);
        reply_free(&reply);
        body_free(&b);
    }
}

/* --- inputs ------------------------------------------------------------------------------------ */

static void binary_inputs_stand_in_the_order_of_the_list(void **state)
{
    static const int64_t lengths[] = {5, 3};
    static const unsigned char mask[] = {1, 1, 0, 1, 1, 1, 1, 1, 1, 1};
    results want = reference("\"lengths\":[5,3],\"attention_mask\":[[1,1,0,1,1],[1,1,1,1,1]],");
    (void)state;

    for (int order = 0; order < 6; order++) {
        wire_request r = {0};
        for (int i = 0; i < 3; i++) {
            switch ((order % 3 + (order < 3 ? i : 3 - i)) % 3) {
            case 0:
                wire_input_bytes(&r, "hidden_states", "FP32", DIMS(B, T, D), x_, sizeof x_);
                break;
            case 1:
                wire_input_bytes(&r, "lengths", "INT64", DIMS(B), lengths, sizeof lengths);
                break;
            default:
                if (order == 4) /* one of them in JSON */
                    wire_input(&r, "attend_mask", "INT64", DIMS(B, T),
                               "\"data\":[1,1,0,1,1,1,1,1,1,1]");
                else
                    wire_input_bytes(&r, "attend_mask", "BOOL", DIMS(B, T), mask, sizeof mask);
            }
        }
        wire_answer a = ask(&r, 200);
        same_bits(&a, "output", false, &want.output);
        wire_done(&a);
        wire_free(&r);
    }
    free_results(&want);
}

static void flat_and_nested_data_are_the_same(void **state)
{
    wire_bytes nested = {0};
    results want = reference("");
    (void)state;

    wire_text(&nested, "\"data\":[");
    for (int b = 0; b < B; b++) {
        wire_text(&nested, b > 0 ? ",[" : "[");
        for (int t = 0; t < T; t++) {
            wire_text(&nested, t > 0 ? ", [" : " [");
            for (int d = 0; d < D; d++)
                wire_text(&nested, d > 0 ? ",%.9g" : "%.9g", (double)x_[(b * T + t) * D + d]);
            wire_text(&nested, "]");
        }
        wire_text(&nested, "\n]");
    }
    wire_text(&nested, "] ");
    wire_request r = {0};
    wire_input(&r, "hidden_states", "FP64", DIMS(B, T, D), nested.at);
    wire_answer a = ask(&r, 200);
    same_bits(&a, "output", false, &want.output);
    wire_done(&a);
    wire_free(&r);
    wire_input(&r, "hidden_states", "FP32", DIMS(T, B, D), nested.at); /* as many, but otherwise */
    a = ask(&r, 400);
    assert_string_equal(json_string_value(json_object_get(a.json, "pointer")), "/inputs/0/data");
    wire_done(&a);
    wire_free(&r);
    free(nested.at);
    free_results(&want);
}

/* Members may stand in any order, "data" in front of what says what it is. */
static void the_order_of_members_does_not_matter(void **state)
{
    char *json = NULL;
    wire_bytes data = {0};
    results want = reference("\"layer\":1,");
    (void)state;

    for (size_t i = 0; i < B * T * D; i++)
        wire_text(&data, i > 0 ? ",%.9g" : "%.9g", (double)x_[i]);
    assert_true(asprintf(&json,
                         " { \"x\":{\"inputs\":[{\"data\":[1]}],\"a\":\"]}\\\"\"},\"inputs\" : [ "
                         "{\"data\" : [%s] , \"shape\":[%d,%d,%d],\"datatype\":\"FP32\",\"name\":"
                         "\"hidden_states\"} ],\"model_name\":\"demo\",\"parameters\":{\"layer\":"
                         "1} }\n",
                         data.at, B, T, D) > 0);
    raw_answer http = wire_post(daemon_url(daemon_), WIRE_INFER, "", json, strlen(json));
    wire_answer a = wire_take(http, 200);
    same_bits(&a, "output", false, &want.output);
    same_bits(&a, "attention", false, &want.attention);
    wire_done(&a);
    free(json);
    free(data.at);
    free_results(&want);
}

static size_t size_of(const char *datatype)
{
    const char *digits = strpbrk(datatype, "0123456789");
    return digits != NULL ? strtoul(digits, NULL, 10) / 8 : 1;
}

/* Of all datatypes each input takes some, and says of the others which it takes. */
static void every_datatype_is_taken_or_refused_with_the_reason(void **state)
{
    static const char *const datatypes[] = {"BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8",
                                            "INT16", "INT32", "INT64",  "FP16",   "FP32",   "FP64",
                                            "BF16",  "BYTES", "fp32",   "FLOAT",  ""};
    static const struct {
        const char *name, *json, *binary, *data;
        size_t rank, dim[3], count;
    } inputs[] = {{"hidden_states", "FP32 FP64 ", "FP16 FP32 FP64 BF16 ", "0", 3, {1, 1, D}, D},
                  {"lengths", "INT32 INT64 ", "INT32 INT64 ", "1", 1, {1}, 1},
                  {"attend_mask", "BOOL INT32 INT64 ", "BOOL INT32 INT64 ", "1", 2, {1, 1}, 1},
                  {"attention_bias", "FP32 FP64 ", "FP16 FP32 FP64 BF16 ", "0", 1, {1}, 1},
                  {"position_ids", "INT32 INT64 ", "INT32 INT64 ", "0", 2, {1, 1}, 1}};
    static const float zeros[D];
    (void)state;

    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        for (size_t k = 0; k < sizeof datatypes / sizeof *datatypes; k++) {
            for (int binary = 0; binary < 2; binary++) {
                wire_request r = {0};
                wire_bytes more = {0};
                char word[16];
                (void)snprintf(word, sizeof word, "%s ", datatypes[k]);
                const char *at = strstr(binary ? inputs[i].binary : inputs[i].json, word);
                bool good = at != NULL && k < 14;
                if (i > 0)
                    wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, 1, D), zeros,
                                     sizeof zeros);
                wire_text(&more, "\"data\":[");
                for (size_t n = 0; n < inputs[i].count; n++)
                    wire_text(&more, "%s%s", n > 0 ? "," : "", inputs[i].data);
                wire_text(&more, "]");
                char bytes[8 * D] = {0};
                if (inputs[i].data[0] == '1')
                    bytes[0] = 1;
                if (binary)
                    wire_input_bytes(&r, inputs[i].name, datatypes[k], inputs[i].rank,
                                     inputs[i].dim, bytes, inputs[i].count * size_of(datatypes[k]));
                else
                    wire_input(&r, inputs[i].name, datatypes[k], inputs[i].rank, inputs[i].dim,
                               more.at);
                wire_answer a = ask(&r, good ? 200 : 400);
                if (!good) {
                    const char *error = json_string_value(json_object_get(a.json, "error"));
                    bool half =
                        !binary && (strcmp(word, "FP16 ") == 0 || strcmp(word, "BF16 ") == 0);
                    half = half && strstr(inputs[i].binary, word) != NULL;
                    if (strstr(error, half ? "JSON has no" : inputs[i].name) == NULL)
                        fail_msg("%s as %s: %s", inputs[i].name, datatypes[k], error);
                }
                wire_done(&a);
                wire_free(&r);
                free(more.at);
            }
        }
    }
}

/* Halves come as bytes, and count as the float32 that they are. */
static void halves_are_read_as_their_floats(void **state)
{
    uint16_t half[D], brain[D];
    float full[D];
    (void)state;

    for (int i = 0; i < D; i++) {
        half[i] = (uint16_t)(0x3c00 + 64 * i); /* 1 + i/16 */
        full[i] = 1.0F + (float)i / 16.0F;
        brain[i] = (uint16_t)(0x3f80 + 8 * i);
    }
    wire_request r = {0};
    wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, 1, D), full, sizeof full);
    wire_answer want = ask(&r, 200);
    wire_free(&r);
    for (int which = 0; which < 2; which++) {
        wire_input_bytes(&r, "hidden_states", which == 0 ? "FP16" : "BF16", DIMS(1, 1, D),
                         which == 0 ? half : brain, sizeof half);
        wire_answer a = ask(&r, 200);
        assert_string_equal(a.http.body, want.http.body);
        wire_done(&a);
        wire_free(&r);
    }
    wire_done(&want);
}

/* --- empty ------------------------------------------------------------------------------------- */

static void nothing_in_is_nothing_out(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        bool batch = (how & 1) != 0, binary = (how & 2) != 0;
        size_t b = batch ? 0 : 2, t = batch ? 3 : 0;
        wire_request r = {0};
        if (binary) {
            wire_input_bytes(&r, "hidden_states", "FP32", DIMS(b, t, D), "", 0);
            wire_member(&r, "\"parameters\":{\"binary_data_output\":true}");
        } else {
            wire_input(&r, "hidden_states", "FP32", DIMS(b, t, D),
                       batch ? "\"data\":[]" : "\"data\":[[],[]]");
        }
        size_t json_bytes = 0;
        char header[64] = "";
        wire_bytes body = wire_body(&r, &json_bytes);
        if (binary) /* needed although no byte follows */
            (void)snprintf(header, sizeof header, "Inference-Header-Content-Length: %zu\r\n",
                           json_bytes);
        wire_answer a =
            wire_take(wire_post(daemon_url(daemon_), WIRE_INFER, header, body.at, body.n), 200);
        test_tensor out = wire_tensor(&a, "output", binary, DIMS(b, t, D));
        test_tensor map = wire_tensor(&a, "attention", binary, DIMS(b, H, t, t));
        test_tensor lse = wire_tensor(&a, "lse", binary, DIMS(b, H, t));
        assert_false(a.has_bytes); /* there are none */
        answer_free(&out);
        answer_free(&map);
        answer_free(&lse);
        wire_done(&a);
        wire_free(&r);
        free(body.at);
    }
}

/* --- what is no number ------------------------------------------------------------------------- */

/* A row without keys: its log-sum-exp is -inf, null in JSON and itself in bytes. */
static void infinity_is_null_in_json_and_itself_in_bytes(void **state)
{
    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        wire_request r = asking(true);
        wire_input(&r, "attend_mask", "BOOL", DIMS(1, 1, T), "\"data\":[0,0,0,0,0]");
        wire_output(&r, "lse", binary ? "{\"binary_data\":true}" : NULL);
        wire_answer a = ask(&r, 200);
        assert_int_equal(strstr(a.http.body, "null") != NULL, !binary);
        test_tensor lse = wire_tensor(&a, "lse", binary, DIMS(B, H, T));
        for (size_t i = 0; i < lse.count; i++)
            assert_true(lse.data[i] == -INFINITY);
        answer_free(&lse);
        wire_done(&a);
        wire_free(&r);
    }
}

static void nan_is_no_json_and_as_bytes_harmless_only_where_nothing_looks(void **state)
{
    static const float nan[2 * D] = {[D] = NAN, [D + 1] = -INFINITY};
    static const int64_t one = 1, two = 2;
    (void)state;

    wire_request r = {0};
    wire_input(&r, "hidden_states", "FP32", DIMS(1, 1, 1), "\"data\":[NaN]");
    wire_answer a = ask(&r, 400);
    wire_done(&a);
    wire_free(&r);
    for (int seen = 0; seen < 2; seen++) {
        wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, 2, D), nan, sizeof nan);
        wire_input_bytes(&r, "lengths", "INT64", DIMS(1), seen ? &two : &one, sizeof one);
        a = ask(&r, seen ? 422 : 200);
        wire_done(&a);
        wire_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_gives_the_bits_of_v1_in_json_and_bytes),
        cmocka_unit_test(outputs_come_as_listed),
        cmocka_unit_test(binary_data_and_binary_data_output_in_every_combination),
        cmocka_unit_test(json_and_bytes_may_be_mixed_in_any_order),
        cmocka_unit_test(maps_of_every_kind_are_those_of_v1),
        cmocka_unit_test(binary_inputs_stand_in_the_order_of_the_list),
        cmocka_unit_test(flat_and_nested_data_are_the_same),
        cmocka_unit_test(the_order_of_members_does_not_matter),
        cmocka_unit_test(every_datatype_is_taken_or_refused_with_the_reason),
        cmocka_unit_test(halves_are_read_as_their_floats),
        cmocka_unit_test(nothing_in_is_nothing_out),
        cmocka_unit_test(infinity_is_null_in_json_and_itself_in_bytes),
        cmocka_unit_test(nan_is_no_json_and_as_bytes_harmless_only_where_nothing_looks),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
