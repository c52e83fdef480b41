#include "tests/scrape.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NAME_BYTES = 128 };

/* Length of the name that `s` begins with; labels have no colon. */
static size_t name_length(const char *s, bool colon)
{
    size_t n = 0;
    while (isalpha((unsigned char)s[n]) || s[n] == '_' || (colon && s[n] == ':') ||
           (n > 0 && isdigit((unsigned char)s[n])))
        n++;
    return n;
}

static void read_name(const char **at, char out[NAME_BYTES], bool colon)
{
    size_t n = name_length(*at, colon);
    if (n == 0 || n >= NAME_BYTES)
        fail_msg("there is no name before \"%s\"", *at);
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
}

/* "{a="b",c="d"}"; returns what follows. `le` is that label's value, "" = there is none. */
static const char *read_labels(const char *at, char le[NAME_BYTES])
{
    char seen[32][NAME_BYTES];
    size_t n = 0;

    le[0] = '\0';
    if (*at != '{')
        return at;
    do {
        at++;
        assert_true(n < 32);
        read_name(&at, seen[n], false);
        for (size_t i = 0; i < n; i++)
            assert_string_not_equal(seen[i], seen[n]);
        if (strncmp(at, "=\"", 2) != 0)
            fail_msg("a label without a value: %s", at);
        const char *value = at += 2;
        for (; *at != '"'; at++) {
            if (*at == '\0' || (*at == '\\' && strchr("\\\"n", *++at) == NULL) || *at == '\0')
                fail_msg("a label's value is not well-formed: %s", value);
        }
        if (strcmp(seen[n], "le") == 0)
            (void)snprintf(le, NAME_BYTES, "%.*s", (int)(at - value), value);
        n++;
        at++;
    } while (*at == ',');
    if (*at != '}')
        fail_msg("labels do not end: %s", at);
    return at + 1;
}

static void check_family(scrape *s, const char *help, const char *type)
{
    char name[NAME_BYTES], again[NAME_BYTES], kind[NAME_BYTES];

    help += strlen("# HELP ");
    read_name(&help, name, true);
    if (help[0] != ' ' || help[1] == '\0')
        fail_msg("%s says nothing", name);
    for (; *help != '\0'; help++) {
        if (*help == '\\' && *++help != '\\' && *help != 'n')
            fail_msg("the HELP of %s has an escape that is none", name);
    }
    if (strncmp(type, "# TYPE ", 7) != 0)
        fail_msg("%s has no TYPE behind its HELP", name);
    type += 7;
    read_name(&type, again, true);
    assert_string_equal(again, name);
    assert_int_equal(*type++, ' ');
    read_name(&type, kind, false);
    assert_int_equal(*type, '\0');
    if (strcmp(kind, "counter") != 0 && strcmp(kind, "gauge") != 0 &&
        strcmp(kind, "histogram") != 0)
        fail_msg("%s is a %s", name, kind);
    if (scrape_type(s, name) != NULL)
        fail_msg("%s stands there twice", name);
    s->family = realloc(s->family, (s->num_families + 1) * sizeof *s->family);
    assert_non_null(s->family);
    s->family[s->num_families++] = (scrape_family){strdup(name), strdup(kind)};
}

/* A histogram as far as it was read. */
typedef struct {
    char labels[512]; /* of the buckets, up to le */
    double last_le, last, count;
    enum { WANT_BUCKET, WANT_SUM, WANT_COUNT } want;
} buckets;

static void check_bucket(buckets *b, const char *labels, const char *le, double value)
{
    char *end = NULL;
    double bound = strtod(le, &end);

    if (le[0] == '\0' || *end != '\0')
        fail_msg("a bucket has the bound \"%s\"", le);
    const char *own = strstr(labels, "le=\"");
    size_t n = (size_t)(own - labels);
    assert_int_equal(b->want, WANT_BUCKET);
    if (b->labels[0] == '\0') { /* the first one */
        assert_true(n < sizeof b->labels);
        memcpy(b->labels, labels, n);
        b->labels[n] = '\0';
    } else {
        assert_true(strlen(b->labels) == n && memcmp(b->labels, labels, n) == 0);
        assert_true(bound > b->last_le);
        assert_true(value >= b->last);
    }
    b->last_le = bound;
    b->last = value;
    if (strcmp(le, "+Inf") == 0)
        b->want = WANT_SUM;
}

