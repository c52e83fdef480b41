/* The queue: whose turn it is, who is ended and when. The steps are this test's own, linked in place of
 * srv_request_step(); requests have no sequences, so that none is computed together with others. */
#include "server/infer.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/clock.h"

enum { MAX_TRACE = 4096, LONG_MS = 60000, PATIENCE_MS = 20000 };

static attn_pool *pool;

/* A job that computes nothing: `steps` steps of `ms` each. */
typedef struct {
    srv_request request; /* first: the step finds the rest behind it */
    srv_job job;
    char name;
    int steps, ms;
    bool blocks; /* each step waits for the gate, or until it is canceled */
    bool hangs;  /* and does not look whether it is */
    bool waits;  /* between the steps, for its reader */
    bool again;  /* submitted anew by done() */
    int ended;   /* how often done() was called */
} fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char trace[MAX_TRACE + 1]; /* the names of the steps; in capitals when a job is over */
static size_t traced;
static size_t over;
static bool gate; /* open */

static srv_infer *queue;

static void note(char name)
{
    if (traced < MAX_TRACE)
        trace[traced++] = name;
    trace[traced] = '\0';
}

attn_status __wrap_srv_request_step(srv_request *r, attn_pool *p, const atomic_bool *cancel,
                                    srv_step *next, attn_error *err);

attn_status __wrap_srv_request_step(srv_request *r, attn_pool *p, const atomic_bool *cancel,
                                    srv_step *next, attn_error *err)
{
    fake *f = (fake *)r;

    assert_ptr_equal(p, pool);
    (void)pthread_mutex_lock(&lock);
    note(f->name);
    (void)pthread_cond_broadcast(&changed);
    while (f->blocks && !gate && (f->hangs || !atomic_load(cancel))) {
        (void)pthread_mutex_unlock(&lock);
        (void)usleep(500);
        (void)pthread_mutex_lock(&lock);
    }
    (void)pthread_mutex_unlock(&lock);
    if (f->ms > 0)
        (void)usleep((unsigned)f->ms * 1000);
    if (atomic_load(cancel))
        return attn_fail(err, ATTN_ECANCELED, "canceled");
    f->steps--;
    *next = f->steps == 0 ? SRV_STEP_DONE : f->waits ? SRV_STEP_WAITS : SRV_STEP_MORE;
    return ATTN_OK;
}

