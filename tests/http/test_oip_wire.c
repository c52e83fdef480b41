/* Inference requests of the Open Inference Protocol that are damaged, hostile, compressed, or come in an unusual
 * way: every refusal has the form that clients look for, and the next request is served. */
#include "tests/command.h"
#include "tests/oip_wire.h"
#include "tests/watch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { D = 16, GZIP = 31, ZLIB = 15 };

static test_daemon *daemon_;
static const float x_[2 * D] = {1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1,
                                1, 1, 1, 0, 1, 0, 0, 0, -1, 1,  -1, -1, -1, -1, -1, -1};

static int start(void **state)
{
    (void)state;
    daemon_ = daemon_start(COMMAND("serve"));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

static raw_answer post(const char *headers, const void *body, size_t n)
{
    return wire_post(daemon_url(daemon_), WIRE_INFER, headers, body, n);
}

/* The request of JSON text and bytes must be refused with this status, and `word` in its sentence. */
static void refused(const char *headers, const void *body, size_t n, int status, const char *word)
{
    wire_answer a = wire_take(post(headers, body, n), status);
    const char *error = json_string_value(json_object_get(a.json, "error"));

    if (strstr(error, word) == NULL)
        fail_msg("no \"%s\" in: %s", word, error);
    wire_done(&a);
}

static void refused_text(const char *json, int status, const char *word)
{
    refused("", json, strlen(json), status, word);
}

/* Hidden states [1,2,16] as bytes: the body, and its header fields. */
static wire_bytes good_body(char headers[128], bool all_binary)
{
    wire_request r = {0};
    size_t json_bytes = 0;

    wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, 2, D), x_, sizeof x_);
    if (all_binary)
        wire_member(&r, "\"parameters\":{\"binary_data_output\":true}");
    wire_bytes b = wire_body(&r, &json_bytes);
    (void)snprintf(headers, 128, "Inference-Header-Content-Length: %zu\r\n", json_bytes);
    wire_free(&r);
    return b;
}

/* The answer to good_body(). */
static wire_bytes good_answer(bool all_binary)
{
    char headers[128];
    wire_bytes body = good_body(headers, all_binary), answer = {0};
    wire_answer a = wire_take(post(headers, body.at, body.n), 200);

    wire_add(&answer, a.http.body, a.http.body_bytes);
    wire_done(&a);
    free(body.at);
    return answer;
}

static void is_good(raw_answer http, bool all_binary)
{
    wire_bytes want = good_answer(all_binary);
    wire_answer a = wire_take(http, 200);

    assert_int_equal(a.http.body_bytes, want.n);
    assert_memory_equal(a.http.body, want.at, want.n);
    wire_done(&a);
    free(want.at);
}

/* --- sizes ------------------------------------------------------------------------------------- */

static void a_body_that_is_cut_or_too_long_is_refused_at_every_byte(void **state)
{
    char headers[128];
    wire_bytes b = good_body(headers, false);
    (void)state;

    size_t json_bytes = b.n - sizeof x_;
    for (size_t n = 0; n < b.n; n += n + 8 < json_bytes ? 7 : 1)
        refused(headers, b.at, n, 400,
                n < json_bytes ? "Inference-Header-Content-Length" : "hidden_states");
    is_good(post(headers, b.at, b.n), false);
    wire_add(&b, "x", 1);
    refused(headers, b.at, b.n, 400, "unexpected additional input data");
    free(b.at);
}

