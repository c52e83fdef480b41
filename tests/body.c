#include "tests/body.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/st.h"

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* --- bodies -------------------------------------------------------------------------------- */

static void add(test_body *b, const char *text, size_t n)
{
    if (b->n + n + 1 > b->capacity) {
        b->capacity = 2 * (b->n + n) + 1024;
        b->text = realloc(b->text, b->capacity);
        assert_non_null(b->text);
    }
    memcpy(b->text + b->n, text, n);
    b->n += n;
    b->text[b->n] = '\0';
}

static void add_text(test_body *b, const char *text)
{
    add(b, text, strlen(text));
}

static void add_key(test_body *b, const char *key)
{
    if (b->n > 1)
        add_text(b, ",");
    add_text(b, "\"");
    add_text(b, key);
    add_text(b, "\":");
}

void body_init(test_body *b, bool base64)
{
    memset(b, 0, sizeof *b);
    b->base64 = base64;
    add_text(b, "{");
    if (base64)
        body_raw(b, "encoding_format", "\"base64\"");
}

void body_free(test_body *b)
{
    free(b->text);
    memset(b, 0, sizeof *b);
}

const char *body_text(test_body *b)
{
    add_text(b, "}");
    return b->text;
}

void body_raw(test_body *b, const char *key, const char *json)
{
    add_key(b, key);
    add_text(b, json);
}

void body_printf(test_body *b, const char *key, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    body_raw(b, key, text);
}

static size_t product(size_t rank, const size_t *dim)
{
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= dim[i];
    return n;
}

/* Nested arrays; print() writes element i. */
static void add_nested(test_body *b, size_t rank, const size_t *dim, const void *x,
                       void (*print)(char text[40], const void *x, size_t i))
{
    size_t n = product(rank, dim);
    char text[40];

    if (n == 0) { /* whatever is beside the empty axis: brackets down to it */
        for (size_t i = 0; i < rank && (i == 0 || dim[i - 1] > 0); i++)
            add_text(b, "[");
        for (size_t i = 0; i < rank && (i == 0 || dim[i - 1] > 0); i++)
            add_text(b, "]");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t inner = 1;
        if (i > 0)
            add_text(b, ",");
        for (size_t r = rank; r-- > 0;) {
            inner *= dim[r];
            if (i % inner == 0)
                add_text(b, "[");
        }
        print(text, x, i);
        add_text(b, text);
        inner = 1;
        for (size_t r = rank; r-- > 0;) {
            inner *= dim[r];
            if ((i + 1) % inner == 0)
                add_text(b, "]");
        }
    }
}

static void add_base64(test_body *b, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)bytes[i] << 16;
        v |= i + 1 < n ? (unsigned)bytes[i + 1] << 8 : 0;
        v |= i + 2 < n ? bytes[i + 2] : 0;
        char four[4] = {ALPHABET[v >> 18], ALPHABET[v >> 12 & 63],
                        i + 1 < n ? ALPHABET[v >> 6 & 63] : '=',
                        i + 2 < n ? ALPHABET[v & 63] : '='};
        add(b, four, 4);
    }
}

static void add_tensor_object(test_body *b, const char *dtype, const void *data, size_t bytes,
                              size_t rank, const size_t *dim)
{
    char text[40];
    add_text(b, "{\"shape\":[");
    for (size_t i = 0; i < rank; i++) {
        snprintf(text, sizeof text, "%s%zu", i > 0 ? "," : "", dim[i]);
        add_text(b, text);
    }
    add_text(b, "],\"dtype\":\"");
    add_text(b, dtype);
    add_text(b, "\",\"data\":\"");
    add_base64(b, data, bytes);
    add_text(b, "\"}");
}

static void print_float(char text[40], const void *x, size_t i)
{
    float value = ((const float *)x)[i];
    if (value == -INFINITY)
        strcpy(text, "\"-inf\"");
    else if (!isfinite(value))
        fail_msg("NaN and +inf need base64");
    else
        snprintf(text, 40, "%.9g", (double)value);
}

static void print_bool(char text[40], const void *x, size_t i)
{
    strcpy(text, ((const unsigned char *)x)[i] ? "true" : "false");
}

static void print_int(char text[40], const void *x, size_t i)
{
    snprintf(text, 40, "%lld", (long long)((const int64_t *)x)[i]);
}

void body_floats(test_body *b, const char *key, const float *x, size_t rank, const size_t *dim)
{
    add_key(b, key);
    if (b->base64)
        add_tensor_object(b, "float32", x, product(rank, dim) * 4, rank, dim);
    else
        add_nested(b, rank, dim, x, print_float);
}

void body_doubles(test_body *b, const char *key, const double *x, size_t rank, const size_t *dim)
{
    size_t n = product(rank, dim);
    float *narrow = malloc((n + 1) * sizeof *narrow);
    assert_non_null(narrow);
    for (size_t i = 0; i < n; i++)
        narrow[i] = (float)x[i];
    body_floats(b, key, narrow, rank, dim);
    free(narrow);
}

void body_bools(test_body *b, const char *key, const unsigned char *x, size_t rank,
                const size_t *dim)
{
    add_key(b, key);
    if (b->base64)
        add_tensor_object(b, "bool", x, product(rank, dim), rank, dim);
    else
        add_nested(b, rank, dim, x, print_bool);
}