static void start(size_t max_requests)
{
    attn_error err = {0};
    traced = over = 0;
    trace[0] = '\0';
    gate = false;
    if (srv_infer_start(&queue, pool, max_requests, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

static void stop(void)
{
    srv_infer_free(queue);
    queue = NULL;
}

static void done(srv_job *job)
{
    fake *f = job->owner;

    (void)pthread_mutex_lock(&lock);
    note((char)(f->name - 'a' + 'A'));
    bool again = f->again;
    f->ended += !again;
    over += !again;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
    if (again) {
        f->steps = 1;
        f->job = (srv_job){.request = &f->request,
                           .deadline_ms = srv_now_ms() + LONG_MS,
                           .client_fd = -1,
                           .done = done,
                           .owner = f};
        if (srv_infer_submit(queue, &f->job, NULL) != ATTN_OK)
            abort();
    }
}

static attn_status try_submit(fake *f, attn_error *err)
{
    f->steps = f->steps == 0 ? 1 : f->steps;
    f->job.request = &f->request;
    f->job.done = done;
    f->job.owner = f;
    if (f->job.client_fd == 0)
        f->job.client_fd = -1;
    if (f->job.deadline_ms == 0)
        f->job.deadline_ms = srv_now_ms() + LONG_MS;
    return srv_infer_submit(queue, &f->job, err);
}

static void submit(fake *f)
{
    attn_error err = {0};
    if (try_submit(f, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

static void pause_a_moment(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 5000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&changed, &lock, &at);
}

/* Waits until `n` jobs are over. */
static void wait_over(size_t n)
{
    int64_t until = srv_now_ms() + PATIENCE_MS;
    (void)pthread_mutex_lock(&lock);
    while (over < n && srv_now_ms() < until)
        pause_a_moment();
    size_t have = over;
    (void)pthread_mutex_unlock(&lock);
    assert_int_equal(have, n);
}

/* Waits until so much has happened: steps and ends. */
static void wait_trace(const char *want)
{
    int64_t until = srv_now_ms() + PATIENCE_MS;
    (void)pthread_mutex_lock(&lock);
    while (traced < strlen(want) && srv_now_ms() < until)
        pause_a_moment();
    char *have = strdup(trace);
    (void)pthread_mutex_unlock(&lock);
    assert_non_null(have);
    assert_string_equal(have, want);
    free(have);
}

static size_t count(char name)
{
    size_t n = 0;
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < traced; i++)
        n += trace[i] == name;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

/* Keeps the compute thread busy with job 'x' until release(). */
static void hold(fake *x)
{
    *x = (fake){.name = 'x', .blocks = true};
    submit(x);
    while (count('x') == 0)
        (void)usleep(500);
}

static void release(void)
{
    (void)pthread_mutex_lock(&lock);
    gate = true;
    (void)pthread_mutex_unlock(&lock);
}

/* --- turns ------------------------------------------------------------------------------------ */

static void one_alone_is_computed_to_its_end(void **state)
{
    (void)state;
    fake a = {.name = 'a', .steps = 3};
    start(1);
    submit(&a);
    wait_trace("aaaA");
    assert_int_equal(a.job.status, ATTN_OK);
    assert_true(a.job.queue_s >= 0 && a.job.queue_s < 10);
    assert_true(a.job.compute_s >= 0 && a.job.compute_s < 10);
    stop();
}

static void equals_come_in_order_of_arrival(void **state)
{
    (void)state;
    fake x, f[5] = {{.name = 'a'}, {.name = 'b'}, {.name = 'c'}, {.name = 'd'}, {.name = 'e'}};
    start(10);
    hold(&x);
    for (size_t i = 0; i < 5; i++)
        submit(&f[i]);
    release();
    wait_trace("xXaAbBcCdDeE");
    for (size_t i = 1; i < 5; i++)
        assert_true(f[i].job.queue_s >= f[i - 1].job.compute_s);
    stop();
}

static void small_ones_overtake_a_large_one(void **state)
{
    (void)state;
    fake x, large = {.name = 'l', .steps = 4, .ms = 1};
    fake a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    start(10);
    hold(&x);
    submit(&large); /* came first, has one step, and then had more than the others */
    submit(&a);
    submit(&b);
    submit(&c);
    release();
    wait_trace("xXlaAbBcClllL");
    stop();
}

static void one_that_comes_later_goes_before_a_large_one_at_work(void **state)
{
    (void)state;
    fake large = {.name = 'l', .steps = 1000, .ms = 1}, a = {.name = 'a'};
    start(10);
    submit(&large);
    while (count('l') < 30)
        (void)usleep(1000);
    submit(&a);
    size_t before = count('l');
    wait_over(1);
    assert_int_equal(a.ended, 1);
    assert_true(count('l') <= before + 2);
    srv_infer_drop(queue, &large.job);
    stop();
    assert_int_equal(large.ended, 1);
}

static void large_ones_take_turns(void **state)
{
    (void)state;
    fake x, a = {.name = 'a', .steps = 40, .ms = 1}, b = {.name = 'b', .steps = 40, .ms = 1};
    start(10);
    hold(&x);
    submit(&a);
    submit(&b);
    release();
    wait_over(3);
    const char *end = strpbrk(trace, "AB"); /* when the first was over, the other was not far */
    char late = *end == 'A' ? 'b' : 'a';
    size_t n = 0;
    for (const char *t = trace; t < end; t++)
        n += *t == late;
    assert_true(n >= 10);
    stop();
}

/* However many small ones come, one after the other, each with less of the pool than the large one had. */
static void a_large_one_gets_its_share(void **state)
{
    (void)state;
    fake x, large = {.name = 'l', .steps = 20, .ms = 1}, small = {.name = 's', .ms = 1};
    small.again = true;
    start(10);
    hold(&x);
    submit(&large);
    submit(&small);
    release();
    wait_over(2); /* x and large */
    assert_int_equal(large.ended, 1);
    (void)pthread_mutex_lock(&lock);
    small.again = false;
    (void)pthread_mutex_unlock(&lock);
    wait_over(3);
    size_t n = count('s');
    if (n < 5 || n > 200)
        fail_msg("%zu small ones beside a large one of 20 steps", n);
    stop();
}

/* --- bounds ----------------------------------------------------------------------------------- */

static void a_full_queue_refuses(void **state)
{
    (void)state;
    fake x, a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    attn_error err = {0}, again = {0};
    srv_infer_stats s;
    start(2);
    hold(&x); /* what is in a step does not wait */
    assert_int_equal(srv_infer_has_room(queue, NULL), ATTN_OK);
    submit(&a);
    submit(&b);
    srv_infer_get_stats(queue, &s);
    assert_int_equal(s.waiting, 2);
    assert_int_equal(s.running, 1);
    assert_int_equal(try_submit(&c, &err), ATTN_EBUSY);
    assert_int_equal(srv_infer_has_room(queue, &again), ATTN_EBUSY);
    assert_string_equal(err.text, "the queue is full: 2 requests wait");
    assert_string_equal(err.text, again.text);
    release();
    wait_over(3);
    assert_int_equal(c.ended, 0);
    submit(&c);
    wait_over(4);
    srv_infer_get_stats(queue, &s);
    assert_int_equal(s.waiting, 0);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.calls, 4);
    assert_int_equal(s.shared, 0);
    assert_int_equal(s.canceled, 0);
    stop();
}

static void come_again_by_how_fast_it_went(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    fake x, slow = {.name = 's', .ms = 100}, *many = calloc(MANY, sizeof *many);
    assert_non_null(many);
    start(MANY);
    assert_int_equal(srv_infer_retry_after_s(queue), 1);
    submit(&slow);
    wait_over(1);
    assert_int_equal(srv_infer_retry_after_s(queue), 1); /* nobody waits */
    hold(&x);
    for (size_t i = 0; i < MANY; i++) {
        many[i].name = 'm';
        submit(&many[i]);
        if (i == 30) { /* 32 are there, 100 ms each or somewhat more */
            unsigned s = srv_infer_retry_after_s(queue);
            assert_true(s >= 4 && s <= 30);
        }
    }
    assert_int_equal(srv_infer_retry_after_s(queue), 60);
    srv_infer_cancel(queue);
    wait_over(MANY + 2);
    stop();
    free(many);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void assert_ended(const fake *f, attn_status status, const char *word)
{
    assert_int_equal(f->ended, 1);
    assert_int_equal(f->job.status, status);
    assert_int_equal(f->job.error.code, status);
    assert_non_null(strstr(f->job.error.text, word));
}

static void a_deadline_ends_what_waits_at_once(void **state)
{
    (void)state;
    fake x, a = {.name = 'a'}, b = {.name = 'b'}, late = {.name = 'l'};
    start(10);
    hold(&x);
    submit(&a);
    late.job.deadline_ms = srv_now_ms() + 30;
    submit(&late);
    submit(&b);
    wait_trace("xL"); /* although the compute thread is busy */
    assert_ended(&late, ATTN_ETIMEDOUT, "deadline");
    assert_true(late.job.queue_s >= 0.02);
    assert_true(late.job.compute_s == 0);
    release();
    wait_trace("xLXaAbB");
    stop();
}

static void a_deadline_that_has_passed_is_never_computed(void **state)
{
    (void)state;
    fake late = {.name = 'l'};
    start(10);
    late.job.deadline_ms = srv_now_ms() - 1;
    submit(&late);
    wait_trace("L");
    assert_ended(&late, ATTN_ETIMEDOUT, "deadline");
    stop();
}

static void a_deadline_ends_a_step(void **state)
{
    (void)state;
    fake a = {.name = 'a', .blocks = true}, b = {.name = 'b'};
    start(10);
    a.job.deadline_ms = srv_now_ms() + 50;
    submit(&a);
    submit(&b);
    wait_trace("aAbB");
    assert_ended(&a, ATTN_ETIMEDOUT, "deadline");
    assert_int_equal(b.job.status, ATTN_OK);
    stop();
}

/* How a client can leave; the last one stays. */
static void leave(int fd, int how)
{
    if (how == 0)
        (void)close(fd);
    else if (how == 1)
        (void)shutdown(fd, SHUT_WR);
    else
        assert_int_equal(write(fd, "GET", 3), 3);
}

static void a_client_that_leaves_ends_its_job(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        for (int running = 0; running < 2; running++) {
            fake x, a = {.name = 'a', .blocks = running}, b = {.name = 'b'};
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            a.job.client_fd = pair[0];
            start(10);
            if (!running)
                hold(&x);
            submit(&a);
            submit(&b);
            if (running)
                wait_trace("a");
            (void)usleep(30000);
            assert_int_equal(count('A'), 0);
            leave(pair[1], how);
            if (how == 2)
                (void)usleep(30000);
            else
                wait_over(running ? 2 : 1);
            if (how == 2)
                assert_int_equal(count('A'), 0);
            else
                assert_ended(&a, ATTN_ECANCELED, "client");
            release();
            wait_over(running ? 2 : 3);
            assert_int_equal(b.job.status, ATTN_OK);
            assert_int_equal(a.job.status, how == 2 ? ATTN_OK : ATTN_ECANCELED);
            stop();
            (void)close(pair[0]);
            if (how != 0)
                (void)close(pair[1]);
        }
    }
}

static void more_clients_than_one_look_takes(void **state)
{
    (void)state;
    enum { N = 150 };
    fake x, *f = calloc(N, sizeof *f);
    int(*pair)[2] = calloc(N, sizeof *pair);
    assert_true(f != NULL && pair != NULL);
    start(N);
    hold(&x);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair[i]), 0);
        f[i].name = 'f';
        f[i].job.client_fd = pair[i][0];
        submit(&f[i]);
    }
    for (size_t i = 0; i < N; i += 3)
        (void)close(pair[i][1]);
    wait_over(N / 3);
    release();
    wait_over(N + 1);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(f[i].job.status, i % 3 == 0 ? ATTN_ECANCELED : ATTN_OK);
        (void)close(pair[i][0]);
        if (i % 3 != 0)
            (void)close(pair[i][1]);
    }
    stop();
    free(f);
    free(pair);
}

