/* Bodies and answers of every media type and coding: the same numbers in each, what is negotiated, what is damaged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/png.h"
#include "tests/command.h"
#include "tests/formats.h"

enum { B = 3, T = 9, D = 32, HEADS = 4, MIB = 1 << 20 };

#define LAYER "/v1/models/m/attention"
#define SDPA  "/v1/scaled-dot-product-attention"

static test_daemon *daemon_, *small_; /* the second with a small budget */
static char *model_;
static float x_[B * T * D];

static test_daemon *serve(const char *budget)
{
    char *memory = st_path("memory.budget=%s", budget);
    test_daemon *d = daemon_start(COMMAND("serve", "--model", model_, "--set", memory, "--set",
                                          "server.max_body=8MiB", "--set", "compute.threads=2"));
    free(memory);
    return d;
}

static int start(void **state)
{
    static const st_native m = {.d_model = D, .num_heads = HEADS, .num_kv_heads = 2, .head_dim = 8};
    uint32_t seed = 3;

    assert_int_equal(scratch_setup(state), 0);
    char *dir = st_path("%s/m", scratch_dir());
    st_write_random(dir, &m, 5);
    model_ = st_path("m=%s", dir);
    free(dir);
    st_random(&seed, x_, sizeof x_ / sizeof *x_);
    daemon_ = serve("256MiB");
    small_ = serve("2MiB");
    return 0;
}

static int stop(void **state)
{
    daemon_stop(daemon_);
    daemon_stop(small_);
    free(model_);
    return scratch_teardown(state);
}

#define FIELDS(...) ((const char *const[4]){__VA_ARGS__})

static test_reply post_json(const char *rest, const char *accept)
{
    char *body = format_json(x_, DIMS(B, T, D), rest);
    char *field = st_path("Accept: %s", accept);
    test_reply r = format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body), FIELDS(field));
    free(body);
    free(field);
    return r;
}

/* The text of an answer up to its usage. */
static size_t before_usage(const test_reply *r)
{
    const char *usage = strstr(r->body, "\"usage\":");
    format_expect(r, 200, FORMAT_JSON);
    assert_non_null(usage);
    return (size_t)(usage - r->body);
}

static void assert_same_answer(const test_reply *a, const test_reply *b)
{
    size_t n = before_usage(a);
    assert_int_equal(before_usage(b), n);
    assert_memory_equal(a->body, b->body, n);
}

/* --- bodies -------------------------------------------------------------------------------------- */

static void every_body_says_the_same(void **state)
{
    static const int64_t lengths[] = {9, 4, 0};
    const st_entry entries[] = {
        {"inputs_embeds", "F32", 3, {B, T, D}, x_, sizeof x_},
        {"lengths", "I64", 1, {B}, lengths, sizeof lengths},
    };
    test_reply want =
        post_json(",\"lengths\":[9,4,0],\"return_attentions\":{\"heads\":[2,0]}", FORMAT_JSON);
    blob bodies[2] = {format_npy(x_, DIMS(B, T, D)),
                      format_safetensors(entries, 2,
                                         "{\"return_attentions\":\"{\\\"heads\\\":[2,0]}\","
                                         "\"encoding_format\":\"\\\"base64\\\"\"}")};
    static const char *const types[] = {FORMAT_NPY, FORMAT_SAFETENSORS};
    static const char *const paths[] = {
        LAYER
        "?lengths=[9,4,0]&encoding_format=%22base64%22&return_attentions=%7B%22heads%22:[2,0]%7D",
        LAYER};
    (void)state;

    for (int i = 0; i < 2; i++) {
        test_reply r = format_post(daemon_, paths[i], types[i], bodies[i].at, bodies[i].n, NULL);
        assert_same_answer(&r, &want);
        reply_free(&r);
        blob packed = format_gzip(bodies[i].at, bodies[i].n);
        r = format_post(daemon_, paths[i], types[i], packed.at, packed.n,
                        FIELDS("Content-Encoding: gzip"));
        assert_same_answer(&r, &want);
        reply_free(&r);
        r = format_post(daemon_, paths[i], types[i], bodies[i].at, bodies[i].n,
                        FIELDS("Transfer-Encoding: chunked"));
        assert_same_answer(&r, &want);
        reply_free(&r);
        blob_free(&packed);
        blob_free(&bodies[i]);
    }
    reply_free(&want);
}

