/* kern_rows.h: what is done to rows of numbers, for any vectors. Included by kern_<isa>.c alone, after
 * kern_tile.h, whose macros it uses, and these:
 *
 *   CHAINS                 an enumerator: accumulators that keep the multiply-adders busy
 *   SPLAT(f), ADD, SUB, MUL, MAX(x, acc) = the larger, acc where x is NaN
 *   EXP(x) = exp(x) for x <= 0; exactly 1 at 0 and 0 at -Infinity, NaN stays
 *   MAX_OF(v), SUM_OF(v)   of the lanes
 *   STREAM(p, v), FENCE()  a store past the caches, p a multiple of the vector; and the end of such stores */

static void softmax(const attn_softmax *s)
{
    for (size_t r = 0; r < s->rows; r++) {
        float *x = s->x + r * s->ld;
        VECTOR max0 = SPLAT(-INFINITY), max1 = max0, sum0 = ZERO(), sum1 = ZERO();
        size_t i = 0;

        for (; i + 2 * LANES <= s->n; i += 2 * LANES) {
            max0 = MAX(LOAD(x + i), max0);
            max1 = MAX(LOAD(x + i + LANES), max1);
        }
        if (i < s->n)
            max0 = MAX(LOAD(x + i), max0);
        float before = s->max[r], max = MAX_OF(MAX(max0, max1));
        max = max > before ? max : before;
        float origin = max == -INFINITY ? 0.0F : max;
        VECTOR v = SPLAT(origin);
        for (i = 0; i + 2 * LANES <= s->n; i += 2 * LANES) {
            VECTOR a = EXP(SUB(LOAD(x + i), v)), b = EXP(SUB(LOAD(x + i + LANES), v));
            STORE(x + i, a);
            STORE(x + i + LANES, b);
            sum0 = ADD(sum0, a);
            sum1 = ADD(sum1, b);
        }
        if (i < s->n) {
            VECTOR a = EXP(SUB(LOAD(x + i), v));
            STORE(x + i, a);
            sum0 = ADD(sum0, a);
        }
        float lanes[LANES];
        STORE(lanes, EXP(SPLAT(before - origin)));
        s->factor[r] = lanes[0];
        s->sum[r] = s->sum[r] * lanes[0] + SUM_OF(ADD(sum0, sum1));
        s->max[r] = max;
    }
}

static void scale(float *out, const float *x, size_t n, float factor)
{
    VECTOR f = SPLAT(factor);
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        STORE(out + i, MUL(LOAD(x + i), f));
    if (i < n)
        STORE_PART(out + i, n - i, MUL(LOAD_PART(x + i, n - i), f));
}

static void scale_add(float *out, const float *x, size_t n, float factor)
{
    VECTOR f = SPLAT(factor);
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        STORE(out + i, FMA(LOAD(out + i), f, LOAD(x + i)));
    if (i < n)
        STORE_PART(out + i, n - i, FMA(LOAD_PART(out + i, n - i), f, LOAD_PART(x + i, n - i)));
}

static void stream(float *out, const float *x, size_t n, float factor)
{
    VECTOR f = SPLAT(factor);
    size_t i = 0;

    if ((uintptr_t)out % sizeof f == 0) {
        for (; i + LANES <= n; i += LANES)
            STREAM(out + i, MUL(LOAD(x + i), f));
    }
    scale(out + i, x + i, n - i, factor);
}

static void end_streams(void)
{
    FENCE();
}

/* 0 * x is 0 for a finite x and NaN otherwise; a sum keeps a NaN. */
static bool all_finite(const float *x, size_t n)
{
    VECTOR sum0 = ZERO(), sum1 = ZERO(), zero = ZERO();
    size_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        sum0 = FMA(LOAD(x + i), zero, sum0);
        sum1 = FMA(LOAD(x + i + LANES), zero, sum1);
    }
    if (i + LANES <= n) {
        sum0 = FMA(LOAD(x + i), zero, sum0);
        i += LANES;
    }
    if (i < n)
        sum1 = FMA(LOAD_PART(x + i, n - i), zero, sum1);
    return SUM_OF(ADD(sum0, sum1)) == 0.0F;
}

static double fma_burst(size_t n)
{
    const VECTOR a = SPLAT(0.999F), b = SPLAT(0.001F);
    volatile float sink;
    VECTOR x[CHAINS];

    /* clang-format off */
    UNROLL for (size_t c = 0; c < CHAINS; c++)
        x[c] = SPLAT((float)c); /* not equal: equal chains would be computed once */
    for (size_t i = 0; i < n; i++) {
        UNROLL for (size_t c = 0; c < CHAINS; c++)
            x[c] = FMA(x[c], a, b);
    }
    UNROLL for (size_t c = 1; c < CHAINS; c++)
        x[0] = ADD(x[0], x[c]);
    /* clang-format on */
    sink = SUM_OF(x[0]);
    (void)sink;
    return 2.0 * LANES * CHAINS;
}