static void a_dropped_job_ends_wherever_it_is(void **state)
{
    (void)state;
    fake x, a = {.name = 'a'}, b = {.name = 'b', .blocks = true}, r = {.name = 'r', .steps = 2};
    srv_infer_stats s;
    r.waits = true;
    start(10);
    hold(&x);
    submit(&a);
    srv_infer_drop(queue, &a.job);
    wait_trace("xA");
    srv_infer_drop(queue, &x.job);
    wait_trace("xAX");
    srv_infer_drop(queue, &x.job); /* it is over: nothing happens */
    submit(&r);
    wait_trace("xAXr");
    srv_infer_drop(queue, &r.job);
    wait_trace("xAXrR");
    submit(&b);
    release();
    wait_over(4);
    assert_ended(&a, ATTN_ECANCELED, "client");
    assert_ended(&x, ATTN_ECANCELED, "client");
    assert_ended(&r, ATTN_ECANCELED, "client");
    assert_int_equal(b.job.status, ATTN_OK);
    srv_infer_get_stats(queue, &s);
    assert_int_equal(s.canceled, 3);
    stop();
}

/* --- readers ---------------------------------------------------------------------------------- */

static void a_job_waits_for_its_reader(void **state)
{
    (void)state;
    fake r = {.name = 'r', .steps = 3, .waits = true}, a = {.name = 'a'}, b = {.name = 'b'};
    start(1);
    submit(&r);
    wait_trace("r");
    submit(&a); /* who is at its reader does not fill the queue */
    wait_trace("raA");
    srv_infer_wake(queue, &r.job);
    wait_trace("raAr");
    submit(&b);
    wait_trace("raArbB");
    srv_infer_wake(queue, &r.job);
    wait_trace("raArbBrR");
    assert_int_equal(r.job.status, ATTN_OK);
    srv_infer_wake(queue, &r.job); /* it is over: nothing happens */
    stop();
}

