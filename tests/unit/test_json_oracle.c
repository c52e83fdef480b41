/* The reader against an oracle that holds whole documents: jansson for the grammar, and a plain walk
 * over its tree for types and shapes. Documents are random, valid and mutated, and every one is also
 * read in every way of cutting it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"
#include "tests/numbers.h"
#include "tests/reading.h"

static uint64_t seed;

static uint64_t next_random(void)
{
    return numbers_next(&seed);
}

static size_t below(size_t n)
{
    return (size_t)(next_random() % n);
}

/* --- the oracle ------------------------------------------------------------------------------- */

/* What is known of the lists of each level, outermost = 1. */
typedef struct {
    const srv_field *field;
    unsigned deepest;
    unsigned leaves;                  /* the level that holds elements; 0 = none was seen */
    bool lists[10];                   /* the level holds lists */
    size_t count[10], length[10][64]; /* of every list of the level */
    reading_text elements;
} walk;

static bool is_element(walk *w, const attn_json *v)
{
    double x = 0;
    int64_t i = 0;
    bool b = false;
    const char *s = NULL;

    switch (w->field->kind) {
    case SRV_MASK:
        if (attn_json_bool(v, &b))
            x = b;
        else if (!attn_json_number(v, &x) || (x != 0 && x != 1))
            return false;
        reading_add(&w->elements, " %d", x != 0);
        return true;
    case SRV_INTS:
        if (!attn_json_integer(v, &i))
            return false;
        reading_add(&w->elements, " %" PRId64, i);
        return true;
    case SRV_LABELS:
        return attn_json_string(v, &s);
    default:
        if (w->field->kind == SRV_BIAS && attn_json_string(v, &s)) {
            reading_add(&w->elements, " -inf");
            return strcmp(s, "-inf") == 0;
        }
        if (!attn_json_number(v, &x) || !isfinite((float)x))
            return false;
        reading_add(&w->elements, " %.9g", (double)(float)x);
        return true;
    }
}

static bool walk_list(walk *w, const attn_json *v, unsigned level)
{
    if (level > w->field->max_rank || w->count[level] == 64)
        return false;
    w->deepest = level > w->deepest ? level : w->deepest;
    w->length[level][w->count[level]++] = attn_json_length(v);
    for (size_t i = 0; i < attn_json_length(v); i++) {
        const attn_json *item = attn_json_at(v, i);
        if (attn_json_is_array(item)) {
            w->lists[level] = true;
            if (w->leaves == level || !walk_list(w, item, level + 1))
                return false;
        } else {
            if ((w->leaves != 0 && w->leaves != level) || w->lists[level] || !is_element(w, item))
                return false;
            w->leaves = level;
        }
    }
    return true;
}

/* Adds what the reader must tell of nested arrays; false when it must refuse them. */
static bool expect_nested(reading_text *t, const srv_field *f, const attn_json *v)
{
    walk w = {.field = f};
    srv_array a = {0};
    size_t lengths[64];
    bool ok = attn_json_is_array(v) ? walk_list(&w, v, 1) : f->min_rank == 0 && is_element(&w, v);

    ok = ok && (w.leaves == 0 || w.leaves >= f->min_rank);
    bool open = f->ragged || f->kind == SRV_LABELS;
    unsigned rank = w.deepest;
    if (w.leaves == 0 && w.deepest > 0)
        rank = w.deepest == 1 || open ? f->max_rank : rank < f->min_rank ? f->min_rank : rank;
    a.rank = rank;
    for (unsigned level = 1; ok && level <= rank; level++) {
        bool varies = level == 2 && open && (f->kind == SRV_LABELS || rank == 3);
        bool differ = false;
        for (size_t i = 0; i < w.count[level]; i++) {
            differ = differ || w.length[level][i] != w.length[level][0];
            if (w.length[level][i] > a.dim[level - 1])
                a.dim[level - 1] = w.length[level][i];
        }
        if (varies && w.count[2] > 0 && (differ || f->kind == SRV_LABELS)) {
            memcpy(lengths, w.length[level], sizeof lengths);
            a.lengths = lengths;
        }
        ok = ok && (varies || !differ);
    }
    a.unknown_width = rank > 0 && w.count[rank] == 0 && f->kind != SRV_LABELS;
    if (ok) {
        reading_add_shape(t, &a);
        reading_add(t, "%s", w.elements.p == NULL ? "" : w.elements.p);
    }
    free(w.elements.p);
    return ok;
}

