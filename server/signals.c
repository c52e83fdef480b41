#include "server/signals.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* A handler can only reach what is global. It and not sigwait(), because OpenBLAS has started threads before main()
 * could block anything, and a signal may go to one of them. */
static sem_t something;
static atomic_uint told;
static atomic_int first;
atomic_bool srv_signals_end;

static void set_of_ours(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGHUP);
}

void srv_signals_block(void)
{
    sigset_t set;

    set_of_ours(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void srv_signals_unblock(void)
{
    sigset_t set;

    set_of_ours(&set);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void tell(unsigned what)
{
    int saved = errno; /* of whom the signal interrupted */

    (void)atomic_fetch_or(&told, what);
    (void)sem_post(&something);
    errno = saved;
}

static void on_end(int sig)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&first, &none, sig))
        _exit(128 + sig);
    atomic_store(&srv_signals_end, true);
    tell(SRV_TOLD_END);
}

static void on_reload(int sig)
{
    (void)sig;
    tell(SRV_TOLD_RELOAD);
}

attn_status srv_signals_handle(attn_error *err)
{
    struct sigaction end = {.sa_handler = on_end, .sa_flags = SA_RESTART};
    struct sigaction reload = {.sa_handler = on_reload, .sa_flags = SA_RESTART};

    (void)sigemptyset(&end.sa_mask);
    (void)sigemptyset(&reload.sa_mask);
    if (sem_init(&something, 0, 0) != 0 || sigaction(SIGTERM, &end, NULL) != 0 ||
        sigaction(SIGINT, &end, NULL) != 0 || sigaction(SIGHUP, &reload, NULL) != 0)
        return attn_fail(err, ATTN_EIO, "cannot handle signals");
    return ATTN_OK;
}

int srv_signals_first(void)
{
    return atomic_load(&first);
}

unsigned srv_signals_wait(int64_t timeout_ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    for (;;) {
        int rc = sem_clockwait(&something, CLOCK_MONOTONIC, &until);
        unsigned what = atomic_exchange(&told, 0);
        if (what != 0 || (rc != 0 && errno == ETIMEDOUT))
            return what;
    }
}
