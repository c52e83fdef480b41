#include "server/pieces.h"

#include "core/kern.h"

/* A piece takes some tens of milliseconds at most, but is not cut below rows that keep the workers busy. */
#define WORK_OF_PIECE 2e9
#define LEAST_ROWS    48

static size_t tiles(size_t n, size_t tile)
{
    return n / tile + (n % tile != 0);
}

bool srv_is_map(srv_result_name which)
{
    return which == SRV_MAPS || which == SRV_TOP_KEYS || which == SRV_TOP_REST;
}

static size_t block(size_t n, size_t pool)
{
    return pool == 0 || n <= pool ? 1 : tiles(n, pool);
}

srv_block_size srv_pool_block(const srv_request *r, const srv_sizes *z)
{
    return (srv_block_size){block(z->map_rows, r->pool), block(z->map_columns, r->pool)};
}

void srv_pool_options(const srv_request *r, size_t b, attn_options *o)
{
    srv_block_size size = srv_pool_block(r, &r->sizes[b]);

    o->pool_rows = size.rows;
    o->pool_columns = size.columns;
}

/* Do the heads of a result become one? */
static bool is_reduced(const srv_request *r, srv_result_name which)
{
    return srv_is_map(which) && r->options.reduce != ATTN_REDUCE_NONE;
}

static srv_shape shape_of_maps(const srv_request *r, srv_result_name which, const srv_sizes *z)
{
    srv_block_size size = srv_pool_block(r, z);
    srv_shape s = {.heads = is_reduced(r, which) ? 1 : r->options.num_heads,
                   .rows = tiles(z->map_rows, size.rows),
                   .width = tiles(z->map_columns, size.columns)};

    if (r->options.top_k != 0)
        s.width = which == SRV_TOP_REST ? 1 : r->options.top_k;
    return s;
}

/* Floats that are computed for one row of one of a result's heads. */
static size_t room_of_row(const srv_request *r, srv_result_name which, const srv_sizes *z,
                          size_t width)
{
    if (srv_is_map(which) && r->options.top_k != 0)
        return 2 * r->options.top_k + 1;
    return which == SRV_MAPS ? srv_pool_block(r, z).rows * width : width;
}

srv_shape srv_shape_of(const srv_request *r, srv_result_name which, const srv_sizes *z)
{
    const attn_heads *n = &r->heads;
    srv_shape s = {.heads = n->num_heads, .rows = z->t};

    switch (which) {
    case SRV_QUERY:
        s.width = n->head_dim;
        break;
    case SRV_KEY:
    case SRV_VALUE_HEADS:
        s.heads = n->num_kv_heads;
        s.rows = z->s;
        s.width = which == SRV_KEY ? n->head_dim : n->v_head_dim;
        break;
    case SRV_LOGSUMEXP:
        s.width = 1;
        break;
    case SRV_CONTEXT:
        s.heads = 1;
        s.width = n->num_heads * n->v_head_dim;
        break;
    case SRV_MAPS:
    case SRV_TOP_KEYS:
    case SRV_TOP_REST:
        s = shape_of_maps(r, which, z);
        break;
    default:
        s.heads = r->layer != NULL ? 1 : n->num_heads;
        s.width = r->layer != NULL ? r->d_out : n->v_head_dim;
    }
    bool one =
        which == SRV_CONTEXT || (which == SRV_OUTPUTS && r->layer != NULL) || is_reduced(r, which);
    if (!one)
        s.dim[s.rank++] = s.heads;
    s.dim[s.rank++] = s.rows;
    if (which != SRV_LOGSUMEXP && which != SRV_TOP_REST)
        s.dim[s.rank++] = s.width;
    return s;
}

bool srv_by_head(const srv_request *r, srv_result_name which)
{
    bool mixed = which == SRV_CONTEXT || is_reduced(r, which);

    return r->layer == NULL && !mixed;
}

attn_heads srv_piece_heads(const srv_request *r, srv_result_name which)
{
    attn_heads n = r->heads;

    if (srv_by_head(r, which))
        n.num_heads = n.num_kv_heads = 1;
    return n;
}

attn_heads srv_keys_heads(const srv_request *r, srv_result_name which)
{
    attn_heads n = r->heads;

    if (srv_by_head(r, which)) {
        n.num_heads /= n.num_kv_heads;
        n.num_kv_heads = 1;
    }
    return n;
}

/* A layer's call gives these of all heads, whichever are wanted. */
static bool all_heads_come(const srv_request *r, srv_result_name which)
{
    return r->layer != NULL && (which == SRV_QUERY || which == SRV_LOGSUMEXP);
}