static void attention_alone_takes_safetensors(void **state)
{
    const st_entry entries[] = {{"query", "F32", 4, {1, 2, 4, 8}, x_, 256},
                                {"key", "F32", 4, {1, 2, 4, 8}, x_ + 64, 256},
                                {"value", "F32", 4, {1, 2, 4, 8}, x_ + 128, 256}};
    blob body = format_safetensors(entries, 3, NULL);
    test_body json;
    (void)state;

    body_init(&json, true);
    for (int i = 0; i < 3; i++)
        body_floats(&json, entries[i].name, x_ + 64 * i, DIMS(1, 2, 4, 8));
    const char *text = body_text(&json);
    /* The form that answers are asked for in is a member of the JSON body. */
    blob asked = format_safetensors(entries, 3, "{\"encoding_format\":\"\\\"base64\\\"\"}");
    test_reply a = format_post(daemon_, SDPA, FORMAT_JSON, text, strlen(text), NULL);
    test_reply b = format_post(daemon_, SDPA, FORMAT_SAFETENSORS, asked.at, asked.n, NULL);
    assert_same_answer(&a, &b);
    reply_free(&a);
    reply_free(&b);
    b = format_post(daemon_, SDPA, FORMAT_NPY, body.at, body.n, NULL);
    format_expect(&b, 415, "application/problem+json");
    reply_free(&b);
    body_free(&json);
    blob_free(&body);
    blob_free(&asked);
}

/* --- answers ------------------------------------------------------------------------------------- */

static const char ALL[] =
    ",\"return_attentions\":true,"
    "\"return_intermediates\":[\"key\",\"query\",\"value\",\"logsumexp\","
    "\"context\"],\"is_causal\":true,\"attention_mask\":[[0,1,1,1,1,1,1,1,1]]";

static void safetensors_holds_the_numbers_of_json(void **state)
{
    static const char *const names[] = {"outputs", "attentions", "key",    "query",
                                        "value",   "logsumexp",  "context"};
    test_reply json = post_json(ALL, FORMAT_JSON), r = post_json(ALL, FORMAT_SAFETENSORS);
    st_file *f = format_tensors(&r);
    json_t *root = answer_parse(json.body, json.body_bytes);
    char *length = reply_header(&r, "Content-Length");
    (void)state;

    assert_non_null(length); /* what stands in memory goes in one */
    /* The first begins a line, and so does what stands behind whole lines. */
    for (size_t i = 0; i < 2; i++) {
        const unsigned char *data = st_need(f, names[i])->data;
        assert_int_equal((data - f->bytes) % 64, 0);
    }
    assert_int_equal(f->count, 7);
    for (size_t i = 0; i < 7; i++) {
        char *path = i < 2 ? st_path("%s", names[i]) : st_path("intermediates.%s", names[i]);
        test_tensor want = answer_any(answer_get(root, path), names[i]);
        const st_tensor *got = st_need(f, names[i]);
        assert_string_equal(got->dtype, "F32");
        assert_int_equal(got->rank, want.rank);
        assert_memory_equal(got->dim, want.dim, want.rank * sizeof *want.dim);
        assert_memory_equal(got->data, want.data, got->bytes);
        answer_free(&want);
        free(path);
    }
    free(length);
    json_decref(root);
    st_close(f);
    reply_free(&json);
    reply_free(&r);
}

static void npy_holds_the_one_tensor_that_is_asked_for(void **state)
{
    test_reply json = post_json(",\"return_attentions\":true", FORMAT_JSON);
    json_t *root = answer_parse(json.body, json.body_bytes);
    test_tensor outputs = answer_tensor(answer_get(root, "outputs"), "outputs", DIMS(B, T, D));
    test_tensor maps =
        answer_tensor(answer_get(root, "attentions"), "attentions", DIMS(B, HEADS, T, T));
    test_reply r = post_json("", FORMAT_NPY);
    (void)state;

    assert_memory_equal(format_array(&r, "<f4", DIMS(B, T, D)), outputs.data,
                        outputs.count * sizeof(float));
    reply_free(&r);
    r = post_json(",\"return_outputs\":false,\"return_attentions\":true", FORMAT_NPY);
    assert_memory_equal(format_array(&r, "<f4", DIMS(B, HEADS, T, T)), maps.data,
                        maps.count * sizeof(float));
    reply_free(&r);
    r = post_json(",\"return_attentions\":true", FORMAT_NPY);
    format_expect(&r, 422, "application/problem+json");
    assert_non_null(strstr(r.body, FORMAT_SAFETENSORS));
    reply_free(&r);
    blob body = format_npy(x_, DIMS(T, D)); /* one sequence in, one out */
    r = format_post(daemon_, LAYER, FORMAT_NPY, body.at, body.n, FIELDS("Accept: " FORMAT_NPY));
    assert_memory_equal(format_array(&r, "<f4", DIMS(T, D)), outputs.data, T * D * sizeof(float));
    reply_free(&r);
    blob_free(&body);
    answer_free(&outputs);
    answer_free(&maps);
    json_decref(root);
    reply_free(&json);
}

