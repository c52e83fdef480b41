#include "tests/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <curl/curl.h>

/* Sanitizers make a start and a stop slow, so both may take long before a test gives up. */
enum { START_MS = 60000, STOP_MS = 60000, MAX_ARGS = 512 };

struct test_daemon {
    pid_t pid;
    int out;   /* its stdout */
    FILE *err; /* its stderr, an unlinked file */
    char url[256];
};

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static char *slurp(FILE *f)
{
    fflush(f);
    long size = lseek(fileno(f), 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    if (pread(fileno(f), text, (size_t)size, 0) != size)
        text[0] = '\0';
    return text;
}

char *daemon_log(const test_daemon *d)
{
    return slurp(d->err);
}

void daemon_show_log(const test_daemon *d)
{
    char *text = slurp(d->err);
    size_t n = strlen(text);
    printf("--- stderr of attnd%s\n%s---\n", n > 8000 ? ", its end" : "",
           n > 8000 ? text + n - 8000 : text);
    free(text);
}

/* Forks and runs the program with these arguments in front of the terminating NULL. */
static pid_t spawn(const char *const *args, size_t n, int out, int err)
{
    const char *program = getenv("ATTND");
    char *argv[MAX_ARGS];

    assert_true(n + 2 < MAX_ARGS);
    signal(SIGPIPE, SIG_IGN); /* a connection that the daemon closes is an answer to look at */
    argv[0] = strdup(program != NULL && *program ? program : "build/attnd");
    for (size_t i = 0; i < n; i++)
        argv[i + 1] = strdup(args[i]);
    argv[n + 1] = NULL;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a crashed test leaves no daemon behind */
        signal(SIGPIPE, SIG_DFL);
        int null = open("/dev/null", O_RDONLY);
        if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
            _exit(126);
        execv(argv[0], argv);
        dprintf(2, "%s: cannot run: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    assert_true(pid > 0);
    for (size_t i = 0; i <= n; i++)
        free(argv[i]);
    return pid;
}

static size_t list_length(const char *const *args)
{
    size_t n = 0;
    while (args != NULL && args[n] != NULL)
        n++;
    return n;
}

/* Reads stdout up to the end of its first line; false when it ends or the time is over. */
static bool read_line(int fd, char *line, size_t size, long deadline)
{
    size_t n = 0;
    while (n + 1 < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        long left = deadline - now_ms();
        if (left <= 0 || poll(&p, 1, (int)left) <= 0 || read(fd, line + n, 1) != 1)
            return false;
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

/* Starts it; false when it does not say that it is ready. */
static bool begin(test_daemon *d, const char *const *args)
{
    static const char READY[] = "attnd ready on ";
    const char *all[MAX_ARGS];
    char line[256];
    int out[2];
    size_t n = list_length(args), given = n;

    assert_true(n + 2 < MAX_ARGS);
    if (n > 0)
        memcpy(all, args, n * sizeof *all);
    for (size_t i = 0; i < given; i++)
        given = strcmp(args[i], "--listen") == 0 ? 0 : given;
    if (given == n) {
        all[n++] = "--listen";
        all[n++] = "127.0.0.1:0";
    }
    d->err = tmpfile();
    assert_non_null(d->err);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    d->pid = spawn(all, n, out[1], fileno(d->err));
    close(out[1]);
    d->out = out[0];
    if (!read_line(d->out, line, sizeof line, now_ms() + START_MS) ||
        strncmp(line, READY, strlen(READY)) != 0)
        return false;
    memcpy(d->url, line + strlen(READY), strlen(line) - strlen(READY) + 1);
    return true;
}

test_daemon *daemon_start(const char *const *args)
{
    test_daemon *d = calloc(1, sizeof *d);

    assert_non_null(d);
    if (!begin(d, args)) {
        daemon_show_log(d);
        kill(d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
        fail_msg("attnd did not say that it is ready");
    }
    return d;
}

/* The only child of a process, 0 = none yet. */
static pid_t child_of(pid_t parent)
{
    char path[64];
    int child = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%d", &child) != 1)
        child = 0;
    if (f != NULL)
        (void)fclose(f);
    return child;
}

test_daemon *daemon_start_as_one(const char *const *args, pid_t *one)
{
    static const char *const ways[] = {"-fp",
                                       "-rfp"}; /* as root, and as whoever may be root inside */
    const char *program = getenv("ATTND"), *all[MAX_ARGS] = {"", "--mount-proc"};
    char *attnd = strdup(program != NULL && *program ? program : "build/attnd");
    test_daemon *d = NULL;
    size_t n = 2;

    assert_non_null(attnd);
    all[n++] = attnd;
    for (size_t i = 0; args[i] != NULL; i++) {
        assert_true(n + 1 < MAX_ARGS);
        all[n++] = args[i];
    }
    assert_int_equal(setenv("ATTND", "/usr/bin/unshare", 1), 0);
    for (size_t i = 0; i < 2 && d == NULL; i++) {
        const char *const trial[] = {ways[i], "--mount-proc", "true", NULL};
        all[0] = ways[i];
        if (daemon_run(trial, NULL, NULL) == 0)
            d = daemon_start(all);
    }
    assert_int_equal(setenv("ATTND", attnd, 1), 0);
    free(attnd);
    if (d != NULL)
        *one = child_of(d->pid);
    assert_true(d == NULL || *one > 0);
    return d;
}

const char *daemon_url(const test_daemon *d)
{
    return d->url;
}

pid_t daemon_pid(const test_daemon *d)
{
    return d->pid;
}

/* The exit code, 128 + signal, or -1 when it was still running at the deadline and was killed. */
static int wait_for(pid_t pid, long deadline)
{
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static char *read_rest(int fd)
{
    char *text = calloc(1, 4096);
    size_t n = 0;
    ssize_t got;
    assert_non_null(text);
    while (n < 4095 && (got = read(fd, text + n, 4095 - n)) > 0)
        n += (size_t)got;
    return text;
}

int daemon_wait(test_daemon *d, long within_ms, char **more)
{
    int code = wait_for(d->pid, now_ms() + within_ms);
    char *log = slurp(d->err);
    bool report = strstr(log, "Sanitizer") != NULL || strstr(log, "runtime error:") != NULL;
    if (code < 0 || report)
        daemon_show_log(d);
    free(log);
    if (more != NULL)
        *more = read_rest(d->out);
    close(d->out);
    fclose(d->err);
    free(d);
    if (code < 0)
        fail_msg("attnd had not ended after %ld ms", within_ms);
    if (report)
        fail_msg("a sanitizer complained");
    return code;
}

test_daemon *daemon_try(const char *const *args, int *code, char **err)
{
    test_daemon *d = calloc(1, sizeof *d);

    assert_non_null(d);
    *code = 0;
    *err = NULL;
    if (begin(d, args))
        return d;
    *code = wait_for(d->pid, now_ms() + STOP_MS);
    *err = slurp(d->err);
    close(d->out);
    fclose(d->err);
    free(d);
    return NULL;
}

void daemon_stop(test_daemon *d)
{
    if (d == NULL)
        return;
    kill(d->pid, SIGTERM);
    int code = daemon_wait(d, STOP_MS, NULL);
    if (code != 0)
        fail_msg("attnd ended with code %d after SIGTERM", code);
}

int daemon_run(const char *const *args, char **out, char **err)
{
    FILE *o = tmpfile(), *e = tmpfile();
    assert_true(o != NULL && e != NULL);
    pid_t pid = spawn(args, list_length(args), fileno(o), fileno(e));
    int code = wait_for(pid, now_ms() + STOP_MS);
    if (out != NULL)
        *out = slurp(o);
    if (err != NULL)
        *err = slurp(e);
    fclose(o);
    fclose(e);
    return code;
}

/* --- requests ------------------------------------------------------------------------------ */

typedef struct {
    char *data;
    size_t n, capacity;
} sink;

static size_t collect(char *data, size_t size, size_t count, void *arg)
{
    sink *s = arg;
    size_t more = size * count;
    if (s->n + more + 1 > s->capacity) {
        size_t capacity = 2 * (s->n + more) + 1024;
        char *grown = realloc(s->data, capacity);
        if (grown == NULL)
            return 0;
        s->data = grown;
        s->capacity = capacity;
    }
    memcpy(s->data + s->n, data, more);
    s->n += more;
    s->data[s->n] = '\0';
    return more;
}

test_reply daemon_request(const test_daemon *d, const char *method, const char *path,
                          const char *const *headers, const void *body, size_t body_bytes)
{
    static CURL *curl; /* kept, so that requests share a connection as a client's would */
    char url[4096];
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    sink head = {0}, content = {0};
    test_reply r = {0};
    bool local = strncmp(d->url, "unix:", 5) == 0;

    if (curl == NULL)
        curl = curl_easy_init();
    assert_non_null(curl);
    curl_easy_reset(curl);
    for (; headers != NULL && *headers != NULL; headers++)
        list = curl_slist_append(list, *headers);
    snprintf(url, sizeof url, "%s%s", local ? "http://localhost" : d->url, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    if (local)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, d->url + 5);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_bytes);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    if (strcmp(method, "HEAD") == 0)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &content);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &head);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 120L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r.status);
    curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME, &r.seconds);
    if (rc != CURLE_OK) {
        printf("%s %s: %s\n", method, path, curl_easy_strerror(rc));
        r.status = 0;
    }
    curl_slist_free_all(list);
    r.headers = head.data != NULL ? head.data : calloc(1, 1);
    r.body = content.data != NULL ? content.data : calloc(1, 1);
    r.body_bytes = content.n;
    return r;
}

void reply_free(test_reply *r)
{
    free(r->headers);
    free(r->body);
    memset(r, 0, sizeof *r);
}

test_reply daemon_post(const test_daemon *d, const char *path, const char *json, long expected)
{
    static const char *const TYPE[] = {"Content-Type: application/json", NULL};
    test_reply r = daemon_request(d, "POST", path, TYPE, json, strlen(json));
    if (r.status != expected) {
        printf("POST %s\n%.1000s\n-> %ld\n%.2000s\n", path, json, r.status, r.body);
        daemon_show_log(d);
        fail_msg("status %ld, expected %ld", r.status, expected);
    }
    return r;
}

char *reply_header(const test_reply *r, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = r->headers; line != NULL && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            const char *value = line + n + 1 + strspn(line + n + 1, " \t");
            return strndup(value, strcspn(value, "\r\n"));
        }
    }
    return NULL;
}
