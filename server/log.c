#include "server/log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/text.h"

enum {
    LINE_BYTES = 8192,
    STRING_BYTES = 1024 /* of one value; the rest is cut off */
};

/* Written once, before the first thread. */
static srv_log_level level_max = SRV_LOG_INFO;
static bool as_json = false;

void srv_log_init(srv_log_level level, bool json)
{
    level_max = level;
    as_json = json;
}

bool srv_log_enabled(srv_log_level level)
{
    return level <= level_max;
}

static size_t bounded_length(const char *s)
{
    return strnlen(s, STRING_BYTES);
}

/* Fixed point without the C library's decimal point, which follows the locale. */
static bool put_number(srv_text *t, double x)
{
    if (!isfinite(x) || fabs(x) >= 1e12)
        return srv_text_raw(t, "null", 4);
    long long millionths = llround(fabs(x) * 1e6);
    const char *sign = x < 0 && millionths != 0 ? "-" : "";
    long long fraction = millionths % 1000000;
    int digits = 6;
    while (digits > 1 && fraction % 10 == 0) {
        fraction /= 10;
        digits--;
    }
    return srv_text_format(t, "%s%lld.%0*lld", sign, millionths / 1000000, digits, fraction);
}

static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] <= ' ' || s[i] >= 0x7F || s[i] == '"' || s[i] == '\\' || s[i] == '=')
            return false;
    }
    return n > 0;
}

static bool put_string(srv_text *t, const char *s)
{
    size_t n = bounded_length(s);
    return !as_json && is_plain(s, n) ? srv_text_raw(t, s, n) : srv_text_json(t, s, n);
}

static void put_field(srv_text *t, const srv_log_field *f)
{
    srv_text before = *t;
    bool fits = srv_text_format(t, as_json ? ",\"%s\":" : " %s=", f->name);
    switch (f->kind) {
    case SRV_LOG_STRING:
        fits = fits && put_string(t, f->string);
        break;
    case SRV_LOG_INTEGER:
        fits = fits && srv_text_format(t, "%lld", (long long)f->integer);
        break;
    case SRV_LOG_NUMBER:
        fits = fits && put_number(t, f->number);
        break;
    }
    if (!fits) {
        *t = before;
        t->at[t->used] = '\0';
    }
}

static void put_head(srv_text *t, srv_log_level level, const char *event, const char *msg)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct timespec now = {0};
    struct tm utc = {0};
    char ts[32];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)strftime(ts, sizeof ts, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)srv_text_format(t, as_json ? "{\"ts\":\"%s.%03ldZ\",\"level\":\"%s\"" : "%s.%03ldZ %-5s",
                          ts, now.tv_nsec / 1000000, names[level]);
    if (as_json) {
        put_field(t, &SRV_STR("msg", msg));
        put_field(t, &SRV_STR("event", event));
    } else {
        (void)srv_text_format(t, " %s: ", event);
        /* Words stay words; only what could forge a line is escaped. */
        size_t n = bounded_length(msg);
        bool clean = true;
        for (size_t i = 0; i < n; i++)
            clean = clean && (unsigned char)msg[i] >= ' ' && msg[i] != 0x7F;
        (void)(clean ? srv_text_raw(t, msg, n) : srv_text_json(t, msg, n));
    }
}

static size_t print_line(char line[LINE_BYTES], srv_log_level level, const char *event,
                         const char *msg, const srv_log_field *fields, size_t n)
{
    srv_text t;

    srv_text_init(&t, line, LINE_BYTES - 2); /* room for the end of the line */
    put_head(&t, level, event, msg);
    for (size_t i = 0; i < n; i++) {
        if (fields[i].kind != SRV_LOG_STRING || fields[i].string != NULL)
            put_field(&t, &fields[i]);
    }
    t.size = LINE_BYTES;
    (void)srv_text_raw(&t, as_json ? "}\n" : "\n", as_json ? 2 : 1);
    return t.used;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards writing, and what follows */
static uint64_t unsaid;                                  /* lines lost since one was written */
static bool torn;                                        /* the last one was written in part */
static atomic_ullong lost;

/* Writes what can be written without waiting. stderr itself stays as it is: whoever else has it open would find it
 * changed. A pipe that is ready takes PIPE_BUF bytes. */
static bool write_now(const char *bytes, size_t n)
{
    size_t done = 0;

    while (done < n) {
        struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&fd, 1, 0) != 1 || (fd.revents & POLLOUT) == 0)
            break;
        size_t some = n - done < PIPE_BUF ? n - done : PIPE_BUF;
        ssize_t wrote = write(STDERR_FILENO, bytes + done, some);
        if (wrote < 0 && errno != EINTR)
            break;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    if (done > 0)
        torn = done < n;
    return done == n;
}

static void say_lost(void)
{
    char line[1 + LINE_BYTES];

    line[0] = '\n'; /* the end of the torn one */
    size_t n = print_line(line + 1, SRV_LOG_WARN, "log", "lines were lost, nobody took them",
                          &SRV_INT("lines", unsaid), 1);
    if (torn ? write_now(line, n + 1) : write_now(line + 1, n))
        unsaid = 0;
}

void srv_log(srv_log_level level, const char *event, const char *msg, const srv_log_field *fields,
             size_t n)
{
    char line[LINE_BYTES];

    if (!srv_log_enabled(level))
        return;
    size_t bytes = print_line(line, level, event, msg, fields, n);
    (void)pthread_mutex_lock(&lock);
    if (unsaid > 0)
        say_lost();
    if (unsaid > 0 || !write_now(line, bytes)) {
        unsaid++;
        (void)atomic_fetch_add(&lost, 1);
    }
    (void)pthread_mutex_unlock(&lock);
}

uint64_t srv_log_lost(void)
{
    return atomic_load(&lost);
}
