#include "server/tls.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "core/file.h"

enum { FILE_BYTES = 1 << 20, MAX_CHAIN = 16, KEY_ID_BYTES = 32 };

struct srv_identity {
    gnutls_x509_crt_t chain[MAX_CHAIN]; /* the daemon's own first */
    unsigned n;
    gnutls_x509_privkey_t key;
};

/* The library's callback has no argument of ours. */
static pthread_mutex_t shown_lock = PTHREAD_MUTEX_INITIALIZER; /* guards shown */
static srv_identity *shown;

/* --- files ------------------------------------------------------------------------------------- */

/* Reads a whole file, which is the caller's to wipe and free. */
static attn_status read_file(const char *path, gnutls_datum_t *out, attn_error *err)
{
    attn_file file;

    *out = (gnutls_datum_t){0};
    ATTN_TRY(attn_file_open(&file, path, err));
    attn_status rc = ATTN_OK;
    if (file.size > FILE_BYTES)
        rc = attn_fail(err, ATTN_EFORMAT, "%s: over %d bytes, that is no PEM file of ours", path,
                       FILE_BYTES);
    if (rc == ATTN_OK && (out->data = malloc((size_t)file.size + 1)) == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    if (rc == ATTN_OK)
        rc = attn_file_read(&file, 0, out->data, (size_t)file.size, err);
    if (rc == ATTN_OK)
        out->size = (unsigned)file.size;
    attn_file_close(&file);
    return rc;
}

static void wipe(gnutls_datum_t *text)
{
    if (text->data != NULL)
        explicit_bzero(text->data, text->size);
    free(text->data);
}

static attn_status read_chain(srv_identity *id, const char *path, attn_error *err)
{
    gnutls_datum_t text;
    attn_status rc = read_file(path, &text, err);

    if (rc == ATTN_OK) {
        unsigned n = MAX_CHAIN;
        int got = gnutls_x509_crt_list_import(id->chain, &n, &text, GNUTLS_X509_FMT_PEM,
                                              GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
        if (got > 0)
            id->n = (unsigned)got;
        else if (got == GNUTLS_E_SHORT_MEMORY_BUFFER)
            rc = attn_fail(err, ATTN_EFORMAT, "%s: over %d certificates", path, MAX_CHAIN);
        else
            rc = attn_fail(err, ATTN_EFORMAT, "%s: no certificate in PEM form: %s", path,
                           gnutls_strerror(got));
    }
    wipe(&text);
    return rc;
}

static attn_status read_key(srv_identity *id, const char *path, attn_error *err)
{
    gnutls_datum_t text;
    attn_status rc = read_file(path, &text, err);

    if (rc == ATTN_OK) {
        int bad = gnutls_x509_privkey_init(&id->key);
        if (bad == 0)
            bad = gnutls_x509_privkey_import2(id->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
        if (bad != 0)
            rc = attn_fail(err, ATTN_EFORMAT,
                           "%s: no private key in PEM form without a password: %s", path,
                           gnutls_strerror(bad));
    }
    wipe(&text);
    return rc;
}

static bool belong_together(const srv_identity *id)
{
    unsigned char of_key[KEY_ID_BYTES], of_certificate[KEY_ID_BYTES];
    size_t n = sizeof of_key, m = sizeof of_certificate;

    return gnutls_x509_privkey_get_key_id(id->key, GNUTLS_KEYID_USE_SHA256, of_key, &n) == 0 &&
           gnutls_x509_crt_get_key_id(id->chain[0], GNUTLS_KEYID_USE_SHA256, of_certificate, &m) ==
               0 &&
           n == m && memcmp(of_key, of_certificate, n) == 0;
}

attn_status srv_identity_load(srv_identity **out, const char *certificate_file,
                              const char *key_file, attn_error *err)
{
    srv_identity *id = calloc(1, sizeof *id);

    *out = NULL;
    if (id == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory", certificate_file);
    attn_status rc = read_chain(id, certificate_file, err);
    if (rc == ATTN_OK)
        rc = read_key(id, key_file, err);
    if (rc == ATTN_OK && !belong_together(id))
        rc = attn_fail(err, ATTN_EFORMAT, "%s is not the key of the first certificate in %s",
                       key_file, certificate_file);
    if (rc != ATTN_OK) {
        srv_identity_free(id);
        id = NULL;
    }
    *out = id;
    return rc;
}

void srv_identity_free(srv_identity *id)
{
    if (id == NULL)
        return;
    for (unsigned i = 0; i < id->n; i++)
        gnutls_x509_crt_deinit(id->chain[i]);
    if (id->key != NULL)
        gnutls_x509_privkey_deinit(id->key);
    free(id);
}

time_t srv_identity_begins(const srv_identity *id)
{
    return gnutls_x509_crt_get_activation_time(id->chain[0]);
}

time_t srv_identity_ends(const srv_identity *id)
{
    return gnutls_x509_crt_get_expiration_time(id->chain[0]);
}

/* --- handshakes -------------------------------------------------------------------------------- */

void srv_tls_show_take(srv_identity *id)
{
    (void)pthread_mutex_lock(&shown_lock);
    srv_identity *old = shown;
    shown = id;
    (void)pthread_mutex_unlock(&shown_lock);
    srv_identity_free(old);
}

/* Copies for one handshake, which outlive any other certificate that is shown meanwhile. */
static bool copy_shown(gnutls_pcert_st **certificates, unsigned *n, gnutls_privkey_t *key)
{
    const srv_identity *id = shown;
    gnutls_pcert_st *list = NULL;
    gnutls_privkey_t copy = NULL;
    unsigned done = 0;

    if (id == NULL || gnutls_privkey_init(&copy) != 0)
        return false;
    if (gnutls_privkey_import_x509(copy, id->key, GNUTLS_PRIVKEY_IMPORT_COPY) == 0)
        list = gnutls_calloc(id->n, sizeof *list);
    while (list != NULL && done < id->n &&
           gnutls_pcert_import_x509(&list[done], id->chain[done], 0) == 0)
        done++;
    if (list != NULL && done == id->n) {
        *certificates = list;
        *n = done;
        *key = copy;
        return true;
    }
    while (done > 0)
        gnutls_pcert_deinit(&list[--done]);
    gnutls_free(list);
    gnutls_privkey_deinit(copy);
    return false;
}

static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certificates, unsigned *n, gnutls_ocsp_data_st **ocsp,
                    unsigned *num_ocsp, gnutls_privkey_t *key, unsigned *flags)
{
    (void)session;
    (void)info;
    *ocsp = NULL;
    *num_ocsp = 0;
    (void)pthread_mutex_lock(&shown_lock);
    bool copied = copy_shown(certificates, n, key);
    (void)pthread_mutex_unlock(&shown_lock);
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL; /* the copies are the library's */
    return copied ? 0 : -1;
}

srv_tls_callback *srv_tls_retriever(void)
{
    gnutls_certificate_retrieve_function3 *f = retrieve;
    return (srv_tls_callback *)f;
}

void srv_tls_finish(void *session, const char *bytes, size_t n)
{
    ssize_t sent = 1;

    while (n > 0 && (sent = gnutls_record_send(session, bytes, n)) > 0) {
        bytes += sent;
        n -= (size_t)sent;
    }
    if (n == 0)
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}

/* --- a client ---------------------------------------------------------------------------------- */

struct srv_tls_client {
    gnutls_session_t session;
    gnutls_certificate_credentials_t trust;
};

static bool is_address(const char *host)
{
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static int set_up(srv_tls_client *c, int fd, const char *host, bool verify)
{
    int bad = gnutls_certificate_allocate_credentials(&c->trust);

    if (bad == 0 && verify && gnutls_certificate_set_x509_system_trust(c->trust) < 0)
        bad = GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (bad == 0)
        bad = gnutls_init(&c->session, GNUTLS_CLIENT);
    if (bad == 0)
        bad = gnutls_priority_set_direct(c->session, SRV_TLS_PRIORITIES, NULL);
    if (bad == 0)
        bad = gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, c->trust);
    if (bad == 0 && !is_address(host))
        bad = gnutls_server_name_set(c->session, GNUTLS_NAME_DNS, host, strlen(host));
    if (bad == 0) {
        if (verify)
            gnutls_session_set_verify_cert(c->session, host, 0);
        gnutls_transport_set_int(c->session, fd);
    }
    return bad;
}

attn_status srv_tls_client_open(srv_tls_client **out, int fd, const char *host, bool verify,
                                attn_error *err)
{
    srv_tls_client *c = calloc(1, sizeof *c);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (c == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a handshake");
    int bad = set_up(c, fd, host, verify);
    if (bad == 0) {
        do
            bad = gnutls_handshake(c->session);
        while (bad == GNUTLS_E_INTERRUPTED || bad == GNUTLS_E_WARNING_ALERT_RECEIVED);
    }
    if (bad == GNUTLS_E_AGAIN) {
        rc = attn_fail(err, ATTN_EIO, "the TLS handshake took too long");
    } else if (bad == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
        gnutls_datum_t why = {0};
        (void)gnutls_certificate_verification_status_print(
            gnutls_session_get_verify_cert_status(c->session), GNUTLS_CRT_X509, &why, 0);
        while (why.size > 0 && why.data[why.size - 1] == ' ')
            why.data[--why.size] = '\0';
        rc = attn_fail(err, ATTN_EIO, "%s", why.data != NULL ? (char *)why.data : "not trusted");
        gnutls_free(why.data);
    } else if (bad != 0) {
        rc = attn_fail(err, ATTN_EIO, "%s", gnutls_strerror(bad));
    }
    if (rc != ATTN_OK) {
        srv_tls_client_close(c);
        c = NULL;
    }
    *out = c;
    return rc;
}

ssize_t srv_tls_client_send(srv_tls_client *c, const char *bytes, size_t n)
{
    return gnutls_record_send(c->session, bytes, n);
}

ssize_t srv_tls_client_recv(srv_tls_client *c, char *bytes, size_t n)
{
    ssize_t got;
    do
        got = gnutls_record_recv(c->session, bytes, n);
    while (got == GNUTLS_E_INTERRUPTED);
    return got;
}

void srv_tls_client_close(srv_tls_client *c)
{
    if (c == NULL)
        return;
    if (c->session != NULL)
        gnutls_deinit(c->session);
    if (c->trust != NULL)
        gnutls_certificate_free_credentials(c->trust);
    free(c);
}
