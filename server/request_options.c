#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "server/npy_body.h"
#include "server/pieces.h"
#include "server/png.h"
#include "server/request_private.h"
#include "server/safetensors_body.h"

/* Positions and offsets beyond this are refused, so that sums of a few never overflow. */
#define FAR ((int64_t)1 << 40)

static attn_status wrong_type(const char *pointer, const char *expected, const attn_json *found,
                              attn_error *err)
{
    return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: expected %s, found %s", pointer, expected,
                        attn_json_type_name(found));
}

attn_status srv_request_bool(const srv_request *r, srv_field_name field, const char *pointer,
                             bool *out, attn_error *err)
{
    const attn_json *v = srv_request_value(r, field);
    if (v != NULL && !attn_json_bool(v, out))
        return wrong_type(pointer, "true or false", v, err);
    return ATTN_OK;
}

static attn_status read_integer(const attn_json *v, const char *pointer, int64_t *out,
                                attn_error *err)
{
    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_integer(v, out))
        return wrong_type(pointer, "an integer", v, err);
    return ATTN_OK;
}

static attn_status read_float(const srv_request *r, srv_field_name field, const char *pointer,
                              float *out, attn_error *err)
{
    const attn_json *v = srv_request_value(r, field);
    double number = 0.0;

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_number(v, &number))
        return wrong_type(pointer, "a number", v, err);
    *out = (float)number;
    if (!isfinite(*out))
        return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: %g is not finite as float32", pointer,
                            number);
    return ATTN_OK;
}

attn_status srv_request_choice(const attn_json *v, const char *pointer, const char *const *names,
                               size_t n, size_t *out, attn_error *err)
{
    const char *text = NULL;

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_string(v, &text))
        return wrong_type(pointer, "a string", v, err);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return ATTN_OK;
        }
    }
    const char *near = attn_nearest(text, names, n);
    return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: \"%.60s\" is not known; %s \"%s\"", pointer,
                        text, near != NULL ? "did you mean" : "one choice is",
                        near != NULL ? near : names[0]);
}

/* Refuses members of an object that are not in the list. */
static attn_status check_members(const attn_json *object, const char *pointer,
                                 const char *const *names, size_t n, attn_error *err)
{
    void *it = NULL;
    const char *key = NULL;
    const attn_json *value = NULL;

    while (attn_json_next(object, &it, &key, &value)) {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, names[i]) == 0;
        if (!known) {
            const char *near = attn_nearest(key, names, n);
            attn_error at = {0};
            (void)attn_fail(&at, ATTN_EINVAL, "%s/%.60s", pointer, key);
            return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: unknown member \"%.60s\"%s%s%s",
                                pointer, key, near != NULL ? "; did you mean \"" : "",
                                near != NULL ? near : "", near != NULL ? "\"?" : "");
        }
    }
    return ATTN_OK;
}

static attn_status read_window(srv_request *r, attn_error *err)
{
    static const char *const names[] = {"left", "right"};
    const attn_json *v = srv_request_value(r, SRV_F_WINDOW);
    int64_t *sides[] = {&r->options.window.left, &r->options.window.right};

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_is_object(v))
        return wrong_type("/window", "an object {\"left\":L,\"right\":R}", v, err);
    ATTN_TRY(check_members(v, "/window", names, 2, err));
    for (size_t i = 0; i < 2; i++) {
        const char *pointer = i == 0 ? "/window/left" : "/window/right";
        *sides[i] = -1;
        ATTN_TRY(read_integer(attn_json_get(v, names[i]), pointer, sides[i], err));
        if (*sides[i] < -1)
            return attn_fail_at(err, ATTN_EINVAL, pointer,
                                "%s is %lld; -1 is no limit, less is not allowed", pointer,
                                (long long)*sides[i]);
        if (*sides[i] > FAR)
            *sides[i] = -1; /* beyond any sequence: no limit */
    }
    return ATTN_OK;
}

