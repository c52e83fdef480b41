#include "server/access.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/keys.h"
#include "server/log.h"

struct srv_access {
    char *keys_file; /* NULL = none */

    pthread_mutex_t lock; /* guards what follows */
    srv_keys *keys;
};

static bool is_name(const char *file)
{
    return file != NULL && file[0] != '\0';
}

attn_status srv_access_new(srv_access **out, const srv_access_options *o, attn_error *err)
{
    attn_status rc = ATTN_OK;
    srv_access *a = calloc(1, sizeof *a);

    *out = NULL;
    if (a == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the API keys");
    (void)pthread_mutex_init(&a->lock, NULL);
    if (is_name(o->keys_file)) {
        a->keys_file = strdup(o->keys_file);
        rc = a->keys_file != NULL ? srv_keys_load(&a->keys, a->keys_file, err)
                                  : attn_fail(err, ATTN_ENOMEM, "no memory for the API keys");
    }
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
    srv_keys_free(a->keys);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->keys_file);
    free(a);
}

bool srv_access_has_keys(const srv_access *a)
{
    return a->keys_file != NULL;
}

bool srv_access_is_secure(const srv_access *a)
{
    (void)a;
    return false;
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

attn_status srv_access_reload(srv_access *a, attn_error *err)
{
    return a->keys_file != NULL ? reload_keys(a, err) : ATTN_OK;
}
