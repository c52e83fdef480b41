#include "server/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "server/pieces.h"
#include "server/request_private.h"

bool srv_is_encode(srv_request_kind kind)
{
    return kind == SRV_ENCODE || kind == SRV_EMBEDDINGS || kind == SRV_EMBED;
}

attn_status srv_encode_new(srv_encode **out, attn_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "no memory for a request");
}

void srv_encode_free(srv_encode *e)
{
    if (e == NULL)
        return;
    free(e->hidden);
    free(e->layers);
    free(e->first);
    free(e->ids);
    free(e->types);
    free(e->truncated);
    free(e->seqs);
    free(e->block);
    free(e);
}

/* --- what is asked for ---------------------------------------------------------------------------- */

static attn_status choose_model(srv_request *r, attn_error *err)
{
    const attn_json *v = srv_request_value(r, SRV_F_MODEL);
    const char *name = NULL, *reason = NULL;

    if (v != NULL && !attn_json_string(v, &name))
        return attn_fail_at(err, ATTN_EINVAL, "/model", "/model: expected a string, found %s",
                            attn_json_type_name(v));
    if (r->model == NULL)
        ATTN_TRY(r->choose_model(r, name, err));
    r->encode->encoder = attn_model_encoder(r->model, &reason);
    if (r->encode->encoder == NULL)
        return attn_fail(err, ATTN_EUNSUPPORTED, "model \"%s\" is no whole encoder: %s",
                         attn_model_name(r->model), reason);
    r->encode->info = attn_encoder_get_info(r->encode->encoder);
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(r->model, 0));
    r->heads = (attn_heads){s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim};
    return ATTN_OK;
}

static attn_status read_layers(srv_request *r, attn_error *err)
{
    static const char pointer[] = "/return_attentions/layers";
    const attn_json *v = attn_json_get(srv_request_value(r, SRV_F_RETURN_ATTENTIONS), "layers");
    srv_encode *e = r->encode;
    const char *text = NULL;

    if (v != NULL && attn_json_is_array(v)) {
        ATTN_TRY(srv_request_indices(v, pointer, e->info->num_layers - 1, &e->layers,
                                     &e->options.num_map_layers, err));
    } else if (v == NULL || (attn_json_string(v, &text) && strcmp(text, "all") == 0)) {
        e->options.num_map_layers = e->info->num_layers;
        e->layers = calloc(e->info->num_layers, sizeof *e->layers);
        if (e->layers == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for %zu layers", e->info->num_layers);
        for (size_t i = 0; i < e->info->num_layers; i++)
            e->layers[i] = i;
    } else {
        return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: expected \"all\" or a list of integers",
                            pointer);
    }
    e->options.map_layers = e->layers;
    e->want_maps = e->options.num_map_layers > 0;
    return ATTN_OK;
}

static attn_status read_rollout(srv_request *r, attn_error *err)
{
    static const char pointer[] = "/return_attentions/rollout";
    const attn_json *v = attn_json_get(srv_request_value(r, SRV_F_RETURN_ATTENTIONS), "rollout");

    if (v == NULL || attn_json_bool(v, &r->encode->options.rollout))
        return ATTN_OK;
    return attn_fail_at(err, ATTN_EINVAL, pointer, "%s: expected true or false, found %s", pointer,
                        attn_json_type_name(v));
}

