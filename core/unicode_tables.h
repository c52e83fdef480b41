/* unicode_tables.h: internal to unicode.c. */
#ifndef ATTN_UNICODE_TABLES_H
#define ATTN_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* From U+0000 on: length << ATTN_U_BITS | classes (ATTN_U_*). */
#define ATTN_U_BITS 14
extern const uint32_t attn_unicode_runs[];
extern const size_t attn_unicode_run_count;

/* `count` code points from `first`, every `step`th, whose lower case is `delta` away. Ascending. */
typedef struct {
    uint32_t first;
    uint16_t count;
    uint8_t step;
    int32_t delta;
} attn_lower_run;

extern const attn_lower_run attn_lower_runs[];
extern const size_t attn_lower_run_count;

#endif
