/* budget.h: the ledger of bytes that requests may take. */
#ifndef ATTN_BUDGET_H
#define ATTN_BUDGET_H

#include <stdatomic.h>
#include <stddef.h>

#include "status.h"

typedef struct {
    size_t limit;              /* written before it is shared */
    _Atomic size_t used, peak; /* bytes reserved now, and the most since someone made it 0 */
} attn_budget;

void attn_budget_init(attn_budget *b, size_t limit);

/* ATTN_ETOOBIG: n is over the whole limit; ATTN_EBUSY: it does not fit beside what is reserved.
 * err->needed and err->limit say the bytes. Lock-free, any thread. */
ATTN_NODISCARD attn_status attn_budget_reserve(attn_budget *b, size_t n, attn_error *err);
void attn_budget_release(attn_budget *b, size_t n);

#endif
