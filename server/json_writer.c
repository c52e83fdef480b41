#include "server/json_writer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"
#include "core/checked.h"
#include "core/decimal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors travel as they lie in memory");

enum {
    MAX_RANK = 5,
    /* Behind a list's last number: the brackets that close, a comma, the brackets that open again. */
    BRACKETS = 2 * MAX_RANK + 1,
    /* The most that is written without looking at the room again: a number and what follows it. A
     * tensor's first step opens all levels as well. */
    STEP = ATTN_F32_CHARS + BRACKETS,
    FIRST_STEP = STEP + MAX_RANK
};
_Static_assert((int)BRACKETS >= ATTN_F32_SLACK, "a row may write so much behind its end");

typedef enum { TEXT, NUMBERS, BASE64, BYTES } segment_kind;

typedef struct {
    segment_kind kind;
    /* TEXT: bytes of w->text. Others: `to` leaves (NUMBERS) or bytes in all, of which those from `from` to `given`
     * lie at `data`; where that is NULL the leaves are empty arrays, "[]". */
    size_t from, given, to;
    const float *data; /* int32 for ATTN_I32 */
    attn_dtype dtype;  /* as which they leave: bytes are counted in that */
    size_t rank;
    size_t dim[MAX_RANK];
} segment;

struct srv_json_writer {
    char *text; /* of all TEXT segments, one behind the other */
    size_t text_n, text_capacity;
    segment *segments;
    size_t n, capacity;
    bool failed;

    /* Where srv_json_writer_read() stands. */
    size_t current, done; /* segment, and bytes or leaves of it */
    size_t at[MAX_RANK];  /* NUMBERS: the indices of the next leaf */
    char carry[2];        /* BASE64: the end of a part, less than a group: bytes done .. from */
};

srv_json_writer *srv_json_writer_new(void)
{
    return calloc(1, sizeof(srv_json_writer));
}

void srv_json_writer_free(srv_json_writer *w)
{
    if (w == NULL)
        return;
    free(w->text);
    free(w->segments);
    free(w);
}

attn_status srv_json_writer_status(const srv_json_writer *w)
{
    return w->failed ? ATTN_ENOMEM : ATTN_OK;
}

void srv_json_writer_fail(srv_json_writer *w)
{
    w->failed = true;
}

/* --- appending -------------------------------------------------------------------------------- */

/* Room for `more` elements behind the n that *p holds; remembers a failure. */
static bool make_room(srv_json_writer *w, void **p, size_t *capacity, size_t n, size_t more,
                      size_t size)
{
    size_t need = 0, bytes = 0;

    if (w->failed)
        return false;
    if (!attn_size_add(n, more, &need))
        goto fail;
    if (need <= *capacity)
        return true;
    need = need < 2 * *capacity ? 2 * *capacity : need;
    if (!attn_size_mul(need, size, &bytes))
        goto fail;
    void *grown = realloc(*p, bytes);
    if (grown == NULL)
        goto fail;
    *p = grown;
    *capacity = need;
    return true;
fail:
    w->failed = true;
    return false;
}

static segment *add_segment(srv_json_writer *w, segment_kind kind)
{
    void *p = w->segments;

    bool ok = make_room(w, &p, &w->capacity, w->n, 1, sizeof *w->segments);
    w->segments = p;
    if (!ok || p == NULL)
        return NULL;
    segment *s = &w->segments[w->n++];
    *s = (segment){.kind = kind, .from = w->text_n, .to = w->text_n};
    return s;
}

/* `more` bytes at the end of the text, for the caller to write. */
static char *add_text(srv_json_writer *w, size_t more)
{
    void *p = w->text;

    bool ok = make_room(w, &p, &w->text_capacity, w->text_n, more, 1);
    w->text = p;
    if (!ok || p == NULL)
        return NULL;
    segment *last = w->n > w->current ? &w->segments[w->n - 1] : NULL; /* else it has been read */
    if (last == NULL || last->kind != TEXT)
        last = add_segment(w, TEXT);
    if (last == NULL)
        return NULL;
    char *text = w->text + w->text_n;
    w->text_n += more;
    last->to = w->text_n;
    return text;
}

void srv_json_writer_raw(srv_json_writer *w, const char *text, size_t n)
{
    char *to = n > 0 ? add_text(w, n) : NULL;

    if (to != NULL)
        memcpy(to, text, n);
}

