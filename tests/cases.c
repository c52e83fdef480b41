#include "tests/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

double case_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

size_t case_size(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

json_t *case_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static bool all_finite(const double *x, size_t n)
{
    for (size_t i = 0; x != NULL && i < n; i++) {
        if (!isfinite(x[i]))
            return false;
    }
    return true;
}

static double *doubles_of(const st_file *f, const char *name)
{
    return st_doubles(st_find(f, name));
}

/* --- the oracle's answer for a batch ------------------------------------------------------- */

static double *room(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

ref_batch *ref_batch_new(size_t batch, const ref_attention *shape)
{
    ref_batch *o = calloc(1, sizeof *o);
    assert_non_null(o);
    size_t T = o->tokens = shape->tokens, S = o->keys = shape->past + shape->new_keys;
    size_t H = o->heads = shape->heads, G = o->kv_heads = shape->kv_heads;
    size_t d = o->head_dim = shape->head_dim, e = o->v_head_dim = shape->v_head_dim;
    o->batch = batch;
    o->d_out = shape->wq != NULL ? shape->d_out : H * e;
    o->outputs = room(batch * T * o->d_out);
    o->maps = room(batch * H * T * S);
    o->scores = room(batch * H * T * S);
    o->softcapped = room(batch * H * T * S);
    o->masked = room(batch * H * T * S);
    o->joined = room(batch * T * H * e);
    o->logsumexp = room(batch * H * T);
    o->query = room(batch * H * T * d);
    o->key = room(batch * G * S * d);
    o->value = room(batch * G * S * e);
    o->allowed = calloc(batch * H * T * S + 1, 1);
    assert_non_null(o->allowed);
    return o;
}

void ref_batch_run(ref_batch *o, size_t b, ref_attention *r)
{
    size_t T = o->tokens, S = o->keys, H = o->heads, cells = b * H * T * S;
    r->outputs = o->outputs + b * T * o->d_out;
    r->maps = o->maps + cells;
    r->scores = o->scores + cells;
    r->softcapped = o->softcapped + cells;
    r->masked = o->masked + cells;
    r->allowed = o->allowed + cells;
    r->joined = o->joined + b * T * H * o->v_head_dim;
    r->logsumexp = o->logsumexp + b * H * T;
    r->query_out = o->query + b * H * T * o->head_dim;
    r->key_out = o->key + b * o->kv_heads * S * o->head_dim;
    r->value_out = o->value + b * o->kv_heads * S * o->v_head_dim;
    ref_attention_run(r);
}

void ref_batch_free(ref_batch *o)
{
    if (o == NULL)
        return;
    double *all[] = {o->outputs, o->maps,      o->scores, o->softcapped, o->masked,
                     o->joined,  o->logsumexp, o->query,  o->key,        o->value};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(o->allowed);
    free(o);
}

/* --- shared/vectors/mha -------------------------------------------------------------------- */

static const char *const WEIGHT[8] = {
    "layers.0.wq.weight", "layers.0.wk.weight", "layers.0.wv.weight", "layers.0.wo.weight",
    "layers.0.wq.bias",   "layers.0.wk.bias",   "layers.0.wv.bias",   "layers.0.wo.bias"};

static void mha_open(mha_case *c, const char *folder, const char *name)
{
    memset(c, 0, sizeof *c);
    c->name = st_path("%s", name);
    char *json = st_path("%s/%s/case.json", folder, name);
    char *vectors = st_path("%s/%s/vectors.safetensors", folder, name);
    char *model = st_path("%s/%s/model/model.safetensors", folder, name);
    c->json = case_json(json);
    c->vectors = st_open(vectors);
    c->model = st_open(model);
    free(json);
    free(vectors);
    free(model);
    c->batch = case_size(c->json, "batch");
    c->tokens = case_size(c->json, "tokens");
    c->keys = case_size(c->json, "kv_tokens");
    c->past = case_size(c->json, "past_tokens");
    c->heads = case_size(c->json, "q_heads");
    c->kv_heads = case_size(c->json, "kv_heads");
    c->head_dim = case_size(c->json, "head_dim");
    c->v_head_dim = case_size(c->json, "v_head_dim");
    c->d_model = case_size(c->json, "d_model");
    c->d_kv = case_size(c->json, "d_kv");
    c->d_out = case_size(c->json, "d_out");
    c->cross = json_is_true(json_object_get(c->json, "cross"));
    c->x = doubles_of(c->vectors, "inputs_embeds");
    c->context = doubles_of(c->vectors, "encoder_hidden_states");
    c->bias = doubles_of(c->vectors, "attention_bias");
    c->past_key = doubles_of(c->vectors, "past_key");
    c->past_value = doubles_of(c->vectors, "past_value");
    c->lengths = st_ints(st_find(c->vectors, "lengths"));
    c->positions = st_ints(st_find(c->vectors, "position_ids"));
    c->mask = st_bools(st_find(c->vectors, "attention_mask"));
    for (size_t i = 0; i < 8; i++)
        c->weight[i] = doubles_of(c->model, WEIGHT[i]);
    c->finite = all_finite(c->x, c->batch * c->tokens * c->d_model) &&
                all_finite(c->context, c->batch * c->keys * c->d_kv);
}

static void mha_close(mha_case *c)
{
    free(c->name);
    json_decref(c->json);
    st_close(c->vectors);
    st_close(c->model);
    free(c->x);
    free(c->context);
    free(c->bias);
    free(c->past_key);
    free(c->past_value);
    free(c->lengths);
    free(c->positions);
    free(c->mask);
    for (size_t i = 0; i < 8; i++)
        free(c->weight[i]);
}

static json_t *index_of(const char *below, char **folder)
{
    *folder = st_shared(below);
    if (*folder == NULL) {
        printf("skipped: %s: the shared vectors are not beside this tree (ATTND_SHARED)\n", below);
        return NULL;
    }
    char *path = st_path("%s/index.json", *folder);
    json_t *list = case_json(path);
    free(path);
    return list;
}

bool mha_for_each(void (*each)(const mha_case *c, void *arg), void *arg, size_t *count)
{
    char *folder;
    json_t *list = index_of("vectors/mha", &folder), *entry;
    size_t i;

    if (list == NULL)
        return false;
    json_array_foreach(list, i, entry)
    {
        mha_case c;
        mha_open(&c, folder, json_string_value(json_object_get(entry, "name")));
        each(&c, arg);
        mha_close(&c);
    }
    if (count != NULL)
        *count = json_array_size(list);
    json_decref(list);
    free(folder);
    return true;
}

/* Strides of a tensor of axes [B,H,T,S] (or its last ones), where an axis of 1 is repeated. */
static void broadcast(const size_t dim[4], size_t stride[4])
{
    size_t step = 1;
    for (size_t i = 4; i-- > 0;) {
        stride[i] = dim[i] == 1 ? 0 : step;
        step *= dim[i];
    }
}

void mha_sequence(const mha_case *c, size_t b, ref_attention *r)
{
    const json_t *rope = json_object_get(c->json, "rope");
    const json_t *window = json_object_get(c->json, "window");
    size_t T = c->tokens, N = c->keys - c->past, stride[4];

    *r = ref_attention_default();
    r->tokens = T, r->new_keys = N, r->past = c->past;
    r->d_model = c->d_model, r->d_kv = c->d_kv, r->d_out = c->d_out;
    r->heads = c->heads, r->kv_heads = c->kv_heads;
    r->head_dim = c->head_dim, r->v_head_dim = c->v_head_dim;
    r->x = c->x + b * T * c->d_model;
    r->context = c->context != NULL ? c->context + b * N * c->d_kv : NULL;
    r->wq = c->weight[0], r->wk = c->weight[1], r->wv = c->weight[2], r->wo = c->weight[3];
    r->bq = c->weight[4], r->bk = c->weight[5], r->bv = c->weight[6], r->bo = c->weight[7];
    if (c->past > 0) {
        r->past_key = c->past_key + b * c->kv_heads * c->past * c->head_dim;
        r->past_value = c->past_value + b * c->kv_heads * c->past * c->v_head_dim;
    }
    r->scale = case_number(c->json, "scale");
    r->softcap = case_number(c->json, "softcap");
    r->causal = json_is_true(json_object_get(c->json, "causal"));
    r->causal_offset = json_integer_value(json_object_get(c->json, "causal_offset"));
    r->window_left = json_integer_value(json_array_get(window, 0));
    r->window_right = json_integer_value(json_array_get(window, 1));
    r->alibi = json_is_true(json_object_get(c->json, "alibi"));
    if (json_is_object(rope)) {
        const char *style = json_string_value(json_object_get(rope, "style"));
        r->rope = strcmp(style, "half") == 0 ? REF_ROPE_HALF : REF_ROPE_INTERLEAVED;
        r->rope_dims = case_size(rope, "rotary_dim");
        r->rope_theta = case_number(rope, "theta");
        r->query_position = r->key_position =
            json_integer_value(json_object_get(rope, "position_offset"));
        r->positions = c->positions != NULL ? c->positions + b * T : NULL;
    }
    if (c->lengths != NULL)
        r->key_end = (size_t)c->lengths[b];
    if (c->mask != NULL) {
        const st_tensor *t = st_need(c->vectors, "attention_mask");
        /* Ranks 2 and 3 are [B,S] and [B,T,S]: the missing axes stand behind the batch. */
        size_t dim[4] = {t->dim[0], t->rank == 4 ? t->dim[1] : 1,
                         t->rank > 2 ? t->dim[t->rank - 2] : 1, t->dim[t->rank - 1]};
        broadcast(dim, stride);
        r->mask = c->mask + b * stride[0];
        memcpy(r->mask_stride, stride + 1, sizeof r->mask_stride);
    }
    if (c->bias != NULL) {
        const st_tensor *t = st_need(c->vectors, "attention_bias");
        size_t dim[4] = {1, 1, 1, 1}; /* aligned at the right, as NumPy broadcasts */
        memcpy(dim + 4 - t->rank, t->dim, t->rank * sizeof *dim);
        broadcast(dim, stride);
        r->bias = c->bias + b * stride[0];
        memcpy(r->bias_stride, stride + 1, sizeof r->bias_stride);
    }
}

ref_batch *mha_oracle(const mha_case *c)
{
    ref_attention r;
    mha_sequence(c, 0, &r);
    ref_batch *o = ref_batch_new(c->batch, &r);
    for (size_t b = 0; b < c->batch; b++) {
        mha_sequence(c, b, &r);
        ref_batch_run(o, b, &r);
    }
    return o;
}

double mha_tolerance(const mha_case *c, const char *tensor)
{
    return case_number(json_object_get(c->json, "tolerance"), tensor);
}

size_t mha_real_rows(const mha_case *c, size_t b)
{
    return c->cross || c->lengths == NULL ? c->tokens : (size_t)c->lengths[b];
}

/* --- shared/vectors/onnx-attention --------------------------------------------------------- */

/* [B,T,heads*size] to [B,heads,T,size]; rank 4 is that already. */
static double *heads_first(const st_file *f, const char *name, size_t heads)
{
    const st_tensor *t = st_need(f, name);
    double *in = st_doubles(t);
    if (t->rank == 4)
        return in;
    size_t B = t->dim[0], T = t->dim[1], size = t->dim[2] / heads;
    double *out = room(t->count);
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < T; i++)
                memcpy(out + ((b * heads + h) * T + i) * size,
                       in + ((b * T + i) * heads + h) * size, size * sizeof *out);
    free(in);
    return out;
}

/* attn_mask to rank 4, aligned at the right, with the keys it leaves out masked. */
static void onnx_mask(onnx_case *c)
{
    const st_tensor *t = st_find(c->file, "attn_mask");
    if (t == NULL)
        return;
    size_t dim[4] = {1, 1, 1, 1};
    memcpy(dim + 4 - t->rank, t->dim, t->rank * sizeof *dim);
    size_t rows = dim[0] * dim[1] * dim[2], had = dim[3], S = c->keys;
    bool is_bool = strcmp(t->dtype, "BOOL") == 0;
    unsigned char *flag = is_bool ? st_bools(t) : NULL;
    double *number = is_bool ? NULL : st_doubles(t);
    dim[3] = S;
    memcpy(c->mask_dim, dim, sizeof dim);
    if (is_bool) {
        c->mask = calloc(rows * S + 1, 1);
        assert_non_null(c->mask);
    } else {
        c->bias = room(rows * S);
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < S; j++) {
            if (is_bool)
                c->mask[i * S + j] = j < had && flag[i * had + j];
            else
                c->bias[i * S + j] = j < had ? number[i * had + j] : -INFINITY;
        }
    }
    free(flag);
    free(number);
}

