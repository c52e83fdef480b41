/* The model repository extension of the Open Inference Protocol: which models there are, loading, unloading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/app.h"
#include "server/oip_private.h"

/* --- bodies: small ones, and most clients send {} or nothing at all ------------------------------ */

enum { BODY_BYTES = 4096 };

typedef struct {
    size_t n;
    char text[BODY_BYTES];
} small_body;

static void begin_body(srv_exchange *x)
{
    attn_error err = {0};
    small_body *b = calloc(1, sizeof *b);

    srv_http_set_user(x, b);
    if (b != NULL)
        return;
    (void)attn_fail(&err, ATTN_ENOMEM, "no memory for a request");
    srv_http_reply_problem(x, &err, NULL);
}

static attn_status take_body(srv_exchange *x, const char *bytes, size_t n, attn_error *err)
{
    small_body *b = srv_http_user(x);

    if (n > sizeof b->text - b->n)
        return attn_fail(err, ATTN_EINVAL, "the body has more than %d bytes", BODY_BYTES);
    memcpy(b->text + b->n, bytes, n);
    b->n += n;
    return ATTN_OK;
}

static void end_body(srv_exchange *x)
{
    free(srv_http_user(x));
}

/* *tree = the body, an object; NULL = there is none. */
static attn_status parse_body(srv_exchange *x, attn_json **tree, attn_error *err)
{
    const small_body *b = srv_http_user(x);

    *tree = NULL;
    if (b->n == 0)
        return ATTN_OK;
    ATTN_TRY(srv_oip_parse_json(tree, b->text, b->n, "the body", err));
    if (attn_json_is_object(*tree))
        return ATTN_OK;
    attn_json_free(*tree);
    *tree = NULL;
    return attn_fail(err, ATTN_EINVAL, "the body is an object");
}

/* --- the index ----------------------------------------------------------------------------------- */

static void write_entry(srv_json_writer *w, const char *name, srv_model_state state,
                        const attn_error *last)
{
    static const char *const states[] = {[SRV_MODEL_READY] = "READY",
                                         [SRV_MODEL_LOADING] = "LOADING",
                                         [SRV_MODEL_UNLOADED] = "UNAVAILABLE"};
    const char *reason = last->code != ATTN_OK         ? last->text
                         : state == SRV_MODEL_UNLOADED ? "unloaded"
                                                       : "";

    srv_json_writer_format(w, "{\"name\":");
    srv_json_writer_string(w, name);
    srv_json_writer_format(
        w, ",\"version\":\"" SRV_OIP_VERSION "\",\"state\":\"%s\",\"reason\":", states[state]);
    srv_json_writer_string(w, reason);
    srv_json_writer_raw(w, "}", 1);
}

/* {"ready":true} asks for those models alone that are ready. */
static attn_status read_index(srv_exchange *x, bool *ready, attn_error *err)
{
    attn_json *tree = NULL;

    *ready = false;
    ATTN_TRY(parse_body(x, &tree, err));
    const attn_json *its = tree != NULL ? attn_json_get(tree, "ready") : NULL;
    bool good = its == NULL || attn_json_bool(its, ready);
    attn_json_free(tree);
    return good ? ATTN_OK : attn_fail_at(err, ATTN_EINVAL, "/ready", "\"ready\" is true or false");
}

static void post_index(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};
    bool ready = false, first = true;

    if (read_index(x, &ready, &err) != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL) {
        srv_json_writer_raw(w, "[", 1);
        for (size_t i = 0; i < srv_models_count(app->models); i++) {
            attn_error last = {0};
            srv_model_state state = srv_models_state(app->models, i, &last);
            if (ready && state != SRV_MODEL_READY)
                continue;
            if (!first)
                srv_json_writer_raw(w, ",", 1);
            first = false;
            write_entry(w, srv_models_name(app->models, i), state, &last);
        }
        srv_json_writer_raw(w, "]", 1);
    }
    srv_app_reply_json(x, w);
}

/* --- loading and unloading ------------------------------------------------------------------------ */

/* A page of another site can send this without being allowed to read the answer; its browser says so. */
static bool is_cross_site(const srv_exchange *x)
{
    const char *site = srv_http_header(x, "Sec-Fetch-Site");

    return site != NULL && (strcmp(site, "cross-site") == 0 || strcmp(site, "same-site") == 0);
}

static void begin_change(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};
    size_t i = 0;

    if (!app->admin) {
        (void)attn_fail(&err, ATTN_EINVAL,
                        "models are not loaded or unloaded over HTTP here (admin.enabled)");
        srv_http_reply_refusal(x, 403, "admin_disabled", &err);
    } else if (is_cross_site(x)) {
        (void)attn_fail(&err, ATTN_EINVAL, "pages of other sites may not load or unload models");
        srv_http_reply_refusal(x, 403, "cross_site", &err);
    } else if (srv_app_find(x, &i)) {
        begin_body(x);
    }
}

