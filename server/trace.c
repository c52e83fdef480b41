#include "server/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static bool is_hex(const char *s, size_t n)
{
    return strspn(s, "0123456789abcdef") >= n;
}

static bool is_zero(const char *s, size_t n)
{
    return strspn(s, "0") >= n;
}

/* "00-TRACE-PARENT-FLAGS". A later version may have more behind it, "ff" is none. */
static bool is_valid(const char *s)
{
    enum { VERSION = 0, TRACE = 3, PARENT = 36, FLAGS = 53, END = 55 };

    if (strlen(s) < END || !is_hex(s + VERSION, 2) || strncmp(s, "ff", 2) == 0 ||
        s[TRACE - 1] != '-' || s[PARENT - 1] != '-' || s[FLAGS - 1] != '-')
        return false;
    if (s[END] != '\0' && (strncmp(s, "00", 2) == 0 || s[END] != '-'))
        return false;
    return is_hex(s + TRACE, 32) && !is_zero(s + TRACE, 32) && is_hex(s + PARENT, 16) &&
           !is_zero(s + PARENT, 16) && is_hex(s + FLAGS, 2);
}

static void print_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void srv_trace_begin(srv_trace *t, const char *traceparent)
{
    unsigned char b[24] = {0};

    (void)!getrandom(b, sizeof b, 0); /* does not fail for so few bytes */
    b[0] |= 1;                        /* zeros alone are no id */
    b[16] |= 1;
    print_hex(t->trace_id, b, 16);
    print_hex(t->span_id, b + 16, 8);
    if (traceparent != NULL && is_valid(traceparent))
        memcpy(t->trace_id, traceparent + 3, SRV_TRACE_ID_BYTES - 1);
}
