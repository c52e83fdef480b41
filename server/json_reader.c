/* The members of the top-level object, the reader's memory, and texts kept as they are. */
#include "server/json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/nearest.h"
#include "core/unicode.h"
#include "server/json_private.h"

#define NO_FIELD SIZE_MAX

/* --- words for messages ----------------------------------------------------------------------- */

const char *srv_json_type_name(srv_json_type type)
{
    static const char *const names[] = {"an object", "an array", "a string", "a number",
                                        "true",      "false",    "null"};
    return names[type];
}

srv_quote srv_json_quote(const char *text, size_t n)
{
    enum { LONGEST = SRV_SHORT_TEXT - 32 };
    srv_quote q;
    size_t length = n < LONGEST ? n : LONGEST;

    while (length < n && length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
        length--; /* not in the middle of a character */
    for (size_t i = 0; i < length; i++)
        q.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    (void)snprintf(q.text + length, sizeof q.text - length, "%s", length < n ? "..." : "");
    return q;
}

/* Appends a member's name, escaped as JSON Pointers ask and never cut inside a character. */
static void point_to_name(srv_pointer *p, const char *name)
{
    size_t n = strlen(p->text);

    p->text[n++] = '/';
    while (*name != '\0' && n + 2 * ATTN_UTF8_MAX < sizeof p->text) {
        size_t length = 1;
        while (length < ATTN_UTF8_MAX && ((unsigned char)name[length] & 0xC0) == 0x80)
            length++;
        if (*name == '~' || *name == '/') {
            p->text[n++] = '~';
            p->text[n++] = *name == '~' ? '0' : '1';
        } else {
            memcpy(p->text + n, name, length);
            n += length;
        }
        name += length;
    }
    p->text[n] = '\0';
}

static void point_to_index(srv_pointer *p, size_t i)
{
    size_t n = strlen(p->text);

    (void)snprintf(p->text + n, sizeof p->text - n, "/%zu", i);
}

srv_pointer srv_json_pointer(const srv_json_reader *r)
{
    static const char *const parts[] = {"shape", "dtype", "data"};
    srv_pointer p = {""};
    size_t field = r->field != NO_FIELD ? r->field : r->apart;

    if (field == NO_FIELD)
        return p;
    point_to_name(&p, r->fields[field].name);
    if (r->place == SRV_AT_NESTED) {
        for (unsigned i = 1; i <= r->nested.depth; i++)
            point_to_index(&p, r->nested.at[i]);
    } else if (r->place == SRV_AT_TENSOR && r->tensor.part != SRV_TENSOR_MEMBERS) {
        point_to_name(&p, parts[r->tensor.part]);
        if (r->tensor.part == SRV_TENSOR_SHAPE && r->scan.depth == 3)
            point_to_index(&p, r->tensor.rank);
    }
    return p;
}

/* --- memory ----------------------------------------------------------------------------------- */

attn_status srv_json_charge(srv_json_reader *r, size_t bytes, attn_error *err)
{
    if (bytes > PTRDIFF_MAX)
        return attn_fail(err, ATTN_ETOOBIG, "the body needs more than any memory");
    if (r->charge != NULL && bytes > 0)
        ATTN_TRY(r->charge(r->charge_arg, (ptrdiff_t)bytes, err));
    r->charged += bytes;
    return ATTN_OK;
}

void srv_json_discharge(srv_json_reader *r, size_t bytes)
{
    if (r->charge != NULL && bytes > 0)
        (void)r->charge(r->charge_arg, -(ptrdiff_t)bytes, NULL);
    r->charged -= bytes;
}

attn_status srv_json_grow(srv_json_reader *r, srv_block *b, size_t more, size_t size,
                          attn_error *err)
{
    return srv_json_grow_within(r, b, more, SIZE_MAX, size, err);
}

attn_status srv_json_grow_within(srv_json_reader *r, srv_block *b, size_t more, size_t most,
                                 size_t size, attn_error *err)
{
    size_t need = 0, ahead = b->capacity / 2 + 64, bytes = 0, extra = 0;

    if (b->capacity - b->n >= more)
        return ATTN_OK;
    if (!attn_size_add(b->n, more, &need) || !attn_size_mul(need, size, &bytes) ||
        bytes > PTRDIFF_MAX / 2)
        return srv_json_charge(r, SIZE_MAX, err);
    ahead = ahead < most - need ? ahead : most - need;
    /* Ahead of the need as far as there is room; with none at all, the refusal. */
    for (;; ahead /= 4) {
        bytes = (need + ahead) * size;
        extra = bytes - b->capacity * size;
        attn_status rc = srv_json_charge(r, extra, ahead == 0 ? err : NULL);
        if (rc == ATTN_OK)
            break;
        if (ahead == 0)
            return rc;
    }
    void *p = realloc(b->p, bytes);
    if (p == NULL) {
        srv_json_discharge(r, extra);
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu bytes of the body", bytes);
    }
    b->p = p;
    b->capacity = need + ahead;
    return ATTN_OK;
}

void srv_json_fit(srv_json_reader *r, srv_block *b, size_t size)
{
    size_t keep = b->n > 0 ? b->n : 1;

    if (b->capacity <= keep)
        return;
    void *p = realloc(b->p, keep * size);
    if (p == NULL)
        return; /* the larger block serves as well */
    srv_json_discharge(r, (b->capacity - keep) * size);
    b->p = p;
    b->capacity = keep;
}

void srv_json_drop(srv_json_reader *r, srv_block *b, size_t size)
{
    free(b->p);
    srv_json_discharge(r, b->capacity * size);
    *b = (srv_block){NULL, 0, 0};
}

void srv_json_keep_text(srv_json_reader *r, const char *text, size_t n)
{
    const size_t room = sizeof r->text - 1;
    size_t kept = r->text_n < room ? r->text_n : room, more = n < room - kept ? n : room - kept;

    if (r->text_n > room)
        return; /* cut already */
    memcpy(r->text + kept, text, more);
    kept += more;
    r->text_n += n;
    if (r->text_n > room) { /* perhaps inside its last character, which goes then */
        while (kept > 0 && ((unsigned char)r->text[kept - 1] & 0xC0) == 0x80)
            kept--;
        kept -= kept > 0 && (unsigned char)r->text[kept - 1] >= 0xC0;
    }
    r->text[kept] = '\0';
}

/* --- texts kept as they are ------------------------------------------------------------------- */

static bool is_copied(const srv_json_reader *r)
{
    return r->place == SRV_AT_VALUE ||
           (r->place == SRV_AT_NESTED && r->fields[r->field].kind == SRV_LABELS);
}

static attn_status copy_until(srv_json_reader *r, const char *behind, attn_error *err)
{
    size_t n = (size_t)(behind - r->copy_from);

    ATTN_TRY(srv_json_grow(r, &r->copy, n, 1, err));
    memcpy((char *)r->copy.p + r->copy.n, r->copy_from, n);
    r->copy.n += n;
    r->copy_from = NULL;
    return ATTN_OK;
}

/* Scanning stops where the text of a value is longer than it may be. */
static void limit_value(srv_json_reader *r, const char *from)
{
    srv_json_scan *s = &r->scan;
    size_t room = SRV_VALUE_BYTES - r->copy.n;

    s->stop = (size_t)(s->end - from) > room ? from + room : s->end;
}

static attn_status parse_value(srv_json_reader *r, attn_error *err)
{
    srv_slot *slot = &r->slots[r->field];
    const char *name = r->fields[r->field].name;
    attn_error why = {0};

    size_t tree = r->copy.n * SRV_VALUE_COST;
    ATTN_TRY(srv_json_charge(r, tree, err));
    slot->value_charge = tree;
    attn_status rc = attn_json_parse(&slot->value, r->copy.p, r->copy.n, name, &why);
    srv_json_drop(r, &r->copy, 1);
    if (rc == ATTN_OK)
        return ATTN_OK;
    /* The grammar was held already: what is left are duplicate names and numbers out of range. */
    return attn_fail_at(err, rc == ATTN_EFORMAT ? ATTN_EINVAL : rc, srv_json_pointer(r).text, "%s",
                        why.text);
}

/* --- members ---------------------------------------------------------------------------------- */

static attn_status fail_unknown(const srv_json_reader *r, attn_error *err)
{
    const char *near = attn_nearest(r->text, r->names, r->num_fields);
    srv_quote name = srv_json_quote(r->text, strlen(r->text));
    srv_pointer p = {""};

    point_to_name(&p, r->text);
    if (near == NULL)
        return attn_fail_at(err, ATTN_EINVAL, p.text, "unknown field \"%s\"", name.text);
    return attn_fail_at(err, ATTN_EINVAL, p.text, "unknown field \"%s\"; did you mean \"%s\"?",
                        name.text, near);
}

attn_status srv_json_key(srv_json_reader *r, attn_error *err)
{
    if (r->place == SRV_AT_TENSOR)
        return srv_json_tensor_key(r, err);
    if (r->place != SRV_AT_MEMBERS)
        return ATTN_OK; /* a value's own; jansson refuses duplicates */
    size_t i = 0;
    while (i < r->num_fields && strcmp(r->names[i], r->text) != 0)
        i++;
    if (i == r->num_fields || r->text_n >= sizeof r->text)
        return fail_unknown(r, err);
    r->field = i;
    if (r->slots[i].seen)
        return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text, "duplicate field \"%s\"",
                            r->names[i]);
    r->slots[i].seen = true;
    return ATTN_OK;
}

