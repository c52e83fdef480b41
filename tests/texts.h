/* texts.h: varied texts for tokenisers, the same everywhere. */
#ifndef TESTS_TEXTS_H
#define TESTS_TEXTS_H

#include <stddef.h>

enum { TEXTS = 12000, TEXT_BYTES = 1 << 15 };

/* Writes text number i < TEXTS, valid UTF-8 that may hold NUL, and returns its bytes: every code point
 * of the first planes in rows of 64, then sentences of all scripts with what may upset a tokeniser. */
size_t text_make(size_t i, char out[TEXT_BYTES]);

/* The longest prefix of at most `most` bytes that ends between characters. */
size_t text_cut(const char *s, size_t n, size_t most);

#endif
