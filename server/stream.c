#include "server/stream.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/kern.h"
#include "core/memory.h"
#include "server/answer.h"
#include "server/pieces.h"

#define ALL_HEADS SIZE_MAX /* in place of a key head */

/* Where the thread that computes stands. The heads and rows of a result are those of srv_shape_of(). */
typedef struct {
    bool check;           /* in front of all results: every row is gone through, nothing is kept */
    size_t result;        /* of r->order */
    size_t b, head, row;  /* where the next piece begins */
    srv_result_name kind; /* what is computed there */
    srv_shape shape;
    srv_cut cut;
} place;

struct srv_stream {
    srv_request *r;
    void (*ready)(void *arg);
    void *ready_arg;
    float *keys;
    float *slots;
    size_t *every_head; /* 0, 1, 2, ...: to point at some of them */

    place at;
    bool check_values; /* an input is so large, or no number at all, that results may overflow */
    bool count_here;   /* masked rows are counted by the pieces under way */
    bool keys_there;
    size_t keys_b, keys_g; /* whose keys are packed */

    pthread_mutex_t lock; /* guards all below, up to the reader's */
    struct {
        const float *data;
        size_t n;
    } piece[2];         /* number i is piece[i % slots] */
    size_t made, taken; /* pieces so far */
    bool ended, failed;

    srv_json_writer *writer; /* made by the one thread, before `made` tells the other */
    bool reading;            /* a piece is in the writer */
    bool closed;             /* the usage is */
};

/* --- places -------------------------------------------------------------------------------------- */

/* Puts the next piece at the first one from (result, b) on that is not empty; false: there is none. */
static bool settle(srv_stream *s)
{
    const srv_request *r = s->r;
    place *p = &s->at;

    for (;; p->result++, p->b = 0) {
        if (!p->check && p->result == r->num_results)
            return false;
        p->kind = p->check ? SRV_LOGSUMEXP : r->order[p->result];
        for (; p->b < r->batch; p->b++) {
            p->shape = srv_shape_of(r, p->kind, &r->sizes[p->b]);
            p->cut = srv_cut_of(r, p->kind, p->b, r->plan.piece);
            if (p->check && p->cut.all_heads) /* then they are done at once */
                p->cut.heads = p->shape.heads;
            if (srv_cut_pieces(&p->shape, &p->cut) > 0)
                return true;
        }
        if (p->check) {
            p->check = false;
            s->count_here = false;
            p->result = SIZE_MAX; /* and on to 0 */
        } else if (p->kind == SRV_OUTPUTS) {
            s->count_here = false;
        }
    }
}

/* On to the next piece; false: that was the last. */
static bool advance(srv_stream *s)
{
    place *p = &s->at;

    p->row += p->cut.rows;
    if (p->row < p->shape.rows)
        return true;
    p->row = 0;
    p->head += p->cut.heads;
    if (p->head < p->shape.heads)
        return true;
    p->head = 0;
    p->b++;
    return settle(s);
}

/* --- making -------------------------------------------------------------------------------------- */

static bool is_ordinary(const srv_array *a)
{
    bool ordinary = true;

    for (size_t i = 0; a->present && i < a->count; i++)
        ordinary &= fabsf(a->data.f32[i]) <= 0x1p32F;
    return ordinary;
}

/* NaN, Infinity, and numbers so large that sums of their products may overflow. */
static bool inputs_are_ordinary(const srv_request *r)
{
    static const srv_field_name inputs[] = {SRV_F_INPUTS_EMBEDS, SRV_F_ENCODER_HIDDEN_STATES,
                                            SRV_F_QUERY,         SRV_F_KEY,
                                            SRV_F_VALUE,         SRV_F_PAST_KEY,
                                            SRV_F_PAST_VALUE};

    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!is_ordinary(srv_request_array(r, inputs[i])))
            return false;
    }
    return true;
}

