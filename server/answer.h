/* answer.h: an answered request, in JSON or in tensors alone, as a list of pieces for json_writer. */
#ifndef SRV_ANSWER_H
#define SRV_ANSWER_H

#include "server/json_writer.h"
#include "server/request.h"

/* The answer to a computed request, which borrows r's results until the writer is freed; or, when it is streamed,
 * all of it but the numbers, which come in parts, and the usage. The inputs may be dropped at once. NULL when there
 * is no memory. */
srv_json_writer *srv_answer(const srv_request *r);

/* As what a result leaves. Numbers as ATTN_U8 stand for themselves divided by 255. */
attn_dtype srv_result_dtype(const srv_request *r, srv_result_name which);
#define SRV_UINT8_SCALE "0.003921569" /* 1/255, the nearest float32 */

/* The end of a streamed answer. */
void srv_answer_usage(const srv_request *r, srv_json_writer *w);

/* The answer to an estimate. */
srv_json_writer *srv_answer_estimate(const srv_request *r);

/* Most bytes that srv_answer() will write. */
size_t srv_answer_bound(const srv_request *r);

#endif
