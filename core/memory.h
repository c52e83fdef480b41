/* memory.h: large blocks for weights and workspaces. */
#ifndef ATTN_MEMORY_H
#define ATTN_MEMORY_H

#include <stddef.h>

/* A block of `bytes`, aligned to 64, for free(); NULL without memory. A block of several MiB asks for huge
 * pages, all but its end: products walk over far more pages than the processor remembers (measured: 8 %
 * less time at [1,128,768] and [1,1024,512]). */
void *attn_block_alloc(size_t bytes);

#endif
