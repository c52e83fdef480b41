/* units.h: sizes and durations as text; parsing is in config.h. */
#ifndef CFG_UNITS_H
#define CFG_UNITS_H

#include <stdint.h>

enum { CFG_UNIT_CHARS = 32 };

/* The shortest exact text: "256MiB", "1025B"; "10s", "1500ms". */
void cfg_size_text(char out[CFG_UNIT_CHARS], uint64_t bytes);
void cfg_duration_text(char out[CFG_UNIT_CHARS], int64_t ms);

#endif