attn_status srv_request_indices(const attn_json *v, const char *pointer, size_t most, size_t **out,
                                size_t *n, attn_error *err)
{
    size_t length = attn_json_length(v);

    if (length > most + 1)
        return attn_fail_at(err, ATTN_ESHAPE, pointer, "%s names %zu; there are %zu", pointer,
                            length, most + 1);
    size_t *list = calloc(length + 1, sizeof *list);
    if (list == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu numbers", length);
    *out = list;
    *n = length;
    for (size_t i = 0; i < length; i++) {
        attn_error at = {0};
        int64_t index = 0;
        (void)attn_fail(&at, ATTN_EINVAL, "%s/%zu", pointer, i);
        if (!attn_json_integer(attn_json_at(v, i), &index))
            return wrong_type(at.text, "an integer", attn_json_at(v, i), err);
        if (index < 0 || (uint64_t)index > most)
            return attn_fail_at(err, ATTN_ESHAPE, at.text, "%s is %lld; 0 to %zu is due", at.text,
                                (long long)index, most);
        for (size_t k = 0; k < i; k++) {
            if (list[k] == (size_t)index)
                return attn_fail_at(err, ATTN_ESHAPE, at.text, "%s names %lld again", at.text,
                                    (long long)index);
        }
        list[i] = (size_t)index;
    }
    return ATTN_OK;
}

/* "heads": "all" or a list of different heads. */
static attn_status read_heads(srv_request *r, const attn_json *v, attn_error *err)
{
    static const char pointer[] = "/return_attentions/heads";
    const char *text = NULL;

    if (v == NULL || (attn_json_string(v, &text) && strcmp(text, "all") == 0))
        return ATTN_OK;
    if (!attn_json_is_array(v))
        return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: expected \"all\" or a list of integers",
                            pointer);
    if (attn_json_length(v) == 0)
        return attn_fail_at(err, ATTN_ESHAPE, pointer, "%s is empty; name at least one head",
                            pointer);
    attn_status rc = srv_request_indices(v, pointer, r->heads.num_heads - 1, &r->chosen_heads,
                                         &r->options.num_heads, err);
    r->options.heads = r->chosen_heads;
    return rc;
}

/* The one head that was asked for beside the body. */
static attn_status choose_head(srv_request *r, attn_error *err)
{
    if (r->only_head == SIZE_MAX)
        return ATTN_OK;
    if (r->only_head >= r->heads.num_heads)
        return attn_fail(err, ATTN_ESHAPE, "head is %zu; there are heads 0 to %zu", r->only_head,
                         r->heads.num_heads - 1);
    r->options.heads = &r->only_head;
    r->options.num_heads = 1;
    return ATTN_OK;
}

/* "queries" and "keys": [from, to), not yet held against the sizes. */
static attn_status read_range(const attn_json *v, const char *pointer, size_t *from, size_t *to,
                              attn_error *err)
{
    int64_t bound[2] = {0, 0};

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_is_array(v) || attn_json_length(v) != 2 ||
        !attn_json_integer(attn_json_at(v, 0), &bound[0]) ||
        !attn_json_integer(attn_json_at(v, 1), &bound[1]))
        return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: expected [from, to], two integers",
                            pointer);
    if (bound[0] < 0 || bound[1] <= bound[0])
        return attn_fail_at(err, ATTN_ESHAPE, pointer,
                            "%s is [%lld, %lld]; a half-open range with 0 <= "
                            "from < to is due",
                            pointer, (long long)bound[0], (long long)bound[1]);
    *from = (size_t)bound[0];
    *to = (size_t)bound[1];
    return ATTN_OK;
}

/* A number of cells from 1 on. */
static attn_status read_count(const attn_json *v, const char *pointer, size_t *out, attn_error *err)
{
    int64_t n = 0;

    if (v == NULL)
        return ATTN_OK;
    ATTN_TRY(read_integer(v, pointer, &n, err));
    if (n < 1)
        return attn_fail_at(err, ATTN_EINVAL, pointer, "%s is %lld; it must be positive", pointer,
                            (long long)n);
    *out = (size_t)n;
    return ATTN_OK;
}

/* Held against the sizes later. */
static attn_status read_top_k(srv_request *r, const attn_json *v, attn_error *err)
{
    return read_count(v, "/return_attentions/top_k", &r->options.top_k, err);
}

static attn_status read_pool(srv_request *r, const attn_json *v, attn_error *err)
{
    static const char *const members[] = {"size", "kind"};
    static const char *const kinds[] = {"max", "mean"};
    size_t kind = 0;

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_is_object(v))
        return wrong_type("/return_attentions/pool",
                          "an object {\"size\":P,\"kind\":\"max\"|\"mean\"}", v, err);
    ATTN_TRY(check_members(v, "/return_attentions/pool", members, 2, err));
    if (attn_json_get(v, "size") == NULL)
        return attn_fail_at(err, ATTN_EINVAL, "/return_attentions/pool/size",
                            "the field \"size\" of /return_attentions/pool is missing");
    ATTN_TRY(read_count(attn_json_get(v, "size"), "/return_attentions/pool/size", &r->pool, err));
    ATTN_TRY(srv_request_choice(attn_json_get(v, "kind"), "/return_attentions/pool/kind", kinds, 2,
                                &kind, err));
    r->options.pooling = kind == 0 ? ATTN_POOL_MAX : ATTN_POOL_MEAN;
    return ATTN_OK;
}

