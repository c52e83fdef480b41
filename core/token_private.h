/* token_private.h: what the parts of the tokeniser share.
 *
 * A text goes through them in this order: token_added.c cuts out added tokens, token_normal.c rewrites
 * what is left, token_split.c cuts it into pieces, token_wordpiece.c, token_bpe.c or token_unigram.c make
 * ids of each, and token_post.c puts special tokens around them. token_read.c and token_files.c load all
 * of it. */
#ifndef ATTN_TOKEN_PRIVATE_H
#define ATTN_TOKEN_PRIVATE_H

#include "json.h"
#include "token_trie.h"
#include "tokenizer.h"
#include "unicode.h"

#define ATTN_TOKEN_IDS   (1u << 24) /* ids are below */
#define ATTN_TOKEN_NONE  UINT32_MAX
#define ATTN_TOKEN_TEXT  (UINT32_C(1) << 30) /* most bytes of a text, before and after normalising */
#define ATTN_TOKEN_STEPS 16                  /* most parts of a normaliser or pre-tokeniser */

/* --- memory of one encoder ------------------------------------------------------------------ */

/* Grows and keeps what it has; `room` counts bytes. */
typedef struct {
    void *p;
    size_t room;
} attn_room;

typedef struct {
    char *p;
    size_t n, room;
} attn_text;

enum { ATTN_TEXT_SLACK = 128 }; /* bytes that one character may become */

struct attn_token_scratch {
    size_t bytes, limit;               /* of all rooms; limit 0 = none */
    attn_text lower;                   /* the text in lower case */
    attn_text normal[2];               /* steps of the normaliser take turns */
    attn_text split[ATTN_TOKEN_STEPS]; /* what a step of the pre-tokeniser rewrites */
    attn_room points[2];               /* code points of a stretch to normalise; while ordering */
    attn_room symbols, heap;           /* of BPE */
    attn_room lattice;                 /* of Unigram */
    attn_room ids;                     /* uint32_t: of the first text, then of the second */
    attn_room id, type_id, special;    /* the result */
    size_t count;                      /* of ids */
    size_t most;                       /* when there are more, the rest does not matter */
};

/* Makes room for n items of `size` bytes. ATTN_ETOOBIG beyond the limit; ATTN_ENOMEM. */
ATTN_NODISCARD attn_status attn_room_grow(attn_token_scratch *w, attn_room *r, size_t n,
                                          size_t size, attn_error *err);
ATTN_NODISCARD attn_status attn_text_grow(attn_token_scratch *w, attn_text *t, size_t more,
                                          attn_error *err);

static inline attn_status attn_room_need(attn_token_scratch *w, attn_room *r, size_t n, size_t size,
                                         attn_error *err)
{
    return n <= r->room / size ? ATTN_OK : attn_room_grow(w, r, n, size, err);
}

static inline attn_status attn_text_need(attn_token_scratch *w, attn_text *t, size_t more,
                                         attn_error *err)
{
    return more <= t->room - t->n ? ATTN_OK : attn_text_grow(w, t, more, err);
}

static inline attn_status attn_ids_push(attn_token_scratch *w, uint32_t id, attn_error *err)
{
    ATTN_TRY(attn_room_need(w, &w->ids, w->count + 1, sizeof id, err));
    ((uint32_t *)w->ids.p)[w->count++] = id;
    return ATTN_OK;
}

/* A scratch for loading; NULL without memory. */
attn_token_scratch *attn_token_scratch_new(void);
void attn_token_scratch_free(attn_token_scratch *w); /* takes NULL */

/* --- normalisers ---------------------------------------------------------------------------- */

/* A pattern that is a stretch of one kind of character, such as " {2,}" or "\s+", or a literal. */
typedef struct {
    char *literal;  /* owned; NULL = a stretch */
    size_t n;       /* bytes of the literal; fewest characters of the stretch */
    bool any_space; /* \s, else ' ' */
} attn_pattern;