static void check_histogram(buckets *b, const char *suffix, const char *labels, const char *le,
                            double value)
{
    if (strcmp(suffix, "_bucket") == 0) {
        check_bucket(b, labels, le, value);
        return;
    }
    /* "{a="b"}" beside "{a="b",le=" of the buckets; "" beside "{le=". */
    size_t n = strlen(b->labels) - 1;
    assert_true(labels[0] == '\0' ? n == 0
                                  : strlen(labels) == n + 1 && memcmp(labels, b->labels, n) == 0);
    if (strcmp(suffix, "_sum") == 0) {
        assert_int_equal(b->want, WANT_SUM);
        b->want = WANT_COUNT;
    } else {
        assert_string_equal(suffix, "_count");
        assert_int_equal(b->want, WANT_COUNT);
        assert_true(value == b->last);
        *b = (buckets){0};
    }
}

static void check_sample(scrape *s, const char *line, buckets *b)
{
    const char *at = line;
    char name[NAME_BYTES], le[NAME_BYTES], *end = NULL;

    if (s->num_families == 0)
        fail_msg("a sample before any family: %s", line);
    const scrape_family *f = &s->family[s->num_families - 1];
    read_name(&at, name, true);
    const char *labels = at;
    at = read_labels(at, le);
    if (at[0] != ' ' || isspace((unsigned char)at[1]))
        fail_msg("one blank stands before a value: %s", line);
    char *series = strndup(line, (size_t)(at - line));
    assert_non_null(series);
    double value = strtod(at + 1, &end);
    if (end == at + 1 || *end != '\0' || !isfinite(value) || value < 0)
        fail_msg("not a value: %s", line);
    size_t n = strlen(f->name);
    if (strncmp(name, f->name, n) != 0)
        fail_msg("a sample of another family behind %s: %s", f->name, line);
    if (strcmp(f->type, "histogram") == 0)
        check_histogram(b, name + n, series + (labels - line), le, value);
    else
        assert_true(name[n] == '\0' && le[0] == '\0');
    for (size_t i = 0; i < s->num_samples; i++)
        assert_string_not_equal(s->sample[i].series, series);
    s->sample = realloc(s->sample, (s->num_samples + 1) * sizeof *s->sample);
    assert_non_null(s->sample);
    s->sample[s->num_samples++] = (scrape_sample){series, value};
}

scrape scrape_read(const char *text, size_t n)
{
    scrape s = {0};
    buckets b = {0};
    char *copy = strndup(text, n);

    assert_non_null(copy);
    assert_int_equal(strlen(copy), n);
    assert_true(n > 0 && copy[n - 1] == '\n');
    for (char *line = copy, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n');
        *next++ = '\0';
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(b.want, WANT_BUCKET);
            assert_string_equal(b.labels, "");
            char *type = next;
            next = strchr(type, '\n');
            assert_non_null(next);
            *next++ = '\0';
            check_family(&s, line, type);
        } else {
            check_sample(&s, line, &b);
        }
    }
    assert_string_equal(b.labels, "");
    free(copy);
    return s;
}

void scrape_free(scrape *s)
{
    for (size_t i = 0; i < s->num_samples; i++)
        free(s->sample[i].series);
    for (size_t i = 0; i < s->num_families; i++) {
        free(s->family[i].name);
        free(s->family[i].type);
    }
    free(s->sample);
    free(s->family);
    *s = (scrape){0};
}

const char *scrape_type(const scrape *s, const char *family)
{
    for (size_t i = 0; i < s->num_families; i++) {
        if (strcmp(s->family[i].name, family) == 0)
            return s->family[i].type;
    }
    return NULL;
}

static const scrape_sample *find(const scrape *s, const char *series)
{
    for (size_t i = 0; i < s->num_samples; i++) {
        if (strcmp(s->sample[i].series, series) == 0)
            return &s->sample[i];
    }
    return NULL;
}

double scrape_value(const scrape *s, const char *series)
{
    const scrape_sample *found = find(s, series);
    if (found == NULL)
        fail_msg("there is no series %s", series);
    return found->value;
}

double scrape_or_zero(const scrape *s, const char *series)
{
    const scrape_sample *found = find(s, series);
    return found != NULL ? found->value : 0;
}
