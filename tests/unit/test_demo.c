/* The demo model: the same bytes every time, heads that do what their names say, computed here from
 * the written files by the formula, and layers that equal the files. */
#include "server/demo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/archive.h"
#include "core/attention.h"
#include "core/json.h"
#include "core/kern.h"
#include "core/model.h"
#include "server/demo_model.h"

enum {
    LAYERS = 2,
    H = 6,
    D = 16,
    E = 8,
    MOST_TOKENS = 16,
    POSITION = 1,
    NOUN = 4,
    VERB = 5,
    DOT = 7
};

/* Of all the demo's names and bytes; another one is a change that users of the demo see. */
#define KNOWN_HASH 0x4ca9372ddb31c443ULL

static char folder[64]; /* a fresh one for each test, with the demo in it */
static attn_archive *archive;

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    attn_error err = {0};
    (void)state;
    (void)snprintf(folder, sizeof folder, "%.30s/attnd-demo-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        return -1;
    if (srv_demo_write(folder, &err) != ATTN_OK)
        print_error("%s\n", err.text);
    return attn_archive_open(&archive, folder, NULL) == ATTN_OK ? 0 : -1;
}

static char *in_folder(const char *name)
{
    static char path[320];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int teardown(void **state)
{
    (void)state;
    attn_archive_close(archive);
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *bytes = NULL;
        size_t n = 0;
        if (srv_demo_file(i, &name, &bytes, &n, NULL) == ATTN_OK)
            (void)unlink(in_folder(name));
        free(bytes);
    }
    (void)rmdir(in_folder("examples"));
    return rmdir(folder);
}

static char *slurp(const char *name, size_t *n)
{
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 1 << 20, f);
    (void)fclose(f);
    return bytes;
}

/* --- files ------------------------------------------------------------------------------------- */

static void files_have_the_same_bytes_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *a = NULL, *b = NULL;
        size_t na = 0, nb = 0, nw = 0;
        assert_int_equal(srv_demo_file(i, &name, &a, &na, NULL), ATTN_OK);
        assert_int_equal(srv_demo_file(i, &name, &b, &nb, NULL), ATTN_OK);
        char *written = slurp(name, &nw);
        assert_int_equal(na, nb);
        assert_int_equal(na, nw);
        assert_memory_equal(a, b, na);
        assert_memory_equal(a, written, na);
        free(a);
        free(b);
        free(written);
    }
}

/* FNV-1a of all names and bytes. The files are the same on every machine and in every build. */
static void files_have_the_known_bytes(void **state)
{
    uint64_t hash = 0xcbf29ce484222325;
    (void)state;
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *bytes = NULL;
        size_t n = 0;
        assert_int_equal(srv_demo_file(i, &name, &bytes, &n, NULL), ATTN_OK);
        for (size_t c = 0; c < strlen(name) + 1; c++)
            hash = (hash ^ (unsigned char)name[c]) * 0x100000001b3;
        for (size_t c = 0; c < n; c++)
            hash = (hash ^ (unsigned char)bytes[c]) * 0x100000001b3;
        free(bytes);
    }
    if (hash != KNOWN_HASH)
        print_error("the files' hash is 0x%016llx\n", (unsigned long long)hash);
    assert_true(hash == KNOWN_HASH);
}

