/* kern_layer.h: what stands between the products of a layer, for any vectors: activations and LayerNorm. Included by
 * kern_<isa>.c alone, after kern_rows.h, whose macros it uses, and these:
 *
 *   MIN(a, b), ABS(v), DIV(a, b) */

/* log Phi(-z) for 0 <= z <= 6, exact at 0. By least squares, reweighted so that the error of z Phi(-z) is at most 1e-8
 * and that of Phi itself grows from 6e-8 below 1 to 8e-6 at 6; farther out z Phi(-z) is less than z 1e-9. */
INLINE VECTOR log_tail(VECTOR z)
{
    static const float c[] = {4.6856101e-07F,  -6.2158583e-06F, 4.4759119e-05F, -0.00016496504F,
                              -6.0815539e-05F, 0.0048901862F,   -0.03639999F,   -0.31829157F,
                              -0.79788631F,    -0.69314718F};
    VECTOR x = MIN(z, SPLAT(6.0F)), p = SPLAT(-1.5134599e-08F);

    /* clang-format off */
    UNROLL for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        p = FMA(p, x, SPLAT(c[i]));
    /* clang-format on */
    return p;
}

/* |x| times what lies beyond it in the distribution: Phi's tail, or e/(1+e), e = exp(-u), the logistic one's. */
INLINE VECTOR below(const attn_activation kind, VECTOR z)
{
    VECTOR u = z;

    if (kind == ATTN_GELU)
        return MUL(z, EXP(log_tail(z)));
    if (kind == ATTN_GELU_TANH) /* 2 sqrt(2/pi) (z + 0.044715 z^3) */
        u = MUL(z, FMA(MUL(z, z), SPLAT(0.071354816F), SPLAT(1.5957691F)));
    VECTOR e = EXP(SUB(ZERO(), u));
    return DIV(MUL(z, e), ADD(e, SPLAT(1.0F)));
}

/* All of them are max(x, 0) less an even function. */
INLINE VECTOR activated(const attn_activation kind, VECTOR x)
{
    if (kind == ATTN_RELU)
        return ADD(MAX(x, ZERO()), MUL(x, ZERO())); /* NaN stays */
    return SUB(MAX(x, ZERO()), below(kind, ABS(x)));
}

INLINE void activate_rows(const attn_activate *a, const attn_activation kind)
{
    for (size_t r = 0; r < a->rows; r++) {
        float *x = a->x + r * a->ld;
        const float *gate = a->gate != NULL ? a->gate + r * a->gate_ld : NULL;
        size_t i = 0;

        for (; i + LANES <= a->n; i += LANES) {
            VECTOR v = activated(kind, LOAD(x + i));
            STORE(x + i, gate != NULL ? MUL(v, LOAD(gate + i)) : v);
        }
        if (i < a->n) {
            VECTOR v = activated(kind, LOAD_PART(x + i, a->n - i));
            STORE_PART(x + i, a->n - i, gate != NULL ? MUL(v, LOAD_PART(gate + i, a->n - i)) : v);
        }
    }
}

static void activate(const attn_activate *a)
{
    switch (a->kind) {
    case ATTN_GELU:
        activate_rows(a, ATTN_GELU);
        break;
    case ATTN_GELU_TANH:
        activate_rows(a, ATTN_GELU_TANH);
        break;
    case ATTN_RELU:
        activate_rows(a, ATTN_RELU);
        break;
    case ATTN_SILU:
        activate_rows(a, ATTN_SILU);
        break;
    }
}

/* sum = x + add, and the sum of that. */
INLINE float add_row(float *sum, const float *x, const float *add, size_t n)
{
    VECTOR total = ZERO();
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        VECTOR v = add != NULL ? ADD(LOAD(x + i), LOAD(add + i)) : LOAD(x + i);
        STORE(sum + i, v);
        total = ADD(total, v);
    }
    if (i < n) {
        VECTOR v = LOAD_PART(x + i, n - i);
        if (add != NULL)
            v = ADD(v, LOAD_PART(add + i, n - i));
        STORE_PART(sum + i, n - i, v);
        total = ADD(total, v);
    }
    return SUM_OF(total);
}

/* out = x - mean, and the sum of its squares. */
INLINE float center_row(float *out, const float *x, float mean, size_t n)
{
    VECTOR m = SPLAT(mean), total = ZERO();
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        VECTOR v = SUB(LOAD(x + i), m);
        STORE(out + i, v);
        total = FMA(v, v, total);
    }
    if (i < n) {
        STORE_PART(out + i, n - i, SUB(LOAD_PART(x + i, n - i), m));
        VECTOR v = LOAD_PART(out + i, n - i); /* zeros behind the end */
        total = FMA(v, v, total);
    }
    return SUM_OF(total);
}

static void norm(const attn_norm *m)
{
    for (size_t r = 0; r < m->rows; r++) {
        float *out = m->out + r * m->n, *sum = m->sum != NULL ? m->sum + r * m->n : out;
        float total =
            add_row(sum, m->x + r * m->n, m->add != NULL ? m->add + r * m->n : NULL, m->n);
        float squares = center_row(out, sum, total / (float)m->n, m->n);
        VECTOR factor = SPLAT(1.0F / sqrtf(squares / (float)m->n + m->eps));
        size_t i = 0;

        for (; i + LANES <= m->n; i += LANES) {
            VECTOR v = MUL(LOAD(out + i), factor);
            STORE(out + i, m->bias != NULL ? FMA(v, LOAD(m->weight + i), LOAD(m->bias + i))
                                           : MUL(v, LOAD(m->weight + i)));
        }
        if (i < m->n) {
            size_t some = m->n - i;
            VECTOR v = MUL(LOAD_PART(out + i, some), factor), w = LOAD_PART(m->weight + i, some);
            STORE_PART(out + i, some,
                       m->bias != NULL ? FMA(v, w, LOAD_PART(m->bias + i, some)) : MUL(v, w));
        }
    }
}
