#include "server/models.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "server/clock.h"
#include "server/demo.h"
#include "server/log.h"

enum { NICENESS = 5 }; /* of the thread that loads: service goes first */

typedef struct set {
    srv_served served; /* its address is that of the set */
    size_t holders;    /* requests, and one for being the current set; guarded by the lock */
    size_t bytes;
    double load_s;
    struct set *next; /* among the dead */
} set;

typedef struct {
    const cfg_model *config; /* NULL = the demo */
    srv_model_stats stats;
    set *current;    /* NULL = not loaded; this and all below guarded by the lock */
    bool loading;    /* the next set is being made */
    bool texts;      /* the last set that was loaded takes texts */
    attn_error last; /* why the last load failed */
} slot;

/* What the thread shall do: load `one`, or all that are ready. */
typedef struct {
    bool asked;
    size_t one; /* SIZE_MAX = all */
    srv_models_done *done;
    void *arg;
} order;

struct srv_models {
    const atomic_bool *cancel;
    slot *slot;
    size_t n;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* guards all below; nothing is called while it is held */
    pthread_cond_t wake;  /* an order, somebody dead, or stopping */
    order now, then;      /* the one under way; a reload that follows it */
    set *dead;            /* to be freed */
    bool stopping;
    srv_models_figures figures; /* but `ready` */
};

/* --- sets --------------------------------------------------------------------------------------- */

static void free_set(set *s)
{
    if (s == NULL)
        return;
    attn_model_free(s->served.model);
    attn_tokenizer_free(s->served.tokenizer);
    srv_examples_free(s->served.examples);
    free(s);
}

static attn_status load_demo(srv_served *served, attn_error *err)
{
    attn_layer **layers = NULL;
    size_t n = 0;

    ATTN_TRY(srv_demo_layers(&layers, &n, err));
    ATTN_TRY(attn_model_take_layers(&served->model, "demo", "attnd", layers, n, err));
    return srv_examples_demo(&served->examples, err);
}

