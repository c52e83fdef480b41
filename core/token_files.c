/* Folders without tokenizer.json: vocab.txt of BERT, vocab.json and merges.txt of RoBERTa and GPT-2. */
#include "core/token_private.h"

#include <stdio.h>
#include <string.h>

/* A special token as tokenizer_config.json has it: a string, or an object with its content. */
static const char *special_of(const attn_json *config, const char *key, const char *otherwise)
{
    const attn_json *v = attn_json_get(config, key);
    const char *token = otherwise;

    if (attn_json_is_object(v))
        v = attn_json_get(v, "content");
    (void)attn_json_string(v, &token);
    return token;
}

/* Enters it as an added token; *id is where. Padding and mask may be missing. */
static attn_status add_special(attn_tokenizer *t, const char *token, bool left, uint32_t *id,
                               bool needed, const char *what, attn_error *err)
{
    attn_added added = {.left = left, .special = true};
    char content[256];

    if (!attn_tokenizer_find(t, token, id)) {
        if (!needed)
            return ATTN_OK;
        return attn_fail(err, ATTN_EFORMAT, "%s: the vocabulary has no \"%.99s\"", what, token);
    }
    if (strlen(token) >= sizeof content)
        return attn_fail(err, ATTN_EFORMAT, "%s: the special token \"%.99s...\" is too long", what,
                         token);
    memcpy(content, token, strlen(token) + 1);
    added.content = content;
    added.id = *id;
    return attn_added_add(t, &added, err);
}

/* --- vocab.txt ------------------------------------------------------------------------------ */

static attn_status read_lines(attn_tokenizer *t, const attn_token_file *file, const char *what,
                              attn_error *err)
{
    const char *s = file->text, *end = s + file->n;
    uint32_t id = 0;

    if (!attn_utf8_valid(s, file->n) || memchr(s, 0, file->n) != NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s/vocab.txt: it is not a text in UTF-8", what);
    for (; s < end; id++) {
        const char *line = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((line != NULL ? line : end) - s), bytes = n;
        if (bytes > 0 && s[bytes - 1] == '\r')
            bytes--;
        ATTN_TRY(attn_vocabulary_add(t, s, bytes, id, err));
        s += n + (line != NULL);
    }
    return ATTN_OK;
}

attn_status attn_token_read_wordpiece(attn_tokenizer *t, const attn_token_files *files,
                                      const attn_json *config, const char *what, attn_error *err)
{
    attn_normal *step = &t->normal[t->normals++];
    uint32_t cls, sep, other;

    t->model = ATTN_WORDPIECE;
    t->wordpiece.most_characters = 100;
    ATTN_TRY(read_lines(t, &files->vocab_txt, what, err));
    t->wordpiece.continuing = attn_trie_walk(&t->vocabulary, ATTN_TRIE_ROOT, "##", 2);
    step->kind = ATTN_NORMAL_BERT;
    step->clean = true;
    ATTN_TRY(attn_token_bool(config, "do_lower_case", true, &step->lower, what, err));
    ATTN_TRY(attn_token_bool(config, "strip_accents", step->lower, &step->accents, what, err));
    ATTN_TRY(attn_token_bool(config, "tokenize_chinese_chars", true, &step->chinese, what, err));
    t->split[t->splits++].kind = ATTN_SPLIT_BERT;
    ATTN_TRY(add_special(t, special_of(config, "unk_token", "[UNK]"), false, &t->unknown, true,
                         what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "cls_token", "[CLS]"), false, &cls, true, what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "sep_token", "[SEP]"), false, &sep, true, what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "pad_token", "[PAD]"), false, &other, false, what, err));
    ATTN_TRY(add_special(t, special_of(config, "mask_token", "[MASK]"), false, &other, false, what,
                         err));
    return attn_template_bert(t, cls, sep, err);
}

/* --- vocab.json and merges.txt -------------------------------------------------------------- */