/* Tensor objects of float32 and int32 alone; the generator makes no others. */
static bool expect_object(reading_text *t, const srv_field *f, const attn_json *v)
{
    srv_array a = {0};
    size_t count = 1, n = 0;
    unsigned char bytes[400];
    attn_base64 d = {0};
    const char *dtype = NULL, *data = NULL;
    const attn_json *shape = attn_json_get(v, "shape");

    if (attn_json_length(v) != 3 || !attn_json_is_array(shape) || attn_json_length(shape) > 4 ||
        !attn_json_string(attn_json_get(v, "dtype"), &dtype) ||
        !attn_json_string(attn_json_get(v, "data"), &data) || strlen(data) > 500)
        return false;
    a.rank = (unsigned)attn_json_length(shape);
    for (unsigned i = 0; i < a.rank; i++) {
        int64_t x = -1;
        if (!attn_json_integer(attn_json_at(shape, i), &x) || x < 0 || x > 1000)
            return false;
        a.dim[i] = (size_t)x;
        count *= (size_t)x;
    }
    bool ints = f->kind == SRV_INTS || f->kind == SRV_MASK;
    if (strcmp(dtype, ints ? "int32" : "float32") != 0 || f->kind == SRV_LABELS ||
        a.rank < f->min_rank || a.rank > f->max_rank ||
        attn_base64_decode(&d, data, strlen(data), bytes, &n, NULL) != ATTN_OK ||
        attn_base64_finish(&d, NULL) != ATTN_OK || n != 4 * count)
        return false;
    reading_add_shape(t, &a);
    for (size_t i = 0; i < count; i++) {
        float x;
        int32_t k;
        memcpy(&x, bytes + 4 * i, 4);
        memcpy(&k, bytes + 4 * i, 4);
        if (f->kind == SRV_MASK && k != 0 && k != 1)
            return false;
        if (ints)
            reading_add(t, " %" PRId32, k);
        else
            reading_add(t, " %.9g", (double)x);
    }
    return true;
}

/* What the reader must tell of a body; NULL when it must refuse it. Labels' text is left out. */
static char *oracle(const char *text, size_t n)
{
    attn_json *document = NULL;
    reading_text t = {NULL, 0};
    size_t known = 0;
    /* jansson overlooks a NUL behind a number. */
    bool ok = memchr(text, 0, n) == NULL &&
              attn_json_parse(&document, text, n, "body", NULL) == ATTN_OK &&
              attn_json_is_object(document);

    reading_add(&t, "%s", "");
    for (size_t i = 0; ok && i < reading_num_fields; i++) {
        const srv_field *f = &reading_fields[i];
        const attn_json *v = attn_json_get(document, f->name);
        if (v == NULL)
            continue;
        known++;
        if (f->kind == SRV_OPTION && attn_json_is_null(v))
            continue;
        reading_add(&t, "%s%s", t.n > 0 ? "; " : "", f->name);
        if (f->kind == SRV_VALUE || f->kind == SRV_OPTION)
            ok = !attn_json_is_null(v);
        else if (attn_json_is_object(v))
            ok = expect_object(&t, f, v);
        else
            ok = expect_nested(&t, f, v);
    }
    ok = ok && known == attn_json_length(document);
    attn_json_free(document);
    if (ok)
        return t.p;
    free(t.p);
    return NULL;
}

/* --- random documents ------------------------------------------------------------------------- */