void srv_json_writer_format(srv_json_writer *w, const char *format, ...)
{
    char small[256], *large = NULL;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n >= (int)sizeof small) {
        va_start(args, format);
        n = vasprintf(&large, format, args);
        va_end(args);
    }
    if (n < 0)
        w->failed = true;
    else
        srv_json_writer_raw(w, large != NULL ? large : small, (size_t)n);
    free(large);
}

void srv_json_writer_string(srv_json_writer *w, const char *utf8)
{
    static const char escapes[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    const char *p = utf8;

    srv_json_writer_raw(w, "\"", 1);
    while (*p != '\0') {
        const char *plain = p;
        while ((unsigned char)*p >= 0x20 && *p != '"' && *p != '\\')
            p++;
        srv_json_writer_raw(w, plain, (size_t)(p - plain));
        unsigned char c = (unsigned char)*p;
        if (c == '\0')
            break;
        if (c == '"' || c == '\\')
            srv_json_writer_format(w, "\\%c", c);
        else if (escapes[c] != 0)
            srv_json_writer_format(w, "\\%c", escapes[c]);
        else
            srv_json_writer_format(w, "\\u%04x", c);
        p++;
    }
    srv_json_writer_raw(w, "\"", 1);
}

void srv_json_writer_values(srv_json_writer *w, const void *data, size_t rank, const size_t *dim,
                            srv_form form, attn_dtype dtype)
{
    static const segment_kind kinds[] = {
        [SRV_LISTS] = NUMBERS, [SRV_BASE64] = BASE64, [SRV_BYTES] = BYTES};
    size_t leaves = 1, levels = 0;

    assert(rank <= MAX_RANK);
    /* Levels below a dimension of 0 do not show in nested arrays. */
    while (levels < rank && (dim[levels] > 0 || form != SRV_LISTS))
        leaves *= dim[levels++];
    if (form == SRV_BASE64) {
        srv_json_writer_raw(w, "{\"shape\":[", 10);
        for (size_t i = 0; i < rank; i++)
            srv_json_writer_format(w, i == 0 ? "%zu" : ",%zu", dim[i]);
        srv_json_writer_format(w, "],\"dtype\":\"%s\",\"data\":\"", attn_dtype_name(dtype));
    }
    segment *s = add_segment(w, kinds[form]);
    if (s != NULL) {
        s->to = form == SRV_LISTS ? leaves : leaves * attn_dtype_size(dtype);
        s->from = 0;
        s->given = data == NULL && levels == rank ? 0 : s->to;
        s->data = levels == rank ? data : NULL;
        s->dtype = dtype;
        s->rank = levels;
        for (size_t i = 0; i < levels; i++)
            s->dim[i] = dim[i];
    }
    if (form == SRV_BASE64)
        srv_json_writer_raw(w, "\"}", 2);
}

void srv_json_writer_tensor(srv_json_writer *w, const float *data, size_t rank, const size_t *dim,
                            bool base64)
{
    static const float none;

    srv_json_writer_values(w, data != NULL ? data : &none, rank, dim,
                           base64 ? SRV_BASE64 : SRV_LISTS, ATTN_F32);
}

void srv_json_writer_tensor_in_parts(srv_json_writer *w, size_t rank, const size_t *dim,
                                     bool base64)
{
    srv_json_writer_values(w, NULL, rank, dim, base64 ? SRV_BASE64 : SRV_LISTS, ATTN_F32);
}

void srv_json_writer_bytes(srv_json_writer *w, const float *data, size_t n)
{
    srv_json_writer_values(w, data, 1, &n, SRV_BYTES, ATTN_F32);
}

/* --- types ------------------------------------------------------------------------------------ */

enum { BLOCK = 256 }; /* elements that are turned into another type at a time */

/* The product is exact in double, so that halves are what they are. */
static uint8_t to_u8(float x)
{
    double scaled = (double)x * 255.0 + 0.5;
    return scaled >= 255.0 ? 255 : scaled > 0.0 ? (uint8_t)scaled : 0;
}

static void narrow(const segment *s, size_t first, size_t n, void *out)
{
    const float *x = s->data + first;

    for (size_t i = 0; i < n && s->dtype == ATTN_F16; i++)
        ((uint16_t *)out)[i] = attn_f32_to_f16(x[i]);
    for (size_t i = 0; i < n && s->dtype == ATTN_U8; i++)
        ((uint8_t *)out)[i] = to_u8(x[i]);
}

/* Bytes [first, first + n) of what is given, as they leave. */
static void copy_bytes(const segment *s, size_t first, size_t n, char *out)
{
    size_t size = attn_dtype_size(s->dtype);

    if (size == sizeof(float)) {
        memcpy(out, (const char *)s->data + first, n);
        return;
    }
    while (n > 0) {
        uint16_t block[BLOCK];
        size_t skip = first % size, elements = (skip + n + size - 1) / size;
        elements = elements < BLOCK ? elements : BLOCK;
        size_t bytes = elements * size - skip < n ? elements * size - skip : n;
        narrow(s, first / size, elements, block);
        memcpy(out, (const char *)block + skip, bytes);
        first += bytes;
        out += bytes;
        n -= bytes;
    }
}

/* Each followed by a comma. */
static size_t print_integers(char *out, const int32_t *x, size_t n)
{
    char *p = out;

    for (size_t i = 0; i < n; i++)
        p += snprintf(p, ATTN_F32_CHARS, "%d,", (int)x[i]);
    return (size_t)(p - out);
}

/* Numbers [first, first + n) of what is given, each followed by a comma. */
static size_t print_numbers(const segment *s, size_t first, size_t n, char *out)
{
    float block[BLOCK];
    uint16_t narrowed[BLOCK];
    size_t used = 0;

    if (s->dtype == ATTN_F32)
        return attn_f32_print_row(out, s->data + first, n);
    if (s->dtype == ATTN_I32)
        return print_integers(out, (const int32_t *)s->data + first, n);
    for (size_t i = 0, some; i < n; i += some) {
        some = n - i < BLOCK ? n - i : BLOCK;
        narrow(s, first + i, some, narrowed);
        for (size_t k = 0; k < some; k++)
            block[k] = s->dtype == ATTN_F16 ? attn_f16_to_f32(narrowed[k])
                                            : (float)((const uint8_t *)narrowed)[k];
        used += attn_f32_print_row(out + used, block, some);
    }
    return used;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Closes the lists that end behind the leaf just written and opens those of the next one. */
static char *write_brackets(srv_json_writer *w, const segment *s, char *p)
{
    size_t level = s->rank, closed;

    while (level > 0 && w->at[level - 1] + 1 == s->dim[level - 1]) {
        w->at[--level] = 0;
        *p++ = ']';
    }
    closed = s->rank - level;
    if (level == 0)
        return p; /* that was the last leaf */
    w->at[level - 1]++;
    *p++ = ',';
    memset(p, '[', closed);
    return p + closed;
}

static char *read_numbers(srv_json_writer *w, const segment *s, char *p, const char *end)
{
    if (w->done == 0 && s->rank > 0) {
        memset(p, '[', s->rank);
        p += s->rank;
    }
    while (w->done < s->given && end - p >= STEP) {
        if (s->data == NULL) {
            *p++ = '[';
            *p++ = ']';
            w->done++;
        } else { /* as much of the innermost list as there is room for, come what may */
            size_t none = 0, *at = s->rank > 0 ? &w->at[s->rank - 1] : &none;
            size_t left = (s->rank > 0 ? s->dim[s->rank - 1] : 1) - *at;
            size_t room = ((size_t)(end - p) - BRACKETS) / ATTN_F32_CHARS;
            size_t n = left < room ? left : room;
            n = n < s->given - w->done ? n : s->given - w->done;
            p += print_numbers(s, w->done - s->from, n, p);
            w->done += n;
            *at += n;
            if (n < left)
                continue;
            --*at; /* where write_brackets() looks: the last number, behind which no comma stands */
            p--;
        }
        p = write_brackets(w, s, p);
    }
    return p;
}

static char *read_base64(srv_json_writer *w, const segment *s, char *p, const char *end)
{
    char block[768]; /* a multiple of 3 */
    size_t carried = w->done < s->from ? s->from - w->done : 0;

    if (carried > 0 && s->given - w->done >= 3) { /* else the whole tensor ends within the group */
        memcpy(block, w->carry, carried);
        copy_bytes(s, 0, 3 - carried, block + carried);
        attn_base64_encode(p, block, 3);
        p += ATTN_BASE64_ENCODED(3);
        w->done += 3;
    } else if (carried > 0) {
        size_t n = s->given - w->done;
        memcpy(block, w->carry, carried);
        copy_bytes(s, 0, n - carried, block + carried);
        attn_base64_encode(p, block, n);
        w->done += n;
        return p + ATTN_BASE64_ENCODED(n);
    }
    size_t room = (size_t)(end - p) / 4 * 3, n = s->given - w->done;
    if (s->given < s->to)
        n = n / 3 * 3;       /* what is left waits for the next part */
    n = n < room ? n : room; /* a multiple of 3 bytes, or the rest */
    while (n > 0) {
        size_t some = n < sizeof block ? n : sizeof block;
        if (s->dtype == ATTN_F32) {
            some = n;
            attn_base64_encode(p, (const char *)s->data + (w->done - s->from), some);
        } else {
            copy_bytes(s, w->done - s->from, some, block);
            attn_base64_encode(p, block, some);
        }
        p += ATTN_BASE64_ENCODED(some);
        w->done += some;
        n -= some;
    }
    if (srv_json_writer_waits(w) && w->done >= s->from)
        copy_bytes(s, w->done - s->from, s->given - w->done, w->carry);
    return p;
}

static char *read_bytes(srv_json_writer *w, const segment *s, char *p, const char *end)
{
    size_t room = (size_t)(end - p), n = s->given - w->done;

    n = n < room ? n : room;
    if (n > 0)
        copy_bytes(s, w->done - s->from, n, p);
    w->done += n;
    return p + n;
}

static char *read_text(srv_json_writer *w, const segment *s, char *p, const char *end)
{
    size_t room = (size_t)(end - p), n = s->to - s->from - w->done;

    n = n < room ? n : room;
    memcpy(p, w->text + s->from + w->done, n);
    w->done += n;
    return p + n;
}

size_t srv_json_writer_read(srv_json_writer *w, char *out, size_t n)
{
    char *p = out;
    const char *end = out + n;

    while (!w->failed && w->current < w->n && !srv_json_writer_waits(w)) {
        const segment *s = &w->segments[w->current];
        size_t all = s->kind == TEXT ? s->to - s->from : s->to;
        /* With this much room every segment makes progress. */
        if (end - p < (s->kind == TEXT || s->kind == BYTES ? 1 : FIRST_STEP))
            break;
        p = s->kind == TEXT      ? read_text(w, s, p, end)
            : s->kind == NUMBERS ? read_numbers(w, s, p, end)
            : s->kind == BASE64  ? read_base64(w, s, p, end)
                                 : read_bytes(w, s, p, end);
        if (w->done < all)
            break;
        w->current++;
        w->done = 0;
    }
    return (size_t)(p - out);
}

void srv_json_writer_rewind(srv_json_writer *w)
{
    w->current = w->done = 0;
    memset(w->at, 0, sizeof w->at);
}

/* --- numbers in parts ------------------------------------------------------------------------- */

bool srv_json_writer_waits(const srv_json_writer *w)
{
    const segment *s = w->current < w->n ? &w->segments[w->current] : NULL;

    return s != NULL && s->kind != TEXT && s->given < s->to &&
           s->given - w->done < (s->kind == BASE64 ? 3 : 1);
}

void srv_json_writer_part(srv_json_writer *w, const float *data, size_t n)
{
    segment *s = &w->segments[w->current];

    assert(n > 0 && srv_json_writer_waits(w));
    s->data = data;
    s->from = s->given;
    s->given += s->kind == NUMBERS ? n : n * attn_dtype_size(s->dtype);
    assert(s->given <= s->to);
    if (srv_json_writer_waits(w)) { /* still less than a group: it is taken here, nobody reads it */
        copy_bytes(s, 0, s->given - s->from, w->carry + (s->from - w->done));
        s->from = s->given;
    }
}

uint64_t srv_json_writer_length(const srv_json_writer *w)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < w->n; i++) {
        const segment *s = &w->segments[i];
        if (s->kind != TEXT && s->kind != BYTES)
            return UINT64_MAX;
        bytes += s->to - (s->kind == TEXT ? s->from : 0);
    }
    return bytes;
}

/* --- the bound -------------------------------------------------------------------------------- */

static size_t add_product(size_t sum, size_t a, size_t b)
{
    size_t product = 0;

    return attn_size_mul(a, b, &product) && attn_size_add(sum, product, &sum) ? sum : SIZE_MAX;
}

size_t srv_json_writer_bound(size_t count, size_t rank, const size_t *dim, bool base64)
{
    size_t bytes = 64, lists = 1; /* 64: the members' names of a tensor object */

    if (base64) {
        bytes += rank * 21;                           /* digits of a size_t, and a comma */
        return add_product(bytes, count / 3 + 1, 16); /* 3 floats are 16 characters */
    }
    bytes = ATTN_F32_CHARS;                          /* one number alone, without a comma */
    for (size_t i = 0; i < rank && lists > 0; i++) { /* two brackets and a comma for each list */
        bytes = add_product(bytes, lists, 3);
        if (!attn_size_mul(lists, dim[i], &lists))
            return SIZE_MAX;
    }
    return add_product(bytes, count, ATTN_F32_CHARS); /* at most 15 digits and a comma */
}
