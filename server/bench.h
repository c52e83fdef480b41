/* bench.h: measures the attention layer on this machine. */
#ifndef SRV_BENCH_H
#define SRV_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct {
    size_t batch, tokens, d_model, heads;
} srv_bench_shape;

typedef struct {
    bool json, maps, core, causal;
    size_t threads; /* 0 = one for each CPU the process may use */
    const srv_bench_shape *shapes;
    size_t num_shapes;
} srv_bench_options;

/* Prints one line a shape on stdout: a table, or JSON objects. The same code as for requests runs. */
ATTN_NODISCARD attn_status srv_bench(const srv_bench_options *o, attn_error *err);

/* "B,T,D,H"; false when it is none, or H does not divide D. */
bool srv_bench_parse_shape(const char *text, srv_bench_shape *out);

#endif