static attn_status read_merges(attn_tokenizer *t, const attn_token_file *file, const char *what,
                               attn_error *err)
{
    const char *s = file->text, *end = s + file->n;

    for (size_t rank = 0; s < end;) {
        const char *line = memchr(s, '\n', (size_t)(end - s)), *stop = line != NULL ? line : end;
        size_t n = (size_t)(stop - s);
        if (n > 0 && s[n - 1] == '\r')
            n--;
        const char *blank = n > 0 ? memchr(s, ' ', n) : NULL;
        bool comment = rank == 0 && n >= 8 && memcmp(s, "#version", 8) == 0;
        if (n > 0 && !comment) {
            if (blank == NULL)
                return attn_fail(err, ATTN_EFORMAT, "%s: merge %zu is not two tokens", what, rank);
            size_t left = (size_t)(blank - s);
            ATTN_TRY(attn_bpe_merge(t, rank++, s, left, blank + 1, n - left - 1, what, err));
        }
        s = stop + (line != NULL);
    }
    return ATTN_OK;
}

/* RoBERTa's has special tokens around each text, GPT-2's has none. */
static attn_status read_specials(attn_tokenizer *t, const attn_json *config, bool roberta,
                                 const char *what, attn_error *err)
{
    uint32_t cls, sep, other;

    if (!roberta) {
        const char *end = special_of(config, "eos_token", "<|endoftext|>");
        ATTN_TRY(add_special(t, end, false, &other, false, what, err));
        return attn_token_read_post_processor(t, NULL, what, err);
    }
    ATTN_TRY(add_special(t, special_of(config, "cls_token", "<s>"), false, &cls, true, what, err));
    ATTN_TRY(add_special(t, special_of(config, "sep_token", "</s>"), false, &sep, true, what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "unk_token", "<unk>"), false, &other, false, what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "pad_token", "<pad>"), false, &other, false, what, err));
    ATTN_TRY(
        add_special(t, special_of(config, "mask_token", "<mask>"), true, &other, false, what, err));
    return attn_template_roberta(t, cls, sep, err);
}

attn_status attn_token_read_bpe(attn_tokenizer *t, const attn_token_files *files,
                                const attn_json *config, const char *folder, attn_error *err)
{
    attn_split *step = &t->split[t->splits++];
    attn_json *vocabulary = NULL;
    const char *class = NULL;
    char what[512];
    uint32_t id;

    t->model = ATTN_BPE;
    t->bpe.byte_level = true;
    t->unknown = ATTN_TOKEN_NONE;
    step->kind = ATTN_SPLIT_BYTE_LEVEL;
    step->use_words = true;
    ATTN_TRY(attn_token_bool(config, "add_prefix_space", false, &step->prefix_space, folder, err));
    (void)snprintf(what, sizeof what, "%s/vocab.json", folder);
    attn_status rc =
        attn_json_parse(&vocabulary, files->vocab_json.text, files->vocab_json.n, what, err);
    if (rc == ATTN_OK)
        rc = attn_token_read_vocabulary(t, vocabulary, what, err);
    attn_json_free(vocabulary);
    ATTN_TRY(rc);
    (void)snprintf(what, sizeof what, "%s/merges.txt", folder);
    ATTN_TRY(read_merges(t, &files->merges_txt, what, err));
    ATTN_TRY(attn_token_string(config, "tokenizer_class", &class, folder, err));
    if (class == NULL)
        class = attn_tokenizer_find(t, "<s>", &id) ? "RobertaTokenizer" : "GPT2Tokenizer";
    if (strncmp(class, "RobertaTokenizer", 16) != 0 && strncmp(class, "GPT2Tokenizer", 13) != 0)
        return attn_fail(
            err, ATTN_EUNSUPPORTED,
            "%s: a \"%.99s\" without tokenizer.json is not supported; transformers can write it",
            folder, class);
    return read_specials(t, config, class[0] == 'R', folder, err);
}
