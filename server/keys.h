/* keys.h: API keys, of which only the SHA-256 sums are kept. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct srv_keys srv_keys; /* immutable, share it across threads */

/* Reads a file with one key a line: printable ASCII without blanks, SRV_KEY_BYTES at most. Empty lines, and what
 * stands behind a '#' at the beginning of a line or behind a blank, are passed over. ATTN_EIO: the file cannot be
 * read; ATTN_EFORMAT: it holds no key, or a line that is none. No sentence holds a key. */
enum { SRV_KEY_BYTES = 1024 };
ATTN_NODISCARD attn_status srv_keys_load(srv_keys **out, const char *path, attn_error *err);
void srv_keys_free(srv_keys *k); /* takes NULL */
size_t srv_keys_count(const srv_keys *k);

/* Whether it is one of them. How long that takes does not depend on which, or how much of one is right. */
bool srv_keys_have(const srv_keys *k, const char *key, size_t n);

#endif
