/* tokenizer.json: normaliser, pre-tokeniser and post-processor. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

/* A part's type, or what is wrong with it. */
static attn_status type_of(const attn_json *v, const char **type, const char *part,
                           const char *what, attn_error *err)
{
    *type = NULL;
    ATTN_TRY(attn_token_string(v, "type", type, what, err));
    if (*type == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: a %s has no \"type\"", what, part);
    return ATTN_OK;
}

static attn_status copy(char **out, const char *s, const char *what, attn_error *err)
{
    *out = strdup(s);
    return *out != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "%s: no memory", what);
}

/* --- patterns ------------------------------------------------------------------------------- */

/* " +", "\s+", " {2,}": one kind of character and how often at least. False: another one. */
static bool read_stretch(const char *s, attn_pattern *p)
{
    char *end = NULL;

    if (strncmp(s, "\\s", 2) == 0) {
        p->any_space = true;
        s += 2;
    } else if (s[0] == ' ') {
        s += 1;
    } else {
        return false;
    }
    p->n = 1;
    if (strcmp(s, "+") == 0 || s[0] == 0)
        return s[0] != 0;
    if (s[0] != '{' || s[1] < '1' || s[1] > '9')
        return false;
    p->n = strtoul(s + 1, &end, 10);
    return strcmp(end, ",}") == 0;
}

/* {"String": "..."} or {"Regex": "..."}; *regex is one that is no stretch. */
static attn_status read_pattern(const attn_json *v, attn_pattern *p, const char **regex,
                                const char *what, attn_error *err)
{
    const attn_json *pattern = attn_json_get(v, "pattern");
    const char *literal = NULL, *expression = NULL;

    *regex = NULL;
    ATTN_TRY(attn_token_string(pattern, "String", &literal, what, err));
    ATTN_TRY(attn_token_string(pattern, "Regex", &expression, what, err));
    if (literal != NULL && literal[0] != 0) {
        p->n = strlen(literal);
        return copy(&p->literal, literal, what, err);
    }
    if (expression == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: a \"pattern\" is neither a String nor a Regex",
                         what);
    if (!read_stretch(expression, p))
        *regex = expression;
    return ATTN_OK;
}

static attn_status unknown_regex(const char *regex, const char *what, attn_error *err)
{
    return attn_fail(err, ATTN_EUNSUPPORTED,
                     "%s: the regular expression \"%.200s\" is not supported", what, regex);
}

/* --- normalisers ---------------------------------------------------------------------------- */

static attn_status read_bert(const attn_json *v, attn_normal *step, const char *what,
                             attn_error *err)
{
    step->kind = ATTN_NORMAL_BERT;
    ATTN_TRY(attn_token_bool(v, "clean_text", true, &step->clean, what, err));
    ATTN_TRY(attn_token_bool(v, "handle_chinese_chars", true, &step->chinese, what, err));
    ATTN_TRY(attn_token_bool(v, "lowercase", true, &step->lower, what, err));
    return attn_token_bool(v, "strip_accents", step->lower, &step->accents, what, err);
}

static attn_status read_replace(const attn_json *v, attn_normal *step, const char *what,
                                attn_error *err)
{
    const char *content = NULL, *regex;

    step->kind = ATTN_NORMAL_REPLACE;
    ATTN_TRY(attn_token_string(v, "content", &content, what, err));
    if (content == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: a Replace has no \"content\"", what);
    ATTN_TRY(read_pattern(v, &step->pattern, &regex, what, err));
    if (regex != NULL)
        return unknown_regex(regex, what, err);
    if (strchr(content, '$') != NULL && step->pattern.literal == NULL)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: a Replace with groups is not supported",
                         what);
    return copy(&step->content, content, what, err);
}

static attn_status read_prepend(const attn_json *v, attn_normal *step, const char *what,
                                attn_error *err)
{
    const char *prepend = NULL;

    step->kind = ATTN_NORMAL_PREPEND;
    ATTN_TRY(attn_token_string(v, "prepend", &prepend, what, err));
    if (prepend == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: a Prepend has no \"prepend\"", what);
    return copy(&step->content, prepend, what, err);
}

static attn_status read_charsmap(const attn_json *v, attn_normal *step, const char *what,
                                 attn_error *err)
{
    const char *map = NULL;

    step->kind = ATTN_NORMAL_CHARSMAP;
    ATTN_TRY(attn_token_string(v, "precompiled_charsmap", &map, what, err));
    if (map == NULL)
        return attn_fail(err, ATTN_EFORMAT, "%s: a Precompiled has no \"precompiled_charsmap\"",
                         what);
    return attn_charsmap_read(step, map, what, err);
}

