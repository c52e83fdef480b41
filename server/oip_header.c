/* The JSON of an inference request. It is held as text and read twice: first the texts of the members "data" are
 * found, so that what is left is small and can become a tree; then each is read into the array that the rest of
 * its input asks for, whatever the order in which they came. */
#include "server/oip_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/nearest.h"

/* --- the texts of "data" ----------------------------------------------------------------------- */

typedef struct {
    const char *at;
    size_t n; /* 0 = there is none */
} span;

enum { MOST_INPUTS = 64 }; /* more are no request of ours; what is wrong is said by its tree */

typedef struct {
    const char *p, *end;
    srv_json_reader *reader;
    srv_block *rest; /* all but the data, each a 0 */
    span data[MOST_INPUTS];
} splitter;

static attn_status copy_rest(splitter *s, const char *from, const char *to, attn_error *err)
{
    size_t n = (size_t)(to - from);

    if (n == 0)
        return ATTN_OK;
    if (s->rest->n + n > SRV_VALUE_BYTES)
        return attn_fail(err, ATTN_EINVAL, "the request without its data is longer than %u bytes",
                         SRV_VALUE_BYTES);
    ATTN_TRY(srv_json_grow(s->reader, s->rest, n, 1, err));
    memcpy((char *)s->rest->p + s->rest->n, from, n);
    s->rest->n += n;
    return ATTN_OK;
}

/* Behind the string whose first quote is at p. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++) {
        if (*p == '\\' && p + 1 < end)
            p++;
    }
    return p < end ? p + 1 : end;
}

/* Behind the value at p: at the comma or bracket that follows it. */
static const char *skip_value(const char *p, const char *end)
{
    size_t depth = 0;

    while (p < end) {
        if (*p == '"') {
            p = skip_string(p, end);
            continue;
        }
        if (*p == '[' || *p == '{')
            depth++;
        else if (depth == 0 && (*p == ',' || *p == ']' || *p == '}'))
            break;
        else if (*p == ']' || *p == '}')
            depth--;
        p++;
    }
    return p;
}

