/* The scanner: JSON's grammar (RFC 8259) over pieces of any size. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/json_private.h"

enum { /* the grammar of numbers; NUMBER_OVER = the byte does not belong to it */
       NUMBER_OVER,
       NUMBER_START,
       NUMBER_MINUS,
       NUMBER_ZERO,
       NUMBER_WHOLE,
       NUMBER_POINT,
       NUMBER_FRACTION,
       NUMBER_E,
       NUMBER_SIGN,
       NUMBER_EXPONENT
};

enum { STRING_PLAIN, STRING_ESCAPE, STRING_HEX, STRING_PAIR_SLASH, STRING_PAIR_U };

/* --- failures --------------------------------------------------------------------------------- */

static attn_status fail_syntax(const srv_json_reader *r, const char *at, attn_error *err,
                               const char *format, ...) ATTN_PRINTF(4, 5);

static attn_status fail_syntax(const srv_json_reader *r, const char *at, attn_error *err,
                               const char *format, ...)
{
    srv_pointer at_value = srv_json_pointer(r);
    bool apart = r->apart != SIZE_MAX; /* which text, then */
    char reason[256];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return attn_fail_at(err, ATTN_EINVAL, at_value.text, "%s%sat byte %zu: %s",
                        apart ? at_value.text : "", apart ? ": " : "",
                        r->scan.offset + (size_t)(at - r->scan.piece), reason);
}

/* "expected ..., found 'x'" */
static attn_status fail_byte(const srv_json_reader *r, const char *at, const char *expected,
                             attn_error *err)
{
    unsigned char c = (unsigned char)*at;

    if (c == 0)
        return fail_syntax(r, at, err, "%s, found a NUL byte; the body must be UTF-8", expected);
    if (c == 'N' || c == 'I')
        return fail_syntax(r, at, err, "%s, found '%c'; NaN and Infinity are not JSON", expected,
                           c);
    if (c > 0x20 && c < 0x7f)
        return fail_syntax(r, at, err, "%s, found '%c'", expected, c);
    return fail_syntax(r, at, err, "%s, found byte 0x%02X", expected, (unsigned)c);
}

static attn_status fail_document(const srv_json_reader *r, const char *at, attn_error *err)
{
    static const struct {
        const char *first; /* bytes that begin one */
        const char *name;
    } others[] = {{"[", "an array"},
                  {"\"", "a string"},
                  {"-0123456789", "a number"},
                  {"tf", "true or false"},
                  {"n", "null"}};
    unsigned char c = (unsigned char)*at;

    if (c == 0xEF && r->scan.offset == 0 && at == r->scan.piece)
        return fail_syntax(r, at, err, "a byte order mark; the body must be UTF-8 without one");
    if (c == 0xFE || c == 0xFF)
        return fail_syntax(r, at, err, "the body looks like UTF-16; it must be UTF-8");
    for (size_t i = 0; c != 0 && i < sizeof others / sizeof others[0]; i++) {
        if (strchr(others[i].first, c) != NULL)
            return fail_syntax(r, at, err, "the body must be a JSON object, not %s",
                               others[i].name);
    }
    return fail_byte(r, at, "expected a JSON object", err);
}

attn_status srv_json_scan_end(const srv_json_reader *r, attn_error *err)
{
    const srv_json_scan *s = &r->scan;

    if (s->want == SRV_WANT_NOTHING)
        return ATTN_OK;
    if (s->want == SRV_WANT_DOCUMENT)
        return attn_fail(err, ATTN_EINVAL, "the body %s; it must be a JSON object",
                         s->offset == 0 ? "is empty" : "holds nothing but blanks");
    return attn_fail_at(
        err, ATTN_EINVAL, srv_json_pointer(r).text, "the body ends at byte %zu, %s", s->offset,
        s->token == SRV_IN_STRING ? "inside a string" : "before its JSON object is complete");
}

/* --- strings ---------------------------------------------------------------------------------- */

static attn_status emit(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    if (n == 0)
        return ATTN_OK;
    if (!r->scan.is_key)
        return srv_json_string(r, text, n, err);
    srv_json_keep_text(r, text, n);
    return ATTN_OK;
}

static void begin_string(srv_json_reader *r, bool is_key)
{
    srv_json_scan *s = &r->scan;

    s->token = SRV_IN_STRING;
    s->string = STRING_PLAIN;
    s->is_key = is_key;
    s->utf8_left = s->high = 0;
    r->text_n = 0;
    r->text[0] = '\0';
}

