#include "npy.h"

#include <inttypes.h>
#include <string.h>

#include "checked.h"
#include "file.h"

#define MAGIC "\x93NUMPY"

enum { MAGIC_BYTES = 6, VERSION_1_PREFIX = 10 };

attn_status attn_npy_measure(size_t *header_bytes, const void *start, size_t n, uint64_t total,
                             const char *what, attn_error *err)
{
    const unsigned char *byte = start;
    const char *other = attn_file_looks_like(start, n);
    size_t prefix = VERSION_1_PREFIX, length = 0;

    if (n < MAGIC_BYTES || memcmp(start, MAGIC, MAGIC_BYTES) != 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: not a .npy file%s%s", what,
                         total == 0      ? ": it is empty (0 bytes)"
                         : other != NULL ? ": it looks like "
                                         : ": it does not start with the magic string",
                         total != 0 && other != NULL ? other : "");
    if (n < ATTN_NPY_PREFIX)
        return attn_fail(err, ATTN_EFORMAT, "%s: is cut: it has only %" PRIu64 " bytes", what,
                         total);
    if (byte[6] < 1 || byte[6] > 3 || byte[7] != 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: .npy version %d.%d is none of 1.0, 2.0, 3.0", what,
                         byte[6], byte[7]);
    length = (size_t)byte[8] | (size_t)byte[9] << 8;
    if (byte[6] > 1) {
        prefix = ATTN_NPY_PREFIX;
        length |= (size_t)byte[10] << 16 | (size_t)byte[11] << 24;
    }
    if (length > total - prefix)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: header length %zu is larger than what follows it (%" PRIu64 " bytes)",
                         what, length, total - prefix);
    if (prefix + length > ATTN_NPY_HEADER_MAX)
        return attn_fail(err, ATTN_EFORMAT, "%s: header length %zu is over the limit of %zu", what,
                         length, ATTN_NPY_HEADER_MAX - prefix);
    if (length < 2)
        return attn_fail(err, ATTN_EFORMAT, "%s: header length %zu is too short for a dict", what,
                         length);
    *header_bytes = prefix + length;
    return ATTN_OK;
}

/* The text of the header that is still to be read; `what` is for messages. */
typedef struct {
    const char *at, *start, *end;
    const char *what;
} cursor;

static attn_status fail_here(const cursor *c, const char *expected, attn_error *err)
{
    return attn_fail(err, ATTN_EFORMAT, "%s: the header has no %s at character %zu", c->what,
                     expected, (size_t)(c->at - c->start));
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Takes `symbol` with the blanks before it; false when another one is next. */
static bool take(cursor *c, char symbol)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != symbol)
        return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A string literal without escapes; copies it with its NUL. */
static bool take_string(cursor *c, char *out, size_t size)
{
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : '\0';
    size_t n = 0;

    if (quote == '\0')
        return false;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || *c->at < ' ' || *c->at > '~' || n + 1 == size)
            return false;
        out[n++] = *c->at++;
    }
    out[n] = '\0';
    return take(c, quote);
}

static bool take_size(cursor *c, size_t *out)
{
    const char *first = c->at;

    *out = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (!attn_size_mul(*out, 10, out) || !attn_size_add(*out, (size_t)(*c->at - '0'), out))
            return false;
    }
    return c->at > first;
}

/* (), (2,), (2, 3), (2, 3,) */
static attn_status take_shape(attn_tensor *t, cursor *c, attn_error *err)
{
    bool comma = true;

    if (!take(c, '('))
        return fail_here(c, "tuple for the shape", err);
    for (t->rank = 0; !take(c, ')'); t->rank++) {
        if (!comma)
            return fail_here(c, "comma in the shape", err);
        if (t->rank == ATTN_MAX_RANK)
            return attn_fail(err, ATTN_EUNSUPPORTED, "%s: more than %d dimensions are not read",
                             c->what, ATTN_MAX_RANK);
        skip_blanks(c);
        if (!take_size(c, &t->dim[t->rank]))
            return fail_here(c, "plain dimension", err);
        comma = take(c, ',');
    }
    if (t->rank == 1 && !comma)
        return fail_here(c, "tuple for the shape", err); /* (2) is a number in Python */
    return ATTN_OK;
}