static attn_status begin_value(srv_json_reader *r, srv_json_type type, const char *at,
                               attn_error *err)
{
    r->place = SRV_AT_VALUE;
    if (type == SRV_JSON_TRUE || type == SRV_JSON_FALSE) { /* told when it has already gone by */
        r->copy_from = srv_json_type_name(type);
        return copy_until(r, r->copy_from + strlen(r->copy_from), err);
    }
    r->copy_from = at;
    limit_value(r, at);
    return ATTN_OK;
}

static attn_status begin_member(srv_json_reader *r, srv_json_type type, const char *at,
                                attn_error *err)
{
    const srv_field *f = &r->fields[r->field];
    bool array = type == SRV_JSON_ARRAY;
    bool number = type == SRV_JSON_NUMBER || (type == SRV_JSON_STRING && f->kind == SRV_BIAS) ||
                  ((type == SRV_JSON_TRUE || type == SRV_JSON_FALSE) && f->kind == SRV_MASK);

    if (f->kind == SRV_OPTION && type == SRV_JSON_NULL)
        return ATTN_OK;
    if (f->kind == SRV_OPTION || (f->kind == SRV_VALUE && type != SRV_JSON_NULL))
        return begin_value(r, type, at, err);
    if (f->kind == SRV_VALUE)
        return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text,
                            "/%s: expected a value, found null; leave the field out", f->name);
    if (f->kind == SRV_LABELS && array)
        r->copy_from = at;
    if (array || (number && f->min_rank == 0 && f->kind != SRV_LABELS)) {
        r->place = SRV_AT_NESTED;
        memset(&r->nested, 0, sizeof r->nested);
        return srv_json_nested_begin(r, type, err);
    }
    if (type == SRV_JSON_OBJECT && f->kind != SRV_LABELS) {
        r->place = SRV_AT_TENSOR;
        memset(&r->tensor, 0, sizeof r->tensor);
        r->tensor.part = SRV_TENSOR_MEMBERS;
        return ATTN_OK;
    }
    return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text, "/%s: expected %s, found %s",
                        f->name,
                        f->kind == SRV_LABELS ? "arrays of strings"
                        : f->max_rank == 0    ? "a number"
                        : f->min_rank == 0    ? "a number or arrays of numbers"
                        : f->max_rank == 1    ? "an array of numbers"
                                              : "nested arrays of numbers",
                        srv_json_type_name(type));
}