/* The body's "parameters" may hold those of the list, NULL at its end; they change nothing here. */
static attn_status check_parameters(srv_exchange *x, const char *const *known, attn_error *err)
{
    attn_json *tree = NULL;
    attn_status rc = ATTN_OK;
    char pointer[sizeof err->pointer];
    const char *name = NULL;
    const attn_json *value = NULL;

    ATTN_TRY(parse_body(x, &tree, err));
    const attn_json *parameters = tree != NULL ? attn_json_get(tree, "parameters") : NULL;
    if (parameters != NULL && !attn_json_is_object(parameters))
        rc = attn_fail_at(err, ATTN_EINVAL, "/parameters", "\"parameters\" is an object");
    for (void *it = NULL;
         rc == ATTN_OK && parameters != NULL && attn_json_next(parameters, &it, &name, &value);) {
        const char *const *k = known;
        while (*k != NULL && strcmp(*k, name) != 0)
            k++;
        if (*k != NULL)
            continue;
        (void)snprintf(pointer, sizeof pointer, "/parameters/%.64s", name);
        rc = attn_fail_at(err, ATTN_EINVAL, pointer,
                          "the parameter \"%.64s\" is not known here: a model is loaded as it is "
                          "configured",
                          name);
    }
    attn_json_free(tree);
    return rc;
}

static void reply_state(srv_exchange *x, size_t i)
{
    const srv_app *app = srv_http_app(x);
    attn_error last = {0};
    srv_model_state state = srv_models_state(app->models, i, &last);
    srv_json_writer *w = srv_json_writer_new();

    if (w != NULL)
        write_entry(w, srv_models_name(app->models, i), state, &last);
    srv_app_reply_json(x, w);
}

/* On the thread of the models, while the exchange is suspended. */
static void loaded(void *arg, attn_status rc, const attn_error *why)
{
    srv_exchange *x = arg;
    const srv_app *app = srv_http_app(x);
    const char *name = srv_http_param(x, "model");
    size_t i = srv_models_find(app->models, name);
    attn_error err = {0};

    if (rc == ATTN_OK) {
        reply_state(x, i);
    } else if (rc == ATTN_ECANCELED) {
        (void)attn_fail(&err, ATTN_ECANCELED, "the daemon is shutting down");
        srv_http_reply_problem(x, &err, NULL);
    } else {
        bool serves = srv_models_state(app->models, i, NULL) == SRV_MODEL_READY;
        (void)attn_fail(&err, ATTN_EINTERNAL, "model \"%s\" was not loaded%s: %s", name,
                        serves ? ", its old weights stay" : "", why->text);
        srv_http_reply_refusal(x, 500, "load_failed", &err);
    }
    srv_http_resume(x);
}

static void post_load(srv_exchange *x)
{
    static const char *const known[] = {NULL};
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};

    if (check_parameters(x, known, &err) != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    srv_http_suspend(x); /* before the load can end */
    size_t i = srv_models_find(app->models, srv_http_param(x, "model"));
    if (srv_models_load(app->models, i, loaded, x, &err) != ATTN_OK) {
        srv_http_reply_refusal(x, 409, "load_under_way", &err);
        srv_http_resume(x);
    }
}

static void post_unload(srv_exchange *x)
{
    static const char *const known[] = {"unload_dependents", NULL}; /* there are none */
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};

    if (check_parameters(x, known, &err) != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    size_t i = srv_models_find(app->models, srv_http_param(x, "model"));
    if (srv_models_unload(app->models, i, &err) == ATTN_OK)
        reply_state(x, i);
    else
        srv_http_reply_refusal(x, 409, "load_under_way", &err);
}

/* --- the table ----------------------------------------------------------------------------------- */

static const char *const json_alone[] = {"application/json"};
static const srv_media small_media = {NULL,       0, 1u << SRV_IDENTITY,
                                      json_alone, 1, 1u << SRV_IDENTITY};

#define POST(path_, begin_, finish_)                                                               \
    {                                                                                              \
        .method = "POST", .path = (path_), .body = true, .media = &small_media, .begin = (begin_), \
        .data = take_body, .finish = (finish_), .end = end_body                                    \
    }

const srv_route srv_repository_routes[] = {
    POST("/v2/repository/index", begin_body, post_index),
    POST("/v2/repository/models/{model}/load", begin_change, post_load),
    POST("/v2/repository/models/{model}/unload", begin_change, post_unload),
};
const size_t srv_num_repository_routes =
    sizeof srv_repository_routes / sizeof *srv_repository_routes;
