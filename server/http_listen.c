#include "server/http_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/log.h"

enum { BACKLOG = 1024, LOCAL_MODE = 0660 };

/* "HOST:PORT" or "[ADDRESS]:PORT" into its two parts. */
static bool split(const char *listen, char *host, size_t host_size, char *port, size_t port_size)
{
    const char *colon = strrchr(listen, ':');
    if (colon == NULL)
        return false;
    const char *first = listen;
    size_t n = (size_t)(colon - listen);
    if (n >= 2 && first[0] == '[' && first[n - 1] == ']') {
        first++;
        n -= 2;
    } else if (memchr(first, ':', n) != NULL) {
        return false; /* an IPv6 address needs its brackets: where would the port begin? */
    }
    size_t digits = strlen(colon + 1);
    if (n == 0 || n >= host_size || digits == 0 || digits >= port_size ||
        strspn(colon + 1, "0123456789") != digits)
        return false;
    memcpy(host, first, n);
    host[n] = '\0';
    memcpy(port, colon + 1, digits + 1);
    return true;
}

/* Reads back what was bound: the port may have been 0, the name may have had several addresses. */
static bool describe(srv_listener *l, bool secure)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } a = {0};
    socklen_t n = sizeof a;
    char host[INET6_ADDRSTRLEN + 32], port[8];
    if (getsockname(l->fd, &a.any, &n) != 0)
        return false;
    if (a.any.sa_family == AF_UNIX) {
        size_t path = n > offsetof(struct sockaddr_un, sun_path)
                          ? n - offsetof(struct sockaddr_un, sun_path)
                          : 0;
        bool abstract = path > 0 && a.local.sun_path[0] == '\0';
        if (abstract)
            a.local.sun_path[0] = '@';
        (void)snprintf(l->url, sizeof l->url, "unix:%.*s", (int)path, a.local.sun_path);
        l->local = true;
        return true;
    }
    if ((a.any.sa_family != AF_INET && a.any.sa_family != AF_INET6) ||
        getnameinfo(&a.any, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    bool v6 = a.any.sa_family == AF_INET6;
    (void)snprintf(l->url, sizeof l->url, v6 ? "%s://[%s]:%s" : "%s://%s:%s",
                   secure ? "https" : "http", host, port);
    l->loopback =
        v6 ? IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) : ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    return true;
}

/* A listening socket, or -1 with errno. */
static int listen_on(const struct addrinfo *a)
{
    const int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) /* [::] serves IPv4 too, whatever the system's default */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static attn_status resolve(struct addrinfo **out, const char *host, const char *port,
                           const char *listen, attn_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_family = AF_UNSPEC};
    int rc = getaddrinfo(host, port, &hints, out);
    if (rc != 0)
        return attn_fail(err, ATTN_EIO, "cannot listen on %s: %s", listen,
                         rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    return ATTN_OK;
}

/* --- unix sockets --- */

static const char UNIX[] = "unix:";

static int local_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* What an ended daemon left behind is removed; anything else at that path is not ours to take. */
static attn_status clear_path(const struct sockaddr_un *a, attn_error *err)
{
    struct stat st;
    int error = 0;

    if (lstat(a->sun_path, &st) != 0)
        return ATTN_OK; /* nothing is there, or bind() says what is wrong */
    if (!S_ISSOCK(st.st_mode))
        return attn_fail(err, ATTN_EIO, "cannot listen on unix:%s: a file is there, no socket",
                         a->sun_path);
    int fd = local_socket();
    if (fd < 0 || connect(fd, (const struct sockaddr *)a, sizeof *a) != 0)
        error = errno;
    if (fd >= 0)
        (void)close(fd);
    if (error == ECONNREFUSED && unlink(a->sun_path) == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_EIO, "cannot listen on unix:%s: %s", a->sun_path,
                     error == 0 || error == EAGAIN ? "another process listens there"
                     : error == ECONNREFUSED       ? strerror(errno)
                                                   : strerror(error));
}

