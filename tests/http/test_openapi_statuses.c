/* Every status that the OpenAPI document lists for an operation is provoked, and no other is seen. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/described.h"
#include "tests/inflight.h"
#include "tests/rawhttp.h"
#include "tests/schema.h"
#include "tests/scratch.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"
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

#include "server/assets.h"
#include "server/http.h"

enum { MAX_OPERATIONS = 64, MAX_SEEN = 512 };

typedef struct {
    const char *path, *method; /* the document's: "get" */
    char real[256];            /* the path with the parameters' examples */
    bool post;
    int seen[MAX_SEEN];
    size_t num_seen;
} operation;

static json_t *document_;
static operation operations[MAX_OPERATIONS];
static size_t num_operations;

static bool is_of_viewer(const char *path)
{
    return strcmp(path, "/") == 0 || strncmp(path, "/ui/", 4) == 0;
}

static char *demo_, *minilm_; /* what --model takes */

/* With the demo model and an encoder, named as the document's examples name them. */
static test_daemon *serve(const char *const *options)
{
    const char *args[16] = {"serve", "--model", demo_, "--model", minilm_};
    size_t n = 5;

    while (*options != NULL) {
        assert_true(n < 15);
        args[n++] = *options++;
    }
    return daemon_start(args);
}

static bool is_of_encoder(const operation *o)
{
    return strstr(o->path, "/enc") != NULL || strstr(o->path, "/embed") != NULL;
}

static int start(void **state)
{
    const char *path, *method;
    json_t *item, *one;

    if (scratch_setup(state) != 0)
        return -1;
    char *err = NULL;
    assert_int_equal(daemon_run(COMMAND("demo", scratch_path("demo")), NULL, &err), 0);
    free(err);
    demo_ = st_path("demo=%s", scratch_path("demo"));
    tiny_encoder_write(scratch_path("minilm"), 1, 1, NULL);
    minilm_ = st_path("minilm=%s", scratch_path("minilm"));
    test_daemon *d = serve(COMMAND(NULL));
    document_ = described_document(d);
    daemon_stop(d);
    json_object_foreach(json_object_get(document_, "paths"), path, item)
    {
        json_object_foreach(item, method, one)
        {
            if (strcmp(method, "parameters") == 0)
                continue;
            if (is_of_viewer(path) && srv_asset_find("/") == NULL) {
                printf("skipped: %s: this build has no viewer\n", path);
                continue;
            }
            operation *o = &operations[num_operations++];
            assert_true(num_operations < MAX_OPERATIONS);
            *o = (operation){.path = path, .method = method, .post = strcmp(method, "post") == 0};
            described_path(document_, path, NULL, o->real, sizeof o->real);
        }
    }
    return 0;
}

static int stop(void **state)
{
    json_decref(document_);
    free(demo_);
    free(minilm_);
    return scratch_teardown(state);
}

static operation *operation_of(const char *path)
{
    for (size_t i = 0; i < num_operations; i++) {
        if (strcmp(operations[i].path, path) == 0)
            return &operations[i];
    }
    fail_msg("the document has no %s", path);
    return NULL;
}

/* Takes the answer: it must be as described. */
static void see(operation *o, raw_answer *a, int expected)
{
    if (a->status != expected)
        fail_msg("%s %s: %d, not %d: %s", o->method, o->path, a->status, expected, a->body);
    described_holds(document_, o->path, o->method, a);
    assert_true(o->num_seen < MAX_SEEN);
    o->seen[o->num_seen++] = a->status;
    raw_free(a);
}

static bool lists(const operation *o, int status)
{
    char key[12];
    (void)snprintf(key, sizeof key, "%d", status);
    const json_t *its = described_operation(document_, o->path, o->method);
    return json_object_get(json_object_get(its, "responses"), key) != NULL;
}

/* One request with a header, and a body unless that is NULL. */
static raw_answer ask(const test_daemon *d, const operation *o, const char *target,
                      const char *header, const char *body)
{
    char request[2048];
    (void)snprintf(request, sizeof request, "%s %s HTTP/1.1\r\n%s%s\r\n%s",
                   o->post ? "POST" : "GET", target,
                   strstr(header, "Host:") != NULL ? "" : "Host: localhost\r\n", header,
                   body != NULL ? body : "");
    return raw_once(daemon_url(d), request);
}

