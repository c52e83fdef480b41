#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config.h"

typedef struct {
    const char *name;
    uint64_t factor;
} unit;

static const unit SIZES[] = {
    {"GiB", (uint64_t)1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}};
static const unit DURATIONS[] = {{"min", 60000}, {"s", 1000}, {"ms", 1}};

enum {
    N_SIZES = sizeof SIZES / sizeof *SIZES,
    N_DURATIONS = sizeof DURATIONS / sizeof *DURATIONS,
    MOST_DECIMALS = 9 /* 10^9 times the largest factor fits 64 bits */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* digits [. digits] unit, exactly; parts of the base unit are cut off. */
static bool parse_quantity(const char *text, const unit *units, size_t n, uint64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1;

    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
            return false;
    }
    bool decimals = *text == '.';
    if (decimals) {
        const char *first = ++text;
        for (; is_digit(*text); text++) {
            part = part * 10 + (uint64_t)(*text - '0');
            scale *= 10;
            if (text - first >= MOST_DECIMALS)
                return false;
        }
        if (text == first)
            return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, units[i].name) != 0)
            continue;
        if (decimals && units[i].factor == 1)
            return false;
        return !__builtin_mul_overflow(whole, units[i].factor, &whole) &&
               !__builtin_add_overflow(whole, part * units[i].factor / scale, out);
    }
    return false;
}

bool cfg_parse_size(const char *text, uint64_t *bytes)
{
    return parse_quantity(text, SIZES, N_SIZES, bytes);
}

bool cfg_parse_duration(const char *text, int64_t *ms)
{
    uint64_t value;
    if (!parse_quantity(text, DURATIONS, N_DURATIONS, &value) || value > INT64_MAX)
        return false;
    *ms = (int64_t)value;
    return true;
}

void cfg_size_text(char out[CFG_UNIT_CHARS], uint64_t bytes)
{
    const unit *u = SIZES;
    while (bytes % u->factor != 0 || (bytes == 0 && u->factor > 1))
        u++;
    (void)snprintf(out, CFG_UNIT_CHARS, "%" PRIu64 "%s", bytes / u->factor, u->name);
}

void cfg_duration_text(char out[CFG_UNIT_CHARS], int64_t ms)
{
    if (ms % 1000 == 0)
        (void)snprintf(out, CFG_UNIT_CHARS, "%" PRId64 "s", ms / 1000);
    else
        (void)snprintf(out, CFG_UNIT_CHARS, "%" PRId64 "ms", ms);
}
