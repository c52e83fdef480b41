#include "nearest.h"

#include <string.h>

enum { LONGEST = 63 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Optimal string alignment distance: three rows of the usual table. */
static size_t distance(const char *a, size_t la, const char *b, size_t lb)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];

    for (size_t j = 0; j <= lb; j++)
        last[j] = j;
    for (size_t i = 1; i <= la; i++) {
        now[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min3(replace, last[j] + 1, now[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min3(now[j], before[j - 2] + 1, now[j]);
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[lb];
}

const char *attn_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = (size_t)-1;
    size_t length = strnlen(name, LONGEST);

    for (size_t i = 0; i < n; i++) {
        size_t other = strnlen(names[i], LONGEST);
        size_t d = distance(name, length, names[i], other);
        size_t longer = length > other ? length : other;
        size_t allowed = longer / 3 > 1 ? longer / 3 : 1;
        if (d <= allowed && d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