static void onnx_open(onnx_case *c, const char *folder, const char *name)
{
    memset(c, 0, sizeof *c);
    c->name = st_path("%s", name);
    char *json = st_path("%s/%s.json", folder, name);
    char *vectors = st_path("%s/%s.safetensors", folder, name);
    c->json = case_json(json);
    c->file = st_open(vectors);
    free(json);
    free(vectors);
    const json_t *dims = json_object_get(c->json, "dims");
    const json_t *attributes = json_object_get(c->json, "attributes");
    c->batch = case_size(dims, "batch");
    c->tokens = case_size(dims, "q_len");
    c->new_keys = case_size(dims, "kv_len");
    c->past = case_size(dims, "past_len");
    c->keys = c->past + c->new_keys;
    c->heads = case_size(dims, "q_heads");
    c->kv_heads = case_size(dims, "kv_heads");
    c->head_dim = case_size(dims, "head_size");
    c->v_head_dim = case_size(dims, "v_head_size");
    c->tolerance = case_number(c->json, "tolerance");
    c->half = strcmp(st_need(c->file, "Q")->dtype, "F16") == 0;
    c->scale_given = json_is_number(json_object_get(attributes, "scale"));
    c->scale = c->scale_given ? case_number(attributes, "scale") : 1 / sqrt((double)c->head_dim);
    c->softcap = case_number(attributes, "softcap");
    c->causal = case_size(attributes, "is_causal") == 1;
    c->query = heads_first(c->file, "Q", c->heads);
    c->key = heads_first(c->file, "K", c->kv_heads);
    c->value = heads_first(c->file, "V", c->kv_heads);
    c->past_key = doubles_of(c->file, "past_key");
    c->past_value = doubles_of(c->file, "past_value");
    c->expected = heads_first(c->file, "Y", c->heads);
    c->expected_qk = doubles_of(c->file, "qk_matmul_output");
    c->present_key = doubles_of(c->file, "present_key");
    c->present_value = doubles_of(c->file, "present_value");
    c->mode = c->expected_qk != NULL ? (int)case_size(attributes, "qk_matmul_output_mode") : -1;
    c->lengths = st_ints(st_find(c->file, "nonpad_kv_seqlen"));
    c->offset = calloc(c->batch, sizeof *c->offset);
    assert_non_null(c->offset);
    for (size_t b = 0; b < c->batch && c->causal; b++) {
        c->offset[b] = (int64_t)c->past;
        if (c->past == 0 && c->lengths != NULL)
            c->offset[b] = c->lengths[b] - (int64_t)c->tokens;
    }
    onnx_mask(c);
    c->finite = all_finite(c->query, c->batch * c->heads * c->tokens * c->head_dim) &&
                all_finite(c->key, c->batch * c->kv_heads * c->new_keys * c->head_dim) &&
                all_finite(c->value, c->batch * c->kv_heads * c->new_keys * c->v_head_dim);
}