/* binary_data_size, shape and bytes must agree, before any memory is taken. */
static void binary_data_size_must_be_that_of_the_shape(void **state)
{
    static const struct {
        const char *shape, *size, *word;
        int status;
    } cases[] = {
        {"1,2,16", "127", "takes 128 bytes", 400},
        {"1,2,16", "129", "takes 128 bytes", 400},
        {"1,2,16", "0", "takes 128 bytes", 400},
        {"1,2,16", "-1", "bytes", 400},
        {"1,2,16", "128.0", "bytes", 400},
        {"1,2,16", "\"128\"", "bytes", 400},
        {"1,2,16", "9223372036854775807", "takes 128 bytes", 400},
        {"1,2,16", "9223372036854775808", "integer", 400},
        {"1,2,15", "120", "width 15", 422},
        {"1,2", "128", "rank 2", 422},
        {"", "128", "rank 0", 422},
        {"1,1,1,2,16", "128", "rank 5", 422},
        {"1,-2,16", "128", "from 0 on", 400},
        {"1,2.0,16", "128", "from 0 on", 400},
        {"1,\"2\",16", "128", "from 0 on", 400},
        {"1,null,16", "128", "from 0 on", 400},
        {"9223372036854775807,2,16", "128", "any memory", 400},
        {"9223372036854775808,2,16", "128", "integer", 400},
        {"4294967296,4294967296,16", "128", "any memory", 400},
        {"4294967296,4294967296,0", "0", "any memory", 400},
        {"0,4294967296,16", "128", "takes 0 bytes", 400},
        {"4611686018427387904,0,16", "0", "memory", 413},
        {"4294967296,0,16", "0", "budget", 413},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[400], headers[100];
        int n = snprintf(json, sizeof json,
                         "{\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":\"FP32\",\"shape\":"
                         "[%s],\"parameters\":{\"binary_data_size\":%s}}]}",
                         cases[i].shape, cases[i].size);
        (void)snprintf(headers, sizeof headers, "inference-header-content-length: %d\r\n", n);
        if (cases[i].status != 413)
            memset(json + n, 0, 120); /* fewer bytes than are announced: it is refused before */
        refused(headers, json, (size_t)n + (cases[i].status != 413 ? 120 : 0), cases[i].status,
                cases[i].word);
    }
    char headers[128];
    wire_bytes b = good_body(headers, false);
    is_good(post(headers, b.at, b.n), false);
    free(b.at);
}

static void the_number_of_json_elements_must_be_that_of_the_shape(void **state)
{
    static const struct {
        const char *shape, *data, *word;
        int status;
    } cases[] = {
        {"1,1,16", "[1,2,3]", "3 elements", 400},
        {"1,1,16", "[]", "0 elements", 400},
        {"1,1,2", "[1,2,3]", "3 elements", 400},
        {"1,1,3", "[1,2,3]", "width 3", 422},
        {"1,1,3", "[[1,2,3]]", "in lists", 400},
        {"1,1,3", "[[[1,2],[3]]]", "/inputs/0/data", 400},
        {"1,1,3", "[1,[2],3]", "/inputs/0/data", 400},
        {"1,1,3", "[1,\"2\",3]", "/inputs/0/data/1", 400},
        {"1,1,3", "[1,1e39,3]", "/inputs/0/data/1", 400},
        {"1,1,3", "[1,2,3", "", 400},
        {"1,1,3", "[1,2,3]]", "", 400},
        {"1,1,3", "[1,2,,3]", "", 400},
        {"1,1,3", "1", "list", 400},
        {"1,1,3", "\"[1,2,3]\"", "list", 400},
        {"1,1,3", "null", "list", 400},
        {"1,1,3", "{\"shape\":[3],\"dtype\":\"float32\",\"data\":\"\"}", "list", 400},
        {"1,1,3", "", "", 400},
        {"1,1,1", "[[[[[[[[[[[[1]]]]]]]]]]]]", "/inputs/0/data", 400},
        {"9223372036854775807,9,9", "[]", "any memory", 400},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[400];
        (void)snprintf(json, sizeof json,
                       "{\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":\"FP32\",\"shape\":"
                       "[%s],\"data\":%s}]}",
                       cases[i].shape, cases[i].data);
        if (cases[i].status == 422 || strstr(cases[i].data, "[[[[") == NULL) {
            refused_text(json, cases[i].status, cases[i].word);
        } else { /* a rank that is too large is said by the reader of numbers */
            raw_answer a = post("", json, strlen(json));
            assert_true(a.status == 400 || a.status == 422);
            raw_free(&a);
        }
    }
}

/* --- the request's JSON ------------------------------------------------------------------------ */