/* Without a tokeniser an encoder still takes token ids and embeddings. */
static attn_status load_tokenizer(srv_served *served, const char *path, attn_error *err)
{
    char *folder = attn_file_folder(path);

    if (folder == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    attn_status rc = attn_tokenizer_open(&served->tokenizer, folder, &served->no_tokenizer);
    free(folder);
    return rc == ATTN_ENOMEM || rc == ATTN_EIO ? attn_fail(err, rc, "%s", served->no_tokenizer.text)
                                               : ATTN_OK;
}

static attn_status load_files(srv_served *served, const cfg_model *c, const atomic_bool *cancel,
                              attn_error *err)
{
    const attn_model_options o = {.name = c->name,
                                  .path = c->path,
                                  .layout = c->layout,
                                  .layers = c->all_layers ? NULL : c->layers,
                                  .num_layers = c->num_layers,
                                  .cancel = cancel};

    ATTN_TRY(attn_model_load(&served->model, &o, err));
    if (attn_model_encoder(served->model, NULL) != NULL)
        ATTN_TRY(load_tokenizer(served, c->path, err));
    return srv_examples_load(&served->examples, c->path, err);
}

static attn_status new_set(set **out, srv_models *m, size_t i, attn_error *err)
{
    slot *its = &m->slot[i];
    double begin = srv_now_s();
    set *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a model");
    s->holders = 1;
    s->served.stats = &its->stats;
    attn_status rc = its->config == NULL ? load_demo(&s->served, err)
                                         : load_files(&s->served, its->config, m->cancel, err);
    if (rc != ATTN_OK) {
        free_set(s);
        return rc;
    }
    s->bytes = attn_model_weights_bytes(s->served.model);
    if (s->served.tokenizer != NULL)
        s->bytes += attn_tokenizer_bytes(s->served.tokenizer);
    s->load_s = srv_now_s() - begin;
    *out = s;
    return ATTN_OK;
}

/* The lock is held. */
static void let_go(srv_models *m, set *s)
{
    if (s == NULL || --s->holders > 0)
        return;
    s->next = m->dead;
    m->dead = s;
    (void)pthread_cond_signal(&m->wake);
}

/* --- the thread --------------------------------------------------------------------------------- */

static void log_loaded(const set *s)
{
    const attn_model *model = s->served.model;

    srv_log(SRV_LOG_INFO, "model", "model loaded",
            (srv_log_field[]){SRV_STR("model", attn_model_name(model)),
                              SRV_STR("family", attn_model_family(model)),
                              SRV_INT("layers", attn_model_layer_count(model)),
                              SRV_INT("weights_bytes", s->bytes), SRV_NUM("load_s", s->load_s)},
            5);
    if (s->served.no_tokenizer.code != ATTN_OK)
        srv_log(SRV_LOG_WARN, "model", s->served.no_tokenizer.text,
                (srv_log_field[]){SRV_STR("model", attn_model_name(model))}, 1);
    for (size_t w = 0; w < attn_model_warning_count(model); w++)
        srv_log(SRV_LOG_WARN, "model", attn_model_warning(model, w),
                (srv_log_field[]){SRV_STR("model", attn_model_name(model))}, 1);
}

static void log_failed(const char *name, bool serves, const attn_error *err)
{
    char text[sizeof err->text + 64];

    (void)snprintf(text, sizeof text, "%s: %s",
                   serves ? "the old weights stay" : "the model stays unloaded", err->text);
    srv_log(SRV_LOG_ERROR, "model", text, (srv_log_field[]){SRV_STR("model", name)}, 1);
}

/* Who was served texts is not left without them by a tokeniser that is damaged, half written or gone. */
static attn_status keep_texts(set **made, attn_error *err)
{
    const attn_error *why = &(*made)->served.no_tokenizer;

    if (why->code == ATTN_OK)
        return ATTN_OK;
    attn_status rc = attn_fail(err, why->code, "%s", why->text);
    free_set(*made);
    *made = NULL;
    return rc;
}

/* Makes a set and puts it in place of the one that is there. */
static attn_status load_one(srv_models *m, size_t i, attn_error *err)
{
    slot *its = &m->slot[i];
    set *made = NULL;

    (void)pthread_mutex_lock(&m->lock);
    its->loading = true;
    bool texts = its->current != NULL && its->current->served.tokenizer != NULL;
    (void)pthread_mutex_unlock(&m->lock);
    attn_status rc = new_set(&made, m, i, err);
    if (made != NULL && texts)
        rc = keep_texts(&made, err);
    if (made != NULL) /* it is ours alone yet */
        log_loaded(made);
    (void)pthread_mutex_lock(&m->lock);
    its->loading = false;
    bool serves = its->current != NULL;
    its->last = *err;
    if (made != NULL) {
        m->figures.weights_bytes += made->bytes;
        m->figures.loads++;
        let_go(m, its->current);
        its->current = made;
        its->texts = made->served.tokenizer != NULL;
    } else {
        m->figures.fails++;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (rc != ATTN_OK && rc != ATTN_ECANCELED)
        log_failed(srv_models_name(m, i), serves, err);
    return rc;
}

static void obey(srv_models *m, const order *o)
{
    attn_error first = {0};
    attn_status rc = ATTN_OK;

    for (size_t i = 0; i < m->n; i++) {
        attn_error err = {0};
        bool wanted =
            o->one == i || (o->one == SIZE_MAX && srv_models_state(m, i, NULL) == SRV_MODEL_READY);
        if (!wanted || load_one(m, i, &err) == ATTN_OK || rc != ATTN_OK)
            continue;
        rc = err.code;
        first = err;
    }
    /* It is over for others before its owner hears of it, who may ask for the next one at once. */
    (void)pthread_mutex_lock(&m->lock);
    m->now = m->then;
    m->then = (order){0};
    (void)pthread_mutex_unlock(&m->lock);
    if (o->done != NULL)
        o->done(o->arg, rc, &first);
}

static void *run(void *arg)
{
    srv_models *m = arg;

    (void)!nice(NICENESS); /* of this thread alone, on Linux */
    (void)pthread_mutex_lock(&m->lock);
    for (;;) {
        set *s = m->dead;
        if (s != NULL) {
            m->dead = s->next;
            (void)pthread_mutex_unlock(&m->lock);
            size_t bytes = s->bytes;
            free_set(s);
            (void)pthread_mutex_lock(&m->lock);
            m->figures.weights_bytes -= bytes;
        } else if (m->now.asked) {
            order o = m->now;
            (void)pthread_mutex_unlock(&m->lock);
            obey(m, &o);
            (void)pthread_mutex_lock(&m->lock);
        } else if (m->stopping) {
            break;
        } else {
            (void)pthread_cond_wait(&m->wake, &m->lock);
        }
    }
    (void)pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* --- start and end ------------------------------------------------------------------------------ */

attn_status srv_models_new(srv_models **out, const cfg_model *list, size_t n,
                           const atomic_bool *cancel, attn_error *err)
{
    attn_status rc = ATTN_OK;
    srv_models *m = calloc(1, sizeof *m);

    *out = NULL;
    if (m != NULL)
        m->slot = calloc(n == 0 ? 1 : n, sizeof *m->slot);
    if (m == NULL || m->slot == NULL) {
        free(m);
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu models", n);
    }
    m->cancel = cancel;
    m->n = n == 0 ? 1 : n;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_cond_init(&m->wake, NULL);
    for (size_t i = 0; i < m->n && rc == ATTN_OK; i++) {
        m->slot[i].config = n == 0 ? NULL : &list[i];
        rc = new_set(&m->slot[i].current, m, i, err);
        if (m->slot[i].current != NULL) {
            m->figures.weights_bytes += m->slot[i].current->bytes;
            m->slot[i].texts = m->slot[i].current->served.tokenizer != NULL;
        }
    }
    if (rc != ATTN_OK) {
        srv_models_free(m);
        return rc;
    }
    *out = m;
    return ATTN_OK;
}

attn_status srv_models_start(srv_models *m, attn_error *err)
{
    for (size_t i = 0; i < m->n; i++) /* nobody else is there yet */
        log_loaded(m->slot[i].current);
    if (pthread_create(&m->thread, NULL, run, m) != 0)
        return attn_fail(err, ATTN_EIO, "cannot start the thread that loads models");
    m->started = true;
    return ATTN_OK;
}

void srv_models_free(srv_models *m)
{
    if (m == NULL)
        return;
    (void)pthread_mutex_lock(&m->lock);
    m->stopping = true;
    (void)pthread_cond_signal(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
    if (m->started)
        (void)pthread_join(m->thread, NULL);
    for (size_t i = 0; i < m->n; i++)
        let_go(m, m->slot[i].current);
    for (set *s = m->dead, *next; s != NULL; s = next) {
        next = s->next;
        free_set(s);
    }
    (void)pthread_cond_destroy(&m->wake);
    (void)pthread_mutex_destroy(&m->lock);
    free(m->slot);
    free(m);
}

/* --- what is there ------------------------------------------------------------------------------ */

size_t srv_models_count(const srv_models *m)
{
    return m->n;
}

const char *srv_models_name(const srv_models *m, size_t i)
{
    return m->slot[i].config != NULL ? m->slot[i].config->name : "demo";
}

size_t srv_models_find(const srv_models *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(srv_models_name(m, i), name) == 0)
            return i;
    }
    return SIZE_MAX;
}

size_t srv_models_first_of_texts(srv_models *m)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&m->lock);
    while (i < m->n && !m->slot[i].texts)
        i++;
    (void)pthread_mutex_unlock(&m->lock);
    return i < m->n ? i : SIZE_MAX;
}

