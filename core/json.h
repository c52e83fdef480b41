/* json.h: the library's only door to jansson, for configurations and headers (never for tensors).
 *
 * Values are borrowed from their document and valid until attn_json_free(). Duplicate keys, a BOM,
 * NUL bytes, trailing text and invalid UTF-8 are refused. */
#ifndef ATTN_JSON_H
#define ATTN_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct json_t attn_json; /* opaque here; jansson's own node */

/* Parses n bytes. `what` names the document in messages. *out is NULL on failure (ATTN_EFORMAT). */
ATTN_NODISCARD attn_status attn_json_parse(attn_json **out, const char *text, size_t n,
                                           const char *what, attn_error *err);

/* The same with integers of any size: they become reals, and attn_json_integer() finds none. Python writes 10^30, its
 * tokenisers' length without a limit, as an integer. */
ATTN_NODISCARD attn_status attn_json_parse_reals(attn_json **out, const char *text, size_t n,
                                                 const char *what, attn_error *err);

/* Reads and parses a file of at most max_bytes. ATTN_EIO, ATTN_EFORMAT. */
ATTN_NODISCARD attn_status attn_json_read_file(attn_json **out, const char *path, size_t max_bytes,
                                               attn_error *err);
void attn_json_free(attn_json *document); /* takes NULL */

const attn_json *attn_json_get(const attn_json *object, const char *key); /* NULL = not there */
bool attn_json_is_null(const attn_json *v); /* true for NULL and for null */
bool attn_json_is_object(const attn_json *v);
bool attn_json_is_array(const attn_json *v);
size_t attn_json_length(const attn_json *v); /* of an array or object, else 0 */
const attn_json *attn_json_at(const attn_json *array, size_t i);

/* Exact types: integers are JSON integers without fraction or exponent (2.0 is not one). */
bool attn_json_string(const attn_json *v, const char **out);
bool attn_json_integer(const attn_json *v, int64_t *out);
bool attn_json_number(const attn_json *v, double *out); /* integer or real */
bool attn_json_bool(const attn_json *v, bool *out);

/* Walks an object: start with *it = NULL; false at the end. */
bool attn_json_next(const attn_json *object, void **it, const char **key, const attn_json **value);

const char *attn_json_library_version(void); /* jansson's */

/* "null", "a string", "an object", ...: for messages. */
const char *attn_json_type_name(const attn_json *v);

#endif
