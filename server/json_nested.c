/* Nested lists of elements: their shape is found, and held to, as they go by. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/decimal.h"
#include "server/json_private.h"

static const srv_field *field_of(const srv_json_reader *r)
{
    return &r->fields[r->field];
}

static size_t element_size(srv_field_kind kind)
{
    return kind == SRV_MASK ? 1 : kind == SRV_INTS ? sizeof(int64_t) : sizeof(float);
}

static attn_status fail_expected(const srv_json_reader *r, const char *expected, const char *found,
                                 attn_error *err)
{
    srv_pointer at = srv_json_pointer(r);

    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: expected %s, found %s", at.text, expected,
                        found);
}

static attn_status fail_rank(const srv_json_reader *r, unsigned rank, attn_error *err)
{
    const srv_field *f = field_of(r);
    char allowed[32];

    if (f->min_rank == f->max_rank)
        (void)snprintf(allowed, sizeof allowed, "%u", f->min_rank);
    else
        (void)snprintf(allowed, sizeof allowed, "%u to %u", f->min_rank, f->max_rank);
    char pointer[SRV_POINTER_BYTES];
    (void)snprintf(pointer, sizeof pointer, "/%s", f->name);
    return attn_fail_at(err, ATTN_ESHAPE, pointer, "%s has rank %u, expected %s", f->name, rank,
                        allowed);
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Lists of any lengths, [B][T]: labels, and ragged fields of rank 2. */
static bool holds_lists_of_any_length(const srv_field *f)
{
    return f->kind == SRV_LABELS || (f->ragged && f->max_rank == 2);
}

/* May the lists of this level differ in length? Of [B][T] the last one, of [B][T][D] the middle one. A ragged field of
 * that rank whose numbers stand at level 2 is one sequence, [T][D]. */
static bool lengths_vary(const srv_json_reader *r, unsigned level)
{
    const srv_field *f = field_of(r);

    return level == 2 && (holds_lists_of_any_length(f) ||
                          (f->ragged && r->nested.holds[2] != SRV_HOLDS_ELEMENTS));
}

static attn_status open_list(srv_json_reader *r, attn_error *err)
{
    srv_json_nested *t = &r->nested;

    if (t->depth > 0 && t->holds[t->depth] == SRV_HOLDS_ELEMENTS)
        return fail_expected(r, field_of(r)->kind == SRV_LABELS ? "a string" : "a number",
                             "an array", err);
    t->holds[t->depth] = SRV_HOLDS_LISTS;
    if (t->depth == SRV_LIST_DEPTH)
        return fail_expected(r, "arrays nested at most 8 deep", "a deeper one", err);
    t->at[++t->depth] = 0;
    if (t->deepest < t->depth)
        t->deepest = t->depth;
    return ATTN_OK;
}

static attn_status fail_uneven(const srv_json_reader *r, unsigned level, size_t n, attn_error *err)
{
    const srv_json_nested *t = &r->nested;
    srv_pointer at = srv_json_pointer(r);
    bool row = t->holds[level] != SRV_HOLDS_LISTS;

    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: %s has %zu %s, the first has %zu", at.text,
                        row ? "row" : "list", n, row ? "numbers" : "items", t->size[level]);
}

static attn_status close_list(srv_json_reader *r, attn_error *err)
{
    srv_json_nested *t = &r->nested;
    unsigned level = t->depth;
    size_t n = t->at[level];

    if (level > field_of(r)->max_rank)
        return fail_rank(r, level, err);
    t->depth--;
    if (lengths_vary(r, level)) {
        ATTN_TRY(srv_json_grow(r, &t->lengths, 1, sizeof(size_t), err));
        ((size_t *)t->lengths.p)[t->lengths.n++] = n;
    } else if (!t->closed[level]) {
        t->closed[level] = true;
        t->size[level] = n;
    } else if (t->size[level] != n) {
        return fail_uneven(r, level, n, err);
    }
    t->at[t->depth]++;
    return ATTN_OK;
}

/* --- elements --------------------------------------------------------------------------------- */

static attn_status begin_element(srv_json_reader *r, srv_json_type type, attn_error *err)
{
    srv_json_nested *t = &r->nested;
    const srv_field *f = field_of(r);

    if (t->holds[t->depth] == SRV_HOLDS_LISTS)
        return fail_expected(r, "an array", srv_json_type_name(type), err);
    if (t->depth < f->min_rank || t->depth > f->max_rank)
        return fail_rank(r, t->depth, err);
    if (t->depth == 2 && f->ragged && f->max_rank > 2 && t->lengths.n > 0) {
        /* What looked like sequences without tokens were rows without numbers. */
        srv_json_drop(r, &t->lengths, sizeof(size_t));
        t->closed[2] = true;
        t->size[2] = 0;
    }
    t->holds[t->depth] = SRV_HOLDS_ELEMENTS;
    return ATTN_OK;
}