/* Floating-point operations of one row of one of a result's heads, about. */
static double work_of_row(const srv_request *r, srv_result_name which, size_t b)
{
    const attn_heads *n = &r->heads;
    double s = (double)(r->seqs[b].past_len + r->seqs[b].kv_len), work = 0;
    double d = (double)n->head_dim, e = (double)n->v_head_dim, heads = 1;

    if (which == SRV_CONTEXT || (which == SRV_OUTPUTS && r->layer != NULL) || is_reduced(r, which))
        heads = (double)n->num_heads;
    if (which != SRV_QUERY && which != SRV_KEY && which != SRV_VALUE_HEADS)
        work += heads * s * d;
    if (which == SRV_OUTPUTS || which == SRV_CONTEXT)
        work += heads * s * e;
    if (r->layer != NULL) {
        work += heads * d * (double)attn_layer_get_spec(r->layer)->d_model;
        if (which == SRV_OUTPUTS)
            work += heads * e * (double)r->d_out;
    }
    return 2 * work;
}

double srv_sequence_work(const srv_request *r, size_t b)
{
    return work_of_row(r, SRV_OUTPUTS, b) * (double)r->seqs[b].q_len *
           (double)(r->layer != NULL ? 1 : r->heads.num_heads);
}

srv_cut srv_cut_of(const srv_request *r, srv_result_name which, size_t b, size_t bytes)
{
    srv_shape z = srv_shape_of(r, which, &r->sizes[b]);
    /* A row of a pooled map is made from several. */
    size_t from = which == SRV_MAPS ? srv_pool_block(r, &r->sizes[b]).rows : 1;
    size_t room = room_of_row(r, which, &r->sizes[b], z.width);
    double work = WORK_OF_PIECE / work_of_row(r, which, b) / (double)from;
    size_t rows = z.width > 0 ? bytes / sizeof(float) / room : z.rows;
    srv_cut cut = {.heads = 1};

    /* Rows of one head, so far; they may be those of several heads. */
    if (work < (double)rows)
        rows = rows < LEAST_ROWS ? rows : work < LEAST_ROWS ? LEAST_ROWS : (size_t)work;
    rows = rows > 0 ? rows : 1;
    if (all_heads_come(r, which)) {
        bool all = z.rows <= rows / z.heads;
        cut.heads = all ? z.heads : 1;
        cut.rows = all ? z.rows : rows / z.heads;
        cut.all_heads = !all;
    } else if (srv_by_head(r, which) || z.rows > rows) {
        cut.rows = z.rows < rows ? z.rows : rows;
    } else {
        cut.heads = z.rows > 0 ? rows / z.rows : z.heads;
        cut.heads = cut.heads < z.heads ? cut.heads : z.heads;
        cut.rows = z.rows;
    }
    cut.heads = cut.heads > 0 ? cut.heads : 1;
    /* A slice begins where its rows keep their bits; see attn_prepare(). */
    cut.rows = tiles(cut.rows > 0 ? cut.rows : 1, attn_kernels.row_block) * attn_kernels.row_block;
    if (z.rows > 0 && cut.rows > z.rows)
        cut.rows = z.rows;
    cut.floats = (cut.all_heads ? z.heads : cut.heads) * cut.rows * room;
    return cut;
}

size_t srv_cut_pieces(const srv_shape *shape, const srv_cut *cut)
{
    if (shape->width == 0)
        return 0;
    return tiles(shape->heads, cut->heads) * tiles(shape->rows, cut->rows);
}

size_t srv_cut_workspace(const srv_request *r, srv_result_name which, size_t b, const srv_cut *cut,
                         size_t workers)
{
    static const float packed[1];
    const attn_sequence *q = &r->seqs[b];
    attn_sequence part = *q;
    attn_heads heads = srv_piece_heads(r, which), keys_heads = srv_keys_heads(r, which);
    attn_options options = r->options;
    size_t longest = attn_row_length(q);

    options.want_maps = false;
    part.q_len = 0;
    part.keys = packed;
    size_t keys = attn_sequence_bytes(r->layer, &keys_heads, &part) +
                  attn_scratch_bytes(r->layer, &keys_heads, &options, longest, workers);
    if (which == SRV_KEY || which == SRV_VALUE_HEADS)
        return keys;
    options.want_maps = srv_is_map(which);
    part.q_len = cut->rows * (which == SRV_MAPS ? srv_pool_block(r, &r->sizes[b]).rows : 1);
    part.q_len += srv_is_map(which) ? attn_kernels.row_block - 1 : 0;
    size_t rows = attn_sequence_bytes(r->layer, &heads, &part) +
                  attn_scratch_bytes(r->layer, &heads, &options, longest, workers);
    return rows > keys ? rows : keys;
}

size_t srv_keys_bytes(const srv_request *r, srv_result_name which, size_t b)
{
    attn_heads heads = srv_keys_heads(r, which);

    return attn_keys_bytes(r->layer, &heads, &r->seqs[b]);
}
