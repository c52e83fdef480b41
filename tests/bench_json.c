/* Times reading and writing tensors as JSON, against jansson doing the same work:
 *
 *   bench_json [-q] [ROUNDS]        -q leaves jansson out; 5 rounds unless said
 *
 * Reading ends with one array of float32, made from pieces of 64 KiB in one buffer, as a server gets
 * them; filling that buffer does not count. Writing fills such pieces. jansson reads the whole text
 * into its tree, which is then walked, and makes its whole text from such a tree. Both sides take
 * turns; the medians are shown. One thread, [32,128,768] numbers. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base64.h"
#include "core/decimal.h"
#include "server/json_reader.h"
#include "server/json_writer.h"

enum { B = 32, T = 128, D = 768, N = B * T * D, PIECE = 65536, MAX_ROUNDS = 99 };

static const size_t dims[3] = {B, T, D};

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "bench_json: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* --- the texts -------------------------------------------------------------------------------- */

typedef struct {
    char *p;
    size_t n;
} text;

typedef size_t print_number(char *out, float x);

static size_t print_9_digits(char *out, float x)
{
    return (size_t)sprintf(out, "%.9g", (double)x);
}

/* What Python's json.dumps() makes of a list of doubles. */
static size_t print_double(char *out, float x)
{
    double d = (double)x + (double)x / 0x1p31;

    size_t n = (size_t)sprintf(out, "%.16g", d);
    return strtod(out, NULL) == d ? n : (size_t)sprintf(out, "%.17g", d);
}

static size_t print_integer(char *out, float x)
{
    return (size_t)sprintf(out, "%d", (int)lrintf(fabsf(x) * 1000));
}

static size_t print_bit(char *out, float x)
{
    out[0] = x > 0 ? '1' : '0';
    return 1;
}

/* Probabilities of a softmax: many of them small. */
static size_t print_map(char *out, float x)
{
    return attn_f32_print(out, expf(8 * x) / 3000);
}

static const struct {
    const char *name;
    print_number *print;
    const char *comma;
} texts[] = {{"9 digits", print_9_digits, ","},        {"shortest", attn_f32_print, ","},
             {"Python's doubles", print_double, ", "}, {"maps", print_map, ","},
             {"integers", print_integer, ","},         {"0 and 1", print_bit, ","}};

static float *values(void)
{
    float *x = malloc(N * sizeof *x);
    unsigned s = 42;

    require(x != NULL, "no memory");
    for (size_t i = 0; i < N; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s / 2147483648.0 - 1);
    }
    return x;
}

static text make_text(const float *x, print_number *print, const char *comma)
{
    text t = {malloc((size_t)N * 32 + 64), 0};

    require(t.p != NULL, "no memory");
    t.n += (size_t)sprintf(t.p, "{\"inputs_embeds\":");
    for (size_t i = 0; i < N; i++) {
        if (i > 0)
            t.n += (size_t)sprintf(t.p + t.n, "%s%s",
                                   i % D == 0 ? (i % (T * D) == 0 ? "]]" : "]") : "", comma);
        if (i % D == 0)
            t.n += (size_t)sprintf(t.p + t.n, i == 0 ? "[[[" : i % (T * D) == 0 ? "[[" : "[");
        t.n += print(t.p + t.n, x[i]);
    }
    t.n += (size_t)sprintf(t.p + t.n, "]]]}");
    return t;
}

/* --- the work --------------------------------------------------------------------------------- */

static double sum; /* of what was read, so that all of it is needed */

/* Seconds. */
static double read_ours(const text *t)
{
    static const srv_field field = {"inputs_embeds", SRV_FLOATS, 2, 3, true};
    static char piece[PIECE];
    srv_json_reader *r = NULL;
    double time = -now();

    require(srv_json_reader_new(&r, &field, 1, NULL, NULL, NULL) == ATTN_OK, "no memory");
    for (size_t at = 0; at < t->n; at += PIECE) {
        size_t n = t->n - at < PIECE ? t->n - at : PIECE;
        time += now();
        memcpy(piece, t->p + at, n);
        time -= now();
        require(srv_json_reader_feed(r, piece, n, NULL) == ATTN_OK, "the reader refuses the text");
    }
    require(srv_json_reader_finish(r, NULL) == ATTN_OK, "the reader misses something");
    const srv_array *a = srv_json_reader_array(r, 0);
    require(a->count == N, "the reader lost numbers");
    sum += (double)a->data.f32[N / 2];
    srv_json_reader_free(r);
    return time + now();
}

static void read_jansson(const text *t)
{
    float *x = malloc(N * sizeof *x);
    size_t n = 0;
    json_t *document = json_loadb(t->p, t->n, 0, NULL);
    const json_t *lists = json_object_get(document, "inputs_embeds");

    require(x != NULL && lists != NULL, "jansson failed");
    for (size_t b = 0; b < json_array_size(lists); b++) {
        const json_t *list = json_array_get(lists, b);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *row = json_array_get(list, i);
            for (size_t d = 0; d < json_array_size(row); d++)
                x[n++] = (float)json_number_value(json_array_get(row, d));
        }
    }
    sum += (double)x[N / 2];
    json_decref(document);
    free(x);
}