static attn_status read_normal(const attn_json *v, const char *type, attn_normal *step,
                               const char *what, attn_error *err)
{
    bool form = type[0] == 'N' && type[1] == 'F';

    if (form && (strcmp(type, "NFC") == 0 || strcmp(type, "NFD") == 0 ||
                 strcmp(type, "NFKC") == 0 || strcmp(type, "NFKD") == 0)) {
        step->kind = ATTN_NORMAL_FORM;
        step->compatibility = type[2] == 'K';
        step->compose = type[strlen(type) - 1] == 'C';
        return ATTN_OK;
    }
    if (strcmp(type, "BertNormalizer") == 0)
        return read_bert(v, step, what, err);
    if (strcmp(type, "Replace") == 0)
        return read_replace(v, step, what, err);
    if (strcmp(type, "Prepend") == 0)
        return read_prepend(v, step, what, err);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(v, step, what, err);
    if (strcmp(type, "Lowercase") == 0) {
        step->kind = ATTN_NORMAL_LOWER;
        return ATTN_OK;
    }
    if (strcmp(type, "StripAccents") == 0) {
        step->kind = ATTN_NORMAL_ACCENTS;
        return ATTN_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        step->kind = ATTN_NORMAL_STRIP;
        ATTN_TRY(attn_token_bool(v, "strip_left", true, &step->left, what, err));
        return attn_token_bool(v, "strip_right", true, &step->right, what, err);
    }
    return attn_fail(err, ATTN_EUNSUPPORTED, "%s: a normalizer of type \"%.99s\" is not supported",
                     what, type);
}

/* The steps of a Sequence, or the one step alone. Sequences within sequences are refused. */
typedef attn_status add_step(attn_tokenizer *t, const attn_json *v, const char *type,
                             const char *what, attn_error *err);

static attn_status read_steps(attn_tokenizer *t, const attn_json *v, const char *part,
                              const char *list, add_step *add, const char *what, attn_error *err)
{
    const char *type;

    if (attn_json_is_null(v))
        return ATTN_OK;
    ATTN_TRY(type_of(v, &type, part, what, err));
    if (strcmp(type, "Sequence") != 0)
        return add(t, v, type, what, err);
    const attn_json *steps = attn_json_get(v, list);
    if (!attn_json_is_array(steps))
        return attn_fail(err, ATTN_EFORMAT, "%s: a Sequence has no \"%s\"", what, list);
    for (size_t i = 0; i < attn_json_length(steps); i++) {
        const attn_json *step = attn_json_at(steps, i);
        ATTN_TRY(type_of(step, &type, part, what, err));
        ATTN_TRY(add(t, step, type, what, err));
    }
    return ATTN_OK;
}

static attn_status add_normal(attn_tokenizer *t, const attn_json *v, const char *type,
                              const char *what, attn_error *err)
{
    if (t->normals == ATTN_TOKEN_STEPS)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: more than %d normalizers", what,
                         ATTN_TOKEN_STEPS);
    return read_normal(v, type, &t->normal[t->normals++], what, err);
}

attn_status attn_token_read_normalizer(attn_tokenizer *t, const attn_json *v, const char *what,
                                       attn_error *err)
{
    return read_steps(t, v, "normalizer", "normalizers", add_normal, what, err);
}

/* --- pre-tokenisers ------------------------------------------------------------------------- */

static attn_status read_behavior(const attn_json *v, attn_behavior *out, const char *what,
                                 attn_error *err)
{
    static const char *const name[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                       "MergedWithNext"};
    const char *behavior = "Isolated";

    ATTN_TRY(attn_token_string(v, "behavior", &behavior, what, err));
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        if (strcmp(behavior, name[i]) == 0) {
            *out = (attn_behavior)i;
            return ATTN_OK;
        }
    }
    return attn_fail(err, ATTN_EUNSUPPORTED, "%s: the behavior \"%.99s\" is not supported", what,
                     behavior);
}

#define CL100K(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *regex;
    unsigned digits;
} well_known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
    {CL100K("\\p{N}"), 1},
    {CL100K("\\p{N}{1,3}"), 3},
};

/* The well-known patterns match every character: what is isolated is what is kept. */
static attn_status read_split(const attn_json *v, attn_split *step, const char *what,
                              attn_error *err)
{
    const char *regex;

    step->kind = ATTN_SPLIT_PATTERN;
    ATTN_TRY(read_behavior(v, &step->behavior, what, err));
    ATTN_TRY(attn_token_bool(v, "invert", false, &step->invert, what, err));
    ATTN_TRY(read_pattern(v, &step->pattern, &regex, what, err));
    for (size_t i = 0; regex != NULL && i < sizeof well_known / sizeof well_known[0]; i++) {
        if (strcmp(regex, well_known[i].regex) != 0)
            continue;
        if (step->behavior != ATTN_ISOLATED && !(step->behavior == ATTN_REMOVED && step->invert))
            break;
        step->kind = ATTN_SPLIT_WORDS;
        step->words_digits = well_known[i].digits;
        return ATTN_OK;
    }
    return regex == NULL ? ATTN_OK : unknown_regex(regex, what, err);
}