/* libmicrohttpd 1.0 refuses an unknown coding by itself, before our code sees the request. */
static void see_unknown_coding(const test_daemon *d, operation *o)
{
    raw_answer a = ask(d, o, o->real, "Transfer-Encoding: gzip\r\n", NULL);
    const char *type = raw_header(&a, "Content-Type");

    if (srv_http_library_version()[0] != '0' &&
        (type == NULL || strcmp(type, "application/problem+json") != 0)) {
        assert_int_equal(a.status, 400);
        o->seen[o->num_seen++] = 501;
        raw_free(&a);
        return;
    }
    see(o, &a, 501);
}

/* --- what the request itself says --- */

static bool is_oip(const operation *o)
{
    return strncmp(o->path, "/v2", 3) == 0;
}

/* A body that disagrees with the demo model or itself. */
static const char *disagreeing(const operation *o)
{
    return is_oip(o) ? "{\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":\"FP32\","
                       "\"shape\":[1,1,1],\"data\":[1]}]}"
           : strstr(o->path, "scaled") != NULL    ? "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],"
                                                    "\"value\":[[[[1]]]],\"lengths\":[5]}"
           : strstr(o->path, "/encode") != NULL   ? "{\"input_ids\":[[99]]}"
           : strstr(o->path, "/v1/embed") != NULL ? "{\"input\":\"a\",\"dimensions\":3}"
           : strstr(o->path, "/embed") != NULL    ? "{\"inputs\":\"a\",\"prompt_name\":\"p\"}"
           : strstr(o->path, "estimate") != NULL  ? "{\"shape\":[1,1,1]}"
                                                  : "{\"inputs_embeds\":[[1]]}";
}

static void provoke_get(const test_daemon *d, operation *o)
{
    char tag[128];
    raw_answer a = ask(d, o, o->real, "", NULL);
    const char *its = raw_header(&a, "ETag");

    (void)snprintf(tag, sizeof tag, "If-None-Match: %s\r\n", its != NULL ? its : "");
    bool tagged = its != NULL;
    see(o, &a, 200);
    assert_int_equal(tagged, lists(o, 304));
    if (tagged) {
        a = ask(d, o, o->real, tag, NULL);
        see(o, &a, 304);
    }
}

static void provoke_post(const test_daemon *d, operation *o)
{
    const json_t *body = schema_resolve(
        document_, json_object_get(described_operation(document_, o->path, "post"), "requestBody"));
    json_t *examples = json_object_get(
        json_object_get(json_object_get(body, "content"), "application/json"), "examples");
    const json_t *example =
        json_object_get(json_object_iter_value(json_object_iter(examples)), "value");
    char *json = json_dumps(example, JSON_COMPACT);

    raw_answer a = described_post(d, o->real, json);
    see(o, &a, 200);
    a = described_post(d, o->real, is_oip(o) ? "[]" : "{\"no_field\":1}");
    see(o, &a, 400);
    free(json);
    if (lists(o, 422)) {
        a = described_post(d, o->real, disagreeing(o));
        see(o, &a, 422);
    }
    a = ask(d, o, o->real, "Accept: text/html\r\nContent-Length: 2\r\n", "{}");
    see(o, &a, 406);
    a = ask(d, o, o->real, "Content-Encoding: br\r\nContent-Length: 2\r\n", "{}");
    see(o, &a, 415);
    if (is_oip(o)) /* its clients send any type, or none */
        return;
    a = ask(d, o, o->real, "Content-Type: text/plain\r\nContent-Length: 2\r\n", "{}");
    see(o, &a, 415);
}

/* The statuses that a request brings on itself, whatever the daemon is doing. */
static void provoke_by_request(const test_daemon *d)
{
    for (size_t i = 0; i < num_operations; i++) {
        operation *o = &operations[i];
        char target[300];

        if (o->post)
            provoke_post(d, o);
        else
            provoke_get(d, o);
        (void)snprintf(target, sizeof target, "%s?%%zz", o->real);
        raw_answer a = ask(d, o, target, "", NULL);
        see(o, &a, 400);
        a = ask(d, o, o->real, "Host: example.com\r\n", NULL);
        see(o, &a, 403);
        a = ask(d, o, o->real, "Expect: 100-continue\r\nContent-Length: 99999999999\r\n", NULL);
        see(o, &a, 413);
        see_unknown_coding(d, o);
        if (strchr(o->path, '{') == NULL)
            continue;
        described_path(document_, o->path, "nope", target, sizeof target);
        a = ask(d, o, target, "", NULL);
        see(o, &a, 404);
    }
}

