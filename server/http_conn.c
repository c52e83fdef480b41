#include "server/http_private.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/log.h"

enum {
    TICK_MS = 250,
    LINGER_MS = 1000,     /* a client that was cut has so long to read the answer */
    COMPLAINT_MS = 1000,  /* a full house is said once a second at most */
    CLOSING_MS = 50,      /* for those who are just connecting when the listening sockets close, */
    NEAR_MS = 2,          /* and for those on this machine */
    CLOSING_ROUNDS = 64,  /* if the system should not refuse the others */
    SETTLE_MS = 100,      /* a client that was just accepted or answered may be sending */
    ACCEPT_AT_A_TIME = 64 /* then a look at the clocks */
};

typedef enum {
    PHASE_HEADER,  /* waiting for a request, or in its header: has a deadline */
    PHASE_BODY,    /* in the body: has a deadline */
    PHASE_HANDLER, /* at work or answering: ours, or the library's idle timeout */
    PHASE_ANSWER,  /* a block of a stream leaves: has a deadline */
    PHASE_LINGER,  /* answered by srv_conn_cut(): has a deadline */
    PHASE_CUT      /* shut down */
} conn_phase;

struct srv_conn {
    srv_conns *conns;
    srv_conn *prev, *next;
    int fd;
    bool local, secure;
    conn_phase phase;
    bool served; /* at least one request: silence is idleness, not slowness */
    int64_t deadline_ms;
    srv_exchange *x; /* between srv_conn_header() and srv_conn_done() */
    char peer[INET6_ADDRSTRLEN + 16];
};

/* A connection that the library was given and has not told of yet. Where it has no memory for it, it closes the socket
 * and tells nothing: then the descriptor is none, or another socket's. */
typedef struct {
    int fd;
    ino_t inode;
} handed_over;

struct srv_conns {
    srv_conns_options o; /* read-only; the listeners are the thread's until `closed` */
    pthread_t thread;
    bool started;          /* thread runs; written before others know of it */
    int wake;              /* eventfd: look at the flags */
    int64_t complained_ms; /* by the thread alone */

    pthread_mutex_t lock; /* guards all below, and every srv_conn's phase, deadline_ms, served, x */
    pthread_cond_t fewer; /* closed */
    srv_conn *head;
    unsigned accepted;   /* connections that are open; those the library has not told of yet, too */
    handed_over *handed; /* [max_connections], of which these are in use: */
    unsigned num_handed;
    int64_t last_ms; /* somebody was accepted, or had sent what was not read, or was answered */
    bool quiesced, stopping, full, closed;
};

/* --- the clocks; the lock is held, nothing here blocks: the sockets are non-blocking --- */