#define INPUT "{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],\"data\":[]}"

static void what_is_wrong_in_the_json_is_named(void **state)
{
    static const struct {
        const char *json, *word;
    } cases[] = {
        {"", "JSON"},
        {"{", "JSON"},
        {"[]", "object"},
        {"{}", "/inputs"},
        {"{\"inputs\":{}}", "/inputs"},
        {"{\"inputs\":[]}", "hidden_states"},
        {"{\"inputs\":[1]}", "/inputs/0"},
        {"{\"inputs\":[{}]}", "/inputs/0"},
        {"{\"inputs\":[{\"name\":\"hidden_state\"}]}", "did you mean \"hidden_states\""},
        {"{\"inputs\":[{\"name\":\"x\"}]}", "/inputs/0/name"},
        {"{\"inputs\":[{\"name\":\"lengths\"}]}", "/inputs/0/datatype"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\"}]}", "/inputs/0/shape"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0]}]}", "neither"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],\"data\":[],"
         "\"parameters\":{\"binary_data_size\":0}}]}",
         "both"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],\"data\":[],"
         "\"data\":[]}]}",
         "data"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[1],"
         "\"d\\u0061ta\":[1]}]}",
         "/inputs/0/data"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],"
         "\"parameters\":{\"binary_data_size\":0}}]}",
         "Inference-Header-Content-Length"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],\"parameters\":{"
         "\"shared_memory_region\":\"x\"}}]}",
         "shared memory"},
        {"{\"inputs\":[{\"name\":\"lengths\",\"datatype\":\"INT32\",\"shape\":[0],\"data\":[],"
         "\"parameters\":[]}]}",
         "/inputs/0/parameters"},
        {"{\"inputs\":[" INPUT "," INPUT "]}", "lengths"},
        {"{\"inputs\":[" INPUT "],\"inputs\":[]}", "inputs"},
        {"{\"id\":7,\"inputs\":[" INPUT "]}", "/id"},
        {"{\"id\":\"a\",\"id\":\"b\",\"inputs\":[" INPUT "]}", "id"},
        {"{\"inputs\":[" INPUT "],\"outputs\":{}}", "/outputs"},
        {"{\"inputs\":[" INPUT "],\"outputs\":[{}]}", "/outputs/0"},
        {"{\"inputs\":[" INPUT "],\"outputs\":[{\"name\":\"outputs\"}]}", "/outputs/0"},
        {"{\"inputs\":[" INPUT "],\"outputs\":[{\"name\":\"lse\"},{\"name\":\"lse\"}]}", "twice"},
        {"{\"inputs\":[" INPUT "],\"outputs\":[{\"name\":\"lse\",\"parameters\":{"
         "\"classification\":3}}]}",
         "classification"},
        {"{\"inputs\":[" INPUT "],\"outputs\":[{\"name\":\"lse\",\"parameters\":{"
         "\"binary_data\":1}}]}",
         "binary_data"},
        {"{\"inputs\":[" INPUT "],\"parameters\":[]}", "/parameters"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"layr\":1}}", "did you mean \"layer\""},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"binary_data_output\":1}}",
         "binary_data_output"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"window\":{\"left\":1}}}", "JSON text"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"window\":\"{\\\"left\\\":\"}}",
         "/parameters/window"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"window\":\"{}\",\"window_left\":1}}",
         "excludes"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"causal\":true,\"is_causal\":true}}",
         "excludes"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"layer\":\"1,\\\"x\\\":2\"}}", "\"x\""},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"layer\":\"1,\\\"softcap\\\":2\"}}",
         "/parameters/layer"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"timeout\":-1}}", "timeout"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"return_attentions\":false},\"outputs\":[{"
         "\"name\":\"attention\"}]}",
         "return_attentions"},
        {"{\"inputs\":[" INPUT "],\"parameters\":{\"maps.stage\":\"probabilites\"}}",
         "probabilities"},
        {"{\"inputs\":[" INPUT "]} x", ""},
        {"\xEF\xBB\xBF{\"inputs\":[" INPUT "]}", ""},
        {"{\"inputs\":[" INPUT "],\"a\":\"\xff\"}", ""},
        {"{\"inputs\":[" INPUT "],\"a\":\"\\", ""},
        {"{\"inputs\":[{\"data\":", ""},
        {"{\"inputs\":[{\"data\":\"\\", ""},
        {"{\"inputs\":[{\"data\":[[[", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strstr(cases[i].json, "maps.stage") == NULL) {
            refused_text(cases[i].json, 400, cases[i].word);
        } else { /* read with the options of a complete request */
            wire_request r = {0};
            wire_input_floats(&r, "hidden_states", DIMS(1, 1, D), x_);
            wire_member(&r, "\"parameters\":{\"maps.stage\":\"probabilites\"}");
            wire_answer a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 400);
            assert_non_null(strstr(a.http.body, "probabilities"));
            wire_done(&a);
            wire_free(&r);
        }
    }
    char headers[128];
    wire_bytes b = good_body(headers, false);
    is_good(post(headers, b.at, b.n), false);
    free(b.at);
}

