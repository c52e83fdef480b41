/* kern_tile.h: the matrix product on packed panels, for any vectors. Included by kern_<isa>.c alone, which has
 * defined before:
 *
 *   VECTOR                        the type of a vector of LANES floats
 *   LANES, PANEL, CHUNK_FLOATS    enumerators; PANEL is at most 4 * LANES
 *   ROWS_1 .. ROWS_4              rows of a tile that is 1 to 4 vectors wide
 *   ZERO(), LOAD(p), STORE(p, v), BROADCAST(p), FMA(x, b, acc) = x b + acc
 *   LOAD_PART(p, n), STORE_PART(p, n, v)   the first n floats, 1 <= n < LANES; the others are zero
 *   AHEAD(p)                      asks for the line at p, or nothing
 *   UNROLL, INLINE
 *
 * A tile is `rows` by v vectors of accumulators that stay in registers while k runs. k runs in chunks, so that
 * the chunk of the panel stays in a near cache while all rows pass over it; tiles ask for what comes next, a
 * line now and then where there are many of them: all at once, the requests would hold up the loads that tiles wait
 * for (measured: 5 % at 128 rows). An element is one chain of multiply-adds in order of k, so its bits do not depend on the tiling. */

enum { LINE = 16 }; /* floats of a line of the caches */

typedef struct {
    size_t k;
    const float *a;
    size_t lda;
    const float *b;
    float *c;
    size_t ldc;
    const float *bias; /* used when the chunk is the first one of a product */
    bool load;
    size_t last;       /* real lanes of the last vector of a row, 1 to LANES */
    const float *next; /* the chunk to be fetched ahead, or NULL */
} chunk;

/* Step l of k. */
INLINE void step(const chunk *t, const float *a, size_t l, const size_t rows, const size_t v,
                 VECTOR (*acc)[4])
{
    VECTOR b[4];

    /* clang-format off */
    UNROLL for (size_t j = 0; j < v; j++)
        b[j] = LOAD(t->b + (l * v + j) * LANES);
    UNROLL for (size_t r = 0; r < rows; r++) {
        VECTOR x = BROADCAST(a + r * t->lda + l);
        UNROLL for (size_t j = 0; j < v; j++)
            acc[r][j] = FMA(x, b[j], acc[r][j]);
    }
    /* clang-format on */
}

/* `lines` are asked for from `ahead` on with every four steps. */
INLINE void tile(const chunk *t, size_t row, const size_t rows, const size_t v, const size_t lines,
                 const float *ahead)
{
    VECTOR acc[12][4];
    const float *a = t->a + row * t->lda;
    float *c = t->c + row * t->ldc;
    size_t l = 0;

    /* clang-format off */
    UNROLL for (size_t r = 0; r < rows; r++) {
        const float *from = t->load ? c + r * t->ldc : t->bias;
        UNROLL for (size_t j = 0; j < v; j++) {
            if (from == NULL)
                acc[r][j] = ZERO();
            else if (j + 1 < v || t->last == LANES)
                acc[r][j] = LOAD(from + j * LANES);
            else
                acc[r][j] = LOAD_PART(from + j * LANES, t->last);
        }
    }
    for (; l + 4 <= t->k; l += 4) {
        UNROLL for (size_t i = 0; i < lines; i++)
            AHEAD(ahead + (l / 4 * lines + i) * LINE);
        UNROLL for (size_t i = 0; i < 4; i++)
            step(t, a, l + i, rows, v, acc);
    }
    for (; l < t->k; l++)
        step(t, a, l, rows, v, acc);
    UNROLL for (size_t r = 0; r < rows; r++) {
        UNROLL for (size_t j = 0; j < v; j++) {
            float *to = c + r * t->ldc + j * LANES;
            if (j + 1 < v || t->last == LANES)
                STORE(to, acc[r][j]);
            else
                STORE_PART(to, t->last, acc[r][j]);
        }
    }
    /* clang-format on */
}

/* Tiles from row i on until all that comes next is asked for; returns the row behind them. */
INLINE size_t fetching_tiles(const chunk *t, size_t m, const size_t rows, const size_t v,
                             const size_t lines)
{
    size_t i = 0, each = t->k / 4 * lines * LINE;

    for (size_t done = 0; i + rows <= m && done < t->k * v * LANES; i += rows, done += each)
        tile(t, i, rows, v, lines, t->next + done);
    return i;
}

/* All m rows: tiles of `rows`, then smaller ones. */
INLINE void tiles(const chunk *t, size_t m, const size_t rows, const size_t v)
{
    enum { MANY = 6 };
    size_t i = 0;

    if (t->next != NULL && t->k >= 4)
        i = m / rows >= 4 * v * LANES / LINE ? fetching_tiles(t, m, rows, v, 1)
                                             : fetching_tiles(t, m, rows, v, MANY);
    for (; i + rows <= m;
         i += rows) /* a line that is there costs less than one more kind of tile */
        tile(t, i, rows, v, 1, t->b);
    for (; rows > 4 && i + 4 <= m; i += 4)
        tile(t, i, 4, v, 0, NULL);
    for (; i + 2 <= m; i += 2)
        tile(t, i, 2, v, 0, NULL);
    if (i < m)
        tile(t, i, 1, v, 0, NULL);
}

static void tiles_1(const chunk *t, size_t m)
{
    tiles(t, m, ROWS_1, 1);
}

static void tiles_2(const chunk *t, size_t m)
{
    tiles(t, m, ROWS_2, 2);
}

#ifdef ROWS_3
static void tiles_3(const chunk *t, size_t m)
{
    tiles(t, m, ROWS_3, 3);
}

static void tiles_4(const chunk *t, size_t m)
{
    tiles(t, m, ROWS_4, 4);
}
#endif

static void product(const attn_product *p)
{
    static void (*const by_width[])(const chunk *t, size_t m) = {
        tiles_1,
        tiles_2,
#ifdef ROWS_3
        tiles_3,
        tiles_4,
#endif
    };
    if (p->n == 0)
        return;
    size_t v = (p->n + LANES - 1) / LANES, most = CHUNK_FLOATS / (v * LANES), done = 0;
    do {
        size_t k = p->k - done < most ? p->k - done : most;
        chunk t = {
            .k = k,
            .a = p->a + done,
            .lda = p->lda,
            .b = p->b + done * v * LANES,
            .c = p->c,
            .ldc = p->ldc,
            .bias = p->bias,
            .load = done != 0,
            .last = p->n - (v - 1) * LANES,
            .next = done + k < p->k ? p->b + (done + k) * v * LANES : p->next,
        };
        by_width[v - 1](&t, p->m);
        done += k;
    } while (done < p->k);
}