static void writing_again_is_fine(void **state)
{
    (void)state;
    assert_int_equal(unlink(in_folder("config.json")), 0); /* one is missing, the others are ours */
    assert_int_equal(srv_demo_write(folder, NULL), ATTN_OK);
    assert_int_equal(access(in_folder("config.json"), R_OK), 0);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void a_foreign_file_is_refused_and_nothing_written(void **state)
{
    attn_error err = {0};
    (void)state;
    assert_int_equal(unlink(in_folder("config.json")), 0);
    put("notes.txt", "mine");
    assert_int_equal(srv_demo_write(folder, &err), ATTN_EINVAL);
    assert_non_null(strstr(err.text, "notes.txt"));
    assert_non_null(strstr(err.text, folder));
    assert_int_equal(access(in_folder("config.json"), F_OK), -1);
    assert_int_equal(unlink(in_folder("notes.txt")), 0);

    put("examples/mine.json", "{}");
    err = (attn_error){0};
    assert_int_equal(srv_demo_write(folder, &err), ATTN_EINVAL);
    assert_non_null(strstr(err.text, "examples/mine.json"));
    assert_int_equal(access(in_folder("config.json"), F_OK), -1);
    assert_int_equal(unlink(in_folder("examples/mine.json")), 0);
}

static void a_changed_file_is_refused_and_kept(void **state)
{
    attn_error err = {0};
    size_t n = 0;
    (void)state;
    put("config.json", "{}");
    assert_int_equal(srv_demo_write(folder, &err), ATTN_EINVAL);
    assert_non_null(strstr(err.text, "config.json"));
    char *kept = slurp("config.json", &n);
    assert_int_equal(n, 2);
    free(kept);
}

static void a_folder_that_cannot_be_made_is_named_with_the_reason(void **state)
{
    attn_error err = {0};
    (void)state;
    assert_int_equal(srv_demo_write(in_folder("no/such"), &err), ATTN_EIO);
    assert_non_null(strstr(err.text, in_folder("no/such")));
    assert_non_null(strstr(err.text, "No such file or directory"));
    err = (attn_error){0};
    assert_int_equal(srv_demo_write(in_folder("config.json"), &err), ATTN_EIO);
    assert_non_null(strstr(err.text, "Not a directory"));
}

/* --- heads ------------------------------------------------------------------------------------- */

static float *tensor(size_t layer, const char *name, size_t count)
{
    char full[64];
    (void)snprintf(full, sizeof full, "layers.%zu.%s.weight", layer, name);
    const attn_tensor *t = attn_archive_find(archive, full);
    assert_non_null(t);
    assert_int_equal(t->count, count);
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    assert_int_equal(attn_archive_read_f32(archive, t, x, NULL), ATTN_OK);
    return x;
}

/* One sentence of an example, and the maps of both layers by the formula, from the files' numbers. */
typedef struct {
    size_t n;
    const char *token[MOST_TOKENS];
    double x[MOST_TOKENS][D];
    double map[LAYERS][H][MOST_TOKENS][MOST_TOKENS];
} sentence;

static void softmax(double *row, size_t n)
{
    double max = row[0], sum = 0.0;
    for (size_t j = 1; j < n; j++)
        max = row[j] > max ? row[j] : max;
    for (size_t j = 0; j < n; j++)
        sum += row[j] = exp(row[j] - max);
    for (size_t j = 0; j < n; j++)
        row[j] /= sum;
}

static void compute_maps(sentence *s)
{
    for (size_t l = 0; l < LAYERS; l++) {
        float *wq = tensor(l, "wq", (size_t)H * D * D), *wk = tensor(l, "wk", (size_t)D * D);
        for (size_t h = 0; h < H; h++) {
            for (size_t i = 0; i < s->n; i++) {
                for (size_t j = 0; j < s->n; j++) {
                    double score = 0.0;
                    for (size_t d = 0; d < D; d++) {
                        double q = 0.0, k = 0.0;
                        for (size_t c = 0; c < D; c++) {
                            q += (double)wq[(h * D + d) * D + c] * s->x[i][c];
                            k += (double)wk[d * D + c] * s->x[j][c];
                        }
                        score += q * k;
                    }
                    s->map[l][h][i][j] = score;
                }
                softmax(s->map[l][h][i], s->n);
            }
        }
        free(wq);
        free(wk);
    }
}

static void read_sentence(sentence *s, const attn_json *embeds, const attn_json *tokens)
{
    s->n = attn_json_length(tokens);
    assert_in_range(s->n, 8, 14);
    assert_int_equal(attn_json_length(embeds), s->n);
    for (size_t i = 0; i < s->n; i++) {
        const attn_json *row = attn_json_at(embeds, i);
        assert_true(attn_json_string(attn_json_at(tokens, i), &s->token[i]));
        assert_int_equal(attn_json_length(row), D);
        for (size_t c = 0; c < D; c++)
            assert_true(attn_json_number(attn_json_at(row, c), &s->x[i][c]));
    }
}

/* Calls `claim` for every sentence of every example. */
static void for_each_sentence(void (*claim)(const sentence *s))
{
    size_t sentences = 0;
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *bytes = NULL;
        size_t n = 0;
        attn_json *root = NULL;
        assert_int_equal(srv_demo_file(i, &name, &bytes, &n, NULL), ATTN_OK);
        free(bytes);
        if (strncmp(name, "examples/", 9) != 0)
            continue;
        assert_int_equal(attn_json_read_file(&root, in_folder(name), 1 << 20, NULL), ATTN_OK);
        const attn_json *embeds = attn_json_get(root, "inputs_embeds");
        const attn_json *tokens = attn_json_get(root, "tokens");
        assert_int_equal(attn_json_length(embeds), attn_json_length(tokens));
        for (size_t b = 0; b < attn_json_length(embeds); b++) {
            sentence *s = calloc(1, sizeof *s);
            assert_non_null(s);
            read_sentence(s, attn_json_at(embeds, b), attn_json_at(tokens, b));
            compute_maps(s);
            claim(s);
            free(s);
            sentences++;
        }
        attn_json_free(root);
    }
    assert_int_equal(sentences, 6);
}