static void depth_is_bounded(void **state)
{
    static char json[300000];
    (void)state;
    for (int where = 0; where < 3; where++) {
        static const char *const before[] = {"", "{\"x\":", "{\"inputs\":[{\"data\":"};
        size_t depths[] = {101, 100000};
        for (size_t i = 0; i < 2; i++) {
            size_t n = (size_t)snprintf(json, sizeof json, "%s", before[where]);
            memset(json + n, '[', depths[i]);
            memset(json + n + depths[i], ']', depths[i]);
            json[n + 2 * depths[i]] = '\0';
            refused_text(json, 400, "");
        }
    }
}

/* What is said about a request has the names of this protocol. */
static void messages_speak_of_this_protocol_s_inputs(void **state)
{
    wire_request r = {0};
    (void)state;

    wire_input(&r, "attend_mask", "INT64", DIMS(1, 1), "\"data\":[1]");
    wire_answer a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 400);
    assert_non_null(strstr(a.http.body, "hidden_states"));
    assert_null(strstr(a.http.body, "inputs_embeds"));
    wire_done(&a);
    wire_input_floats(&r, "hidden_states", DIMS(1, 2, D), x_);
    wire_input(&r, "kv_states", "FP32", DIMS(2, 0, D), "\"data\":[]");
    a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 422);
    assert_non_null(strstr(a.http.body, "kv_states"));
    assert_null(strstr(a.http.body, "encoder_hidden_states"));
    wire_done(&a);
    wire_free(&r);
    wire_input_floats(&r, "hidden_states", DIMS(1, 2, D), x_);
    wire_input(&r, "attend_mask", "INT64", DIMS(1, 3), "\"data\":[1,1,1]");
    a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 422);
    assert_string_equal(json_string_value(json_object_get(a.json, "pointer")), "/attend_mask");
    wire_done(&a);
    wire_free(&r);
}

/* --- Inference-Header-Content-Length ----------------------------------------------------------- */

static void the_length_of_the_json_must_be_a_number_within_the_body(void **state)
{
    static const char *const wrong[] = {"-1",  "x",    "1x", "",     "99999999999999999999",
                                        "1e3", "0x10", "+3", "1000", "3, 3"};
    char headers[128], field[300];
    wire_bytes b = good_body(headers, false);
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)snprintf(field, sizeof field, "Inference-Header-Content-Length: %s\r\n", wrong[i]);
        refused(field, b.at, b.n, 400, "Inference-Header-Content-Length");
    }
    (void)snprintf(field, sizeof field, "%s%s", headers, headers);
    refused(field, b.at, b.n, 400, "more than once");
    size_t json_bytes = b.n - sizeof x_;
    for (int off = -1; off <= 1; off += 2) { /* one byte too few, one too many */
        (void)snprintf(field, sizeof field, "Inference-Header-Content-Length: %zu\r\n",
                       json_bytes + (size_t)off);
        refused(field, b.at, b.n, 400, "");
    }
    refused("", b.at, json_bytes, 400, "Inference-Header-Content-Length");
    is_good(post(headers, b.at, b.n), false);
    free(b.at);
}