static void no_sequences_are_an_empty_array(void **state)
{
    blob body = format_npy(NULL, DIMS(0, 5, D));
    test_reply r =
        format_post(daemon_, LAYER, FORMAT_NPY, body.at, body.n, FIELDS("Accept: " FORMAT_NPY));
    (void)state;

    (void)format_array(&r, "<f4", DIMS(0, 5, D));
    reply_free(&r);
    r = format_post(daemon_, LAYER "?return_attentions=true", FORMAT_NPY, body.at, body.n,
                    FIELDS("Accept: " FORMAT_SAFETENSORS));
    st_file *f = format_tensors(&r);
    assert_int_equal(st_need(f, "outputs")->dim[1], 5);
    assert_int_equal(st_need(f, "attentions")->dim[0], 0);
    st_close(f);
    reply_free(&r);
    blob_free(&body);
}

static void a_ragged_batch_needs_json(void **state)
{
    static const char *const accepts[] = {"Accept: " FORMAT_NPY, "Accept: " FORMAT_SAFETENSORS,
                                          "Accept: " FORMAT_PNG};
    char ones[D * 2 + 2] = "[";
    (void)state;

    for (size_t i = 0; i < D; i++)
        (void)memcpy(ones + 1 + 2 * i, i + 1 < D ? "1," : "1]", 3);
    char *body = st_path("{\"inputs_embeds\":[[%s],[%s,%s]]}", ones, ones, ones);
    for (size_t i = 0; i < 3; i++) {
        test_reply r = format_post(daemon_, LAYER, NULL, body, strlen(body), FIELDS(accepts[i]));
        format_expect(&r, 422, "application/problem+json");
        assert_non_null(strstr(r.body, FORMAT_JSON));
        assert_non_null(strstr(r.body, "lengths"));
        reply_free(&r);
    }
    free(body);
}

/* What does not fit leaves in pieces, with the same bytes. */
static void tensors_leave_in_pieces(void **state)
{
    enum { LONG = 600 };
    float *x = malloc(LONG * D * sizeof *x);
    uint32_t seed = 8;
    static const char *const wishes[] = {
        "?return_attentions=true&return_intermediates=[%22key%22,%22context%22]",
        "?return_attentions={%22dtype%22:%22float16%22}",
        "?return_attentions={%22dtype%22:%22uint8%22,%22heads%22:[3,1]}&return_outputs=false",
        "?return_attentions={%22top_k%22:40,%22dtype%22:%22float16%22}&return_outputs=false",
        "?return_attentions={%22pool%22:{%22size%22:97,%22kind%22:%22mean%22}}&lengths=[444]"};
    (void)state;

    assert_non_null(x);
    st_random(&seed, x, LONG * D);
    blob body = format_npy(x, DIMS(1, LONG, D));
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        char *path = st_path("%s%s", LAYER, wishes[i]);
        const char *const *fields = FIELDS("Accept: " FORMAT_SAFETENSORS);
        test_reply whole = format_post(daemon_, path, FORMAT_NPY, body.at, body.n, fields);
        test_reply pieces = format_post(small_, path, FORMAT_NPY, body.at, body.n, fields);
        format_expect(&pieces, 200, FORMAT_SAFETENSORS);
        assert_int_equal(whole.status, 200);
        assert_int_equal(whole.body_bytes, pieces.body_bytes);
        assert_memory_equal(whole.body, pieces.body, whole.body_bytes);
        if (i == 0) {
            char *chunked = reply_header(&pieces, "Transfer-Encoding");
            assert_non_null(chunked);
            free(chunked);
            assert_true(whole.body_bytes > 2 * MIB);
        }
        reply_free(&whole);
        reply_free(&pieces);
        free(path);
    }
    /* A picture cannot. */
    test_reply r =
        format_post(small_, LAYER, FORMAT_NPY, body.at, body.n, FIELDS("Accept: " FORMAT_PNG));
    format_expect(&r, 413, "application/problem+json");
    assert_non_null(strstr(r.body, "needed_bytes"));
    reply_free(&r);
    blob_free(&body);
    free(x);
}