attn_status srv_json_nested_begin(srv_json_reader *r, srv_json_type type, attn_error *err)
{
    static const char *const expected[] = {[SRV_FLOATS] = "a number",
                                           [SRV_BIAS] = "a number or \"-inf\"",
                                           [SRV_MASK] = "0, 1, true or false",
                                           [SRV_INTS] = "an integer",
                                           [SRV_LABELS] = "a string"};
    srv_field_kind kind = field_of(r)->kind;
    bool fits = false;

    switch (type) {
    case SRV_JSON_ARRAY:
        return open_list(r, err);
    case SRV_JSON_NUMBER:
        fits = kind != SRV_LABELS;
        break;
    case SRV_JSON_STRING:
        fits = kind == SRV_LABELS || kind == SRV_BIAS;
        break;
    case SRV_JSON_TRUE:
    case SRV_JSON_FALSE:
        fits = kind == SRV_MASK;
        break;
    default:
        break;
    }
    if (!fits)
        return fail_expected(r, expected[kind], srv_json_type_name(type), err);
    return begin_element(r, type, err);
}

static attn_status add_float(srv_json_reader *r, float x, attn_error *err)
{
    ATTN_TRY(srv_json_grow(r, &r->data, 1, sizeof x, err));
    ((float *)r->data.p)[r->data.n++] = x;
    return ATTN_OK;
}

static attn_status add_byte(srv_json_reader *r, bool x, attn_error *err)
{
    ATTN_TRY(srv_json_grow(r, &r->data, 1, 1, err));
    ((unsigned char *)r->data.p)[r->data.n++] = x;
    return ATTN_OK;
}

/* Exactly 0 or 1 as a JSON number, whatever its form: 1, 1.0, 0e5. Not by value: 1 + 1e-9 is 1.0f. */
static bool is_zero_or_one(const char *text, size_t n, bool *one)
{
    size_t i = n > 0 && text[0] == '-';

    *one = i < n && text[i] == '1';
    if (*one && i == 1)
        return false;
    i += *one;
    while (i < n && (text[i] == '0' || text[i] == '.')) {
        if (*one && text[i] == '0' && text[i - 1] == '1')
            return false; /* 10 */
        i++;
    }
    if (i == n)
        return true;
    if (text[i] != 'e' && text[i] != 'E')
        return false;
    while (*one && ++i < n) {
        if (text[i] != '0' && text[i] != '-' && text[i] != '+')
            return false;
    }
    return true;
}

static attn_status add_mask(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    bool one = false;

    if (is_zero_or_one(text, n, &one))
        return add_byte(r, one, err);
    return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text,
                        "%s holds %s; only 0, 1, true and false are allowed (1 = may attend)",
                        field_of(r)->name, srv_json_quote(text, n).text);
}

static attn_status add_integer(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    bool minus = text[0] == '-', fits = true;
    int64_t x = 0;

    for (size_t i = minus; i < n; i++) {
        int digit = text[i] - '0';
        if (digit < 0 || digit > 9)
            return fail_expected(r, "an integer without fraction or exponent",
                                 srv_json_quote(text, n).text, err);
        fits =
            fits && !__builtin_mul_overflow(x, 10, &x) &&
            !(minus ? __builtin_sub_overflow(x, digit, &x) : __builtin_add_overflow(x, digit, &x));
    }
    if (!fits)
        return fail_expected(r, "an integer of 64 bits", srv_json_quote(text, n).text, err);
    ATTN_TRY(srv_json_grow(r, &r->data, 1, sizeof x, err));
    ((int64_t *)r->data.p)[r->data.n++] = x;
    return ATTN_OK;
}

attn_status srv_json_nested_number(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    float x = 0;

    switch (field_of(r)->kind) {
    case SRV_MASK:
        return add_mask(r, text, n, err);
    case SRV_INTS:
        return add_integer(r, text, n, err);
    default:
        if (attn_f32_parse(text, n, &x))
            return add_float(r, x, err);
        srv_pointer at = srv_json_pointer(r);
        return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: %s is not finite as float32", at.text,
                            srv_json_quote(text, n).text);
    }
}

static attn_status add_string(srv_json_reader *r, attn_error *err)
{
    if (field_of(r)->kind == SRV_LABELS)
        return ATTN_OK;
    if (r->text_n == 4 && memcmp(r->text, "-inf", 4) == 0)
        return add_float(r, -INFINITY, err);
    srv_pointer at = srv_json_pointer(r);
    return attn_fail_at(err, ATTN_EINVAL, at.text,
                        "%s: \"%s\" is not a number; the only string allowed is \"-inf\"", at.text,
                        srv_json_quote(r->text, strlen(r->text)).text);
}

