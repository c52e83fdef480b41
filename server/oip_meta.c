/* What the Open Inference Protocol tells of the server and its models. */
#include <string.h>

#include "server/app.h"
#include "server/oip_private.h"
/* --- names ------------------------------------------------------------------------------------- */

const srv_oip_input srv_oip_inputs[SRV_OIP_INPUTS] = {
    {"hidden_states", "inputs_embeds", SRV_FLOATS, 3, 3, "FP32", "BTD", false},
    {"kv_states", "encoder_hidden_states", SRV_FLOATS, 3, 3, "FP32", "BSK", true},
    {"lengths", "lengths", SRV_INTS, 1, 1, "INT64", "B", true},
    {"attend_mask", "attention_mask", SRV_MASK, 2, 4, "BOOL", "BHTS", true},
    {"attention_bias", "attention_bias", SRV_BIAS, 1, 4, "FP32", "BHTS", true},
    {"position_ids", "position_ids", SRV_INTS, 2, 2, "INT64", "BT", true}};

const char *const srv_oip_outputs[SRV_OIP_OUTPUTS] = {"output", "attention", "lse"};
const srv_result_name srv_oip_results[SRV_OIP_OUTPUTS] = {SRV_OUTPUTS, SRV_MAPS, SRV_LOGSUMEXP};

bool srv_oip_datatype(const char *name, attn_dtype *out)
{
    static const struct {
        const char *name;
        attn_dtype dtype;
    } types[] = {{"BOOL", ATTN_BOOL},  {"UINT8", ATTN_U8},   {"UINT16", ATTN_U16},
                 {"UINT32", ATTN_U32}, {"UINT64", ATTN_U64}, {"INT8", ATTN_I8},
                 {"INT16", ATTN_I16},  {"INT32", ATTN_I32},  {"INT64", ATTN_I64},
                 {"FP16", ATTN_F16},   {"BF16", ATTN_BF16},  {"FP32", ATTN_F32},
                 {"FP64", ATTN_F64},   {"BYTES", ATTN_OTHER}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].dtype;
            return true;
        }
    }
    return false;
}

/* --- the server -------------------------------------------------------------------------------- */

static void reply_text(srv_exchange *x, const char *json)
{
    srv_http_reply_text(x, 200, "application/json", json, strlen(json));
}

#define SERVER                                                                                     \
    "{\"name\":\"attnd\",\"version\":\"" ATTND_VERSION "\",\"extensions\":["                       \
    "\"binary_tensor_data\",\"parameters\",\"model_configuration\",\"statistics\""

static void get_server(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);

    reply_text(x, app->admin ? SERVER ",\"model_repository\"]}" : SERVER "]}");
}

static void get_live(srv_exchange *x)
{
    reply_text(x, "{\"live\":true}");
}

static void get_ready(srv_exchange *x)
{
    attn_error err = {0};
    const char *code = srv_app_not_ready(x, &err);

    if (code == NULL)
        reply_text(x, "{\"ready\":true}");
    else
        srv_http_reply_problem(x, &err, code);
}

static void write_name(srv_json_writer *w, const srv_served *served)
{
    srv_json_writer_string(w, attn_model_name(served->model));
}

static void get_models(srv_exchange *x)
{
    srv_app_reply_models(x, "models", write_name);
}

/* --- a model ----------------------------------------------------------------------------------- */

const srv_served *srv_oip_acquire(srv_exchange *x)
{
    const char *version = srv_http_param(x, "version");
    const srv_served *served = srv_app_acquire(x);
    attn_error err = {0};

    if (served == NULL || version == NULL || strcmp(version, SRV_OIP_VERSION) == 0)
        return served;
    (void)attn_fail(&err, ATTN_ENOTFOUND,
                    "model \"%s\" has no version \"%.40s\", only " SRV_OIP_VERSION,
                    attn_model_name(served->model), version);
    srv_app_release(x, served);
    srv_http_reply_problem(x, &err, "version_not_found");
    return NULL;
}

/* A size that a letter stands for: of the layers when it is the same in all, else -1, as B, T and S are. */
static long long size_of(const attn_model *m, char letter)
{
    long long size = -1;

    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
        long long its = letter == 'D'   ? (long long)s->d_model
                        : letter == 'K' ? (long long)s->d_kv
                        : letter == 'O' ? (long long)s->d_out
                        : letter == 'h' ? (long long)s->num_heads
                                        : -1;
        if (i > 0 && its != size)
            return -1;
        size = its;
    }
    return size;
}

/* Both documents list the same tensors; the configuration in protobuf's words. */
typedef struct {
    srv_json_writer *w;
    const attn_model *m;
    bool config;
} lister;

static void list_tensor(lister *l, bool first, const char *name, const char *datatype,
                        const char *shape, bool optional)
{
    srv_json_writer_format(l->w,
                           l->config ? "%s{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"dims\":["
                                     : "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[",
                           first ? "" : ",", name, datatype);
    for (const char *p = shape; *p != '\0'; p++)
        srv_json_writer_format(l->w, p == shape ? "%lld" : ",%lld", size_of(l->m, *p));
    srv_json_writer_format(l->w, optional ? "],\"optional\":true}" : "]}");
}

