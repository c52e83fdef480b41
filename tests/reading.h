/* reading.h: a request body read in every way of cutting it, told as one line of text. */
#ifndef TESTS_READING_H
#define TESTS_READING_H

#include <stddef.h>

#include "server/json_reader.h"
#include "server/source.h"

/* The fields that these tests read; names and ranks as in API.md. */
extern const srv_field reading_fields[];
extern const size_t reading_num_fields;

/* Reads text[0..n) in pieces: first `head` bytes at once, the rest in pieces of `piece`. Returns what came
 * out, malloc()ed:
 *
 *   "inputs_embeds [1,2,2]: 1 0 0 1; layer: 3"     members that are present, in the fields' order
 *   "invalid /inputs_embeds/0/1 | row has ..."     a failure's code, pointer and sentence
 *
 * Holds that every byte that was charged is given back, and that arrays are charged exactly. */
char *reading_in_pieces(const char *text, size_t n, size_t head, size_t piece);

/* The same for the whole, held equal for every cut in two, byte by byte, and in threes. */
char *reading_all_ways(const char *text, size_t n);

/* `body` with ' for ", read in all ways, must give `want`. */
void reading_expect(const char *body, const char *want);

/* It must fail with this code's name, this pointer and a sentence that contains `says`. */
void reading_refuse(const char *body, const char *code, const char *pointer, const char *says);

/* A body in any form that is read. */
typedef struct {
    srv_body_type type;
    srv_coding coding;
    const char *query; /* NULL = none */
    bool chunked;      /* its length is not told before its end */
    const void *bytes;
    size_t n;
} reading_body;

/* The same two for such a body; .npy is the member inputs_embeds. The first holds that it does not matter
 * whether the length is told. Bodies over a few hundred bytes are not cut at every place. */
void reading_body_expect(const reading_body *b, const char *want);
void reading_body_refuse(const reading_body *b, const char *code, const char *pointer,
                         const char *says);

/* A growing text. */
typedef struct {
    char *p;
    size_t n;
} reading_text;
void reading_add(reading_text *t, const char *format, ...) ATTN_PRINTF(2, 3);
void reading_add_shape(reading_text *t, const srv_array *a); /* " [2,1,2] lengths 0 1:" */

#endif