static void cut(srv_conn *conn, const char *answer, size_t n)
{
    if (n > 0 && !conn->secure)
        (void)send(conn->fd, answer, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(conn->fd, SHUT_WR);
    conn->phase = PHASE_LINGER;
    conn->deadline_ms = srv_now_ms() + LINGER_MS;
}

static void too_late(srv_conn *conn)
{
    char answer[SRV_PROBLEM_BYTES + SRV_EXTRA_BYTES + 1024];
    if (conn->phase == PHASE_LINGER || conn->phase == PHASE_ANSWER ||
        (conn->phase == PHASE_HEADER && conn->served)) {
        /* An idle client may just be sending its next request; a 408 would look like its answer. */
        (void)shutdown(conn->fd, SHUT_RDWR);
        conn->phase = PHASE_CUT;
        return;
    }
    size_t n = conn->conns->o.late(conn->x, answer, sizeof answer);
    if (conn->secure) { /* its session belongs to the I/O thread, which hears nothing from the client */
        (void)shutdown(conn->fd, SHUT_RDWR);
        conn->phase = PHASE_CUT;
        return;
    }
    cut(conn, answer, n);
}

/* --- accepting --- */

static void complain(srv_conns *c, const char *msg, int error)
{
    int64_t now = srv_now_ms();
    if (now - c->complained_ms < COMPLAINT_MS)
        return;
    c->complained_ms = now;
    srv_log(SRV_LOG_WARN, "accept", msg,
            (const srv_log_field[]){SRV_STR("reason", error != 0 ? strerror(error) : NULL),
                                    SRV_INT("max_connections", c->o.max_connections)},
            2);
}

static void drop_one(srv_conns *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->accepted--;
    (void)pthread_mutex_unlock(&c->lock);
}

static ino_t inode_of(int fd) /* 0: it is closed */
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* Of the connection at fd the library has told; the lock is held. */
static bool take_back(srv_conns *c, int fd, ino_t inode)
{
    for (unsigned i = 0; i < c->num_handed; i++) {
        if (c->handed[i].fd == fd && c->handed[i].inode == inode) {
            c->handed[i] = c->handed[--c->num_handed];
            return true;
        }
    }
    return false;
}

/* Gives a socket, which counts as accepted, to the library. */
static bool hand_over(srv_conns *c, int fd, const struct sockaddr *addr, socklen_t n)
{
    ino_t inode = inode_of(fd);

    (void)pthread_mutex_lock(&c->lock);
    c->last_ms = srv_now_ms();
    c->handed[c->num_handed++] = (handed_over){fd, inode};
    (void)pthread_mutex_unlock(&c->lock);
    if (c->o.add(c->o.arg, fd, addr, n))
        return true;
    (void)pthread_mutex_lock(&c->lock);
    c->accepted -= take_back(c, fd, inode);
    (void)pthread_mutex_unlock(&c->lock);
    return false;
}

/* Those that the library has closed and told nothing of; the lock is held. */
static void forget_lost(srv_conns *c)
{
    for (unsigned i = c->num_handed; i-- > 0;) {
        if (inode_of(c->handed[i].fd) == c->handed[i].inode)
            continue;
        c->handed[i] = c->handed[--c->num_handed];
        c->accepted--;
    }
}

/* Takes what waits at the door. False: leave the door alone until the next tick. */
static bool accept_some(srv_conns *c, int listen_fd)
{
    for (int i = 0; i < ACCEPT_AT_A_TIME; i++) {
        struct sockaddr_storage addr;
        socklen_t n = sizeof addr;
        (void)pthread_mutex_lock(&c->lock);
        bool room = c->accepted < c->o.max_connections;
        c->full = !room;
        c->accepted += room;
        (void)pthread_mutex_unlock(&c->lock);
        if (!room) {
            complain(c, "every connection is in use, clients wait", 0);
            return false;
        }
        int fd = accept4(listen_fd, (struct sockaddr *)&addr, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            int error = errno;
            drop_one(c);
            if (error == EINTR || error == ECONNABORTED)
                continue;
            if (error == EAGAIN)
                return true;
            complain(c, "cannot accept a connection", error);
            return false;
        }
        (void)hand_over(c, fd, (const struct sockaddr *)&addr, n);
    }
    return true;
}

bool srv_conns_adopt(srv_conns *c, int fd)
{
    const struct sockaddr_un addr = {.sun_family = AF_UNIX};

    (void)pthread_mutex_lock(&c->lock);
    bool room = !c->quiesced && c->accepted < c->o.max_connections;
    c->accepted += room;
    (void)pthread_mutex_unlock(&c->lock);
    if (room)
        return hand_over(c, fd, (const struct sockaddr *)&addr, sizeof addr);
    (void)close(fd);
    return false;
}

/* Nobody who is connected by now is lost. */
static void close_listeners(srv_conns *c)
{
    srv_listeners *l = c->o.listeners;
    int64_t wait_ms = NEAR_MS;

    srv_listeners_refuse(l);
    for (size_t i = 0; i < l->n; i++) {
        if (!l->item[i].adopted && !l->item[i].local && !l->item[i].loopback)
            wait_ms = CLOSING_MS;
    }
    int64_t until = srv_now_ms() + wait_ms;
    for (int round = 0; round < CLOSING_ROUNDS; round++) {
        struct pollfd fds[SRV_MAX_LISTENERS];
        nfds_t n = 0;
        for (size_t i = 0; i < l->n; i++) {
            if (!l->item[i].adopted && accept_some(c, l->item[i].fd))
                fds[n++] = (struct pollfd){.fd = l->item[i].fd, .events = POLLIN};
        }
        /* The time may have passed without this thread: who waits by then is taken all the same. */
        int64_t left = until - srv_now_ms();
        if (n == 0 || poll(fds, n, left > 0 ? (int)left : 0) == 0)
            break;
    }
    srv_listeners_close(l);
    (void)pthread_mutex_lock(&c->lock);
    c->closed = true;
    (void)pthread_cond_broadcast(&c->fewer);
    (void)pthread_mutex_unlock(&c->lock);
}

static void look_at_clocks(srv_conns *c)
{
    int64_t now = srv_now_ms();
    (void)pthread_mutex_lock(&c->lock);
    forget_lost(c);
    for (srv_conn *conn = c->head; conn != NULL; conn = conn->next) {
        bool timed = conn->phase != PHASE_HANDLER && conn->phase != PHASE_CUT;
        if (timed && now >= conn->deadline_ms)
            too_late(conn);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

static void *run(void *arg)
{
    srv_conns *c = arg;
    const srv_listeners *l = c->o.listeners;
    int64_t next_tick = srv_now_ms() + TICK_MS;
    bool listen = true, closed = false;
    for (;;) {
        (void)pthread_mutex_lock(&c->lock);
        bool quiesced = c->quiesced, stopping = c->stopping;
        (void)pthread_mutex_unlock(&c->lock);
        if (quiesced && !closed)
            close_listeners(c);
        closed = quiesced;
        if (stopping)
            return NULL;

        struct pollfd fds[1 + SRV_MAX_LISTENERS] = {{.fd = c->wake, .events = POLLIN}};
        for (size_t i = 0; i < l->n; i++)
            fds[1 + i] = (struct pollfd){.fd = listen ? l->item[i].fd : -1, .events = POLLIN};
        int64_t wait = next_tick - srv_now_ms();
        (void)poll(fds, 1 + l->n, wait > 0 ? (int)wait : 0);
        if (fds[0].revents != 0) {
            uint64_t count;
            (void)!read(c->wake, &count, sizeof count);
            listen = true; /* a connection was closed */
        }
        for (size_t i = 0; i < l->n; i++) {
            if (fds[1 + i].revents != 0)
                listen = accept_some(c, l->item[i].fd) && listen;
        }
        if (srv_now_ms() >= next_tick) {
            look_at_clocks(c);
            next_tick = srv_now_ms() + TICK_MS;
            listen = true;
        }
    }
}

static void wake_up(srv_conns *c)
{
    uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one);
}

/* --- start and stop --- */

attn_status srv_conns_new(srv_conns **out, const srv_conns_options *o, attn_error *err)
{
    *out = NULL;
    srv_conns *c = calloc(1, sizeof *c);
    handed_over *handed = calloc(o->max_connections, sizeof *handed);
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c == NULL || handed == NULL || wake < 0) {
        if (wake >= 0)
            (void)close(wake);
        free(handed);
        free(c);
        return attn_fail(err, ATTN_EIO, "cannot watch connections: no memory or no descriptor");
    }
    c->o = *o;
    c->handed = handed;
    c->wake = wake;
    c->complained_ms = srv_now_ms() - COMPLAINT_MS;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->fewer, NULL);
    *out = c;
    return ATTN_OK;
}