static bool same(const sentence *s, size_t i, size_t j)
{
    return strcmp(s->token[i], s->token[j]) == 0;
}

static size_t apart(size_t i, size_t j)
{
    return i > j ? i - j : j - i;
}

/* The row's weight on the keys that are marked. */
static double weight(const double *row, size_t n, const bool *marked)
{
    double sum = 0.0;
    for (size_t j = 0; j < n; j++)
        sum += marked[j] ? row[j] : 0.0;
    return sum;
}

static void check_places(const sentence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t previous = i < 1 ? 0 : i - 1, back = i < 2 ? 0 : i - 2;
        size_t next = i + 1 < s->n ? i + 1 : i;
        assert_true(s->map[0][0][i][previous] > 0.9);
        assert_true(s->map[0][2][i][0] > 0.9);
        assert_true(s->map[1][0][i][next] > 0.9);
        assert_true(s->map[1][1][i][back] > 0.9);
    }
}

static void place_heads_attend_to_their_place(void **state)
{
    (void)state;
    for_each_sentence(check_places);
}

static void check_window(const sentence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const double *row = s->map[0][3][i];
        bool near[MOST_TOKENS] = {false};
        for (size_t j = 0; j < s->n; j++) {
            near[j] = apart(i, j) <= 2;
            assert_true(j == i || row[j] < row[i]);
            assert_true(!near[j] || row[j] > 0.08);
        }
        assert_true(weight(row, s->n, near) > 0.9);
    }
}

static void the_window_holds_two_tokens_on_each_side(void **state)
{
    (void)state;
    for_each_sentence(check_window);
}

static void check_alike(const sentence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < s->n; j++)
            assert_true(s->map[0][5][i][j] == 1.0 / (double)s->n);
    }
}

static void everything_alike_is_uniform(void **state)
{
    (void)state;
    for_each_sentence(check_alike);
}

static void check_same(const sentence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        bool token[MOST_TOKENS] = {false}, kind[MOST_TOKENS] = {false}, far[MOST_TOKENS] = {false};
        size_t farthest = 0, count = 0;
        for (size_t j = 0; j < s->n; j++) {
            token[j] = same(s, i, j);
            count += token[j];
            kind[j] = memcmp(s->x[i] + 3, s->x[j] + 3, 5 * sizeof(double)) == 0;
            farthest = token[j] && apart(i, j) > farthest ? apart(i, j) : farthest;
        }
        assert_true(weight(s->map[0][1][i], s->n, token) > 0.9);
        assert_true(weight(s->map[0][4][i], s->n, kind) > 0.9);
        for (size_t j = 0; j < s->n; j++) {
            far[j] = token[j] && apart(i, j) == farthest;
            if (token[j]) /* they share alike */
                assert_true(fabs(s->map[0][1][i][j] * (double)count - 1.0) < 0.1);
        }
        assert_true(weight(s->map[1][5][i], s->n, far) > 0.9);
    }
}

static void same_heads_attend_to_equal_tokens_and_kinds(void **state)
{
    (void)state;
    for_each_sentence(check_same);
}

/* Marks the tokens of the kind flagged at x[flag] that are nearest to token i. */
static void mark_nearest(const sentence *s, size_t i, size_t flag, bool *marked)
{
    size_t best = SIZE_MAX;
    for (size_t j = 0; j < s->n; j++) {
        if (s->x[j][flag] == 1.0 && apart(i, j) < best)
            best = apart(i, j);
    }
    assert_true(best != SIZE_MAX); /* every sentence has a noun and a verb */
    for (size_t j = 0; j < s->n; j++)
        marked[j] = s->x[j][flag] == 1.0 && apart(i, j) == best;
}