/* The end of the run of ASCII that stands for itself: no quote, backslash or control. */
static const char *plain_end(const char *p, const char *stop)
{
    const uint64_t ones = 0x0101010101010101u;

    for (; stop - p >= 8; p += 8) {
        uint64_t v, quote, slash;
        memcpy(&v, p, sizeof v);
        quote = v ^ (ones * '"');
        slash = v ^ (ones * '\\');
        /* The high bit of the lowest byte that is special is set; higher ones may be wrong. */
        if ((v | (v - ones * 0x20) | (quote - ones) | (slash - ones)) & (ones * 0x80))
            break;
    }
    while (p < stop && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
           *p != '\\')
        p++;
    return p;
}

/* What may follow a first byte of UTF-8 (Unicode, table 3-7). */
static bool begin_utf8(srv_json_scan *s, unsigned char c)
{
    s->low = 0x80;
    s->most = 0xBF;
    if (c >= 0xC2 && c <= 0xDF) {
        s->utf8_left = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
        s->utf8_left = 2;
        s->low = c == 0xE0 ? 0xA0 : 0x80;
        s->most = c == 0xED ? 0x9F : 0xBF;
    } else if (c >= 0xF0 && c <= 0xF4) {
        s->utf8_left = 3;
        s->low = c == 0xF0 ? 0x90 : 0x80;
        s->most = c == 0xF4 ? 0x8F : 0xBF;
    } else {
        return false;
    }
    return true;
}

static attn_status string_byte(srv_json_reader *r, const char *p, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    unsigned char c = (unsigned char)*p;

    if (s->utf8_left > 0) {
        if (c < s->low || c > s->most)
            return fail_byte(r, p, "invalid UTF-8: expected a continuation byte", err);
        s->utf8_left--;
        s->low = 0x80;
        s->most = 0xBF;
    } else if (c >= 0x80) {
        if (!begin_utf8(s, c))
            return fail_syntax(r, p, err, "invalid UTF-8: byte 0x%02X", (unsigned)c);
    } else {
        return fail_byte(r, p, "a control character in a string must be escaped", err);
    }
    return emit(r, p, 1, err);
}

static attn_status emit_code(srv_json_reader *r, unsigned code, attn_error *err)
{
    char utf8[4];
    size_t n = 0;

    if (code < 0x80) {
        utf8[n++] = (char)code;
    } else if (code < 0x800) {
        utf8[n++] = (char)(0xC0 | code >> 6);
    } else if (code < 0x10000) {
        utf8[n++] = (char)(0xE0 | code >> 12);
        utf8[n++] = (char)(0x80 | (code >> 6 & 63));
    } else {
        utf8[n++] = (char)(0xF0 | code >> 18);
        utf8[n++] = (char)(0x80 | (code >> 12 & 63));
        utf8[n++] = (char)(0x80 | (code >> 6 & 63));
    }
    if (code >= 0x80)
        utf8[n++] = (char)(0x80 | (code & 63));
    return emit(r, utf8, n, err);
}

static attn_status escape(srv_json_reader *r, const char *p, attn_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    srv_json_scan *s = &r->scan;

    if (*p == 'u') {
        s->string = STRING_HEX;
        s->hex_left = 4;
        s->code = 0;
        return ATTN_OK;
    }
    const char *known = *p == '\0' ? NULL : strchr(from, *p);
    if (known == NULL)
        return fail_byte(r, p, "expected an escape of JSON", err);
    s->string = STRING_PLAIN;
    return emit(r, &to[known - from], 1, err);
}

static attn_status hex_digit(srv_json_reader *r, const char *p, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    char c = *p;
    unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16;

    if (digit == 16)
        return fail_byte(r, p, "expected a hexadecimal digit", err);
    s->code = s->code << 4 | digit;
    if (--s->hex_left > 0)
        return ATTN_OK;
    bool second = s->code >= 0xDC00 && s->code <= 0xDFFF;
    if (s->code == 0)
        return fail_syntax(r, p, err, "\\u0000 is not accepted in strings");
    if (second != (s->high != 0))
        return fail_syntax(r, p, err, "half of a surrogate pair");
    if (s->code >= 0xD800 && s->code <= 0xDBFF) {
        s->high = s->code;
        s->string = STRING_PAIR_SLASH;
        return ATTN_OK;
    }
    unsigned code = second ? 0x10000 + ((s->high - 0xD800) << 10) + (s->code - 0xDC00) : s->code;
    s->high = 0;
    s->string = STRING_PLAIN;
    return emit_code(r, code, err);
}

static attn_status end_string(srv_json_reader *r, const char *behind, attn_error *err)
{
    srv_json_scan *s = &r->scan;

    s->token = SRV_BETWEEN;
    if (s->is_key) {
        s->want = SRV_WANT_COLON;
        return srv_json_key(r, err);
    }
    s->want = SRV_WANT_NEXT;
    return srv_json_end(r, SRV_JSON_STRING, behind, err);
}