/* true = the last one. Rows of tokens that are asked for as embeddings are one more, behind those. */
static attn_status read_hidden(srv_request *r, bool token_embeddings, attn_error *err)
{
    const attn_json *v = srv_request_value(r, SRV_F_RETURN_HIDDEN_STATES);
    srv_encode *e = r->encode;
    size_t *n = &e->options.num_hidden, last = e->info->num_layers;
    bool the_last = false;

    if (v != NULL && attn_json_is_array(v)) {
        ATTN_TRY(srv_request_indices(v, "/return_hidden_states", last, &e->hidden, n, err));
    } else if (v != NULL && !attn_json_bool(v, &the_last)) {
        return attn_fail_at(err, ATTN_EINVAL, "/return_hidden_states",
                            "/return_hidden_states: expected true, false or a list of integers");
    }
    e->want_hidden = *n > 0 || the_last;
    size_t *grown = realloc(e->hidden, (*n + 2) * sizeof *grown);
    if (grown == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu numbers", *n);
    e->hidden = grown;
    if (the_last)
        e->hidden[(*n)++] = last;
    if (token_embeddings)
        e->hidden[(*n)++] = last;
    e->options.hidden = e->hidden;
    return ATTN_OK;
}

static attn_status read_embedding(srv_request *r, attn_error *err)
{
    static const char *const names[] = {"none", "mean", "cls", "max", "mean_sqrt_len"};
    const attn_json *pooling = srv_request_value(r, SRV_F_POOLING);
    srv_encode *e = r->encode;
    size_t choice = (size_t)e->info->pooling;

    e->want_embeddings = true;
    e->options.normalize = r->kind == SRV_EMBED || e->info->normalize;
    ATTN_TRY(srv_request_bool(r, SRV_F_RETURN_EMBEDDINGS, "/return_embeddings", &e->want_embeddings,
                              err));
    ATTN_TRY(
        srv_request_choice(pooling, "/pooling", names, sizeof names / sizeof *names, &choice, err));
    if (choice == ATTN_EMBED_NONE)
        e->options.normalize = false;
    ATTN_TRY(srv_request_bool(r, SRV_F_NORMALIZE, "/normalize", &e->options.normalize, err));
    if (e->want_embeddings && pooling == NULL && e->info->no_embeddings != NULL)
        return attn_fail(err, ATTN_EUNSUPPORTED, "model \"%s\" has embeddings of its own kind: %s",
                         attn_model_name(r->model), e->info->no_embeddings);
    e->options.pooling = e->want_embeddings ? (attn_embed)choice : ATTN_EMBED_NONE;
    return ATTN_OK;
}

/* What other servers' bodies may say, and this one cannot. */
static attn_status check_dialect(const srv_request *r, attn_error *err)
{
    const attn_json *dimensions = srv_request_value(r, SRV_F_DIMENSIONS);
    const attn_json *direction = srv_request_value(r, SRV_F_TRUNCATION_DIRECTION);
    const attn_json *prompt = srv_request_value(r, SRV_F_PROMPT_NAME);
    static const char *const directions[] = {"right", "Right"};
    int64_t n = 0;
    size_t choice = 0;

    if (dimensions != NULL &&
        (!attn_json_integer(dimensions, &n) || n != (int64_t)r->encode->info->d_model))
        return attn_fail_at(err, ATTN_ESHAPE, "/dimensions",
                            "/dimensions: embeddings of model \"%s\" have %zu numbers",
                            attn_model_name(r->model), r->encode->info->d_model);
    if (prompt != NULL)
        return attn_fail_at(err, ATTN_ESHAPE, "/prompt_name", "/prompt_name: there are no prompts");
    return srv_request_choice(direction, "/truncation_direction", directions, 2, &choice, err);
}

static attn_status read_options(srv_request *r, attn_error *err)
{
    srv_encode *e = r->encode;

    ATTN_TRY(check_dialect(r, err));
    ATTN_TRY(srv_request_read_options(r, err));
    r->num_results = 0; /* those are attention's */
    r->answer = srv_encode_answer;
    ATTN_TRY(read_embedding(r, err));
    ATTN_TRY(read_hidden(r, e->want_embeddings && e->options.pooling == ATTN_EMBED_NONE, err));
    if (!r->options.want_maps)
        return ATTN_OK;
    ATTN_TRY(read_layers(r, err));
    return read_rollout(r, err);
}

/* --- sequences ------------------------------------------------------------------------------------ */

/* A padded sequence is computed as the shorter one that it is. */
static attn_status length_of(const srv_request *r, size_t b, size_t *length, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_LENGTHS);

    *length = r->sizes[b].t;
    if (!a->present)
        return ATTN_OK;
    if (a->data.i64[b] < 0 || (uint64_t)a->data.i64[b] > r->sizes[b].t) {
        attn_error at = {0};
        (void)attn_fail(&at, ATTN_ESHAPE, "/lengths/%zu", b);
        return attn_fail_at(err, ATTN_ESHAPE, at.text, "%s is %lld; it must be 0 to %zu", at.text,
                            (long long)a->data.i64[b], r->sizes[b].t);
    }
    *length = (size_t)a->data.i64[b];
    return ATTN_OK;
}