attn_status srv_stream_new(srv_stream **out, srv_request *r, attn_error *err)
{
    srv_stream *s = calloc(1, sizeof *s);

    *out = s;
    if (s == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for an answer");
    s->r = r;
    (void)pthread_mutex_init(&s->lock, NULL);
    s->keys = attn_block_alloc(r->plan.keys);
    s->slots = attn_block_alloc(r->plan.results > 0 ? r->plan.results : 64);
    s->every_head = calloc(r->heads.num_heads, sizeof *s->every_head);
    if (s->keys == NULL || s->slots == NULL || s->every_head == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for an answer in pieces");
    for (size_t h = 0; h < r->heads.num_heads; h++)
        s->every_head[h] = h;
    s->check_values = !inputs_are_ordinary(r);
    s->at.check = s->check_values || !r->want[SRV_OUTPUTS];
    s->count_here = true;
    return ATTN_OK;
}

void srv_stream_free(srv_stream *s)
{
    if (s == NULL)
        return;
    srv_json_writer_free(s->writer);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->keys);
    free(s->slots);
    free(s->every_head);
    free(s);
}

void srv_stream_listen(srv_stream *s, void (*ready)(void *arg), void *arg)
{
    s->ready = ready;
    s->ready_arg = arg;
}

size_t srv_stream_drop_keys(srv_stream *s)
{
    size_t bytes = s->keys != NULL ? s->r->plan.keys : 0;

    free(s->keys);
    s->keys = NULL;
    return bytes;
}

/* --- calls --------------------------------------------------------------------------------------- */

/* Sequence b, as the call for heads from query head h and key head g on sees it. */
static attn_sequence from_head(const srv_request *r, size_t b, size_t h, size_t g)
{
    attn_sequence q = r->seqs[b];

    if (r->layer == NULL) {
        q.query.data += h * q.query.head_stride;
        q.key.data += g * q.key.head_stride;
        q.value.data += g * q.value.head_stride;
    }
    if (q.past_len > 0) {
        q.past_key += g * q.past_len * r->heads.head_dim;
        q.past_value += g * q.past_len * r->heads.v_head_dim;
    }
    if (q.mask != NULL)
        q.mask += h * q.mask_stride[0];
    if (q.bias != NULL)
        q.bias += h * q.bias_stride[0];
    return q;
}

/* Its query rows [first, first + n). */
static void slice(const srv_request *r, attn_sequence *q, size_t first, size_t n)
{
    q->q_len = n;
    q->first = first;
    if (r->layer != NULL)
        q->x += first * attn_layer_get_spec(r->layer)->d_model;
    else
        q->query.data += first * q->query.row_stride;
    q->causal_offset += (int64_t)first;
    q->position_offset += (int64_t)first;
    if (q->positions != NULL)
        q->positions += first;
    if (q->mask != NULL)
        q->mask += first * q->mask_stride[1];
    if (q->bias != NULL)
        q->bias += first * q->bias_stride[1];
}

/* The number of the head that stands at a place of a result. */
static size_t head_at(const srv_stream *s, size_t head)
{
    bool chosen = srv_is_map(s->at.kind) && s->r->options.heads != NULL;
    return chosen ? s->r->options.heads[head] : head;
}

/* Whose keys the piece needs: one key head's, or all. */
static size_t key_head(const srv_stream *s)
{
    const attn_heads *n = &s->r->heads;
    bool of_keys = s->at.kind == SRV_KEY || s->at.kind == SRV_VALUE_HEADS;

    if (!srv_by_head(s->r, s->at.kind))
        return ALL_HEADS;
    return of_keys ? s->at.head : head_at(s, s->at.head) / (n->num_heads / n->num_kv_heads);
}

static attn_status pack_keys(srv_stream *s, size_t g, attn_pool *pool, const atomic_bool *cancel,
                             attn_error *err)
{
    srv_request *r = s->r;
    attn_heads heads = srv_keys_heads(r, s->at.kind);
    attn_options options = r->options;
    size_t first = g == ALL_HEADS ? 0 : g;
    attn_sequence q = r->seqs[s->at.b];

    if (g != ALL_HEADS)
        q = from_head(r, s->at.b, first * heads.num_heads, first);
    options.want_maps = false;
    s->keys_there = false;
    ATTN_TRY(
        attn_prepare(r->layer, &heads, &options, &q, s->keys, pool, r->workspace, cancel, err));
    s->keys_there = true;
    s->keys_b = s->at.b;
    s->keys_g = g;
    return ATTN_OK;
}

/* Keys or values, which are packed already. */
static void unpack(const srv_stream *s, size_t heads, size_t rows, float *out)
{
    const place *p = &s->at;
    const attn_sequence *q = &s->r->seqs[p->b];
    attn_heads packed = srv_keys_heads(s->r, p->kind);
    size_t s_len = q->past_len + q->kv_len, end = p->row + rows;

    end = end < s_len ? end : s_len > p->row ? s_len : p->row;
    for (size_t i = 0; i < heads; i++, out += rows * p->shape.width) {
        size_t g = srv_by_head(s->r, p->kind) ? 0 : p->head + i, n = end - p->row;
        attn_unpack_keys(&packed, s_len, s->keys, p->kind == SRV_VALUE_HEADS, g, p->row, end, out);
        memset(out + n * p->shape.width, 0, (rows - n) * p->shape.width * sizeof(float));
    }
}

/* Query rows [p->row ..) of the maps that become `rows` rows of a result. */
static size_t query_rows(const srv_stream *s, size_t rows)
{
    const srv_sizes *z = &s->r->sizes[s->at.b];
    size_t block = s->at.kind == SRV_MAPS ? srv_pool_block(s->r, z).rows : 1;

    if (block == 1)
        return rows;
    size_t left = z->map_rows - s->at.row * block;
    return rows * block < left ? rows * block : left;
}

/* Behind the values of the largest cells stand their keys, and then what is left of the rows. */
static void point_at_maps(const srv_stream *s, attn_sequence *q, size_t heads, size_t rows,
                          float *out)
{
    size_t k = s->r->options.top_k, width = k != 0 ? k : s->at.shape.width;

    q->map_rows = query_rows(s, rows);
    q->maps = (attn_view){out, q->map_rows * width, width};
    q->top_keys = (int32_t *)(out + heads * rows * k);
    q->top_head_stride = rows * k;
    q->top_rest = out + 2 * heads * rows * k;
}

/* Where in a slot the numbers that leave begin. */
static size_t begin_of_piece(const srv_stream *s, size_t heads, size_t rows)
{
    const place *p = &s->at;
    size_t values = heads * rows * s->r->options.top_k;

    if (p->kind == SRV_TOP_KEYS || p->kind == SRV_TOP_REST)
        return p->kind == SRV_TOP_KEYS ? values : 2 * values;
    return p->cut.all_heads ? p->head * rows * p->shape.width : 0;
}

/* Where the results of a call go. Of its query rows the first `skip` are none of the piece. */
static void point(const srv_stream *s, attn_sequence *q, attn_options *o, size_t skip, size_t heads,
                  size_t rows, float *out)
{
    const place *p = &s->at;
    const srv_request *r = s->r;
    size_t width = p->shape.width;

    o->want_maps = srv_is_map(p->kind);
    switch (p->kind) {
    case SRV_MAPS:
    case SRV_TOP_KEYS:
    case SRV_TOP_REST:
        point_at_maps(s, q, heads, rows, out);
        srv_pool_options(r, p->b, o);
        o->q_from = skip;
        if (r->options.reduce != ATTN_REDUCE_NONE)
            break;
        o->heads = srv_by_head(r, p->kind) ? NULL
                   : o->heads != NULL      ? o->heads + p->head
                                           : s->every_head + p->head;
        o->num_heads = heads;
        break;
    case SRV_QUERY:
        q->query_out = (attn_view){out, rows * width, width};
        break;
    case SRV_LOGSUMEXP:
        q->logsumexp = !p->check || s->check_values ? out : NULL;
        q->lse_head_stride = rows;
        break;
    case SRV_CONTEXT:
        q->joined_context = out;
        break;
    default:
        q->output = out;
        q->output_head_stride = rows * width;
    }
}

/* Heads [head, head + heads) and rows [row, row + rows) of the place, into `out`. */
static attn_status compute(srv_stream *s, size_t heads, size_t rows, float *out, attn_pool *pool,
                           const atomic_bool *cancel, attn_error *err)
{
    srv_request *r = s->r;
    const place *p = &s->at;
    bool by_head = srv_by_head(r, p->kind);
    size_t h = by_head ? head_at(s, p->head) : 0;
    attn_sequence q = from_head(r, p->b, h, 0);
    attn_heads call = srv_piece_heads(r, p->kind);
    attn_options options = r->options;
    attn_stats stats = {0};
    bool maps = srv_is_map(p->kind);
    size_t block = p->kind == SRV_MAPS ? srv_pool_block(r, &r->sizes[p->b]).rows : 1;
    size_t first = p->row * block + (maps ? options.q_from : 0), due = query_rows(s, rows);
    size_t n = q.q_len > first ? q.q_len - first : 0;

    n = n < due ? n : due;
    if (n < due) /* padding */
        memset(out, 0, p->cut.floats * sizeof(float));
    if (n == 0)
        return ATTN_OK;
    /* The rows of a map may begin anywhere, a slice where its rows keep their bits. */
    size_t skip = first % attn_kernels.row_block;
    slice(r, &q, first - skip, n + skip);
    q.keys = s->keys;
    point(s, &q, &options, skip, heads, rows, out);
    attn_status rc =
        attn_forward(r->layer, &call, &options, &q, 1, pool, r->workspace, cancel, &stats, err);
    if (s->count_here)
        r->stats.fully_masked_rows += stats.fully_masked_rows;
    for (size_t i = 1; i < heads && block > 1; i++)
        memmove(out + i * rows * p->shape.width, out + i * due * p->shape.width,
                rows * p->shape.width * sizeof(float));
    return rc;
}

/* --- the thread that computes -------------------------------------------------------------------- */

/* A slot for the next piece, NULL: none is free. */
static float *free_slot(srv_stream *s)
{
    const srv_plan *plan = &s->r->plan;

    (void)pthread_mutex_lock(&s->lock);
    bool full = s->made - s->taken == plan->slots;
    size_t i = s->made % plan->slots;
    (void)pthread_mutex_unlock(&s->lock);
    return full ? NULL : s->slots + i * (plan->results / plan->slots / sizeof(float));
}

/* The answer around its numbers, which the reader begins with. */
static attn_status make_writer(srv_stream *s, attn_error *err)
{
    if (s->writer == NULL)
        s->writer = srv_answer(s->r);
    return s->writer != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "no memory for the answer");
}

