#include "decimal.h"

#include <charconv>

size_t attn_f32_print(char out[ATTN_F32_CHARS], float x)
{
    return (size_t)(std::to_chars(out, out + ATTN_F32_CHARS, x).ptr - out);
}
