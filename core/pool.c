#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

enum {
    CACHE_LINE = 64,
    STACK_BYTES = 2 << 20, /* BLAS keeps its small matrices on the stack */
    SPINS = 2000, /* pauses of 40 to 140 cycles: longer than a task, shorter than a wake-up costs */
    MAX_CPUS = 1 << 16 /* where the search for the size of the kernel's mask ends */
};

/* Bit of `gate`: no job is open. The rest of the word counts workers that are inside. */
#define CLOSED ((size_t)1 << (sizeof(size_t) * 8 - 1))

typedef struct {
    attn_pool *pool;
    pthread_t thread;
    size_t number;
} pool_worker;

/* Each counter has a cache line of its own. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct attn_pool {
    /* A job. Written by the caller while the gate is closed and nobody is inside, read by workers
     * that have passed the gate. */
    attn_task *fn;
    void *arg;
    size_t n;

    alignas(CACHE_LINE)
        atomic_size_t gate; /* a worker adds 1 to enter, and leaves if CLOSED was set */
    alignas(CACHE_LINE) atomic_size_t next;  /* the first task that nobody has taken */
    alignas(CACHE_LINE) atomic_size_t calls; /* changes with every job and at the end */
    atomic_bool stopping;                    /* set before the last change of calls */

    alignas(CACHE_LINE) pthread_mutex_t lock; /* guards: changes of calls, the two sleeps */
    pthread_cond_t wake;                      /* calls has changed */
    pthread_cond_t empty;                     /* the gate is closed and the last worker has left */

    /* Written in _new, then read-only. */
    size_t size;
    int spins;
    int *cpus; /* numbers of the CPUs of the mask; NULL = no pinning */
    size_t num_cpus;
    pool_worker *workers; /* [0] is the caller and has no thread */
    size_t started;       /* workers 1 .. started are running */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The CPUs that the calling thread may use, in ascending order; *n = 0 when unknown. */
static int *read_cpus(size_t *n)
{
    *n = 0;
    for (int bits = CPU_SETSIZE; bits <= MAX_CPUS; bits *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(bits);
        cpu_set_t *set = CPU_ALLOC(bits);
        if (set == NULL)
            return NULL;
        if (sched_getaffinity(0, bytes, set) != 0) {
            CPU_FREE(set);
            continue; /* the kernel's mask is longer */
        }
        int *cpus = calloc((size_t)CPU_COUNT_S(bytes, set), sizeof *cpus);
        for (int cpu = 0; cpus != NULL && cpu < bits; cpu++) {
            if (CPU_ISSET_S((size_t)cpu, bytes, set))
                cpus[(*n)++] = cpu;
        }
        CPU_FREE(set);
        return cpus;
    }
    return NULL;
}

/* A thread that cannot be pinned (its CPU has just been taken away) still computes. */
static void pin_self(const attn_pool *p, size_t worker)
{
    if (p->num_cpus == 0)
        return;
    int cpu = p->cpus[worker % p->num_cpus];
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    if (set == NULL)
        return;
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    CPU_ZERO_S(bytes, set);
    CPU_SET_S((size_t)cpu, bytes, set);
    (void)pthread_setaffinity_np(pthread_self(), bytes, set);
    CPU_FREE(set);
}

static void take_tasks(attn_pool *p, size_t worker)
{
    size_t task;
    while ((task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
        p->fn(p->arg, task, worker);
}

/* A worker that comes late finds the gate closed and never looks at the job. */
static void join_job(attn_pool *p, size_t worker)
{
    size_t before = atomic_fetch_add_explicit(&p->gate, 1, memory_order_acquire);
    if ((before & CLOSED) == 0)
        take_tasks(p, worker);
    before = atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release);
    if (before == (CLOSED | 1)) {
        (void)pthread_mutex_lock(&p->lock);
        (void)pthread_cond_signal(&p->empty);
        (void)pthread_mutex_unlock(&p->lock);
    }
}

/* Waits until `calls` is no longer *seen, and stores what it is now. */
static void next_call(attn_pool *p, size_t *seen)
{
    size_t now = atomic_load_explicit(&p->calls, memory_order_acquire);

    for (int i = 0; i < p->spins && now == *seen; i++) {
        relax();
        now = atomic_load_explicit(&p->calls, memory_order_acquire);
    }
    if (now == *seen) {
        (void)pthread_mutex_lock(&p->lock);
        while ((now = atomic_load_explicit(&p->calls, memory_order_acquire)) == *seen)
            (void)pthread_cond_wait(&p->wake, &p->lock);
        (void)pthread_mutex_unlock(&p->lock);
    }
    *seen = now;
}

static void call_workers(attn_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->calls, 1, memory_order_release);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    pool_worker *w = arg;
    attn_pool *p = w->pool;
    size_t seen = 0;
    char name[16]; /* what the kernel keeps */

    (void)snprintf(name, sizeof name, "attnd-w%zu", w->number);
    (void)pthread_setname_np(pthread_self(), name);
    pin_self(p, w->number);
    (void)attn_flush_subnormals();
    for (;;) {
        next_call(p, &seen);
        if (atomic_load_explicit(&p->stopping, memory_order_relaxed))
            return NULL;
        join_job(p, w->number);
    }
}

