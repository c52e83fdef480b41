/* What the Open Inference Protocol tells of the server and its models; and its reference client, where pip has it. */
#include "tests/command.h"
#include "tests/inflight.h"
#include "tests/oip_wire.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { D = 16 };

static test_daemon *daemon_;

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

static raw_answer ask(const char *method, const char *path)
{
    char request[512];
    (void)snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method,
                   path);
    return raw_once(daemon_url(daemon_), request);
}

static json_t *get(const char *path)
{
    raw_answer a = ask("GET", path);
    if (a.status != 200)
        fail_msg("%s: %d %s", path, a.status, a.body);
    json_t *json = answer_parse(a.body, a.body_bytes);
    raw_free(&a);
    return json;
}

static const char *text(json_t *root, const char *path)
{
    const char *value = json_string_value(answer_get(root, path));
    if (value == NULL)
        fail_msg("no text at %s", path);
    return value;
}

/* --- routes ------------------------------------------------------------------------------------ */

static void every_path_takes_its_method_and_no_other(void **state)
{
    static const struct {
        const char *path;
        bool post;
        int status; /* of the right method without a body */
    } paths[] = {{"/v2", false, 200},
                 {"/v2/health/live", false, 200},
                 {"/v2/health/ready", false, 200},
                 {"/v2/models", false, 200},
                 {"/v2/models/stats", false, 200},
                 {"/v2/models/demo", false, 200},
                 {"/v2/models/demo/versions/1", false, 200},
                 {"/v2/models/demo/ready", false, 200},
                 {"/v2/models/demo/versions/1/ready", false, 200},
                 {"/v2/models/demo/config", false, 200},
                 {"/v2/models/demo/versions/1/config", false, 200},
                 {"/v2/models/demo/stats", false, 200},
                 {"/v2/models/demo/versions/1/stats", false, 200},
                 {"/v2/models/demo/infer", true, 400},
                 {"/v2/models/demo/versions/1/infer", true, 400},
                 {"/v2/repository/index", true, 200},
                 {"/v2/models/none", false, 404},
                 {"/v2/models/none/ready", false, 404},
                 {"/v2/models/demo/versions/2", false, 404},
                 {"/v2/models/demo/versions/2/ready", false, 404},
                 {"/v2/models/demo/versions/2/infer", true, 404},
                 {"/v2/models/none/infer", true, 404}};
    static const char *const nowhere[] = {"/v2/",
                                          "/v2/health",
                                          "/v2/models/",
                                          "/v2/models/demo/x",
                                          "/v2/models/demo/versions",
                                          "/v2/repository"};
    (void)state;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *allow = paths[i].post ? "OPTIONS, POST" : "GET, HEAD, OPTIONS";
        raw_answer a = ask(paths[i].post ? "POST" : "GET", paths[i].path);
        if (a.status != paths[i].status)
            fail_msg("%s: %d", paths[i].path, a.status);
        json_t *json = answer_parse(a.body, a.body_bytes);
        assert_int_equal(json_object_get(json, "error") != NULL, a.status != 200);
        json_decref(json);
        raw_free(&a);
        a = ask(paths[i].post ? "GET" : "POST", paths[i].path);
        assert_int_equal(a.status, 405);
        assert_string_equal(raw_header(&a, "Allow"), allow);
        assert_non_null(strstr(a.body, "\"error\":"));
        raw_free(&a);
        a = ask("OPTIONS", paths[i].path);
        assert_int_equal(a.status, 204);
        assert_string_equal(raw_header(&a, "Allow"), allow);
        raw_free(&a);
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        assert_true(raw_text(&c, "HEAD %s HTTP/1.1\r\nHost: localhost\r\n\r\n", paths[i].path));
        a = raw_read(&c, true, 10000);
        assert_int_equal(a.status, paths[i].post ? 405 : paths[i].status);
        raw_free(&a);
        raw_close(&c);
    }
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        raw_answer a = ask("GET", nowhere[i]);
        assert_int_equal(a.status, 404);
        raw_free(&a);
    }
}

