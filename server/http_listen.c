#include "server/http_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/log.h"

enum { BACKLOG = 1024 };

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
static bool describe(srv_listener *l)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    socklen_t n = sizeof a;
    char host[INET6_ADDRSTRLEN + 32], port[8];
    if (getsockname(l->fd, &a.any, &n) != 0 ||
        getnameinfo(&a.any, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    bool v6 = a.any.sa_family == AF_INET6;
    (void)snprintf(l->url, sizeof l->url, v6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
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

attn_status srv_listener_open(srv_listener *l, const char *listen, attn_error *err)
{
    char port[6];
    struct addrinfo *found = NULL;
    int first_errno = 0;

    *l = (srv_listener){.fd = -1};
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
    if (!describe(l)) {
        (void)close(l->fd);
        l->fd = -1;
        return attn_fail(err, ATTN_EIO, "cannot listen on %s: its address is not known", listen);
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