static attn_status read_attentions(srv_request *r, attn_error *err)
{
    static const char *const members[] = {"heads", "reduce_heads", "queries", "keys",   "stage",
                                          "top_k", "pool",         "dtype",   "layers", "rollout"};
    static const char *const reductions[] = {"none", "mean", "max"};
    static const char *const stages[] = {"probabilities", "scores", "softcapped", "masked"};
    static const char *const dtypes[] = {"float32", "float16", "uint8"};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_U8};
    const attn_json *v = srv_request_value(r, SRV_F_RETURN_ATTENTIONS);
    attn_options *o = &r->options;
    size_t reduce = 0, stage = 0, dtype = 0;

    o->num_heads = r->heads.num_heads;
    r->q_to = r->k_to = SIZE_MAX;
    bool only = v == NULL || attn_json_bool(v, &o->want_maps);
    o->want_maps = o->want_maps || r->format == SRV_AS_PNG; /* a picture is one of maps */
    if (only)
        return choose_head(r, err);
    if (!attn_json_is_object(v))
        return wrong_type("/return_attentions", "true, false or an object", v, err);
    o->want_maps = true;
    size_t known = sizeof members / sizeof *members - (r->encode != NULL ? 0 : 2);
    ATTN_TRY(check_members(v, "/return_attentions", members, known, err));
    ATTN_TRY(srv_request_choice(attn_json_get(v, "reduce_heads"), "/return_attentions/reduce_heads",
                                reductions, 3, &reduce, err));
    ATTN_TRY(srv_request_choice(attn_json_get(v, "stage"), "/return_attentions/stage", stages, 4,
                                &stage, err));
    ATTN_TRY(srv_request_choice(attn_json_get(v, "dtype"), "/return_attentions/dtype", dtypes, 3,
                                &dtype, err));
    ATTN_TRY(read_top_k(r, attn_json_get(v, "top_k"), err));
    ATTN_TRY(read_pool(r, attn_json_get(v, "pool"), err));
    if (o->top_k != 0 && r->pool != 0)
        return attn_fail_at(err, ATTN_ESHAPE, "/return_attentions/pool",
                            "top_k and pool exclude each other");
    if (dtype == 2 && stage != 0)
        return attn_fail_at(err, ATTN_ESHAPE, "/return_attentions/dtype",
                            "uint8 holds 0 to 1, which only probabilities are; the stage is %s",
                            stages[stage]);
    r->map_dtype = types[dtype];
    ATTN_TRY(read_range(attn_json_get(v, "queries"), "/return_attentions/queries", &o->q_from,
                        &r->q_to, err));
    ATTN_TRY(
        read_range(attn_json_get(v, "keys"), "/return_attentions/keys", &o->k_from, &r->k_to, err));
    o->reduce = (attn_reduce)reduce;
    o->stage = (attn_stage)stage;
    ATTN_TRY(read_heads(r, attn_json_get(v, "heads"), err));
    return choose_head(r, err);
}

static attn_status read_intermediates(srv_request *r, attn_error *err)
{
    static const char *const names[] = {"query", "key", "value", "logsumexp", "context"};
    const attn_json *v = srv_request_value(r, SRV_F_RETURN_INTERMEDIATES);

    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_is_array(v))
        return wrong_type("/return_intermediates", "a list of names", v, err);
    for (size_t i = 0; i < attn_json_length(v); i++) {
        attn_error at = {0};
        size_t which = 0;
        (void)attn_fail(&at, ATTN_EINVAL, "/return_intermediates/%zu", i);
        ATTN_TRY(
            srv_request_choice(attn_json_at(v, i), at.text, names, SRV_INTERMEDIATES, &which, err));
        if (!r->want[which])
            r->order[r->num_results++] = (srv_result_name)which;
        r->want[which] = true;
    }
    return ATTN_OK;
}

static void order_result(srv_request *r, srv_result_name which)
{
    r->want[which] = true;
    r->order[r->num_results++] = which;
}

/* Maps follow the outputs; in safetensors the widest types come first, so that all tensors are aligned. */
static void order_maps(srv_request *r, bool last)
{
    const attn_options *o = &r->options;
    bool narrow = r->map_dtype != ATTN_F32 && r->format == SRV_AS_SAFETENSORS;

    if (!o->want_maps)
        return;
    if (!last && o->top_k != 0) {
        order_result(r, SRV_TOP_KEYS);
        if (!narrow)
            order_result(r, SRV_MAPS);
        if (o->stage == ATTN_PROBABILITIES)
            order_result(r, SRV_TOP_REST);
    } else if (!last && !narrow) {
        order_result(r, SRV_MAPS);
    }
    if (last && narrow)
        order_result(r, SRV_MAPS);
}