static attn_status publish(srv_stream *s, const float *data, size_t n, attn_error *err)
{
    ATTN_TRY(make_writer(s, err));
    (void)pthread_mutex_lock(&s->lock);
    size_t i = s->made % s->r->plan.slots;
    s->piece[i].data = data;
    s->piece[i].n = n;
    s->made++;
    (void)pthread_mutex_unlock(&s->lock);
    if (s->ready != NULL)
        s->ready(s->ready_arg);
    return ATTN_OK;
}

attn_status srv_stream_step(srv_stream *s, attn_pool *pool, const atomic_bool *cancel,
                            srv_step *next, attn_error *err)
{
    place *p = &s->at;
    float *slot = free_slot(s);

    *next = SRV_STEP_WAITS;
    if (slot == NULL)
        return ATTN_OK;
    *next = SRV_STEP_DONE;
    if (p->shape.heads == 0 && !settle(s)) /* the very first, and there is nothing */
        return make_writer(s, err);
    size_t heads = p->shape.heads - p->head, rows = p->shape.rows - p->row, g = key_head(s);
    heads = heads < p->cut.heads ? heads : p->cut.heads;
    rows = rows < p->cut.rows ? rows : p->cut.rows;

    *next = SRV_STEP_MORE;
    if (p->kind != SRV_QUERY && (!s->keys_there || s->keys_b != p->b || s->keys_g != g))
        return pack_keys(s, g, pool, cancel, err);
    if (p->kind == SRV_KEY || p->kind == SRV_VALUE_HEADS)
        unpack(s, heads, rows, slot);
    else
        ATTN_TRY(compute(s, heads, rows, slot, pool, cancel, err));
    if (!p->check) {
        ATTN_TRY(
            publish(s, slot + begin_of_piece(s, heads, rows), heads * rows * p->shape.width, err));
    }
    if (advance(s))
        return ATTN_OK;
    *next = SRV_STEP_DONE;
    return make_writer(s, err); /* there may have been nothing but a check */
}