void body_ints(test_body *b, const char *key, const int64_t *x, size_t rank, const size_t *dim)
{
    add_key(b, key);
    if (b->base64)
        add_tensor_object(b, "int64", x, product(rank, dim) * 8, rank, dim);
    else
        add_nested(b, rank, dim, x, print_int);
}

void body_halves(test_body *b, const char *key, const double *x, size_t rank, const size_t *dim)
{
    size_t n = product(rank, dim);
    uint16_t *bits = malloc((n + 1) * sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; i < n; i++)
        bits[i] = st_half_bits((float)x[i]);
    add_key(b, key);
    add_tensor_object(b, "float16", bits, n * 2, rank, dim);
    free(bits);
}

/* --- answers ------------------------------------------------------------------------------- */

json_t *answer_parse(const char *text, size_t n)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("the answer is not JSON: %s", error.text);
    return root;
}

json_t *answer_get(json_t *root, const char *path)
{
    char name[64];
    while (root != NULL && *path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        root = json_object_get(root, name);
        path += n + (path[n] == '.');
    }
    return root;
}

static void decode_object(test_tensor *t, const json_t *value, const char *name)
{
    const char *data = json_string_value(json_object_get(value, "data"));
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    json_t *shape = json_object_get(value, "shape"), *dim;
    size_t i, n = 0;

    if (data == NULL || dtype == NULL || strcmp(dtype, "float32") != 0)
        fail_msg("%s is not a float32 tensor object", name);
    t->rank = json_array_size(shape);
    assert_true(t->rank <= BODY_MAX_RANK);
    json_array_foreach(shape, i, dim) t->dim[i] = (size_t)json_integer_value(dim);
    t->count = product(t->rank, t->dim);
    size_t length = strlen(data);
    unsigned char *bytes = calloc(length + 4, 1);
    assert_non_null(bytes);
    for (i = 0; i + 4 <= length; i += 4) {
        unsigned v = 0;
        for (size_t c = 0; c < 4; c++) {
            const char *at = strchr(ALPHABET, data[i + c]);
            v = v << 6 | (data[i + c] != '=' && at != NULL ? (unsigned)(at - ALPHABET) : 0);
        }
        bytes[n++] = (unsigned char)(v >> 16);
        bytes[n++] = (unsigned char)(v >> 8);
        bytes[n++] = (unsigned char)v;
    }
    for (; length > 0 && data[length - 1] == '='; length--)
        n--;
    if (n != t->count * sizeof(float))
        fail_msg("%s has %zu bytes for %zu elements", name, n, t->count);
    t->data = malloc(n + 1);
    assert_non_null(t->data);
    memcpy(t->data, bytes, n);
    free(bytes);
}

/* The recursion is as deep as BODY_MAX_RANK. */
static void fill_nested(test_tensor *t, const json_t *value, size_t level, const char *name,
                        size_t *at)
{
    if (level == t->rank) {
        if (!json_is_number(value) && !json_is_null(value))
            fail_msg("%s holds something that is neither number nor null", name);
        t->data[(*at)++] = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
        return;
    }
    if (!json_is_array(value) || json_array_size(value) != t->dim[level])
        fail_msg("%s is no rectangle", name);
    for (size_t i = 0; i < t->dim[level]; i++)
        fill_nested(t, json_array_get(value, i), level + 1, name, at);
}

test_tensor answer_any(const json_t *value, const char *name)
{
    test_tensor t = {0};
    if (value == NULL)
        fail_msg("the answer has no %s", name);
    if (json_is_object(value)) {
        decode_object(&t, value, name);
        return t;
    }
    for (const json_t *v = value; json_is_array(v); v = json_array_get(v, 0)) {
        assert_true(t.rank < BODY_MAX_RANK);
        t.dim[t.rank++] = json_array_size(v);
    }
    t.count = product(t.rank, t.dim);
    t.data = malloc((t.count + 1) * sizeof *t.data);
    assert_non_null(t.data);
    size_t at = 0;
    fill_nested(&t, value, 0, name, &at);
    return t;
}

test_tensor answer_tensor(const json_t *value, const char *name, size_t rank, const size_t *dim)
{
    test_tensor t = answer_any(value, name);
    bool same = t.rank == rank;
    for (size_t i = 0; same && i < rank; i++)
        same = t.dim[i] == dim[i];
    /* Nested arrays cannot show what lies below an axis of none. */
    if (!same && !(json_is_array(value) && t.count == 0 && product(rank, dim) == 0)) {
        for (size_t i = 0; i < t.rank; i++)
            printf("%s: axis %zu has %zu\n", name, i, t.dim[i]);
        fail_msg("%s has another shape", name);
    }
    return t;
}

void answer_free(test_tensor *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

void assert_close(const char *what, const float *x, const double *y, size_t n,
                  const unsigned char *where, double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        if ((where != NULL && !where[i]) || (double)x[i] == y[i])
            continue;
        if (!(fabs((double)x[i] - y[i]) <= tolerance))
            fail_msg("%s[%zu] is %.9g, expected %.9g within %.2g", what, i, (double)x[i], y[i],
                     tolerance);
    }
}

void assert_zeros(const char *what, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0)
            fail_msg("%s[%zu] is %.9g, expected 0", what, i, (double)x[i]);
    }
}
