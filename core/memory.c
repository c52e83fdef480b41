#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, LEAST = 2 * HUGE_PAGE, LINE = 64 };

void *attn_block_alloc(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, bytes >= LEAST ? HUGE_PAGE : LINE, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LEAST) /* a wish: where it is refused, small pages serve as well */
        (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return p;
}