/* *element_bytes of a spelling such as "<f4", "|b1", "<U12", "<M8[ns]". */
static attn_status read_descr(attn_tensor *t, const char *descr, size_t *element_bytes,
                              const char *what, attn_error *err)
{
    static const struct {
        char kind;
        size_t bytes;
        attn_dtype dtype;
    } known[] = {
        {'f', 4, ATTN_F32}, {'f', 2, ATTN_F16}, {'f', 8, ATTN_F64}, {'b', 1, ATTN_BOOL},
        {'i', 1, ATTN_I8},  {'u', 1, ATTN_U8},  {'i', 2, ATTN_I16}, {'u', 2, ATTN_U16},
        {'i', 4, ATTN_I32}, {'u', 4, ATTN_U32}, {'i', 8, ATTN_I64}, {'u', 8, ATTN_U64},
    };
    char order = descr[0], kind = order != '\0' ? descr[1] : '\0';
    cursor c = {descr, descr, descr + strlen(descr), what};

    if (kind == 'O')
        return attn_fail(
            err, ATTN_EUNSUPPORTED,
            "%s: dtype %s holds pickled Python objects, which are not read: save plain "
            "float arrays",
            what, descr);
    c.at += 2;
    if ((order != '<' && order != '>' && order != '|') || kind == '\0' ||
        strchr("fiubcSUVmM", kind) == NULL || !take_size(&c, element_bytes) ||
        (*c.at != '\0' && (*c.at != '[' || (kind != 'm' && kind != 'M'))) ||
        (kind == 'U' && !attn_size_mul(*element_bytes, 4, element_bytes)))
        return attn_fail(err, ATTN_EFORMAT, "%s: dtype \"%s\" is not known", what, descr);

    t->dtype = ATTN_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].kind == kind && known[i].bytes == *element_bytes)
            t->dtype = known[i].dtype;
    }
    if (order == '|' && t->dtype != ATTN_OTHER && *element_bytes > 1)
        return attn_fail(err, ATTN_EFORMAT, "%s: dtype \"%s\" does not tell the byte order", what,
                         descr);
    t->dtype_name = descr;
    t->big_endian = order == '>' && *element_bytes > 1;
    return ATTN_OK;
}

/* One value of the dict. Each key must stand once: `seen` has a bit for each. */
static attn_status take_entry(attn_tensor *t, cursor *c, char *descr, unsigned *seen,
                              attn_error *err)
{
    char key[16] = "";
    unsigned bit = 0;

    if (!take_string(c, key, sizeof key) || !take(c, ':'))
        return fail_here(c, "quoted key with its colon", err);
    if (strcmp(key, "descr") == 0) {
        bit = 1;
        skip_blanks(c);
        if (c->at < c->end && *c->at == '[')
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "%s: structured arrays are not read: save plain float arrays",
                             c->what);
        if (!take_string(c, descr, ATTN_NPY_DESCR_MAX))
            return fail_here(c, "dtype in quotes", err);
    } else if (strcmp(key, "fortran_order") == 0) {
        bit = 2;
        t->column_major = take_word(c, "True");
        if (!t->column_major && !take_word(c, "False"))
            return fail_here(c, "True or False", err);
    } else if (strcmp(key, "shape") == 0) {
        bit = 4;
        ATTN_TRY(take_shape(t, c, err));
    } else {
        return attn_fail(err, ATTN_EFORMAT, "%s: the header has the unknown key \"%s\"", c->what,
                         key);
    }
    if ((*seen & bit) != 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: the key \"%s\" stands twice", c->what, key);
    *seen |= bit;
    return ATTN_OK;
}

static attn_status take_dict(attn_tensor *t, cursor *c, char *descr, attn_error *err)
{
    bool comma = true;
    unsigned seen = 0;

    if (!take(c, '{'))
        return fail_here(c, "dict", err);
    while (!take(c, '}')) {
        if (!comma)
            return fail_here(c, "comma", err);
        ATTN_TRY(take_entry(t, c, descr, &seen, err));
        comma = take(c, ',');
    }
    skip_blanks(c);
    if (c->at != c->end)
        return fail_here(c, "end", err);
    if (seen != 7)
        return attn_fail(err, ATTN_EFORMAT, "%s: the header has no key \"%s\"", c->what,
                         (seen & 1) == 0   ? "descr"
                         : (seen & 2) == 0 ? "fortran_order"
                                           : "shape");
    return ATTN_OK;
}

attn_status attn_npy_parse(attn_tensor *t, char descr[ATTN_NPY_DESCR_MAX], const void *start,
                           size_t n, uint64_t total, const char *what, attn_error *err)
{
    size_t header_bytes = 0, element_bytes = 0;
    const char *text = start;

    ATTN_TRY(attn_npy_measure(&header_bytes, start, n, total, what, err));
    if (n < header_bytes)
        return attn_fail(err, ATTN_EFORMAT, "%s: is cut within its header", what);
    size_t prefix = text[6] == 1 ? VERSION_1_PREFIX : ATTN_NPY_PREFIX;
    cursor c = {text + prefix, text + prefix, text + header_bytes, what};
    ATTN_TRY(take_dict(t, &c, descr, err));
    ATTN_TRY(read_descr(t, descr, &element_bytes, what, err));
    if (!attn_size_product(t->dim, t->rank, &t->count) ||
        !attn_size_mul(t->count, element_bytes, &t->bytes))
        return attn_fail(err, ATTN_EFORMAT, "%s: the size of its shape overflows", what);
    if (total != ATTN_NPY_UNKNOWN && t->bytes != total - header_bytes)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: shape and dtype %s need %zu bytes of data, it has %" PRIu64, what,
                         descr, t->bytes, total - header_bytes);
    t->offset = header_bytes;
    t->column_major = t->column_major && t->rank > 1; /* else both orders are the same */
    return ATTN_OK;
}