/* With a length the body may be JSON alone all the same. */
static void json_alone_may_have_a_length(void **state)
{
    char headers[100];
    wire_request r = {0};
    (void)state;

    wire_input_floats(&r, "hidden_states", DIMS(1, 2, D), x_);
    wire_bytes b = wire_json(&r);
    (void)snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n", b.n);
    is_good(post(headers, b.at, b.n), false);
    free(b.at);
    wire_free(&r);
}

/* A length of 0: the body is one sequence of hidden states. */
static void a_raw_request_is_one_sequence_and_answered_in_bytes(void **state)
{
    static const char raw[] = "Inference-Header-Content-Length: 0\r\n";
    (void)state;

    is_good(post(raw, x_, sizeof x_), true);
    refused(raw, x_, sizeof x_ - 1, 400, "64 bytes each");
    wire_answer a = wire_take(post(raw, "", 0), 200);
    test_tensor none = wire_tensor(&a, "output", true, DIMS(1, 0, D));
    answer_free(&none);
    wire_done(&a);
    wire_bytes z = wire_deflate(x_, sizeof x_, GZIP);
    refused("Inference-Header-Content-Length: 0\r\nContent-Encoding: gzip\r\n", z.at, z.n, 400,
            "raw request");
    free(z.at);
}

/* --- codings ----------------------------------------------------------------------------------- */

static wire_answer post_coded(const char *coding, const wire_bytes *z, const char *length,
                              int status)
{
    char headers[256];

    (void)snprintf(headers, sizeof headers, "content-encoding: %s\r\n%s", coding, length);
    return wire_take(post(headers, z->at, z->n), status);
}

static void bodies_may_be_compressed(void **state)
{
    static const struct {
        const char *coding;
        int bits, status;
    } cases[] = {{"gzip", GZIP, 200},    {"deflate", ZLIB, 200}, {"GZIP", GZIP, 200},
                 {"deflate", -15, 400},  {"gzip", ZLIB, 400},    {"br", GZIP, 415},
                 {"gzip, gzip", 31, 415}};
    char length[128];
    wire_bytes b = good_body(length, false);
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wire_bytes z = wire_deflate(b.at, b.n, cases[i].bits);
        wire_answer a = post_coded(cases[i].coding, &z, length, cases[i].status);
        if (a.http.status == 415)
            assert_string_equal(raw_header(&a.http, "Accept-Encoding"), "identity, gzip, deflate");
        wire_done(&a);
        free(z.at);
    }
    wire_bytes z = wire_deflate(b.at, b.n, GZIP);
    for (size_t n = 0; n < z.n; n += 5) { /* cut */
        wire_bytes part = {z.at, n, 0};
        wire_answer a = post_coded("gzip", &part, length, 400);
        wire_done(&a);
    }
    z.at[z.n / 2] ^= 0x10; /* damaged */
    wire_answer a = post_coded("gzip", &z, length, 400);
    wire_done(&a);
    z.at[z.n / 2] ^= 0x10;
    wire_add(&z, "trailing", 8);
    a = post_coded("gzip", &z, length, 400);
    wire_done(&a);
    free(z.at);
    free(b.at);
}

/* Much from little is no request. */
static void a_bomb_is_refused(void **state)
{
    size_t n = (size_t)64 << 20;
    char *blanks = malloc(n);
    (void)state;

    assert_non_null(blanks);
    memset(blanks, ' ', n);
    wire_bytes z = wire_deflate(blanks, n, GZIP);
    wire_answer a = post_coded("gzip", &z, "", 413);
    wire_done(&a);
    free(z.at);
    free(blanks);
}

