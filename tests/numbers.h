/* numbers.h: texts of numbers, to hold a reader of decimals against. */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBERS_LONGEST 1000 /* bytes, with the NUL */

/* A random text and its length: floats and doubles as programs print them, midpoints of two floats
 * and their neighbours, strings of digits, exponents at both ends. One in `one_bad_in` (0 = none) is
 * damaged: it may not be a number any more. Few are longer than 60 bytes unless `longer`. */
size_t numbers_random(char text[NUMBERS_LONGEST], uint64_t *seed, unsigned one_bad_in, bool longer);

/* Is text[0..n) a number of JSON, whole? */
bool numbers_is_json(const char *text, size_t n);

uint64_t numbers_next(uint64_t *seed); /* splitmix64 */

#endif