static const char *blank(void)
{
    static const char *const blanks[] = {"", "", "", "", " ", "\n", "\t ", "\r\n"};
    return blanks[below(8)];
}

static void add_element(reading_text *t, srv_field_kind kind)
{
    static const char *const masks[] = {"0", "1", "true", "false", "1.0", "0.0", "1", "0", "0e1"};
    static const char *const strings[] = {"a",    "",     "\\u00e9",        "\xe4\xb8\xad",
                                          "\\\"", "-inf", "\\ud83d\\ude00", "x y"};
    static const char *const wrong[] = {"null", "\"a\"", "{}", "2",  "0.5",     "true",
                                        "[]",   "1e400", "-1", "01", "\"-inf\""};

    if (below(60) == 0)
        reading_add(t, "%s", wrong[below(11)]);
    else if (kind == SRV_MASK)
        reading_add(t, "%s", masks[below(9)]);
    else if (kind == SRV_INTS)
        reading_add(t, "%d", (int)below(2000) - 1000);
    else if (kind == SRV_LABELS)
        reading_add(t, "\"%s\"", strings[below(8)]);
    else if (kind == SRV_BIAS && below(4) == 0)
        reading_add(t, "\"-inf\"");
    else
        reading_add(t, "%.*g", (int)below(9) + 1,
                    ((double)next_random() / 0x1p63 - 1) * pow(10, (double)below(20) - 10));
}

static void add_list(reading_text *t, const srv_field *f, unsigned levels, const size_t *size,
                     bool vary)
{
    size_t n = vary && (levels == 2 || below(10) == 0) ? below(4) : size[levels];

    reading_add(t, "[%s", blank());
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            reading_add(t, "%s,%s", blank(), blank());
        if (levels == 1)
            add_element(t, f->kind);
        else
            add_list(t, f, levels - 1, size, vary);
    }
    reading_add(t, "%s]", blank());
}

static void add_object(reading_text *t, const srv_field *f)
{
    static const char *const orders[] = {"sdt", "std", "dst", "dts", "tsd", "tds"};
    unsigned rank = f->min_rank + (unsigned)below(f->max_rank - f->min_rank + 1);
    bool ints = f->kind == SRV_INTS || f->kind == SRV_MASK;
    size_t dim[4] = {0}, count = 1;
    unsigned char bytes[4 * 81];
    char data[500];

    for (unsigned i = 0; i < rank; i++)
        count *= dim[i] = below(4);
    for (size_t i = 0; i < count; i++) {
        float x = (float)below(1000) / 8;
        int32_t k = (int32_t)below(2);
        memcpy(bytes + 4 * i, ints ? (const void *)&k : (const void *)&x, 4);
    }
    size_t n = 4 * count - (count > 0 && below(20) == 0);
    attn_base64_encode(data, bytes, n);
    data[ATTN_BASE64_ENCODED(n)] = '\0';
    reading_add(t, "{");
    for (const char *p = orders[below(6)]; *p != '\0'; p++) {
        if (*p == 's') {
            reading_add(t, "\"shape\":%s[", blank());
            for (unsigned i = 0; i < rank; i++)
                reading_add(t, "%s%zu%s", i > 0 ? "," : "", dim[i], blank());
            reading_add(t, "]");
        } else {
            reading_add(t, "%s\"%s\"%s:\"%s\"", blank(), *p == 'd' ? "data" : "dtype", blank(),
                        *p == 'd' ? data
                        : ints    ? "int32"
                                  : "float32");
        }
        reading_add(t, "%s%s", blank(), p[1] != '\0' ? "," : "}");
    }
}

