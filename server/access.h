/* access.h: who may ask, and as whom the daemon answers: API keys and the certificate, as they are read from their files
 * at start and again on SIGHUP. */
#ifndef SRV_ACCESS_H
#define SRV_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct srv_access srv_access;

/* File names; NULL or "" = none. Certificate and key come together. */
typedef struct {
    const char *keys_file;
    const char *certificate_file, *key_file;
} srv_access_options;

/* Fails with one sentence when a file cannot be read or does not hold what it should. One of them at a time has a
 * certificate. */
ATTN_NODISCARD attn_status srv_access_new(srv_access **out, const srv_access_options *o,
                                          attn_error *err);
void srv_access_free(srv_access *a); /* when nobody serves any more; takes NULL */

bool srv_access_has_keys(const srv_access *a);
bool srv_access_is_secure(const srv_access *a); /* it has a certificate */

/* Whether it is one of the keys. From any thread. */
bool srv_access_knows(srv_access *a, const char *key, size_t n);

/* Reads the files again and takes what is in them: requests that come from now on need one of the new keys, new
 * connections see the new certificate; what is under way goes on. Keys, or certificate and key, that cannot be taken
 * leave the old ones in force. Both outcomes go to the log, so that the caller of a signal needs no more than
 *
 *     (void)srv_access_reload(access, NULL);
 *
 * From one thread at a time, while requests are served. The status is that of the first failure. */
attn_status srv_access_reload(srv_access *a, attn_error *err);

#endif
