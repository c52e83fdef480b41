#include "attention_private.h"
#include "kern.h"

void attn_unpack_keys(const attn_heads *heads, size_t s_len, const float *keys, bool values,
                      size_t g, size_t j0, size_t j1, float *out)
{
    size_t d = heads->head_dim, e = heads->v_head_dim, panel = attn_kernels.panel;

    if (!values) { /* packed [d, S]: a key is a column of a panel */
        keys += g * attn_packed_floats(d, s_len);
        for (size_t j = j0; j < j1; j++, out += d) {
            const float *column = keys + j / panel * panel * d + j % panel;
            size_t width = attn_panel_width(s_len, j / panel);
            for (size_t l = 0; l < d; l++)
                out[l] = column[l * width];
        }
        return;
    }
    keys += heads->num_kv_heads * attn_packed_floats(d, s_len) + g * attn_packed_floats(s_len, e);
    for (size_t j = j0; j < j1; j++, out += e) { /* packed [S, e]: a value is a row of all panels */
        for (size_t c = 0; c < e; c++) {
            size_t p = c / panel;
            out[c] = keys[p * panel * s_len + j * attn_panel_width(e, p) + c % panel];
        }
    }
}