static attn_status check_lengths(const srv_request *r, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_LENGTHS);
    bool text = srv_request_value(r, SRV_F_INPUTS) != NULL;

    if (!a->present)
        return ATTN_OK;
    if (r->ragged || text)
        return attn_fail_at(err, ATTN_ESHAPE, "/lengths", "lengths beside %s: there is no padding",
                            text ? "texts" : "a ragged batch");
    if (a->count != r->batch)
        return attn_fail_at(err, ATTN_ESHAPE, "/lengths",
                            "/lengths holds %zu numbers for %zu sequences", a->count, r->batch);
    return ATTN_OK;
}

static attn_status place_sequences(srv_request *r, attn_error *err)
{
    static const int axes[3][4] = {{0, 3}, {0, 2, 3}, {0, 1, 2, 3}};
    const srv_array *mask = srv_request_array(r, SRV_F_ATTENTION_MASK);
    const srv_array *embeds = srv_request_array(r, SRV_F_INPUTS_EMBEDS);
    srv_encode *e = r->encode;
    size_t longest = 0, stride[4] = {0};

    ATTN_TRY(check_lengths(r, err));
    for (size_t b = 0; b < r->batch; b++)
        longest = r->sizes[b].t > longest ? r->sizes[b].t : longest;
    const size_t full[4] = {r->batch, r->heads.num_heads, longest, longest};
    if (mask->present)
        ATTN_TRY(
            srv_request_broadcast("attention_mask", mask, axes[mask->rank - 2], full, stride, err));
    for (size_t b = 0; b < r->batch; b++) {
        attn_encode_sequence *q = &e->seqs[e->num_seqs];
        *q = (attn_encode_sequence){.index = b};
        ATTN_TRY(length_of(r, b, &q->tokens, err));
        r->tokens += q->tokens;
        if (q->tokens == 0)
            continue;
        q->ids = e->ids != NULL ? e->ids + e->first[b] : NULL;
        q->types = e->types != NULL ? e->types + e->first[b] : NULL;
        if (embeds->present)
            q->embeds = embeds->data.f32 + e->first[b] * e->info->embed_width;
        if (mask->present) {
            q->mask = mask->data.u8 + b * stride[0];
            memcpy(q->mask_stride, stride + 1, sizeof q->mask_stride);
            if (mask->rank == 2 && stride[3] != 0)
                q->counted = q->mask; /* who is hidden from all is padding */
        }
        ATTN_TRY(attn_encode_check(e->encoder, q, err));
        e->num_seqs++;
    }
    return ATTN_OK;
}

/* --- results -------------------------------------------------------------------------------------- */

/* Elements of a layer's maps: as they leave, and as they are computed, pooled ones with all their rows. */
static bool count_maps(srv_request *r, size_t *count, size_t *room, size_t *rest)
{
    *count = *room = *rest = 0;
    for (size_t b = 0; b < r->batch; b++) {
        srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[b]);
        size_t rows = r->pool != 0 ? r->sizes[b].map_rows : z.rows, n = 0, computed = 0;
        if (!attn_size_product((size_t[]){z.heads, z.rows, z.width}, 3, &n) ||
            !attn_size_product((size_t[]){z.heads, rows, z.width}, 3, &computed) ||
            !attn_size_add(*count, n, count) || !attn_size_add(*room, computed, room))
            return false;
        *rest += z.heads * z.rows;
    }
    return true;
}

