#include "kern.h"

#include <math.h>

enum { PANEL = 16 };

static void product_ref(const attn_product *p)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            float *c = &p->c[i * p->ldc + j];
            float sum = p->bias != NULL ? p->bias[j] : 0.0F;
            size_t width = (p->n + PANEL - 1) / PANEL * PANEL;
            for (size_t l = 0; l < p->k; l++)
                sum += p->a[i * p->lda + l] * p->b[l * width + j];
            *c = sum;
        }
    }
}

/* A sum is kept in double while it grows: a row of 2^20 keys then still sums to 1 within float32's last digit. */
static void softmax_ref(const attn_softmax *s)
{
    for (size_t r = 0; r < s->rows; r++) {
        float *x = s->x + r * s->ld, max = s->max[r];
        double sum = 0.0;
        for (size_t i = 0; i < s->n; i++)
            max = x[i] > max ? x[i] : max;
        float origin = max == -INFINITY ? 0.0F : max;
        for (size_t i = 0; i < s->n; i++) {
            x[i] = expf(x[i] - origin);
            sum += (double)x[i];
        }
        s->factor[r] = expf(s->max[r] - origin);
        s->sum[r] = (float)((double)s->sum[r] * (double)s->factor[r] + sum);
        s->max[r] = max;
    }
}

static void scale_ref(float *out, const float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

static void scale_add_ref(float *out, const float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        out[i] = factor * out[i] + x[i];
}

static double activated(attn_activation kind, double x)
{
    static const double inverse_root_2 = 0.70710678118654752, root_2_by_pi = 0.79788456080286536;

    switch (kind) {
    case ATTN_GELU:
        return 0.5 * x * erfc(-x * inverse_root_2);
    case ATTN_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(root_2_by_pi * (x + 0.044715 * x * x * x)));
    case ATTN_RELU:
        return x < 0.0 ? 0.0 : x;
    default:
        return x / (1.0 + exp(-x));
    }
}

static void activate_ref(const attn_activate *a)
{
    for (size_t r = 0; r < a->rows; r++) {
        float *x = a->x + r * a->ld;
        for (size_t i = 0; i < a->n; i++) {
            x[i] = (float)activated(a->kind, (double)x[i]);
            if (a->gate != NULL)
                x[i] *= a->gate[r * a->gate_ld + i];
        }
    }
}

static void norm_ref(const attn_norm *m)
{
    for (size_t r = 0; r < m->rows; r++) {
        float *out = m->out + r * m->n, *sum = m->sum != NULL ? m->sum + r * m->n : out;
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < m->n; i++) {
            sum[i] = m->x[r * m->n + i] + (m->add != NULL ? m->add[r * m->n + i] : 0.0F);
            mean += (double)sum[i] / (double)m->n;
        }
        for (size_t i = 0; i < m->n; i++)
            variance += ((double)sum[i] - mean) * ((double)sum[i] - mean) / (double)m->n;
        double factor = 1.0 / sqrt(variance + (double)m->eps);
        for (size_t i = 0; i < m->n; i++)
            out[i] = (float)(((double)sum[i] - mean) * factor * (double)m->weight[i] +
                             (m->bias != NULL ? (double)m->bias[i] : 0.0));
    }
}

static void nothing(void)
{
}

void attn_transpose_plain(float *out, size_t out_stride, const float *in, size_t in_stride,
                          size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++)
            out[c * out_stride + r] = in[r * in_stride + c];
    }
}

static bool all_finite_ref(const float *x, size_t n)
{
    /* 0 * x is 0 for a finite x and NaN otherwise; a sum keeps a NaN. */
    float sum = 0.0F;
    for (size_t i = 0; i < n; i++)
        sum += 0.0F * x[i];
    return sum == 0.0F;
}

static double fma_burst_ref(size_t n)
{
    enum { CHAINS = 16 };
    volatile float start = 1.0F;
    float x[CHAINS];

    for (size_t c = 0; c < CHAINS; c++)
        x[c] = start;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < CHAINS; c++)
            x[c] = x[c] * 0.999F + 0.001F;
    }
    for (size_t c = 1; c < CHAINS; c++)
        x[0] += x[c];
    start = x[0];
    return 2.0 * CHAINS;
}

void attn_kern_init_ref(attn_kern *k)
{
    *k = (attn_kern){
        .isa = "ref",
        .panel = PANEL,
        .lanes = PANEL,
        .row_block = 1,
        .product = product_ref,
        .softmax = softmax_ref,
        .scale = scale_ref,
        .stream = scale_ref,
        .end_streams = nothing,
        .scale_add = scale_add_ref,
        .activate = activate_ref,
        .norm = norm_ref,
        .transpose = attn_transpose_plain,
        .all_finite = all_finite_ref,
        .fma_burst = fma_burst_ref,
    };
}
