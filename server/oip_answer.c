/* The answer: JSON, and behind it the bytes of the outputs that were asked for as such. */
#include <stdio.h>
#include <string.h>

#include "server/answer.h"
#include "server/oip_private.h"
#include "server/pieces.h"

static const char *const names[SRV_RESULTS] = {[SRV_OUTPUTS] = "output",
                                               [SRV_MAPS] = "attention",
                                               [SRV_TOP_KEYS] = "attention_indices",
                                               [SRV_TOP_REST] = "attention_rest",
                                               [SRV_LOGSUMEXP] = "lse"};

static const char *datatype_of(attn_dtype dtype)
{
    return dtype == ATTN_F16   ? "FP16"
           : dtype == ATTN_U8  ? "UINT8"
           : dtype == ATTN_I32 ? "INT32"
                               : "FP32";
}

static void write_output(srv_json_writer *w, const srv_request *r, const srv_oip_output *output)
{
    const srv_result *result = &r->results[output->which];
    attn_dtype dtype = srv_result_dtype(r, output->which);
    srv_shape shape = srv_shape_of(r, output->which, &r->sizes[0]);
    const char *scale = dtype == ATTN_U8 ? ",\"scale\":" SRV_UINT8_SCALE : "";

    srv_json_writer_format(w, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%zu",
                           names[output->which], datatype_of(dtype), r->batch);
    for (size_t i = 0; i < shape.rank; i++)
        srv_json_writer_format(w, ",%zu", shape.dim[i]);
    if (output->binary) {
        srv_json_writer_format(w, "],\"parameters\":{\"binary_data_size\":%zu%s}}",
                               result->count * attn_dtype_size(dtype), scale);
        return;
    }
    if (scale[0] != '\0')
        srv_json_writer_format(w, "],\"parameters\":{%s},\"data\":", scale + 1);
    else
        srv_json_writer_format(w, "],\"data\":");
    srv_json_writer_values(w, r->plan.streamed ? NULL : result->data, 1, &result->count, SRV_LISTS,
                           dtype);
    srv_json_writer_raw(w, "}", 1);
}

static void write_json(srv_json_writer *w, const srv_request *r)
{
    const srv_oip *o = r->answer_arg;

    srv_json_writer_format(w, "{\"model_name\":");
    srv_json_writer_string(w, attn_model_name(r->model));
    srv_json_writer_format(w, ",\"model_version\":\"" SRV_OIP_VERSION "\"");
    if (o->has_id) {
        srv_json_writer_format(w, ",\"id\":");
        srv_json_writer_string(w, o->id);
    }
    srv_json_writer_format(w, ",\"outputs\":[");
    for (size_t i = 0; i < o->num_outputs; i++) {
        if (i > 0)
            srv_json_writer_raw(w, ",", 1);
        write_output(w, r, &o->output[i]);
    }
    srv_json_writer_raw(w, "]}", 2);
}

/* How long the JSON is that w holds. Numbers in it are there: see srv_request.whole. */
static size_t measure(srv_json_writer *w)
{
    uint64_t known = srv_json_writer_length(w);
    char block[4096];
    size_t bytes = 0, n = 0;

    if (known != UINT64_MAX)
        return (size_t)known;
    do {
        n = srv_json_writer_read(w, block, sizeof block);
        bytes += n;
    } while (n > 0);
    srv_json_writer_rewind(w);
    return bytes;
}

void srv_oip_answer(srv_json_writer *w, const srv_request *r)
{
    srv_oip *o = r->answer_arg;

    write_json(w, r);
    for (size_t i = 0; i < o->num_outputs; i++) {
        srv_result_name which = o->output[i].which;
        const srv_result *result = &r->results[which];
        if (!o->output[i].binary || result->count == 0)
            continue;
        if (o->answer_json_bytes == 0)
            o->answer_json_bytes = measure(w);
        srv_json_writer_values(w, r->plan.streamed ? NULL : result->data, 1, &result->count,
                               SRV_BYTES, srv_result_dtype(r, which));
    }
}

static ssize_t read_deflate(void *arg, char *out, size_t n)
{
    return srv_deflate_read(arg, out, n);
}

void srv_oip_reply(srv_oip *o, srv_exchange *x, srv_reader *read, void *arg, uint64_t length)
{
    const char *type = "application/json";
    srv_coding coding = o->body.answer_coding;
    attn_error err = {0};

    if (coding != SRV_IDENTITY &&
        srv_deflate_new(&o->deflate, coding, read, arg, &err) != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    if (o->answer_json_bytes > 0) {
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", o->answer_json_bytes);
        srv_http_set_header(x, SRV_OIP_HEADER_LENGTH, text);
        type = SRV_OIP_BINARY_TYPE;
    }
    if (o->deflate != NULL) {
        srv_http_set_header(x, "Content-Encoding", srv_coding_names[coding]);
        srv_http_reply_stream(x, 200, type, read_deflate, o->deflate);
        return;
    }
    srv_http_reply_stream(x, 200, type, read, arg);
    if (length != UINT64_MAX)
        srv_http_set_length(x, length);
}
