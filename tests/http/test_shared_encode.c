/* Requests for a whole encoder that are computed in one call: each has the bits that it has alone. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/scrape.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What must have been shared in the end, and how often it is tried. */
enum { KINDS = 6, LENGTHS = 8, CLIENTS = KINDS * LENGTHS, SHARED = 4 * CLIENTS, MOST_ROUNDS = 40 };
enum { PATIENCE_MS = 120000 };

typedef struct {
    char *path, *body;
    test_reply alone;
    raw_conn c;
} client;

static char *folder_, *model_;

static int start(void **state)
{
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/tiny", folder_);
    tiny_encoder_write(dir, 3, 1, NULL);
    model_ = st_path("tiny=%s", dir);
    free(dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    free(model_);
    st_remove_dir(folder_);
    return 0;
}

/* A text of 1 to 12 words, cats of which become two tokens each. */
static char *text_of(size_t n)
{
    static const char *const words[] = {"the", "cats", "on", "a", "mat", "."};
    char *text = calloc(1, 128);

    assert_non_null(text);
    for (size_t i = 0; i <= n * 3 / 2; i++) {
        (void)strcat(text, i == 0 ? "" : " ");
        (void)strcat(text, words[(i + n) % 6]);
    }
    return text;
}

/* Those of one kind want the same and so may share a call; their sequences are of all lengths. */
static void prepare(client *me, size_t i)
{
    static const char *const paths[KINDS] = {"/v1/models/tiny/encode", "/v1/models/tiny/encode",
                                             "/v1/models/tiny/encode", "/v1/embeddings",
                                             "/v1/embeddings",         "/embed"};
    static const char *const around[KINDS][2] = {
        {"{\"inputs\":\"", "\"}"},
        {"{\"inputs\":[\"", "\",\"the cat\"],\"return_attentions\":{\"rollout\":true},"
                            "\"return_hidden_states\":[0,1,2]}"},
        {"{\"inputs\":[[\"", "\",\"a mat\"]],\"encoding_format\":\"base64\",\"pooling\":\"cls\","
                             "\"return_attentions\":{\"top_k\":2,\"layers\":[1]}}"},
        {"{\"input\":\"", "\"}"},
        {"{\"input\":[\"cats\",\"", "\"],\"encoding_format\":\"base64\"}"},
        {"{\"inputs\":\"", "\"}"}};
    char *text = text_of(i % LENGTHS);
    const char *const *with = around[i / LENGTHS];

    me->path = st_path("%s", paths[i / LENGTHS]);
    me->body = st_path("%s%s%s", with[0], text, with[1]);
    free(text);
}

/* All but the usage of /encode, which tells how the work was cut. */
static size_t compared(const char *body)
{
    const char *usage = strstr(body, ",\"usage\":{\"sequences\"");
    return usage != NULL ? (size_t)(usage - body) : strlen(body);
}

static double shared_now(const test_daemon *d)
{
    test_reply r = daemon_request(d, "GET", "/metrics", NULL, NULL, 0);
    scrape s = scrape_read(r.body, r.body_bytes);
    double value = scrape_value(&s, "attnd_shared_requests_total");
    scrape_free(&s);
    reply_free(&r);
    return value;
}

/* While something heavy is computed, so that many wait for their turn at once. */
static void ask_all(client *all, raw_conn *heavy, const char *work)
{
    assert_true(inflight_post(heavy, INFLIGHT_SDPA, work, 0));
    for (size_t i = 0; i < CLIENTS; i++)
        assert_true(inflight_post(&all[i].c, all[i].path, all[i].body, 0));
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_answer a = raw_read(&all[i].c, false, PATIENCE_MS);
        size_t n = compared(all[i].alone.body);
        if (a.status != 200 || compared(a.body) != n || memcmp(a.body, all[i].alone.body, n) != 0)
            fail_msg("%s %s: %d %s\nand alone: %s", all[i].path, all[i].body, a.status, a.body,
                     all[i].alone.body);
        raw_free(&a);
    }
    raw_answer a = raw_read(heavy, false, PATIENCE_MS);
    assert_int_equal(a.status, 200);
    raw_free(&a);
}

static void shared_calls_give_everybody_the_bits_that_it_has_alone(void **state)
{
    static client all[CLIENTS];
    test_daemon *d = daemon_start(COMMAND("serve", "--model", model_, "--set", "compute.threads=2",
                                          "--set", "log.level=error"));
    char *work = inflight_heavy(3000, 0);
    raw_conn heavy;
    size_t rounds = 0;
    (void)state;

    inflight_open(&heavy, d);
    for (size_t i = 0; i < CLIENTS; i++) {
        prepare(&all[i], i);
        all[i].alone = daemon_post(d, all[i].path, all[i].body, 200);
        inflight_open(&all[i].c, d);
    }
    double before = shared_now(d), shared = 0;
    assert_true(before == 0); /* one at a time shares nothing */
    for (; shared < SHARED && rounds < MOST_ROUNDS; rounds++) {
        ask_all(all, &heavy, work);
        shared = shared_now(d);
    }
    printf("%.0f of %zu requests shared a call\n", shared, rounds * CLIENTS);
    assert_true(shared >= SHARED);
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_close(&all[i].c);
        reply_free(&all[i].alone);
        free(all[i].path);
        free(all[i].body);
    }
    raw_close(&heavy);
    free(work);
    daemon_stop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_calls_give_everybody_the_bits_that_it_has_alone),
    };
    return cmocka_run_group_tests_name("shared encodings", tests, start, stop);
}