static void python_reads_our_answers(void **state)
{
    static const char script[] =
        "import sys, numpy\n"
        "sys.path.insert(0, 'build/python')\n"
        "from safetensors.numpy import load_file\n"
        "d = sys.argv[1]\n"
        "t = load_file(d + '/answer.safetensors')\n"
        "o = numpy.load(d + '/answer.npy', allow_pickle=False)\n"
        "assert (t['outputs'] == o).all() and o.shape == (3, 9, 32), o.shape\n"
        "assert t['attentions'].dtype == numpy.uint8, t['attentions'].dtype\n"
        "sums = t['attentions'].sum(axis=-1) * 0.003921569\n"
        "assert abs(sums - 1).max() < 0.02, sums\n";
    (void)state;

    if (system("PYTHONPATH=build/python /usr/bin/python3 -c 'import safetensors.numpy' "
               "2>/dev/null") != 0) {
        printf("skipped: python reads our answers: numpy or safetensors is not there\n");
        skip();
    }
    test_reply r = post_json("", FORMAT_NPY);
    (void)scratch_write("answer.npy", r.body, r.body_bytes);
    reply_free(&r);
    r = post_json(",\"return_attentions\":{\"dtype\":\"uint8\"}", FORMAT_SAFETENSORS);
    (void)scratch_write("answer.safetensors", r.body, r.body_bytes);
    reply_free(&r);
    const char *path = scratch_write("read.py", script, sizeof script - 1);
    char *command = st_path("/usr/bin/python3 '%s' '%s'", path, scratch_dir());
    assert_int_equal(system(command), 0);
    free(command);
}

/* --- pictures ------------------------------------------------------------------------------------ */

typedef struct {
    const float *x;
    size_t rows, columns;
} maps;

static void row(void *arg, size_t map, size_t i, float *out)
{
    const maps *m = arg;
    memcpy(out, m->x + (map * m->rows + i) * m->columns, m->columns * sizeof *out);
}

/* The picture of these maps, drawn here. */
static void assert_picture(const test_reply *r, const float *x, const srv_png_options *o)
{
    maps m = {x, o->rows, o->columns};
    srv_png *p = NULL;
    attn_error err = {0};
    blob want = {0};
    char out[1000];

    format_expect(r, 200, FORMAT_PNG);
    assert_int_equal(srv_png_new(&p, o, row, &m, &err), ATTN_OK);
    for (ssize_t n = 1; n > 0;) {
        n = srv_png_read(p, out, sizeof out);
        assert_true(n >= 0);
        blob_add(&want, out, (size_t)n);
    }
    srv_png_free(p);
    assert_int_equal(want.n, r->body_bytes);
    assert_memory_equal(want.at, r->body, want.n);
    blob_free(&want);
}