/* --- documents --------------------------------------------------------------------------------- */

static void the_server_announces_what_it_has(void **state)
{
    json_t *server = get("/v2"), *models = get("/v2/models");
    (void)state;

    assert_string_equal(text(server, "name"), "attnd");
    assert_string_equal(text(server, "version"), ATTND_VERSION);
    char *extensions = json_dumps(json_object_get(server, "extensions"), JSON_COMPACT);
    assert_string_equal(extensions, "[\"binary_tensor_data\",\"parameters\","
                                    "\"model_configuration\",\"statistics\"]");
    free(extensions);
    char *names = json_dumps(models, JSON_COMPACT);
    assert_string_equal(names, "{\"models\":[\"demo\"]}");
    free(names);
    json_decref(server);
    json_decref(models);
}

/* The tensors are in both documents, with the sizes that are fixed. */
static void a_model_names_its_tensors(void **state)
{
    static const struct {
        const char *name, *datatype, *shape;
        bool optional;
    } tensors[] = {{"hidden_states", "FP32", "[-1,-1,16]", false},
                   {"kv_states", "FP32", "[-1,-1,16]", true},
                   {"lengths", "INT64", "[-1]", true},
                   {"attend_mask", "BOOL", "[-1,-1,-1,-1]", true},
                   {"attention_bias", "FP32", "[-1,-1,-1,-1]", true},
                   {"position_ids", "INT64", "[-1,-1]", true},
                   {"output", "FP32", "[-1,-1,16]", false},
                   {"attention", "FP32", "[-1,6,-1,-1]", false},
                   {"lse", "FP32", "[-1,6,-1]", false}};
    json_t *model = get("/v2/models/demo"), *config = get("/v2/models/demo/config");
    (void)state;

    assert_string_equal(text(model, "name"), "demo");
    assert_string_equal(text(model, "platform"), "attnd_attnd");
    assert_string_equal(text(config, "name"), "demo");
    assert_int_equal(json_array_size(json_object_get(model, "versions")), 1);
    assert_int_equal(json_integer_value(json_object_get(config, "max_batch_size")), 0);
    assert_string_equal(text(config, "parameters.layers.string_value"), "2");
    for (size_t i = 0; i < 9; i++) {
        size_t k = i < 6 ? i : i - 6;
        const json_t *in = json_array_get(json_object_get(model, i < 6 ? "inputs" : "outputs"), k);
        const json_t *at = json_array_get(json_object_get(config, i < 6 ? "input" : "output"), k);
        char *shape = json_dumps(json_object_get(in, "shape"), JSON_COMPACT);
        char *dims = json_dumps(json_object_get(at, "dims"), JSON_COMPACT);
        assert_string_equal(json_string_value(json_object_get(in, "name")), tensors[i].name);
        assert_string_equal(json_string_value(json_object_get(in, "datatype")),
                            tensors[i].datatype);
        assert_string_equal(shape, tensors[i].shape);
        assert_int_equal(json_is_true(json_object_get(in, "optional")), tensors[i].optional);
        assert_string_equal(json_string_value(json_object_get(at, "name")), tensors[i].name);
        assert_string_equal(json_string_value(json_object_get(at, "data_type")) + 5,
                            tensors[i].datatype);
        assert_string_equal(dims, tensors[i].shape);
        free(shape);
        free(dims);
    }
    json_decref(model);
    json_decref(config);
}

