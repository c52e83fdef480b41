#include "server/batch.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "server/encode.h"
#include "server/request_private.h"

/* A request of more sequences fills a call by itself. */
enum { JOINED_SEQUENCES = 64 };

static bool same_heads(const attn_heads *a, const attn_heads *b)
{
    return a->num_heads == b->num_heads && a->num_kv_heads == b->num_kv_heads &&
           a->head_dim == b->head_dim && a->v_head_dim == b->v_head_dim;
}

static bool same_maps(const attn_options *a, const attn_options *b)
{
    if (a->want_maps != b->want_maps)
        return false;
    if (!a->want_maps)
        return true;
    return a->stage == b->stage && a->reduce == b->reduce && a->q_from == b->q_from &&
           a->k_from == b->k_from && a->pooling == b->pooling && a->pool_rows == b->pool_rows &&
           a->pool_columns == b->pool_columns && a->top_k == b->top_k &&
           a->num_heads == b->num_heads && (a->heads == NULL) == (b->heads == NULL) &&
           (a->heads == NULL || memcmp(a->heads, b->heads, a->num_heads * sizeof *a->heads) == 0);
}

static bool same_options(const attn_options *a, const attn_options *b)
{
    return a->scale == b->scale && a->softcap == b->softcap && a->is_causal == b->is_causal &&
           a->window.left == b->window.left && a->window.right == b->window.right &&
           same_maps(a, b);
}

static bool is_small(const srv_request *r)
{
    return r->batch > 0 && r->batch <= JOINED_SEQUENCES && srv_request_is_one_call(r);
}

static bool same_list(const size_t *a, size_t num_a, const size_t *b, size_t num_b)
{
    return num_a == num_b && (num_a == 0 || memcmp(a, b, num_a * sizeof *a) == 0);
}

static bool same_encoding(const srv_encode *a, const srv_encode *b)
{
    const attn_encode_options *x = &a->options, *y = &b->options;

    return a->encoder == b->encoder && x->pooling == y->pooling && x->normalize == y->normalize &&
           x->rollout == y->rollout &&
           same_list(x->hidden, x->num_hidden, y->hidden, y->num_hidden) &&
           same_list(x->map_layers, x->num_map_layers, y->map_layers, y->num_map_layers) &&
           same_maps(&x->maps, &y->maps);
}

bool srv_requests_join(const srv_request *a, const srv_request *b)
{
    if (a->encode != NULL || b->encode != NULL)
        return a->encode != NULL && b->encode != NULL && is_small(a) && is_small(b) &&
               a->budget == b->budget && same_encoding(a->encode, b->encode);
    return is_small(a) && is_small(b) && a->budget == b->budget && a->layer == b->layer &&
           (a->layer != NULL || same_heads(&a->heads, &b->heads)) &&
           same_options(&a->options, &b->options);
}

static srv_batch_size add_up(srv_batch_size size, const srv_request *r)
{
    const srv_encode *e = r->encode;

    for (size_t i = 0; e != NULL && i < e->num_seqs; i++) {
        const attn_encode_sequence *s = &e->seqs[i];
        size_t keys = s->map_columns > s->tokens ? s->map_columns : s->tokens;
        size.bytes += attn_encode_sequence_bytes(e->encoder, &e->options, s);
        size.longest = keys > size.longest ? keys : size.longest;
    }
    if (e != NULL) {
        size.sequences += e->num_seqs;
        return size;
    }
    for (size_t i = 0; i < r->batch; i++) {
        const attn_sequence *s = &r->seqs[i];
        size_t keys = attn_row_length(s);
        size.bytes += attn_sequence_bytes(r->layer, &r->heads, s);
        size.longest = keys > size.longest ? keys : size.longest;
    }
    size.sequences += r->batch;
    return size;
}