static bool is_key(span key, const char *name)
{
    return key.n == strlen(name) + 2 && memcmp(key.at + 1, name, key.n - 2) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Finds inputs[i].data. What is no JSON goes to the rest or into a text as it is, and its reader will say so. */
static attn_status split(splitter *s, attn_error *err)
{
    const char *copied = s->p;
    span last = {NULL, 0}; /* the last string */
    size_t depth = 0, input = SIZE_MAX;
    bool inputs = false; /* within the member "inputs" */

    while (s->p < s->end) {
        char c = *s->p;
        if (c == '"') {
            last.at = s->p;
            s->p = skip_string(s->p, s->end);
            last.n = (size_t)(s->p - last.at);
            continue;
        }
        s->p++;
        if (c == '{' || c == '[') {
            if (++depth > SRV_VALUE_DEPTH)
                return attn_fail(err, ATTN_EINVAL, "the request is nested deeper than %d",
                                 SRV_VALUE_DEPTH);
            input += inputs && depth == 3 && c == '{';
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
            inputs = inputs && depth > 1;
        } else if (c == ':' && depth == 1) {
            inputs = is_key(last, "inputs");
        } else if (c == ':' && depth == 3 && inputs && is_key(last, "data") &&
                   input < MOST_INPUTS) {
            ATTN_TRY(copy_rest(s, copied, s->p, err));
            ATTN_TRY(copy_rest(s, "0", &"0"[1], err));
            while (s->p < s->end && is_blank(*s->p))
                s->p++;
            s->data[input].at = s->p;
            s->p = skip_value(s->p, s->end);
            s->data[input].n = (size_t)(s->p - s->data[input].at);
            copied = s->p;
        }
    }
    return copy_rest(s, copied, s->end, err);
}

/* --- inputs ------------------------------------------------------------------------------------ */

/* One element of "inputs". */
typedef struct {
    size_t index;
    const char *name, *datatype;
    const srv_oip_input *input;
    attn_tensor like; /* its dtype and sizes */
    int64_t binary;   /* bytes behind the JSON; -1 = none */
} entry;

/* Puts "inputs/3/" in front of what is said about a member of an input. */
static attn_status fail_input(size_t i, const char *member, attn_status code, const char *what,
                              attn_error *err)
{
    attn_error at = {0};

    (void)attn_fail(&at, code, "/inputs/%zu%s", i, member);
    return attn_fail_at(err, code, at.text, "%s: %s", at.text, what);
}

static attn_status read_shape(entry *e, const attn_json *shape, attn_error *err)
{
    const srv_oip_input *in = e->input;
    attn_tensor *t = &e->like;
    attn_error why = {0};

    if (!attn_json_is_array(shape))
        return fail_input(e->index, "/shape", ATTN_EINVAL, "a list of sizes is due", err);
    t->rank = attn_json_length(shape);
    if (t->rank < in->min_rank || t->rank > in->max_rank) {
        (void)attn_fail(&why, ATTN_ESHAPE, "%s has rank %zu; it takes %zu to %zu", in->name,
                        t->rank, in->min_rank, in->max_rank);
        return fail_input(e->index, "/shape", ATTN_ESHAPE, why.text, err);
    }
    for (size_t i = 0; i < t->rank; i++) {
        int64_t n = 0;
        if (!attn_json_integer(attn_json_at(shape, i), &n) || n < 0)
            return fail_input(e->index, "/shape", ATTN_EINVAL, "sizes are integers from 0 on", err);
        t->dim[i] = (size_t)n;
    }
    if (!attn_size_product(t->dim, t->rank, &t->count) ||
        !attn_size_mul(t->count, sizeof(int64_t), &t->bytes))
        return fail_input(e->index, "/shape", ATTN_EINVAL, "it is larger than any memory", err);
    return ATTN_OK;
}

static attn_status read_datatype(entry *e, const attn_json *datatype, attn_error *err)
{
    static const struct {
        unsigned types; /* bits */
        const char *names;
    } takes[] = {
        [SRV_FLOATS] = {1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
                        "FP32, FP64, and as bytes FP16 and BF16"},
        [SRV_BIAS] = {1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
                      "FP32, FP64, and as bytes FP16 and BF16"},
        [SRV_MASK] = {1u << ATTN_BOOL | 1u << ATTN_I32 | 1u << ATTN_I64, "BOOL, INT32 and INT64"},
        [SRV_INTS] = {1u << ATTN_I32 | 1u << ATTN_I64, "INT32 and INT64"}};
    attn_error why = {0};

    if (!attn_json_string(datatype, &e->datatype))
        return fail_input(e->index, "/datatype", ATTN_EINVAL, "a string is due", err);
    if (!srv_oip_datatype(e->datatype, &e->like.dtype))
        (void)attn_fail(&why, ATTN_EINVAL, "\"%.40s\" is no datatype; %s takes %s", e->datatype,
                        e->name, takes[e->input->kind].names);
    else if ((takes[e->input->kind].types & 1u << e->like.dtype) == 0)
        (void)attn_fail(&why, ATTN_EINVAL, "%s takes %s, not %s", e->name,
                        takes[e->input->kind].names, e->datatype);
    else if (e->binary < 0 && (e->like.dtype == ATTN_F16 || e->like.dtype == ATTN_BF16))
        (void)attn_fail(&why, ATTN_EINVAL,
                        "JSON has no %s: send it as bytes (binary_data_size), or as FP32",
                        e->datatype);
    else
        return ATTN_OK;
    return fail_input(e->index, "/datatype", ATTN_EINVAL, why.text, err);
}

/* An input's own parameters: where its bytes are. */
static attn_status read_place(entry *e, const attn_json *parameters, attn_error *err)
{
    const attn_json *value = NULL;
    const char *key = NULL;
    attn_error why = {0};
    void *it = NULL;

    e->binary = -1;
    if (parameters == NULL)
        return ATTN_OK;
    if (!attn_json_is_object(parameters))
        return fail_input(e->index, "/parameters", ATTN_EINVAL, "an object is due", err);
    while (attn_json_next(parameters, &it, &key, &value)) {
        if (strcmp(key, "binary_data_size") != 0) {
            bool shared = strncmp(key, "shared_memory", 13) == 0;
            (void)attn_fail(&why, ATTN_EINVAL, "\"%.60s\" is not known here%s; binary_data_size is",
                            key, shared ? ", there is no shared memory" : "");
            return fail_input(e->index, "/parameters", ATTN_EINVAL, why.text, err);
        }
        if (!attn_json_integer(value, &e->binary) || e->binary < 0)
            return fail_input(e->index, "/parameters/binary_data_size", ATTN_EINVAL,
                              "a number of bytes is due", err);
    }
    return ATTN_OK;
}

static attn_status claim_bytes(srv_oip *o, const entry *e, attn_error *err)
{
    size_t bytes = e->like.count * attn_dtype_size(e->like.dtype);
    attn_error why = {0};

    if (o->body.json_bytes == UINT64_MAX)
        return fail_input(
            e->index, "/parameters/binary_data_size", ATTN_EINVAL,
            "bytes follow the JSON, so " SRV_OIP_HEADER_LENGTH " must say where it ends", err);
    if ((uint64_t)e->binary != bytes) {
        (void)attn_fail(&why, ATTN_EINVAL,
                        "binary_data_size of %s is %" PRId64 "; its shape as %s takes %zu bytes",
                        e->name, e->binary, e->datatype, bytes);
        return fail_input(e->index, "/parameters/binary_data_size", ATTN_EINVAL, why.text, err);
    }
    o->binary[o->num_binary].name = e->input->name;
    return srv_raw_tensor_new(&o->binary[o->num_binary++].tensor, o->r->reader, e->input->member,
                              &e->like, err);
}

/* Lists must be those of the shape as far as they go; one flat list may hold all elements. */
static bool lists_fit(const srv_array *a, const attn_tensor *like)
{
    if (a->count != like->count)
        return false;
    if (a->rank == 1 || a->dim[0] == 0)
        return true;
    for (size_t i = 0; i < a->rank && a->dim[i] != 0; i++) {
        if (i >= like->rank || a->dim[i] != like->dim[i])
            return false;
    }
    return a->count == 0 || a->rank == like->rank;
}

/* What the reader of one text says of "/data/1", said of the whole. */
static attn_status fail_data(const entry *e, const attn_error *why, attn_error *err)
{
    attn_error at = {0};

    (void)attn_fail(&at, why->code, "/inputs/%zu%s", e->index,
                    why->pointer[0] != '\0' ? why->pointer : "/data");
    if (why->pointer[0] == '\0')
        return attn_fail_at(err, why->code, at.text, "%s: %s", at.text, why->text);
    return attn_fail_at(err, why->code, at.text, "/inputs/%zu%s%s", e->index,
                        why->text[0] == '/' ? "" : ": ", why->text);
}

/* The elements of a JSON list, which becomes the member's array. */
static attn_status read_list(srv_oip *o, const entry *e, span data, attn_error *err)
{
    static const srv_field fields[] = {[SRV_FLOATS] = {"data", SRV_FLOATS, 1, 4, false},
                                       [SRV_BIAS] = {"data", SRV_BIAS, 1, 4, false},
                                       [SRV_MASK] = {"data", SRV_MASK, 1, 4, false},
                                       [SRV_INTS] = {"data", SRV_INTS, 1, 4, false}};
    srv_json_reader *into = o->r->reader, *from = NULL;
    attn_error why = {0};
    size_t field = 0;

    if (*data.at != '[')
        return fail_input(e->index, "/data", ATTN_EINVAL, "a list is due", err);
    ATTN_TRY(srv_json_reader_new(&from, &fields[e->input->kind], 1, into->charge, into->charge_arg,
                                 err));
    attn_status rc = srv_json_reader_member(from, "data", data.at, data.n, &why);
    if (rc == ATTN_OK)
        rc = srv_json_reader_close(from, &why);
    srv_array *a = &from->slots[0].array;
    if (rc == ATTN_OK && !lists_fit(a, &e->like))
        rc =
            attn_fail(&why, ATTN_EINVAL, "%zu elements%s do not fit the shape of %s, which has %zu",
                      a->count, a->rank > 1 ? " in lists" : "", e->name, e->like.count);
    if (rc == ATTN_OK)
        rc = srv_json_reader_claim(into, e->input->member, &field, &why);
    if (rc == ATTN_OK) {
        a->rank = (unsigned)e->like.rank;
        memcpy(a->dim, e->like.dim, e->like.rank * sizeof *a->dim);
        into->slots[field].array = *a; /* with what was charged for it */
        into->charged += a->bytes;
        from->charged -= a->bytes;
        *a = (srv_array){0};
    } else {
        if (why.needed == 0)
            rc = fail_data(e, &why, err);
        else if (err != NULL)
            *err = why;
    }
    srv_json_reader_free(from);
    return rc;
}

static attn_status read_input(srv_oip *o, size_t i, const attn_json *v, span data, attn_error *err)
{
    const char *names[SRV_OIP_INPUTS];
    entry e = {.index = i};
    attn_error why = {0};

    if (!attn_json_is_object(v) || !attn_json_string(attn_json_get(v, "name"), &e.name))
        return fail_input(i, "", ATTN_EINVAL, "an object with a name is due", err);
    for (size_t k = 0; k < SRV_OIP_INPUTS; k++) {
        names[k] = srv_oip_inputs[k].name;
        if (strcmp(e.name, names[k]) == 0)
            e.input = &srv_oip_inputs[k];
    }
    if (e.input == NULL) {
        const char *near = attn_nearest(e.name, names, SRV_OIP_INPUTS);
        (void)attn_fail(&why, ATTN_EINVAL, "there is no input \"%.60s\"; %s \"%s\"", e.name,
                        near != NULL ? "did you mean" : "one is", near != NULL ? near : names[0]);
        return fail_input(i, "/name", ATTN_EINVAL, why.text, err);
    }
    e.like.dtype_name = e.input->name;
    ATTN_TRY(read_place(&e, attn_json_get(v, "parameters"), err));
    ATTN_TRY(read_datatype(&e, attn_json_get(v, "datatype"), err));
    ATTN_TRY(read_shape(&e, attn_json_get(v, "shape"), err));
    bool has_data = attn_json_get(v, "data") != NULL;
    if (has_data != (data.n > 0)) /* its name has escapes in it, or nothing stands behind it */
        return fail_input(i, "/data", ATTN_EINVAL, "it cannot be read", err);
    if (has_data == (e.binary >= 0))
        return fail_input(i, "", ATTN_EINVAL,
                          has_data ? "it has both data and binary_data_size"
                                   : "it has neither data nor binary_data_size",
                          err);
    return has_data ? read_list(o, &e, data, err) : claim_bytes(o, &e, err);
}

/* --- outputs ----------------------------------------------------------------------------------- */

static attn_status fail_output(size_t i, const char *what, const char *name, attn_error *err)
{
    attn_error at = {0};

    (void)attn_fail(&at, ATTN_EINVAL, "/outputs/%zu", i);
    return attn_fail_at(err, ATTN_EINVAL, at.text, "%s: %s%s%.60s%s", at.text, what,
                        name != NULL ? " \"" : "", name != NULL ? name : "",
                        name != NULL ? "\"" : "");
}

static attn_status read_output(srv_oip *o, size_t i, const attn_json *v, attn_error *err)
{
    srv_oip_wish *wish = &o->wish[o->num_wishes];
    const attn_json *parameters = attn_json_get(v, "parameters"), *value = NULL;
    const char *name = NULL, *key = NULL;
    void *it = NULL;

    if (!attn_json_is_object(v) || !attn_json_string(attn_json_get(v, "name"), &name))
        return fail_output(i, "an object with a name is due", NULL, err);
    wish->which = 0;
    while (wish->which < SRV_OIP_OUTPUTS && strcmp(name, srv_oip_outputs[wish->which]) != 0)
        wish->which++;
    if (wish->which == SRV_OIP_OUTPUTS)
        return fail_output(i, "the outputs are output, attention and lse, not", name, err);
    for (size_t k = 0; k < o->num_wishes; k++) {
        if (o->wish[k].which == wish->which)
            return fail_output(i, "this one is listed twice:", name, err);
    }
    wish->binary =
        false; /* whatever binary_data_output says: it is for those that are not listed */
    o->num_wishes++;
    if (parameters != NULL && !attn_json_is_object(parameters))
        return fail_output(i, "its parameters are no object", NULL, err);
    while (parameters != NULL && attn_json_next(parameters, &it, &key, &value)) {
        if (strcmp(key, "binary_data") != 0)
            return fail_output(i, "the parameter is binary_data, not", key, err);
        if (!attn_json_bool(value, &wish->binary))
            return fail_output(i, "binary_data is true or false", NULL, err);
    }
    return ATTN_OK;
}

static attn_status read_outputs(srv_oip *o, const attn_json *outputs, attn_error *err)
{
    if (outputs == NULL)
        return ATTN_OK;
    if (!attn_json_is_array(outputs))
        return attn_fail_at(err, ATTN_EINVAL, "/outputs", "/outputs: a list is due");
    for (size_t i = 0; i < attn_json_length(outputs); i++)
        ATTN_TRY(read_output(o, i, attn_json_at(outputs, i), err));
    return ATTN_OK;
}

/* --- the whole --------------------------------------------------------------------------------- */

static attn_status read_id(srv_oip *o, const attn_json *id, attn_error *err)
{
    const char *its = NULL;
    size_t characters = 0;

    if (id == NULL)
        return ATTN_OK;
    bool good = attn_json_string(id, &its);
    for (const char *p = its; good && *p != '\0'; p++)
        characters += ((unsigned char)*p & 0xC0) != 0x80; /* a character's first byte */
    if (!good || characters > SRV_OIP_ID_CHARACTERS)
        return attn_fail_at(err, ATTN_EINVAL, "/id",
                            "/id: a string of at most %d characters is due", SRV_OIP_ID_CHARACTERS);
    (void)snprintf(o->id, sizeof o->id, "%s", its);
    o->has_id = true;
    return ATTN_OK;
}

static attn_status read_tree(srv_oip *o, const attn_json *tree, const span *data, attn_error *err)
{
    const attn_json *inputs = attn_json_get(tree, "inputs");

    if (!attn_json_is_object(tree))
        return attn_fail(err, ATTN_EINVAL, "the request is no JSON object");
    if (!attn_json_is_array(inputs) || attn_json_length(inputs) > MOST_INPUTS)
        return attn_fail_at(err, ATTN_EINVAL, "/inputs", "/inputs: a list of inputs is due");
    ATTN_TRY(read_id(o, attn_json_get(tree, "id"), err));
    ATTN_TRY(read_outputs(o, attn_json_get(tree, "outputs"), err));
    ATTN_TRY(srv_oip_read_parameters(o, attn_json_get(tree, "parameters"), err));
    for (size_t i = 0; i < attn_json_length(inputs); i++)
        ATTN_TRY(read_input(o, i, attn_json_at(inputs, i), data[i], err));
    return ATTN_OK;
}

attn_status srv_oip_parse_json(attn_json **tree, const char *text, size_t n, const char *what,
                               attn_error *err)
{
    attn_error why = {0};
    attn_status rc = attn_json_parse(tree, text, n, what, &why);

    if (rc == ATTN_OK)
        return ATTN_OK;
    /* What is damaged in a file is wrong by itself in a request. */
    return attn_fail(err, rc == ATTN_ENOMEM ? rc : ATTN_EINVAL, "%s", why.text);
}

attn_status srv_oip_read_json(srv_oip *o, attn_error *err)
{
    srv_json_reader *reader = o->r->reader;
    const char *begin = o->json.p != NULL ? o->json.p : "";
    srv_block rest = {NULL, 0, 0};
    splitter s = {.p = begin, .end = begin + o->json.n, .reader = reader, .rest = &rest};
    attn_json *tree = NULL;
    size_t cost = 0;

    attn_status rc = split(&s, err);
    if (rc == ATTN_OK)
        rc = srv_json_charge(reader, rest.n * SRV_VALUE_COST, err);
    if (rc == ATTN_OK) {
        cost = rest.n * SRV_VALUE_COST;
        rc = srv_oip_parse_json(&tree, rest.p != NULL ? rest.p : "", rest.n,
                                "the request without its data", err);
    }
    srv_json_drop(reader, &rest, 1);
    if (rc == ATTN_OK)
        rc = read_tree(o, tree, s.data, err);
    attn_json_free(tree);
    srv_json_discharge(reader, cost);
    srv_json_drop(reader, &o->json, 1);
    o->read = true;
    return rc;
}