/* Older files have add_prefix_space for prepend_scheme. */
static attn_status read_metaspace(const attn_json *v, attn_split *step, const char *what,
                                  attn_error *err)
{
    const char *mark = "\xe2\x96\x81", *scheme = NULL;
    bool prefix = true;

    step->kind = ATTN_SPLIT_METASPACE;
    ATTN_TRY(attn_token_string(v, "replacement", &mark, what, err));
    ATTN_TRY(attn_token_string(v, "prepend_scheme", &scheme, what, err));
    ATTN_TRY(attn_token_bool(v, "add_prefix_space", true, &prefix, what, err));
    ATTN_TRY(attn_token_bool(v, "split", true, &step->split, what, err));
    if (mark[0] == 0 || strlen(mark) != attn_utf8_length(mark[0]))
        return attn_fail(err, ATTN_EFORMAT, "%s: \"replacement\" is not one character", what);
    memcpy(step->replacement, mark, strlen(mark));
    if (scheme == NULL)
        scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        step->prepend = ATTN_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        step->prepend = ATTN_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        step->prepend = ATTN_PREPEND_NEVER;
    else
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: the prepend_scheme \"%.99s\" is not supported", what, scheme);
    return ATTN_OK;
}

static attn_status read_byte_level(attn_tokenizer *t, const attn_json *v, attn_split *step,
                                   const char *what, attn_error *err)
{
    step->kind = ATTN_SPLIT_BYTE_LEVEL;
    if (t->model != ATTN_BPE)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: ByteLevel is supported for BPE alone", what);
    t->bpe.byte_level = true;
    ATTN_TRY(attn_token_bool(v, "add_prefix_space", true, &step->prefix_space, what, err));
    return attn_token_bool(v, "use_regex", true, &step->use_words, what, err);
}

static attn_status read_step(attn_tokenizer *t, const attn_json *v, const char *type,
                             attn_split *step, const char *what, attn_error *err)
{
    static const struct {
        const char *type;
        attn_split_kind kind;
    } plain[] = {
        {"BertPreTokenizer", ATTN_SPLIT_BERT},
        {"Whitespace", ATTN_SPLIT_WHITESPACE},
        {"WhitespaceSplit", ATTN_SPLIT_WHITESPACE_SPLIT},
    };

    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(type, plain[i].type) == 0) {
            step->kind = plain[i].kind;
            return ATTN_OK;
        }
    }
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, v, step, what, err);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(v, step, what, err);
    if (strcmp(type, "Split") == 0)
        return read_split(v, step, what, err);
    if (strcmp(type, "Punctuation") == 0) {
        step->kind = ATTN_SPLIT_PUNCTUATION;
        return read_behavior(v, &step->behavior, what, err);
    }
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        step->kind = ATTN_SPLIT_DIGITS;
        ATTN_TRY(attn_token_bool(v, "individual_digits", false, &individual, what, err));
        step->behavior = individual ? ATTN_ISOLATED : ATTN_CONTIGUOUS;
        return ATTN_OK;
    }
    return attn_fail(err, ATTN_EUNSUPPORTED,
                     "%s: a pre_tokenizer of type \"%.99s\" is not supported", what, type);
}

static attn_status add_split(attn_tokenizer *t, const attn_json *v, const char *type,
                             const char *what, attn_error *err)
{
    if (t->splits == ATTN_TOKEN_STEPS)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: more than %d pre_tokenizers", what,
                         ATTN_TOKEN_STEPS);
    if (t->model == ATTN_BPE && t->bpe.byte_level) /* it changes what steps behind it see */
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: a pre_tokenizer behind ByteLevel is not supported", what);
    return read_step(t, v, type, &t->split[t->splits++], what, err);
}

attn_status attn_token_read_pre_tokenizer(attn_tokenizer *t, const attn_json *v, const char *what,
                                          attn_error *err)
{
    return read_steps(t, v, "pre_tokenizer", "pretokenizers", add_split, what, err);
}

/* --- post-processors ------------------------------------------------------------------------ */

