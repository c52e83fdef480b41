/* app.h: what the daemon's handlers share: models, budget, queue. */
#ifndef SRV_APP_H
#define SRV_APP_H

#include <stdatomic.h>

#include "core/budget.h"
#include "core/model.h"
#include "server/examples.h"
#include "server/http.h"
#include "server/infer.h"

typedef struct {
    attn_model *model;
    srv_examples *examples;
} srv_served;

typedef struct {
    srv_served *models; /* immutable while requests are served */
    size_t num_models;
    attn_budget budget;
    srv_infer *infer;
    size_t workers;
    int64_t request_timeout_ms;
    atomic_size_t broken_answers; /* streamed ones that ended before their end */
} srv_app;

/* The route table of the whole daemon. */
const srv_route *srv_routes(size_t *n);

/* The model of that name, or NULL. */
const srv_served *srv_app_find(const srv_app *app, const char *name);

#endif
