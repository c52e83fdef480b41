#include "tests/walk.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ANSWER_MS = 2000 };

long walk_next(long n)
{
    const char *all = getenv("TEST_FAULTS");
    return all != NULL && strcmp(all, "all") == 0 ? n + 1 : n + 1 + n / 10;
}

void walk_assert_one_sentence(const char *err, long n)
{
    const char *end = strchr(err, '\n');

    if (strncmp(err, "attnd: ", 7) != 0 || end == NULL || end[1] != '\0')
        fail_msg("call %ld failed, and stderr is: %s", n, err);
}

long walk_check(fault_page *faults, fault_kind kind, const char *path, const char *in_message)
{
    const char *const args[] = {"check", "--model", path, NULL};
    long n = 0, hits = 0;

    for (;; n = walk_next(n)) {
        char *err = NULL;
        faults_set(faults, kind, n, false, EIO);
        int code = daemon_run(args, NULL, &err);
        hits = faults_clear(faults);
        if (code != 0 && code != 1)
            fail_msg("call %ld failed, and check ended with %d: %s", n, code, err);
        if (code == 1)
            walk_assert_one_sentence(err, n);
        if (code == 1 && in_message != NULL && strstr(err, in_message) == NULL)
            fail_msg("call %ld failed, and the file is not named: %s", n, err);
        free(err);
        if (hits == 0) {
            assert_int_equal(code, 0);
            return n;
        }
    }
}

raw_answer walk_ask(const test_daemon *d, const asked *q)
{
    raw_conn c;

    raw_open(&c, daemon_url(d));
    if (q->type == NULL)
        (void)raw_text(&c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
                       q->path);
    else if (raw_text(&c,
                      "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nAccept: %s\r\n"
                      "Content-Length: %zu\r\n%s%s%s\r\n",
                      q->path, q->type, q->accept, q->n,
                      q->coding != NULL ? "Content-Encoding: " : "",
                      q->coding != NULL ? q->coding : "", q->coding != NULL ? "\r\n" : ""))
        (void)raw_send(&c, q->body, q->n);
    raw_answer a = raw_read(&c, false, ANSWER_MS);
    raw_close(&c);
    return a;
}

bool walk_same_body(const raw_answer *a, const raw_answer *b)
{
    const char *usage = strstr(b->body, "\"usage\"");
    size_t n = usage != NULL ? (size_t)(usage - b->body) : b->body_bytes;

    return a->body_bytes >= n && (usage != NULL || a->body_bytes == n) &&
           memcmp(a->body, b->body, n) == 0;
}

long walk_blocks_at_rest(fault_page *faults)
{
    long last = -1;

    for (int quiet = 0; quiet < 6;) {
        long now = atomic_load(&faults->live);
        quiet = now == last ? quiet + 1 : 0;
        last = now;
        (void)usleep(20000);
    }
    return last;
}

static raw_answer ask_in_calm(const test_daemon *d, const asked *q)
{
    raw_answer a = walk_ask(d, q);
    if (a.status != 200)
        fail_msg("%s: %d without any fault: %s", q->path, a.status, a.status != 0 ? a.body : "");
    return a;
}

static void assert_answered(const test_daemon *d, const asked *q, const raw_answer *right, long n)
{
    raw_answer a = ask_in_calm(d, q);

    if (!walk_same_body(&a, right))
        fail_msg("%s: allocation %ld failed before, and the answer is another: %s", q->path, n,
                 a.body);
    raw_free(&a);
}

/* When libmicrohttpd has no memory for the list that it polls with, a connection that was just resumed waits for the
 * next event of its thread: one that comes when others are served, which here nobody is. */
void walk_request(fault_page *faults, const test_daemon *d, const asked *q, const asked *behind)
{
    raw_answer right = ask_in_calm(d, q);
    raw_answer next = behind != NULL ? ask_in_calm(d, behind) : (raw_answer){0};
    long n = 0, walked = 0, hits = 1;
    int waiting = 0;

    for (; hits > 0; n = behind != NULL ? walk_next(n) : n + 1, walked++) {
        faults_set(faults, FAULT_ALLOC, n, false, ENOMEM);
        long long begin = raw_now_ms();
        raw_answer a = walk_ask(d, q);
        waiting += raw_now_ms() - begin >= ANSWER_MS;
        hits = faults_clear(faults);
        bool whole = a.status == 200 && a.complete;
        if (whole && q->same && !walk_same_body(&a, &right))
            fail_msg("%s: allocation %ld failed, and the answer is another: %s", q->path, n,
                     a.body);
        /* 0: the connection was ended, since not even the refusal had memory. */
        if (!whole && a.status != 0 && a.status != 500 && a.status != 503 && a.status != 200)
            fail_msg("%s: allocation %ld failed: %d %s", q->path, n, a.status, a.body);
        assert_true(hits > 0 || whole);
        raw_free(&a);
        if (behind != NULL)
            assert_answered(d, behind, &next, n);
    }
    assert_true(walked > 10);
    assert_in_range(waiting, 0, 3);
    raw_free(&right);
    if (behind != NULL)
        raw_free(&next);
}

void walk_request_without_loss(fault_page *faults, const test_daemon *d, const asked *q,
                               const asked *behind)
{
    long lost = 1;

    /* What each thread makes at its first use stays; a leak comes again. */
    for (int round = 0; round < 4 && lost > 0; round++) {
        long before = walk_blocks_at_rest(faults);
        walk_request(faults, d, q, behind);
        lost = walk_blocks_at_rest(faults) - before;
    }
    if (lost > 0)
        fail_msg("%s: %ld blocks are lost each time", q->path, lost);
}
