/* The OpenAPI document and the daemon say the same: routes, methods, fields, examples. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/described.h"
#include "tests/rawhttp.h"
#include "tests/schema.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/app.h"
#include "server/request.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

static test_daemon *encoder_; /* serves an encoder by the name of the examples */
static test_daemon *daemon_;
static json_t *document_;
static char *folder_;

static int start(void **state)
{
    (void)state;
    daemon_ = daemon_start(COMMAND("serve", "--set", "admin.enabled=true"));
    document_ = described_document(daemon_);
    folder_ = st_temp_dir();
    char *dir = st_path("%s/minilm", folder_), *model = st_path("minilm=%s", dir);
    tiny_encoder_write(dir, 1, 1, NULL);
    encoder_ = daemon_start(COMMAND("serve", "--model", model));
    free(model);
    free(dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    json_decref(document_);
    daemon_stop(daemon_);
    daemon_stop(encoder_);
    st_remove_dir(folder_);
    return 0;
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL)
        fail_msg("there is no text \"%s\" where one is due", key);
    return value;
}

static json_t *paths(void)
{
    return json_object_get(document_, "paths");
}

static bool is_method(const char *key)
{
    return strcmp(key, "parameters") != 0;
}

static void it_is_of_this_version(void **state)
{
    (void)state;
    assert_string_equal(text(json_object_get(document_, "info"), "version"), ATTND_VERSION);
    assert_int_equal(strncmp(text(document_, "openapi"), "3.1.", 4), 0);
}

/* --- routes --- */

static void every_route_is_described_and_nothing_else_is(void **state)
{
    static srv_route_table table;
    size_t described = 0;
    const char *path, *method;
    json_t *item, *operation;
    (void)state;

    srv_routes(&table, (srv_parts){.metrics = true, .docs = true, .ui = true});
    for (size_t i = 0; i < table.n; i++) {
        char small[8] = "";
        for (size_t k = 0; k < sizeof small - 1 && table.routes[i].method[k] != '\0'; k++)
            small[k] = (char)tolower(table.routes[i].method[k]);
        (void)described_operation(document_, table.routes[i].path, small);
    }
    json_object_foreach(paths(), path, item)
    {
        json_object_foreach(item, method, operation)
        {
            described += is_method(method);
        }
    }
    assert_int_equal(described, table.n); /* no route stands in the table twice */
}

static raw_answer ask(const char *method, const char *path)
{
    char request[512];
    (void)snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method,
                   path);
    return raw_once(daemon_url(daemon_), request);
}

static void every_path_allows_what_is_described(void **state)
{
    const char *path;
    json_t *item;
    (void)state;

    json_object_foreach(paths(), path, item)
    {
        bool get = json_object_get(item, "get") != NULL;
        bool post = json_object_get(item, "post") != NULL;
        const char *allow = get && post ? "GET, HEAD, OPTIONS, POST"
                            : get       ? "GET, HEAD, OPTIONS"
                                        : "OPTIONS, POST";
        static const char *const others[] = {"OPTIONS", "DELETE", "PUT", "PATCH"};
        char real[256];
        described_path(document_, path, NULL, real, sizeof real);
        for (size_t i = 0; i < 4; i++) {
            raw_answer a = ask(others[i], real);
            assert_int_equal(a.status, i == 0 ? 204 : 405);
            assert_string_equal(raw_header(&a, "Allow"), allow);
            raw_free(&a);
        }
    }
}

/* --- schemas --- */

static const json_t *schema_named(const char *name)
{
    const json_t *schemas = json_object_get(json_object_get(document_, "components"), "schemas");
    const json_t *schema = json_object_get(schemas, name);
    if (schema == NULL)
        fail_msg("there is no schema %s", name);
    return schema;
}

static void every_field_is_described_and_nothing_else_is(void **state)
{
    static const struct {
        srv_request_kind kind;
        const char *schema;
    } bodies[] = {{SRV_ATTENTION, "AttentionRequest"},
                  {SRV_SDPA, "ScaledDotProductRequest"},
                  {SRV_ESTIMATE, "EstimateRequest"}};
    (void)state;

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        const json_t *properties = json_object_get(schema_named(bodies[i].schema), "properties");
        attn_budget budget;
        srv_request *r = NULL;
        size_t fields = 0;
        attn_budget_init(&budget, 1 << 20);
        assert_int_equal(srv_request_new(&r, bodies[i].kind, NULL, &budget, NULL), ATTN_OK);
        for (int f = 0; f < SRV_FIELDS; f++) {
            if (r->place[f] < 0)
                continue;
            const char *name = r->fields[r->place[f]].name;
            fields++;
            if (json_object_get(properties, name) == NULL)
                fail_msg("%s has no %s", bodies[i].schema, name);
        }
        srv_request_free(r);
        assert_int_equal(json_object_size(properties), fields);
    }
}

