#include "server/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void srv_text_init(srv_text *t, char *storage, size_t size)
{
    t->at = storage;
    t->size = size;
    t->used = 0;
    storage[0] = '\0';
}

static bool undo(srv_text *t, size_t used)
{
    t->used = used;
    t->at[used] = '\0';
    return false;
}

bool srv_text_raw(srv_text *t, const char *bytes, size_t n)
{
    if (n >= t->size - t->used)
        return false;
    memcpy(t->at + t->used, bytes, n);
    t->used += n;
    t->at[t->used] = '\0';
    return true;
}

bool srv_text_format(srv_text *t, const char *format, ...)
{
    size_t room = t->size - t->used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room)
        return undo(t, t->used);
    t->used += (size_t)n;
    return true;
}

/* Length of the UTF-8 character at s (RFC 3629: no surrogates, shortest form), 0 = not one. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t len = 0;
    unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte */
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) {
        len = 2;
    } else if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        len = 3;
        low = s[0] == 0xE0 ? 0xA0 : low;
        high = s[0] == 0xED ? 0x9F : high;
    } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        len = 4;
        low = s[0] == 0xF0 ? 0x90 : low;
        high = s[0] == 0xF4 ? 0x8F : high;
    }
    if (len == 0 || len > n || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    }
    return len;
}

static bool json_character(srv_text *t, const char *s, size_t len)
{
    if (len != 1)
        return len == 0 ? srv_text_raw(t, "\xEF\xBF\xBD", 3) : srv_text_raw(t, s, len);
    switch (*s) {
    case '"':
        return srv_text_raw(t, "\\\"", 2);
    case '\\':
        return srv_text_raw(t, "\\\\", 2);
    case '\n':
        return srv_text_raw(t, "\\n", 2);
    case '\r':
        return srv_text_raw(t, "\\r", 2);
    case '\t':
        return srv_text_raw(t, "\\t", 2);
    default:
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            return srv_text_format(t, "\\u%04x", (unsigned)(unsigned char)*s);
        return srv_text_raw(t, s, 1);
    }
}

bool srv_text_json(srv_text *t, const char *bytes, size_t n)
{
    size_t start = t->used;
    bool fits = srv_text_raw(t, "\"", 1);
    for (size_t i = 0; fits && i < n;) {
        size_t len = utf8_length((const unsigned char *)bytes + i, n - i);
        fits = json_character(t, bytes + i, len);
        i += len == 0 ? 1 : len;
    }
    return fits && srv_text_raw(t, "\"", 1) ? true : undo(t, start);
}
