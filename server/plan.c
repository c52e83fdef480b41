#include "server/plan.h"

#include "server/pieces.h"

#define WHOLE_RESULTS ((size_t)16 << 20) /* results up to this stand in memory where they fit */
#define WHOLE_WORK    5e9 /* and sequences of no more operations: they are computed in one go */
#define LARGEST_PIECE ((size_t)4 << 20)
#define LEAST_PIECE   ((size_t)1 << 10)

/* --- whole --------------------------------------------------------------------------------------- */

/* A call pools all its maps alike. */
static bool same_blocks(const srv_request *r, size_t a, size_t b)
{
    srv_block_size p = srv_pool_block(r, &r->sizes[a]), q = srv_pool_block(r, &r->sizes[b]);
    return p.rows == q.rows && p.columns == q.columns;
}

size_t srv_plan_micro_batch(const srv_request *r, size_t first, size_t workers, size_t target,
                            size_t *bytes)
{
    size_t end = first, sum = 0, longest = 0;

    for (; end < r->batch; end++) {
        const attn_sequence *q = &r->seqs[end];
        size_t keys = attn_row_length(q) > longest ? attn_row_length(q) : longest;
        size_t more = sum + attn_sequence_bytes(r->layer, &r->heads, q);
        size_t total = more + attn_scratch_bytes(r->layer, &r->heads, &r->options, keys, workers);
        if (end > first && (total > target || !same_blocks(r, first, end)))
            break;
        *bytes = total;
        sum = more;
        longest = keys;
    }
    return end;
}

/* How many micro-batches there are; *largest is the workspace of the largest. */
static size_t count_batches(const srv_request *r, size_t workers, size_t target, size_t *largest)
{
    size_t n = 0;

    *largest = 0;
    for (size_t b = 0; b < r->batch; n++) {
        size_t bytes = 0;
        b = srv_plan_micro_batch(r, b, workers, target, &bytes);
        *largest = bytes > *largest ? bytes : *largest;
    }
    return n;
}

static bool is_small(const srv_request *r, size_t results)
{
    for (size_t b = 0; b < r->batch; b++) {
        if (srv_sequence_work(r, b) > WHOLE_WORK)
            return false;
    }
    return results <= WHOLE_RESULTS;
}

/* --- streamed ------------------------------------------------------------------------------------ */

typedef struct {
    size_t keys, workspace; /* bytes */
    size_t room, map_room;  /* floats: of the largest piece that is none of a map, and of a map's */
    size_t pieces;
} streamed;

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool same_sizes(const srv_request *r, size_t a, size_t b)
{
    const attn_sequence *p = &r->seqs[a], *q = &r->seqs[b];
    const srv_sizes *y = &r->sizes[a], *z = &r->sizes[b];

    return p->q_len == q->q_len && p->kv_len == q->kv_len && p->past_len == q->past_len &&
           y->t == z->t && y->s == z->s && y->map_rows == z->map_rows &&
           y->map_columns == z->map_columns;
}

static void add_result(streamed *m, const srv_request *r, srv_result_name which, size_t b,
                       size_t workers, size_t bytes)
{
    srv_cut cut = srv_cut_of(r, which, b, bytes);
    size_t *room = srv_is_map(which) ? &m->map_room : &m->room;

    *room = larger(*room, cut.floats);
    m->keys = larger(m->keys, srv_keys_bytes(r, which, b));
    m->workspace = larger(m->workspace, srv_cut_workspace(r, which, b, &cut, workers));
    if (r->want[which]) {
        srv_shape shape = srv_shape_of(r, which, &r->sizes[b]);
        m->pieces += srv_cut_pieces(&shape, &cut);
    }
}

/* What pieces of `bytes` take. */
static streamed measure(const srv_request *r, size_t workers, size_t bytes)
{
    streamed all = {0};
    size_t pieces = 0; /* of the sequence before */

    for (size_t b = 0; b < r->batch; b++) {
        if (b > 0 && same_sizes(r, b - 1, b)) {
            all.pieces += pieces;
            continue;
        }
        streamed m = all;
        for (size_t i = 0; i < r->num_results; i++)
            add_result(&m, r, r->order[i], b, workers, bytes);
        /* Before the first byte the rows may be gone through for what is wrong: as for their sums. */
        if (!r->want[SRV_LOGSUMEXP])
            add_result(&m, r, SRV_LOGSUMEXP, b, workers, bytes);
        pieces = m.pieces - all.pieces;
        all = m;
    }
    return all;
}

static size_t lines(size_t floats)
{
    return (floats * sizeof(float) + 63) / 64 * 64;
}

/* --- the choice ---------------------------------------------------------------------------------- */

static void plan_whole(srv_request *r, size_t workers, size_t results)
{
    srv_plan *p = &r->plan;
    size_t rest = p->inputs + results;

    p->results = results;
    p->target = SRV_WORKSPACE_TARGET;
    if (rest <= r->budget->limit && r->budget->limit - rest < p->target)
        p->target = r->budget->limit - rest;
    p->micro_batches = count_batches(r, workers, p->target, &p->workspace);
    p->reserved = rest + p->workspace;
}

void srv_plan_pieces(srv_request *r, size_t workers, size_t bytes, size_t slots)
{
    srv_plan *p = &r->plan;
    streamed m = measure(r, workers, bytes);

    p->streamed = true;
    p->piece = bytes;
    p->slots = slots;
    p->results = slots * lines(larger(m.room, m.map_room));
    p->keys = m.keys;
    p->workspace = m.workspace;
    p->micro_batches = m.pieces;
    p->reserved = p->inputs + p->results + p->keys + p->workspace;
}

/* The largest pieces that fit, within reason; at last the least of all. */
static void plan_streamed(srv_request *r, size_t workers)
{
    size_t limit = r->budget->limit, bytes = limit / 32;

    for (bytes = bytes < LARGEST_PIECE ? bytes : LARGEST_PIECE; bytes >= LEAST_PIECE; bytes /= 2) {
        srv_plan_pieces(r, workers, bytes, 2);
        if (r->plan.reserved <= limit)
            return;
    }
    srv_plan_pieces(r, workers, 0, 1);
}

void srv_plan_make(srv_request *r, size_t workers)
{
    srv_plan *p = &r->plan;
    size_t outputs = 0, maps = 0, whole_workspace = 0;

    for (int i = 0; i < SRV_RESULTS; i++)
        *(srv_is_map((srv_result_name)i) ? &maps : &outputs) += r->results[i].room * sizeof(float);
    (void)count_batches(r, workers, 0, &whole_workspace);
    streamed least = measure(r, workers, 0);
    size_t whole = whole_workspace + outputs + maps;
    size_t piece = lines(larger(least.room, least.map_room));
    size_t in_pieces = least.keys + least.workspace + piece;

    if (whole <= in_pieces || r->whole) {
        p->least_workspace = whole_workspace;
        p->outputs = outputs;
        p->attentions = maps;
    } else {
        p->least_workspace = least.keys + least.workspace;
        p->outputs = lines(least.room);
        p->attentions = piece - p->outputs;
    }
    p->needed = p->inputs + p->least_workspace + p->outputs + p->attentions;
    size_t limit = r->budget->limit;
    bool whole_fits = p->inputs + whole <= limit, in_pieces_fits = p->inputs + in_pieces <= limit;
    if (r->whole || (whole_fits && (is_small(r, outputs + maps) || !in_pieces_fits)))
        plan_whole(r, workers, outputs + maps);
    else
        plan_streamed(r, workers);
}