const srv_served *srv_models_acquire(srv_models *m, size_t i)
{
    (void)pthread_mutex_lock(&m->lock);
    set *s = m->slot[i].current;
    if (s != NULL)
        s->holders++;
    (void)pthread_mutex_unlock(&m->lock);
    return s != NULL ? &s->served : NULL;
}

void srv_models_release(srv_models *m, const srv_served *served)
{
    if (served == NULL)
        return;
    (void)pthread_mutex_lock(&m->lock);
    let_go(m, (set *)(uintptr_t)served); /* what is const is what the holders see */
    (void)pthread_mutex_unlock(&m->lock);
}

/* The lock is held. */
static srv_model_state state_of(const slot *its)
{
    return its->current != NULL ? SRV_MODEL_READY
           : its->loading       ? SRV_MODEL_LOADING
                                : SRV_MODEL_UNLOADED;
}

srv_model_state srv_models_state(srv_models *m, size_t i, attn_error *last)
{
    (void)pthread_mutex_lock(&m->lock);
    srv_model_state state = state_of(&m->slot[i]);
    if (last != NULL)
        *last = m->slot[i].last;
    (void)pthread_mutex_unlock(&m->lock);
    return state;
}

srv_models_figures srv_models_get_figures(srv_models *m)
{
    (void)pthread_mutex_lock(&m->lock);
    srv_models_figures figures = m->figures;
    for (size_t i = 0; i < m->n; i++)
        figures.ready += state_of(&m->slot[i]) == SRV_MODEL_READY;
    (void)pthread_mutex_unlock(&m->lock);
    return figures;
}

/* --- changes ------------------------------------------------------------------------------------ */

static attn_status busy(attn_error *err)
{
    return attn_fail(err, ATTN_EBUSY, "another load is under way");
}

attn_status srv_models_load(srv_models *m, size_t i, srv_models_done *done, void *arg,
                            attn_error *err)
{
    assert(m->started);
    (void)pthread_mutex_lock(&m->lock);
    bool free_ = !m->now.asked;
    if (free_) {
        m->now = (order){true, i, done, arg};
        m->slot[i].loading = true; /* from now on, and not only when the thread gets to it */
        (void)pthread_cond_signal(&m->wake);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return free_ ? ATTN_OK : busy(err);
}

attn_status srv_models_unload(srv_models *m, size_t i, attn_error *err)
{
    slot *its = &m->slot[i];

    (void)pthread_mutex_lock(&m->lock);
    bool free_ = !m->now.asked;
    bool was = free_ && its->current != NULL;
    if (free_) {
        let_go(m, its->current);
        its->current = NULL;
        its->last = (attn_error){0};
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (was)
        srv_log(SRV_LOG_INFO, "model", "model unloaded",
                (srv_log_field[]){SRV_STR("model", srv_models_name(m, i))}, 1);
    return free_ ? ATTN_OK : busy(err);
}

bool srv_models_reload(srv_models *m, srv_models_done *done, void *arg)
{
    const order all = {true, SIZE_MAX, done, arg};

    assert(m->started);
    (void)pthread_mutex_lock(&m->lock);
    bool free_ = !m->now.asked;
    *(free_ ? &m->now : &m->then) = all;
    (void)pthread_cond_signal(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
    return free_;
}