/* Walks the whole document; references must lead somewhere, and what stands beside a schema as its
 * default or example must fit it. */
static void walk(const json_t *node, unsigned depth, size_t *references, size_t *values)
{
    char why[512];
    const char *key;
    json_t *member, *mutable = (json_t *)(uintptr_t)node;
    size_t i;

    assert_true(depth < 64);
    if (json_is_array(node)) {
        json_array_foreach(node, i, member)
        {
            walk(member, depth + 1, references, values);
        }
        return;
    }
    if (json_object_get(node, "$ref") != NULL) {
        (void)schema_resolve(document_, node);
        (*references)++;
    }
    bool schema = json_object_get(node, "type") != NULL || json_object_get(node, "anyOf") != NULL ||
                  json_object_get(node, "enum") != NULL;
    json_t *fallback = json_object_get(node, "default"),
           *samples = json_object_get(node, "examples");
    if (schema && fallback != NULL) {
        (*values)++;
        if (!schema_holds(document_, node, fallback, why, sizeof why))
            fail_msg("a default: %s", why);
    }
    if (schema && json_is_array(samples)) {
        json_array_foreach(samples, i, member)
        {
            (*values)++;
            if (!schema_holds(document_, node, member, why, sizeof why))
                fail_msg("an example: %s", why);
        }
    }
    json_object_foreach(mutable, key, member)
    {
        if (strcmp(key, "value") != 0 && strcmp(key, "default") != 0)
            walk(member, depth + 1, references, values);
    }
}

static void references_lead_somewhere_and_values_fit_their_schemas(void **state)
{
    size_t references = 0, values = 0;
    (void)state;
    walk(document_, 0, &references, &values);
    assert_true(references > 100);
    assert_true(values > 10);
}

/* --- examples --- */

static bool is_size(const char *key)
{
    size_t n = strlen(key);
    return (n > 6 && strcmp(key + n - 6, "_bytes") == 0) || strcmp(key, "micro_batches") == 0 ||
           strcmp(key, "parts") == 0;
}

/* Holds an answer against the documented one. Sizes depend on threads and budget, and kernels may
 * round differently. */
static void assert_like(const char *where, const json_t *got, const json_t *want)
{
    size_t i;
    const char *key;
    json_t *member, *mutable = (json_t *)(uintptr_t)want;

    if (json_is_number(want) && json_is_number(got)) {
        double x = json_number_value(got), y = json_number_value(want);
        if (fabs(x - y) > 1e-5 * fmax(1, fabs(y)))
            fail_msg("%s: %g, documented is %g", where, x, y);
        return;
    }
    if (json_typeof(got) != json_typeof(want))
        fail_msg("%s: of another type than documented", where);
    if (json_is_array(want)) {
        assert_int_equal(json_array_size(got), json_array_size(want));
        json_array_foreach(want, i, member)
        {
            assert_like(where, json_array_get(got, i), member);
        }
    } else if (json_is_object(want)) {
        assert_int_equal(json_object_size(got), json_object_size(want));
        json_object_foreach(mutable, key, member)
        {
            const json_t *its = json_object_get(got, key);
            if (its == NULL)
                fail_msg("%s: no %s", where, key);
            if (!is_size(key))
                assert_like(key, its, member);
        }
    } else if (!json_equal(got, want)) {
        fail_msg("%s: other than documented", where);
    }
}

static const json_t *examples_of(const json_t *node)
{
    return json_object_get(json_object_get(json_object_get(node, "content"), "application/json"),
                           "examples");
}

static const json_t *response_of(const json_t *operation)
{
    const json_t *its = json_object_get(json_object_get(operation, "responses"), "200");
    return its != NULL ? schema_resolve(document_, its) : NULL;
}

static const char *text_of_tag(const json_t *operation)
{
    const char *tag = json_string_value(json_array_get(json_object_get(operation, "tags"), 0));
    assert_non_null(tag);
    return tag;
}