static void a_reader_in_a_hurry_is_not_forgotten(void **state)
{
    (void)state;
    fake r = {.name = 'r', .steps = 2, .waits = true, .blocks = true};
    start(1);
    submit(&r);
    wait_trace("r");
    srv_infer_wake(queue, &r.job); /* while its step runs */
    release();
    wait_trace("rrR");
    stop();
}

static void a_deadline_ends_what_waits_for_its_reader(void **state)
{
    (void)state;
    fake r = {.name = 'r', .steps = 2, .waits = true};
    start(1);
    r.job.deadline_ms = srv_now_ms() + 50;
    submit(&r);
    wait_trace("rR");
    assert_ended(&r, ATTN_ETIMEDOUT, "deadline");
    stop();
}

/* --- the end of it all ------------------------------------------------------------------------ */

static void cancel_ends_jobs_in_every_state(void **state)
{
    (void)state;
    fake r = {.name = 'r', .steps = 2, .waits = true}, x = {.name = 'x', .blocks = true};
    fake a = {.name = 'a'}, late = {.name = 'l'};
    start(10);
    submit(&r);
    wait_trace("r");
    submit(&x);
    wait_trace("rx");
    submit(&a);
    srv_infer_cancel(queue);
    wait_over(3);
    submit(&late);
    wait_over(4);
    const fake *all[] = {&r, &x, &a, &late};
    for (size_t i = 0; i < 4; i++)
        assert_ended(all[i], ATTN_ECANCELED, "shutting down");
    assert_int_equal(count('a') + count('l'), 0);
    stop();
}