static void the_index_lists_the_models(void **state)
{
    static const struct {
        const char *body;
        int status;
    } cases[] = {
        {"", 200}, {"{}", 200}, {"{\"ready\":true}", 200}, {"[]", 400}, {"{\"ready\":1}", 400},
        {"x", 400}};
    char large[5000];
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wire_answer a = wire_take(wire_post(daemon_url(daemon_), "/v2/repository/index", "",
                                            cases[i].body, strlen(cases[i].body)),
                                  cases[i].status);
        if (cases[i].status == 200)
            assert_string_equal(
                a.http.body,
                "[{\"name\":\"demo\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}]");
        wire_done(&a);
    }
    memset(large, ' ', sizeof large);
    wire_answer a = wire_take(
        wire_post(daemon_url(daemon_), "/v2/repository/index", "", large, sizeof large), 400);
    wire_done(&a);
}

/* --- ids --------------------------------------------------------------------------------------- */

static void the_id_comes_back(void **state)
{
    static const char *const ids[] = {"\"7\"", "\"\"", "\"a \\\"b\\\" \\u00e9 \\n\"", NULL};
    static const float x[D];
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        wire_request r = {0};
        char member[100];
        (void)snprintf(member, sizeof member, "\"id\":%s", ids[i] != NULL ? ids[i] : "");
        if (ids[i] != NULL)
            wire_member(&r, member);
        wire_input_floats(&r, "hidden_states", DIMS(1, 1, D), x);
        wire_answer a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, 200);
        json_t *want = ids[i] != NULL ? json_loads(ids[i], JSON_DECODE_ANY, NULL) : NULL;
        const json_t *got = json_object_get(a.json, "id");
        assert_true(want == NULL ? got == NULL : json_equal(want, got));
        json_decref(want);
        assert_string_equal(text(a.json, "model_name"), "demo");
        assert_string_equal(text(a.json, "model_version"), "1");
        wire_done(&a);
        wire_free(&r);
    }
    for (int more = 0; more < 2; more++) { /* 256 characters of four bytes, and one more */
        wire_request r = {0};
        char longest[2000] = "\"id\":\"";
        for (int i = 0; i < 256 + more; i++)
            memcpy(longest + 6 + 4 * i, "\xF0\x9F\x98\xBA", 5);
        longest[6 + 4 * (256 + more)] = '"';
        wire_member(&r, longest);
        wire_input_floats(&r, "hidden_states", DIMS(1, 1, D), x);
        wire_answer a = wire_ask(daemon_url(daemon_), WIRE_INFER, "", &r, more ? 400 : 200);
        wire_done(&a);
        wire_free(&r);
    }
}

/* --- statistics -------------------------------------------------------------------------------- */

static json_int_t number(json_t *stats, const char *path)
{
    const json_t *value = answer_get(stats, path);
    if (!json_is_integer(value))
        fail_msg("no number at %s", path);
    return json_integer_value(value);
}