static void a_picture_shows_the_cells_of_the_maps(void **state)
{
    test_reply json = post_json(",\"return_outputs\":false,"
                                "\"return_attentions\":true",
                                FORMAT_JSON);
    json_t *root = answer_parse(json.body, json.body_bytes);
    test_tensor all = answer_any(answer_get(root, "attentions"), "attentions");
    srv_png_options o = {B * HEADS, T, T, 1024 / (4 * T), SRV_VIRIDIS, SRV_PNG_ALL};
    (void)state;

    test_reply r = post_json("", FORMAT_PNG); /* maps are asked for by that alone */
    assert_picture(&r, all.data, &o);
    reply_free(&r);
    blob body = format_npy(x_, DIMS(T, D));
    o = (srv_png_options){1, T, T, 3, SRV_MAGMA, SRV_PNG_ROW};
    r = format_post(daemon_, LAYER "?scale=3&head=2&colormap=magma&range=row", FORMAT_NPY, body.at,
                    body.n, FIELDS("Accept: image/*"));
    assert_picture(&r, all.data + 2 * T * T, &o);
    reply_free(&r);
    static const struct {
        const char *query;
        long status;
        const char *word;
    } wrong[] = {{"?scale=0x3", 400, "scale"},    {"?colormap=viridsi", 400, "viridis"},
                 {"?range=rows", 400, "row"},     {"?head=4", 422, "0 to 3"},
                 {"?scale=1000", 422, "1000"},    {"?head=-1", 400, "head"},
                 {"?lenghts=[3]", 400, "lengths"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *path = st_path("%s%s", LAYER, wrong[i].query);
        r = format_post(daemon_, path, FORMAT_NPY, body.at, body.n, FIELDS("Accept: image/png"));
        format_expect(&r, wrong[i].status, "application/problem+json");
        if (strstr(r.body, wrong[i].word) == NULL)
            fail_msg("%s: no %s in %s", wrong[i].query, wrong[i].word, r.body);
        reply_free(&r);
        free(path);
    }
    blob_free(&body);
    answer_free(&all);
    json_decref(root);
    reply_free(&json);
}

static size_t bytes_of(const test_reply *r, const char *name)
{
    json_t *root = answer_parse(r->body, r->body_bytes);
    const json_t *v = answer_get(root, name);
    assert_true(json_is_integer(v));
    size_t n = (size_t)json_integer_value(v);
    json_decref(root);
    return n;
}

/* What a refusal says is needed is enough, to the byte, with all that a picture or gzip takes. */
static void what_an_answer_needs_is_enough(void **state)
{
    enum { LONG = 1600 };
    static const struct {
        const char *query, *const fields[4];
    } table[] = {{"", {"Accept: image/png"}},
                 {"?return_attentions=true",
                  {"Accept: application/vnd.safetensors", "Accept-Encoding: gzip, identity;q=0.1"}},
                 {"?return_attentions={%22top_k%22:300}", {"Accept-Encoding: gzip"}}};
    float *x = malloc(LONG * D * sizeof *x);
    uint32_t seed = 21;
    (void)state;

    assert_non_null(x);
    st_random(&seed, x, LONG * D);
    blob body = format_npy(x, DIMS(LONG, D));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *path = st_path("%s%s", LAYER, table[i].query);
        test_daemon *d = serve("1MiB");
        test_reply r = format_post(d, path, FORMAT_NPY, body.at, body.n, table[i].fields);
        assert_int_equal(r.status, 413);
        size_t needed = bytes_of(&r, "needed_bytes");
        reply_free(&r);
        daemon_stop(d);
        for (size_t less = 0; less < 2; less++) {
            char *budget = st_path("%zuB", needed - less);
            d = serve(budget);
            r = format_post(d, path, FORMAT_NPY, body.at, body.n, table[i].fields);
            assert_int_equal(r.status, less == 0 ? 200 : 413);
            if (less == 1)
                assert_int_equal(bytes_of(&r, "needed_bytes"), needed);
            reply_free(&r);
            daemon_stop(d);
            free(budget);
        }
        free(path);
    }
    blob_free(&body);
    free(x);
}

/* --- negotiation --------------------------------------------------------------------------------- */

static void accept_chooses_the_answer(void **state)
{
    static const struct {
        const char *accept, *type; /* NULL: 406 */
    } table[] = {{"*/*", FORMAT_JSON},
                 {"application/*", FORMAT_JSON},
                 {"image/*", FORMAT_PNG},
                 {"application/x-npy", FORMAT_NPY},
                 {"application/x-npy;q=0.9, application/json", FORMAT_JSON},
                 {"application/x-npy, application/json;q=0.9", FORMAT_NPY},
                 {"application/vnd.safetensors, */*;q=0.1", FORMAT_SAFETENSORS},
                 {"text/html, application/vnd.safetensors;q=0.1", FORMAT_SAFETENSORS},
                 {"application/json;q=0, */*", FORMAT_SAFETENSORS},
                 {"text/html", NULL},
                 {"application/json;q=0", NULL},
                 {"image/gif", NULL}};
    (void)state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        test_reply r = post_json("", table[i].accept);
        char *vary = reply_header(&r, "Vary");
        if (table[i].type != NULL) {
            format_expect(&r, 200, table[i].type);
        } else {
            format_expect(&r, 406, "application/problem+json");
            assert_non_null(strstr(r.body, FORMAT_NPY));
        }
        assert_non_null(vary);
        assert_string_equal(vary, "Accept, Accept-Encoding");
        free(vary);
        reply_free(&r);
    }
}

