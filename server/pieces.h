/* pieces.h: how one sequence's part of a result looks, and how it is cut into pieces for a streamed answer. */
#ifndef SRV_PIECES_H
#define SRV_PIECES_H

#include "server/request.h"

/* [heads][rows][width]; `dim` are those dimensions that the answer shows. */
typedef struct {
    size_t heads, rows, width;
    size_t rank, dim[3];
} srv_shape;

srv_shape srv_shape_of(const srv_request *r, srv_result_name which, const srv_sizes *z);

/* Is it a map, or what top_k makes of one? */
bool srv_is_map(srv_result_name which);

/* How sequence b's maps are pooled, for a call. */
srv_block_size srv_pool_block(const srv_request *r, const srv_sizes *z);
void srv_pool_options(const srv_request *r, size_t b, attn_options *o);

/* Without a layer heads have nothing in common but the keys of their group: they are computed one by one, but
 * for results that mix them. */
bool srv_by_head(const srv_request *r, srv_result_name which);

/* The heads of the call that computes a piece, and of the one that packs the keys for it. */
attn_heads srv_piece_heads(const srv_request *r, srv_result_name which);
attn_heads srv_keys_heads(const srv_request *r, srv_result_name which);

/* A piece holds all rows of some heads, or some rows of one head; in the order of the answer. */
typedef struct {
    size_t heads, rows; /* at most */
    bool all_heads;     /* the rows of all heads are computed for those of one that leave */
    size_t floats;      /* room for what is computed */
} srv_cut;

/* Cuts sequence b's part: a piece should not exceed `bytes`, nor take long to compute. */
srv_cut srv_cut_of(const srv_request *r, srv_result_name which, size_t b, size_t bytes);
size_t srv_cut_pieces(const srv_shape *shape, const srv_cut *cut); /* how many there are */

/* The workspace of the calls for such pieces, and for their keys. */
size_t srv_cut_workspace(const srv_request *r, srv_result_name which, size_t b, const srv_cut *cut,
                         size_t workers);
size_t srv_keys_bytes(const srv_request *r, srv_result_name which, size_t b);

/* Floating-point operations of all query rows of sequence b. */
double srv_sequence_work(const srv_request *r, size_t b);

#endif
