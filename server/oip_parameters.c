/* The parameters of an inference request. The protocol has strings, numbers and booleans only, so that what is a
 * list or an object in a request for attention is its JSON text here, or a parameter for each of its members. */
#include "server/oip_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/nearest.h"
#include "server/text.h"

typedef struct {
    const char *name;
    const char *member; /* of a request for attention */
    const char *inner;  /* a member of that object, or NULL: it itself */
} parameter;

static const parameter table[] = {{"layer", "layer", NULL},
                                  {"is_causal", "is_causal", NULL},
                                  {"causal", "is_causal", NULL},
                                  {"causal_offset", "causal_offset", NULL},
                                  {"window", "window", NULL},
                                  {"window_left", "window", "left"},
                                  {"window_right", "window", "right"},
                                  {"scale", "scale", NULL},
                                  {"softcap", "softcap", NULL},
                                  {"position_offset", "position_offset", NULL},
                                  {"return_attentions", "return_attentions", NULL},
                                  {"maps.heads", "return_attentions", "heads"},
                                  {"maps.reduce_heads", "return_attentions", "reduce_heads"},
                                  {"maps.queries", "return_attentions", "queries"},
                                  {"maps.keys", "return_attentions", "keys"},
                                  {"maps.stage", "return_attentions", "stage"},
                                  {"maps.top_k", "return_attentions", "top_k"},
                                  {"maps.pool", "return_attentions", "pool"},
                                  {"maps.dtype", "return_attentions", "dtype"},
                                  {"timeout_ms", "timeout_ms", NULL},
                                  /* Not those of a request for attention. */
                                  {"timeout", NULL, NULL},
                                  {"priority", NULL, NULL},
                                  {"binary_data_output", NULL, NULL}};

enum { PARAMETERS = sizeof table / sizeof *table };

static attn_status fail_at(const char *name, const char *what, attn_error *err)
{
    attn_error at = {0};

    (void)attn_fail(&at, ATTN_EINVAL, "/parameters/%.60s", name);
    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: %s", at.text, what);
}

static const parameter *find(const char *name)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        if (strcmp(name, table[i].name) == 0)
            return &table[i];
    }
    return NULL;
}

static attn_status fail_unknown(const char *name, attn_error *err)
{
    const char *names[PARAMETERS];
    attn_error why = {0};

    for (size_t i = 0; i < PARAMETERS; i++)
        names[i] = table[i].name;
    const char *near = attn_nearest(name, names, PARAMETERS);
    (void)attn_fail(&why, ATTN_EINVAL, "there is no such parameter%s%s%s",
                    near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                    near != NULL ? "\"?" : "");
    return fail_at(name, why.text, err);
}

/* --- values as JSON text ----------------------------------------------------------------------- */

/* A word such as "mean" stands for itself, all other strings are JSON text. */
static bool is_word(const char *s)
{
    return s[0] != '\0' && strchr("[{\"-0123456789 \t\r\n", s[0]) == NULL &&
           strcmp(s, "true") != 0 && strcmp(s, "false") != 0 && strcmp(s, "null") != 0;
}

/* *text is the value's text, in `room` or the value itself. */
static attn_status print_value(const char *name, const attn_json *value, char *room, size_t size,
                               const char **out, attn_error *err)
{
    const char *string = NULL;
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    srv_text t;

    srv_text_init(&t, room, size);
    *out = room;
    if (attn_json_bool(value, &truth)) {
        *out = truth ? "true" : "false";
    } else if (attn_json_integer(value, &integer)) {
        (void)srv_text_format(&t, "%" PRId64, integer);
    } else if (attn_json_number(value, &number)) {
        (void)srv_text_format(&t, "%.17g", number);
    } else if (!attn_json_string(value, &string)) {
        return fail_at(
            name, "a string, a number or a boolean is due; the JSON text of anything else", err);
    } else if (!is_word(string)) {
        *out = string;
    } else if (!srv_text_json(&t, string, strlen(string))) {
        return fail_at(name, "it is too long a word", err);
    }
    return ATTN_OK;
}

/* --- members ----------------------------------------------------------------------------------- */

static attn_status append(srv_json_reader *r, srv_block *b, const char *text, attn_error *err)
{
    size_t n = strlen(text);

    if (n == 0)
        return ATTN_OK;
    ATTN_TRY(srv_json_grow(r, b, n, 1, err));
    memcpy((char *)b->p + b->n, text, n);
    b->n += n;
    return ATTN_OK;
}

/* Appends the JSON text of the member that these parameters make; nothing when there are none. */
static attn_status compose(srv_json_reader *r, const attn_json *parameters, const char *member,
                           srv_block *b, attn_error *err)
{
    const attn_json *value = NULL;
    const char *key = NULL, *text = NULL;
    const parameter *first = NULL;
    char room[128];
    void *it = NULL;

    while (attn_json_next(parameters, &it, &key, &value)) {
        const parameter *p = find(key);
        if (p == NULL || p->member == NULL || strcmp(p->member, member) != 0)
            continue;
        if (first != NULL && (p->inner == NULL || first->inner == NULL)) {
            attn_error why = {0};
            (void)attn_fail(&why, ATTN_EINVAL, "it excludes \"%s\"", first->name);
            return fail_at(key, why.text, err);
        }
        ATTN_TRY(print_value(key, value, room, sizeof room, &text, err));
        if (p->inner != NULL) {
            ATTN_TRY(append(r, b, first == NULL ? "{\"" : ",\"", err));
            ATTN_TRY(append(r, b, p->inner, err));
            ATTN_TRY(append(r, b, "\":", err));
        }
        ATTN_TRY(append(r, b, text, err));
        first = p;
    }
    return first != NULL && first->inner != NULL ? append(r, b, "}", err) : ATTN_OK;
}

