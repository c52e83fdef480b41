#include "rope.h"

#include <math.h>

/* Llama 3's scaling: long wavelengths are stretched by `factor`, short ones kept, with a linear blend
 * between (transformers, modeling_rope_utils). */
static double scale_llama3(const attn_rope *r, double frequency)
{
    const double tau = 6.283185307179586;
    double wavelength = tau / frequency;

    if (wavelength > r->original_max_position / r->low_freq_factor)
        return frequency / r->factor;
    if (wavelength < r->original_max_position / r->high_freq_factor)
        return frequency;
    double smooth = (r->original_max_position / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - smooth) * frequency / r->factor + smooth * frequency;
}

void attn_rope_frequencies(const attn_rope *rope, double *frequency)
{
    for (size_t m = 0; m < rope->dims / 2; m++) {
        double f = pow(rope->theta, -2.0 * (double)m / (double)rope->dims);
        if (rope->scaling == ATTN_ROPE_SCALE_LINEAR)
            f /= rope->factor;
        else if (rope->scaling == ATTN_ROPE_SCALE_LLAMA3)
            f = scale_llama3(rope, f);
        frequency[m] = f;
    }
}

void attn_rope_angles(const double *frequency, size_t n, int64_t position, float *cosine,
                      float *sine)
{
    for (size_t m = 0; m < n; m++) {
        double angle = (double)position * frequency[m];
        cosine[m] = (float)cos(angle);
        sine[m] = (float)sin(angle);
    }
}

void attn_rope_rotate(float *x, size_t n, size_t half, attn_rope_style style, const float *cosine,
                      const float *sine)
{
    size_t step = style == ATTN_ROPE_INTERLEAVED ? 2 : 1;
    size_t other = style == ATTN_ROPE_INTERLEAVED ? 1 : half;

    for (size_t m = 0; m < n; m++) {
        float a = x[m * step], b = x[m * step + other];
        x[m * step] = a * cosine[m] - b * sine[m];
        x[m * step + other] = b * cosine[m] + a * sine[m];
    }
}
