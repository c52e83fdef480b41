/* tokenizer.json: the model and the added tokens. token_parts.c reads the rest. */
#include "core/token_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status attn_token_bool(const attn_json *object, const char *key, bool otherwise, bool *out,
                            const char *what, attn_error *err)
{
    const attn_json *v = attn_json_get(object, key);

    *out = otherwise;
    if (attn_json_is_null(v) || attn_json_bool(v, out))
        return ATTN_OK;
    return attn_fail(err, ATTN_EFORMAT, "%s: \"%s\" is %s, not true or false", what, key,
                     attn_json_type_name(v));
}

attn_status attn_token_string(const attn_json *object, const char *key, const char **out,
                              const char *what, attn_error *err)
{
    const attn_json *v = attn_json_get(object, key);

    if (attn_json_is_null(v) || attn_json_string(v, out))
        return ATTN_OK;
    return attn_fail(err, ATTN_EFORMAT, "%s: \"%s\" is %s, not a string", what, key,
                     attn_json_type_name(v));
}

/* A member that changes what comes out, in a way that is not done here. */
static attn_status refuse(const attn_json *model, const char *key, const char *what,
                          attn_error *err)
{
    const attn_json *v = attn_json_get(model, key);
    const char *text = NULL;

    if (attn_json_is_null(v) || (attn_json_string(v, &text) && text[0] == 0))
        return ATTN_OK;
    return attn_fail(err, ATTN_EUNSUPPORTED, "%s: a model with \"%s\" is not supported", what, key);
}

/* --- vocabularies --------------------------------------------------------------------------- */

attn_status attn_token_read_vocabulary(attn_tokenizer *t, const attn_json *v, const char *what,
                                       attn_error *err)
{
    const char *token;
    const attn_json *value;
    void *it = NULL;

    if (!attn_json_is_object(v))
        return attn_fail(err, ATTN_EFORMAT, "%s: the vocabulary is %s, not an object", what,
                         attn_json_type_name(v));
    while (attn_json_next(v, &it, &token, &value)) {
        int64_t id = -1;
        if (!attn_json_integer(value, &id) || id < 0)
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: the id of token \"%.99s\" is not a number from 0 on", what,
                             token);
        ATTN_TRY(attn_vocabulary_add(t, token, strlen(token),
                                     id < ATTN_TOKEN_NONE ? (uint32_t)id : ATTN_TOKEN_NONE, err));
    }
    return ATTN_OK;
}

static attn_status find_unknown(attn_tokenizer *t, const char *token, const char *what,
                                attn_error *err)
{
    t->unknown = ATTN_TOKEN_NONE;
    if (token == NULL)
        return ATTN_OK;
    t->unknown = attn_trie_find(&t->vocabulary, token, strlen(token));
    if (t->unknown == ATTN_TRIE_NONE)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: the vocabulary has no \"%.99s\", which is the unknown token", what,
                         token);
    return ATTN_OK;
}

static attn_status read_wordpiece(attn_tokenizer *t, const attn_json *model, const char *what,
                                  attn_error *err)
{
    const char *unknown = "[UNK]", *prefix = "##";
    const attn_json *most = attn_json_get(model, "max_input_chars_per_word");
    int64_t characters = 100;

    t->model = ATTN_WORDPIECE;
    ATTN_TRY(attn_token_read_vocabulary(t, attn_json_get(model, "vocab"), what, err));
    ATTN_TRY(attn_token_string(model, "unk_token", &unknown, what, err));
    ATTN_TRY(attn_token_string(model, "continuing_subword_prefix", &prefix, what, err));
    if (!attn_json_is_null(most) && (!attn_json_integer(most, &characters) || characters < 0))
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: \"max_input_chars_per_word\" is not a number from 0 on", what);
    if (characters > 1000) /* words cost their length times that of the longest token */
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: \"max_input_chars_per_word\" is %lld, at most 1000 is supported",
                         what, (long long)characters);
    t->wordpiece.most_characters = (size_t)characters;
    t->wordpiece.continuing =
        attn_trie_walk(&t->vocabulary, ATTN_TRIE_ROOT, prefix, strlen(prefix));
    return find_unknown(t, unknown, what, err);
}

/* --- BPE ------------------------------------------------------------------------------------ */

