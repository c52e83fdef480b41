/* oip_private.h: between the files of the protocol. */
#ifndef SRV_OIP_PRIVATE_H
#define SRV_OIP_PRIVATE_H

#include "core/tensor.h"
#include "server/deflate.h"
#include "server/inflate.h"
#include "server/json_private.h"
#include "server/oip.h"
#include "server/raw_tensor.h"

/* --- names --- */

typedef struct {
    const char *name, *member; /* here, and in a request for attention */
    srv_field_kind kind;
    size_t min_rank, max_rank;
    const char *datatype, *shape; /* as the metadata say: letters, see oip_meta.c */
    bool optional;
} srv_oip_input;

enum { SRV_OIP_INPUTS = 6, SRV_OIP_OUTPUTS = 3, SRV_OIP_MAX_RANK = 4 };
extern const srv_oip_input srv_oip_inputs[SRV_OIP_INPUTS];
extern const char *const srv_oip_outputs[SRV_OIP_OUTPUTS];
extern const srv_result_name srv_oip_results[SRV_OIP_OUTPUTS];

/* The type of that name; false when there is none. ATTN_OTHER: BYTES, whose elements differ in size. */
bool srv_oip_datatype(const char *name, attn_dtype *out);

/* --- a request --- */

/* One output that was asked for, in the order of the answer. */
typedef struct {
    size_t which; /* of srv_oip_outputs */
    bool binary;
} srv_oip_wish;

/* One output of the answer. */
typedef struct {
    srv_result_name which;
    bool binary;
} srv_oip_output;

enum { SRV_OIP_ID_CHARACTERS = 256, SRV_OIP_ID_BYTES = 4 * SRV_OIP_ID_CHARACTERS };

struct srv_oip {
    srv_request *r;
    srv_oip_body body;
    srv_inflate *inflate; /* NULL: the body is as it is */

    srv_block json; /* the JSON part until it is read */
    bool read;      /* it is */
    struct {
        srv_raw_tensor *tensor;
        const char *name;
    } binary[SRV_OIP_INPUTS]; /* in the order of their bytes */
    size_t num_binary, next;

    char id[SRV_OIP_ID_BYTES + 1];
    bool has_id;
    srv_oip_wish wish[SRV_OIP_OUTPUTS];
    size_t num_wishes;
    srv_oip_output output[SRV_RESULTS];
    size_t num_outputs;

    size_t answer_json_bytes; /* when bytes follow them, else 0 */
    srv_deflate *deflate;
};

/* oip_parameters.c: the request's parameters, and the outputs that are asked for, become options. o->wish holds those
 * that are listed, and then all that are meant. */
ATTN_NODISCARD attn_status srv_oip_read_parameters(srv_oip *o, const attn_json *parameters,
                                                   attn_error *err);

/* oip_header.c: reads o->json, which is complete: fills the reader's members, o->binary and o->wish. */
ATTN_NODISCARD attn_status srv_oip_read_json(srv_oip *o, attn_error *err);

/* attn_json_parse() for what a client sent: ATTN_EINVAL. */
ATTN_NODISCARD attn_status srv_oip_parse_json(attn_json **tree, const char *text, size_t n,
                                              const char *what, attn_error *err);

/* The other way to say it: the body is one tensor [1,T,D] for layer 0, all outputs leave as bytes. */
ATTN_NODISCARD attn_status srv_oip_raw(srv_oip *o, attn_error *err);

/* oip_answer.c: writes the answer to `r`, whose `answer_arg` is a srv_oip. */
void srv_oip_answer(srv_json_writer *w, const srv_request *r);

#endif