typedef enum {
    ATTN_NORMAL_BERT,
    ATTN_NORMAL_FORM, /* NFC, NFD, NFKC, NFKD */
    ATTN_NORMAL_LOWER,
    ATTN_NORMAL_ACCENTS,
    ATTN_NORMAL_STRIP,
    ATTN_NORMAL_REPLACE,
    ATTN_NORMAL_PREPEND,
    ATTN_NORMAL_CHARSMAP,
} attn_normal_kind;

typedef struct {
    attn_normal_kind kind;
    bool clean, chinese, accents, lower; /* of Bert; accents: strip them */
    bool compose, compatibility;         /* of a form */
    bool left, right;                    /* of Strip */
    attn_pattern pattern;                /* of Replace */
    char *content;                       /* owned; of Replace and Prepend */
    uint32_t *units; /* owned; of a charsmap: a double array as SentencePiece stores it */
    size_t unit_count;
    char *strings; /* owned; what its values point into; a NUL ends each, and all */
    size_t strings_n;
} attn_normal;

/* Normalises n bytes; *out lies in them or in the scratch, until the next call. *starts = what they begin
 * with was not dropped. */
ATTN_NODISCARD attn_status attn_normalize(const attn_tokenizer *t, attn_token_scratch *w,
                                          const char *s, size_t n, const char **out, size_t *out_n,
                                          bool *starts, attn_error *err);
/* The parts of BERT's and of the four forms, which others call too. */
ATTN_NODISCARD attn_status attn_normal_form(const attn_tokenizer *t, attn_token_scratch *w,
                                            const attn_normal *step, const char *s, size_t n,
                                            attn_text *out, attn_error *err);
ATTN_NODISCARD attn_status attn_normal_bert(const attn_tokenizer *t, attn_token_scratch *w,
                                            const attn_normal *step, const char *s, size_t n,
                                            attn_text *out, attn_error *err);
ATTN_NODISCARD attn_status attn_normal_charsmap(const attn_tokenizer *t, attn_token_scratch *w,
                                                const attn_normal *step, const char *s, size_t n,
                                                attn_text *out, attn_error *err);
/* Decodes the base64 text of a charsmap into the step. */
ATTN_NODISCARD attn_status attn_charsmap_read(attn_normal *step, const char *text, const char *what,
                                              attn_error *err);
void attn_normal_deinit(attn_normal *step);

/* The next place where the pattern fits, from s[at] on; false = there is none. */
bool attn_pattern_find(const attn_pattern *p, const char *s, size_t n, size_t at, size_t *start,
                       size_t *end);

/* --- pre-tokenisers ------------------------------------------------------------------------- */

typedef enum {
    ATTN_SPLIT_BERT,
    ATTN_SPLIT_WHITESPACE,       /* \w+|[^\w\s]+ */
    ATTN_SPLIT_WHITESPACE_SPLIT, /* at White_Space */
    ATTN_SPLIT_BYTE_LEVEL,
    ATTN_SPLIT_PATTERN,
    ATTN_SPLIT_WORDS, /* one of the well-known patterns of byte-level BPE */
    ATTN_SPLIT_METASPACE,
    ATTN_SPLIT_PUNCTUATION,
    ATTN_SPLIT_DIGITS,
} attn_split_kind;

/* What becomes of the delimiters. */
typedef enum {
    ATTN_REMOVED,
    ATTN_ISOLATED,
    ATTN_CONTIGUOUS,
    ATTN_MERGED_WITH_PREVIOUS,
    ATTN_MERGED_WITH_NEXT,
} attn_behavior;

typedef enum { ATTN_PREPEND_ALWAYS, ATTN_PREPEND_FIRST, ATTN_PREPEND_NEVER } attn_prepend;

typedef struct {
    attn_split_kind kind;
    attn_behavior behavior;       /* of Split, Punctuation, Digits */
    bool invert;                  /* of Split: the pattern says what is kept */
    attn_pattern pattern;         /* of Split */
    unsigned words_digits;        /* of well-known patterns: 0 = GPT-2's, else digits to a group */
    bool prefix_space, use_words; /* of ByteLevel */
    char replacement[ATTN_UTF8_MAX + 1]; /* of Metaspace */
    attn_prepend prepend;
    bool split;
} attn_split;