static size_t write_ours(const float *x, bool base64)
{
    static char piece[PIECE];
    size_t all = 0, n = 0;
    srv_json_writer *w = srv_json_writer_new();

    require(w != NULL, "no memory");
    srv_json_writer_tensor(w, x, 3, dims, base64);
    while ((n = srv_json_writer_read(w, piece, PIECE)) > 0)
        all += n;
    srv_json_writer_free(w);
    return all;
}

static size_t write_jansson(const float *x)
{
    json_t *lists = json_array();

    for (size_t b = 0; b < B; b++) {
        json_t *list = json_array();
        for (size_t t = 0; t < T; t++) {
            json_t *row = json_array();
            for (size_t d = 0; d < D; d++)
                (void)json_array_append_new(row, json_real((double)*x++));
            (void)json_array_append_new(list, row);
        }
        (void)json_array_append_new(lists, list);
    }
    char *out = json_dumps(lists, JSON_COMPACT | JSON_REAL_PRECISION(9));
    require(out != NULL, "jansson failed");
    size_t n = strlen(out);
    free(out);
    json_decref(lists);
    return n;
}

/* --- the table -------------------------------------------------------------------------------- */

static void show(const char *what, size_t bytes, double ours, double peer)
{
    (void)printf("%-22s %7.1f %8.2f %9.1f %8.0f", what, (double)bytes / 1e6, ours * 1e3,
                 N / ours / 1e6, (double)bytes / ours / 1e6);
    if (peer > 0)
        (void)printf(" %10.1f %8.1f", N / peer / 1e6, peer / ours);
    (void)printf("\n");
    (void)fflush(stdout);
}

static void time_reading(const char *name, const text *t, size_t rounds, bool peer)
{
    double ours[MAX_ROUNDS], theirs[MAX_ROUNDS];
    char what[64];

    for (size_t i = 0; i < rounds; i++) {
        ours[i] = read_ours(t);
        theirs[i] = -now();
        if (peer)
            read_jansson(t);
        theirs[i] += now();
    }
    (void)snprintf(what, sizeof what, "read %s", name);
    show(what, t->n, median(ours, rounds), peer ? median(theirs, rounds) : 0);
}

static void time_writing(const char *name, const float *x, bool base64, size_t rounds, bool peer)
{
    double ours[MAX_ROUNDS], theirs[MAX_ROUNDS];
    char what[64];
    size_t bytes = 0;

    for (size_t i = 0; i < rounds; i++) {
        double start = now();
        bytes = write_ours(x, base64);
        ours[i] = now() - start;
        if (peer)
            (void)write_jansson(x);
        theirs[i] = now() - start - ours[i];
    }
    (void)snprintf(what, sizeof what, "write %s", name);
    show(what, bytes, median(ours, rounds), peer ? median(theirs, rounds) : 0);
}

static text make_base64(const float *x)
{
    const size_t bytes = N * sizeof *x;
    text t = {malloc(ATTN_BASE64_ENCODED(bytes) + 128), 0};

    require(t.p != NULL, "no memory");
    t.n = (size_t)sprintf(
        t.p, "{\"inputs_embeds\":{\"shape\":[%d,%d,%d],\"dtype\":\"float32\",\"data\":\"", B, T, D);
    attn_base64_encode(t.p + t.n, x, bytes);
    t.n += ATTN_BASE64_ENCODED(bytes);
    t.n += (size_t)sprintf(t.p + t.n, "\"}}");
    return t;
}

int main(int argc, char **argv)
{
    bool peer = !(argc > 1 && strcmp(argv[1], "-q") == 0);
    const char *count = argc > 1 + !peer ? argv[1 + !peer] : "5";
    size_t rounds = (size_t)strtoul(count, NULL, 10);
    float *x = values(), *maps = malloc(N * sizeof *maps);

    require(rounds > 0 && rounds <= MAX_ROUNDS, "usage: bench_json [-q] [ROUNDS]");
    require(maps != NULL, "no memory");
    for (size_t i = 0; i < N; i++)
        maps[i] = expf(8 * x[i]) / 3000;
    (void)printf("%-22s %7s %8s %9s %8s%s\n", "", "MB", "ms", "Mnum/s", "MB/s",
                 peer ? "    jansson    ratio" : "");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        text t = make_text(x, texts[i].print, texts[i].comma);
        time_reading(texts[i].name, &t, rounds, peer);
        free(t.p);
    }
    text t = make_base64(x);
    time_reading("base64", &t, rounds, false);
    free(t.p);
    time_writing("shortest", x, false, rounds, peer);
    time_writing("maps", maps, false, rounds, peer);
    time_writing("base64", x, true, rounds, false);
    free(maps);
    free(x);
    return isnan(sum);
}
