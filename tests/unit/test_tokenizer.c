#include "core/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>

#include "core/json.h"
#include "tests/scratch.h"
#include "tests/texts.h"

/* Made by tests/make_tokenizers.py, as are the checksums in expected.txt of what `tokenizers` gives. */
#define FIXTURES "tests/tokenizers"

static const char *const kinds[] = {
    "bert-cased", "bert-uncased",   "bpe-bytes",     "bpe-words",   "cl100k",
    "modernbert", "roberta-prefix", "unigram-first", "xlm-roberta", "roberta"};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static char texts[2][TEXT_BYTES];

static const char *folder = FIXTURES; /* another one is for make check-tokenizers */

static attn_tokenizer *fixture(const char *name)
{
    char path[256];
    attn_tokenizer *t = NULL;
    attn_error err = {0};

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (attn_tokenizer_open(&t, path, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return t;
}

static void encode(const attn_tokenizer *t, const char *text, const char *pair,
                   const attn_tokenize_options *options, attn_encoding *e)
{
    attn_error err = {0};
    if (attn_tokenizer_encode(t, text, strlen(text), pair, pair == NULL ? 0 : strlen(pair), options,
                              e, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

/* The tokens of what was encoded, each behind a blank. */
static const char *spelled(const attn_tokenizer *t, const attn_encoding *e)
{
    static char out[4096];
    size_t n = 0;

    out[0] = 0;
    for (size_t i = 0; i < e->count; i++) {
        const char *token = attn_tokenizer_token(t, e->id[i]);
        assert_non_null(token);
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%s", i == 0 ? "" : " ", token);
        assert_true(n < sizeof out);
    }
    return out;
}

/* --- the same as `tokenizers` --------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t step, bytes, max_length;
    bool pair;
} ways[] = {
    {"whole", 1, TEXT_BYTES, 0, false},
    {"cut", 7, 120, 16, false},
    {"pair", 7, 60, 0, true},
    {"cut-pair", 7, 60, 17, true},
};

static uint32_t add_to_sum(uint32_t sum, const attn_encoding *e)
{
    unsigned char cut = e->truncated;
    for (size_t i = 0; i < e->count; i++) {
        unsigned char id[4] = {(unsigned char)e->id[i], (unsigned char)(e->id[i] >> 8),
                               (unsigned char)(e->id[i] >> 16), (unsigned char)(e->id[i] >> 24)};
        sum = (uint32_t)crc32(sum, id, 4);
    }
    sum = (uint32_t)crc32(sum, e->type_id, (uInt)e->count);
    sum = (uint32_t)crc32(sum, e->special, (uInt)e->count);
    return (uint32_t)crc32(sum, &cut, 1);
}

/* The checksum of the next 500 items from text number *at on. */
static uint32_t sum_block(const attn_tokenizer *t, size_t way, size_t *at, attn_encoding *e)
{
    attn_tokenize_options options = {.max_length = ways[way].max_length};
    uint32_t sum = 0;

    for (size_t item = 0; item < 500 && *at < TEXTS; item++) {
        size_t n[2] = {0, 0};
        for (size_t k = 0; k < 1 + (size_t)ways[way].pair; k++, *at += ways[way].step) {
            if (*at >= TEXTS)
                return sum; /* half a pair */
            n[k] = text_cut(texts[k], text_make(*at, texts[k]), ways[way].bytes);
        }
        attn_error err = {0};
        if (attn_tokenizer_encode(t, texts[0], n[0], ways[way].pair ? texts[1] : NULL, n[1],
                                  &options, e, &err) != ATTN_OK)
            fail_msg("%s", err.text);
        sum = add_to_sum(sum, e);
    }
    return sum;
}

static void ids_are_those_of_the_reference(void **state)
{
    char line[4096], kind[64], way[64], open[64] = "", path[256];
    attn_tokenizer *t = NULL;
    attn_encoding e = {0};
    size_t sums = 0;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/expected.txt", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        size_t w = 0, at = 0;
        int n = 0;
        assert_int_equal(sscanf(line, "%63s %63s%n", kind, way, &n), 2);
        while (w < COUNT(ways) && strcmp(ways[w].name, way) != 0)
            w++;
        assert_true(w < COUNT(ways));
        if (strcmp(open, kind) != 0) {
            attn_tokenizer_free(t);
            t = fixture(kind);
            strcpy(open, kind);
        }
        for (char *s = line + n; *s != '\n'; sums++) {
            size_t first = at;
            uint32_t want = (uint32_t)strtoul(s, &s, 16);
            if (sum_block(t, w, &at, &e) != want)
                fail_msg("%s, %s: texts %zu to %zu give other tokens", kind, way, first, at - 1);
        }
        assert_true(at >= TEXTS);
    }
    if (strcmp(folder, FIXTURES) == 0)
        assert_int_equal(sums, COUNT(kinds) * (24 + 4 + 2 + 2));
    assert_true(sums > 0);
    (void)fclose(f);
    attn_encoding_deinit(&e);
    attn_tokenizer_free(t);
}

/* --- what else it tells --------------------------------------------------------------------- */

static void tokens_are_spelled_as_in_the_file(void **state)
{
    attn_encoding e = {0};
    attn_tokenizer *t = fixture("bert-uncased");
    uint32_t id = 0;

    (void)state;
    encode(t, "The CATS [MASK]", NULL, NULL, &e);
    assert_string_equal(spelled(t, &e), "[CLS] the cat ##s [MASK] [SEP]");
    assert_string_equal(attn_tokenizer_kind(t), "WordPiece");
    assert_int_equal(attn_tokenizer_specials(t, false), 2);
    assert_int_equal(attn_tokenizer_specials(t, true), 3);
    for (size_t k = 0; k < 5; k++) {
        id = attn_tokenizer_special(t, k >= 2, k >= 2 ? k - 2 : k);
        assert_string_equal(attn_tokenizer_token(t, id), k == 0 || k == 2 ? "[CLS]" : "[SEP]");
    }
    assert_true(attn_tokenizer_find(t, "[MASK]", &id));
    assert_int_equal(id, 4);
    assert_false(attn_tokenizer_find(t, "[mask]", &id));
    assert_null(attn_tokenizer_token(t, (uint32_t)attn_tokenizer_size(t)));
    assert_true(attn_tokenizer_max_length(t) == SIZE_MAX);
    assert_true(attn_tokenizer_bytes(t) > 10000);
    attn_tokenizer_free(t);

    t = fixture("roberta");
    encode(t, "the cat sat", NULL, NULL, &e);
    assert_string_equal(spelled(t, &e), "<s> the Ġcat Ġsat </s>");
    attn_tokenizer_free(t);
    t = fixture("xlm-roberta");
    encode(t, "the ①", NULL, NULL, &e);
    assert_string_equal(spelled(t, &e), "<s> ▁the ▁1 </s>");
    attn_tokenizer_free(t);
    attn_encoding_deinit(&e);
}

static void pairs_have_types_and_specials(void **state)
{
    static const uint8_t types[] = {0, 0, 0, 0, 1, 1}, specials[] = {1, 0, 0, 1, 0, 1};
    attn_tokenizer *t = fixture("bert-uncased");
    attn_encoding e = {0};
    attn_tokenize_options bare = {.no_specials = true};

    (void)state;
    encode(t, "the cat", "dog", NULL, &e);
    assert_int_equal(e.count, 6);
    assert_memory_equal(e.type_id, types, sizeof types);
    assert_memory_equal(e.special, specials, sizeof specials);
    encode(t, "the cat", "dog", &bare, &e);
    assert_string_equal(spelled(t, &e), "the cat dog");
    attn_encoding_deinit(&e);
    attn_tokenizer_free(t);
}

static void the_longer_text_of_a_pair_is_cut_first(void **state)
{
    attn_tokenizer *t = fixture("bert-uncased");
    attn_encoding e = {0};
    attn_tokenize_options options = {.max_length = 8};

    (void)state;
    encode(t, "the cat", "the cat the cat the", &options, &e);
    assert_string_equal(spelled(t, &e), "[CLS] the cat [SEP] the cat the [SEP]");
    assert_true(e.truncated);
    encode(t, "the cat the cat the", "the cat sat the", &options, &e);
    assert_string_equal(spelled(t, &e), "[CLS] the cat the [SEP] the cat [SEP]");
    options.max_length = 9;
    encode(t, "the cat", "the cat the cat", &options, &e);
    assert_false(e.truncated);
    options.max_length = 3;
    encode(t, "the cat", "the", &options, &e);
    assert_string_equal(spelled(t, &e), "[CLS] [SEP] [SEP]");
    attn_encoding_deinit(&e);
    attn_tokenizer_free(t);
}

/* --- folders without tokenizer.json --------------------------------------------------------- */

static void same_on_texts(const attn_tokenizer *a, const attn_tokenizer *b)
{
    attn_encoding x = {0}, y = {0};

    for (size_t i = 0; i < TEXTS; i += 5) {
        size_t n = text_make(i, texts[0]);
        assert_int_equal(attn_tokenizer_encode(a, texts[0], n, "the", 3, NULL, &x, NULL), ATTN_OK);
        assert_int_equal(attn_tokenizer_encode(b, texts[0], n, "the", 3, NULL, &y, NULL), ATTN_OK);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.id, y.id, x.count * sizeof *x.id);
        assert_memory_equal(x.type_id, y.type_id, x.count);
    }
    attn_encoding_deinit(&x);
    attn_encoding_deinit(&y);
}

static attn_tokenizer *open_scratch(void)
{
    attn_tokenizer *t = NULL;
    attn_error err = {0};

    if (attn_tokenizer_open(&t, scratch_dir(), &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return t;
}

static void vocab_txt_gives_the_same(void **state)
{
    static const char config[] = "{\"do_lower_case\":true,\"model_max_length\":512,"
                                 "\"cls_token\":{\"content\":\"[CLS]\"}}";
    attn_tokenizer *t = fixture("bert-uncased");
    blob b = {0};

    (void)state;
    for (uint32_t id = 0; id < attn_tokenizer_size(t); id++) {
        blob_text(&b, attn_tokenizer_token(t, id));
        blob_text(&b, id % 2 == 0 ? "\n" : "\r\n");
    }
    (void)scratch_write("vocab.txt", b.at, b.n);
    (void)scratch_write("tokenizer_config.json", config, sizeof config - 1);
    attn_tokenizer *other = open_scratch();
    assert_int_equal(attn_tokenizer_max_length(other), 512);
    same_on_texts(t, other);
    (void)remove(scratch_path("vocab.txt"));
    (void)remove(scratch_path("tokenizer_config.json"));
    blob_free(&b);
    attn_tokenizer_free(other);
    attn_tokenizer_free(t);
}

static void quoted(blob *b, const char *s)
{
    blob_text(b, "\"");
    for (; *s != 0; s++) {
        blob_text(b, *s == '"' || *s == '\\' ? "\\" : "");
        blob_add(b, s, 1);
    }
    blob_text(b, "\"");
}

static void vocab_json_with_merges_gives_the_same(void **state)
{
    static const char config[] = "{\"model_max_length\":1000000000000000019884624838656}";
    attn_tokenizer *t = fixture("roberta");
    attn_json *document = NULL;
    blob vocab = {0}, merges = {0};
    char number[32];

    (void)state;
    for (uint32_t id = 0; id < attn_tokenizer_size(t); id++) {
        blob_text(&vocab, id == 0 ? "{" : ",");
        quoted(&vocab, attn_tokenizer_token(t, id));
        (void)snprintf(number, sizeof number, ":%u", id);
        blob_text(&vocab, number);
    }
    blob_text(&vocab, "}");
    assert_int_equal(
        attn_json_read_file(&document, FIXTURES "/roberta/tokenizer.json", 1 << 20, NULL), ATTN_OK);
    const attn_json *list = attn_json_get(attn_json_get(document, "model"), "merges");
    blob_text(&merges, "#version: 0.2\n");
    for (size_t i = 0; i < attn_json_length(list); i++) {
        const char *merge = NULL;
        assert_true(attn_json_string(attn_json_at(list, i), &merge));
        blob_text(&merges, merge);
        blob_text(&merges, "\n");
    }
    (void)scratch_write("vocab.json", vocab.at, vocab.n);
    (void)scratch_write("merges.txt", merges.at, merges.n);
    (void)scratch_write("tokenizer_config.json", config, sizeof config - 1);
    attn_tokenizer *other = open_scratch();
    assert_true(attn_tokenizer_max_length(other) == SIZE_MAX);
    same_on_texts(t, other);
    (void)remove(scratch_path("vocab.json"));
    (void)remove(scratch_path("merges.txt"));
    (void)remove(scratch_path("tokenizer_config.json"));
    attn_json_free(document);
    blob_free(&vocab);
    blob_free(&merges);
    attn_tokenizer_free(other);
    attn_tokenizer_free(t);
}

static void a_folder_without_files_is_told(void **state)
{
    attn_tokenizer *t = NULL;
    attn_error err = {0};

    (void)state;
    assert_int_equal(attn_tokenizer_open(&t, scratch_dir(), &err), ATTN_ENOTFOUND);
    assert_null(t);
    assert_non_null(strstr(err.text, "vocab.txt"));
}

/* --- what is refused ------------------------------------------------------------------------ */

#define WORDS     "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}"
#define BPE(more) "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}" more "}"

static const struct {
    const char *json;
    attn_status code;
    const char *text;
} refused[] = {
    {"[]", ATTN_EFORMAT, "an array"},
    {"{\"model\":3}", ATTN_EFORMAT, "model"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", ATTN_EUNSUPPORTED, "WordLevel"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", ATTN_EFORMAT, "[UNK]"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":-1}}}", ATTN_EFORMAT, "\"a\""},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":99999999}}}", ATTN_ETOOBIG, "99999999"},
    {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0},"
     "\"max_input_chars_per_word\":5000}}",
     ATTN_EUNSUPPORTED, "5000"},
    {"{" BPE(",\"merges\":[\"a c\"]") "}", ATTN_EFORMAT, "merge 0"},
    {"{" BPE(",\"merges\":[\"a\"]") "}", ATTN_EFORMAT, "merge 0"},
    {"{" BPE(",\"merges\":{}") "}", ATTN_EFORMAT, "merges"},
    {"{" BPE(",\"merges\":[],\"dropout\":0.1") "}", ATTN_EUNSUPPORTED, "dropout"},
    {"{" BPE(",\"merges\":[],\"end_of_word_suffix\":\"</w>\"") "}", ATTN_EUNSUPPORTED,
     "end_of_word_suffix"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", ATTN_EFORMAT, "vocabulary"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", ATTN_EFORMAT, "token 0"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", ATTN_EFORMAT,
     "unk_id"},
    {"{" WORDS ",\"normalizer\":{\"type\":\"Nmt\"}}", ATTN_EUNSUPPORTED, "Nmt"},
    {"{" WORDS ",\"normalizer\":{}}", ATTN_EFORMAT, "normalizer"},
    {"{" WORDS ",\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":1}}", ATTN_EFORMAT,
     "lowercase"},
    {"{" WORDS ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}}",
     ATTN_EFORMAT, "charsmap"},
    {"{" WORDS ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"gAAAAAAA\"}}",
     ATTN_EFORMAT, "charsmap"},
    {"{" WORDS
     ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a|b)\"},\"content\":\"\"}}",
     ATTN_EUNSUPPORTED, "(a|b)"},
    {"{" WORDS ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", ATTN_EUNSUPPORTED,
     "UnicodeScripts"},
    {"{" WORDS ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", ATTN_EUNSUPPORTED, "ByteLevel"},
    {"{" WORDS ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+\"},"
     "\"behavior\":\"Isolated\",\"invert\":false}}",
     ATTN_EUNSUPPORTED, "[a-z]+"},
    {"{" WORDS ",\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Gone\"}}",
     ATTN_EUNSUPPORTED, "Gone"},
    {"{" WORDS
     ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\"}]}}",
     ATTN_EUNSUPPORTED, "Sequence"},
    {"{" BPE(",\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                               "{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}}",
     ATTN_EUNSUPPORTED, "behind ByteLevel"},
    {"{" WORDS ",\"post_processor\":{\"type\":\"Magic\"}}", ATTN_EUNSUPPORTED, "Magic"},
    {"{" WORDS
     ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\"],\"sep\":[\"a\",1]}}",
     ATTN_EFORMAT, "cls"},
    {"{" WORDS
     ",\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",1],\"sep\":[\"a\",90]}}",
     ATTN_EFORMAT, "adds 90, which is no token"},
    {"{" WORDS ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[]}}",
     ATTN_EUNSUPPORTED, "template"},
    {"{" WORDS ",\"added_tokens\":[{\"id\":7,\"content\":\"x\"}]}", ATTN_EFORMAT, "\"x\" is not 2"},
    {"{" WORDS ",\"added_tokens\":[{\"id\":2}]}", ATTN_EFORMAT, "content"},
};

