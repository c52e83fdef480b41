#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/pool.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { MAX_THREADS = 8, MAX_TASKS = 1000 };

static attn_pool *new_pool(size_t threads, bool pin)
{
    attn_pool *p = NULL;
    attn_error err = {0};
    if (attn_pool_new(&p, threads, pin, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return p;
}

typedef struct {
    size_t workers;
    int count[MAX_TASKS];           /* plain: each task is one worker's alone */
    atomic_int inside[MAX_THREADS]; /* calls under way with this worker number */
    atomic_int faults;
} tally;

static void count_task(void *arg, size_t task, size_t worker)
{
    tally *t = arg;
    if (worker >= t->workers || task >= MAX_TASKS) {
        atomic_fetch_add(&t->faults, 1);
        return;
    }
    if (atomic_fetch_add(&t->inside[worker], 1) != 0)
        atomic_fetch_add(&t->faults, 1);
    t->count[task]++;
    atomic_fetch_sub(&t->inside[worker], 1);
}

static void every_task_runs_once_and_workers_do_not_overlap(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 64, MAX_TASKS};
    for (size_t threads = 1; threads <= MAX_THREADS; threads++) {
        attn_pool *p = new_pool(threads, threads % 2 == 0);
        assert_int_equal(attn_pool_size(p), threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            tally t = {.workers = threads};
            attn_pool_run(p, sizes[s], count_task, &t);
            assert_int_equal(t.faults, 0);
            for (size_t i = 0; i < MAX_TASKS; i++)
                assert_int_equal(t.count[i], i < sizes[s]);
        }
        attn_pool_free(p);
    }
}

/* Late workers, sleeping ones and spinning ones all meet jobs whose memory is gone a moment later. */
static void thousands_of_short_jobs_follow_each_other(void **state)
{
    (void)state;
    attn_pool *p = new_pool(4, false);
    for (size_t round = 0; round < 5000; round++) {
        size_t n = round % 11;
        tally *t = calloc(1, sizeof *t);
        assert_non_null(t);
        t->workers = 4;
        attn_pool_run(p, n, count_task, t);
        int sum = 0;
        for (size_t i = 0; i < MAX_TASKS; i++)
            sum += t->count[i];
        assert_int_equal(sum, n);
        assert_int_equal(t->faults, 0);
        free(t);
        if (round % 500 == 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* let them sleep */
    }
    attn_pool_free(p);
}

typedef struct {
    atomic_size_t arrived, finished;
} stragglers;

/* The caller ends at once and finds no further task; the others are still busy then. */
static void dawdle(void *arg, size_t task, size_t worker)
{
    stragglers *s = arg;
    (void)task;
    atomic_fetch_add(&s->arrived, 1);
    while (atomic_load(&s->arrived) < 3)
        (void)sched_yield();
    if (worker != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    atomic_fetch_add(&s->finished, 1);
}

static void a_job_is_over_only_when_its_slowest_task_is(void **state)
{
    (void)state;
    attn_pool *p = new_pool(3, false);
    for (size_t round = 0; round < 10; round++) {
        stragglers s = {0};
        attn_pool_run(p, 3, dawdle, &s);
        assert_int_equal(s.finished, 3);
    }
    attn_pool_free(p);
}

/* What a worker finds out about its own thread. Every task waits until all workers have one. */
typedef struct {
    atomic_size_t arrived;
    size_t threads;
    struct {
        int runs;
        pthread_t thread;
        cpu_set_t cpus;
        int cpu;
        bool usr1_blocked, term_blocked;
        size_t stack;
        char name[16];
    } worker[MAX_THREADS];
} survey;

static void look_around(void *arg, size_t task, size_t worker)
{
    survey *s = arg;
    sigset_t blocked;
    pthread_attr_t attr;

    (void)task;
    s->worker[worker].runs++;
    s->worker[worker].thread = pthread_self();
    (void)sched_getaffinity(0, sizeof s->worker[worker].cpus, &s->worker[worker].cpus);
    s->worker[worker].cpu = sched_getcpu();
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    s->worker[worker].usr1_blocked = sigismember(&blocked, SIGUSR1) == 1;
    s->worker[worker].term_blocked = sigismember(&blocked, SIGTERM) == 1;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        (void)pthread_attr_getstacksize(&attr, &s->worker[worker].stack);
        (void)pthread_attr_destroy(&attr);
    }
    (void)pthread_getname_np(pthread_self(), s->worker[worker].name, 16);
    atomic_fetch_add(&s->arrived, 1);
    while (atomic_load(&s->arrived) < s->threads)
        (void)sched_yield();
}

static void each_worker_is_a_thread_of_its_own_and_the_caller_is_worker_zero(void **state)
{
    (void)state;
    attn_pool *p = new_pool(4, false);
    survey s = {.threads = 4};
    attn_pool_run(p, 4, look_around, &s);
    attn_pool_free(p);
    assert_true(pthread_equal(s.worker[0].thread, pthread_self()));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(s.worker[i].runs, 1);
        for (size_t j = 0; j < i; j++)
            assert_false(pthread_equal(s.worker[i].thread, s.worker[j].thread));
    }
}

static void workers_block_signals_have_names_and_room_on_the_stack(void **state)
{
    (void)state;
    sigset_t before, after;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    attn_pool *p = new_pool(3, false);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    survey s = {.threads = 3};
    attn_pool_run(p, 3, look_around, &s);
    attn_pool_free(p);
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
    for (size_t i = 1; i < 3; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "attnd-w%zu", i);
        assert_string_equal(s.worker[i].name, name);
        assert_true(s.worker[i].usr1_blocked);
        assert_true(s.worker[i].term_blocked);
        assert_true(s.worker[i].stack >= 1 << 20);
    }
}

