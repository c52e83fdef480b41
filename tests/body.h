/* body.h: request bodies and answers of the attention routes, for tests. */
#ifndef TESTS_BODY_H
#define TESTS_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BODY_MAX_RANK = 6 };

/* "3, sizes" for the calls below: body_floats(&b, "x", x, DIMS(2, 3, 4)). */
#define DIMS(...)                                                                                  \
    sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (const size_t[])                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* A JSON object under construction. Tensors go in as nested arrays, or with `base64` as tensor
 * objects, and the answer is asked for in the same form. */
typedef struct {
    char *text;
    size_t n, capacity;
    bool base64;
} test_body;

void body_init(test_body *b, bool base64);
void body_free(test_body *b);
const char *body_text(test_body *b); /* the finished object; nothing may be added after it */

void body_raw(test_body *b, const char *key, const char *json);
void body_printf(test_body *b, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* -inf in nested arrays becomes "-inf"; NaN and +inf need base64. */
void body_floats(test_body *b, const char *key, const float *x, size_t rank, const size_t *dim);
void body_doubles(test_body *b, const char *key, const double *x, size_t rank, const size_t *dim);
void body_bools(test_body *b, const char *key, const unsigned char *x, size_t rank,
                const size_t *dim);
void body_ints(test_body *b, const char *key, const int64_t *x, size_t rank, const size_t *dim);
/* A float16 tensor object, in both forms; x must be exact in float16. */
void body_halves(test_body *b, const char *key, const double *x, size_t rank, const size_t *dim);

/* One tensor of an answer. null becomes -inf. */
typedef struct {
    size_t rank, dim[BODY_MAX_RANK], count;
    float *data; /* NULL: nothing was there */
} test_tensor;

/* Reads nested arrays or a tensor object; the test fails when it is neither, is not a rectangle, or
 * does not have exactly these sizes. */
test_tensor answer_tensor(const json_t *value, const char *name, size_t rank, const size_t *dim);
/* The same without knowing the sizes. */
test_tensor answer_any(const json_t *value, const char *name);
void answer_free(test_tensor *t);

json_t *answer_parse(const char *text, size_t n); /* the test fails when it is not JSON */
/* By path: "intermediates.context"; NULL = not there. */
json_t *answer_get(json_t *root, const char *path);

/* x and y must agree within `tolerance`, absolute, where `where` (or everywhere) counts; infinities
 * must be equal. The message names `what` and the first culprit. */
void assert_close(const char *what, const float *x, const double *y, size_t n,
                  const unsigned char *where, double tolerance);
void assert_zeros(const char *what, const float *x, size_t n); /* +0 or -0, each */

#endif