/* Cuts n bytes into pieces and gives each to the model. `first`: they begin the text. */
ATTN_NODISCARD attn_status attn_split_text(const attn_tokenizer *t, attn_token_scratch *w,
                                           const char *s, size_t n, bool first, attn_error *err);
void attn_split_deinit(attn_split *step);

/* Length of what the well-known pattern matches at s, n > 0; never 0. */
size_t attn_words_next(const attn_unicode *u, unsigned digits, const char *s, size_t n);

/* --- models --------------------------------------------------------------------------------- */

typedef struct {
    uint32_t continuing; /* node of "##" */
    size_t most_characters;
} attn_wordpiece;

typedef struct {
    uint64_t pair; /* left id << 32 | right id; ATTN_NO_PAIR = free */
    uint32_t rank, id;
} attn_merge;

#define ATTN_NO_PAIR UINT64_MAX

typedef struct {
    attn_merge *merge;
    size_t slots;
    unsigned shift;
    uint8_t *whole; /* [size] 1 = merging the token's own characters gives the token */
    bool ignore_merges, fuse_unknown, byte_level;
    uint32_t
        byte_id[256]; /* of byte fallback, or of byte-level characters; ATTN_TOKEN_NONE = none */
    bool byte_fallback;
    char byte_text[256][3]; /* byte-level spelling */
    uint8_t byte_text_n[256];
} attn_bpe;

typedef struct {
    double *score; /* [size] */
    double unknown_score;
    bool byte_fallback;
    uint32_t byte_id[256];
} attn_unigram;

typedef enum { ATTN_WORDPIECE, ATTN_BPE, ATTN_UNIGRAM } attn_model_kind;

/* Appends the ids of one piece, n > 0 bytes. */
ATTN_NODISCARD attn_status attn_wordpiece_encode(const attn_tokenizer *t, attn_token_scratch *w,
                                                 const char *s, size_t n, attn_error *err);
ATTN_NODISCARD attn_status attn_bpe_encode(const attn_tokenizer *t, attn_token_scratch *w,
                                           const char *s, size_t n, attn_error *err);
ATTN_NODISCARD attn_status attn_unigram_encode(const attn_tokenizer *t, attn_token_scratch *w,
                                               const char *s, size_t n, attn_error *err);

/* Enters a merge. The vocabulary must be there. */
ATTN_NODISCARD attn_status attn_bpe_merge(attn_tokenizer *t, size_t rank, const char *left,
                                          size_t left_n, const char *right, size_t right_n,
                                          const char *what, attn_error *err);
/* Fills byte tables and `whole` when vocabulary and merges are there. */
ATTN_NODISCARD attn_status attn_bpe_finish(attn_tokenizer *t, attn_error *err);
void attn_bpe_deinit(attn_bpe *b);

/* --- added tokens --------------------------------------------------------------------------- */

typedef struct {
    char *content; /* owned */
    uint32_t id;
    bool single_word, left, right, normalized, special;
} attn_added;

/* The tokens as one trie, which finds the longest at a place. */
typedef struct {
    attn_trie trie;   /* to the index of the token */
    bool begins[256]; /* which bytes may */
    bool any;
} attn_added_set;

/* Enters a token whose id is known; it takes no ownership. */
ATTN_NODISCARD attn_status attn_added_add(attn_tokenizer *t, const attn_added *token,
                                          attn_error *err);
/* Makes the sets, when normaliser and all tokens are there. */
ATTN_NODISCARD attn_status attn_added_finish(attn_tokenizer *t, attn_error *err);

/* From text to ids, special tokens apart: everything but token_post.c. */
ATTN_NODISCARD attn_status attn_added_encode(const attn_tokenizer *t, attn_token_scratch *w,
                                             const char *s, size_t n, attn_error *err);

/* --- post-processor ------------------------------------------------------------------------- */

enum { ATTN_TEMPLATE_A = -1, ATTN_TEMPLATE_B = -2 };

typedef struct {
    int32_t id; /* or one of the above */
    uint8_t type_id;
} attn_template_item;

typedef struct {
    attn_template_item *item; /* owned */
    size_t count, room;
    size_t specials;
} attn_template;

