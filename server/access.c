#include "server/access.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/keys.h"
#include "server/log.h"
#include "server/tls.h"

struct srv_access {
    char *keys_file, *certificate_file, *key_file; /* NULL = none */

    pthread_mutex_t lock; /* guards what follows */
    srv_keys *keys;
};

/* *copy = NULL for no name. */
static attn_status keep_name(char **copy, const char *file, attn_error *err)
{
    *copy = NULL;
    if (file == NULL || file[0] == '\0')
        return ATTN_OK;
    *copy = strdup(file);
    return *copy != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "%s: no memory", file);
}

/* Clients decide whether a certificate is good; what all of them will refuse is worth a word. */
static void log_certificate(const srv_access *a, const srv_identity *id, bool again)
{
    time_t now = time(NULL), ends = srv_identity_ends(id);
    struct tm utc = {0};
    char until[32];

    (void)gmtime_r(&ends, &utc);
    (void)strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const srv_log_field fields[] = {SRV_STR("file", a->certificate_file),
                                    SRV_STR("valid_until", until)};
    if (now > ends)
        srv_log(SRV_LOG_WARN, "certificate", "the certificate has expired", fields, 2);
    else if (now < srv_identity_begins(id))
        srv_log(SRV_LOG_WARN, "certificate", "the certificate is not valid yet", fields, 2);
    else if (again)
        srv_log(SRV_LOG_INFO, "reload", "the certificate and its key were read again", fields, 2);
}

static attn_status load_certificate(const srv_access *a, bool again, attn_error *err)
{
    srv_identity *id = NULL;

    ATTN_TRY(srv_identity_load(&id, a->certificate_file, a->key_file, err));
    log_certificate(a, id, again);
    srv_tls_show_take(id);
    return ATTN_OK;
}

static attn_status open_files(srv_access *a, const srv_access_options *o, attn_error *err)
{
    ATTN_TRY(keep_name(&a->keys_file, o->keys_file, err));
    ATTN_TRY(keep_name(&a->certificate_file, o->certificate_file, err));
    ATTN_TRY(keep_name(&a->key_file, o->key_file, err));
    if (a->keys_file != NULL)
        ATTN_TRY(srv_keys_load(&a->keys, a->keys_file, err));
    return a->certificate_file != NULL ? load_certificate(a, false, err) : ATTN_OK;
}

attn_status srv_access_new(srv_access **out, const srv_access_options *o, attn_error *err)
{
    srv_access *a = calloc(1, sizeof *a);

    *out = NULL;
    if (a == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the API keys");
    (void)pthread_mutex_init(&a->lock, NULL);
    attn_status rc = open_files(a, o, err);
    if (rc != ATTN_OK) {
        srv_access_free(a);
        a = NULL;
    }
    *out = a;
    return rc;
}

void srv_access_free(srv_access *a)
{
    if (a == NULL)
        return;
    if (a->certificate_file != NULL)
        srv_tls_show_take(NULL);
    srv_keys_free(a->keys);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->keys_file);
    free(a->certificate_file);
    free(a->key_file);
    free(a);
}

bool srv_access_has_keys(const srv_access *a)
{
    return a->keys_file != NULL;
}

bool srv_access_is_secure(const srv_access *a)
{
    return a->certificate_file != NULL;
}

bool srv_access_knows(srv_access *a, const char *key, size_t n)
{
    (void)pthread_mutex_lock(&a->lock);
    bool known = a->keys != NULL && srv_keys_have(a->keys, key, n);
    (void)pthread_mutex_unlock(&a->lock);
    return known;
}

static void log_failure(const char *msg, const attn_error *why)
{
    srv_log(SRV_LOG_ERROR, "reload", msg, (const srv_log_field[]){SRV_STR("reason", why->text)}, 1);
}

static attn_status reload_keys(srv_access *a, attn_error *err)
{
    srv_keys *fresh = NULL;
    attn_error why = {0};

    if (srv_keys_load(&fresh, a->keys_file, &why) != ATTN_OK) {
        log_failure("the API keys stay as they were", &why);
        return attn_fail(err, why.code, "%s", why.text);
    }
    (void)pthread_mutex_lock(&a->lock);
    srv_keys *old = a->keys;
    a->keys = fresh;
    (void)pthread_mutex_unlock(&a->lock);
    srv_keys_free(old);
    srv_log(SRV_LOG_INFO, "reload", "API keys were read again",
            (const srv_log_field[]){SRV_INT("keys", srv_keys_count(fresh))}, 1);
    return ATTN_OK;
}

static attn_status reload_certificate(srv_access *a, attn_error *err)
{
    attn_error why = {0};

    if (load_certificate(a, true, &why) == ATTN_OK)
        return ATTN_OK;
    log_failure("the certificate and its key stay as they were", &why);
    return attn_fail(err, why.code, "%s", why.text);
}

attn_status srv_access_reload(srv_access *a, attn_error *err)
{
    attn_status keys = a->keys_file != NULL ? reload_keys(a, err) : ATTN_OK;
    attn_status certificate = a->certificate_file != NULL ? reload_certificate(a, err) : ATTN_OK;
    return keys != ATTN_OK ? keys : certificate;
}