static void answers_are_compressed_when_that_is_asked_for(void **state)
{
    static const struct {
        const char *accept, *coding;
        int bits;
    } cases[] = {{"", NULL, 0},
                 {"identity", NULL, 0},
                 {"br", NULL, 0},
                 {"*", NULL, 0},
                 {"gzip", "gzip", GZIP},
                 {"deflate", "deflate", ZLIB},
                 {"gzip, deflate", "gzip", GZIP},
                 {"gzip;q=0.5, deflate", "deflate", ZLIB},
                 {"gzip;q=0, deflate;q=0", NULL, 0},
                 {"gzip;q=0.2, identity;q=0.5", NULL, 0}};
    char length[128], headers[256];
    (void)state;

    for (int binary = 0; binary < 2; binary++) {
        wire_bytes b = good_body(length, binary), want = good_answer(binary);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            (void)snprintf(headers, sizeof headers, "%s%s%s%s", length,
                           cases[i].accept[0] != '\0' ? "accept-encoding: " : "", cases[i].accept,
                           cases[i].accept[0] != '\0' ? "\r\n" : "");
            raw_answer a = post(headers, b.at, b.n);
            assert_int_equal(a.status, 200);
            const char *coding = raw_header(&a, "Content-Encoding");
            if (cases[i].coding == NULL) {
                assert_null(coding);
                assert_int_equal(a.body_bytes, want.n);
                assert_memory_equal(a.body, want.at, want.n);
            } else {
                assert_non_null(coding);
                assert_string_equal(coding, cases[i].coding);
                wire_bytes plain = wire_inflate(a.body, a.body_bytes, cases[i].bits);
                assert_int_equal(plain.n, want.n);
                assert_memory_equal(plain.at, want.at, want.n);
                free(plain.at);
            }
            raw_free(&a);
        }
        (void)snprintf(headers, sizeof headers, "%saccept-encoding: br, identity;q=0\r\n", length);
        refused(headers, b.at, b.n, 406, "Accept-Encoding");
        free(want.at);
        free(b.at);
    }
}

/* --- HTTP -------------------------------------------------------------------------------------- */

static void any_content_type_will_do(void **state)
{
    static const char *const types[] = {"", "Content-Type: application/json\r\n",
                                        "Content-Type: application/octet-stream\r\n",
                                        "Content-Type: application/x-www-form-urlencoded\r\n"};
    char length[128], headers[256];
    wire_bytes b = good_body(length, false);
    (void)state;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        (void)snprintf(headers, sizeof headers, "%s%s", length, types[i]);
        is_good(post(headers, b.at, b.n), false);
    }
    (void)snprintf(headers, sizeof headers, "%sAccept: application/octet-stream\r\n", length);
    is_good(post(headers, b.at, b.n), false);
    (void)snprintf(headers, sizeof headers, "%sAccept: text/html\r\n", length);
    refused(headers, b.at, b.n, 406, "Accept");
    free(b.at);
}

static void a_body_may_come_in_any_pieces(void **state)
{
    char length[128];
    wire_bytes b = good_body(length, true);
    (void)state;

    for (size_t piece = 1; piece < 64; piece = piece * 2 + 1) {
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        assert_true(raw_text(&c,
                             "POST " WIRE_INFER " HTTP/1.1\r\nHost: localhost\r\n%s"
                             "Transfer-Encoding: chunked\r\n\r\n",
                             length));
        for (size_t at = 0; at < b.n; at += piece) {
            size_t n = b.n - at < piece ? b.n - at : piece;
            assert_true(raw_text(&c, "%zx\r\n", n) && raw_send(&c, b.at + at, n) &&
                        raw_text(&c, "\r\n"));
        }
        assert_true(raw_text(&c, "0\r\n\r\n"));
        is_good(raw_read(&c, false, 30000), true);
        raw_close(&c);
    }
    free(b.at);
}

/* A gzip body that comes byte by byte. */
static void a_compressed_body_may_come_in_any_pieces(void **state)
{
    char length[128];
    wire_bytes b = good_body(length, true), z = wire_deflate(b.at, b.n, GZIP);
    raw_conn c;
    (void)state;

    raw_open(&c, daemon_url(daemon_));
    assert_true(raw_text(&c,
                         "POST " WIRE_INFER " HTTP/1.1\r\nHost: localhost\r\n%sContent-Encoding: "
                         "gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
                         length));
    for (size_t at = 0; at < z.n; at++)
        assert_true(raw_text(&c, "1\r\n") && raw_send(&c, z.at + at, 1) && raw_text(&c, "\r\n"));
    assert_true(raw_text(&c, "0\r\n\r\n"));
    is_good(raw_read(&c, false, 30000), true);
    raw_close(&c);
    free(z.at);
    free(b.at);
}