static attn_status parse(attn_tokenizer **t, const char *json, attn_error *err)
{
    attn_token_files files = {.tokenizer = {json, strlen(json)}};
    return attn_tokenizer_parse(t, &files, "folder", err);
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        attn_tokenizer *t = NULL;
        attn_error err = {0};
        attn_status rc = parse(&t, refused[i].json, &err);
        if (rc != refused[i].code || strstr(err.text, refused[i].text) == NULL)
            fail_msg("%s: %s: %s", refused[i].json, attn_status_name(rc), err.text);
        assert_null(t);
    }
}

/* --- limits --------------------------------------------------------------------------------- */

static void bad_arguments_are_refused(void **state)
{
    static const char *const bad[] = {
        "\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "12345678\xe2\x82"};
    attn_tokenizer *t = fixture("bert-uncased");
    attn_tokenize_options options = {.max_length = 1};
    attn_encoding e = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(attn_tokenizer_encode(t, bad[i], strlen(bad[i]), NULL, 0, NULL, &e, NULL),
                         ATTN_EINVAL);
        assert_int_equal(attn_tokenizer_encode(t, "", 0, bad[i], strlen(bad[i]), NULL, &e, NULL),
                         ATTN_EINVAL);
    }
    assert_int_equal(attn_tokenizer_encode(t, "a", 1, NULL, 0, &options, &e, NULL), ATTN_EINVAL);
    assert_int_equal(e.count, 0);
    attn_encoding_deinit(&e);
    attn_tokenizer_free(t);
}

