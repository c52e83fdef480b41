/* plan.h: how a request is computed within the memory budget. Everything follows from its shapes and from
 * the size of the budget, and nothing from what else is going on. */
#ifndef SRV_PLAN_H
#define SRV_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct srv_request srv_request;

/* Micro-batches are filled up to this workspace; a longer sequence is one of its own. Large enough to keep all
 * workers busy, small beside any budget worth setting. */
#define SRV_WORKSPACE_TARGET ((size_t)8 << 20)

/* Everything in bytes. There are two ways:
 *
 *   whole     all results stand in memory, computed in micro-batches of whole sequences; then the answer leaves.
 *             For what is small: it is the fastest.
 *   streamed  the answer leaves while it is computed, in pieces: rows of one sequence, or of one head of it. Its
 *             keys and values are packed once for all pieces of a result.
 *
 * `needed` is the least that either way can do with. What is over it is refused for good. */
typedef struct {
    size_t inputs, least_workspace, outputs, attentions; /* their sum is `needed` */
    size_t needed;

    bool streamed;
    size_t results; /* whole: all of them; streamed: `slots` pieces */
    size_t keys;    /* streamed: packed keys and values of a sequence */
    size_t workspace;
    size_t reserved;      /* inputs, results, keys and workspace */
    size_t micro_batches; /* or pieces */

    size_t target; /* whole: workspace up to which sequences are joined */
    size_t piece;  /* streamed: what a piece should not exceed; one row it always holds */
    size_t slots;  /* streamed: pieces at a time: one that leaves, one that is made */
} srv_plan;

/* Fills r->plan, whose `inputs` are given, from the sequences, the options and the results wanted. */
void srv_plan_make(srv_request *r, size_t workers);

/* Makes the plan one of a streamed answer in pieces of about `bytes`, 0 = the least, whatever the budget says. */
void srv_plan_pieces(srv_request *r, size_t workers, size_t bytes, size_t slots);

/* Whole: sequences [first, return value) form a micro-batch; *bytes is its workspace. */
size_t srv_plan_micro_batch(const srv_request *r, size_t first, size_t workers, size_t target,
                            size_t *bytes);

#endif
