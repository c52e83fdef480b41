#include "server/keys.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>

#include "core/file.h"

enum { SUM_BYTES = 32, FILE_BYTES = 1 << 20 };

typedef struct {
    unsigned char byte[SUM_BYTES];
} sum;

struct srv_keys {
    size_t n;
    sum sums[];
};

static bool make_sum(sum *out, const char *key, size_t n)
{
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, key, n, out->byte) == 0;
}

/* Reads the whole file. *text is the caller's to wipe and free. */
static attn_status read_text(const char *path, char **text, size_t *n, attn_error *err)
{
    attn_file file;

    *text = NULL;
    ATTN_TRY(attn_file_open(&file, path, err));
    *n = (size_t)file.size;
    attn_status rc = ATTN_OK;
    if (file.size > FILE_BYTES)
        rc = attn_fail(err, ATTN_EFORMAT, "%s: over %d bytes, that is no list of keys", path,
                       FILE_BYTES);
    if (rc == ATTN_OK && (*text = malloc(*n + 1)) == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    if (rc == ATTN_OK)
        rc = attn_file_read(&file, 0, *text, *n, err);
    attn_file_close(&file);
    return rc;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The key in a line of n bytes: *begin and its length, 0 = there is none. False: it is no line of ours. */
static bool find_key(const char *line, size_t n, const char **begin, size_t *length)
{
    size_t i = 0, end;

    while (i < n && is_blank(line[i]))
        i++;
    *begin = line + i;
    *length = 0;
    if (i == n || line[i] == '#')
        return true;
    for (end = i; end < n && !is_blank(line[end]); end++) {
        if (line[end] <= ' ' || line[end] >= 0x7F) /* chars above 0x7F are negative, or over it */
            return false;
    }
    *length = end - i;
    while (end < n && is_blank(line[end]))
        end++;
    return *length <= SRV_KEY_BYTES && (end == n || line[end] == '#');
}

static attn_status read_keys(srv_keys *k, const char *path, const char *text, size_t n,
                             attn_error *err)
{
    size_t line = 1, length = 0;
    const char *key;

    for (const char *at = text; at < text + n; line++) {
        const char *end = memchr(at, '\n', (size_t)(text + n - at));
        end = end != NULL ? end : text + n;
        if (!find_key(at, (size_t)(end - at), &key, &length))
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: line %zu is not one key of printable characters without blanks, "
                             "%d at most",
                             path, line, SRV_KEY_BYTES);
        if (length > 0 && !make_sum(&k->sums[k->n++], key, length))
            return attn_fail(err, ATTN_EIO, "%s: GnuTLS cannot compute SHA-256", path);
        at = end + 1;
    }
    return k->n > 0 ? ATTN_OK : attn_fail(err, ATTN_EFORMAT, "%s: there is no key in it", path);
}

attn_status srv_keys_load(srv_keys **out, const char *path, attn_error *err)
{
    char *text = NULL;
    size_t n = 0, lines = 1;
    srv_keys *k = NULL;

    *out = NULL;
    attn_status rc = read_text(path, &text, &n, err);
    for (size_t i = 0; rc == ATTN_OK && i < n; i++)
        lines += text[i] == '\n';
    if (rc == ATTN_OK) {
        k = calloc(1, sizeof *k + lines * sizeof *k->sums);
        rc = k != NULL ? read_keys(k, path, text, n, err)
                       : attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    }
    if (text != NULL)
        explicit_bzero(text, n);
    free(text);
    if (rc != ATTN_OK) {
        srv_keys_free(k);
        k = NULL;
    }
    *out = k;
    return rc;
}

void srv_keys_free(srv_keys *k)
{
    free(k);
}

size_t srv_keys_count(const srv_keys *k)
{
    return k->n;
}

bool srv_keys_have(const srv_keys *k, const char *key, size_t n)
{
    sum given;
    unsigned found = 0;

    if (n == 0 || n > SRV_KEY_BYTES || !make_sum(&given, key, n))
        return false;
    for (size_t i = 0; i < k->n; i++) {
        unsigned differ = 0;
        for (size_t b = 0; b < SUM_BYTES; b++)
            differ |= (unsigned)(given.byte[b] ^ k->sums[i].byte[b]);
        found |= differ - 1; /* the top bit is set where nothing differs */
    }
    return found >> 31 != 0;
}