attn_status srv_json_nested_end(srv_json_reader *r, srv_json_type type, attn_error *err)
{
    if (type == SRV_JSON_ARRAY)
        return close_list(r, err);
    if (type == SRV_JSON_STRING)
        ATTN_TRY(add_string(r, err));
    else if (type == SRV_JSON_TRUE || type == SRV_JSON_FALSE)
        ATTN_TRY(add_byte(r, type == SRV_JSON_TRUE, err));
    r->nested.at[r->nested.depth]++;
    return ATTN_OK;
}

static size_t run_of_mask(unsigned char *out, const char *text, size_t n, size_t max, size_t *used)
{
    size_t count = 0, i = 0;

    for (; max - count >= 4 && n - i >= 8; count += 4, i += 8) { /* "0,1,1,0," */
        uint64_t v;
        memcpy(&v, text + i, sizeof v);
        if ((v & 0xfffefffefffefffe) != 0x2c302c302c302c30)
            break;
        for (unsigned k = 0; k < 4; k++)
            out[count + k] = v >> 16 * k & 1;
    }
    while (count < max && n - i >= 2 && (text[i] | 1) == '1' &&
           (text[i + 1] == ',' || text[i + 1] == ']')) {
        out[count++] = text[i++] & 1;
        if (text[i] == ']')
            break;
        do
            i++;
        while (i < n && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t'));
    }
    *used = i;
    return count;
}

size_t srv_json_nested_run(srv_json_reader *r, const char *text, size_t n)
{
    srv_json_nested *t = &r->nested;
    srv_field_kind kind = field_of(r)->kind;
    size_t room = r->data.capacity - r->data.n, count = 0, used = 0;

    /* The first element of all goes the long way, which checks the rank. */
    if (t->holds[t->depth] != SRV_HOLDS_ELEMENTS || room == 0)
        return 0;
    if (kind == SRV_FLOATS || kind == SRV_BIAS)
        count = attn_f32_scan(text, n, (float *)r->data.p + r->data.n, room, &used);
    else if (kind == SRV_MASK)
        count = run_of_mask((unsigned char *)r->data.p + r->data.n, text, n, room, &used);
    r->data.n += count;
    t->at[t->depth] += count;
    return used;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Rank and sizes of what went by; sizes that nothing told are 0. */
static void find_shape(const srv_json_reader *r, srv_array *a)
{
    const srv_json_nested *t = &r->nested;
    const srv_field *f = field_of(r);

    a->rank = t->deepest;
    if (t->holds[t->deepest] != SRV_HOLDS_ELEMENTS) {
        bool open = t->deepest == 1 || f->ragged || f->kind == SRV_LABELS;
        a->rank = open ? f->max_rank : a->rank < f->min_rank ? f->min_rank : a->rank;
    }
    for (unsigned i = 0; i < a->rank; i++)
        a->dim[i] = t->closed[i + 1] ? t->size[i + 1] : 0;
    a->unknown_width = a->rank > 0 && !t->closed[a->rank] && !holds_lists_of_any_length(f);
}

/* dim[1] is the longest length; the lengths stay where they differ. */
static void keep_lengths(srv_json_reader *r, srv_array *a)
{
    srv_block *b = &r->nested.lengths;
    const size_t *length = b->p;
    bool differ = false;

    for (size_t i = 0; i < b->n; i++) {
        differ = differ || length[i] != length[0];
        a->dim[1] = length[i] > a->dim[1] ? length[i] : a->dim[1];
    }
    if (b->n == 0 || (!differ && field_of(r)->kind != SRV_LABELS)) {
        srv_json_drop(r, b, sizeof *length);
        return;
    }
    srv_json_fit(r, b, sizeof *length);
    a->lengths = b->p;
    a->bytes += b->capacity * sizeof *length;
    *b = (srv_block){NULL, 0, 0}; /* the array owns it now */
}

attn_status srv_json_nested_finish(srv_json_reader *r, attn_error *err)
{
    srv_array *a = &r->slots[r->field].array;
    srv_field_kind kind = field_of(r)->kind;
    srv_block *b = kind == SRV_LABELS ? &r->copy : &r->data;
    size_t size = kind == SRV_LABELS ? 1 : element_size(kind);

    if (b->p == NULL)
        ATTN_TRY(srv_json_grow(r, b, 1, size, err)); /* an array that is present has data */
    srv_json_fit(r, b, size);
    find_shape(r, a);
    keep_lengths(r, a);
    a->present = true;
    a->count = b->n;
    a->data.any = b->p;
    a->bytes += b->capacity * size;
    *b = (srv_block){NULL, 0, 0}; /* the array owns it now */
    return ATTN_OK;
}