static reading_text random_document(void)
{
    static const char *const values[] = {
        "1",   "true", "\"a\"", "{\"a\":[1,{}],\"b\":null}", "[]", "-1.5e3", "{\"a\":1,\"a\":2}",
        "null"};
    reading_text t = {NULL, 0};
    bool used[16] = {false};
    size_t members = below(4);

    reading_add(&t, "%s{%s", blank(), blank());
    for (size_t m = 0; m < members; m++) {
        size_t i = below(reading_num_fields);
        if (used[i] && below(20) > 0)
            continue;
        const srv_field *f = &reading_fields[i];
        bool first = t.p[t.n - 1] != '}' && memchr(t.p, ':', t.n) == NULL;
        used[i] = true;
        reading_add(&t, "%s%s\"%s\"%s:%s", first ? "" : ",", blank(), f->name, blank(), blank());
        size_t size[10];
        for (unsigned k = 0; k < 10; k++)
            size[k] = below(8) == 0 ? 0 : 1 + below(3);
        if (f->kind == SRV_VALUE || f->kind == SRV_OPTION)
            reading_add(&t, "%s", values[below(8)]);
        else if (f->min_rank == 0 && below(3) == 0)
            add_element(&t, f->kind);
        else if (f->kind != SRV_LABELS && below(3) == 0)
            add_object(&t, f);
        else
            add_list(&t, f,
                     f->min_rank + (unsigned)below(f->max_rank - f->min_rank + 1) +
                         (f->min_rank == 0),
                     size, f->ragged || f->kind == SRV_LABELS || below(10) == 0);
        reading_add(&t, "%s", blank());
    }
    reading_add(&t, "}%s", blank());
    return t;
}

static void mutate(reading_text *t)
{
    static const char bytes[] =
        "{}[]:,\"\\0123456789.eE+-truefalsn \n\t/u=A\0\x01\x7f\x80\xc3\xef\xff";
    size_t at = below(t->n);
    char with = bytes[below(sizeof bytes - 1)];

    switch (below(4)) {
    case 0:
        t->p[at] = with;
        break;
    case 1: /* one byte less */
        memmove(t->p + at, t->p + at + 1, t->n - at);
        t->n--;
        break;
    case 2: /* one more */
        t->p = realloc(t->p, t->n + 2);
        assert_non_null(t->p);
        memmove(t->p + at + 1, t->p + at, t->n - at + 1);
        t->p[at] = with;
        t->n++;
        break;
    default: /* cut */
        t->n = below(t->n + 1);
    }
    t->p[t->n] = '\0';
}

/* --- the comparison --------------------------------------------------------------------------- */

/* Cuts the texts of labels and the values out of what the reader told: the oracle has none. */
static void leave_out_texts(char *told)
{
    char *to = told;

    for (const char *p = told; *p != '\0';) {
        const char *end = strstr(p, "; ");
        size_t n = end == NULL ? strlen(p) : (size_t)(end - p);
        char *text = memchr(p, ':', n);
        bool value = strncmp(p, "layer", 5) == 0 || strncmp(p, "scale", 5) == 0 ||
                     strncmp(p, "return_attentions", 17) == 0 || strncmp(p, "user", 4) == 0;
        size_t keep = strncmp(p, "tokens", 6) == 0 ? (size_t)(text - p) + 1
                      : value                      ? (size_t)(text - p)
                                                   : n;
        if (to != told) {
            memcpy(to, "; ", 2);
            to += 2;
        }
        memmove(to, p, keep);
        to += keep;
        p += end == NULL ? n : n + 2;
    }
    *to = '\0';
}

static size_t compare(const reading_text *t)
{
    char *want = oracle(t->p, t->n), *told = reading_all_ways(t->p, t->n);
    bool refused = strncmp(told, "invalid ", 8) == 0 || strncmp(told, "shape_mismatch ", 15) == 0;
    size_t accepted = want != NULL;

    if (!refused)
        leave_out_texts(told);
    if (want == NULL ? !refused : strcmp(told, want) != 0)
        fail_msg("%.*s\n reader: %s\n oracle: %s\n", (int)t->n, t->p, told,
                 want == NULL ? "refused" : want);
    free(want);
    free(told);
    return accepted;
}