/* With keys, no answer but 401 where the document lists it. */
static void provoke_keys(void)
{
    char option[300];
    (void)snprintf(option, sizeof option, "auth.keys_file=%s", scratch_write("keys", "k", 1));
    test_daemon *d = serve(COMMAND("--set", option));
    for (size_t i = 0; i < num_operations; i++) {
        operation *o = &operations[i];
        raw_answer a = ask(d, o, o->real, "", NULL);
        if (lists(o, 401))
            see(o, &a, 401);
        else
            see(o, &a, 200);
    }
    daemon_stop(d);
}

/* Below a prefix, which is asked for without the slash at its end. */
static void provoke_redirects(void)
{
    test_daemon *d = serve(COMMAND("--set", "server.base_path=/team"));

    for (size_t i = 0; i < num_operations; i++) {
        if (!lists(&operations[i], 308))
            continue;
        raw_answer a = ask(d, &operations[i], "/team", "", NULL);
        see(&operations[i], &a, 308);
    }
    daemon_stop(d);
}

/* --- what time and load bring --- */

static void provoke_timeouts(void)
{
    test_daemon *d = serve(COMMAND("--set", "server.header_timeout=500ms"));
    static raw_conn c[MAX_OPERATIONS];

    for (size_t i = 0; i < num_operations; i++) {
        raw_open(&c[i], daemon_url(d));
        assert_true(
            raw_text(&c[i], "%s %s HTTP/1.1\r\nHost:", operations[i].method, operations[i].real));
    }
    for (size_t i = 0; i < num_operations; i++) {
        raw_answer a = raw_read(&c[i], false, 10000);
        see(&operations[i], &a, 408);
        raw_close(&c[i]);
    }
    daemon_stop(d);
}

/* A body with a bias of so many bytes, which any of the three POSTs reads. */
static char *biased(size_t bytes)
{
    float *x = calloc(bytes / sizeof *x, sizeof *x);
    test_body b;

    assert_non_null(x);
    body_init(&b, true);
    body_floats(&b, "attention_bias", x, DIMS(bytes / sizeof *x));
    char *text = strdup(body_text(&b));
    assert_non_null(text);
    body_free(&b);
    free(x);
    return text;
}

/* The like for the Open Inference Protocol: so many zeros for an input. */
static char *oip_zeros(const char *input, const char *member, size_t n)
{
    wire_request r = {0};
    wire_bytes data = {0};

    wire_text(&data, "\"data\":[0");
    for (size_t i = 1; i < n; i++)
        wire_add(&data, ",0", 2);
    wire_text(&data, "]");
    wire_member(&r, member);
    if (strcmp(input, "hidden_states") == 0)
        wire_input(&r, input, "FP32", DIMS(1, n / 16, 16), data.at);
    else
        wire_input(&r, input, "FP32", DIMS(n), data.at);
    wire_bytes json = wire_json(&r);
    wire_free(&r);
    free(data.at);
    return json.at;
}

/* One request holds most of the memory, so that no other fits. */
static void provoke_busy(void)
{
    test_daemon *d = serve(COMMAND("--set", "memory.budget=8MiB"));
    char *body = biased((size_t)5 << 20),
         *oip = oip_zeros("attention_bias", "\"id\":\"1\"", 2 << 20);
    raw_conn holder;
    static char input[45000 + 32], inputs[sizeof input]; /* a text is charged for 80 times */

    (void)snprintf(input, sizeof input, "{\"input\":\"%045000d\"}", 0);
    (void)snprintf(inputs, sizeof inputs, "{\"inputs\":\"%045000d\"}", 0);
    inflight_open(&holder, d);
    assert_true(inflight_post(&holder, INFLIGHT_SDPA, body, 1));
    usleep(100000);
    for (size_t i = 0; i < num_operations; i++) {
        if (!lists(&operations[i], 422))
            continue;
        const operation *o = &operations[i];
        raw_answer a =
            described_post(d, o->real,
                           is_oip(o)          ? oip
                           : is_of_encoder(o) ? strstr(o->path, "/v1/embed") ? input : inputs
                                              : body);
        see(&operations[i], &a, 503);
    }
    raw_close(&holder);
    daemon_stop(d);
    free(body);
    free(oip);
}