static void onnx_close(onnx_case *c)
{
    double *all[] = {c->query,    c->key,         c->value,       c->past_key, c->past_value,
                     c->expected, c->expected_qk, c->present_key, c->bias,     c->present_value};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(c->mask);
    free(c->lengths);
    free(c->offset);
    free(c->name);
    json_decref(c->json);
    st_close(c->file);
}

bool onnx_for_each(void (*each)(const onnx_case *c, void *arg), void *arg, size_t *count)
{
    char *folder;
    json_t *list = index_of("vectors/onnx-attention", &folder), *entry;
    size_t i;

    if (list == NULL)
        return false;
    json_array_foreach(list, i, entry)
    {
        onnx_case c;
        onnx_open(&c, folder, json_string_value(json_object_get(entry, "name")));
        each(&c, arg);
        onnx_close(&c);
    }
    if (count != NULL)
        *count = json_array_size(list);
    json_decref(list);
    free(folder);
    return true;
}

void onnx_sequence(const onnx_case *c, size_t b, ref_attention *r)
{
    size_t stride[4];

    *r = ref_attention_default();
    r->tokens = c->tokens, r->new_keys = c->new_keys, r->past = c->past;
    r->heads = c->heads, r->kv_heads = c->kv_heads;
    r->head_dim = c->head_dim, r->v_head_dim = c->v_head_dim;
    r->query = c->query + b * c->heads * c->tokens * c->head_dim;
    r->key = c->key + b * c->kv_heads * c->new_keys * c->head_dim;
    r->value = c->value + b * c->kv_heads * c->new_keys * c->v_head_dim;
    if (c->past > 0) {
        r->past_key = c->past_key + b * c->kv_heads * c->past * c->head_dim;
        r->past_value = c->past_value + b * c->kv_heads * c->past * c->v_head_dim;
    }
    r->scale = c->scale;
    r->softcap = c->softcap;
    r->causal = c->causal;
    r->causal_offset = c->offset[b];
    if (c->lengths != NULL)
        r->key_end = (size_t)c->lengths[b];
    if (c->mask != NULL || c->bias != NULL) {
        broadcast(c->mask_dim, stride);
        memcpy(r->mask_stride, stride + 1, sizeof r->mask_stride);
        memcpy(r->bias_stride, stride + 1, sizeof r->bias_stride);
        r->mask = c->mask != NULL ? c->mask + b * stride[0] : NULL;
        r->bias = c->bias != NULL ? c->bias + b * stride[0] : NULL;
    }
}