static void texts_are_put_in_lower_case_before_all_else(void **state)
{
    attn_tokenize_options lower = {.lower_case = true};
    attn_tokenizer *t = fixture("bert-cased");
    attn_encoding e = {0};
    char want[256];

    (void)state;
    encode(t, "the cats sat [mask]", "on \xce\xbf\xcf\x82", NULL, &e);
    (void)snprintf(want, sizeof want, "%s", spelled(t, &e));
    encode(t, "The CATS sat [MASK]", "ON \xce\x9f\xce\xa3", NULL, &e);
    assert_string_not_equal(spelled(t, &e), want);
    encode(t, "The CATS sat [MASK]", "ON \xce\x9f\xce\xa3", &lower, &e);
    assert_string_equal(spelled(t, &e), want);
    attn_encoding_deinit(&e);
    attn_tokenizer_free(t);
}

static void memory_has_a_limit(void **state)
{
    attn_tokenize_options options = {.memory_limit = 1 << 16};

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        attn_tokenizer *t = fixture(kinds[k]);
        attn_encoding e = {0};
        attn_error err = {0};
        char *text = malloc(1 << 20);
        assert_non_null(text);
        memset(text, 'a', 1 << 20);
        for (size_t i = 0; i < 1 << 20; i += 3)
            text[i] = ' ';
        assert_int_equal(attn_tokenizer_encode(t, text, 1 << 20, NULL, 0, &options, &e, &err),
                         ATTN_ETOOBIG);
        assert_int_equal(err.limit, 1 << 16);
        assert_true(err.needed > err.limit);
        assert_int_equal(attn_tokenizer_encode(t, text, 100, NULL, 0, &options, &e, NULL), ATTN_OK);
        assert_true(e.count > 10);
        free(text);
        attn_encoding_deinit(&e);
        attn_tokenizer_free(t);
    }
}

