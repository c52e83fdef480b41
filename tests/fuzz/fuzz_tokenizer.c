/* Tokenisers: what opens encodes every text, within its limits, the same by a used and by a fresh memory, and what is cut
 * is the beginning of what is not. Input: which files and limits; the file or the two files; the text; a pair or nothing.
 * A line "--" stands between them. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/tokenizer.h"
#include "core/unicode.h"

enum { MEMORY = 1 << 20 };

/* Unfolding the tables takes longer than all the rest: once is enough. Linked in place of the library's. */
attn_status __real_attn_unicode_init(attn_unicode *u, attn_error *err);
attn_status __wrap_attn_unicode_init(attn_unicode *u, attn_error *err);
void __wrap_attn_unicode_deinit(attn_unicode *u);

attn_status __wrap_attn_unicode_init(attn_unicode *u, attn_error *err)
{
    static attn_unicode tables;

    if (tables.block == NULL)
        FUZZ_CHECK(__real_attn_unicode_init(&tables, err) == ATTN_OK);
    *u = tables;
    return ATTN_OK;
}

void __wrap_attn_unicode_deinit(attn_unicode *u)
{
    u->block = NULL;
}

static attn_status encode(const attn_tokenizer *t, fuzz_input text, fuzz_input pair,
                          const attn_tokenize_options *o, attn_encoding *e)
{
    attn_error err = {0};
    char *a = fuzz_copy(text.at, text.n), *b = pair.n > 0 ? fuzz_copy(pair.at, pair.n) : NULL;

    attn_status rc = attn_tokenizer_encode(t, a, text.n, b, pair.n, o, e, &err);
    FUZZ_CHECK(rc == err.code && rc != ATTN_ENOMEM && rc != ATTN_EINTERNAL);
    FUZZ_CHECK(rc == ATTN_OK || e->count == 0);
    for (size_t i = 0; i < e->count; i++) {
        FUZZ_CHECK(e->id[i] < attn_tokenizer_size(t));
        FUZZ_CHECK(e->type_id[i] <= 1 || e->special[i] == 1);
    }
    FUZZ_CHECK(o->max_length == 0 || e->count <= o->max_length);
    free(a);
    free(b);
    return rc;
}

static bool begins_with(const attn_encoding *whole, const attn_encoding *cut)
{
    return cut->count <= whole->count &&
           (cut->count == 0 || memcmp(whole->id, cut->id, cut->count * sizeof *cut->id) == 0);
}

static void try_texts(const attn_tokenizer *t, fuzz_input text, fuzz_input pair, size_t length)
{
    static const fuzz_input none;
    const attn_tokenize_options whole = {.memory_limit = MEMORY};
    const attn_tokenize_options cut = {.memory_limit = MEMORY, .max_length = length};
    const attn_tokenize_options bare = {.memory_limit = MEMORY, .no_specials = true};
    const attn_tokenize_options bare_cut = {
        .memory_limit = MEMORY, .max_length = length, .no_specials = true};
    attn_encoding used = {0}, fresh = {0};

    (void)encode(t, text, pair, &cut, &used);
    attn_status rc = encode(t, text, pair, &whole, &used);
    FUZZ_CHECK(encode(t, text, pair, &whole, &fresh) == rc || rc == ATTN_ETOOBIG);
    if (rc == ATTN_OK) {
        FUZZ_CHECK(used.count == fresh.count && begins_with(&fresh, &used));
        FUZZ_CHECK(!used.truncated && !fresh.truncated);
    }
    if (encode(t, text, none, &bare, &fresh) == ATTN_OK && length > 0 &&
        encode(t, text, none, &bare_cut, &used) == ATTN_OK) {
        FUZZ_CHECK(begins_with(&fresh, &used));
        FUZZ_CHECK(used.truncated == (used.count < fresh.count));
        FUZZ_CHECK(used.count == (fresh.count < length ? fresh.count : length));
    }
    attn_encoding_deinit(&used);
    attn_encoding_deinit(&fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    fuzz_input part = fuzz_part(&in), second = {0};
    attn_token_files files = {0};
    attn_tokenizer *t = NULL;
    attn_error err = {0};

    char *first = fuzz_copy(part.at, part.n), *other = NULL;
    const attn_token_file file = {first, part.n};
    if ((how & 3) == 0) {
        files.tokenizer = file;
    } else {
        second = fuzz_part(&in);
        other = fuzz_copy(second.at, second.n);
        attn_token_file *where = (how & 3) == 1 ? &files.vocab_txt : &files.vocab_json;
        *where = file;
        where = (how & 3) == 2 ? &files.merges_txt : &files.config;
        *where = (attn_token_file){other, second.n};
    }
    attn_status rc = attn_tokenizer_parse(&t, &files, "fuzz", &err);
    free(first); /* nothing of them is kept */
    free(other);
    FUZZ_CHECK(rc == err.code && (rc == ATTN_OK) == (t != NULL) && rc != ATTN_ENOMEM);
    if (rc == ATTN_OK) {
        uint32_t id = 0;
        for (uint32_t i = 0; i < attn_tokenizer_size(t) && i < 2000; i++) {
            const char *token = attn_tokenizer_token(t, i);
            FUZZ_CHECK(token == NULL || attn_tokenizer_find(t, token, &id));
        }
        fuzz_input text = fuzz_part(&in);
        try_texts(t, text, in, how >> 2 & 31);
    }
    attn_tokenizer_free(t);
    return 0;
}