ATTN_NODISCARD attn_status attn_template_add(attn_template *m, int32_t id, uint8_t type_id,
                                             attn_error *err);
/* What comes out of first (w->ids[0..first)) and second (the rest), cut to what options say. */
ATTN_NODISCARD attn_status attn_post_process(const attn_tokenizer *t, attn_token_scratch *w,
                                             size_t first, bool pair,
                                             const attn_tokenize_options *options, attn_encoding *e,
                                             attn_error *err);

/* --- the whole ------------------------------------------------------------------------------ */

struct attn_tokenizer {
    attn_unicode unicode;
    attn_normal normal[ATTN_TOKEN_STEPS];
    size_t normals;
    attn_split split[ATTN_TOKEN_STEPS];
    size_t splits;

    attn_model_kind model;
    attn_trie vocabulary; /* spelling to id, without the added tokens */
    size_t vocabulary_count;
    uint32_t unknown; /* ATTN_TOKEN_NONE = there is none */
    attn_wordpiece wordpiece;
    attn_bpe bpe;
    attn_unigram unigram;

    attn_added *added;
    size_t added_count, added_room;
    attn_added_set raw, normalized;
    attn_template single, pair;

    char *names; /* every spelling, NUL behind each */
    size_t names_n, names_room;
    uint32_t *name_at; /* [name_room] into names; ATTN_TOKEN_NONE = the id is not used */
    size_t size, name_room;
    size_t max_length;
};

/* Enters a token of the vocabulary. ATTN_ETOOBIG: the id is. */
ATTN_NODISCARD attn_status attn_vocabulary_add(attn_tokenizer *t, const char *token, size_t n,
                                               uint32_t id, attn_error *err);
/* The name of an id alone. */
ATTN_NODISCARD attn_status attn_name_add(attn_tokenizer *t, const char *token, size_t n,
                                         uint32_t id, attn_error *err);

/* tokenizer.json; `what` names it. */
ATTN_NODISCARD attn_status attn_token_read_json(attn_tokenizer *t, const attn_json *document,
                                                const char *what, attn_error *err);
ATTN_NODISCARD attn_status attn_token_read_normalizer(attn_tokenizer *t, const attn_json *v,
                                                      const char *what, attn_error *err);
ATTN_NODISCARD attn_status attn_token_read_pre_tokenizer(attn_tokenizer *t, const attn_json *v,
                                                         const char *what, attn_error *err);
ATTN_NODISCARD attn_status attn_token_read_post_processor(attn_tokenizer *t, const attn_json *v,
                                                          const char *what, attn_error *err);
/* BERT's: [CLS] A [SEP], and RoBERTa's: <s> A </s>. */
ATTN_NODISCARD attn_status attn_template_bert(attn_tokenizer *t, uint32_t cls, uint32_t sep,
                                              attn_error *err);
ATTN_NODISCARD attn_status attn_template_roberta(attn_tokenizer *t, uint32_t cls, uint32_t sep,
                                                 attn_error *err);

/* vocab.txt, and vocab.json with merges.txt; config is tokenizer_config.json or NULL. */
ATTN_NODISCARD attn_status attn_token_read_wordpiece(attn_tokenizer *t,
                                                     const attn_token_files *files,
                                                     const attn_json *config, const char *what,
                                                     attn_error *err);
ATTN_NODISCARD attn_status attn_token_read_bpe(attn_tokenizer *t, const attn_token_files *files,
                                               const attn_json *config, const char *what,
                                               attn_error *err);
/* model.vocab and model.merges as objects and lists. */
ATTN_NODISCARD attn_status attn_token_read_vocabulary(attn_tokenizer *t, const attn_json *v,
                                                      const char *what, attn_error *err);

/* Some members of tokenizer.json, each with what it is when absent. ATTN_EFORMAT: another type. */
ATTN_NODISCARD attn_status attn_token_bool(const attn_json *object, const char *key, bool otherwise,
                                           bool *out, const char *what, attn_error *err);
ATTN_NODISCARD attn_status attn_token_string(const attn_json *object, const char *key,
                                             const char **out, const char *what, attn_error *err);

#endif
