#include "status.h"

#include <stdio.h>
#include <string.h>

ATTN_PRINTF(4, 0)
static attn_status fail_va(attn_error *err, attn_status code, const char *pointer,
                           const char *format, va_list args)
{
    if (err != NULL && err->code == ATTN_OK) {
        err->code = code;
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        (void)snprintf(err->pointer, sizeof err->pointer, "%s", pointer);
    }
    return code;
}

attn_status attn_fail(attn_error *err, attn_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    attn_status rc = fail_va(err, code, "", format, args);
    va_end(args);
    return rc;
}

attn_status attn_fail_at(attn_error *err, attn_status code, const char *pointer, const char *format,
                         ...)
{
    va_list args;
    va_start(args, format);
    attn_status rc = fail_va(err, code, pointer, format, args);
    va_end(args);
    return rc;
}

const char *attn_status_name(attn_status code)
{
    static const char *const names[] = {
#define ATTN_STATUS_NAME(name, text) text,
        ATTN_STATUS_LIST(ATTN_STATUS_NAME)
#undef ATTN_STATUS_NAME
    };
    return code >= 0 && code < ATTN_STATUS_COUNT ? names[code] : "unknown";
}
