/* tokenizer.h: text to the token ids that a checkpoint was trained with.
 *
 * A tokeniser is what a model's folder holds: tokenizer.json; else vocab.txt (WordPiece); else
 * vocab.json with merges.txt (byte-level BPE). The ids are those of Hugging Face's `tokenizers`,
 * which also says what each part means: normalisers, pre-tokenisers, the model, the post-processor.
 * Padding and truncation that tokenizer.json may ask for are not done: the caller says what it wants.
 *
 * Time and memory are linear in the text, but for a factor log n in BPE. */
#ifndef ATTN_TOKENIZER_H
#define ATTN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct attn_tokenizer attn_tokenizer; /* immutable; share it across threads */

/* Loads what the folder holds. ATTN_ENOTFOUND: it holds none of these files. ATTN_EUNSUPPORTED names
 * the part that is not known here; ATTN_EFORMAT what is damaged. *out is NULL on failure. */
ATTN_NODISCARD attn_status attn_tokenizer_open(attn_tokenizer **out, const char *folder,
                                               attn_error *err);

/* The files' contents, n bytes each; NULL = there is none. At least `tokenizer`, `vocab_txt`, or both
 * `vocab_json` and `merges_txt`; the first of them counts. Nothing is kept. */
typedef struct {
    const char *text;
    size_t n;
} attn_token_file;

typedef struct {
    attn_token_file tokenizer;  /* tokenizer.json */
    attn_token_file vocab_txt;  /* one token a line */
    attn_token_file vocab_json; /* token: id */
    attn_token_file merges_txt;
    attn_token_file config; /* tokenizer_config.json; beside any of them */
} attn_token_files;

/* The same from memory. `what` names the folder in messages. */
ATTN_NODISCARD attn_status attn_tokenizer_parse(attn_tokenizer **out, const attn_token_files *files,
                                                const char *what, attn_error *err);
void attn_tokenizer_free(attn_tokenizer *t); /* takes NULL */

const char *attn_tokenizer_kind(const attn_tokenizer *t); /* "WordPiece", "BPE", "Unigram" */
size_t attn_tokenizer_size(const attn_tokenizer *t);      /* the highest id + 1 */
size_t attn_tokenizer_bytes(const attn_tokenizer *t);     /* memory that it takes */

/* model_max_length of tokenizer_config.json, special tokens included; SIZE_MAX = it does not say, or
 * says one of those huge numbers that stand for no limit. */
size_t attn_tokenizer_max_length(const attn_tokenizer *t);

/* A token as `tokenizers` spells it, "##ing" or "Ġthe"; NULL = the id is not used. Valid until
 * attn_tokenizer_free(). */
const char *attn_tokenizer_token(const attn_tokenizer *t, uint32_t id);

/* The id of such a spelling; false = there is none. */
bool attn_tokenizer_find(const attn_tokenizer *t, const char *token, uint32_t *id);

/* How many special tokens are put around one text, or around a pair. */
size_t attn_tokenizer_specials(const attn_tokenizer *t, bool pair);

/* The id of the k-th of them, k < attn_tokenizer_specials(t, pair), in the order in which they stand there. */
uint32_t attn_tokenizer_special(const attn_tokenizer *t, bool pair, size_t k);

/* What a text became. Start with all zeroes and use it again for as many texts as you like, from one
 * thread at a time: the memory is kept until attn_encoding_deinit(). */
typedef struct attn_token_scratch attn_token_scratch;

typedef struct {
    const uint32_t *id;     /* [count] */
    const uint8_t *type_id; /* [count] 0, or 1 for what the post-processor gives to the second */
    const uint8_t *special; /* [count] 1 = put in by the post-processor */
    size_t count;
    bool truncated; /* tokens were left out */
    attn_token_scratch *scratch;
} attn_encoding;

void attn_encoding_deinit(attn_encoding *e);

typedef struct {
    size_t max_length;   /* of the result, special tokens included; 0 = no limit */
    size_t memory_limit; /* bytes that *e may hold in all; 0 = no limit */
    bool no_specials;    /* the text's tokens alone */
    bool lower_case;     /* first of all, as Python's str.lower() does it */
} attn_tokenize_options;

/* Encodes `text`, or the pair of it and `pair` (NULL = there is none), n bytes of UTF-8 each. What is
 * beyond max_length is cut at the end, of a pair from the longer one first. `options` NULL = the
 * defaults.
 *
 * ATTN_EINVAL: not UTF-8, or max_length has no room for the special tokens. ATTN_ETOOBIG: it takes
 * more than memory_limit. ATTN_ENOMEM. On failure count is 0. */
ATTN_NODISCARD attn_status attn_tokenizer_encode(const attn_tokenizer *t, const char *text,
                                                 size_t n, const char *pair, size_t pair_n,
                                                 const attn_tokenize_options *options,
                                                 attn_encoding *e, attn_error *err);

#endif
