#include "budget.h"

#include <assert.h>
#include <stdbool.h>

void attn_budget_init(attn_budget *b, size_t limit)
{
    b->limit = limit;
    atomic_init(&b->used, 0);
    atomic_init(&b->peak, 0);
}

static attn_status refuse(attn_error *err, attn_status code, size_t needed, size_t used,
                          size_t limit)
{
    bool first = err != NULL && err->code == ATTN_OK;

    if (code == ATTN_ETOOBIG)
        (void)attn_fail(err, code, "%zu bytes are needed, and the memory budget is %zu bytes",
                        needed, limit);
    else
        (void)attn_fail(err, code,
                        "%zu bytes are needed, and %zu of the memory budget's %zu bytes are in use",
                        needed, used, limit);
    if (first) {
        err->needed = needed;
        err->limit = limit;
    }
    return code;
}

attn_status attn_budget_reserve(attn_budget *b, size_t n, attn_error *err)
{
    if (n > b->limit)
        return refuse(err, ATTN_ETOOBIG, n, 0, b->limit);

    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    do {
        if (n > b->limit - used)
            return refuse(err, ATTN_EBUSY, n, used, b->limit);
    } while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used + n, memory_order_relaxed,
                                                    memory_order_relaxed));

    size_t peak = atomic_load_explicit(&b->peak, memory_order_relaxed);
    while (peak < used + n &&
           !atomic_compare_exchange_weak_explicit(&b->peak, &peak, used + n, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
    return ATTN_OK;
}

void attn_budget_release(attn_budget *b, size_t n)
{
    size_t used = atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed);
    assert(used >= n);
    (void)used;
}