/* ["[SEP]", 102] */
static attn_status read_special(const attn_json *v, const char *key, uint32_t *id, const char *what,
                                attn_error *err)
{
    int64_t number = -1;

    if (!attn_json_integer(attn_json_at(attn_json_get(v, key), 1), &number) || number < 0 ||
        number >= ATTN_TOKEN_IDS)
        return attn_fail(err, ATTN_EFORMAT, "%s: \"%s\" of a post_processor is not [token, id]",
                         what, key);
    *id = (uint32_t)number;
    return ATTN_OK;
}

static attn_status add_special(attn_template *m, const attn_json *tokens, const char *name,
                               uint8_t type_id, const char *what, attn_error *err)
{
    const attn_json *ids = attn_json_get(attn_json_get(tokens, name), "ids");

    if (!attn_json_is_array(ids))
        return attn_fail(err, ATTN_EFORMAT, "%s: special_tokens has no ids for \"%.99s\"", what,
                         name);
    for (size_t i = 0; i < attn_json_length(ids); i++) {
        int64_t id = -1;
        if (!attn_json_integer(attn_json_at(ids, i), &id) || id < 0 || id >= ATTN_TOKEN_IDS)
            return attn_fail(err, ATTN_EFORMAT, "%s: an id of \"%.99s\" is not a number from 0 on",
                             what, name);
        ATTN_TRY(attn_template_add(m, (int32_t)id, type_id, err));
    }
    return ATTN_OK;
}

/* {"SpecialToken": {"id", "type_id"}} and {"Sequence": {"id": "A", "type_id"}}; each text once. */
static attn_status read_template(attn_template *m, const attn_json *v, const attn_json *tokens,
                                 bool pair, const char *what, attn_error *err)
{
    size_t texts[2] = {0, 0};

    for (size_t i = 0; i < attn_json_length(v); i++) {
        const attn_json *item = attn_json_at(v, i), *special = attn_json_get(item, "SpecialToken");
        const attn_json *body = special != NULL ? special : attn_json_get(item, "Sequence");
        const char *id = NULL;
        int64_t type_id = 0;
        ATTN_TRY(attn_token_string(body, "id", &id, what, err));
        if (id == NULL || !attn_json_integer(attn_json_get(body, "type_id"), &type_id) ||
            type_id < 0 || type_id > UINT8_MAX)
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: item %zu of a template has no \"id\" or \"type_id\"", what, i);
        if (special != NULL) {
            ATTN_TRY(add_special(m, tokens, id, (uint8_t)type_id, what, err));
            continue;
        }
        bool second = strcmp(id, "B") == 0;
        texts[second]++;
        if (type_id > 1)
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "%s: the template gives a text the type %d; 0 and 1 are known", what,
                             (int)type_id);
        ATTN_TRY(attn_template_add(m, second ? ATTN_TEMPLATE_B : ATTN_TEMPLATE_A, (uint8_t)type_id,
                                   err));
    }
    if (texts[0] != 1 || texts[1] != pair)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: the template for %s does not have each text once", what,
                         pair ? "a pair" : "a single text");
    return ATTN_OK;
}

static attn_status add_processor(attn_tokenizer *t, const attn_json *v, const char *type,
                                 const char *what, attn_error *err)
{
    uint32_t cls = 0, sep = 0;
    bool bert = strcmp(type, "BertProcessing") == 0;

    if (strcmp(type, "ByteLevel") == 0) /* it is about offsets alone */
        return ATTN_OK;
    if (t->single.count != 0)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: two post_processors with special tokens",
                         what);
    if (bert || strcmp(type, "RobertaProcessing") == 0) {
        ATTN_TRY(read_special(v, "cls", &cls, what, err));
        ATTN_TRY(read_special(v, "sep", &sep, what, err));
        return bert ? attn_template_bert(t, cls, sep, err)
                    : attn_template_roberta(t, cls, sep, err);
    }
    if (strcmp(type, "TemplateProcessing") != 0)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: a post_processor of type \"%.99s\" is not supported", what, type);
    const attn_json *tokens = attn_json_get(v, "special_tokens");
    ATTN_TRY(read_template(&t->single, attn_json_get(v, "single"), tokens, false, what, err));
    return read_template(&t->pair, attn_json_get(v, "pair"), tokens, true, what, err);
}

attn_status attn_token_read_post_processor(attn_tokenizer *t, const attn_json *v, const char *what,
                                           attn_error *err)
{
    ATTN_TRY(read_steps(t, v, "post_processor", "processors", add_processor, what, err));
    if (t->single.count != 0)
        return ATTN_OK;
    ATTN_TRY(attn_template_add(&t->single, ATTN_TEMPLATE_A, 0, err));
    ATTN_TRY(attn_template_add(&t->pair, ATTN_TEMPLATE_A, 0, err));
    return attn_template_add(&t->pair, ATTN_TEMPLATE_B, 1, err);
}