/* Quadratic time would be minutes: what a text costs is linear however long its words and stretches are. */
static void long_words_take_linear_time(void **state)
{
    static const char *const unit[] = {"a", "lo", "\u0301", "a\u0323\u0301", " ",      "\n ",
                                       "'", "中", "<",      "<mas",          "\u1100", "\u0600"};
    enum { BYTES = 1 << 17 };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        attn_tokenizer *t = fixture(kinds[k]);
        attn_encoding e = {0};
        for (size_t u = 0; u < COUNT(unit); u++) {
            size_t n = strlen(unit[u]), at = 0;
            for (; at + n <= BYTES; at += n)
                memcpy(text + at, unit[u], n);
            assert_int_equal(attn_tokenizer_encode(t, text, at, NULL, 0, NULL, &e, NULL), ATTN_OK);
            assert_true(e.count <= 2 * BYTES + 2);
        }
        attn_encoding_deinit(&e);
        attn_tokenizer_free(t);
    }
    free(text);
}

/* For make_tokenizers.py: the texts as it reads them. */
static int write_texts(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return 1;
    for (size_t i = 0; i < TEXTS; i++) {
        size_t n = text_make(i, texts[0]);
        unsigned char length[4] = {(unsigned char)n, (unsigned char)(n >> 8),
                                   (unsigned char)(n >> 16), 0};
        (void)fwrite(length, 1, sizeof length, f);
        (void)fwrite(texts[0], 1, n, f);
    }
    return fclose(f) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_reference),
        cmocka_unit_test(tokens_are_spelled_as_in_the_file),
        cmocka_unit_test(pairs_have_types_and_specials),
        cmocka_unit_test(the_longer_text_of_a_pair_is_cut_first),
        cmocka_unit_test(vocab_txt_gives_the_same),
        cmocka_unit_test(vocab_json_with_merges_gives_the_same),
        cmocka_unit_test(a_folder_without_files_is_told),
        cmocka_unit_test(what_is_not_known_is_refused_by_name),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(texts_are_put_in_lower_case_before_all_else),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(long_words_take_linear_time),
    };
    const struct CMUnitTest others[] = {cmocka_unit_test(ids_are_those_of_the_reference)};
    const char *path = getenv("ATTND_WRITE_TEXTS"), *other = getenv("ATTND_TOKENIZERS");

    if (path != NULL)
        return write_texts(path);
    if (other != NULL) {
        folder = other;
        return cmocka_run_group_tests(others, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
