/* decimal.h: float32 from and to decimal text, exact and independent of the locale. */
#ifndef ATTN_DECIMAL_H
#define ATTN_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

#define ATTN_F32_CHARS 16 /* the longest text that attn_f32_print() writes is shorter */

/* The float32 nearest to the JSON number text[0..n) (ties to even); values too small become (signed)
 * zero. False when the text is no number of JSON or its value is not finite as float32. */
bool attn_f32_parse(const char *text, size_t n, float *out);

/* The fast road through long lists: reads numbers text[0..n) that are each followed by a comma, which
 * is read too with the blanks behind it, or by ']', which is not. Stops after `max` numbers, after
 * the one before ']', and in front of whatever is anything else: not JSON's grammar, not finite as
 * float32, cut off by the end of the text. Returns how many numbers went to `out`; *used is how many
 * bytes they took. */
size_t attn_f32_scan(const char *text, size_t n, float *out, size_t max, size_t *used);

/* Writes the shortest text that reads back as the same float32 and returns its length, without a
 * NUL. Whole numbers have no point: 1, -0, 1e+30. x must be finite. */
size_t attn_f32_print(char out[ATTN_F32_CHARS], float x);

#define ATTN_F32_SLACK 8 /* bytes behind a row's text that attn_f32_print_row() may write over */

/* Prints x[0..n), each number followed by a comma, and returns the length; what is not finite becomes
 * null. `out` has room for n * ATTN_F32_CHARS + ATTN_F32_SLACK bytes. */
size_t attn_f32_print_row(char *out, const float *x, size_t n);

#endif
