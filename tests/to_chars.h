/* to_chars.h: the shortest text of a float32 as the C++ library has it, which is what ours has to be. */
#ifndef TESTS_TO_CHARS_H
#define TESTS_TO_CHARS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes at most 16 bytes without a NUL and returns how many. x must be finite. */
size_t to_chars(char *out, float x);

#ifdef __cplusplus
}
#endif
#endif
