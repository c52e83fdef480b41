/* model_stats.h: what became of a model's requests for attention, in the terms of the Open Inference Protocol. */
#ifndef SRV_MODEL_STATS_H
#define SRV_MODEL_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/json_writer.h"

enum { SRV_STATS_BATCHES = 64 }; /* larger batches have no row of their own */

typedef struct {
    _Atomic uint64_t count, ns;
} srv_duration;

/* Starts as zeros. Counting is lock-free, from any thread. */
typedef struct {
    _Atomic uint64_t last_ms; /* since 1970, of the last success */
    _Atomic uint64_t inferences, executions;
    srv_duration success, fail, queue, input, infer, output;
    struct {
        srv_duration input, infer, output;
    } batch[SRV_STATS_BATCHES]; /* of size 1, 2, ... */
} srv_model_stats;

/* A request that is over, in seconds. */
typedef struct {
    bool ok;
    size_t batch, executions;
    double total_s;
    double queue_s, input_s, infer_s, output_s; /* when it is ok */
} srv_model_outcome;

void srv_model_stats_add(srv_model_stats *s, const srv_model_outcome *o);

/* Writes one element of "model_stats". */
void srv_model_stats_write(const srv_model_stats *s, const char *model, const char *version,
                           size_t weights_bytes, srv_json_writer *w);

#endif