attn_status srv_json_begin(srv_json_reader *r, srv_json_type type, const char *at, attn_error *err)
{
    switch (r->place) {
    case SRV_AT_MEMBERS: /* at depth 0 it is the document itself */
        return r->scan.depth == 0 ? ATTN_OK : begin_member(r, type, at, err);
    case SRV_AT_NESTED:
        return srv_json_nested_begin(r, type, err);
    case SRV_AT_TENSOR:
        return srv_json_tensor_begin(r, type, err);
    default:
        return ATTN_OK;
    }
}

attn_status srv_json_number(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    return r->place == SRV_AT_NESTED   ? srv_json_nested_number(r, text, n, err)
           : r->place == SRV_AT_TENSOR ? srv_json_tensor_number(r, text, n, err)
                                       : ATTN_OK;
}

attn_status srv_json_string(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    if (r->place == SRV_AT_TENSOR)
        return srv_json_tensor_string(r, text, n, err);
    if (r->place == SRV_AT_NESTED && r->fields[r->field].kind == SRV_BIAS)
        srv_json_keep_text(r, text, n);
    return ATTN_OK;
}

static attn_status finish_member(srv_json_reader *r, attn_error *err)
{
    switch (r->place) {
    case SRV_AT_NESTED:
        return srv_json_nested_finish(r, err);
    case SRV_AT_TENSOR:
        return srv_json_tensor_finish(r, err);
    case SRV_AT_MEMBERS: /* a null that stands for nothing */
        return ATTN_OK;
    default:
        return parse_value(r, err);
    }
}