bool srv_stream_answers(srv_stream *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool answers = s->made > 0;
    (void)pthread_mutex_unlock(&s->lock);
    return answers;
}

void srv_stream_end(srv_stream *s, bool ok)
{
    (void)pthread_mutex_lock(&s->lock);
    s->ended = true;
    s->failed = !ok;
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- the reader ---------------------------------------------------------------------------------- */

/* The writer has used up what it had: gives it the next piece, or the end. Returns 1, or what the reader is told. */
static ssize_t go_on(srv_stream *s, bool *took)
{
    ssize_t rc = 1;

    (void)pthread_mutex_lock(&s->lock);
    if (s->reading) {
        s->reading = false;
        s->taken++;
        *took = true;
    }
    if (s->taken < s->made) {
        size_t i = s->taken % s->r->plan.slots;
        srv_json_writer_part(s->writer, s->piece[i].data, s->piece[i].n);
        s->reading = true;
    } else if (s->failed) {
        rc = SRV_READ_FAILED;
    } else if (!s->ended) {
        rc = SRV_READ_LATER;
    } else if (!s->closed) {
        s->closed = true;
        srv_answer_usage(s->r, s->writer);
        rc = srv_json_writer_status(s->writer) == ATTN_OK ? 1 : SRV_READ_FAILED;
    } else {
        rc = 0;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

ssize_t srv_stream_read(srv_stream *s, char *out, size_t n, bool *took)
{
    *took = false;
    for (;;) {
        size_t got = srv_json_writer_read(s->writer, out, n);
        if (got > 0)
            return (ssize_t)got;
        ssize_t rc = go_on(s, took);
        if (rc <= 0)
            return rc;
    }
}
