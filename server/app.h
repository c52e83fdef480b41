/* app.h: what the daemon's handlers share: models, budget, queue. */
#ifndef SRV_APP_H
#define SRV_APP_H

#include "core/budget.h"
#include "server/http.h"
#include "server/infer.h"
#include "server/metrics.h"
#include "server/models.h"

typedef struct {
    srv_models *models;
    attn_budget budget;
    srv_infer *infer;
    srv_metrics *metrics;
    size_t workers;
    int64_t request_timeout_ms;
    bool admin; /* models may be loaded and unloaded over HTTP */
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

/* Acquires the model of the path's {model}; NULL after the reply that says there is none, or that it is not loaded. */
const srv_served *srv_app_acquire(srv_exchange *x);
void srv_app_release(srv_exchange *x, const srv_served *served); /* takes NULL */

/* The place of the path's {model} among the models; false after the reply that says there is none. */
bool srv_app_find(srv_exchange *x, size_t *i);

/* The place of the model of that name. ATTN_ENOTFOUND, with the nearest one. */
ATTN_NODISCARD attn_status srv_app_find_named(const srv_app *app, const char *name, size_t *i,
                                              attn_error *err);

/* All models are loaded and the daemon does not shut down; *err (unless NULL) says what of it is not so, as does the
 * code that is returned, a literal, NULL = ready. */
const char *srv_app_not_ready(srv_exchange *x, attn_error *err);

/* Replies with all that the writer gives, and frees it. NULL: there was no memory. */
void srv_app_reply_json(srv_exchange *x, srv_json_writer *w);

/* Replies with an object whose only member, of that name, is a list with what `write` says of each loaded model. */
void srv_app_reply_models(srv_exchange *x, const char *member,
                          void (*write)(srv_json_writer *w, const srv_served *served));

#endif
