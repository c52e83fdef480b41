/* stream.h: an answer that leaves while it is computed. One thread makes the pieces, another reads their text;
 * at most plan.slots pieces are held at a time, so that a slow reader holds these and not the whole answer. */
#ifndef SRV_STREAM_H
#define SRV_STREAM_H

#include <sys/types.h>

#include "server/http.h"
#include "server/request.h"

/* The request is planned and its inputs are there. It owns the stream. */
ATTN_NODISCARD attn_status srv_stream_new(srv_stream **out, srv_request *r, attn_error *err);
void srv_stream_free(srv_stream *s); /* takes NULL */

/* `ready` is told, by the thread that computes, of every piece that can be read. Before the first step. */
void srv_stream_listen(srv_stream *s, void (*ready)(void *arg), void *arg);

/* --- the thread that computes --- */

/* The next piece, or something that must precede it: packing keys, or going through the rows once to find what is
 * wrong before the answer begins. */
ATTN_NODISCARD attn_status srv_stream_step(srv_stream *s, attn_pool *pool,
                                           const atomic_bool *cancel, srv_step *next,
                                           attn_error *err);
bool srv_stream_answers(srv_stream *s);      /* can the reader begin? */
size_t srv_stream_drop_keys(srv_stream *s);  /* all is computed: returns the bytes that are free */
void srv_stream_end(srv_stream *s, bool ok); /* no piece comes any more; not ok: one is missing */

/* --- the reader --- */

/* As srv_http_reply_stream() wants it. *took: a piece was read to its end, so that another can be made. */
ssize_t srv_stream_read(srv_stream *s, char *out, size_t n, bool *took);

#endif
