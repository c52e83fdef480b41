#include "config_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Messages are one line on a terminal, whatever the value holds. */
static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
    }
}

void cfg_place_init(cfg_place *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(at->text, sizeof at->text, format, args);
    va_end(args);
    make_printable(at->text);
    at->pointer[0] = '\0';
}

void cfg_place_json(cfg_place *at, const char *what, const char *pointer)
{
    enum { MOST = 120 };
    size_t n = strlen(what);

    /* The end of a long path says more than its beginning. */
    cfg_place_init(at, "%s%s%s%s", n > MOST ? "..." : "", n > MOST ? what + n - MOST : what,
                   pointer[0] != '\0' ? ": " : "", pointer);
    (void)snprintf(at->pointer, sizeof at->pointer, "%s", pointer);
}

void cfg_pointer_add(char pointer[160], const char *key)
{
    char clipped[CFG_CLIP_CHARS];
    size_t n = strlen(pointer);

    cfg_clip(clipped, key);
    if (n + 1 + 2 * strlen(clipped) >= 160)
        return;
    pointer[n++] = '/';
    for (const char *k = clipped; *k != '\0'; k++) {
        if (*k == '~' || *k == '/')
            pointer[n++] = '~';
        pointer[n++] = *k;
        if (*k == '~' || *k == '/')
            pointer[n - 1] = *k == '~' ? '0' : '1';
    }
    pointer[n] = '\0';
}

attn_status cfg_refuse(const cfg_place *at, attn_error *err, const char *format, ...)
{
    char message[320];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return attn_fail_at(err, ATTN_EINVAL, at->pointer, "%s: %s", at->text, message);
}

attn_status cfg_unknown(const cfg_place *at, const char *near, attn_error *err)
{
    if (near == NULL)
        return attn_fail_at(err, ATTN_EINVAL, at->pointer, "%s is not a known key", at->text);
    return attn_fail_at(err, ATTN_EINVAL, at->pointer,
                        "%s is not a known key; did you mean \"%s\"?", at->text, near);
}

static void clip(char *out, size_t size, const char *text)
{
    size_t n = strlen(text);
    bool cut = n > size - 1;

    if (cut) {
        n = size - 4;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* not inside a character of UTF-8 */
    }
    (void)snprintf(out, size, "%.*s%s", (int)n, text, cut ? "..." : "");
    make_printable(out);
}

void cfg_clip(char out[CFG_CLIP_CHARS], const char *text)
{
    clip(out, CFG_CLIP_CHARS, text);
}

void cfg_show_json(char out[CFG_CLIP_CHARS], const attn_json *v)
{
    const char *string;
    int64_t integer;
    double number;
    bool truth;

    if (attn_json_string(v, &string)) {
        clip(out + 1, CFG_CLIP_CHARS - 2, string);
        size_t n = strlen(out + 1);
        out[0] = out[n + 1] = '"';
        out[n + 2] = '\0';
    } else if (attn_json_integer(v, &integer)) {
        (void)snprintf(out, CFG_CLIP_CHARS, "%" PRId64, integer);
    } else if (attn_json_number(v, &number)) {
        if (fabs(number) < 1e15 && number == floor(number))
            (void)snprintf(out, CFG_CLIP_CHARS, "%.1f", number); /* 2.0, which is no integer */
        else
            (void)snprintf(out, CFG_CLIP_CHARS, "%.15g", number);
    } else if (attn_json_bool(v, &truth)) {
        (void)snprintf(out, CFG_CLIP_CHARS, "%s", truth ? "true" : "false");
    } else {
        (void)snprintf(out, CFG_CLIP_CHARS, "%s", attn_json_type_name(v));
    }
}