/* "a b", or ["a", "b"], which can have blanks in them. */
static attn_status read_merge(attn_tokenizer *t, size_t rank, const attn_json *v, const char *what,
                              attn_error *err)
{
    const char *left = NULL, *right = NULL, *blank;

    if (attn_json_string(v, &left) && (blank = strchr(left, ' ')) != NULL &&
        strchr(blank + 1, ' ') == NULL)
        return attn_bpe_merge(t, rank, left, (size_t)(blank - left), blank + 1, strlen(blank + 1),
                              what, err);
    if (attn_json_length(v) == 2 && attn_json_string(attn_json_at(v, 0), &left) &&
        attn_json_string(attn_json_at(v, 1), &right))
        return attn_bpe_merge(t, rank, left, strlen(left), right, strlen(right), what, err);
    return attn_fail(err, ATTN_EFORMAT, "%s: merge %zu is not two tokens", what, rank);
}

static attn_status read_bpe(attn_tokenizer *t, const attn_json *model, const char *what,
                            attn_error *err)
{
    const attn_json *merges = attn_json_get(model, "merges");
    const char *unknown = NULL;
    double dropout = 0;

    t->model = ATTN_BPE;
    if (attn_json_number(attn_json_get(model, "dropout"), &dropout) && dropout > 0)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: BPE with \"dropout\" is not supported", what);
    ATTN_TRY(refuse(model, "continuing_subword_prefix", what, err));
    ATTN_TRY(refuse(model, "end_of_word_suffix", what, err));
    ATTN_TRY(attn_token_read_vocabulary(t, attn_json_get(model, "vocab"), what, err));
    ATTN_TRY(attn_token_bool(model, "fuse_unk", false, &t->bpe.fuse_unknown, what, err));
    ATTN_TRY(attn_token_bool(model, "byte_fallback", false, &t->bpe.byte_fallback, what, err));
    ATTN_TRY(attn_token_bool(model, "ignore_merges", false, &t->bpe.ignore_merges, what, err));
    ATTN_TRY(attn_token_string(model, "unk_token", &unknown, what, err));
    if (!attn_json_is_array(merges))
        return attn_fail(err, ATTN_EFORMAT, "%s: \"merges\" is %s, not a list", what,
                         attn_json_type_name(merges));
    for (size_t i = 0; i < attn_json_length(merges); i++)
        ATTN_TRY(read_merge(t, i, attn_json_at(merges, i), what, err));
    return find_unknown(t, unknown, what, err);
}

/* --- Unigram -------------------------------------------------------------------------------- */

static attn_status read_scores(attn_tokenizer *t, const attn_json *vocab, const char *what,
                               attn_error *err)
{
    size_t n = attn_json_length(vocab);
    double least = INFINITY;

    t->unigram.score = malloc((n + 1) * sizeof *t->unigram.score);
    if (t->unigram.score == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory for its vocabulary", what);
    for (size_t i = 0; i < n; i++) {
        const attn_json *entry = attn_json_at(vocab, i);
        const char *token = NULL;
        double *score = &t->unigram.score[i];
        if (attn_json_length(entry) != 2 || !attn_json_string(attn_json_at(entry, 0), &token) ||
            !attn_json_number(attn_json_at(entry, 1), score))
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: token %zu of the vocabulary is not [string, number]", what, i);
        least = *score < least ? *score : least;
        ATTN_TRY(attn_vocabulary_add(t, token, strlen(token), (uint32_t)i, err));
    }
    t->unigram.unknown_score = least - 10; /* the penalty of SentencePiece */
    return ATTN_OK;
}

static attn_status read_unigram(attn_tokenizer *t, const attn_json *model, const char *what,
                                attn_error *err)
{
    const attn_json *vocab = attn_json_get(model, "vocab"),
                    *unknown = attn_json_get(model, "unk_id");
    size_t n = attn_json_length(vocab);
    int64_t id = 0;

    t->model = ATTN_UNIGRAM;
    if (!attn_json_is_array(vocab) || n == 0 || n > ATTN_TOKEN_IDS)
        return attn_fail(err, ATTN_EFORMAT, "%s: the vocabulary is not a list of tokens", what);
    ATTN_TRY(read_scores(t, vocab, what, err));
    t->unknown = ATTN_TOKEN_NONE;
    if (!attn_json_is_null(unknown)) {
        if (!attn_json_integer(unknown, &id) || id < 0 || (uint64_t)id >= n)
            return attn_fail(err, ATTN_EFORMAT, "%s: \"unk_id\" is not the place of a token", what);
        t->unknown = (uint32_t)id;
    }
    ATTN_TRY(attn_token_bool(model, "byte_fallback", false, &t->unigram.byte_fallback, what, err));
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", byte);
        t->unigram.byte_id[byte] = attn_trie_find(&t->vocabulary, name, strlen(name));
    }
    return ATTN_OK;
}

