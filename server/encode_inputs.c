#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/encode.h"
#include "server/request_private.h"

/* Reading a text takes memory by its length for a moment; the tokeniser says when this does not do. */
#define MEMORY_OF_TEXT(n) ((size_t)(n)*64 + 65536)

/* Tokens under construction. */
typedef struct {
    srv_request *r;
    srv_encode *e;
    size_t used, room; /* tokens */
    attn_encoding encoding;
    size_t longest; /* tokens that a text may become */
    bool truncate;
} tokens;

static attn_status fail_at(attn_error *err, attn_status code, const char *member, size_t i,
                           const char *rest)
{
    attn_error at = {0};

    (void)attn_fail(&at, code, "/%s/%zu", member, i);
    return attn_fail_at(err, code, at.text, "%s %s", at.text, rest);
}

static attn_status charge(srv_request *r, size_t bytes, attn_error *err)
{
    ATTN_TRY(srv_request_reserve(r, bytes, err));
    r->reserved += bytes;
    r->plan.inputs += bytes;
    return ATTN_OK;
}

/* Room for `more` tokens. */
static attn_status make_room(tokens *t, size_t more, attn_error *err)
{
    if (t->room - t->used >= more)
        return ATTN_OK;
    size_t room = t->used + more + t->used / 2;
    size_t bytes = 2 * sizeof(int32_t);
    ATTN_TRY(charge(t->r, (room - t->room) * bytes, err));
    int32_t *ids = realloc(t->e->ids, (room + 1) * sizeof *ids);
    if (ids != NULL)
        t->e->ids = ids;
    int32_t *types = realloc(t->e->types, (room + 1) * sizeof *types);
    if (types != NULL)
        t->e->types = types;
    if (ids == NULL || types == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu tokens", room);
    t->room = room;
    return ATTN_OK;
}

/* --- sequences ------------------------------------------------------------------------------------ */

static attn_status begin_sequences(srv_request *r, size_t batch, attn_error *err)
{
    srv_encode *e = r->encode;
    size_t one = sizeof(srv_sizes) + sizeof *e->first + sizeof *e->truncated + sizeof *e->seqs;

    if (batch > SIZE_MAX / 64 / one)
        return attn_fail(err, ATTN_ETOOBIG, "%zu sequences are more than any memory holds", batch);
    ATTN_TRY(charge(r, (batch + 1) * one, err));
    r->batch = batch;
    r->sizes = calloc(batch + 1, sizeof *r->sizes);
    e->first = calloc(batch + 1, sizeof *e->first);
    e->truncated = calloc(batch + 1, sizeof *e->truncated);
    e->seqs = calloc(batch + 1, sizeof *e->seqs);
    if (r->sizes == NULL || e->first == NULL || e->truncated == NULL || e->seqs == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu sequences", batch);
    return ATTN_OK;
}

static void end_sequence(srv_request *r, size_t b, size_t end)
{
    srv_encode *e = r->encode;

    e->first[b + 1] = end;
    r->sizes[b].t = r->sizes[b].s = end - e->first[b];
    r->ragged = r->ragged || r->sizes[b].t != r->sizes[0].t;
}

/* --- texts ---------------------------------------------------------------------------------------- */

size_t srv_encode_text_tokens(const attn_encoder_info *info, const attn_tokenizer *t)
{
    size_t most = t != NULL ? attn_tokenizer_max_length(t) : SIZE_MAX;

    return info->usual_tokens == info->max_tokens && most < info->max_tokens ? most
                                                                             : info->usual_tokens;
}

static attn_status need_tokenizer(const srv_request *r, const char *member, attn_error *err)
{
    attn_error at = {0};

    if (r->tokenizer != NULL)
        return ATTN_OK;
    (void)attn_fail(&at, ATTN_ESHAPE, "/%s", member);
    return attn_fail_at(err, ATTN_ESHAPE, at.text,
                        "/%s: model \"%s\" takes no text (%s); send input_ids or inputs_embeds",
                        member, attn_model_name(r->model),
                        r->no_tokenizer != NULL ? r->no_tokenizer->text
                                                : "its folder has no tokeniser");
}

static attn_status add_text(tokens *t, const char *member, size_t b, const char *text,
                            const char *pair, attn_error *err)
{
    size_t n = strlen(text), pair_n = pair != NULL ? strlen(pair) : 0;
    attn_tokenize_options o = {.max_length = t->truncate ? t->longest : 0,
                               .memory_limit = MEMORY_OF_TEXT(n + pair_n),
                               .lower_case = t->e->info->lowercase};
    attn_encoding *e = &t->encoding;
    attn_error why = {0};
    attn_status rc = attn_tokenizer_encode(t->r->tokenizer, text, n, pair, pair_n, &o, e, &why);

    if (rc != ATTN_OK) {
        attn_error at = {0};
        (void)attn_fail(&at, rc, "/%s/%zu", member, b);
        return attn_fail_at(err, rc, at.text, "%s: %s", at.text, why.text);
    }
    if (e->count > t->longest) {
        char rest[128];
        (void)snprintf(rest, sizeof rest, "has %zu tokens; model \"%.40s\" takes at most %zu",
                       e->count, attn_model_name(t->r->model), t->longest);
        return fail_at(err, ATTN_ESHAPE, member, b, rest);
    }
    ATTN_TRY(make_room(t, e->count, err));
    for (size_t i = 0; i < e->count; i++) {
        t->e->ids[t->used + i] = (int32_t)e->id[i];
        /* A model without types has one for all. */
        t->e->types[t->used + i] = t->e->info->types > 1 ? e->type_id[i] : 0;
    }
    t->used += e->count;
    t->e->truncated[b] = e->truncated;
    end_sequence(t->r, b, t->used);
    return ATTN_OK;
}

/* A text, or with `pairs` a list of two. */
static attn_status add_text_of(tokens *t, const char *member, size_t b, const attn_json *v,
                               bool pairs, attn_error *err)
{
    const char *text = NULL, *pair = NULL;
    bool is_pair = pairs && attn_json_is_array(v) && attn_json_length(v) == 2;

    if (is_pair ? attn_json_string(attn_json_at(v, 0), &text) &&
                      attn_json_string(attn_json_at(v, 1), &pair)
                : attn_json_string(v, &text))
        return add_text(t, member, b, text, pair, err);
    return fail_at(err, ATTN_EINVAL, member, b,
                   pairs ? "is neither a string nor a pair of strings" : "is not a string");
}

static attn_status read_texts(tokens *t, const char *member, const attn_json *v, bool pairs,
                              attn_error *err)
{
    const char *text = NULL;
    bool one = attn_json_string(v, &text);
    size_t n = one ? 1 : attn_json_length(v), bytes = one ? strlen(text) : 0;
    attn_status rc = ATTN_OK;

    ATTN_TRY(need_tokenizer(t->r, member, err));
    ATTN_TRY(begin_sequences(t->r, n, err));
    for (size_t b = 0; b < n && !one; b++) { /* the longest needs most while it is read */
        const attn_json *item = attn_json_at(v, b);
        const char *part = NULL;
        size_t sum = 0;
        for (size_t k = 0; k < 2; k++) {
            if (attn_json_string(attn_json_is_array(item) ? attn_json_at(item, k) : item, &part))
                sum += strlen(part);
        }
        bytes = sum > bytes ? sum : bytes;
    }
    size_t held = MEMORY_OF_TEXT(bytes);
    ATTN_TRY(srv_request_reserve(t->r, held, err));
    t->r->reserved += held;
    if (one)
        rc = add_text(t, member, 0, text, NULL, err);
    for (size_t b = 0; b < n && !one && rc == ATTN_OK; b++)
        rc = add_text_of(t, member, b, attn_json_at(v, b), pairs, err);
    attn_encoding_deinit(&t->encoding);
    attn_budget_release(t->r->budget, held);
    t->r->reserved -= held;
    return rc;
}

/* --- ids ------------------------------------------------------------------------------------------ */

/* As OpenAI's body has them: lists of integers. */
static attn_status add_listed_ids(tokens *t, const char *member, size_t b, const attn_json *list,
                                  attn_error *err)
{
    size_t n = attn_json_length(list);

    if (!attn_json_is_array(list))
        return fail_at(err, ATTN_EINVAL, member, b, "is not a list of token ids");
    ATTN_TRY(make_room(t, n, err));
    for (size_t i = 0; i < n; i++) {
        int64_t id = 0;
        if (!attn_json_integer(attn_json_at(list, i), &id) || id < 0 || id > INT32_MAX)
            return fail_at(err, ATTN_EINVAL, member, b, "holds something that is no token id");
        t->e->ids[t->used] = (int32_t)id;
        t->e->types[t->used++] = 0;
    }
    end_sequence(t->r, b, t->used);
    return ATTN_OK;
}

static attn_status read_listed_ids(tokens *t, const char *member, const attn_json *v,
                                   attn_error *err)
{
    bool lists = attn_json_is_array(attn_json_at(v, 0));
    size_t n = lists ? attn_json_length(v) : 1;

    ATTN_TRY(begin_sequences(t->r, n, err));
    for (size_t b = 0; b < n; b++)
        ATTN_TRY(add_listed_ids(t, member, b, lists ? attn_json_at(v, b) : v, err));
    return ATTN_OK;
}

static size_t length_of(const srv_array *a, size_t b)
{
    return a->lengths != NULL ? a->lengths[b] : a->dim[1];
}

static attn_status check_same_lists(const srv_array *ids, const srv_array *types, attn_error *err)
{
    bool same = types->dim[0] == ids->dim[0];

    for (size_t b = 0; b < ids->dim[0] && same; b++)
        same = length_of(ids, b) == length_of(types, b);
    if (same)
        return ATTN_OK;
    return attn_fail_at(err, ATTN_ESHAPE, "/token_type_ids",
                        "token_type_ids and input_ids are lists of different lengths");
}

static attn_status read_ids(tokens *t, const srv_array *ids, const srv_array *types,
                            attn_error *err)
{
    size_t at = 0;

    if (types->present)
        ATTN_TRY(check_same_lists(ids, types, err));
    ATTN_TRY(begin_sequences(t->r, ids->dim[0], err));
    ATTN_TRY(make_room(t, ids->count, err));
    for (size_t b = 0; b < ids->dim[0]; b++) {
        for (size_t end = at + length_of(ids, b); at < end; at++) {
            int64_t id = ids->data.i64[at], type = types->present ? types->data.i64[at] : 0;
            if (id < 0 || id > INT32_MAX || type < 0 || type > INT32_MAX)
                return fail_at(err, ATTN_ESHAPE,
                               id < 0 || id > INT32_MAX ? "input_ids" : "token_type_ids", b,
                               "holds a number that is no token");
            t->e->ids[at] = (int32_t)id;
            t->e->types[at] = (int32_t)type;
        }
        end_sequence(t->r, b, at);
    }
    return ATTN_OK;
}

/* --- embeddings ----------------------------------------------------------------------------------- */

static attn_status read_embeds(srv_request *r, const srv_array *x, attn_error *err)
{
    size_t width = r->encode->info->embed_width, at = 0;

    if (x->rank != 3)
        return attn_fail_at(err, ATTN_ESHAPE, "/inputs_embeds",
                            "/inputs_embeds has rank %u; [B,T,D] is due", x->rank);
    if (x->dim[2] != width && !(x->count == 0 && x->dim[2] == 0))
        return attn_fail_at(err, ATTN_ESHAPE, "/inputs_embeds",
                            "/inputs_embeds holds tokens of width %zu; the model takes %zu",
                            x->dim[2], width);
    ATTN_TRY(begin_sequences(r, x->dim[0], err));
    for (size_t b = 0; b < r->batch; b++) {
        at += length_of(x, b);
        end_sequence(r, b, at);
    }
    return ATTN_OK;
}

/* --- which of them -------------------------------------------------------------------------------- */

static attn_status fail_none(const srv_request *r, attn_error *err)
{
    if (r->kind == SRV_ENCODE)
        return attn_fail(err, ATTN_EINVAL,
                         "one of inputs, input_ids and inputs_embeds must be there");
    return attn_fail(err, ATTN_EINVAL, "the field \"%s\" is missing",
                     r->kind == SRV_EMBED ? "inputs" : "input");
}

attn_status srv_encode_read_inputs(srv_request *r, attn_error *err)
{
    const attn_json *inputs = srv_request_value(r, SRV_F_INPUTS);
    const attn_json *input = srv_request_value(r, SRV_F_INPUT);
    const attn_json *truncate = srv_request_value(r, SRV_F_TRUNCATE);
    const srv_array *ids = srv_request_array(r, SRV_F_INPUT_IDS);
    const srv_array *types = srv_request_array(r, SRV_F_TOKEN_TYPE_IDS);
    const srv_array *embeds = srv_request_array(r, SRV_F_INPUTS_EMBEDS);
    tokens t = {.r = r,
                .e = r->encode,
                .longest = srv_encode_text_tokens(r->encode->info, r->tokenizer),
                .truncate = r->kind != SRV_EMBED};

    if (truncate != NULL && !attn_json_bool(truncate, &t.truncate))
        return attn_fail_at(err, ATTN_EINVAL, "/truncate",
                            "/truncate: expected true or false, found %s",
                            attn_json_type_name(truncate));
    if ((inputs != NULL) + ids->present + embeds->present > 1)
        return attn_fail(err, ATTN_EINVAL,
                         "inputs, input_ids and inputs_embeds exclude each other");
    if (types->present && !ids->present)
        return attn_fail_at(err, ATTN_EINVAL, "/token_type_ids",
                            "token_type_ids go with input_ids alone");
    if (ids->present)
        return read_ids(&t, ids, types, err);
    if (embeds->present)
        return read_embeds(r, embeds, err);
    if (input != NULL && attn_json_is_array(input) && attn_json_length(input) > 0) {
        int64_t id = 0;
        const attn_json *first = attn_json_at(input, 0);
        if (attn_json_is_array(first) || attn_json_integer(first, &id))
            return read_listed_ids(&t, "input", input, err);
    }
    const char *member = inputs != NULL ? "inputs" : "input", *text = NULL;
    const attn_json *texts = inputs != NULL ? inputs : input;
    if (texts == NULL)
        return fail_none(r, err);
    if (!attn_json_is_array(texts) && !attn_json_string(texts, &text)) {
        attn_error at = {0};
        (void)attn_fail(&at, ATTN_EINVAL, "/%s", member);
        return attn_fail_at(err, ATTN_EINVAL, at.text,
                            "/%s: expected a string or a list of them, found %s", member,
                            attn_json_type_name(texts));
    }
    return read_texts(&t, member, texts, r->kind != SRV_EMBEDDINGS, err);
}
