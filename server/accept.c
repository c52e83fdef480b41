#include "server/accept.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const srv_coding_names[SRV_CODINGS] = {"identity", "gzip", "deflate"};

enum { MOST = 1000 }; /* the weight of q=1 */

/* Text that is not NUL-terminated. */
typedef struct {
    const char *at;
    size_t n;
} span;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static span trim(span s)
{
    while (s.n > 0 && is_blank(*s.at)) {
        s.at++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.at[s.n - 1]))
        s.n--;
    return s;
}

static bool equals(span s, const char *text)
{
    return s.n == strlen(text) && strncasecmp(s.at, text, s.n) == 0;
}

/* RFC 9110, section 5.6.2. */
static bool is_token(span s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.at[i];
        if (c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL)
            return false;
    }
    return s.n > 0;
}

/* Takes what stands before the next `separator` that is not in quotes, with the separator. */
static span take_until(span *rest, char separator)
{
    bool quoted = false;
    size_t i = 0;

    for (; i < rest->n && (quoted || rest->at[i] != separator); i++) {
        if (rest->at[i] == '"')
            quoted = !quoted;
        else if (quoted && rest->at[i] == '\\' && i + 1 < rest->n)
            i++;
    }
    span taken = {rest->at, i};
    size_t skip = i + (i < rest->n);
    rest->at += skip;
    rest->n -= skip;
    return trim(taken);
}

/* Walks the elements of a list over all its lines; empty ones are none. */
typedef struct {
    srv_lines lines;
    size_t line;
    span rest;
} walk;

static bool next_element(walk *w, span *out)
{
    for (;;) {
        while (w->rest.n == 0) {
            if (w->line == w->lines.n)
                return false;
            w->rest.at = w->lines.line[w->line++];
            w->rest.n = strlen(w->rest.at);
        }
        *out = take_until(&w->rest, ',');
        if (out->n > 0)
            return true;
    }
}

/* One parameter: "name=value", value unquoted where it needs no unescaping. */
static bool split_parameter(span s, span *name, span *value)
{
    const char *equal = memchr(s.at, '=', s.n);

    if (equal == NULL)
        return false;
    *name = trim((span){s.at, (size_t)(equal - s.at)});
    *value = trim((span){equal + 1, s.n - (size_t)(equal - s.at) - 1});
    if (value->n >= 2 && value->at[0] == '"' && value->at[value->n - 1] == '"')
        *value = (span){value->at + 1, value->n - 2};
    return is_token(*name);
}

/* "0", "0.8", "1.000" and, as some clients write it, ".8". More digits than three are cut. */
static bool read_weight(span s, int *out)
{
    int weight = 0, unit = MOST;
    size_t i = 0;
    bool digit = false;

    for (; i < s.n && s.at[i] >= '0' && s.at[i] <= '9'; i++) {
        digit = true;
        weight = weight >= MOST ? MOST : weight * 10 + (s.at[i] - '0') * MOST;
    }
    if (i < s.n && s.at[i] == '.') {
        for (i++; i < s.n && s.at[i] >= '0' && s.at[i] <= '9'; i++) {
            digit = true;
            unit /= 10;
            weight += (s.at[i] - '0') * unit;
        }
    }
    *out = weight > MOST ? MOST : weight;
    return digit && i == s.n;
}

static bool is_utf8(span charset)
{
    return equals(charset, "utf-8") || equals(charset, "utf8") || equals(charset, "us-ascii");
}

/* --- media types ------------------------------------------------------------------------------ */

typedef struct {
    span type, subtype;
    bool other; /* it has parameters beside q and a charset of UTF-8 */
    int weight;
    bool foreign_charset;
} media;

/* False: not well-formed. */
static bool read_media(span s, media *m)
{
    span essence = take_until(&s, ';'), name, value;
    const char *slash = essence.n > 0 ? memchr(essence.at, '/', essence.n) : NULL;

    *m = (media){.weight = MOST};
    if (slash == NULL) { /* "*" alone is what old Java sends for any type */
        if (!equals(essence, "*"))
            return false;
        m->type = m->subtype = essence;
    } else {
        m->type = (span){essence.at, (size_t)(slash - essence.at)};
        m->subtype = (span){slash + 1, essence.n - m->type.n - 1};
    }
    if (!is_token(m->type) || !is_token(m->subtype) ||
        (equals(m->type, "*") && !equals(m->subtype, "*")))
        return false;
    while (s.n > 0) {
        span parameter = take_until(&s, ';');
        if (parameter.n == 0)
            continue;
        if (!split_parameter(parameter, &name, &value))
            return false;
        if (equals(name, "q"))
            return read_weight(value, &m->weight); /* what follows are extensions */
        if (equals(name, "charset") && is_utf8(value))
            continue;
        m->foreign_charset = m->foreign_charset || equals(name, "charset");
        m->other = true;
    }
    return true;
}

static bool essence_is(const media *m, const char *type)
{
    size_t n = strcspn(type, "/");
    return m->type.n == n && strncasecmp(m->type.at, type, n) == 0 &&
           equals(m->subtype, type + n + 1);
}

/* How specific a range is for this type; 0 = it does not fit. */
static int fit(const media *m, const char *type)
{
    size_t n = strcspn(type, "/");

    if (equals(m->type, "*"))
        return 1;
    if (m->type.n != n || strncasecmp(m->type.at, type, n) != 0)
        return 0;
    if (equals(m->subtype, "*"))
        return 2;
    if (!essence_is(m, type))
        return 0;
    return m->other ? 3 : 4;
}