/* More sequences than an encoder computes in a millisecond. */
static char *encoder_work(void)
{
    enum { SEQUENCES = 20000 };
    static const char one[] = "[2,5,6,7,8,9,10,11,3],";
    char *text = malloc(SEQUENCES * sizeof one + 64), *at = text;

    assert_non_null(text);
    at += sprintf(at, "{\"timeout_ms\":1,\"input_ids\":[");
    for (int i = 0; i < SEQUENCES; i++)
        at += sprintf(at, "%s", one);
    (void)sprintf(at - 1, "]}");
    return text;
}

static void provoke_deadlines(void)
{
    enum { TOKENS = 20000, D = 16 };
    test_daemon *d = serve(COMMAND("--set", "compute.threads=1"));
    double *x = calloc((size_t)TOKENS * D, sizeof *x);
    char *heavy = inflight_heavy(65536, 1);
    test_body b;

    assert_non_null(x);
    body_init(&b, true);
    body_halves(&b, "inputs_embeds", x, DIMS(TOKENS, D));
    body_raw(&b, "timeout_ms", "1");
    operation *o = operation_of("/v1/models/{model}/attention");
    raw_answer a = described_post(d, o->real, body_text(&b));
    see(o, &a, 504);
    o = operation_of(INFLIGHT_SDPA);
    a = described_post(d, o->real, heavy);
    see(o, &a, 504);
    char *oip = oip_zeros("hidden_states", "\"parameters\":{\"timeout_ms\":1}", (size_t)TOKENS * D);
    for (size_t i = 0; i < num_operations; i++) {
        if (!is_oip(&operations[i]) || !lists(&operations[i], 504))
            continue;
        a = described_post(d, operations[i].real, oip);
        see(&operations[i], &a, 504);
    }
    free(oip);
    o = operation_of("/v1/models/{model}/encode");
    char *texts = encoder_work();
    a = described_post(d, o->real, texts);
    see(o, &a, 504);
    free(texts);
    body_free(&b);
    daemon_stop(d);
    free(heavy);
    free(x);
}

static bool says_ready(const operation *o)
{
    size_t n = strlen(o->path);
    return n > 6 && strcmp(o->path + n - 6, "/ready") == 0;
}

static void provoke_draining(void)
{
    test_daemon *d = serve(COMMAND("--set", "compute.threads=1"));
    char *heavy = inflight_heavy(20000, 0);
    static raw_conn working, asking[MAX_OPERATIONS];

    inflight_open(&working, d);
    for (size_t i = 0; i < num_operations; i++) {
        if (says_ready(&operations[i]))
            inflight_open(&asking[i], d);
    }
    assert_true(inflight_post(&working, INFLIGHT_SDPA, heavy, 0));
    usleep(50000);
    kill(daemon_pid(d), SIGTERM);
    usleep(50000);
    raw_answer a;
    for (size_t i = 0; i < num_operations; i++) {
        if (!says_ready(&operations[i]))
            continue;
        a = inflight_get(&asking[i], operations[i].real);
        see(&operations[i], &a, 503);
        raw_close(&asking[i]);
    }
    a = raw_read(&working, false, 60000);
    assert_int_equal(a.status, 200);
    raw_free(&a);
    raw_close(&working);
    assert_int_equal(daemon_wait(d, 60000, NULL), 0);
    free(heavy);
}

static bool loads(const operation *o)
{
    return strstr(o->path, "/repository/models/") != NULL;
}

static bool needs_weights(const operation *o)
{
    return strstr(o->path, "{model}") != NULL && !loads(o) && !is_of_encoder(o);
}

