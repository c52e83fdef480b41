#include "tests/ref_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ref_attention ref_attention_default(void)
{
    ref_attention r;
    memset(&r, 0, sizeof r);
    r.scale = 1;
    r.window_left = r.window_right = -1;
    r.key_end = SIZE_MAX;
    return r;
}

static double *zeros(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    if (x == NULL)
        abort();
    return x;
}

/* y[i] = sum_k x[k] w[i][k] + b[i] */
static void project(double *y, size_t ny, const double *x, size_t nx, const double *w,
                    const double *b)
{
    for (size_t i = 0; i < ny; i++) {
        double sum = b != NULL ? b[i] : 0;
        for (size_t k = 0; k < nx; k++)
            sum += x[k] * w[i * nx + k];
        y[i] = sum;
    }
}

static void rms_norm(double *x, size_t n, const double *weight, double eps)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    double rms = sqrt(squares / (double)n + eps);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / rms * weight[i];
}

void ref_rotate(double *head, ref_rope_style style, size_t dims, const double *cosine,
                const double *sine)
{
    for (size_t m = 0; m < dims / 2; m++) {
        double *a = style == REF_ROPE_HALF ? &head[m] : &head[2 * m];
        double *b = style == REF_ROPE_HALF ? &head[m + dims / 2] : &head[2 * m + 1];
        double first = *a, second = *b;
        *a = first * cosine[m] - second * sine[m];
        *b = second * cosine[m] + first * sine[m];
    }
}

static double rope_frequency(const ref_attention *r, size_t m)
{
    double frequency = pow(r->rope_theta, -2.0 * (double)m / (double)r->rope_dims);
    if (r->rope_scaling == REF_SCALING_LINEAR)
        return frequency / r->rope_factor;
    if (r->rope_scaling == REF_SCALING_LLAMA3) {
        double wavelength = 2 * acos(-1.0) / frequency;
        if (wavelength > r->rope_original / r->rope_low)
            return frequency / r->rope_factor;
        if (wavelength >= r->rope_original / r->rope_high) {
            double s = (r->rope_original / wavelength - r->rope_low) / (r->rope_high - r->rope_low);
            return (1 - s) * frequency / r->rope_factor + s * frequency;
        }
    }
    return frequency;
}

static void rotate_to(const ref_attention *r, double *head, int64_t position)
{
    if (r->rope == REF_ROPE_NONE)
        return;
    double *cosine = zeros(r->rope_dims), *sine = zeros(r->rope_dims);
    for (size_t m = 0; m < r->rope_dims / 2; m++) {
        double angle = (double)position * rope_frequency(r, m);
        cosine[m] = cos(angle);
        sine[m] = sin(angle);
    }
    ref_rotate(head, r->rope, r->rope_dims, cosine, sine);
    free(cosine);
    free(sine);
}