attn_status srv_json_end(srv_json_reader *r, srv_json_type type, const char *behind,
                         attn_error *err)
{
    if (r->scan.depth == 0)
        return ATTN_OK; /* the document */
    if (r->place == SRV_AT_NESTED)
        ATTN_TRY(srv_json_nested_end(r, type, err));
    else if (r->place == SRV_AT_TENSOR)
        ATTN_TRY(srv_json_tensor_end(r, type, err));
    if (r->scan.depth > 1)
        return ATTN_OK;
    if (r->copy_from != NULL)
        ATTN_TRY(copy_until(r, behind, err));
    r->scan.stop = r->scan.end;
    ATTN_TRY(finish_member(r, err));
    r->members++;
    r->place = SRV_AT_MEMBERS;
    r->field = NO_FIELD;
    return ATTN_OK;
}

/* --- the reader ------------------------------------------------------------------------------- */

attn_status srv_json_reader_new(srv_json_reader **out, const srv_field *fields, size_t n,
                                srv_charge *charge_to, void *charge_arg, attn_error *err)
{
    srv_json_reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r != NULL) {
        r->slots = calloc(n + 1, sizeof *r->slots); /* never of zero bytes */
        r->names = calloc(n + 1, sizeof *r->names);
    }
    if (r == NULL || r->slots == NULL || r->names == NULL) {
        srv_json_reader_free(r);
        return attn_fail(err, ATTN_ENOMEM, "no memory for a reader of %zu fields", n);
    }
    r->fields = fields;
    r->num_fields = n;
    r->charge = charge_to;
    r->charge_arg = charge_arg;
    r->field = r->apart = NO_FIELD;
    for (size_t i = 0; i < n; i++)
        r->names[i] = fields[i].name;
    *out = r;
    return ATTN_OK;
}

void srv_json_reader_free(srv_json_reader *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->num_fields; i++) {
        free(r->slots[i].array.data.any);
        free(r->slots[i].array.lengths);
        attn_json_free(r->slots[i].value);
    }
    free(r->carry.p);
    free(r->copy.p);
    free(r->data.p);
    free(r->nested.lengths.p);
    srv_json_discharge(r, r->charged);
    free(r->slots);
    free(r->names);
    free(r);
}

