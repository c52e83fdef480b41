#include "server/query.h"

#include <stdlib.h>
#include <string.h>

#include "core/unicode.h"

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes in place up to `end`, and ends the text there, which is UTF-8. */
static attn_status decode(char *text, const char *end, attn_error *err)
{
    char *to = text;

    for (const char *from = text; from < end; from++) {
        if (*from != '%') {
            *to++ = *from == '+' ? ' ' : *from;
            continue;
        }
        int high = end - from > 2 ? digit(from[1]) : -1, low = high >= 0 ? digit(from[2]) : -1;
        if (low < 0)
            return attn_fail(err, ATTN_EINVAL,
                             "the query has a '%%' that two hexadecimal digits do not follow");
        if (high == 0 && low == 0)
            return attn_fail(err, ATTN_EINVAL, "the query has a NUL byte (%%00)");
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = '\0';
    if (!attn_utf8_valid(text, (size_t)(to - text)))
        return attn_fail(err, ATTN_EINVAL, "the query is not valid UTF-8");
    return ATTN_OK;
}

/* The parameter at text, which ends at `end`. */
static attn_status read_parameter(srv_query *q, char *text, char *end, attn_error *err)
{
    srv_query_parameter *p = &q->parameter[q->count];
    char *equal = memchr(text, '=', (size_t)(end - text));

    if (q->count == SRV_QUERY_MOST)
        return attn_fail(err, ATTN_EINVAL, "the query has more than %d parameters", SRV_QUERY_MOST);
    p->name = text;
    p->value = equal != NULL ? equal + 1 : end; /* *end is to be NUL */
    if (equal != NULL)
        ATTN_TRY(decode(equal + 1, end, err));
    ATTN_TRY(decode(text, equal != NULL ? equal : end, err));
    for (size_t i = 0; i < q->count; i++) {
        if (strcmp(q->parameter[i].name, p->name) == 0)
            return attn_fail(err, ATTN_EINVAL, "the query has the parameter \"%.60s\" twice",
                             p->name);
    }
    q->count++;
    return ATTN_OK;
}

attn_status srv_query_parse(srv_query *q, const char *text, attn_error *err)
{
    attn_status rc = ATTN_OK;

    *q = (srv_query){NULL, NULL, 0};
    if (text == NULL || *text == '\0')
        return ATTN_OK;
    q->text = strdup(text);
    q->parameter = calloc(SRV_QUERY_MOST + 1, sizeof *q->parameter);
    if (q->text == NULL || q->parameter == NULL) {
        srv_query_deinit(q);
        return attn_fail(err, ATTN_ENOMEM, "no memory for a query");
    }
    for (char *at = q->text, *end = NULL; rc == ATTN_OK && at != NULL; at = end) {
        size_t n = strcspn(at, "&");
        end = at[n] == '&' ? at + n + 1 : NULL;
        at[n] = '\0';
        if (n > 0)
            rc = read_parameter(q, at, at + n, err);
    }
    if (rc != ATTN_OK)
        srv_query_deinit(q);
    return rc;
}

void srv_query_deinit(srv_query *q)
{
    free(q->text);
    free(q->parameter);
    *q = (srv_query){NULL, NULL, 0};
}

const char *srv_query_take(srv_query *q, const char *name)
{
    for (size_t i = 0; i < q->count; i++) {
        if (strcmp(q->parameter[i].name, name) == 0) {
            q->parameter[i].taken = true;
            return q->parameter[i].value;
        }
    }
    return NULL;
}
