#include "tests/to_chars.h"

#include <charconv>

size_t to_chars(char *out, float x)
{
    return (size_t)(std::to_chars(out, out + 16, x).ptr - out);
}