attn_status srv_json_reader_feed(srv_json_reader *r, const char *text, size_t n, attn_error *err)
{
    srv_json_scan *s = &r->scan;

    if (n == 0)
        return ATTN_OK;
    s->piece = text;
    s->end = s->stop = text + n;
    if (is_copied(r))
        r->copy_from = text;
    if (r->place == SRV_AT_VALUE)
        limit_value(r, text);
    ATTN_TRY(srv_json_scan_piece(r, err));
    if (s->stop != s->end)
        return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text,
                            "/%s: longer than %u bytes of JSON", r->fields[r->field].name,
                            SRV_VALUE_BYTES);
    if (r->copy_from != NULL)
        ATTN_TRY(copy_until(r, s->end, err));
    s->offset += n;
    return ATTN_OK;
}

attn_status srv_json_reader_finish(srv_json_reader *r, attn_error *err)
{
    return srv_json_scan_end(r, err);
}

/* --- members from elsewhere ------------------------------------------------------------------- */

static attn_status open_document(srv_json_reader *r, attn_error *err)
{
    return r->scan.want == SRV_WANT_DOCUMENT ? srv_json_reader_feed(r, "{", 1, err) : ATTN_OK;
}

attn_status srv_json_reader_claim(srv_json_reader *r, const char *name, size_t *field,
                                  attn_error *err)
{
    ATTN_TRY(open_document(r, err));
    r->text_n = 0;
    srv_json_keep_text(r, name, strlen(name));
    ATTN_TRY(srv_json_key(r, err));
    *field = r->field;
    r->field = NO_FIELD;
    return ATTN_OK;
}

attn_status srv_json_reader_member(srv_json_reader *r, const char *name, const char *text, size_t n,
                                   attn_error *err)
{
    srv_json_scan *s = &r->scan;
    size_t before = r->members, field = 0;

    ATTN_TRY(srv_json_reader_claim(r, name, &field, err));
    r->field = r->apart = field;
    s->want = SRV_WANT_VALUE; /* as behind the key and its colon */
    s->offset = 0;
    ATTN_TRY(srv_json_reader_feed(r, text, n, err));
    ATTN_TRY(srv_json_reader_feed(r, " ", 1, err)); /* ends a number */
    /* "1,\"layer\":2" and "1}" are good JSON in the middle of an object, but no values. */
    if (s->token != SRV_BETWEEN || s->want != SRV_WANT_NEXT || s->depth != 1 ||
        r->members != before + 1)
        return attn_fail_at(err, ATTN_EINVAL, srv_json_pointer(r).text,
                            "/%s: %s is not one JSON value", r->names[field],
                            srv_json_quote(text, n).text);
    r->apart = NO_FIELD;
    return ATTN_OK;
}

attn_status srv_json_reader_close(srv_json_reader *r, attn_error *err)
{
    ATTN_TRY(open_document(r, err));
    ATTN_TRY(srv_json_reader_feed(r, "}", 1, err));
    return srv_json_reader_finish(r, err);
}

const srv_array *srv_json_reader_array(const srv_json_reader *r, size_t field)
{
    return &r->slots[field].array;
}

const attn_json *srv_json_reader_value(const srv_json_reader *r, size_t field)
{
    return r->slots[field].value;
}

void srv_json_reader_drop_values(srv_json_reader *r)
{
    for (size_t i = 0; i < r->num_fields; i++) {
        srv_slot *slot = &r->slots[i];
        attn_json_free(slot->value);
        slot->value = NULL;
        srv_json_discharge(r, slot->value_charge);
        slot->value_charge = 0;
    }
    srv_json_drop(r, &r->carry, 1);
    srv_json_drop(r, &r->copy, 1);
}

size_t srv_json_reader_charged(const srv_json_reader *r)
{
    return r->charged;
}

size_t srv_array_bytes(const srv_array *a)
{
    return a->bytes;
}