/* Elements of everything, for the plan and for the block. */
static bool count_results(srv_request *r, size_t *total)
{
    srv_encode *e = r->encode;
    const attn_encode_options *o = &e->options;
    size_t tokens = e->first[r->batch], squares = 0, maps = 0, part[6] = {0};

    e->states_stride = tokens * e->info->d_model;
    if (o->num_map_layers > 0 &&
        !count_maps(r, &e->maps_stride, &e->maps_room, &e->top_rest_stride))
        return false;
    for (size_t b = 0; b < r->batch; b++)
        squares += r->sizes[b].t * r->sizes[b].t;
    maps = r->options.top_k != 0 ? e->maps_stride : 0;
    bool ok = attn_size_mul(o->num_hidden, e->states_stride, &part[0]) &&
              attn_size_mul(o->num_map_layers, e->maps_room, &part[1]) &&
              attn_size_mul(o->num_map_layers, maps, &part[2]) &&
              attn_size_mul(o->num_map_layers, maps != 0 ? e->top_rest_stride : 0, &part[3]);
    part[4] = o->rollout ? squares : 0;
    part[5] = o->pooling != ATTN_EMBED_NONE ? r->batch * e->info->d_model : 0;
    *total = 0;
    for (size_t i = 0; i < 6 && ok; i++)
        ok = attn_size_add(*total, part[i], total) && *total < SIZE_MAX / 64;
    return ok;
}