/* The oldest files do not say which model it is. */
static attn_status read_model(attn_tokenizer *t, const attn_json *model, const char *what,
                              attn_error *err)
{
    const char *type = NULL;

    if (!attn_json_is_object(model))
        return attn_fail(err, ATTN_EFORMAT, "%s: \"model\" is %s, not an object", what,
                         attn_json_type_name(model));
    ATTN_TRY(attn_token_string(model, "type", &type, what, err));
    if (type == NULL)
        type = attn_json_get(model, "merges") != NULL              ? "BPE"
               : attn_json_is_array(attn_json_get(model, "vocab")) ? "Unigram"
                                                                   : "WordPiece";
    if (strcmp(type, "WordPiece") == 0)
        return read_wordpiece(t, model, what, err);
    if (strcmp(type, "BPE") == 0)
        return read_bpe(t, model, what, err);
    if (strcmp(type, "Unigram") == 0)
        return read_unigram(t, model, what, err);
    return attn_fail(err, ATTN_EUNSUPPORTED,
                     "%s: a model of type \"%.99s\"; WordPiece, BPE and Unigram are supported",
                     what, type);
}

/* --- added tokens --------------------------------------------------------------------------- */

/* Tokens that the vocabulary lacks are numbered on from its size, as `tokenizers` does whatever the file
 * says: a file that says something else is damaged. */
static attn_status read_added(attn_tokenizer *t, const attn_json *v, uint32_t *next,
                              const char *what, attn_error *err)
{
    attn_added token = {0};
    const char *content = NULL;
    int64_t id = -1;
    uint32_t there;

    ATTN_TRY(attn_token_string(v, "content", &content, what, err));
    if (content == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: an added token has no \"content\"", what);
    if (content[0] == 0)
        return ATTN_OK;
    ATTN_TRY(attn_token_bool(v, "single_word", false, &token.single_word, what, err));
    ATTN_TRY(attn_token_bool(v, "lstrip", false, &token.left, what, err));
    ATTN_TRY(attn_token_bool(v, "rstrip", false, &token.right, what, err));
    ATTN_TRY(attn_token_bool(v, "normalized", true, &token.normalized, what, err));
    ATTN_TRY(attn_token_bool(v, "special", false, &token.special, what, err));
    token.id = attn_tokenizer_find(t, content, &there) ? there : (*next)++;
    if (!attn_json_integer(attn_json_get(v, "id"), &id) || id != token.id)
        return attn_fail(err, ATTN_EFORMAT, "%s: the id of the added token \"%.99s\" is not %u",
                         what, content, token.id);
    token.content = strdup(content);
    if (token.content == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory for added tokens", what);
    attn_status rc = attn_added_add(t, &token, err);
    free(token.content);
    return rc;
}

/* The encoder looks its rows up by these. */
static attn_status check_specials(const attn_tokenizer *t, const attn_template *m, const char *what,
                                  attn_error *err)
{
    for (size_t i = 0; i < m->count; i++) {
        if (m->item[i].id >= 0 && attn_tokenizer_token(t, (uint32_t)m->item[i].id) == NULL)
            return attn_fail(err, ATTN_EFORMAT, "%s: the post_processor adds %d, which is no token",
                             what, (int)m->item[i].id);
    }
    return ATTN_OK;
}

attn_status attn_token_read_json(attn_tokenizer *t, const attn_json *document, const char *folder,
                                 attn_error *err)
{
    char what[512];
    const attn_json *added = attn_json_get(document, "added_tokens");

    (void)snprintf(what, sizeof what, "%s/tokenizer.json", folder);
    if (!attn_json_is_object(document))
        return attn_fail(err, ATTN_EFORMAT, "%s: it is %s, not an object", what,
                         attn_json_type_name(document));
    ATTN_TRY(read_model(t, attn_json_get(document, "model"), what, err));
    ATTN_TRY(attn_token_read_normalizer(t, attn_json_get(document, "normalizer"), what, err));
    ATTN_TRY(attn_token_read_pre_tokenizer(t, attn_json_get(document, "pre_tokenizer"), what, err));
    ATTN_TRY(
        attn_token_read_post_processor(t, attn_json_get(document, "post_processor"), what, err));
    uint32_t next = (uint32_t)t->vocabulary_count;
    for (size_t i = 0; i < attn_json_length(added); i++)
        ATTN_TRY(read_added(t, attn_json_at(added, i), &next, what, err));
    ATTN_TRY(check_specials(t, &t->single, what, err));
    return check_specials(t, &t->pair, what, err);
}