attn_status srv_conns_start(srv_conns *c, attn_error *err)
{
    if (pthread_create(&c->thread, NULL, run, c) != 0)
        return attn_fail(err, ATTN_EIO, "cannot start the thread that accepts connections");
    c->started = true;
    return ATTN_OK;
}

void srv_conns_quiesce(srv_conns *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->quiesced = true;
    wake_up(c);
    while (!c->closed)
        (void)pthread_cond_wait(&c->fewer, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}

/* On a busy machine it takes a while until an I/O thread hears of a connection, or of what came on it. */
static bool somebody_is_unread(const srv_conns *c)
{
    unsigned known = 0;
    for (const srv_conn *conn = c->head; conn != NULL; conn = conn->next, known++) {
        int unread = 0;
        if (conn->phase == PHASE_HEADER && ioctl(conn->fd, FIONREAD, &unread) == 0 && unread > 0)
            return true;
    }
    return known < c->accepted;
}

int64_t srv_conns_expect_ms(srv_conns *c)
{
    int64_t now = srv_now_ms();
    (void)pthread_mutex_lock(&c->lock);
    forget_lost(c);
    if (somebody_is_unread(c))
        c->last_ms = now;
    int64_t left = c->accepted > 0 ? c->last_ms + SETTLE_MS - now : 0;
    (void)pthread_mutex_unlock(&c->lock);
    return left > 0 ? left : 0;
}

void srv_conns_free(srv_conns *c)
{
    if (c == NULL)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->quiesced = c->stopping = true;
    wake_up(c);
    (void)pthread_mutex_unlock(&c->lock);
    if (c->started)
        (void)pthread_join(c->thread, NULL);
    else
        srv_listeners_close(c->o.listeners);
    (void)close(c->wake);
    (void)pthread_cond_destroy(&c->fewer);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->handed);
    free(c);
}

/* --- the life of a connection --- */

