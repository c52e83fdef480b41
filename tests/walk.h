/* walk.h: what the daemon does with one library call after another failing (faults.h). */
#ifndef TESTS_WALK_H
#define TESTS_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/daemon.h"
#include "tests/faults.h"
#include "tests/rawhttp.h"

/* The next call to fail where there are many: each of the first ones, fewer later on; with TEST_FAULTS=all each of
 * all. */
long walk_next(long n);

/* stderr is one sentence of attnd's; n is the call that failed. */
void walk_assert_one_sentence(const char *err, long n);

/* Runs `attnd check --model path` with each call of this kind failing in turn: it succeeds, or says why in one sentence
 * (unless NULL, with this in it). Returns how many calls there were. */
long walk_check(fault_page *faults, fault_kind kind, const char *path, const char *in_message);

typedef struct {
    const char *path, *type, *accept; /* type NULL: GET */
    const void *body;
    size_t n;
    const char *coding; /* of the body */
    bool same;          /* the answer is the same each time */
} asked;

/* On a connection of its own; status 0 = there was no answer. */
raw_answer walk_ask(const test_daemon *d, const asked *q);

/* All but `usage`: what was reserved depends on the pieces that a body came in. */
bool walk_same_body(const raw_answer *a, const raw_answer *b);

/* The blocks that are there once all connections are gone. */
long walk_blocks_at_rest(fault_page *faults);

/* Asks with each allocation failing in turn, until none is left to fail: the answer is right, or a clean error. Unless
 * NULL, `behind` is asked after each, in calm, and answered as before. */
void walk_request(fault_page *faults, const test_daemon *d, const asked *q, const asked *behind);

/* The same, and no block is lost. */
void walk_request_without_loss(fault_page *faults, const test_daemon *d, const asked *q,
                               const asked *behind);

#endif