static void requests_may_be_pipelined_and_expect_100(void **state)
{
    char length[128];
    wire_bytes b = good_body(length, true);
    raw_conn c;
    (void)state;

    raw_open(&c, daemon_url(daemon_));
    for (int i = 0; i < 3; i++) { /* good, refused, good: on one connection */
        assert_true(raw_text(&c,
                             "POST %s HTTP/1.1\r\nHost: localhost\r\n%s"
                             "Content-Length: %zu\r\n\r\n",
                             i == 1 ? "/v2/models/none/infer" : WIRE_INFER, length, b.n));
        assert_true(raw_send(&c, b.at, b.n));
    }
    is_good(raw_read(&c, false, 30000), true);
    wire_answer a = wire_take(raw_read(&c, false, 30000), 404);
    wire_done(&a);
    is_good(raw_read(&c, false, 30000), true);
    raw_close(&c);

    raw_open(&c, daemon_url(daemon_));
    assert_true(raw_text(&c,
                         "POST " WIRE_INFER " HTTP/1.1\r\nHost: localhost\r\n%sExpect: 100-continue"
                         "\r\nContent-Length: %zu\r\n\r\n",
                         length, b.n));
    raw_answer go = raw_read(&c, true, 30000);
    assert_int_equal(go.status, 100);
    raw_free(&go);
    assert_true(raw_send(&c, b.at, b.n));
    is_good(raw_read(&c, false, 30000), true);
    raw_close(&c);
    free(b.at);
}

static void a_post_without_a_length_has_no_body(void **state)
{
    (void)state;
    raw_answer index = raw_once(daemon_url(daemon_), "POST /v2/repository/index HTTP/1.1\r\n"
                                                     "Host: localhost\r\n\r\n");
    wire_answer a = wire_take(index, 200);
    wire_done(&a);
    a = wire_take(
        raw_once(daemon_url(daemon_), "POST " WIRE_INFER " HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        400);
    wire_done(&a);
}

static void names_in_the_path_are_decoded(void **state)
{
    char headers[128];
    wire_bytes b = good_body(headers, false);
    (void)state;

    is_good(
        wire_post(daemon_url(daemon_), "/v2/models/d%65mo/versions/%31/infer", headers, b.at, b.n),
        false);
    raw_answer a = wire_post(daemon_url(daemon_), "/v2/models/a%20b/c/infer", headers, b.at, b.n);
    assert_int_equal(a.status, 404);
    raw_free(&a);
    free(b.at);
}

/* --- memory ------------------------------------------------------------------------------------ */

/* With little memory answers leave in pieces; the bytes are the same. JSON beside bytes cannot: its length stands in
 * front. */
static void large_answers_leave_in_pieces_with_the_same_bits(void **state)
{
    enum { T = 700 };
    test_daemon *small = daemon_start(COMMAND("serve", "--set", "memory.budget=4MiB"));
    float *x = malloc(sizeof(float) * T * D);
    const size_t count = (size_t)6 * T * T;
    (void)state;

    assert_non_null(x);
    for (size_t i = 0; i < (size_t)T * D; i++)
        x[i] = (float)(i * 37 % 101) / 50.0F - 1.0F;
    static const char *const maps[] = {
        "\"maps.dtype\":\"float16\"", "\"maps.top_k\":300",
        "\"maps.dtype\":\"float32\""}; /* the last is compared below */
    wire_request r = {0};
    wire_answer whole = {0}, pieces;
    for (size_t i = 0; i < 3; i++) {
        char member[200];
        (void)snprintf(member, sizeof member,
                       "\"parameters\":{\"binary_data_output\":true,\"timeout_ms\":60000,%s}",
                       maps[i]);
        if (i > 0)
            wire_done(&whole);
        wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, T, D), x, sizeof(float) * T * D);
        wire_member(&r, member);
        whole = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 200);
        pieces = wire_ask(daemon_url(small), WIRE_INFER, "", &r, 200);
        assert_int_equal(whole.http.chunked, false); /* its length was known */
        assert_int_equal(pieces.http.chunked, true);
        assert_int_equal(pieces.json_bytes, whole.json_bytes);
        assert_int_equal(pieces.http.body_bytes, whole.http.body_bytes);
        assert_memory_equal(pieces.http.body, whole.http.body, whole.http.body_bytes);
        wire_done(&pieces);
        wire_free(&r);
    }

    wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, T, D), x, sizeof(float) * T * D);
    wire_output(&r, "attention", NULL);
    wire_output(&r, "output", NULL);
    pieces = wire_ask(daemon_url(small), WIRE_INFER, "", &r, 200);
    test_tensor in_json = wire_tensor(&pieces, "attention", false, DIMS(1, 6, T, T));
    test_tensor in_bytes = wire_tensor(&whole, "attention", true, DIMS(1, 6, T, T));
    assert_memory_equal(in_json.data, in_bytes.data, count * sizeof(float));
    answer_free(&in_json);
    answer_free(&in_bytes);
    wire_done(&pieces);
    wire_done(&whole);
    wire_free(&r);

    wire_input_bytes(&r, "hidden_states", "FP32", DIMS(1, T, D), x, sizeof(float) * T * D);
    wire_output(&r, "attention", "{\"binary_data\":true}");
    wire_output(&r, "output", NULL);
    wire_answer a = wire_ask(daemon_url(small), WIRE_INFER, "", &r, 413);
    json_int_t needed = json_integer_value(json_object_get(a.json, "needed_bytes"));
    assert_true(needed > (json_int_t)(count * sizeof(float)));
    wire_done(&a);
    wire_free(&r);
    free(x);
    daemon_stop(small);
}