static void what_is_not_read_is_415_and_names_what_is(void **state)
{
    static const struct {
        const char *type, *field, *word;
    } table[] = {{"text/csv", NULL, FORMAT_NPY},
                 {"application/x-www-form-urlencoded", NULL, "--json"},
                 {FORMAT_JSON "; charset=latin1", NULL, "utf-8"},
                 {FORMAT_JSON, "Content-Encoding: br", "gzip"},
                 {FORMAT_JSON, "Content-Encoding: gzip, gzip", "gzip"},
                 {FORMAT_NPY, "Content-Encoding: deflate", "gzip"}};
    (void)state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        test_reply r = format_post(daemon_, LAYER, table[i].type, "{}", 2, FIELDS(table[i].field));
        format_expect(&r, 415, "application/problem+json");
        if (strcasestr(r.body, table[i].word) == NULL)
            fail_msg("no %s in %s", table[i].word, r.body);
        char *accept = reply_header(&r, table[i].field != NULL ? "Accept-Encoding" : "Accept");
        assert_non_null(accept);
        free(accept);
        reply_free(&r);
    }
}

static void a_body_without_a_type_is_json(void **state)
{
    char *body = format_json(x_, DIMS(B, T, D), "");
    test_reply a = format_post(daemon_, LAYER, NULL, body, strlen(body), NULL);
    test_reply b = format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body), NULL);
    (void)state;

    assert_same_answer(&a, &b);
    reply_free(&a);
    reply_free(&b);
    free(body);
}

/* --- gzip ---------------------------------------------------------------------------------------- */

static void answers_are_compressed_for_those_who_ask(void **state)
{
    static const struct {
        const char *accept, *encoding;
        bool packed;
    } table[] = {{FORMAT_JSON, "identity", false},
                 {FORMAT_JSON, "gzip", true},
                 {FORMAT_JSON, "gzip;q=0", false},
                 {FORMAT_JSON, "*", false},
                 {FORMAT_JSON, "br, gzip;q=0.2", true},
                 {FORMAT_SAFETENSORS, "gzip, deflate, br", false}, /* floats hardly shrink */
                 {FORMAT_NPY, "gzip", false},
                 {FORMAT_NPY, "gzip, identity;q=0.5", true}};
    char *body = format_json(x_, DIMS(B, T, D), "");
    (void)state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *accept = st_path("Accept: %s", table[i].accept);
        char *encoding = st_path("Accept-Encoding: %s", table[i].encoding);
        test_reply plain =
            format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body), FIELDS(accept));
        test_reply r =
            format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body), FIELDS(accept, encoding));
        char *coding = reply_header(&r, "Content-Encoding");
        format_expect(&r, 200, table[i].accept);
        if ((coding != NULL) != table[i].packed)
            fail_msg("%s for %s: %s", table[i].accept, table[i].encoding,
                     coding != NULL ? coding : "as it is");
        blob text = {0};
        if (coding != NULL)
            text = format_gunzip(r.body, r.body_bytes);
        else
            blob_add(&text, r.body, r.body_bytes);
        bool is_json = strcmp(table[i].accept, FORMAT_JSON) == 0;
        size_t n = is_json ? before_usage(&plain) : plain.body_bytes;
        assert_true(text.n >= n);
        assert_memory_equal(text.at, plain.body, n);
        blob_free(&text);
        free(coding);
        free(accept);
        free(encoding);
        reply_free(&plain);
        reply_free(&r);
    }
    test_reply r = format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body),
                               FIELDS("Accept-Encoding: identity;q=0, br"));
    format_expect(&r, 406, "application/problem+json");
    reply_free(&r);
    free(body);
}