static attn_status scan_string(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    const char *p = *at;
    attn_status rc = ATTN_OK;

    while (p < s->stop && rc == ATTN_OK) {
        const char *begin = p;
        switch (s->string) {
        case STRING_PLAIN:
            if (s->utf8_left == 0)
                p = plain_end(p, s->stop);
            if (p > begin) {
                rc = emit(r, begin, (size_t)(p - begin), err);
            } else if (s->utf8_left == 0 && *p == '"') {
                *at = p + 1;
                return end_string(r, p + 1, err);
            } else if (s->utf8_left == 0 && *p == '\\') {
                s->string = STRING_ESCAPE;
                p++;
            } else {
                rc = string_byte(r, p++, err);
            }
            break;
        case STRING_ESCAPE:
            rc = escape(r, p++, err);
            break;
        case STRING_HEX:
            rc = hex_digit(r, p++, err);
            break;
        default: /* the second half of a pair is due: \uDC00 to \uDFFF */
            if (*p != (s->string == STRING_PAIR_SLASH ? '\\' : 'u'))
                return fail_syntax(r, p, err, "half of a surrogate pair");
            s->string = s->string == STRING_PAIR_SLASH ? STRING_PAIR_U : STRING_HEX;
            s->hex_left = 4;
            s->code = 0;
            p++;
        }
    }
    *at = p;
    return rc;
}

/* --- numbers and literals --------------------------------------------------------------------- */

static unsigned step_number(unsigned state, char c)
{
    bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';

    switch (state) {
    case NUMBER_START:
        return c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_WHOLE;
    case NUMBER_MINUS:
        return c == '0' ? NUMBER_ZERO : digit ? NUMBER_WHOLE : NUMBER_OVER;
    case NUMBER_ZERO:
        return c == '.' ? NUMBER_POINT : e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_WHOLE:
        return digit ? NUMBER_WHOLE : c == '.' ? NUMBER_POINT : e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_POINT:
        return digit ? NUMBER_FRACTION : NUMBER_OVER;
    case NUMBER_FRACTION:
        return digit ? NUMBER_FRACTION : e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_E:
        return digit ? NUMBER_EXPONENT : c == '+' || c == '-' ? NUMBER_SIGN : NUMBER_OVER;
    default:
        return digit ? NUMBER_EXPONENT : NUMBER_OVER;
    }
}

static attn_status keep_number(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    ATTN_TRY(srv_json_grow(r, &r->carry, n, 1, err));
    memcpy((char *)r->carry.p + r->carry.n, text, n);
    r->carry.n += n;
    return ATTN_OK;
}

static attn_status scan_number(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    const char *text = *at, *p = text;

    for (; p < s->stop; p++) {
        unsigned next = step_number(s->number, *p);
        if (next == NUMBER_OVER)
            break;
        s->number = next;
    }
    *at = p;
    size_t n = (size_t)(p - text);
    if (p == s->stop)
        return keep_number(r, text, n, err);
    if (s->number == NUMBER_ZERO && *p >= '0' && *p <= '9')
        return fail_syntax(r, p, err, "a number may not begin with a 0 and more digits");
    if (s->number == NUMBER_MINUS || s->number == NUMBER_POINT || s->number == NUMBER_E ||
        s->number == NUMBER_SIGN)
        return fail_byte(r, p, "expected a digit", err);
    if (r->carry.n > 0) {
        ATTN_TRY(keep_number(r, text, n, err));
        text = r->carry.p;
        n = r->carry.n;
    }
    s->token = SRV_BETWEEN;
    s->want = SRV_WANT_NEXT;
    ATTN_TRY(srv_json_number(r, text, n, err));
    srv_json_drop(r, &r->carry, 1);
    return srv_json_end(r, SRV_JSON_NUMBER, p, err);
}

static attn_status scan_literal(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    const char *p = *at;

    while (p < s->stop && *s->literal != '\0') {
        if (*p != *s->literal)
            return fail_byte(r, p, "expected true, false or null", err);
        s->literal++;
        p++;
    }
    *at = p;
    if (*s->literal != '\0')
        return ATTN_OK;
    s->token = SRV_BETWEEN;
    s->want = SRV_WANT_NEXT;
    /* Only now, so that "nan" is not taken for null. */
    ATTN_TRY(srv_json_begin(r, s->literal_type, p, err));
    return srv_json_end(r, s->literal_type, p, err);
}

/* --- between tokens --------------------------------------------------------------------------- */

