/* json_private.h: the reader from inside. Three parts, each used by the one before:
 *
 *   json_scan.c    bytes to events: JSON's grammar, strings decoded, numbers whole
 *   json_reader.c  the members of the top-level object, memory, texts kept for jansson
 *   json_nested.c  events to arrays: nested lists;  json_object.c: tensor objects
 *
 * Every part keeps its state in the reader, so that a body may be cut anywhere. */
#ifndef SRV_JSON_PRIVATE_H
#define SRV_JSON_PRIVATE_H

#include "core/base64.h"
#include "core/tensor.h"
#include "server/json_reader.h"

enum {
    SRV_POINTER_BYTES = sizeof((attn_error *)NULL)->pointer,
    SRV_SHORT_TEXT = 128, /* keys and other short strings are kept up to this */
    SRV_LIST_DEPTH = 8    /* lists in lists that a tensor is read to, to name a rank too large */
};

typedef enum {
    SRV_JSON_OBJECT,
    SRV_JSON_ARRAY,
    SRV_JSON_STRING,
    SRV_JSON_NUMBER,
    SRV_JSON_TRUE,
    SRV_JSON_FALSE,
    SRV_JSON_NULL
} srv_json_type;

/* --- the scanner ------------------------------------------------------------------------------ */

typedef enum { SRV_BETWEEN, SRV_IN_STRING, SRV_IN_NUMBER, SRV_IN_LITERAL } srv_token;

typedef enum {
    SRV_WANT_DOCUMENT,
    SRV_WANT_KEY_OR_END, /* behind '{' */
    SRV_WANT_KEY,        /* behind ',' in an object */
    SRV_WANT_COLON,
    SRV_WANT_VALUE_OR_END, /* behind '[' */
    SRV_WANT_VALUE,
    SRV_WANT_NEXT, /* ',' or the closing bracket */
    SRV_WANT_NOTHING
} srv_want;

typedef struct {
    const char *piece, *end; /* the piece under way, which begins at `offset` of the body */
    const char *stop;        /* scan no further: its end, or that of what a value may take */
    size_t offset;
    srv_token token;
    srv_want want;
    unsigned depth;                   /* open brackets; [depth] is the innermost one */
    bool object[SRV_VALUE_DEPTH + 2]; /* is it '{'? */

    unsigned number;     /* state of the number's grammar */
    const char *literal; /* what is still to come of "true", "false", "null" */
    srv_json_type literal_type;

    bool is_key;
    unsigned string;         /* state inside the string */
    unsigned hex_left;       /* of a \u escape */
    unsigned code, high;     /* its value; the first half of a pair */
    unsigned utf8_left;      /* continuation bytes due */
    unsigned char low, most; /* what the next of them may be */
} srv_json_scan;

/* A growing block whose capacity is charged. */
typedef struct {
    void *p;
    size_t n, capacity; /* elements */
} srv_block;

/* --- nested lists ----------------------------------------------------------------------------- */

typedef enum { SRV_HOLDS_NOTHING, SRV_HOLDS_ELEMENTS, SRV_HOLDS_LISTS } srv_holds;

typedef struct { /* levels count from 1, the outermost list */
    unsigned depth, deepest;
    srv_holds holds[SRV_LIST_DEPTH + 1];
    size_t at[SRV_LIST_DEPTH + 1]; /* items so far in the open list of each level */
    bool closed[SRV_LIST_DEPTH + 1];
    size_t size[SRV_LIST_DEPTH + 1]; /* of the first list that closed */
    srv_block lengths;               /* size_t: of all lists of level 2, where they may differ */
} srv_json_nested;

/* --- tensor objects --------------------------------------------------------------------------- */

typedef enum { SRV_TENSOR_SHAPE, SRV_TENSOR_DTYPE, SRV_TENSOR_DATA, SRV_TENSOR_MEMBERS } srv_part;

typedef struct {
    srv_part part; /* the member under way; SRV_TENSOR_MEMBERS = none */
    bool seen[SRV_TENSOR_MEMBERS];
    size_t rank;
    size_t dim[SRV_LIST_DEPTH];
    attn_dtype dtype;
    attn_base64 base64;
} srv_json_tensor;

/* --- the reader ------------------------------------------------------------------------------- */

typedef struct {
    bool seen;
    srv_array array;
    attn_json *value;
    size_t value_charge;
} srv_slot;

typedef enum {
    SRV_AT_MEMBERS, /* the top-level object itself */
    SRV_AT_NESTED,  /* lists of elements */
    SRV_AT_TENSOR,  /* a tensor object */
    SRV_AT_VALUE    /* text for jansson */
} srv_place;

struct srv_json_reader {
    const srv_field *fields;
    size_t num_fields;
    srv_slot *slots;
    const char **names;
    srv_charge *charge;
    void *charge_arg;
    size_t charged;

    srv_json_scan scan;
    srv_place place;
    size_t field;   /* the member under way, where place says that there is one */
    size_t members; /* that are complete */
    size_t apart;   /* the member whose value is a text of its own; SIZE_MAX = none */