/* Cross attention cannot do without the other side's states. */
static bool needs_context(const attn_model *m)
{
    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
        if (!s->cross && s->d_kv == s->d_model)
            return false;
    }
    return true;
}

static void list_tensors(lister *l)
{
    static const char *const shapes[SRV_OIP_OUTPUTS] = {"BTO", "BhTS", "BhT"};

    srv_json_writer_format(l->w, l->config ? "\"input\":[" : "\"inputs\":[");
    for (size_t i = 0; i < SRV_OIP_INPUTS; i++) {
        const srv_oip_input *in = &srv_oip_inputs[i];
        bool context = strcmp(in->name, "kv_states") == 0;
        list_tensor(l, i == 0, in->name, in->datatype, in->shape,
                    in->optional && !(context && needs_context(l->m)));
    }
    srv_json_writer_format(l->w, l->config ? "],\"output\":[" : "],\"outputs\":[");
    for (size_t i = 0; i < SRV_OIP_OUTPUTS; i++)
        list_tensor(l, i == 0, srv_oip_outputs[i], "FP32", shapes[i], false);
    srv_json_writer_raw(l->w, "]", 1);
}

static void describe(srv_exchange *x, bool config)
{
    const srv_served *served = srv_oip_acquire(x);

    if (served == NULL)
        return;
    lister l = {srv_json_writer_new(), served->model, config};
    if (l.w != NULL) {
        srv_json_writer_format(l.w, "{\"name\":");
        srv_json_writer_string(l.w, attn_model_name(served->model));
        srv_json_writer_format(l.w,
                               config ? ",\"platform\":\"attnd_%s\",\"backend\":\"attnd\","
                                        "\"max_batch_size\":0,"
                                      : ",\"versions\":[\"" SRV_OIP_VERSION
                                        "\"],\"platform\":\"attnd_%s\",",
                               attn_model_family(served->model));
        list_tensors(&l);
        if (config)
            srv_json_writer_format(l.w, ",\"parameters\":{\"layers\":{\"string_value\":\"%zu\"}}",
                                   attn_model_layer_count(served->model));
        srv_json_writer_raw(l.w, "}", 1);
    }
    srv_app_release(x, served);
    srv_app_reply_json(x, l.w);
}

static void get_metadata(srv_exchange *x)
{
    describe(x, false);
}

static void get_config(srv_exchange *x)
{
    describe(x, true);
}

static void get_model_ready(srv_exchange *x)
{
    const srv_served *served = srv_oip_acquire(x);

    attn_error err = {0};

    if (served == NULL)
        return;
    if (srv_http_draining(x)) { /* of the other models it does not tell */
        srv_app_release(x, served);
        srv_http_reply_problem(x, &err, srv_app_not_ready(x, &err));
        return;
    }
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL) {
        srv_json_writer_format(w, "{\"name\":");
        srv_json_writer_string(w, attn_model_name(served->model));
        srv_json_writer_format(w, ",\"ready\":true}");
    }
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

/* --- statistics -------------------------------------------------------------------------------- */

static void write_stats(srv_json_writer *w, const srv_served *served)
{
    srv_model_stats_write(served->stats, attn_model_name(served->model), SRV_OIP_VERSION,
                          attn_model_weights_bytes(served->model), w);
}

static void get_stats(srv_exchange *x)
{
    const srv_served *served = srv_oip_acquire(x);

    if (served == NULL)
        return;
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL) {
        srv_json_writer_format(w, "{\"model_stats\":[");
        write_stats(w, served);
        srv_json_writer_raw(w, "]}", 2);
    }
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

static void get_all_stats(srv_exchange *x)
{
    srv_app_reply_models(x, "model_stats", write_stats);
}

/* --- the table --------------------------------------------------------------------------------- */

#define GET(path_, finish_)                                                                        \
    {                                                                                              \
        .method = "GET", .path = (path_), .finish = (finish_)                                      \
    }
#define OF_MODEL(rest_, finish_)                                                                   \
    GET("/v2/models/{model}" rest_, finish_),                                                      \
        GET("/v2/models/{model}/versions/{version}" rest_, finish_)

const srv_route srv_oip_routes[] = {
    GET("/v2", get_server),
    {.method = "GET", .path = "/v2/health/live", .quiet = true, .open = true, .finish = get_live},
    {.method = "GET", .path = "/v2/health/ready", .quiet = true, .open = true, .finish = get_ready},
    GET("/v2/models", get_models),
    GET("/v2/models/stats", get_all_stats), /* no model may hide it: in front of them */
    OF_MODEL("", get_metadata),
    OF_MODEL("/ready", get_model_ready),
    OF_MODEL("/config", get_config),
    OF_MODEL("/stats", get_stats),
};
const size_t srv_num_oip_routes = sizeof srv_oip_routes / sizeof *srv_oip_routes;
