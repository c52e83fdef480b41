#include "dense.h"

#include "kern.h"

void attn_dense_multiply(const attn_dense *d, const attn_dense_part *p)
{
    size_t panel = attn_kernels.panel;

    for (size_t c = p->c0; c < p->c1; c += panel)
        attn_kernels.product(&(attn_product){
            .m = p->rows,
            .n = d->out - c < panel ? d->out - c : panel,
            .k = d->in,
            .a = p->x,
            .lda = p->ldx,
            .b = d->weight + c * d->in,
            .c = p->y + (c - p->c0),
            .ldc = p->ldy,
            .bias = d->bias == NULL ? NULL : d->bias + c,
            .next = c + panel < p->c1 ? d->weight + (c + panel) * d->in : p->next,
        });
}