static void random_documents_are_read_as_the_oracle_reads_them(void **state)
{
    size_t accepted = 0, all = 2000;

    (void)state;
    seed = 1;
    for (size_t i = 0; i < all; i++) {
        reading_text t = random_document();
        accepted += compare(&t);
        free(t.p);
    }
    assert_in_range(accepted, all / 3, all - all / 10); /* both kinds were tried */
}

static void mutated_documents_are_refused_when_the_oracle_refuses_them(void **state)
{
    size_t accepted = 0, all = 6000;

    (void)state;
    seed = 2;
    for (size_t i = 0; i < all; i++) {
        reading_text t = random_document();
        for (size_t k = 1 + below(2); k > 0 && t.n > 0; k--)
            mutate(&t);
        accepted += compare(&t);
        free(t.p);
    }
    assert_in_range(accepted, all / 50, all / 2);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Rows of numbers of every form: jansson for the grammar, and strtof(), which is exact, for the values. */
static size_t compare_numbers(size_t rows, size_t width, unsigned one_bad_in, bool longer)
{
    reading_text t = {NULL, 0}, want = {NULL, 0};
    bool good = true;
    size_t comma = below(8);

    reading_add(&t, "{\"inputs_embeds\":[");
    reading_add(&want, "inputs_embeds [%zu,%zu]:", rows, width);
    for (size_t i = 0; i < rows * width; i++) {
        char text[NUMBERS_LONGEST];
        size_t n = numbers_random(text, &seed, one_bad_in, longer);
        float x = strtof(text, NULL);
        good = good && numbers_is_json(text, n) && isfinite(x);
        reading_add(&want, " %.9g", (double)x);
        if (i > 0)
            reading_add(&t, i % width == 0 ? "]," : ",");
        reading_add(&t, "%s%s%s",
                    i > 0 && comma == 0 ? blank()
                    : comma == 1        ? " "
                                        : "",
                    i % width == 0 ? "[" : "", text);
    }
    reading_add(&t, "]]}");
    attn_json *document = NULL;
    bool grammar = attn_json_parse(&document, t.p, t.n, "body", NULL) == ATTN_OK;
    attn_json_free(document);
    char *told = reading_all_ways(t.p, t.n);
    bool refused = strncmp(told, "invalid /inputs_embeds", 22) == 0;
    if (good ? strcmp(told, want.p) != 0 : !refused)
        fail_msg("%s\n reader: %s\n wanted: %s", t.p, told, good ? want.p : "refused");
    if (refused && grammar) /* then a value must be the reason */
        assert_non_null(strstr(told, "is not finite as float32"));
    free(told);
    free(want.p);
    free(t.p);
    return good;
}

static void numbers_of_every_form_are_read_as_strtof_reads_them(void **state)
{
    size_t accepted = 0, all = 600;

    (void)state;
    seed = 3;
    for (size_t i = 0; i < all; i++)
        accepted += compare_numbers(1 + below(4), 1 + below(8), 0, false);
    for (size_t i = 0; i < 10; i++)
        accepted += compare_numbers(1, 1 + below(5), 0, true);
    assert_in_range(accepted, all / 3, all + 10);
}

static void damaged_numbers_are_refused(void **state)
{
    size_t accepted = 0, all = 400;

    (void)state;
    seed = 4;
    for (size_t i = 0; i < all; i++)
        accepted += compare_numbers(1 + below(2), 1 + below(10), 8, false);
    assert_in_range(accepted, all / 20, all - all / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_documents_are_read_as_the_oracle_reads_them),
        cmocka_unit_test(mutated_documents_are_refused_when_the_oracle_refuses_them),
        cmocka_unit_test(numbers_of_every_form_are_read_as_strtof_reads_them),
        cmocka_unit_test(damaged_numbers_are_refused)};
    return cmocka_run_group_tests_name("json_oracle", tests, NULL, NULL);
}