double ref_alibi_slope(size_t head, size_t heads)
{
    size_t power = 1;
    while (power * 2 <= heads)
        power *= 2;
    if (head < power)
        return pow(2, -8.0 * (double)(head + 1) / (double)power);
    /* The first, third, fifth ... slope of twice as many heads. */
    return pow(2, -8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

size_t ref_t5_bucket(int64_t relative, size_t buckets, size_t max_distance, bool bidirectional)
{
    size_t base = 0, distance;
    if (bidirectional) {
        buckets /= 2;
        if (relative > 0)
            base = buckets;
        distance = (size_t)(relative < 0 ? -relative : relative);
    } else {
        distance = relative < 0 ? (size_t)-relative : 0;
    }
    size_t exact = buckets / 2;
    if (distance < exact)
        return base + distance;
    double place = log((double)distance / (double)exact) /
                   log((double)max_distance / (double)exact) * (double)(buckets - exact);
    size_t bucket = exact + (size_t)place;
    return base + (bucket < buckets ? bucket : buckets - 1);
}

/* The heads of the queries, [H,T,d]. */
static double *make_queries(const ref_attention *r)
{
    size_t T = r->tokens, d = r->head_dim;
    double *q = zeros(r->heads * T * d);
    double *all = zeros(r->heads * d);

    for (size_t i = 0; i < T; i++) {
        if (r->wq != NULL)
            project(all, r->heads * d, r->x + i * r->d_model, r->d_model, r->wq, r->bq);
        for (size_t h = 0; h < r->heads; h++) {
            double *row = q + (h * T + i) * d;
            memcpy(row, r->wq != NULL ? all + h * d : r->query + (h * T + i) * d, d * sizeof *row);
            if (r->wq != NULL && r->q_norm != NULL)
                rms_norm(row, d, r->q_norm, r->norm_eps);
            rotate_to(r, row,
                      r->positions != NULL ? r->positions[i] : r->query_position + (int64_t)i);
        }
    }
    free(all);
    return q;
}

/* The heads of the keys (or values), [G,S,width], with the past before them. */
static double *make_keys(const ref_attention *r, bool is_value)
{
    size_t N = r->new_keys, P = r->past, S = P + N, d = is_value ? r->v_head_dim : r->head_dim;
    const double *given = is_value ? r->value : r->key;
    const double *past = is_value ? r->past_value : r->past_key;
    const double *source = r->context != NULL ? r->context : r->x;
    size_t width = r->context != NULL ? r->d_kv : r->d_model;
    double *k = zeros(r->kv_heads * S * d);
    double *all = zeros(r->kv_heads * d);

    for (size_t g = 0; g < r->kv_heads && P > 0; g++)
        memcpy(k + g * S * d, past + g * P * d, P * d * sizeof *k);
    for (size_t j = 0; j < N; j++) {
        if (r->wq != NULL)
            project(all, r->kv_heads * d, source + j * width, width, is_value ? r->wv : r->wk,
                    is_value ? r->bv : r->bk);
        for (size_t g = 0; g < r->kv_heads; g++) {
            double *row = k + (g * S + P + j) * d;
            memcpy(row, r->wq != NULL ? all + g * d : given + (g * N + j) * d, d * sizeof *row);
            if (is_value)
                continue;
            if (r->wq != NULL && r->k_norm != NULL)
                rms_norm(row, d, r->k_norm, r->norm_eps);
            rotate_to(r, row,
                      r->positions != NULL && r->context == NULL ? r->positions[j]
                                                                 : r->key_position + (int64_t)j);
        }
    }
    free(all);
    return k;
}

static bool may_attend(const ref_attention *r, size_t h, size_t i, size_t j)
{
    int64_t p = (int64_t)i + r->causal_offset, key = (int64_t)j;
    if (j >= r->key_end || (r->causal && key > p))
        return false;
    if (r->window_left >= 0 && key < p - r->window_left)
        return false;
    if (r->window_right >= 0 && key > p + r->window_right)
        return false;
    if (r->mask != NULL &&
        !r->mask[h * r->mask_stride[0] + i * r->mask_stride[1] + j * r->mask_stride[2]])
        return false;
    return r->bias == NULL ||
           r->bias[h * r->bias_stride[0] + i * r->bias_stride[1] + j * r->bias_stride[2]] !=
               -INFINITY;
}

static double added_to_score(const ref_attention *r, size_t h, size_t i, size_t j)
{
    int64_t relative = (int64_t)j - (int64_t)i - r->causal_offset;
    double sum = 0;
    if (r->alibi)
        sum -= ref_alibi_slope(h, r->heads) * fabs((double)relative);
    if (r->rel_buckets > 0)
        sum += r->rel_bias[ref_t5_bucket(relative, r->rel_buckets, r->rel_max_distance,
                                         r->rel_bidirectional) *
                               r->heads +
                           h];
    if (r->bias != NULL)
        sum += r->bias[h * r->bias_stride[0] + i * r->bias_stride[1] + j * r->bias_stride[2]];
    return sum;
}

/* One row of one head: scores to weights, and the context of this row. */
static void attend(ref_attention *r, size_t h, size_t i, const double *q, const double *k,
                   const double *v, double *context)
{
    size_t S = r->past + r->new_keys, d = r->head_dim, e = r->v_head_dim;
    size_t row = (h * r->tokens + i) * S;
    double *weight = zeros(S);
    double highest = -INFINITY, sum = 0;

    for (size_t j = 0; j < S; j++) {
        double score = 0;
        for (size_t n = 0; n < d; n++)
            score += q[n] * k[j * d + n];
        score *= r->scale;
        double capped = r->softcap > 0 ? r->softcap * tanh(score / r->softcap) : score;
        bool allowed = may_attend(r, h, i, j);
        weight[j] = allowed ? capped + added_to_score(r, h, i, j) : -INFINITY;
        if (allowed && weight[j] > highest)
            highest = weight[j];
        if (r->scores != NULL)
            r->scores[row + j] = score;
        if (r->softcapped != NULL)
            r->softcapped[row + j] = capped;
        if (r->masked != NULL)
            r->masked[row + j] = weight[j];
        if (r->allowed != NULL)
            r->allowed[row + j] = allowed;
    }
    for (size_t j = 0; j < S; j++)
        sum += weight[j] = weight[j] == -INFINITY ? 0 : exp(weight[j] - highest);
    if (highest == -INFINITY)
        r->fully_masked_rows++;
    for (size_t j = 0; j < S; j++) {
        weight[j] = highest == -INFINITY ? 0 : weight[j] / sum;
        if (r->maps != NULL)
            r->maps[row + j] = weight[j];
    }
    if (r->logsumexp != NULL)
        r->logsumexp[h * r->tokens + i] = highest == -INFINITY ? highest : highest + log(sum);
    for (size_t n = 0; n < e; n++) {
        context[n] = 0;
        for (size_t j = 0; j < S; j++) {
            if (weight[j] > 0) /* what no one looks at may be NaN */
                context[n] += weight[j] * v[j * e + n];
        }
    }
    free(weight);
}

void ref_attention_run(ref_attention *r)
{
    size_t T = r->tokens, S = r->past + r->new_keys, H = r->heads, d = r->head_dim;
    size_t e = r->v_head_dim, share = H / r->kv_heads;
    double *q = make_queries(r), *k = make_keys(r, false), *v = make_keys(r, true);
    double *joined = zeros(T * H * e);

    r->fully_masked_rows = 0;
    for (size_t h = 0; h < H; h++) {
        size_t g = h / share;
        for (size_t i = 0; i < T; i++) {
            double *context = joined + (i * H + h) * e;
            attend(r, h, i, q + (h * T + i) * d, k + g * S * d, v + g * S * e, context);
            if (r->outputs != NULL && r->wq == NULL)
                memcpy(r->outputs + (h * T + i) * e, context, e * sizeof *context);
        }
    }
    for (size_t i = 0; i < T && r->outputs != NULL && r->wq != NULL; i++)
        project(r->outputs + i * r->d_out, r->d_out, joined + i * H * e, H * e, r->wo, r->bo);
    if (r->joined != NULL)
        memcpy(r->joined, joined, T * H * e * sizeof *joined);
    if (r->query_out != NULL)
        memcpy(r->query_out, q, H * T * d * sizeof *q);
    if (r->key_out != NULL)
        memcpy(r->key_out, k, r->kv_heads * S * d * sizeof *k);
    if (r->value_out != NULL)
        memcpy(r->value_out, v, r->kv_heads * S * e * sizeof *v);
    free(joined);
    free(q);
    free(k);
    free(v);
}
