/* scrape.h: the text of /metrics, read as strictly as version 0.0.4 of the format allows. */
#ifndef TESTS_SCRAPE_H
#define TESTS_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char *series; /* with its labels, as it stands there: "a_total", "b{c=\"d\"}" */
    double value;
} scrape_sample;

typedef struct {
    char *name, *type;
} scrape_family;

typedef struct {
    scrape_sample *sample;
    size_t num_samples;
    scrape_family *family;
    size_t num_families;
} scrape;

/* The test fails unless text[0..n) keeps all rules: each family once, with HELP, TYPE and its samples
 * together; names, labels, escapes and values well-formed; no series twice; buckets in order, ending in
 * +Inf, which is the count. */
scrape scrape_read(const char *text, size_t n);
void scrape_free(scrape *s);

/* "counter", "gauge", "histogram"; NULL = no such family. */
const char *scrape_type(const scrape *s, const char *family);

double scrape_value(const scrape *s, const char *series); /* not there: the test fails */
double scrape_or_zero(const scrape *s, const char *series);

#endif
