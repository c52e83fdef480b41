/* text.h: text of bounded length, put together piece by piece. A piece that does not fit is left out
 * whole, so that what stands there is always well-formed. */
#ifndef SRV_TEXT_H
#define SRV_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct {
    char *at; /* the caller's storage, always NUL-terminated */
    size_t size, used;
} srv_text;

void srv_text_init(srv_text *t, char *storage, size_t size); /* size >= 1 */

/* Each returns false, and leaves *t as it was, when the piece does not fit. */
bool srv_text_raw(srv_text *t, const char *bytes, size_t n);
bool srv_text_format(srv_text *t, const char *format, ...) ATTN_PRINTF(2, 3);

/* bytes[0..n) as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
bool srv_text_json(srv_text *t, const char *bytes, size_t n);

#endif