static void requests_are_counted(void **state)
{
    static const char *const stages[] = {"queue", "compute_input", "compute_infer",
                                         "compute_output"};
    static const float x[3 * D];
    test_daemon *d = daemon_ = daemon_start(COMMAND("serve")); /* where nothing was counted yet */
    (void)state;

    wire_request good = {0}, bad = {0};
    wire_input_floats(&good, "hidden_states", DIMS(3, 1, D), x);
    wire_input_floats(&bad, "hidden_states", DIMS(3, 1, 5), x);
    for (int i = 0; i < 3; i++) {
        wire_answer a =
            wire_ask(daemon_url(d), WIRE_INFER, "", i < 2 ? &good : &bad, i < 2 ? 200 : 422);
        wire_done(&a);
    }
    test_reply v1 = daemon_post(d, "/v1/models/demo/attention",
                                "{\"inputs_embeds\":[[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]}", 200);
    reply_free(&v1); /* it counts as well */
    json_t *all = NULL, *stats = NULL;
    for (int i = 0; i < 100; i++) { /* an exchange is counted when it is over */
        json_decref(all);
        all = get(i % 2 ? "/v2/models/stats" : "/v2/models/demo/versions/1/stats");
        stats = json_array_get(json_object_get(all, "model_stats"), 0);
        if (number(stats, "inference_stats.success.count") == 3 &&
            number(stats, "inference_stats.fail.count") == 1)
            break;
        usleep(10000);
    }
    assert_int_equal(json_array_size(json_object_get(all, "model_stats")), 1);
    assert_string_equal(text(stats, "name"), "demo");
    assert_int_equal(number(stats, "inference_count"), 7);
    assert_int_equal(number(stats, "execution_count"), 3);
    assert_int_equal(number(stats, "inference_stats.success.count"), 3);
    assert_int_equal(number(stats, "inference_stats.fail.count"), 1);
    assert_true(number(stats, "last_inference") > 1600000000000);
    json_int_t sum = 0;
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "inference_stats.%s.count", stages[i]);
        assert_int_equal(number(stats, path), 3);
        (void)snprintf(path, sizeof path, "inference_stats.%s.ns", stages[i]);
        sum += number(stats, path);
    }
    assert_true(sum > 0 && sum <= number(stats, "inference_stats.success.ns"));
    json_t *batches = json_object_get(stats, "batch_stats");
    assert_int_equal(json_array_size(batches), 2);
    assert_int_equal(number(json_array_get(batches, 0), "batch_size"), 1);
    assert_int_equal(number(json_array_get(batches, 1), "batch_size"), 3);
    assert_int_equal(number(json_array_get(batches, 1), "compute_infer.count"), 2);
    json_decref(all);
    wire_free(&good);
    wire_free(&bad);
    daemon_stop(d);
}

/* --- the end ----------------------------------------------------------------------------------- */

static void a_daemon_that_shuts_down_is_not_ready(void **state)
{
    static const char *const ready[] = {"/v2/health/ready", "/v2/models/demo/ready",
                                        "/v2/models/demo/versions/1/ready"};
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "compute.threads=1"));
    char *heavy = inflight_heavy(20000, 0);
    raw_conn working, asking;
    (void)state;

    inflight_open(&working, d);
    for (size_t i = 0; i < 3; i++) {
        raw_answer a = inflight_get(&working, ready[i]);
        assert_int_equal(a.status, 200);
        raw_free(&a);
    }
    inflight_open(&asking, d);
    assert_true(inflight_post(&working, INFLIGHT_SDPA, heavy, 0));
    usleep(50000);
    kill(daemon_pid(d), SIGTERM);
    usleep(50000);
    wire_answer a = wire_take(inflight_get(&asking, ready[0]), 503);
    assert_non_null(raw_header(&a.http, "Retry-After"));
    wire_done(&a);
    raw_close(&asking);
    raw_close(&working);
    assert_int_equal(daemon_wait(d, 60000, NULL), 0);
    free(heavy);
}

/* --- the reference client ---------------------------------------------------------------------- */

static void tritonclient_is_served(void **state)
{
    char command[400];
    (void)state;

    if (system("PYTHONPATH=build/python /usr/bin/python3 -c 'import tritonclient.http' "
               "2>/dev/null") != 0) {
        printf("skipped: tritonclient is served: pip could not install it\n");
        skip();
    }
    test_daemon *d = daemon_start(COMMAND("serve"));
    (void)snprintf(command, sizeof command,
                   "PYTHONPATH=build/python PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "
                   "tests/oip_client.py %s",
                   daemon_url(d));
    assert_int_equal(system(command), 0);
    daemon_stop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_path_takes_its_method_and_no_other, start, stop),
        cmocka_unit_test_setup_teardown(the_server_announces_what_it_has, start, stop),
        cmocka_unit_test_setup_teardown(a_model_names_its_tensors, start, stop),
        cmocka_unit_test_setup_teardown(the_index_lists_the_models, start, stop),
        cmocka_unit_test_setup_teardown(the_id_comes_back, start, stop),
        cmocka_unit_test(requests_are_counted),
        cmocka_unit_test(a_daemon_that_shuts_down_is_not_ready),
        cmocka_unit_test(tritonclient_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