/* Signals are for the thread that waits for them: workers inherit a mask that blocks all. */
static attn_status start_workers(attn_pool *p, attn_error *err)
{
    attn_status rc = ATTN_OK;
    sigset_t all, before;
    pthread_attr_t attr;

    int failed = pthread_attr_init(&attr);
    if (failed != 0)
        return attn_fail(err, ATTN_EIO, "cannot start a worker thread: %s", strerror(failed));
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t i = 1; i < p->size && rc == ATTN_OK; i++) {
        pool_worker *w = &p->workers[i];
        w->pool = p;
        w->number = i;
        failed = pthread_create(&w->thread, &attr, worker_main, w);
        if (failed != 0)
            rc = attn_fail(err, ATTN_EIO, "cannot start worker thread %zu of %zu: %s", i,
                           p->size - 1, strerror(failed));
        else
            p->started = i;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

attn_status attn_pool_new(attn_pool **out, size_t threads, bool pin, attn_error *err)
{
    attn_status rc = ATTN_OK;
    void *storage = NULL;
    attn_pool *p;

    *out = NULL;
    if (threads == 0)
        return attn_fail(err, ATTN_EINVAL, "a pool needs at least 1 thread");
    if (posix_memalign(&storage, alignof(attn_pool), sizeof *p) != 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a pool of %zu threads", threads);
    p = storage;
    memset(p, 0, sizeof *p);
    p->size = threads;
    atomic_init(&p->gate, CLOSED);
    atomic_init(&p->next, 0);
    atomic_init(&p->calls, 0);
    atomic_init(&p->stopping, false);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    (void)pthread_cond_init(&p->empty, NULL);

    p->cpus = read_cpus(&p->num_cpus);
    /* Whoever spins on a CPU that another worker needs only delays it. */
    p->spins = threads <= p->num_cpus ? SPINS : 0;
    if (!pin)
        p->num_cpus = 0;
    p->workers = calloc(threads, sizeof *p->workers);
    if (p->workers == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for a pool of %zu threads", threads);
    else
        rc = start_workers(p, err);
    if (rc != ATTN_OK) {
        attn_pool_free(p);
        p = NULL;
    }
    *out = p;
    return rc;
}

void attn_pool_free(attn_pool *p)
{
    if (p == NULL)
        return;
    atomic_store_explicit(&p->stopping, true, memory_order_relaxed);
    call_workers(p);
    for (size_t i = 1; i <= p->started; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
    (void)pthread_cond_destroy(&p->empty);
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p->cpus);
    free(p);
}

size_t attn_pool_size(const attn_pool *p)
{
    return p->size;
}

void attn_pool_pin_caller(const attn_pool *p)
{
    pin_self(p, 0);
}

/* Tasks that workers took may still run after the caller found none left. */
static void wait_until_empty(attn_pool *p)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->gate, memory_order_acquire) == CLOSED)
            return;
        relax();
    }
    (void)pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->gate, memory_order_acquire) != CLOSED)
        (void)pthread_cond_wait(&p->empty, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

void attn_pool_run(attn_pool *p, size_t n, attn_task *fn, void *arg)
{
    if (p->size == 1 || n <= 1) {
        for (size_t task = 0; task < n; task++)
            fn(arg, task, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_fetch_and_explicit(&p->gate, ~CLOSED, memory_order_release);
    call_workers(p);
    take_tasks(p, 0);
    atomic_fetch_or_explicit(&p->gate, CLOSED, memory_order_relaxed);
    wait_until_empty(p);
}