attn_status srv_request_read_options(srv_request *r, attn_error *err)
{
    static const char *const encodings[] = {"float", "base64"};
    const attn_json *timeout = srv_request_value(r, SRV_F_TIMEOUT_MS);
    size_t encoding = 0;

    r->want[SRV_OUTPUTS] = true;
    ATTN_TRY(srv_request_bool(r, SRV_F_IS_CAUSAL, "/is_causal", &r->options.is_causal, err));
    ATTN_TRY(
        srv_request_bool(r, SRV_F_RETURN_OUTPUTS, "/return_outputs", &r->want[SRV_OUTPUTS], err));
    ATTN_TRY(read_window(r, err));
    ATTN_TRY(read_float(r, SRV_F_SCALE, "/scale", &r->options.scale, err));
    ATTN_TRY(read_float(r, SRV_F_SOFTCAP, "/softcap", &r->options.softcap, err));
    if (r->options.softcap < 0.0F)
        return attn_fail_at(err, ATTN_EINVAL, "/softcap",
                            "/softcap is %g; it must be 0 (off) or positive",
                            (double)r->options.softcap);
    ATTN_TRY(srv_request_choice(srv_request_value(r, SRV_F_ENCODING_FORMAT), "/encoding_format",
                                encodings, 2, &encoding, err));
    r->base64 = encoding == 1;
    ATTN_TRY(read_integer(timeout, "/timeout_ms", &r->timeout_ms, err));
    if (timeout != NULL && r->timeout_ms <= 0)
        return attn_fail_at(err, ATTN_EINVAL, "/timeout_ms",
                            "/timeout_ms is %lld; it must be positive", (long long)r->timeout_ms);
    ATTN_TRY(read_attentions(r, err));
    if (r->format == SRV_AS_PNG) { /* nothing else, and all of it at once */
        r->want[SRV_OUTPUTS] = false;
        r->whole = true;
        order_result(r, SRV_MAPS);
        return ATTN_OK;
    }
    if (r->want[SRV_OUTPUTS])
        r->order[r->num_results++] = SRV_OUTPUTS;
    order_maps(r, false);
    ATTN_TRY(read_intermediates(r, err));
    order_maps(r, true);
    return ATTN_OK;
}

/* A range that was not given is the whole; a given one must fit every sequence. */
static attn_status check_range(const char *pointer, const char *what, size_t to, size_t n,
                               attn_error *err)
{
    if (to != SIZE_MAX && to > n)
        return attn_fail_at(err, ATTN_ESHAPE, pointer, "%s ends at %zu; there are %zu %s", pointer,
                            to, n, what);
    return ATTN_OK;
}

static size_t range_length(size_t from, size_t to, size_t n)
{
    to = to < n ? to : n;
    return to > from ? to - from : 0;
}

/* What only JSON can say. */
static attn_status check_format(const srv_request *r, attn_error *err)
{
    static const char *const names[SRV_FORMATS] = {"application/json", SRV_SAFETENSORS_TYPE,
                                                   SRV_NPY_TYPE, SRV_PNG_TYPE};
    const char *name = names[r->format];

    if (r->format == SRV_AS_JSON || r->answer != NULL)
        return ATTN_OK;
    if (r->ragged)
        return attn_fail(err, ATTN_ESHAPE,
                         "%s holds no ragged batch: ask for application/json, or send a "
                         "rectangle with lengths",
                         name);
    if (r->format == SRV_AS_NPY && r->num_results != 1)
        return attn_fail(err, ATTN_ESHAPE, "%s holds one tensor, and %zu are asked for: ask for %s",
                         name, r->num_results, SRV_SAFETENSORS_TYPE);
    if (r->format == SRV_AS_PNG && r->options.top_k != 0)
        return attn_fail_at(err, ATTN_ESHAPE, "/return_attentions/top_k",
                            "%s shows whole or pooled maps, and top_k is none", name);
    return ATTN_OK;
}

attn_status srv_request_check_ranges(srv_request *r, attn_error *err)
{
    attn_options *o = &r->options;

    for (size_t b = 0; b < r->batch; b++) {
        const srv_sizes *z = &r->sizes[b];
        ATTN_TRY(check_range("/return_attentions/queries", "queries", r->q_to, z->t, err));
        ATTN_TRY(check_range("/return_attentions/keys", "keys", r->k_to, z->s, err));
    }
    for (size_t b = 0; b == 0 || b < r->batch; b++) { /* the first of none tells the shape */
        srv_sizes *z = &r->sizes[b];
        z->map_rows = range_length(o->q_from, r->q_to, z->t);
        z->map_columns = range_length(o->k_from, r->k_to, z->s);
        if (r->batch > 0 && o->top_k > z->map_columns && z->map_rows > 0)
            return attn_fail_at(err, ATTN_ESHAPE, "/return_attentions/top_k",
                                "/return_attentions/top_k is %zu; a row has %zu keys", o->top_k,
                                z->map_columns);
    }
    srv_pool_options(r, 0, o);
    return check_format(r, err);
}