static attn_status give(srv_json_reader *r, const char *member, const char *text, size_t n,
                        attn_error *err)
{
    attn_error why = {0}, at = {0};
    attn_status rc = srv_json_reader_member(r, member, text, n, &why);

    if (rc == ATTN_OK || why.needed != 0) {
        if (rc != ATTN_OK && err != NULL)
            *err = why;
        return rc;
    }
    (void)attn_fail(&at, rc, "/parameters%s", why.pointer);
    return attn_fail_at(err, rc, at.text, "/parameters%s%s", why.text[0] == '/' ? "" : ": ",
                        why.text);
}

/* All members but the one that says whether there are maps. */
static attn_status give_options(srv_json_reader *r, const attn_json *parameters, srv_block *b,
                                attn_error *err)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        const char *member = table[i].member;
        if (member == NULL || strcmp(member, "return_attentions") == 0 ||
            (i > 0 && table[i - 1].member != NULL && strcmp(member, table[i - 1].member) == 0))
            continue; /* those of one member stand together */
        b->n = 0;
        ATTN_TRY(compose(r, parameters, member, b, err));
        if (b->n > 0)
            ATTN_TRY(give(r, member, b->p, b->n, err));
    }
    return ATTN_OK;
}

/* Microseconds, 0 = none; a request for attention has milliseconds. */
static attn_status give_timeout(srv_json_reader *r, const attn_json *timeout, attn_error *err)
{
    int64_t us = 0;
    char text[32];

    if (timeout == NULL)
        return ATTN_OK;
    if (!attn_json_integer(timeout, &us) || us < 0)
        return fail_at("timeout", "microseconds are due, a whole number", err);
    int n = snprintf(text, sizeof text, "%" PRId64, us / 1000 + (us % 1000 != 0));
    return us == 0 ? ATTN_OK : give(r, "timeout_ms", text, (size_t)n, err);
}

/* --- outputs ----------------------------------------------------------------------------------- */

/* Without a list all are meant; maps may be switched off. */
static void wish_all(srv_oip *o, bool binary, bool maps)
{
    for (size_t i = 0; i < SRV_OIP_OUTPUTS; i++) {
        if (srv_oip_results[i] != SRV_MAPS || maps)
            o->wish[o->num_wishes++] = (srv_oip_wish){.which = i, .binary = binary};
    }
}

static attn_status give_outputs(srv_oip *o, const srv_block *maps, bool binary, attn_error *err)
{
    srv_json_reader *r = o->r->reader;
    bool want[SRV_RESULTS] = {false}, json = false, bytes = false;
    bool off = maps->n == 5 && memcmp(maps->p, "false", 5) == 0;

    if (o->num_wishes == 0)
        wish_all(o, binary, !off);
    for (size_t i = 0; i < o->num_wishes; i++) {
        want[srv_oip_results[o->wish[i].which]] = true;
        json = json || !o->wish[i].binary;
        bytes = bytes || o->wish[i].binary;
    }
    if (off && want[SRV_MAPS])
        return fail_at("return_attentions", "it is false, and the output attention is listed", err);
    o->r->whole = json && bytes; /* the length of the JSON stands in front of it */
    const char *text = want[SRV_OUTPUTS] ? "true" : "false";
    ATTN_TRY(give(r, "return_outputs", text, strlen(text), err));
    if (want[SRV_LOGSUMEXP])
        ATTN_TRY(give(r, "return_intermediates", "[\"logsumexp\"]", 13, err));
    if (!want[SRV_MAPS])
        return ATTN_OK;
    return maps->n > 0 ? give(r, "return_attentions", maps->p, maps->n, err)
                       : give(r, "return_attentions", "true", 4, err);
}

/* --- the whole --------------------------------------------------------------------------------- */

static attn_status check_names(const attn_json *parameters, attn_error *err)
{
    const attn_json *value = NULL;
    const char *key = NULL;
    void *it = NULL;

    if (parameters != NULL && !attn_json_is_object(parameters))
        return attn_fail_at(err, ATTN_EINVAL, "/parameters", "/parameters: an object is due");
    while (parameters != NULL && attn_json_next(parameters, &it, &key, &value)) {
        if (find(key) == NULL)
            return fail_unknown(key, err);
    }
    return ATTN_OK;
}

attn_status srv_oip_read_parameters(srv_oip *o, const attn_json *parameters, attn_error *err)
{
    srv_json_reader *r = o->r->reader;
    const attn_json *output = NULL;
    srv_block b = {NULL, 0, 0};
    bool binary = false;

    ATTN_TRY(check_names(parameters, err));
    output = attn_json_get(parameters, "binary_data_output");
    if (output != NULL && !attn_json_bool(output, &binary))
        return fail_at("binary_data_output", "true or false is due", err);
    ATTN_TRY(give_timeout(r, attn_json_get(parameters, "timeout"), err));
    attn_status rc = give_options(r, parameters, &b, err);
    b.n = 0;
    if (rc == ATTN_OK)
        rc = compose(r, parameters, "return_attentions", &b, err);
    if (rc == ATTN_OK)
        rc = give_outputs(o, &b, binary, err);
    srv_json_drop(r, &b, 1);
    return rc;
}