/* A client that leaves, and requests that were refused half way, leave nothing behind. */
static void nothing_stays_reserved(void **state)
{
    char headers[128];
    wire_bytes b = good_body(headers, true);
    (void)state;

    for (size_t n = 1; n < b.n; n += 23) {
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        assert_true(raw_text(&c,
                             "POST " WIRE_INFER " HTTP/1.1\r\nHost: localhost\r\n%s"
                             "Content-Length: %zu\r\n\r\n",
                             headers, b.n));
        assert_true(raw_send(&c, b.at, n));
        raw_close(&c);
    }
    free(b.at);
    watch_until(daemon_, "attnd_memory_used_bytes", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_that_is_cut_or_too_long_is_refused_at_every_byte),
        cmocka_unit_test(binary_data_size_must_be_that_of_the_shape),
        cmocka_unit_test(the_number_of_json_elements_must_be_that_of_the_shape),
        cmocka_unit_test(what_is_wrong_in_the_json_is_named),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(messages_speak_of_this_protocol_s_inputs),
        cmocka_unit_test(the_length_of_the_json_must_be_a_number_within_the_body),
        cmocka_unit_test(json_alone_may_have_a_length),
        cmocka_unit_test(a_raw_request_is_one_sequence_and_answered_in_bytes),
        cmocka_unit_test(bodies_may_be_compressed),
        cmocka_unit_test(a_bomb_is_refused),
        cmocka_unit_test(answers_are_compressed_when_that_is_asked_for),
        cmocka_unit_test(any_content_type_will_do),
        cmocka_unit_test(a_body_may_come_in_any_pieces),
        cmocka_unit_test(a_compressed_body_may_come_in_any_pieces),
        cmocka_unit_test(requests_may_be_pipelined_and_expect_100),
        cmocka_unit_test(a_post_without_a_length_has_no_body),
        cmocka_unit_test(names_in_the_path_are_decoded),
        cmocka_unit_test(large_answers_leave_in_pieces_with_the_same_bits),
        cmocka_unit_test(nothing_stays_reserved),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