static attn_status open_local(srv_listener *l, const char *path, attn_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;

    if (path[0] != '/' || strlen(path) >= sizeof a.sun_path)
        return attn_fail(err, ATTN_EINVAL,
                         "cannot listen on \"unix:%s\": the path must begin with a slash and have "
                         "%zu bytes at most",
                         path, sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    ATTN_TRY(clear_path(&a, err));
    int fd = local_socket();
    /* The mode before it is bound, so that it is never wider; again after it, past the umask. */
    if (fd < 0 || fchmod(fd, LOCAL_MODE) != 0 ||
        bind(fd, (const struct sockaddr *)&a, sizeof a) != 0) {
        int saved = errno;
        if (fd >= 0)
            (void)close(fd);
        return attn_fail(err, ATTN_EIO, "cannot listen on unix:%s: %s", path, strerror(saved));
    }
    if (chmod(path, LOCAL_MODE) != 0 || listen(fd, BACKLOG) != 0 || lstat(path, &st) != 0) {
        int saved = errno;
        (void)unlink(path);
        (void)close(fd);
        return attn_fail(err, ATTN_EIO, "cannot listen on unix:%s: %s", path, strerror(saved));
    }
    l->fd = fd;
    l->local = true;
    l->device = st.st_dev;
    l->inode = st.st_ino;
    (void)snprintf(l->url, sizeof l->url, "unix:%s", path);
    return ATTN_OK;
}

/* "HOST:PORT", "[HOST]:PORT" or "unix:/PATH". */
static attn_status open_one(srv_listener *l, const char *listen, bool secure, attn_error *err)
{
    char port[6];
    struct addrinfo *found = NULL;
    int first_errno = 0;

    *l = (srv_listener){.fd = -1};
    if (strncmp(listen, UNIX, sizeof UNIX - 1) == 0)
        return open_local(l, listen + sizeof UNIX - 1, err);
    if (!split(listen, l->host, sizeof l->host, port, sizeof port) ||
        strtoul(port, NULL, 10) > 65535)
        return attn_fail(err, ATTN_EINVAL,
                         "cannot listen on \"%s\": it must be HOST:PORT or [IPV6]:PORT", listen);
    ATTN_TRY(resolve(&found, l->host, port, listen, err));
    for (const struct addrinfo *a = found; a != NULL && l->fd < 0; a = a->ai_next) {
        l->fd = listen_on(a);
        first_errno = l->fd < 0 && first_errno == 0 ? errno : first_errno;
    }
    freeaddrinfo(found);

    /* A machine without IPv6 has no [::], but has what was meant by it. */
    if (l->fd < 0 && strcmp(l->host, "::") == 0 &&
        (first_errno == EAFNOSUPPORT || first_errno == EADDRNOTAVAIL)) {
        ATTN_TRY(resolve(&found, "0.0.0.0", port, listen, err));
        l->fd = listen_on(found);
        freeaddrinfo(found);
        if (l->fd >= 0)
            srv_log(SRV_LOG_WARN, "listen", "there is no IPv6 here, listening on IPv4 only", NULL,
                    0);
    }
    if (l->fd < 0)
        return attn_fail(err, ATTN_EIO, "cannot listen on %s: %s", listen, strerror(first_errno));
    if (!describe(l, secure)) {
        (void)close(l->fd);
        l->fd = -1;
        return attn_fail(err, ATTN_EIO, "cannot listen on %s: its address is not known", listen);
    }
    return ATTN_OK;
}

static attn_status adopt(srv_listener *l, int fd, bool secure, attn_error *err)
{
    int type = 0, listens = 0, flags = fcntl(fd, F_GETFL);
    socklen_t n = sizeof type;

    *l = (srv_listener){.fd = fd, .adopted = true};
    if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || !describe(l, secure)) {
        (void)close(fd);
        return attn_fail(err, ATTN_EIO,
                         "descriptor %d, passed by LISTEN_FDS, is not a socket that listens for "
                         "connections over TCP or a unix socket",
                         fd);
    }
    return ATTN_OK;
}

attn_status srv_listeners_adopt(srv_listeners *l, int first, size_t n, bool secure, attn_error *err)
{
    *l = (srv_listeners){0};
    if (n > SRV_MAX_LISTENERS)
        return attn_fail(err, ATTN_EINVAL, "LISTEN_FDS passes %zu sockets: %d are possible", n,
                         SRV_MAX_LISTENERS);
    for (size_t i = 0; i < n; i++) {
        attn_status rc = adopt(&l->item[i], first + (int)i, secure, err);
        if (rc != ATTN_OK) {
            srv_listeners_close(l);
            return rc;
        }
        l->n = i + 1;
    }
    return ATTN_OK;
}

/* The file, unless it is another daemon's by now. */
static void remove_file(const srv_listener *l)
{
    const char *path = l->url + sizeof UNIX - 1;
    struct stat st;

    if (lstat(path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        (void)unlink(path);
}

/* Closing a socket resets those whom the system has taken in but we have not accepted. So before that every request for
 * a new connection is dropped: its client sends it once more, a second later, and is refused. */
static void drop_requests(const srv_listener *l)
{
    enum { FLAGS_AT = 13, SYN = 0x02 }; /* in a TCP header */
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS_AT),
                                 BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, SYN, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, 0),
                                 BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    const struct sock_fprog program = {sizeof code / sizeof *code, code};

    (void)setsockopt(l->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void srv_listeners_refuse(srv_listeners *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->item[i].adopted)
            continue;
        if (l->item[i].local)
            remove_file(&l->item[i]);
        else
            drop_requests(&l->item[i]);
    }
}

static void close_one(srv_listener *l)
{
    if (l->fd < 0)
        return;
    if (l->local &&
        !l->adopted) /* before it is closed: then its file cannot be another daemon's yet */
        remove_file(l);
    (void)close(l->fd);
    l->fd = -1;
}

void srv_listeners_close(srv_listeners *l)
{
    for (size_t i = 0; i < l->n; i++)
        close_one(&l->item[i]);
}

attn_status srv_listeners_open(srv_listeners *l, const char *const *listen, size_t n, bool secure,
                               attn_error *err)
{
    *l = (srv_listeners){0};
    if (n == 0 || n > SRV_MAX_LISTENERS)
        return attn_fail(err, ATTN_EINVAL, "cannot listen on %zu addresses: 1 to %d are possible",
                         n, SRV_MAX_LISTENERS);
    for (size_t i = 0; i < n; i++) {
        attn_status rc = open_one(&l->item[i], listen[i], secure, err);
        if (rc != ATTN_OK) {
            srv_listeners_close(l);
            return rc;
        }
        l->n = i + 1;
    }
    return ATTN_OK;
}

unsigned srv_listener_capacity(unsigned wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return wanted;
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    /* Weights, sockets and logs need descriptors too. */
    rlim_t reserve = limit.rlim_cur >= 256 ? 64 : limit.rlim_cur / 2;
    rlim_t capacity = limit.rlim_cur - reserve;
    if (limit.rlim_cur == RLIM_INFINITY || wanted <= capacity)
        return wanted;
    srv_log(SRV_LOG_WARN, "limits",
            "fewer connections than asked for: the limit of open files is low",
            (const srv_log_field[]){SRV_INT("max_connections", capacity), SRV_INT("asked", wanted),
                                    SRV_INT("open_files", limit.rlim_cur)},
            3);
    return capacity > 0 ? (unsigned)capacity : 1;
}
