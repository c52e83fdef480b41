#include "server/notify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_SOCKET = 3, /* SD_LISTEN_FDS_START */
    MOST_SOCKETS = 64,
    MESSAGE_BYTES = 1024
};

/* The address of NOTIFY_SOCKET, or of length 0. */
static socklen_t manager(struct sockaddr_un *a)
{
    const char *name = getenv("NOTIFY_SOCKET");
    size_t n = name != NULL ? strlen(name) : 0;

    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n < 2 || n >= sizeof a->sun_path || (name[0] != '/' && name[0] != '@'))
        return 0;
    memcpy(a->sun_path, name, n);
    if (name[0] == '@')
        a->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

void srv_notify(const char *state, const char *status)
{
    struct sockaddr_un to;
    socklen_t n = manager(&to);
    char text[MESSAGE_BYTES];
    bool both = state != NULL && status != NULL;

    if (n == 0)
        return;
    (void)snprintf(text, sizeof text, "%s%s%s%s", state != NULL ? state : "", both ? "\n" : "",
                   status != NULL ? "STATUS=" : "", status != NULL ? status : "");
    /* A line break in a status, of a file's name perhaps, would begin another assignment. */
    for (char *p = text + (state != NULL ? strlen(state) + 1 : 0); status != NULL && *p != '\0';
         p++)
        *p = (unsigned char)*p < ' ' ? ' ' : *p;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to, n);
    (void)close(fd);
}

void srv_notify_reloading(void)
{
    struct timespec now = {0};
    char state[80];

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                   (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
    srv_notify(state, "reloading");
}

/* A variable that is a whole number and nothing else. */
static bool number(const char *variable, uint64_t *value)
{
    const char *text = getenv(variable);
    char *end = NULL;

    if (text == NULL || *text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool is_ours(const char *variable)
{
    uint64_t pid = 0;

    return number(variable, &pid) && pid == (uint64_t)getpid();
}

int64_t srv_notify_watchdog_ms(void)
{
    uint64_t us = 0;

    if (!number("WATCHDOG_USEC", &us) || us == 0 || us > (uint64_t)INT64_MAX ||
        (getenv("WATCHDOG_PID") != NULL && !is_ours("WATCHDOG_PID")))
        return 0;
    return us < 2000 ? 1 : (int64_t)(us / 2000);
}

size_t srv_notify_sockets(int *first)
{
    uint64_t n = 0;

    *first = FIRST_SOCKET;
    if (!is_ours("LISTEN_PID") || !number("LISTEN_FDS", &n) || n > MOST_SOCKETS)
        return 0;
    for (int fd = FIRST_SOCKET; fd < FIRST_SOCKET + (int)n; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return (size_t)n;
}