/* The list of the sequences stands before the workspace, which begins at a line of its own. */
static size_t list_bytes(const srv_batch_size *size, const srv_request *r)
{
    size_t one = r->encode != NULL ? sizeof(attn_encode_sequence) : sizeof(attn_sequence);
    return (size->sequences * one + 63) / 64 * 64;
}

static size_t scratch_bytes(const srv_request *r, size_t longest, size_t workers)
{
    const srv_encode *e = r->encode;
    return e != NULL ? attn_encode_scratch_bytes(e->encoder, &e->options, longest, workers)
                     : attn_scratch_bytes(r->layer, &r->heads, &r->options, longest, workers);
}

void srv_batch_start(srv_batch *b, srv_request *r)
{
    b->members[0] = r;
    b->n = 1;
    b->size = (srv_batch_size){0};
    if (is_small(r))
        b->size = add_up(b->size, r);
}

bool srv_batch_add(srv_batch *b, srv_request *r, size_t workers)
{
    if (b->n == SRV_BATCH_REQUESTS || !srv_requests_join(b->members[0], r))
        return false;
    srv_batch_size size = add_up(b->size, r);
    size_t workspace = size.bytes + scratch_bytes(r, size.longest, workers);
    size_t bytes = list_bytes(&size, r) + workspace;
    if (workspace > SRV_WORKSPACE_TARGET)
        return false;
    if (bytes > b->reserved) {
        if (attn_budget_reserve(r->budget, bytes - b->reserved, NULL) != ATTN_OK)
            return false;
        b->reserved = bytes;
        b->budget = r->budget;
    }
    b->size = size;
    b->members[b->n++] = r;
    return true;
}

static bool allocate(srv_batch *b)
{
    if (b->allocated < b->reserved) {
        free(b->block);
        b->block = attn_block_alloc(b->reserved);
        b->allocated = b->block != NULL ? b->reserved : 0;
    }
    return b->block != NULL;
}

static attn_status forward(srv_batch *b, attn_pool *pool, const atomic_bool *cancel,
                           attn_stats *stats)
{
    const srv_request *first = b->members[0];
    attn_sequence *seqs = (attn_sequence *)b->block;
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        srv_request *r = b->members[i];
        for (size_t s = 0; s < r->batch; s++) {
            srv_request_point_at_results(r, s);
            seqs[n++] = r->seqs[s];
        }
    }
    return attn_forward(first->layer, &first->heads, &first->options, seqs, n, pool,
                        b->block + list_bytes(&b->size, first), cancel, stats, NULL);
}

static attn_status encode(srv_batch *b, attn_pool *pool, const atomic_bool *cancel,
                          attn_stats *stats)
{
    const srv_request *first = b->members[0];
    attn_encode_sequence *seqs = (attn_encode_sequence *)b->block;
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        const srv_encode *e = b->members[i]->encode;
        memcpy(seqs + n, e->seqs, e->num_seqs * sizeof *seqs);
        n += e->num_seqs;
    }
    return attn_encode(first->encode->encoder, &first->encode->options, seqs, n, pool,
                       b->block + list_bytes(&b->size, first), cancel, stats, NULL);
}

bool srv_batch_compute(srv_batch *b, attn_pool *pool, const atomic_bool *cancel)
{
    attn_stats stats = {0};

    if (!allocate(b))
        return false;
    attn_status rc = b->members[0]->encode != NULL ? encode(b, pool, cancel, &stats)
                                                   : forward(b, pool, cancel, &stats);
    if (rc != ATTN_OK || stats.fully_masked_rows > 0)
        return false;
    for (size_t i = 0; i < b->n; i++) {
        srv_request *r = b->members[i];
        srv_request_end_call(r, r->encode != NULL ? r->encode->num_seqs : r->batch, &stats);
    }
    return true;
}

void srv_batch_release(srv_batch *b)
{
    if (b->reserved == 0)
        return;
    free(b->block);
    attn_budget_release(b->budget, b->reserved);
    *b = (srv_batch){0};
}