static void check_kinds(const sentence *s)
{
    for (size_t i = 0; i < s->n; i++) {
        bool noun[MOST_TOKENS] = {false}, verb[MOST_TOKENS] = {false}, dot[MOST_TOKENS] = {false};
        mark_nearest(s, i, NOUN, noun);
        mark_nearest(s, i, VERB, verb);
        for (size_t j = 0; j < s->n; j++)
            dot[j] = strchr(".,?", s->token[j][0]) != NULL;
        assert_true(weight(s->map[1][2][i], s->n, noun) > 0.9);
        assert_true(weight(s->map[1][3][i], s->n, verb) > 0.9);
        assert_true(weight(s->map[1][4][i], s->n, dot) > 0.9);
    }
}

static void kind_heads_attend_to_their_kind(void **state)
{
    (void)state;
    for_each_sentence(check_kinds);
}

static void check_repeats(const sentence *s)
{
    size_t pairs = 0;
    for (size_t i = 0; i < s->n; i++) {
        assert_true(s->x[i][POSITION] == (double)i);
        assert_true((s->x[i][DOT] == 1.0) == (strchr(".,?", s->token[i][0]) != NULL));
        for (size_t j = 0; j < i; j++) {
            pairs += same(s, i, j);
            assert_int_equal(same(s, i, j),
                             memcmp(s->x[i] + E, s->x[j] + E, E * sizeof(double)) == 0);
        }
    }
    assert_true(pairs > 0);
}

static void every_sentence_repeats_a_token_and_numbers_its_places(void **state)
{
    (void)state;
    for_each_sentence(check_repeats);
}

static void every_name_of_a_head_is_in_the_configuration(void **state)
{
    attn_json *root = NULL;
    const char *name = NULL;
    (void)state;
    assert_int_equal(attn_json_read_file(&root, in_folder("config.json"), 1 << 20, NULL), ATTN_OK);
    const attn_json *names = attn_json_get(root, "head_names");
    assert_int_equal(attn_json_length(names), LAYERS);
    for (size_t l = 0; l < LAYERS; l++) {
        assert_int_equal(attn_json_length(attn_json_at(names, l)), H);
        for (size_t h = 0; h < H; h++) {
            assert_true(attn_json_string(attn_json_at(attn_json_at(names, l), h), &name));
            assert_string_equal(name, srv_demo_head_name(l, h));
        }
    }
    attn_json_free(root);
}

/* --- layers ------------------------------------------------------------------------------------ */