static void damaged_and_bombs_are_refused(void **state)
{
    enum { BOMB = 100 << 20 };
    char *text = format_json(x_, DIMS(B, T, D), ""), *zeros = calloc(1, BOMB);
    blob good = format_gzip(text, strlen(text)), bomb, twice = {0}, cut = {0}, more = {0};
    (void)state;

    assert_non_null(zeros);
    memset(zeros, ' ', BOMB);
    bomb = format_gzip(zeros, BOMB);
    blob_add(&cut, good.at, good.n - 9);
    blob_add(&more, good.at, good.n);
    blob_add(&more, "more", 4);
    blob inner = format_gzip(good.at, good.n);
    blob_add(&twice, inner.at, inner.n);
    const struct {
        const blob *body;
        long status;
    } table[] = {{&cut, 400}, {&more, 400}, {&bomb, 413}, {&twice, 400}, {&good, 200}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        test_reply r = format_post(daemon_, LAYER, FORMAT_JSON, table[i].body->at, table[i].body->n,
                                   FIELDS("Content-Encoding: gzip"));
        if (r.status != table[i].status)
            fail_msg("case %zu: %ld %s", i, r.status, r.body);
        reply_free(&r);
    }
    blob_free(&good);
    blob_free(&bomb);
    blob_free(&twice);
    blob_free(&cut);
    blob_free(&more);
    blob_free(&inner);
    free(zeros);
    free(text);
}

/* --- hostile sizes ------------------------------------------------------------------------------- */

static void sizes_that_lie_are_refused(void **state)
{
    static const char *const shapes[] = {"1, 2, 33",
                                         "1, 2, 31",
                                         "1, -2, 32",
                                         "9223372036854775808, 2, 32",
                                         "4294967296, 4294967296, 32",
                                         "0, 18446744073709551615, 32",
                                         "1, 2, 32, 1, 1, 1, 1, 1, 1",
                                         "2, 32.0"};
    const st_entry one = {"inputs_embeds", "F32", 3, {1, 2, D}, x_, 256};
    (void)state;

    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        blob b = {0};
        char *header;
        if (i % 2 == 0) {
            header = st_path("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n",
                             shapes[i / 2]);
            blob_npy(&b, 1, header, x_, 256);
        } else {
            header = st_path("{\"inputs_embeds\":{\"dtype\":\"F32\",\"shape\":[%s],"
                             "\"data_offsets\":[0,256]}}",
                             shapes[i / 2]);
            blob_safetensors(&b, header, 256);
        }
        test_reply r = format_post(daemon_, LAYER, i % 2 == 0 ? FORMAT_NPY : FORMAT_SAFETENSORS,
                                   b.at, b.n, NULL);
        if (r.status != 400 && r.status != 422)
            fail_msg("%s: %ld %s", header, r.status, r.body);
        reply_free(&r);
        blob_free(&b);
        free(header);
    }
    for (int odd = -1; odd <= 1; odd += 2) { /* a byte short, a byte too many */
        blob npy = format_npy(x_, DIMS(1, 2, D)), st = format_safetensors(&one, 1, NULL);
        blob_add(&npy, "", 1);
        blob_add(&st, "", 1);
        size_t less = odd < 0 ? 2 : 0;
        test_reply r = format_post(daemon_, LAYER, FORMAT_NPY, npy.at, npy.n - less, NULL);
        format_expect(&r, 400, "application/problem+json");
        reply_free(&r);
        r = format_post(daemon_, LAYER, FORMAT_SAFETENSORS, st.at, st.n - less, NULL);
        format_expect(&r, 400, "application/problem+json");
        reply_free(&r);
        blob_free(&npy);
        blob_free(&st);
    }
    test_reply r = post_json("", FORMAT_NPY); /* and it goes on */
    format_expect(&r, 200, FORMAT_NPY);
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_body_says_the_same),
        cmocka_unit_test(attention_alone_takes_safetensors),
        cmocka_unit_test(safetensors_holds_the_numbers_of_json),
        cmocka_unit_test(npy_holds_the_one_tensor_that_is_asked_for),
        cmocka_unit_test(no_sequences_are_an_empty_array),
        cmocka_unit_test(a_ragged_batch_needs_json),
        cmocka_unit_test(tensors_leave_in_pieces),
        cmocka_unit_test(python_reads_our_answers),
        cmocka_unit_test(a_picture_shows_the_cells_of_the_maps),
        cmocka_unit_test(what_an_answer_needs_is_enough),
        cmocka_unit_test(accept_chooses_the_answer),
        cmocka_unit_test(what_is_not_read_is_415_and_names_what_is),
        cmocka_unit_test(a_body_without_a_type_is_json),
        cmocka_unit_test(answers_are_compressed_for_those_who_ask),
        cmocka_unit_test(damaged_and_bombs_are_refused),
        cmocka_unit_test(sizes_that_lie_are_refused),
    };
    return cmocka_run_group_tests_name("formats", tests, start, stop);
}
