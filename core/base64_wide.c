#include "wide.h"

#include <immintrin.h>
#include <stdint.h>

size_t attn_base64_decode_wide(const unsigned char value_plus_1[128], const char *text, size_t n,
                               unsigned char *out)
{
    enum { WIDTH = 64, BYTES = WIDTH / 4 * 3 };
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i low = _mm512_sub_epi8(_mm512_loadu_si512(value_plus_1), one);
    const __m512i high = _mm512_sub_epi8(_mm512_loadu_si512(value_plus_1 + 64), one);
    /* Three bytes of each four, the highest first. */
    const __m512i order = _mm512_set_epi32(
        0, 0, 0, 0, 0x3c3d3e38, 0x393a3435, 0x36303132, 0x2c2d2e28, 0x292a2425, 0x26202122,
        0x1c1d1e18, 0x191a1415, 0x16101112, 0x0c0d0e08, 0x090a0405, 0x06000102);
    size_t i = 0;

    for (; n - i >= WIDTH; i += WIDTH, out += BYTES) {
        __m512i v = _mm512_loadu_si512(text + i);
        __m512i values = _mm512_permutex2var_epi8(low, v, high);
        if (_mm512_movepi8_mask(_mm512_or_si512(v, values)) != 0)
            break;
        values = _mm512_maddubs_epi16(values, _mm512_set1_epi16(0x0140));  /* 64 and 1 */
        values = _mm512_madd_epi16(values, _mm512_set1_epi32(0x00011000)); /* 4096 and 1 */
        _mm512_mask_storeu_epi8(out, ((uint64_t)1 << BYTES) - 1,
                                _mm512_permutexvar_epi8(order, values));
    }
    return i;
}
