/* pool.h: worker threads, one for each CPU that the process may use. */
#ifndef ATTN_POOL_H
#define ATTN_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

typedef struct attn_pool attn_pool;

/* Called once for each task number 0 .. n-1, in any order; `worker` is 0 .. size-1, and no two
 * calls with the same worker overlap. In workers but the caller subnormal numbers count as zero. */
typedef void attn_task(void *arg, size_t task, size_t worker);

/* Starts threads-1 workers (the caller of attn_pool_run() is worker 0). With `pin`, worker w stays on
 * the w-th CPU of the affinity mask that the calling thread has now, counted round when there are
 * more workers than CPUs (the caller pins itself with attn_pool_pin_caller()). Workers block all
 * signals and have 2 MiB stacks. threads >= 1. ATTN_EIO when a thread cannot be made. */
ATTN_NODISCARD attn_status attn_pool_new(attn_pool **out, size_t threads, bool pin,
                                         attn_error *err);
void attn_pool_free(attn_pool *p); /* takes NULL; no run may be under way */
size_t attn_pool_size(const attn_pool *p);

/* Runs fn for n tasks and returns when all are done. One caller at a time. */
void attn_pool_run(attn_pool *p, size_t n, attn_task *fn, void *arg);

/* Puts the calling thread on worker 0's CPU when the pool was made with `pin`. */
void attn_pool_pin_caller(const attn_pool *p);

#endif
