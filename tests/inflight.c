#include "tests/inflight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/body.h"

raw_answer inflight_get(raw_conn *c, const char *path)
{
    (void)raw_text(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    return raw_read(c, false, 30000);
}

void inflight_open(raw_conn *c, const test_daemon *d)
{
    raw_open(c, daemon_url(d));
    raw_answer a = inflight_get(c, "/health/live");
    assert_int_equal(a.status, 200);
    raw_free(&a);
}

bool inflight_post(raw_conn *c, const char *path, const char *json, size_t hold_back)
{
    size_t n = strlen(json);
    return raw_text(c,
                    "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n",
                    path, n) &&
           raw_send(c, json, n - hold_back);
}

static char *zeros(size_t sequences, size_t tokens, long timeout_ms)
{
    float *x = calloc(sequences * tokens, sizeof *x);
    test_body b;
    assert_non_null(x);
    body_init(&b, true);
    body_floats(&b, "query", x, DIMS(sequences, 1, tokens, 1));
    body_floats(&b, "key", x, DIMS(sequences, 1, tokens, 1));
    body_floats(&b, "value", x, DIMS(sequences, 1, tokens, 1));
    if (timeout_ms > 0)
        body_printf(&b, "timeout_ms", "%ld", timeout_ms);
    char *text = strdup(body_text(&b));
    assert_non_null(text);
    body_free(&b);
    free(x);
    return text;
}

char *inflight_heavy(size_t tokens, long timeout_ms)
{
    return zeros(1, tokens, timeout_ms);
}

char *inflight_heavy_whole(long timeout_ms)
{
    return zeros(40, 20000, timeout_ms);
}