static void print_peer(srv_conn *conn, const struct sockaddr *addr)
{
    char host[INET6_ADDRSTRLEN + 1], port[8];
    if (conn->local) {
        (void)snprintf(conn->peer, sizeof conn->peer, "unix");
        return;
    }
    socklen_t n = addr != NULL && addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                              : sizeof(struct sockaddr_in);
    if (addr == NULL || getnameinfo(addr, n, host, sizeof host, port, sizeof port,
                                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool v6 = addr->sa_family == AF_INET6;
    (void)snprintf(conn->peer, sizeof conn->peer, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

srv_conn *srv_conn_open(srv_conns *c, int fd, const struct sockaddr *addr)
{
    srv_conn *conn = calloc(1, sizeof *conn);
    ino_t inode = inode_of(fd);
    (void)pthread_mutex_lock(&c->lock);
    (void)take_back(c, fd, inode);
    (void)pthread_mutex_unlock(&c->lock);
    if (conn == NULL)
        return NULL;
    conn->conns = c;
    conn->fd = fd;
    conn->local = addr != NULL && addr->sa_family == AF_UNIX;
    conn->secure = c->o.secure && !conn->local;
    conn->deadline_ms = srv_now_ms() + c->o.header_timeout_ms;
    print_peer(conn, addr);
    (void)pthread_mutex_lock(&c->lock);
    conn->next = c->head;
    if (c->head != NULL)
        c->head->prev = conn;
    c->head = conn;
    (void)pthread_mutex_unlock(&c->lock);
    return conn;
}

void srv_conn_close(srv_conns *c, srv_conn *conn)
{
    (void)pthread_mutex_lock(&c->lock);
    if (conn != NULL) {
        if (conn->prev != NULL)
            conn->prev->next = conn->next;
        else
            c->head = conn->next;
        if (conn->next != NULL)
            conn->next->prev = conn->prev;
    }
    c->accepted--;
    if (c->full)
        wake_up(c);
    c->full = false;
    (void)pthread_mutex_unlock(&c->lock);
    free(conn);
}

const char *srv_conn_peer(const srv_conn *conn)
{
    return conn->peer;
}

int srv_conn_socket(const srv_conn *conn)
{
    return conn->fd;
}

bool srv_conn_local(const srv_conn *conn)
{
    return conn->local;
}

bool srv_conn_secure(const srv_conn *conn)
{
    return conn->secure;
}

static bool is_cut(const srv_conn *conn)
{
    return conn->phase == PHASE_LINGER || conn->phase == PHASE_CUT;
}

void srv_conn_line(srv_conn *conn)
{
    srv_conns *c = conn->conns;
    int64_t deadline = srv_now_ms() + c->o.header_timeout_ms;
    (void)pthread_mutex_lock(&c->lock);
    /* The first request's clock runs since the connection was opened. */
    if (conn->phase == PHASE_HEADER && conn->deadline_ms > deadline)
        conn->deadline_ms = deadline;
    (void)pthread_mutex_unlock(&c->lock);
}

bool srv_conn_header(srv_conn *conn, srv_exchange *x, bool body)
{
    srv_conns *c = conn->conns;
    (void)pthread_mutex_lock(&c->lock);
    bool alive = !is_cut(conn);
    if (alive) {
        conn->x = x;
        conn->phase = body ? PHASE_BODY : PHASE_HANDLER;
        conn->deadline_ms = srv_now_ms() + c->o.request_timeout_ms;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return alive;
}

bool srv_conn_body(srv_conn *conn)
{
    srv_conns *c = conn->conns;
    (void)pthread_mutex_lock(&c->lock);
    bool alive = !is_cut(conn);
    (void)pthread_mutex_unlock(&c->lock);
    return alive;
}

bool srv_conn_complete(srv_conn *conn)
{
    srv_conns *c = conn->conns;
    (void)pthread_mutex_lock(&c->lock);
    bool alive = !is_cut(conn);
    if (alive)
        conn->phase = PHASE_HANDLER;
    (void)pthread_mutex_unlock(&c->lock);
    return alive;
}

void srv_conn_answer(srv_conn *conn, bool wait)
{
    srv_conns *c = conn->conns;
    int64_t deadline = srv_now_ms() + c->o.request_timeout_ms;
    (void)pthread_mutex_lock(&c->lock);
    if (!is_cut(conn)) {
        conn->phase = wait ? PHASE_HANDLER : PHASE_ANSWER;
        conn->deadline_ms = deadline;
    }
    (void)pthread_mutex_unlock(&c->lock);
}

void srv_conn_done(srv_conn *conn)
{
    srv_conns *c = conn->conns;
    (void)pthread_mutex_lock(&c->lock);
    conn->x = NULL;
    conn->served = true;
    c->last_ms = srv_now_ms();
    if (!is_cut(conn)) {
        conn->phase = PHASE_HEADER;
        conn->deadline_ms = srv_now_ms() + c->o.idle_timeout_ms + c->o.header_timeout_ms;
    }
    (void)pthread_mutex_unlock(&c->lock);
}

void srv_conn_cut(srv_conn *conn, const char *answer, size_t n)
{
    srv_conns *c = conn->conns;
    (void)pthread_mutex_lock(&c->lock);
    if (!is_cut(conn))
        cut(conn, answer, n);
    (void)pthread_mutex_unlock(&c->lock);
}