static void every_example_request_gives_its_example_answer(void **state)
{
    const char *path, *name;
    json_t *item, *example;
    size_t sent = 0;
    (void)state;

    json_object_foreach(paths(), path, item)
    {
        const json_t *post = json_object_get(item, "post");
        char real[256];
        if (post == NULL)
            continue;
        const json_t *body = schema_resolve(document_, json_object_get(post, "requestBody"));
        const json_t *answers = examples_of(response_of(post));
        json_t *requests = (json_t *)(uintptr_t)examples_of(body);
        assert_true(json_object_size(requests) > 0);
        assert_int_equal(json_object_size(requests), json_object_size(answers));
        described_path(document_, path, NULL, real, sizeof real);
        json_object_foreach(requests, name, example)
        {
            char *json = json_dumps(json_object_get(example, "value"), JSON_COMPACT);
            bool encodes = strcmp(text_of_tag(post), "encoders") == 0;
            raw_answer a = described_post(encodes ? encoder_ : daemon_, real, json);
            if (a.status != 200)
                fail_msg("%s of %s: %d %s", name, path, a.status, a.body);
            described_holds(document_, path, "post", &a);
            json_t *got = answer_parse(a.body, a.body_bytes);
            const json_t *documented = json_object_get(answers, name);
            assert_non_null(documented);
            assert_like(name, got, json_object_get(documented, "value"));
            json_decref(got);
            raw_free(&a);
            free(json);
            sent++;
        }
    }
    assert_true(sent >= 6);
}

static void every_get_gives_its_example_answer(void **state)
{
    const char *path, *name;
    json_t *item, *example;
    size_t seen = 0;
    (void)state;

    json_object_foreach(paths(), path, item)
    {
        const json_t *get = json_object_get(item, "get");
        json_t *answers = (json_t *)(uintptr_t)examples_of(response_of(get));
        char real[256];
        described_path(document_, path, NULL, real, sizeof real);
        json_object_foreach(answers, name, example)
        {
            raw_answer a = ask("GET", real);
            json_t *got = answer_parse(a.body, a.body_bytes);
            assert_like(path, got, json_object_get(example, "value"));
            json_decref(got);
            raw_free(&a);
            seen++;
        }
    }
    assert_int_equal(seen, 15);
}

/* A model's examples are requests of the documented form. */
static void the_demo_s_examples_fit_the_schema(void **state)
{
    size_t i;
    json_t *name;
    char path[256];
    (void)state;

    raw_answer list = ask("GET", "/v1/models/demo/examples");
    json_t *names = answer_parse(list.body, list.body_bytes);
    json_array_foreach(json_object_get(names, "examples"), i, name)
    {
        (void)snprintf(path, sizeof path, "/v1/models/demo/examples/%s", json_string_value(name));
        raw_answer a = ask("GET", path);
        described_holds(document_, "/v1/models/{model}/examples/{name}", "get", &a);
        raw_free(&a);
    }
    assert_true(i > 0);
    json_decref(names);
    raw_free(&list);
}

/* An example problem says the status that it stands below. */
static void every_example_problem_stands_below_its_status(void **state)
{
    const char *path, *method, *status, *name;
    json_t *item, *operation, *r, *example;
    char why[512];
    size_t seen = 0;
    (void)state;

    json_object_foreach(paths(), path, item)
    {
        json_object_foreach(item, method, operation)
        {
            if (!is_method(method))
                continue;
            json_object_foreach(json_object_get(operation, "responses"), status, r)
            {
                const json_t *response = schema_resolve(document_, r);
                const json_t *media = json_object_get(json_object_get(response, "content"),
                                                      "application/problem+json");
                json_object_foreach(json_object_get(media, "examples"), name, example)
                {
                    const json_t *value = json_object_get(example, "value");
                    if (!schema_holds(document_, json_object_get(media, "schema"), value, why,
                                      sizeof why))
                        fail_msg("%s: %s", name, why);
                    assert_int_equal(json_integer_value(json_object_get(value, "status")),
                                     atoi(status));
                    seen++;
                }
            }
        }
    }
    assert_true(seen > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_of_this_version),
        cmocka_unit_test(every_route_is_described_and_nothing_else_is),
        cmocka_unit_test(every_path_allows_what_is_described),
        cmocka_unit_test(every_field_is_described_and_nothing_else_is),
        cmocka_unit_test(references_lead_somewhere_and_values_fit_their_schemas),
        cmocka_unit_test(every_example_request_gives_its_example_answer),
        cmocka_unit_test(every_get_gives_its_example_answer),
        cmocka_unit_test(the_demo_s_examples_fit_the_schema),
        cmocka_unit_test(every_example_problem_stands_below_its_status),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
