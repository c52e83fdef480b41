/* base64.h: the standard alphabet with padding (RFC 4648, section 4), in pieces of any size. */
#ifndef ATTN_BASE64_H
#define ATTN_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* A text half decoded. Zero-initialise. */
typedef struct {
    uint32_t group;   /* bits of the group of four that is under way */
    unsigned pads;    /* '=' seen: 1 or 2 end the text */
    size_t character; /* how many were decoded */
} attn_base64;

/* Most bytes that attn_base64_decode() writes for n characters. */
#define ATTN_BASE64_DECODED(n) ((n) / 4 * 3 + 3)

/* Decodes the next n characters; *written = the bytes that went to `out`. Strict: no other alphabet,
 * no blanks or line breaks, nothing behind the padding, no bits left over in the last group.
 * ATTN_EFORMAT names the first character that is wrong, counted from 0; the state is then spent. */
ATTN_NODISCARD attn_status attn_base64_decode(attn_base64 *d, const char *text, size_t n,
                                              unsigned char *out, size_t *written, attn_error *err);

/* The text has ended. ATTN_EFORMAT: in the middle of a group. */
ATTN_NODISCARD attn_status attn_base64_finish(const attn_base64 *d, attn_error *err);

/* Characters that n bytes become; n <= SIZE_MAX / 2. */
#define ATTN_BASE64_ENCODED(n) (((n) + 2) / 3 * 4)

/* Writes ATTN_BASE64_ENCODED(n) characters, without NUL. All pieces of a text but the last have a
 * multiple of 3 bytes. */
void attn_base64_encode(char *out, const void *in, size_t n);

#endif
