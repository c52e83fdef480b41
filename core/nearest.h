/* nearest.h: "did you mean". */
#ifndef ATTN_NEAREST_H
#define ATTN_NEAREST_H

#include <stddef.h>

/* The entry of names[0..n) nearest to `name` by edit distance (insert, delete, replace, swap), or NULL
 * when none is near: the distance is more than a third of the longer one's length, but at least 1 is
 * always near enough. Names longer than 63 characters are compared by their first 63. */
const char *attn_nearest(const char *name, const char *const *names, size_t n);

#endif
