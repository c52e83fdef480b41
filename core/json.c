#include "json.h"

#include <jansson.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

/* jansson's readers of objects take no const, though they change nothing. */
static json_t *unconst(const attn_json *v)
{
    union {
        const json_t *in;
        json_t *out;
    } u = {.in = v};
    return u.out;
}

/* Where jansson has no memory for a token it says that the token is wrong, or leaves out a byte of it and says nothing:
 * we watch it ask. */
static _Thread_local bool ran_out;

static void *watched_malloc(size_t n)
{
    void *p = malloc(n);

    ran_out = ran_out || p == NULL;
    return p;
}

static void watch_memory(void)
{
    json_set_alloc_funcs(watched_malloc, free);
}

/* The string literal that ends at text[end - 1]; jansson names only short ones. */
static const char *literal_before(const char *text, size_t end, size_t *length)
{
    size_t start = end;

    *length = 0;
    if (end < 2 || text[end - 1] != '"')
        return "";
    for (start = end - 1; start > 0; start--) {
        size_t slashes = 0;
        if (text[start - 1] != '"')
            continue;
        while (slashes < start - 1 && text[start - 2 - slashes] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            break;
    }
    *length = end - 1 - start;
    return text + start;
}

static attn_status fail_parse(const json_error_t *e, const char *text, size_t n, const char *what,
                              attn_error *err)
{
    char reason[JSON_ERROR_TEXT_LENGTH];
    size_t length = 0;

    if (ran_out)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to parse it", what);
    if (json_error_code(e) == json_error_duplicate_key && e->position >= 0 &&
        (size_t)e->position <= n) {
        const char *key = literal_before(text, (size_t)e->position, &length);
        return attn_fail(err, ATTN_EFORMAT, "%s: line %d, column %d: the key \"%.*s\" stands twice",
                         what, e->line, e->column, length > 200 ? 200 : (int)length, key);
    }
    /* What jansson quotes from the document may hold line breaks and other controls. */
    for (length = 0; length < sizeof reason - 1 && e->text[length] != '\0'; length++) {
        unsigned char c = (unsigned char)e->text[length];
        reason[length] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
    }
    reason[length] = '\0';
    return attn_fail(err, ATTN_EFORMAT, "%s: not valid JSON: line %d, column %d: %s", what, e->line,
                     e->column, reason);
}

/* jansson overlooks a NUL behind a number. */
static attn_status fail_nul(const char *text, const char *nul, const char *what, attn_error *err)
{
    size_t line = 1, column = 1;

    for (const char *p = text; p < nul; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    return attn_fail(err, ATTN_EFORMAT, "%s: not valid JSON: line %zu, column %zu: a NUL byte",
                     what, line, column);
}

static attn_status parse(attn_json **out, const char *text, size_t n, size_t flags,
                         const char *what, attn_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t e;

    *out = NULL;
    if (n == 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: not valid JSON: it is empty", what);
    const char *nul = memchr(text, '\0', n);
    if (nul != NULL)
        return fail_nul(text, nul, what, err);
    (void)pthread_once(&once, watch_memory);
    ran_out = false;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &e);
    if (*out != NULL && !ran_out)
        return ATTN_OK;
    json_decref(*out);
    *out = NULL;
    return fail_parse(&e, text, n, what, err);
}

attn_status attn_json_parse(attn_json **out, const char *text, size_t n, const char *what,
                            attn_error *err)
{
    return parse(out, text, n, 0, what, err);
}

attn_status attn_json_parse_reals(attn_json **out, const char *text, size_t n, const char *what,
                                  attn_error *err)
{
    return parse(out, text, n, JSON_DECODE_INT_AS_REAL, what, err);
}

attn_status attn_json_read_file(attn_json **out, const char *path, size_t max_bytes,
                                attn_error *err)
{
    attn_status rc = ATTN_OK;
    char *text = NULL;
    attn_file f;

    *out = NULL;
    ATTN_TRY(attn_file_open(&f, path, err));
    if (f.size > max_bytes) {
        rc = attn_fail(err, ATTN_EFORMAT, "%s: its %" PRIu64 " bytes are over the limit of %zu",
                       path, f.size, max_bytes);
        goto done;
    }
    text = malloc((size_t)f.size + 1); /* never of zero bytes */
    if (text == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to read it", path);
        goto done;
    }
    rc = attn_file_read(&f, 0, text, (size_t)f.size, err);
    if (rc == ATTN_OK)
        rc = attn_json_parse(out, text, (size_t)f.size, path, err);
done:
    free(text);
    attn_file_close(&f);
    return rc;
}

void attn_json_free(attn_json *document)
{
    json_decref(document);
}

const attn_json *attn_json_get(const attn_json *object, const char *key)
{
    return json_object_get(object, key);
}

bool attn_json_is_null(const attn_json *v)
{
    return v == NULL || json_is_null(v);
}

bool attn_json_is_object(const attn_json *v)
{
    return json_is_object(v);
}

bool attn_json_is_array(const attn_json *v)
{
    return json_is_array(v);
}

size_t attn_json_length(const attn_json *v)
{
    return json_is_object(v) ? json_object_size(v) : json_array_size(v);
}

const attn_json *attn_json_at(const attn_json *array, size_t i)
{
    return json_array_get(array, i);
}

bool attn_json_string(const attn_json *v, const char **out)
{
    if (!json_is_string(v))
        return false;
    *out = json_string_value(v);
    return true;
}

bool attn_json_integer(const attn_json *v, int64_t *out)
{
    if (!json_is_integer(v))
        return false;
    *out = json_integer_value(v);
    return true;
}

bool attn_json_number(const attn_json *v, double *out)
{
    if (!json_is_number(v))
        return false;
    *out = json_number_value(v);
    return true;
}

bool attn_json_bool(const attn_json *v, bool *out)
{
    if (!json_is_boolean(v))
        return false;
    *out = json_is_true(v);
    return true;
}

bool attn_json_next(const attn_json *object, void **it, const char **key, const attn_json **value)
{
    json_t *o = unconst(object);

    *it = *it == NULL ? json_object_iter(o) : json_object_iter_next(o, *it);
    if (*it == NULL)
        return false;
    *key = json_object_iter_key(*it);
    *value = json_object_iter_value(*it);
    return true;
}

const char *attn_json_type_name(const attn_json *v)
{
    if (v == NULL)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "nothing";
}

const char *attn_json_library_version(void)
{
    return jansson_version_str();
}
