/* metrics.h: what the daemon counts, and its text for Prometheus.
 *
 * Counting is lock-free, from any thread. The number of series is bounded: by the routes, and by the
 * methods, statuses and reasons that are known here. */
#ifndef SRV_METRICS_H
#define SRV_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/budget.h"
#include "core/status.h"
#include "server/http.h"

typedef struct srv_metrics srv_metrics;

typedef struct {
    const char *name, *value;
} srv_metrics_label;

/* What stays as it is. All that is pointed to outlives the metrics; `budget` is read when they are
 * printed. */
typedef struct {
    const srv_route *routes;
    size_t num_routes;
    const attn_budget *budget;
    size_t compute_threads;
    const srv_metrics_label *build; /* of attnd_build_info; any bytes may be in the values */
    size_t num_build;
} srv_metrics_options;

/* What only the caller knows, at the moment of printing. */
typedef struct {
    bool ready;
    size_t waiting, running; /* requests */
    uint64_t shared;         /* requests that were computed together with others */
    size_t models, weights_bytes;
    uint64_t reloads, failed_reloads; /* models that were loaded anew, and that were not */
    uint64_t lost_log_lines;
} srv_metrics_now;

ATTN_NODISCARD attn_status srv_metrics_new(srv_metrics **out, const srv_metrics_options *o,
                                           attn_error *err);
void srv_metrics_free(srv_metrics *m); /* takes NULL */

/* An exchange is over. Its route is NULL or one of the options' table. */
void srv_metrics_exchange(srv_metrics *m, const srv_outcome *outcome);

/* That much was computed and will be answered. */
void srv_metrics_computed(srv_metrics *m, size_t sequences, size_t tokens, size_t micro_batches);

/* An answer was broken off after it had begun. */
void srv_metrics_broken(srv_metrics *m);

#define SRV_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The whole text, of *n bytes, for free(); NULL: no memory. While others count, a histogram's sum may
 * be ahead of its buckets; these and its count always agree. */
char *srv_metrics_print(const srv_metrics *m, const srv_metrics_now *now, size_t *n);

#endif