/* Output [n,D] and maps [H,n,n] of core. */
static void forward(const attn_layer *layer, const sentence *s, float *output, float *maps)
{
    attn_error err = {0};
    attn_pool *pool = NULL;
    void *workspace = NULL;
    float x[MOST_TOKENS * D];
    attn_options o = {
        .scale = attn_layer_get_spec(layer)->scale, .window = {-1, -1}, .want_maps = true};
    attn_stats stats = {0};

    for (size_t i = 0; i < s->n * D; i++)
        x[i] = (float)s->x[i / D][i % D];
    o.num_heads = H;
    attn_sequence q = {.q_len = s->n, .kv_len = s->n, .x = x, .output = output};
    q.map_rows = q.map_columns = s->n;
    q.maps = (attn_view){maps, s->n * s->n, s->n};
    size_t bytes =
        attn_sequence_bytes(layer, NULL, &q) + attn_scratch_bytes(layer, NULL, &o, s->n, 1);
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    assert_int_equal(attn_pool_new(&pool, 1, false, NULL), ATTN_OK);
    if (attn_forward(layer, NULL, &o, &q, 1, pool, workspace, NULL, &stats, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    attn_pool_free(pool);
    free(workspace);
}

static void free_layers(attn_layer **layers, size_t n)
{
    for (size_t l = 0; l < n; l++)
        attn_layer_free(layers[l]);
    free(layers);
}

static void check_core(const sentence *s)
{
    attn_layer **layers = NULL;
    size_t n = 0;
    float output[MOST_TOKENS * D], maps[H * MOST_TOKENS * MOST_TOKENS];

    assert_int_equal(srv_demo_layers(&layers, &n, NULL), ATTN_OK);
    assert_int_equal(n, LAYERS);
    for (size_t l = 0; l < n; l++) {
        float *wv = tensor(l, "wv", (size_t)E * D), *wo = tensor(l, "wo", (size_t)D * H * E);
        forward(layers[l], s, output, maps);
        for (size_t i = 0; i < s->n; i++) {
            double context[H * E] = {0.0};
            for (size_t h = 0; h < H; h++) {
                for (size_t j = 0; j < s->n; j++) {
                    double w = s->map[l][h][i][j];
                    /* Scores are exact in float32; exp and the division round a few times. */
                    assert_true(fabs((double)maps[(h * s->n + i) * s->n + j] - w) < 1e-6);
                    for (size_t e = 0; e < E; e++) {
                        for (size_t c = 0; c < D; c++)
                            context[h * E + e] += w * (double)wv[e * D + c] * s->x[j][c];
                    }
                }
            }
            for (size_t d = 0; d < D; d++) {
                double y = 0.0;
                for (size_t c = 0; c < (size_t)H * E; c++)
                    y += (double)wo[d * H * E + c] * context[c];
                assert_true(fabs((double)output[i * D + d] - y) < 1e-5);
            }
        }
        free(wv);
        free(wo);
    }
    free_layers(layers, n);
}

static void the_layers_compute_what_the_files_say(void **state)
{
    (void)state;
    for_each_sentence(check_core);
}

static void check_loaded(const sentence *s)
{
    attn_error err = {0};
    attn_layer **layers = NULL;
    attn_model *m = NULL;
    size_t n = 0;
    float a[MOST_TOKENS * D], b[MOST_TOKENS * D];
    float maps_a[H * MOST_TOKENS * MOST_TOKENS], maps_b[H * MOST_TOKENS * MOST_TOKENS];

    assert_int_equal(srv_demo_layers(&layers, &n, NULL), ATTN_OK);
    attn_model_options o = {.name = "demo", .path = folder};
    if (attn_model_load(&m, &o, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    assert_string_equal(attn_model_family(m), "attnd");
    assert_int_equal(attn_model_warning_count(m), 0);
    assert_int_equal(attn_model_layer_count(m), n);
    for (size_t l = 0; l < n; l++) {
        const attn_layer_spec *p = attn_layer_get_spec(layers[l]);
        const attn_layer_spec *q = attn_layer_get_spec(attn_model_layer(m, l));
        assert_string_equal(attn_model_layer_position(m, l), "none");
        assert_true(p->d_model == q->d_model && p->d_kv == q->d_kv && p->d_out == q->d_out);
        assert_true(p->num_heads == q->num_heads && p->num_kv_heads == q->num_kv_heads);
        assert_true(p->head_dim == q->head_dim && p->v_head_dim == q->v_head_dim);
        assert_true(p->scale == q->scale && p->softcap == q->softcap);
        assert_true(p->is_causal == q->is_causal && p->cross == q->cross && p->alibi == q->alibi);
        assert_true(p->window.left == q->window.left && p->window.right == q->window.right);
        assert_true(p->rope.style == q->rope.style && p->rel_buckets == q->rel_buckets);
        assert_true(p->qk_norm_eps == q->qk_norm_eps);
        forward(layers[l], s, a, maps_a);
        forward(attn_model_layer(m, l), s, b, maps_b);
        assert_memory_equal(a, b, s->n * D * sizeof *a);
        assert_memory_equal(maps_a, maps_b, H * s->n * s->n * sizeof *maps_a);
    }
    attn_model_free(m);
    free_layers(layers, n);
}

static void the_layers_equal_the_loaded_folder(void **state)
{
    (void)state;
    for_each_sentence(check_loaded);
}

#define TEST(claim) cmocka_unit_test_setup_teardown(claim, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_have_the_same_bytes_twice),
        TEST(files_have_the_known_bytes),
        TEST(writing_again_is_fine),
        TEST(a_foreign_file_is_refused_and_nothing_written),
        TEST(a_changed_file_is_refused_and_kept),
        TEST(a_folder_that_cannot_be_made_is_named_with_the_reason),
        TEST(place_heads_attend_to_their_place),
        TEST(the_window_holds_two_tokens_on_each_side),
        TEST(everything_alike_is_uniform),
        TEST(same_heads_attend_to_equal_tokens_and_kinds),
        TEST(kind_heads_attend_to_their_kind),
        TEST(every_sentence_repeats_a_token_and_numbers_its_places),
        TEST(every_name_of_a_head_is_in_the_configuration),
        TEST(the_layers_compute_what_the_files_say),
        TEST(the_layers_equal_the_loaded_folder),
    };
    if (attn_kern_init(NULL, NULL) != ATTN_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