attn_status srv_encode_allocate(srv_request *r, attn_error *err)
{
    srv_encode *e = r->encode;
    const attn_encode_options *o = &e->options;
    size_t total = 0, at = 0, squares = 0, state_at = 0, map_at = 0, top_at = 0, rest_at = 0;

    (void)count_results(r, &total);
    e->block = attn_block_alloc(total * sizeof(float) + 64); /* an empty one is not NULL */
    if (e->block == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the results of %zu sequences", r->batch);
    float *all = (float *)(void *)e->block;
    /* Rows that no real token owns are never written. */
    memset(all, 0, total * sizeof(float));
    e->embeddings = all;
    at += o->pooling != ATTN_EMBED_NONE ? r->batch * e->info->d_model : 0;
    e->states = all + at;
    at += o->num_hidden * e->states_stride;
    e->maps = all + at;
    at += o->num_map_layers * e->maps_room;
    e->rollout = all + at;
    for (size_t b = 0; b < r->batch; b++)
        squares += r->sizes[b].t * r->sizes[b].t;
    at += o->rollout ? squares : 0;
    e->top_keys = (int32_t *)(void *)(all + at);
    at += r->options.top_k != 0 ? o->num_map_layers * e->maps_stride : 0;
    e->top_rest = all + at;

    squares = 0;
    for (size_t b = 0, i = 0; b < r->batch; b++) {
        const srv_sizes *size = &r->sizes[b];
        attn_encode_sequence none = {0},
                             *q = i < e->num_seqs && e->seqs[i].index == b ? &e->seqs[i++] : &none;
        q->embedding = o->pooling != ATTN_EMBED_NONE ? e->embeddings + b * e->info->d_model : NULL;
        q->hidden = o->num_hidden > 0 ? e->states + state_at : NULL;
        q->hidden_stride = e->states_stride;
        q->rollout = o->rollout ? e->rollout + squares : NULL;
        state_at += size->t * e->info->d_model;
        squares += size->t * size->t;
        if (o->num_map_layers == 0)
            continue;
        srv_shape z = srv_shape_of(r, SRV_MAPS, size);
        size_t rows = r->pool != 0 ? size->map_rows : z.rows;
        q->maps = (attn_view){e->maps + map_at, rows * z.width, z.width};
        q->maps_stride = e->maps_room;
        map_at += z.heads * rows * z.width;
        if (r->options.top_k == 0)
            continue;
        q->top_keys = e->top_keys + top_at;
        q->top_head_stride = z.rows * z.width;
        q->top_keys_stride = e->maps_stride;
        q->top_rest = e->top_rest + rest_at;
        q->top_rest_stride = e->top_rest_stride;
        top_at += z.heads * z.rows * z.width;
        rest_at += z.heads * z.rows;
    }
    return ATTN_OK;
}

/* --- the plan ------------------------------------------------------------------------------------- */

/* Sequences [first, return value) are one call; *bytes is its workspace. A call pools all its maps alike. */
static size_t micro_batch(const srv_request *r, size_t first, size_t workers, size_t target,
                          size_t *bytes)
{
    const srv_encode *e = r->encode;
    size_t end = first, sum = 0, longest = 0;

    for (; end < e->num_seqs; end++) {
        const attn_encode_sequence *q = &e->seqs[end];
        srv_block_size of_first = srv_pool_block(r, &r->sizes[e->seqs[first].index]);
        srv_block_size block = srv_pool_block(r, &r->sizes[q->index]);
        size_t row = q->map_columns > q->tokens ? q->map_columns : q->tokens;
        longest = row > longest ? row : longest;
        size_t more = sum + attn_encode_sequence_bytes(e->encoder, &e->options, q);
        size_t total = more + attn_encode_scratch_bytes(e->encoder, &e->options, longest, workers);
        if (end > first &&
            (total > target || block.rows != of_first.rows || block.columns != of_first.columns))
            break;
        *bytes = total;
        sum = more;
    }
    return end;
}

static size_t count_calls(const srv_request *r, size_t workers, size_t target, size_t *largest)
{
    size_t n = 0;

    *largest = 0;
    for (size_t i = 0; i < r->encode->num_seqs; n++) {
        size_t bytes = 0;
        i = micro_batch(r, i, workers, target, &bytes);
        *largest = bytes > *largest ? bytes : *largest;
    }
    return n;
}

static attn_status plan(srv_request *r, size_t workers, attn_error *err)
{
    static const srv_field_name arrays[] = {SRV_F_INPUTS_EMBEDS, SRV_F_INPUT_IDS,
                                            SRV_F_TOKEN_TYPE_IDS, SRV_F_LENGTHS,
                                            SRV_F_ATTENTION_MASK};
    srv_plan *p = &r->plan;
    size_t total = 0, limit = r->budget->limit;

    if (!count_results(r, &total))
        return attn_fail(err, ATTN_ETOOBIG,
                         "the results of %zu sequences are larger than any memory", r->batch);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        p->inputs += srv_array_bytes(srv_request_array(r, arrays[i]));
    p->inputs += srv_encode_text_bytes(r) + r->encoder;
    p->results = p->outputs = total * sizeof(float);
    (void)count_calls(r, workers, 0, &p->least_workspace);
    p->needed = p->inputs + p->results + p->least_workspace;
    p->target = SRV_WORKSPACE_TARGET;
    size_t rest = p->inputs + p->results;
    if (rest <= limit && limit - rest < p->target)
        p->target = limit - rest;
    p->micro_batches = count_calls(r, workers, p->target, &p->workspace);
    p->reserved = rest + p->workspace;
    return ATTN_OK;
}

/* What a call takes depends on the results that are wanted, which have no place before it is admitted. */
static void want_results(srv_request *r)
{
    static float somewhere;
    const attn_encode_options *o = &r->encode->options;

    for (size_t i = 0; i < r->encode->num_seqs; i++) {
        attn_encode_sequence *q = &r->encode->seqs[i];
        q->map_rows = r->sizes[q->index].map_rows;
        q->map_columns = r->sizes[q->index].map_columns;
        q->embedding = o->pooling != ATTN_EMBED_NONE ? &somewhere : NULL;
        q->hidden = o->num_hidden > 0 ? &somewhere : NULL;
        q->maps.data = o->num_map_layers > 0 ? &somewhere : NULL;
        q->rollout = o->rollout ? &somewhere : NULL;
    }
}

attn_status srv_encode_parse(srv_request *r, size_t workers, attn_error *err)
{
    srv_encode *e = r->encode;

    ATTN_TRY(choose_model(r, err));
    ATTN_TRY(srv_encode_read_inputs(r, err));
    ATTN_TRY(read_options(r, err));
    ATTN_TRY(place_sequences(r, err));
    ATTN_TRY(srv_request_check_ranges(r, err));
    e->options.maps = r->options;
    if (e->num_seqs > 0) /* of one call: requests that pool alike are computed together */
        srv_pool_options(r, e->seqs[0].index, &e->options.maps);
    want_results(r);
    ATTN_TRY(plan(r, workers, err)); /* the text of the answer shows what the values asked for */
    srv_json_reader_drop_values(r->reader);
    return ATTN_OK;
}

/* --- computing ------------------------------------------------------------------------------------ */

/* Rows of [T,T] become rows of [t,t] with t >= T, from the last one on. */
static void spread_rows(float *x, size_t from, size_t to)
{
    for (size_t i = from; i-- > 0;) {
        memmove(x + i * to, x + i * from, from * sizeof *x);
        memset(x + i * to + from, 0, (to - from) * sizeof *x);
    }
}

static void normalize_rows(float *x, size_t rows, size_t width)
{
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t k = 0; k < width; k++)
            sum += (double)x[i * width + k] * (double)x[i * width + k];
        double scale = sum > 0 ? 1 / sqrt(sum) : 0;
        for (size_t k = 0; k < width; k++)
            x[i * width + k] = (float)((double)x[i * width + k] * scale);
    }
}