size_t srv_accept_type(srv_lines accept, const char *const *offers, size_t n)
{
    size_t best = SRV_NO_OFFER;
    int best_weight = 0;
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        walk w = {.lines = accept};
        int closest = 0, weight = 0;
        span s;
        media m;
        while (next_element(&w, &s)) {
            if (!read_media(s, &m))
                continue;
            any = true;
            int f = fit(&m, offers[i]);
            if (f > closest || (f == closest && f > 0 && m.weight > weight))
                weight = m.weight;
            closest = f > closest ? f : closest;
        }
        if (weight > best_weight) {
            best = i;
            best_weight = weight;
        }
    }
    return any || n == 0 ? best : 0;
}

void srv_name_types(char *out, size_t size, const char *const *types, size_t n)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        int k = snprintf(out + used, size - used, "%s%s",
                         i == 0       ? ""
                         : i + 1 == n ? " or "
                                      : ", ",
                         types[i]);
        if (k < 0 || (size_t)k >= size - used) {
            out[used] = '\0';
            return;
        }
        used += (size_t)k;
    }
}

attn_status srv_content_type(srv_lines fields, const char *const *types, size_t n, size_t *out,
                             attn_error *err)
{
    walk w = {.lines = fields};
    span s, second;
    media m = {0};
    char names[256];

    *out = n;
    if (!next_element(&w, &s))
        return ATTN_OK;
    srv_name_types(names, sizeof names, types, n);
    if (next_element(&w, &second) || !read_media(s, &m) || equals(m.type, "*"))
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "Content-Type is not one media type; the body can be %s", names);
    for (size_t i = 0; i < n; i++) {
        if (essence_is(&m, types[i]))
            *out = i;
    }
    if (*out == n)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "Content-Type %.*s/%.*s is not understood here; the body can be %s",
                         (int)(m.type.n < 80 ? m.type.n : 80), m.type.at,
                         (int)(m.subtype.n < 80 ? m.subtype.n : 80), m.subtype.at, names);
    if (m.foreign_charset)
        return attn_fail(err, ATTN_EUNSUPPORTED, "the only charset that is understood is UTF-8");
    return ATTN_OK;
}

/* --- content codings -------------------------------------------------------------------------- */

static srv_coding coding_of(span name)
{
    if (equals(name, "x-gzip"))
        return SRV_GZIP;
    srv_coding c = SRV_IDENTITY;
    while (c < SRV_CODINGS && !equals(name, srv_coding_names[c]))
        c++;
    return c;
}

srv_codings srv_accept_codings(srv_lines accept_encoding)
{
    srv_codings c = {{0}, {false}};
    walk w = {.lines = accept_encoding};
    int others = -1; /* the weight of "*" */
    span s, name, value;

    while (next_element(&w, &s)) {
        span coding = take_until(&s, ';');
        int weight = MOST;
        bool good = is_token(coding);
        while (good && s.n > 0) {
            span parameter = take_until(&s, ';');
            good = parameter.n == 0 || (split_parameter(parameter, &name, &value) &&
                                        equals(name, "q") && read_weight(value, &weight));
        }
        if (!good)
            continue;
        srv_coding which = coding_of(coding);
        if (equals(coding, "*"))
            others = weight > others ? weight : others;
        else if (which < SRV_CODINGS && (!c.named[which] || weight > c.weight[which])) {
            c.weight[which] = weight;
            c.named[which] = true;
        }
    }
    for (srv_coding i = SRV_IDENTITY; i < SRV_CODINGS; i++) {
        if (!c.named[i] && others >= 0)
            c.weight[i] = others;
    }
    /* Identity is acceptable unless it is excluded, but what is named comes before it. */
    if (!c.named[SRV_IDENTITY] && others < 0)
        c.weight[SRV_IDENTITY] = 1;
    return c;
}

bool srv_choose_coding(const srv_codings *c, unsigned ours, bool floats, srv_coding *out)
{
    int identity = c->weight[SRV_IDENTITY];
    bool ranked = identity == 0 || c->named[SRV_IDENTITY]; /* by the client's own word */
    int best = identity;

    *out = SRV_IDENTITY;
    for (srv_coding i = SRV_GZIP; i < SRV_CODINGS; i++) {
        int weight = c->weight[i];
        bool asked =
            c->named[i] || identity == 0; /* "*" alone asks only when nothing else is left */
        if ((ours & 1u << i) == 0 || !asked || weight == 0)
            continue;
        if (floats && (!ranked || weight <= identity))
            continue;
        if (weight > best || (weight == best && *out == SRV_IDENTITY)) {
            *out = i;
            best = weight;
        }
    }
    return *out != SRV_IDENTITY || identity > 0;
}

attn_status srv_content_coding(srv_lines fields, unsigned known, srv_coding *out, attn_error *err)
{
    const char *names[SRV_CODINGS];
    char list[64];
    walk w = {.lines = fields};
    size_t n = 0, applied = 0;
    span s;

    *out = SRV_IDENTITY;
    for (srv_coding i = SRV_IDENTITY; i < SRV_CODINGS; i++) {
        if (i == SRV_IDENTITY || (known & 1u << i) != 0)
            names[n++] = srv_coding_names[i];
    }
    srv_name_types(list, sizeof list, names, n);
    while (next_element(&w, &s)) {
        srv_coding which = coding_of(s);
        if (which == SRV_IDENTITY)
            continue;
        if (which == SRV_CODINGS || (known & 1u << which) == 0)
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "Content-Encoding %.*s is not understood here; %s is",
                             (int)(s.n < 80 ? s.n : 80), s.at, list);
        if (applied++ > 0)
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "the body is encoded more than once; %s is understood", list);
        *out = which;
    }
    return ATTN_OK;
}