/* Waits until it is stuck for a moment, or until it is not. */
static void wait_stuck(bool stuck)
{
    int64_t until = srv_now_ms() + PATIENCE_MS;
    while ((srv_infer_stuck_s(queue) > 0.02) != stuck && srv_now_ms() < until)
        (void)usleep(500);
    assert_int_equal(srv_infer_stuck_s(queue) > 0.02, stuck);
}

static void a_step_that_does_not_end_is_seen(void **state)
{
    fake long_ = {.name = 'l', .blocks = true};
    fake hangs = {.name = 'h', .blocks = true, .hangs = true};
    (void)state;

    start(10);
    assert_true(srv_infer_stuck_s(queue) == 0);
    submit(&long_);
    wait_trace("l");
    (void)usleep(100000);
    assert_true(srv_infer_stuck_s(queue) == 0); /* at work: nobody has told it to end */
    release();
    wait_over(1);
    gate = false;
    hangs.job.deadline_ms = srv_now_ms() + 50;
    submit(&hangs);
    wait_stuck(true);
    release();
    wait_over(2);
    wait_stuck(false);
    assert_int_equal(hangs.job.status, ATTN_ETIMEDOUT);
    stop();
}

static void free_waits_until_all_is_done(void **state)
{
    (void)state;
    fake f[10];
    memset(f, 0, sizeof f);
    start(10);
    for (size_t i = 0; i < 10; i++) {
        f[i].name = 'f';
        f[i].steps = 2;
        f[i].ms = 1;
        submit(&f[i]);
    }
    stop();
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(f[i].ended, 1);
        assert_int_equal(f[i].job.status, ATTN_OK);
    }
    start(1);
    stop();
    srv_infer_free(NULL);
}

static int make_pool(void **state)
{
    attn_error err = {0};
    (void)state;
    return attn_pool_new(&pool, 1, false, &err) == ATTN_OK ? 0 : -1;
}

static int free_pool(void **state)
{
    (void)state;
    attn_pool_free(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_alone_is_computed_to_its_end),
        cmocka_unit_test(equals_come_in_order_of_arrival),
        cmocka_unit_test(small_ones_overtake_a_large_one),
        cmocka_unit_test(one_that_comes_later_goes_before_a_large_one_at_work),
        cmocka_unit_test(large_ones_take_turns),
        cmocka_unit_test(a_large_one_gets_its_share),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(come_again_by_how_fast_it_went),
        cmocka_unit_test(a_deadline_ends_what_waits_at_once),
        cmocka_unit_test(a_deadline_that_has_passed_is_never_computed),
        cmocka_unit_test(a_deadline_ends_a_step),
        cmocka_unit_test(a_client_that_leaves_ends_its_job),
        cmocka_unit_test(more_clients_than_one_look_takes),
        cmocka_unit_test(a_dropped_job_ends_wherever_it_is),
        cmocka_unit_test(a_job_waits_for_its_reader),
        cmocka_unit_test(a_reader_in_a_hurry_is_not_forgotten),
        cmocka_unit_test(a_deadline_ends_what_waits_for_its_reader),
        cmocka_unit_test(cancel_ends_jobs_in_every_state),
        cmocka_unit_test(a_step_that_does_not_end_is_seen),
        cmocka_unit_test(free_waits_until_all_is_done),
    };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
