/* tls.h: the certificate that https shows, what the HTTP library asks about it, and a client for health checks. */
#ifndef SRV_TLS_H
#define SRV_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "core/status.h"

/* TLS 1.2 and 1.3, with what GnuTLS thinks good enough by default. */
#define SRV_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* --- the daemon's certificate ------------------------------------------------------------------ */

typedef struct srv_identity srv_identity; /* a certificate, its chain, its key; immutable */

/* PEM files. ATTN_EIO: unreadable; ATTN_EFORMAT: not what they should be, or they do not belong together. */
ATTN_NODISCARD attn_status srv_identity_load(srv_identity **out, const char *certificate_file,
                                             const char *key_file, attn_error *err);
void srv_identity_free(srv_identity *id); /* takes NULL */
time_t srv_identity_begins(const srv_identity *id);
time_t srv_identity_ends(const srv_identity *id); /* not valid after */

/* From here on handshakes show this one; what others have begun goes on. Takes it over and frees the one before; NULL =
 * none, and handshakes fail. From any thread. */
void srv_tls_show_take(srv_identity *id);

/* What libmicrohttpd calls in a handshake, a gnutls_certificate_retrieve_function3. */
typedef void srv_tls_callback(void);
srv_tls_callback *srv_tls_retriever(void);

/* Writes these last bytes to a session, a gnutls_session_t, and says that nothing follows. On the thread that has the
 * session; waits for nothing. */
void srv_tls_finish(void *session, const char *bytes, size_t n);

/* --- a client ---------------------------------------------------------------------------------- */

typedef struct srv_tls_client srv_tls_client;

/* The handshake over a connected, blocking socket, which stays the caller's; its timeouts hold. With `verify` the
 * certificate must be one for `host` that the system trusts. ATTN_EIO: it failed, with the reason. */
ATTN_NODISCARD attn_status srv_tls_client_open(srv_tls_client **out, int fd, const char *host,
                                               bool verify, attn_error *err);
ssize_t srv_tls_client_send(srv_tls_client *c, const char *bytes, size_t n); /* as send() */
ssize_t srv_tls_client_recv(srv_tls_client *c, char *bytes, size_t n);       /* as recv() */
void srv_tls_client_close(srv_tls_client *c);                                /* takes NULL */

#endif