    char text[SRV_SHORT_TEXT]; /* a key, a dtype, "-inf": NUL-terminated, decoded */
    size_t text_n;             /* its whole length; what is over SRV_SHORT_TEXT - 1 was dropped */
    srv_block carry;           /* a number that the end of a piece has cut */
    srv_block copy;            /* the text of a value or of labels */
    const char *copy_from;     /* where in this piece it goes on; NULL = none is kept */

    srv_block data; /* elements of the array under way, or decoded bytes */
    srv_json_nested nested;
    srv_json_tensor tensor;
};

/* json_scan.c */
ATTN_NODISCARD attn_status srv_json_scan_piece(srv_json_reader *r, attn_error *err);
ATTN_NODISCARD attn_status srv_json_scan_end(const srv_json_reader *r, attn_error *err);

/* json_reader.c: what the scanner tells it. `at` is where in the piece. A value begins, in its type's
 * first byte; numbers then come whole and strings in parts, decoded; then it ends. */
ATTN_NODISCARD attn_status srv_json_key(srv_json_reader *r, attn_error *err);
ATTN_NODISCARD attn_status srv_json_begin(srv_json_reader *r, srv_json_type type, const char *at,
                                          attn_error *err);
ATTN_NODISCARD attn_status srv_json_number(srv_json_reader *r, const char *text, size_t n,
                                           attn_error *err);
ATTN_NODISCARD attn_status srv_json_string(srv_json_reader *r, const char *text, size_t n,
                                           attn_error *err);
/* `behind` is the byte after the value. */
ATTN_NODISCARD attn_status srv_json_end(srv_json_reader *r, srv_json_type type, const char *behind,
                                        attn_error *err);

/* Appends to the short text, dropping what is too long for it. */
void srv_json_keep_text(srv_json_reader *r, const char *text, size_t n);
/* The short text for a message: cut at a whole character, controls replaced. */
typedef struct {
    char text[SRV_SHORT_TEXT];
} srv_quote;
srv_quote srv_json_quote(const char *text, size_t n);

/* The JSON Pointer of where the reader stands. */
typedef struct {
    char text[SRV_POINTER_BYTES];
} srv_pointer;
srv_pointer srv_json_pointer(const srv_json_reader *r);
const char *srv_json_type_name(srv_json_type type); /* "an object", "null" */

/* Memory beside the blocks. */
ATTN_NODISCARD attn_status srv_json_charge(srv_json_reader *r, size_t bytes, attn_error *err);
void srv_json_discharge(srv_json_reader *r, size_t bytes);

/* Blocks: room for `more` elements of `size` bytes behind block->n. */
ATTN_NODISCARD attn_status srv_json_grow(srv_json_reader *r, srv_block *b, size_t more, size_t size,
                                         attn_error *err);
/* The same, ahead of the need as far as `most` elements in all. */
ATTN_NODISCARD attn_status srv_json_grow_within(srv_json_reader *r, srv_block *b, size_t more,
                                                size_t most, size_t size, attn_error *err);
void srv_json_fit(srv_json_reader *r, srv_block *b, size_t size); /* gives the rest back */
void srv_json_drop(srv_json_reader *r, srv_block *b, size_t size);

/* json_nested.c */
ATTN_NODISCARD attn_status srv_json_nested_begin(srv_json_reader *r, srv_json_type type,
                                                 attn_error *err);
ATTN_NODISCARD attn_status srv_json_nested_number(srv_json_reader *r, const char *text, size_t n,
                                                  attn_error *err);
ATTN_NODISCARD attn_status srv_json_nested_end(srv_json_reader *r, srv_json_type type,
                                               attn_error *err);
/* Reads as many elements as it can without help, each followed by ',' (which it reads too, with blanks
 * behind it) or ']' (which it does not). Returns the bytes read. */
size_t srv_json_nested_run(srv_json_reader *r, const char *text, size_t n);
/* Moves the elements into the member's array. */
ATTN_NODISCARD attn_status srv_json_nested_finish(srv_json_reader *r, attn_error *err);

/* json_object.c */
ATTN_NODISCARD attn_status srv_json_tensor_key(srv_json_reader *r, attn_error *err);
ATTN_NODISCARD attn_status srv_json_tensor_begin(srv_json_reader *r, srv_json_type type,
                                                 attn_error *err);
ATTN_NODISCARD attn_status srv_json_tensor_number(srv_json_reader *r, const char *text, size_t n,
                                                  attn_error *err);
ATTN_NODISCARD attn_status srv_json_tensor_string(srv_json_reader *r, const char *text, size_t n,
                                                  attn_error *err);
ATTN_NODISCARD attn_status srv_json_tensor_end(srv_json_reader *r, srv_json_type type,
                                               attn_error *err);
ATTN_NODISCARD attn_status srv_json_tensor_finish(srv_json_reader *r, attn_error *err);

/* What raw_tensor.c shares with it. Which types a kind of tensor takes, and their names; the rank that a
 * field takes; element i of bool, int32 or int64, at any alignment. */
bool srv_kind_takes(srv_field_kind kind, attn_dtype dtype, const char **names);
ATTN_NODISCARD attn_status srv_check_rank(const srv_field *f, const char *pointer, size_t rank,
                                          attn_error *err);
int64_t srv_integer_at(const void *p, size_t i, attn_dtype dtype);

#endif