/* Pooled maps were computed with room between them: puts those of all layers together. */
static void close_up(srv_request *r)
{
    srv_encode *e = r->encode;
    float *to = e->maps;

    for (size_t layer = 0; layer < e->options.num_map_layers; layer++) {
        const float *from = e->maps + layer * e->maps_room;
        for (size_t b = 0; b < r->batch; b++) {
            srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[b]);
            size_t n = z.rows * z.width;
            for (size_t h = 0; h < z.heads; h++) {
                memmove(to, from, n * sizeof *to);
                to += n;
                from += r->sizes[b].map_rows * z.width;
            }
        }
    }
}

void srv_encode_end_call(srv_request *r, size_t end, const attn_stats *stats)
{
    srv_encode *e = r->encode;
    const attn_encode_options *o = &e->options;

    for (size_t i = r->computed; i < end; i++) {
        const attn_encode_sequence *q = &e->seqs[i];
        if (q->rollout != NULL)
            spread_rows(q->rollout, q->tokens, r->sizes[q->index].t);
        if (e->want_embeddings && o->pooling == ATTN_EMBED_NONE && o->normalize)
            normalize_rows(q->hidden + (o->num_hidden - 1) * q->hidden_stride, q->tokens,
                           e->info->d_model);
    }
    r->stats.fully_masked_rows += stats->fully_masked_rows;
    r->computed = end;
    if (end == e->num_seqs && r->pool != 0)
        close_up(r);
}

attn_status srv_encode_step(srv_request *r, attn_pool *pool, const atomic_bool *cancel,
                            attn_error *err)
{
    srv_encode *e = r->encode;
    size_t begin = r->computed, bytes = 0;
    size_t end = micro_batch(r, begin, attn_pool_size(pool), r->plan.target, &bytes);
    attn_stats stats = {0};

    if (begin == end)
        return ATTN_OK;
    srv_pool_options(r, e->seqs[begin].index, &e->options.maps);
    ATTN_TRY(attn_encode(e->encoder, &e->options, e->seqs + begin, end - begin, pool, r->workspace,
                         cancel, &stats, err));
    srv_encode_end_call(r, end, &stats);
    return ATTN_OK;
}
