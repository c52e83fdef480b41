#include "core/tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/token_private.h"

/* --- names ---------------------------------------------------------------------------------- */

static attn_status grow_names(attn_tokenizer *t, size_t more, uint32_t id, attn_error *err)
{
    if (more > t->names_room - t->names_n) {
        size_t room = t->names_room + t->names_room / 2 + more + 4096;
        char *names = room < ATTN_TOKEN_NONE ? realloc(t->names, room) : NULL;
        if (names == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for a vocabulary");
        t->names = names;
        t->names_room = room;
    }
    if (id >= t->name_room) {
        size_t room =
            t->name_room + t->name_room / 2 > id ? t->name_room + t->name_room / 2 : id + 64;
        uint32_t *name_at = realloc(t->name_at, room * sizeof *name_at);
        if (name_at == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for a vocabulary");
        for (size_t i = t->name_room; i < room; i++)
            name_at[i] = ATTN_TOKEN_NONE;
        t->name_at = name_at;
        t->name_room = room;
    }
    return ATTN_OK;
}

attn_status attn_name_add(attn_tokenizer *t, const char *token, size_t n, uint32_t id,
                          attn_error *err)
{
    if (id >= ATTN_TOKEN_IDS)
        return attn_fail(err, ATTN_ETOOBIG, "token \"%.99s\" has the id %u, the highest is %u",
                         token, id, ATTN_TOKEN_IDS - 1);
    ATTN_TRY(grow_names(t, n + 1, id, err));
    t->name_at[id] = (uint32_t)t->names_n;
    memcpy(t->names + t->names_n, token, n);
    t->names[t->names_n + n] = 0;
    t->names_n += n + 1;
    t->size = id >= t->size ? id + 1 : t->size;
    return ATTN_OK;
}

attn_status attn_vocabulary_add(attn_tokenizer *t, const char *token, size_t n, uint32_t id,
                                attn_error *err)
{
    ATTN_TRY(attn_name_add(t, token, n, id, err));
    t->vocabulary_count += attn_trie_find(&t->vocabulary, token, n) == ATTN_TRIE_NONE;
    return attn_trie_add(&t->vocabulary, token, n, id, err);
}

const char *attn_tokenizer_token(const attn_tokenizer *t, uint32_t id)
{
    return id >= t->size || t->name_at[id] == ATTN_TOKEN_NONE ? NULL : t->names + t->name_at[id];
}

bool attn_tokenizer_find(const attn_tokenizer *t, const char *token, uint32_t *id)
{
    for (size_t i = 0; i < t->added_count; i++) {
        if (strcmp(t->added[i].content, token) == 0) {
            *id = t->added[i].id;
            return true;
        }
    }
    *id = attn_trie_find(&t->vocabulary, token, strlen(token));
    return *id != ATTN_TRIE_NONE;
}

/* --- what it is ----------------------------------------------------------------------------- */

const char *attn_tokenizer_kind(const attn_tokenizer *t)
{
    static const char *const kind[] = {"WordPiece", "BPE", "Unigram"};
    return kind[t->model];
}

size_t attn_tokenizer_size(const attn_tokenizer *t)
{
    return t->size;
}

size_t attn_tokenizer_max_length(const attn_tokenizer *t)
{
    return t->max_length;
}

size_t attn_tokenizer_specials(const attn_tokenizer *t, bool pair)
{
    return pair ? t->pair.specials : t->single.specials;
}

uint32_t attn_tokenizer_special(const attn_tokenizer *t, bool pair, size_t k)
{
    const attn_template_item *item = pair ? t->pair.item : t->single.item;

    assert(k < attn_tokenizer_specials(t, pair));
    for (;; item++) {
        if (item->id >= 0 && k-- == 0)
            return (uint32_t)item->id;
    }
}

size_t attn_tokenizer_bytes(const attn_tokenizer *t)
{
    size_t bytes = sizeof *t + attn_unicode_bytes(&t->unicode) + attn_trie_bytes(&t->vocabulary) +
                   attn_trie_bytes(&t->raw.trie) + attn_trie_bytes(&t->normalized.trie) +
                   t->names_room + t->name_room * sizeof *t->name_at +
                   t->added_room * sizeof *t->added + t->bpe.slots * sizeof *t->bpe.merge;

    for (size_t i = 0; i < t->normals; i++)
        bytes += t->normal[i].unit_count * sizeof *t->normal[i].units + t->normal[i].strings_n;
    if (t->bpe.whole != NULL)
        bytes += t->size;
    if (t->unigram.score != NULL)
        bytes += t->size * sizeof *t->unigram.score;
    return bytes;
}

/* --- memory of an encoder ------------------------------------------------------------------- */

/* At least half more than before: texts that grow bit by bit cost linear time. */
static attn_status grow(attn_token_scratch *w, void **p, size_t *room, size_t needed,
                        attn_error *err)
{
    size_t wanted = *room + *room / 2 > needed ? *room + *room / 2 : needed;

    if (w->limit != 0 && w->bytes - *room + wanted > w->limit)
        wanted = needed; /* a bit less slack may fit */
    if (w->limit != 0 && w->bytes - *room + wanted > w->limit) {
        attn_status rc = attn_fail(
            err, ATTN_ETOOBIG, "tokenising the text takes more than its share of memory, %zu bytes",
            w->limit);
        if (err != NULL && err->needed == 0) {
            err->needed = w->bytes - *room + wanted;
            err->limit = w->limit;
        }
        return rc;
    }
    void *grown = realloc(*p, wanted);
    if (grown == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for tokens");
    w->bytes += wanted - *room;
    *p = grown;
    *room = wanted;
    return ATTN_OK;
}

attn_status attn_room_grow(attn_token_scratch *w, attn_room *r, size_t n, size_t size,
                           attn_error *err)
{
    if (n > SIZE_MAX / 4 / size)
        return attn_fail(err, ATTN_ENOMEM, "no memory for tokens");
    return grow(w, &r->p, &r->room, n * size < 256 ? 256 : n * size, err);
}

attn_status attn_text_grow(attn_token_scratch *w, attn_text *t, size_t more, attn_error *err)
{
    void *p = t->p;
    attn_status rc = grow(w, &p, &t->room, t->n + more + ATTN_TEXT_SLACK, err);

    t->p = p;
    return rc;
}

attn_token_scratch *attn_token_scratch_new(void)
{
    attn_token_scratch *w = calloc(1, sizeof *w);

    if (w != NULL)
        w->most = SIZE_MAX;
    return w;
}

/* Gives back what it holds. */
static void empty(attn_token_scratch *w)
{
    free(w->lower.p);
    for (size_t i = 0; i < 2; i++) {
        free(w->normal[i].p);
        free(w->points[i].p);
    }
    for (size_t i = 0; i < ATTN_TOKEN_STEPS; i++)
        free(w->split[i].p);
    free(w->symbols.p);
    free(w->heap.p);
    free(w->lattice.p);
    free(w->ids.p);
    free(w->id.p);
    free(w->type_id.p);
    free(w->special.p);
    memset(w, 0, sizeof *w);
}

void attn_token_scratch_free(attn_token_scratch *w)
{
    if (w != NULL)
        empty(w);
    free(w);
}

void attn_encoding_deinit(attn_encoding *e)
{
    attn_token_scratch_free(e->scratch);
    memset(e, 0, sizeof *e);
}

/* --- encoding ------------------------------------------------------------------------------- */

static attn_status check(const attn_tokenizer *t, const char *text, size_t n, const char *pair,
                         size_t pair_n, const attn_tokenize_options *options, attn_error *err)
{
    size_t specials = options->no_specials ? 0 : attn_tokenizer_specials(t, pair != NULL);

    if (options->max_length != 0 && options->max_length < specials)
        return attn_fail(err, ATTN_EINVAL,
                         "at most %zu tokens leave no room for the %zu special ones",
                         options->max_length, specials);
    if (n > ATTN_TOKEN_TEXT || pair_n > ATTN_TOKEN_TEXT)
        return attn_fail(err, ATTN_ETOOBIG, "a text has more than %u bytes", ATTN_TOKEN_TEXT);
    if (!attn_utf8_valid(text, n) || (pair != NULL && !attn_utf8_valid(pair, pair_n)))
        return attn_fail(err, ATTN_EINVAL, "a text is not UTF-8");
    return ATTN_OK;
}

/* One of the texts becomes ids. */
static attn_status encode_text(const attn_tokenizer *t, attn_token_scratch *w, const char *text,
                               size_t n, bool lower_case, attn_error *err)
{
    if (!lower_case)
        return attn_added_encode(t, w, text, n, err);
    w->lower.n = 0;
    ATTN_TRY(attn_text_need(w, &w->lower, ATTN_LOWER_BYTES(n), err));
    w->lower.n = attn_unicode_lower_text(&t->unicode, text, n, w->lower.p);
    if (w->lower.n > ATTN_TOKEN_TEXT)
        return attn_fail(err, ATTN_ETOOBIG, "the text in lower case has more than %u bytes",
                         ATTN_TOKEN_TEXT);
    return attn_added_encode(t, w, w->lower.p, w->lower.n, err);
}

static attn_status encode(const attn_tokenizer *t, const char *text, size_t n, const char *pair,
                          size_t pair_n, const attn_tokenize_options *options, attn_encoding *e,
                          attn_error *err)
{
    attn_token_scratch *w = e->scratch;

    w->count = 0;
    w->limit = options->memory_limit;
    w->most = SIZE_MAX;
    /* Of a pair the lengths decide what is cut: both are encoded to their ends. */
    if (options->max_length != 0 && pair == NULL)
        w->most = options->max_length;
    ATTN_TRY(encode_text(t, w, text, n, options->lower_case, err));
    size_t first = w->count;
    if (pair != NULL)
        ATTN_TRY(encode_text(t, w, pair, pair_n, options->lower_case, err));
    return attn_post_process(t, w, first, pair != NULL, options, e, err);
}

/* Whether a text fits the limit does not depend on what the scratch has kept of others: with that it may
 * not fit where it would alone. */
attn_status attn_tokenizer_encode(const attn_tokenizer *t, const char *text, size_t n,
                                  const char *pair, size_t pair_n,
                                  const attn_tokenize_options *options, attn_encoding *e,
                                  attn_error *err)
{
    static const attn_tokenize_options none;

    options = options == NULL ? &none : options;
    e->count = 0;
    e->truncated = false;
    if (e->scratch == NULL)
        e->scratch = attn_token_scratch_new();
    if (e->scratch == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for tokens");
    ATTN_TRY(check(t, text, n, pair, pair_n, options, err));
    if (options->memory_limit != 0 && e->scratch->bytes != 0) {
        attn_error full = {0};
        attn_status rc = encode(t, text, n, pair, pair_n, options, e, &full);
        if (rc != ATTN_ETOOBIG) {
            if (rc != ATTN_OK)
                (void)attn_fail(err, rc, "%s", full.text);
            return rc;
        }
        empty(e->scratch);
    }
    return encode(t, text, n, pair, pair_n, options, e, err);
}

/* --- loading -------------------------------------------------------------------------------- */

void attn_tokenizer_free(attn_tokenizer *t)
{
    if (t == NULL)
        return;
    attn_unicode_deinit(&t->unicode);
    for (size_t i = 0; i < ATTN_TOKEN_STEPS; i++) {
        attn_normal_deinit(&t->normal[i]);
        attn_split_deinit(&t->split[i]);
    }
    for (size_t i = 0; i < t->added_count; i++)
        free(t->added[i].content);
    free(t->added);
    attn_trie_deinit(&t->vocabulary);
    attn_trie_deinit(&t->raw.trie);
    attn_trie_deinit(&t->normalized.trie);
    attn_bpe_deinit(&t->bpe);
    free(t->unigram.score);
    free(t->single.item);
    free(t->pair.item);
    free(t->names);
    free(t->name_at);
    free(t);
}

typedef attn_status parse_json(attn_json **out, const char *text, size_t n, const char *what,
                               attn_error *err);

static attn_status read_document(attn_json **out, const attn_token_file *file, parse_json *parse,
                                 const char *name, const char *what, attn_error *err)
{
    char label[512];

    *out = NULL;
    if (file->text == NULL)
        return ATTN_OK;
    (void)snprintf(label, sizeof label, "%s/%s", what, name);
    return parse(out, file->text, file->n, label, err);
}

/* Larger numbers, such as 1e30, stand for no limit. */
static void read_max_length(attn_tokenizer *t, const attn_json *config)
{
    double length = 0;

    t->max_length = SIZE_MAX;
    if (attn_json_number(attn_json_get(config, "model_max_length"), &length) && length >= 1 &&
        length < 1e9)
        t->max_length = (size_t)length;
}

static attn_status load(attn_tokenizer *t, const attn_token_files *files, const attn_json *document,
                        const attn_json *config, const char *what, attn_error *err)
{
    ATTN_TRY(attn_unicode_init(&t->unicode, err));
    read_max_length(t, config);
    if (document != NULL)
        ATTN_TRY(attn_token_read_json(t, document, what, err));
    else if (files->vocab_txt.text != NULL)
        ATTN_TRY(attn_token_read_wordpiece(t, files, config, what, err));
    else if (files->vocab_json.text != NULL && files->merges_txt.text != NULL)
        ATTN_TRY(attn_token_read_bpe(t, files, config, what, err));
    else
        return attn_fail(err, ATTN_ENOTFOUND,
                         "%s: no tokenizer.json, no vocab.txt, and no vocab.json with merges.txt",
                         what);
    if (t->model == ATTN_BPE)
        ATTN_TRY(attn_bpe_finish(t, err));
    return attn_added_finish(t, err);
}

attn_status attn_tokenizer_parse(attn_tokenizer **out, const attn_token_files *files,
                                 const char *what, attn_error *err)
{
    attn_json *document = NULL, *config = NULL;
    attn_tokenizer *t = calloc(1, sizeof *t);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (t == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory for its tokeniser", what);
    rc = read_document(&config, &files->config, attn_json_parse_reals, "tokenizer_config.json",
                       what, err);
    if (rc == ATTN_OK)
        rc = read_document(&document, &files->tokenizer, attn_json_parse, "tokenizer.json", what,
                           err);
    if (rc == ATTN_OK)
        rc = load(t, files, document, config, what, err);
    attn_json_free(document);
    attn_json_free(config);
    if (rc != ATTN_OK) {
        attn_tokenizer_free(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

/* Reads a file of the folder; text NULL when there is none. */
static attn_status read_file(const char *folder, const char *name, attn_token_file *out,
                             attn_error *err)
{
    enum { MOST_BYTES = 64 << 20 };
    char path[4096];
    attn_file f = {.fd = -1};
    char *text = NULL;

    *out = (attn_token_file){NULL, 0};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return attn_fail(err, ATTN_EIO, "%.99s...: the path is too long", folder);
    if (access(path, F_OK) != 0)
        return ATTN_OK;
    ATTN_TRY(attn_file_open(&f, path, err));
    attn_status rc = ATTN_OK;
    if (f.size > MOST_BYTES)
        rc = attn_fail(err, ATTN_ETOOBIG, "%s: more than %d MiB", path, MOST_BYTES >> 20);
    if (rc == ATTN_OK && (text = malloc((size_t)f.size + 1)) == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    if (rc == ATTN_OK)
        rc = attn_file_read(&f, 0, text, (size_t)f.size, err);
    if (rc == ATTN_OK)
        rc = attn_file_check_unchanged(&f, err);
    if (rc == ATTN_OK)
        *out = (attn_token_file){text, (size_t)f.size};
    else
        free(text);
    attn_file_close(&f);
    return rc;
}

attn_status attn_tokenizer_open(attn_tokenizer **out, const char *folder, attn_error *err)
{
    attn_token_files files = {0};
    struct {
        const char *name;
        attn_token_file *file;
    } wanted[] = {
        {"tokenizer.json", &files.tokenizer}, {"tokenizer_config.json", &files.config},
        {"vocab.txt", &files.vocab_txt},      {"vocab.json", &files.vocab_json},
        {"merges.txt", &files.merges_txt},
    };
    attn_status rc = ATTN_OK;

    *out = NULL;
    for (size_t i = 0; rc == ATTN_OK && i < sizeof wanted / sizeof wanted[0]; i++) {
        if (i < 2 ||
            files.tokenizer.text == NULL) /* the others do not count beside tokenizer.json */
            rc = read_file(folder, wanted[i].name, wanted[i].file, err);
    }
    if (rc == ATTN_OK)
        rc = attn_tokenizer_parse(out, &files, folder, err);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        free((void *)(uintptr_t)wanted[i].file->text);
    return rc;
}
