/* app.h: what the daemon's handlers share: models, budget, queue. */
#ifndef SRV_APP_H
#define SRV_APP_H

#include "core/budget.h"
#include "core/model.h"
#include "server/examples.h"
#include "server/http.h"
#include "server/infer.h"
#include "server/metrics.h"
#include "server/model_stats.h"

typedef struct srv_served {
    attn_model *model;
    srv_examples *examples;
    srv_model_stats *stats;
} srv_served;

typedef struct {
    srv_served *models; /* immutable while requests are served */
    size_t num_models;
    attn_budget budget;
    srv_infer *infer;
    srv_metrics *metrics;
    size_t workers;
    int64_t request_timeout_ms;
} srv_app;

enum { SRV_MAX_ROUTES = 64 };

typedef struct {
    srv_route routes[SRV_MAX_ROUTES];
    size_t n;
} srv_route_table;

/* What of the daemon can be switched off; and whether its metrics are for everybody, or for who has a key. */
typedef struct {
    bool metrics, docs, ui;
    bool open_metrics;
} srv_parts;

/* The route table of the whole daemon, with these parts. */
void srv_routes(srv_route_table *t, srv_parts parts);

/* For a 503: when to come again. `app` is a srv_app. */
unsigned srv_app_retry_after_s(void *app);

/* The model of that name, or NULL. */
const srv_served *srv_app_find(const srv_app *app, const char *name);

/* The model of the path's {model}, or NULL after the reply that says there is none. */
const srv_served *srv_app_model_of(srv_exchange *x);

/* Replies with all that the writer gives, and frees it. NULL: there was no memory. */
void srv_app_reply_json(srv_exchange *x, srv_json_writer *w);

#endif
