#include "server/model_stats.h"

#include <inttypes.h>
#include <time.h>

static uint64_t get(const _Atomic uint64_t *x)
{
    return atomic_load_explicit(x, memory_order_relaxed);
}

static void add(_Atomic uint64_t *x, uint64_t n)
{
    (void)atomic_fetch_add_explicit(x, n, memory_order_relaxed);
}

static void add_duration(srv_duration *d, double seconds)
{
    add(&d->count, 1);
    add(&d->ns, seconds > 0 ? (uint64_t)(seconds * 1e9) : 0);
}

void srv_model_stats_add(srv_model_stats *s, const srv_model_outcome *o)
{
    struct timespec now = {0};

    add_duration(o->ok ? &s->success : &s->fail, o->total_s);
    if (!o->ok)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    atomic_store_explicit(&s->last_ms,
                          (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
                          memory_order_relaxed);
    add(&s->inferences, o->batch);
    add(&s->executions, o->executions);
    add_duration(&s->queue, o->queue_s);
    add_duration(&s->input, o->input_s);
    add_duration(&s->infer, o->infer_s);
    add_duration(&s->output, o->output_s);
    if (o->batch >= 1 && o->batch <= SRV_STATS_BATCHES) {
        add_duration(&s->batch[o->batch - 1].input, o->input_s);
        add_duration(&s->batch[o->batch - 1].infer, o->infer_s);
        add_duration(&s->batch[o->batch - 1].output, o->output_s);
    }
}

static void write_duration(srv_json_writer *w, const char *name, const srv_duration *d)
{
    srv_json_writer_format(w, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}", name,
                           get(&d->count), get(&d->ns));
}

static void write_compute(srv_json_writer *w, const srv_duration *input, const srv_duration *infer,
                          const srv_duration *output)
{
    write_duration(w, "compute_input", input);
    srv_json_writer_raw(w, ",", 1);
    write_duration(w, "compute_infer", infer);
    srv_json_writer_raw(w, ",", 1);
    write_duration(w, "compute_output", output);
}

void srv_model_stats_write(const srv_model_stats *s, const char *model, const char *version,
                           size_t weights_bytes, srv_json_writer *w)
{
    bool first = true;

    srv_json_writer_raw(w, "{\"name\":", 8);
    srv_json_writer_string(w, model);
    srv_json_writer_format(w,
                           ",\"version\":\"%s\",\"last_inference\":%" PRIu64
                           ",\"inference_count\":%" PRIu64 ",\"execution_count\":%" PRIu64
                           ",\"inference_stats\":{",
                           version, get(&s->last_ms), get(&s->inferences), get(&s->executions));
    write_duration(w, "success", &s->success);
    srv_json_writer_raw(w, ",", 1);
    write_duration(w, "fail", &s->fail);
    srv_json_writer_raw(w, ",", 1);
    write_duration(w, "queue", &s->queue);
    srv_json_writer_raw(w, ",", 1);
    write_compute(w, &s->input, &s->infer, &s->output);
    srv_json_writer_format(w, "},\"batch_stats\":[");
    for (size_t i = 0; i < SRV_STATS_BATCHES; i++) {
        if (get(&s->batch[i].infer.count) == 0)
            continue;
        srv_json_writer_format(w, "%s{\"batch_size\":%zu,", first ? "" : ",", i + 1);
        write_compute(w, &s->batch[i].input, &s->batch[i].infer, &s->batch[i].output);
        srv_json_writer_raw(w, "}", 1);
        first = false;
    }
    srv_json_writer_format(w, "],\"memory_usage\":[{\"type\":\"CPU\",\"id\":0,\"byte_size\":%zu}]}",
                           weights_bytes);
}
