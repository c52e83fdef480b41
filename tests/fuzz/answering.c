#include "tests/fuzz/answering.h"

#include <stdatomic.h>
#include <string.h>

#include "core/kern.h"
#include "server/answer.h"
#include "server/demo.h"
#include "server/log.h"
#include "server/stream.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_BYTES = 2 << 20, MOST_CELLS = 1 << 20, BLOCK = 4096 };

static attn_model *demo;
static attn_pool *pool;

static void free_all(void)
{
    attn_model_free(demo);
    attn_pool_free(pool);
}

const attn_model *answering_model(void)
{
    attn_layer **layers = NULL;
    size_t n = 0;

    if (demo != NULL)
        return demo;
    srv_log_init(SRV_LOG_ERROR, true);
    FUZZ_CHECK(attn_kern_init(NULL, NULL) == ATTN_OK);
    FUZZ_CHECK(srv_demo_layers(&layers, &n, NULL) == ATTN_OK);
    FUZZ_CHECK(attn_model_take_layers(&demo, "demo", "attnd", layers, n, NULL) == ATTN_OK);
    FUZZ_CHECK(attn_pool_new(&pool, 1, false, NULL) == ATTN_OK);
    FUZZ_CHECK(atexit(free_all) == 0);
    return demo;
}

attn_pool *answering_pool(void)
{
    (void)answering_model();
    return pool;
}

typedef struct {
    char *at;
    size_t n, room;
} text;

static char *make_room(text *t)
{
    if (t->room - t->n < BLOCK) {
        t->room = 2 * t->room + BLOCK;
        t->at = realloc(t->at, t->room);
        FUZZ_CHECK(t->at != NULL);
    }
    return t->at + t->n;
}

static bool is_small(const srv_request *r)
{
    double cells = 0;

    for (size_t b = 0; b < r->batch; b++)
        cells += (double)r->sizes[b].t * (double)(r->sizes[b].s + 1) * (double)r->heads.num_heads;
    return cells < MOST_CELLS && srv_answer_bound(r) < MOST_BYTES;
}

static void ready(void *arg)
{
    (void)arg;
}

/* Reads what is there of a streamed answer; false when that was all. */
static bool read_stream(srv_request *r, text *t)
{
    for (;;) {
        bool took = false;
        ssize_t got = srv_stream_read(r->stream, make_room(t), BLOCK, &took);
        FUZZ_CHECK(got != SRV_READ_FAILED && got <= BLOCK);
        if (got <= 0)
            return got != 0;
        t->n += (size_t)got;
    }
}

static attn_status compute(srv_request *r, text *t, attn_error *err)
{
    atomic_bool cancel = false;
    srv_step next = SRV_STEP_MORE;

    if (r->stream != NULL)
        srv_stream_listen(r->stream, ready, NULL);
    while (next != SRV_STEP_DONE) {
        attn_status rc = srv_request_step(r, answering_pool(), &cancel, &next, err);
        if (rc != ATTN_OK) {
            /* But for an overflow in a later piece it was told before the answer began. */
            FUZZ_CHECK(r->stream == NULL || t->n == 0 || rc == ATTN_ENONFINITE);
            return rc;
        }
        if (r->stream != NULL && srv_request_answers(r))
            FUZZ_CHECK(read_stream(r, t));
    }
    if (r->stream != NULL) {
        srv_stream_end(r->stream, true);
        FUZZ_CHECK(!read_stream(r, t));
    }
    return ATTN_OK;
}

char *answering_text(srv_request *r, size_t *n, attn_error *err)
{
    text t = {0};

    *n = 0;
    if (!is_small(r)) {
        (void)attn_fail(err, ATTN_ETIMEDOUT, "too much for a fuzzer");
        return NULL;
    }
    attn_status rc = srv_request_admit(r, err);
    if (rc == ATTN_OK)
        rc = compute(r, &t, err);
    if (rc != ATTN_OK) {
        free(t.at);
        return NULL;
    }
    if (r->stream == NULL) {
        srv_json_writer *w = srv_answer(r);
        FUZZ_CHECK(w != NULL);
        srv_request_drop_inputs(r);
        for (size_t got; (got = srv_json_writer_read(w, make_room(&t), BLOCK)) > 0;)
            t.n += got;
        srv_json_writer_free(w);
    }
    *n = t.n;
    return t.at;
}

bool answering_same(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    static const char usage[] = "\"micro_batches\"";
    const char *a_end = memmem(a, a_bytes, usage, sizeof usage - 1);
    const char *b_end = memmem(b, b_bytes, usage, sizeof usage - 1);

    if (a_end != NULL && b_end != NULL) {
        a_bytes = (size_t)(a_end - a);
        b_bytes = (size_t)(b_end - b);
    }
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}