static void pinned_workers_stay_on_their_cpu_of_the_mask(void **state)
{
    (void)state;
    cpu_set_t mask;
    size_t cpus[CPU_SETSIZE], n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mask))
            cpus[n++] = cpu;
    }
    attn_pool *p = new_pool(MAX_THREADS, true);
    attn_pool_pin_caller(p);
    survey s = {.threads = MAX_THREADS};
    attn_pool_run(p, MAX_THREADS, look_around, &s);
    attn_pool_free(p);
    assert_int_equal(sched_setaffinity(0, sizeof mask, &mask), 0);
    for (size_t i = 0; i < MAX_THREADS; i++) {
        assert_int_equal(CPU_COUNT(&s.worker[i].cpus), 1);
        assert_true(CPU_ISSET(cpus[i % n], &s.worker[i].cpus));
        assert_int_equal(s.worker[i].cpu, cpus[i % n]);
    }
}

static void pinned_workers_stay_inside_a_mask_of_one_cpu(void **state)
{
    (void)state;
    cpu_set_t mask, last;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    CPU_ZERO(&last);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mask)) {
            CPU_ZERO(&last);
            CPU_SET(cpu, &last);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof last, &last), 0);
    attn_pool *p = new_pool(3, true);
    assert_int_equal(sched_setaffinity(0, sizeof mask, &mask), 0);
    survey s = {.threads = 3};
    attn_pool_run(p, 3, look_around, &s);
    attn_pool_free(p);
    for (size_t i = 1; i < 3; i++)
        assert_true(CPU_EQUAL(&s.worker[i].cpus, &last));
}

static void without_pin_nobody_is_pinned(void **state)
{
    (void)state;
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    attn_pool *p = new_pool(3, false);
    attn_pool_pin_caller(p);
    survey s = {.threads = 3};
    attn_pool_run(p, 3, look_around, &s);
    attn_pool_free(p);
    for (size_t i = 0; i < 3; i++)
        assert_true(CPU_EQUAL(&s.worker[i].cpus, &mask));
}

static void a_pool_of_no_threads_is_refused(void **state)
{
    (void)state;
    attn_pool *p = (attn_pool *)&p;
    attn_error err = {0};
    assert_int_equal(attn_pool_new(&p, 0, false, &err), ATTN_EINVAL);
    assert_null(p);
    assert_true(err.text[0] != '\0');
    attn_pool_free(NULL);
}

/* With little address space left some stacks can be made and the rest cannot. */
static void a_thread_that_cannot_be_made_ends_those_that_were(void **state)
{
    (void)state;
#ifdef SANITIZED
    print_message(
        "skipped: thread failure: sanitizers need the address space that it takes away\n");
    skip();
#else
    struct rlimit before, low;
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    (void)fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    low = before;
    low.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + ((rlim_t)16 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);

    attn_pool *p = (attn_pool *)&p;
    attn_error err = {0};
    attn_status rc = attn_pool_new(&p, 64, false, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(rc, ATTN_EIO);
    assert_null(p);
    assert_non_null(strstr(err.text, "of 63"));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once_and_workers_do_not_overlap),
        cmocka_unit_test(thousands_of_short_jobs_follow_each_other),
        cmocka_unit_test(a_job_is_over_only_when_its_slowest_task_is),
        cmocka_unit_test(each_worker_is_a_thread_of_its_own_and_the_caller_is_worker_zero),
        cmocka_unit_test(workers_block_signals_have_names_and_room_on_the_stack),
        cmocka_unit_test(pinned_workers_stay_on_their_cpu_of_the_mask),
        cmocka_unit_test(pinned_workers_stay_inside_a_mask_of_one_cpu),
        cmocka_unit_test(without_pin_nobody_is_pinned),
        cmocka_unit_test(a_pool_of_no_threads_is_refused),
        cmocka_unit_test(a_thread_that_cannot_be_made_ends_those_that_were),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