static attn_status open_bracket(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    bool object = **at == '{';

    ATTN_TRY(srv_json_begin(r, object ? SRV_JSON_OBJECT : SRV_JSON_ARRAY, *at, err));
    if (s->depth == 1 + SRV_VALUE_DEPTH)
        return fail_syntax(r, *at, err, "nested deeper than %d levels", SRV_VALUE_DEPTH);
    s->object[++s->depth] = object;
    s->want = object ? SRV_WANT_KEY_OR_END : SRV_WANT_VALUE_OR_END;
    (*at)++;
    return ATTN_OK;
}

static attn_status close_bracket(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    bool object = s->object[s->depth--];

    s->want = s->depth == 0 ? SRV_WANT_NOTHING : SRV_WANT_NEXT;
    (*at)++;
    return srv_json_end(r, object ? SRV_JSON_OBJECT : SRV_JSON_ARRAY, *at, err);
}

static attn_status begin_number(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;

    if (r->place == SRV_AT_NESTED) {
        size_t used = srv_json_nested_run(r, *at, (size_t)(s->stop - *at));
        if (used > 0) {
            char last = (*at)[used - 1];
            *at += used;
            s->want = last >= '0' && last <= '9' ? SRV_WANT_NEXT : SRV_WANT_VALUE;
            return ATTN_OK;
        }
    }
    ATTN_TRY(srv_json_begin(r, SRV_JSON_NUMBER, *at, err));
    s->token = SRV_IN_NUMBER;
    s->number = NUMBER_START; /* scan_number() begins with this very byte */
    return ATTN_OK;
}

static attn_status begin_value(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    char c = **at;

    if (c == '-' || (c >= '0' && c <= '9'))
        return begin_number(r, at, err);
    switch (c) {
    case '[':
    case '{':
        return open_bracket(r, at, err);
    case '"':
        ATTN_TRY(srv_json_begin(r, SRV_JSON_STRING, *at, err));
        begin_string(r, false);
        (*at)++;
        return ATTN_OK;
    case 't':
    case 'f':
    case 'n':
        s->token = SRV_IN_LITERAL;
        s->literal = c == 't' ? "true" : c == 'f' ? "false" : "null";
        s->literal_type = c == 't' ? SRV_JSON_TRUE : c == 'f' ? SRV_JSON_FALSE : SRV_JSON_NULL;
        return ATTN_OK;
    default:
        return fail_byte(r, *at, "expected a value", err);
    }
}

static attn_status scan_between(srv_json_reader *r, const char **at, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    const char *p = *at;

    while (p < s->stop && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    *at = p;
    if (p == s->stop)
        return ATTN_OK;
    switch (s->want) {
    case SRV_WANT_DOCUMENT:
        return *p == '{' ? open_bracket(r, at, err) : fail_document(r, p, err);
    case SRV_WANT_KEY_OR_END:
    case SRV_WANT_KEY:
        if (*p == '}' && s->want == SRV_WANT_KEY_OR_END)
            return close_bracket(r, at, err);
        if (*p != '"')
            return fail_byte(r, p, "expected a name in quotes", err);
        begin_string(r, true);
        break;
    case SRV_WANT_COLON:
        if (*p != ':')
            return fail_byte(r, p, "expected ':'", err);
        s->want = SRV_WANT_VALUE;
        break;
    case SRV_WANT_VALUE_OR_END:
        return *p == ']' ? close_bracket(r, at, err) : begin_value(r, at, err);
    case SRV_WANT_VALUE:
        return begin_value(r, at, err);
    case SRV_WANT_NEXT:
        if (*p == (s->object[s->depth] ? '}' : ']'))
            return close_bracket(r, at, err);
        if (*p != ',')
            return fail_byte(
                r, p, s->object[s->depth] ? "expected ',' or '}'" : "expected ',' or ']'", err);
        s->want = s->object[s->depth] ? SRV_WANT_KEY : SRV_WANT_VALUE;
        break;
    case SRV_WANT_NOTHING:
        return fail_byte(r, p, "expected nothing behind the JSON object", err);
    }
    *at = p + 1;
    return ATTN_OK;
}

attn_status srv_json_scan_piece(srv_json_reader *r, attn_error *err)
{
    srv_json_scan *s = &r->scan;
    const char *at = s->piece;

    while (at < s->stop) {
        switch (s->token) {
        case SRV_BETWEEN:
            ATTN_TRY(scan_between(r, &at, err));
            break;
        case SRV_IN_STRING:
            ATTN_TRY(scan_string(r, &at, err));
            break;
        case SRV_IN_NUMBER:
            ATTN_TRY(scan_number(r, &at, err));
            break;
        case SRV_IN_LITERAL:
            ATTN_TRY(scan_literal(r, &at, err));
            break;
        }
    }
    return ATTN_OK;
}
