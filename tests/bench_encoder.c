/* Times a whole encoder: bench_encoder FOLDER [maps] SHAPE...; a shape is a length, "BxT", or "mixed", 32 sequences of 8
 * to 128 tokens. Prints one JSON object a line: the median and the least of many calls, in ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/encoder.h"
#include "core/kern.h"
#include "core/memory.h"

enum { MOST_SEQUENCES = 256, MOST_CALLS = 4000 };

typedef struct {
    const attn_encoder *e;
    attn_pool *pool;
    attn_encode_options options;
    attn_encode_sequence seqs[MOST_SEQUENCES];
    size_t n, tokens;
} bench;

static void die(const char *text)
{
    fprintf(stderr, "bench_encoder: %s\n", text);
    exit(1);
}

static void *get(size_t n)
{
    void *p = attn_block_alloc(n);

    if (p == NULL)
        die("not enough memory");
    memset(p, 0, n);
    return p;
}

static double now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The lengths of "mixed", the same wherever they are wanted. */
static size_t mixed_length(size_t i)
{
    return 8 + i * 73 % 121;
}

static void add_sequence(bench *b, size_t length)
{
    const attn_encoder_info *info = attn_encoder_get_info(b->e);
    int32_t *ids = get(length * sizeof *ids);
    size_t maps = length * length * info->num_heads;

    for (size_t t = 0; t < length; t++)
        ids[t] = (int32_t)((1000 + 37 * t + b->n) % info->vocabulary);
    b->seqs[b->n++] = (attn_encode_sequence){
        .tokens = length,
        .ids = ids,
        .embedding = get(info->d_model * sizeof(float)),
        .map_rows = length,
        .map_columns = length,
        .maps = {b->options.num_map_layers == 0 ? NULL
                                                : get(maps * info->num_layers * sizeof(float)),
                 length * length, length},
        .maps_stride = maps,
    };
    b->tokens += length;
}

static void drop_sequences(bench *b)
{
    for (; b->n > 0; b->n--) {
        attn_encode_sequence *s = &b->seqs[b->n - 1];
        free((void *)(uintptr_t)s->ids);
        free(s->embedding);
        free(s->maps.data);
    }
    b->tokens = 0;
}

static void read_shape(bench *b, const char *shape)
{
    size_t count = 1, length = 0;

    if (strcmp(shape, "mixed") == 0) {
        for (size_t i = 0; i < 32; i++)
            add_sequence(b, mixed_length(i));
        return;
    }
    if (sscanf(shape, "%zux%zu", &count, &length) != 2) {
        count = 1;
        length = strtoul(shape, NULL, 10);
    }
    if (count == 0 || count > MOST_SEQUENCES || length == 0 ||
        length > attn_encoder_get_info(b->e)->max_tokens)
        die("no such shape");
    for (size_t i = 0; i < count; i++)
        add_sequence(b, length);
}

static void run(bench *b, const char *shape)
{
    static double ms[MOST_CALLS];
    double wanted = getenv("BENCH_MS") != NULL ? atof(getenv("BENCH_MS")) : 1000.0;
    size_t calls = 0, longest = 0, bytes = 0;
    attn_stats stats;
    attn_error err = {0};

    read_shape(b, shape);
    for (size_t i = 0; i < b->n; i++) {
        bytes += attn_encode_sequence_bytes(b->e, &b->options, &b->seqs[i]);
        longest = b->seqs[i].tokens > longest ? b->seqs[i].tokens : longest;
    }
    bytes += attn_encode_scratch_bytes(b->e, &b->options, longest, attn_pool_size(b->pool));
    void *workspace = get(bytes);
    for (double begin = now_ms(); calls < MOST_CALLS && now_ms() - begin < wanted; calls++) {
        double start = now_ms();
        if (attn_encode(b->e, &b->options, b->seqs, b->n, b->pool, workspace, NULL, &stats, &err) !=
            ATTN_OK)
            die(err.text);
        ms[calls] = now_ms() - start;
    }
    qsort(ms, calls, sizeof *ms, ascending);
    printf("{\"shape\":\"%s\",\"isa\":\"%s\",\"sequences\":%zu,\"tokens\":%zu,\"calls\":%zu,"
           "\"ms\":%.4f,\"least_ms\":%.4f,\"workspace_bytes\":%zu}\n",
           shape, attn_kernels.isa, b->n, b->tokens, calls, ms[calls / 2], ms[0], bytes);
    free(workspace);
    drop_sequences(b);
}

int main(int argc, char **argv)
{
    attn_error err = {0};
    attn_model *m = NULL;
    const char *reason = NULL;
    static bench b;
    bool maps = argc > 2 && strcmp(argv[2], "maps") == 0;
    long threads = getenv("BENCH_THREADS") != NULL ? atol(getenv("BENCH_THREADS"))
                                                   : sysconf(_SC_NPROCESSORS_ONLN);

    if (argc < 3)
        die("usage: bench_encoder FOLDER [maps] SHAPE...");
    if (attn_kern_init(getenv("BENCH_KERNELS"), &err) != ATTN_OK ||
        attn_model_load(&m, &(attn_model_options){.name = "m", .path = argv[1]}, &err) != ATTN_OK ||
        attn_pool_new(&b.pool, (size_t)threads, true, &err) != ATTN_OK)
        die(err.text);
    attn_pool_pin_caller(b.pool);
    b.e = attn_model_encoder(m, &reason);
    if (b.e == NULL)
        die(reason);
    const attn_encoder_info *info = attn_encoder_get_info(b.e);
    size_t *layers = get(info->num_layers * sizeof *layers);
    for (size_t l = 0; l < info->num_layers; l++)
        layers[l] = l;
    b.options = (attn_encode_options){.pooling = info->pooling,
                                      .normalize = info->normalize,
                                      .map_layers = layers,
                                      .num_map_layers = maps ? info->num_layers : 0,
                                      .maps = {.num_heads = info->num_heads}};
    for (int i = maps ? 3 : 2; i < argc; i++)
        run(&b, argv[i]);
    free(layers);
    attn_pool_free(b.pool);
    attn_model_free(m);
    return 0;
}