/* Two loads at once, one of which is refused. */
static void provoke_conflict(const test_daemon *d, operation *load, operation *other)
{
    raw_conn c[2];
    bool refused = false;

    inflight_open(&c[0], d);
    inflight_open(&c[1], d);
    for (int i = 0; !refused; i++) {
        assert_true(i < 100);
        assert_true(inflight_post(&c[0], load->real, "{}", 0));
        assert_true(inflight_post(&c[1], other->real, "{}", 0));
        for (size_t k = 0; k < 2; k++) {
            raw_answer a = raw_read(&c[k], false, 60000);
            refused = refused || (k == 1 && a.status == 409);
            see(k == 0 ? load : other, &a, a.status == 409 ? 409 : 200);
        }
    }
    raw_close(&c[0]);
    raw_close(&c[1]);
}

static void provoke_loads(void)
{
    static const st_native shape = {
        .d_model = 768, .num_heads = 12, .num_kv_heads = 12, .head_dim = 64};
    char *dir = st_temp_dir(), *model = st_path("%s/demo", dir);
    char *config = st_path("%s/config.json", model);
    char *argument = st_path("demo=%s", model);
    operation *load = operation_of("/v2/repository/models/{model}/load");
    operation *unload = operation_of("/v2/repository/models/{model}/unload");

    st_write_random(model, &shape, 1);
    test_daemon *d =
        daemon_start(COMMAND("serve", "--set", "admin.enabled=true", "--model", argument));
    provoke_conflict(d, load, load);
    provoke_conflict(d, load, unload);
    st_write_text(config, "{");
    raw_answer a = described_post(d, load->real, "{}");
    see(load, &a, 500);
    a = described_post(d, unload->real, "{}");
    see(unload, &a, 200);
    for (size_t i = 0; i < num_operations; i++) {
        operation *o = &operations[i];
        if (!needs_weights(o))
            continue;
        a = o->post ? described_post(d, o->real, "{}") : ask(d, o, o->real, "", NULL);
        see(o, &a, 503);
    }
    daemon_stop(d);
    d = daemon_start(COMMAND("serve"));
    a = described_post(d, load->real, "{}");
    see(load, &a, 403);
    a = described_post(d, unload->real, "{}");
    see(unload, &a, 403);
    /* This one has no encoder either. */
    a = described_post(d, "/embed", "{\"inputs\":\"a\"}");
    see(operation_of("/embed"), &a, 404);
    a = described_post(d, "/v1/embeddings", "{\"input\":\"a\",\"model\":\"minilm\"}");
    see(operation_of("/v1/embeddings"), &a, 404);
    daemon_stop(d);
    free(argument);
    free(config);
    free(model);
    st_remove_dir(dir);
}

/* --- both ways --- */

/* 500 is for what should not be; what takes no memory meets 503 in the moment between the last answer and the end. */
static bool cannot_be_provoked(const operation *o, int status)
{
    if (status == 500)
        return strstr(o->path, "/load") == NULL;
    if (status == 504) /* bodies that name no deadline have the daemon's */
        return strstr(o->path, "/embed") != NULL;
    return status == 503 && !says_ready(o) && !lists(o, 422) && !needs_weights(o);
}

static bool was_seen(const operation *o, int status)
{
    for (size_t i = 0; i < o->num_seen; i++) {
        if (o->seen[i] == status)
            return true;
    }
    return false;
}

static void every_listed_status_is_given_and_no_other(void **state)
{
    test_daemon *d = serve(COMMAND("--set", "admin.enabled=true"));
    (void)state;

    provoke_by_request(d); /* a status that is not listed fails right there */
    daemon_stop(d);
    provoke_keys();
    provoke_redirects();
    provoke_timeouts();
    provoke_busy();
    provoke_deadlines();
    provoke_draining();
    provoke_loads();
    for (size_t i = 0; i < num_operations; i++) {
        const operation *o = &operations[i];
        const char *status;
        json_t *response;
        json_object_foreach(
            json_object_get(described_operation(document_, o->path, o->method), "responses"),
            status, response)
        {
            int number = atoi(status);
            bool seen = was_seen(o, number);
            if (cannot_be_provoked(o, number) ? seen : !seen)
                fail_msg("%s %s lists %d, which was %s", o->method, o->path, number,
                         seen ? "said to be out of reach" : "never given");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_listed_status_is_given_and_no_other),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
