#include "core/archive.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/scratch.h"

/* A safetensors file of float32 tensors [2]: the names in `names`, one character each; the first
 * tensor holds first, first + 1, the next goes on from there. */
static const char *shard(const char *path, const char *names, float first)
{
    blob header = {0}, file = {0};
    char entry[96];

    for (size_t i = 0; names[i] != '\0'; i++) {
        (void)snprintf(entry, sizeof entry,
                       "%s\"%c\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}",
                       i == 0 ? "{" : ",", names[i], 8 * i, 8 * i + 8);
        blob_text(&header, entry);
    }
    blob_add(&header, "}", 2);
    blob_safetensors(&file, (const char *)header.at, 0);
    for (size_t i = 0; i < 2 * strlen(names); i++) {
        float x = first + (float)i;
        blob_add(&file, &x, sizeof x);
    }
    path = scratch_write(path, file.at, file.n);
    blob_free(&header);
    blob_free(&file);
    return path;
}

static const char *text_file(const char *path, const char *text)
{
    return scratch_write(path, text, strlen(text));
}

static attn_archive *open_ok(const char *path)
{
    attn_archive *a = NULL;
    attn_error err = {0};
    if (attn_archive_open(&a, path, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return a;
}

/* `sentence` stands behind the scratch folder and its '/'. */
static void refused(const char *path, attn_status code, const char *sentence)
{
    attn_archive *a = NULL;
    attn_error err = {0};
    size_t n = strlen(scratch_dir()) + 1;

    assert_int_equal(attn_archive_open(&a, path, &err), code);
    assert_null(a);
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.text, scratch_dir(), n - 1), 0);
    assert_string_equal(err.text + n, sentence);
}

static void holds(const attn_archive *a, const char *name, float first)
{
    float out[2] = {0};
    const attn_tensor *t = attn_archive_find(a, name);

    assert_non_null(t);
    assert_int_equal(attn_archive_read_f32(a, t, out, NULL), ATTN_OK);
    assert_true(out[0] == first && out[1] == first + 1);
}

static void a_folder_without_index_is_all_its_files_together(void **state)
{
    const char *folder = scratch_mkdir("merge");
    (void)state;
    shard("merge/model-2.safetensors", "ca", 10);
    shard("merge/model-1.safetensors", "bd", 20);
    text_file("merge/config.json", "{}");
    text_file("merge/._model-1.safetensors", "hidden files are not ours");
    attn_archive *a = open_ok(folder);
    assert_int_equal(attn_archive_count(a), 4);
    for (size_t i = 1; i < 4; i++)
        assert_true(strcmp(attn_archive_at(a, i - 1)->name, attn_archive_at(a, i)->name) < 0);
    holds(a, "c", 10);
    holds(a, "a", 12);
    holds(a, "b", 20);
    holds(a, "d", 22);
    assert_non_null(strstr(attn_archive_find(a, "a")->file, "/merge/model-2.safetensors"));
    attn_archive_close(a);

    shard("merge/model-3.safetensors", "ea", 30);
    attn_archive *none = NULL;
    attn_error err = {0};
    assert_int_equal(attn_archive_open(&none, folder, &err), ATTN_EFORMAT);
    assert_non_null(strstr(err.text, "tensor \"a\" is also in "));
    assert_non_null(strstr(err.text, "model-2.safetensors"));
    assert_non_null(strstr(err.text, "model-3.safetensors"));
}

static void a_slash_at_the_end_of_a_folder_does_not_matter(void **state)
{
    char path[512];
    (void)state;
    scratch_mkdir("slash");
    shard("slash/model.safetensors", "a", 1);
    (void)snprintf(path, sizeof path, "%s/", scratch_path("slash"));
    attn_archive *a = open_ok(path);
    holds(a, "a", 1);
    assert_null(strstr(attn_archive_at(a, 0)->file, "//"));
    attn_archive_close(a);
}

static void an_index_names_its_shards(void **state)
{
    const char *folder = scratch_mkdir("index");
    const char *index = text_file("index/model.safetensors.index.json",
                                  "{\"metadata\":{\"total_size\":32},\"weight_map\":{"
                                  "\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\","
                                  "\"c\":\"m1.safetensors\"}}");
    (void)state;
    shard("index/m1.safetensors", "ac", 1);
    shard("index/m2.safetensors", "bx", 5);
    text_file("index/other.safetensors", "not of this model");
    for (int i = 0; i < 2; i++) {
        attn_archive *a = open_ok(i == 0 ? folder : index);
        assert_int_equal(attn_archive_count(a), 4);
        holds(a, "a", 1);
        holds(a, "c", 3);
        holds(a, "b", 5);
        holds(a, "x", 7); /* not in the map, but in the file */
        attn_archive_close(a);
    }
}

static void b12_missing_shards_are_all_named_on_one_line(void **state)
{
    const char *folder = scratch_mkdir("missing");
    (void)state;
    text_file("missing/model.safetensors.index.json",
              "{\"weight_map\":{\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\","
              "\"c\":\"m3.safetensors\",\"d\":\"m2.safetensors\"}}");
    shard("missing/m1.safetensors", "a", 1);
    refused(folder, ATTN_ENOTFOUND,
            "missing/model.safetensors.index.json: 2 files are missing: m2.safetensors, "
            "m3.safetensors");
    shard("missing/m3.safetensors", "c", 1);
    refused(folder, ATTN_ENOTFOUND,
            "missing/model.safetensors.index.json: 1 file is missing: m2.safetensors");
    text_file("missing/m2.safetensors", "");
    refused(folder, ATTN_EFORMAT, "missing/m2.safetensors: is empty (0 bytes)");
    shard("missing/m2.safetensors", "db", 1);
    attn_archive_close(open_ok(folder));
}

static void b12_more_missing_shards_than_a_sentence_holds_are_counted(void **state)
{
    blob b = {0};
    char entry[64];
    attn_archive *a = NULL;
    attn_error err = {0};
    (void)state;
    blob_text(&b, "{\"weight_map\":{");
    for (int i = 0; i < 200; i++) {
        (void)snprintf(entry, sizeof entry, "%s\"%d\":\"m-%05d-of-00200.safetensors\"",
                       i > 0 ? "," : "", i, i);
        blob_text(&b, entry);
    }
    blob_text(&b, "}}");
    assert_int_equal(attn_archive_open(&a, scratch_write("many.index.json", b.at, b.n), &err),
                     ATTN_ENOTFOUND);
    assert_non_null(strstr(err.text, ": 200 files are missing: m-00000-of-00200.safetensors, "));
    assert_non_null(strstr(err.text, " and 190 more"));
    blob_free(&b);
}

static void b12_the_map_must_be_true(void **state)
{
    const char *folder = scratch_mkdir("map");
    (void)state;
    shard("map/m1.safetensors", "ac", 1);
    shard("map/m2.safetensors", "b", 5);
    text_file("map/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m1.safetensors\","
                                                  "\"z\":\"m2.safetensors\"}}");
    refused(folder, ATTN_EFORMAT, "map: tensor \"z\" is not in m2.safetensors");
    text_file("map/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m2.safetensors\","
                                                  "\"c\":\"m1.safetensors\"}}");
    refused(folder, ATTN_EFORMAT,
            "map: tensor \"a\" is not in m2.safetensors but in "
            "m1.safetensors");
    shard("map/m2.safetensors", "bc", 5);
    text_file("map/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m1.safetensors\","
                                                  "\"b\":\"m2.safetensors\"}}");
    attn_archive *a = NULL;
    attn_error err = {0};
    assert_int_equal(attn_archive_open(&a, folder, &err), ATTN_EFORMAT);
    assert_non_null(strstr(err.text, ": tensor \"c\" is also in "));
}

static void b12_only_plain_names_beside_the_index_are_followed(void **state)
{
    static const char *const bad[] = {"../x.safetensors",
                                      "/x.safetensors",
                                      "a\\\\x.safetensors",
                                      "a/x.safetensors",
                                      "..",
                                      ".",
                                      "",
                                      ".x.safetensors",
                                      "pytorch_model.bin"};
    (void)state;
    shard("x.safetensors", "a", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[96];
        attn_archive *a = NULL;
        attn_error err = {0};
        (void)snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", bad[i]);
        assert_int_equal(attn_archive_open(&a, text_file("p.index.json", text), &err),
                         ATTN_EFORMAT);
        assert_non_null(strstr(err.text, "not the name of a .safetensors file in the same "
                                         "folder"));
    }
    refused(text_file("p.index.json", "{\"weight_map\":{\"a\":1}}"), ATTN_EFORMAT,
            "p.index.json: the file of tensor \"a\" is an integer, not a string");
    refused(text_file("p.index.json", "{\"weight_map\":{}}"), ATTN_EFORMAT,
            "p.index.json: weight_map is empty, not an object of tensor and file names");
    refused(text_file("p.index.json", "{}"), ATTN_EFORMAT,
            "p.index.json: weight_map is nothing, not an object of tensor and file names");
    refused(text_file("p.index.json", "[]"), ATTN_EFORMAT,
            "p.index.json: weight_map is nothing, not an object of tensor and file names");
    refused(text_file("p.index.json", "{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}"), ATTN_EFORMAT,
            "p.index.json: line 1, column 26: the key \"a\" stands twice");
}

static void beside_a_whole_file_an_index_counts_only_with_all_its_shards(void **state)
{
    const char *folder = scratch_mkdir("both");
    (void)state;
    text_file("both/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m1.safetensors\"}}");
    shard("both/model.safetensors", "a", 1);
    attn_archive *a = open_ok(folder);
    holds(a, "a", 1);
    attn_archive_close(a);
    shard("both/m1.safetensors", "a", 50);
    a = open_ok(folder);
    holds(a, "a", 50);
    assert_int_equal(attn_archive_count(a), 1);
    attn_archive_close(a);
    text_file("both/model.safetensors.index.json", "{");
    attn_error err = {0};
    assert_int_equal(attn_archive_open(&a, folder, &err), ATTN_EFORMAT);
    assert_null(a);
}

static void a_folder_with_one_npz_is_that(void **state)
{
    /* The smallest zip: no members. What is asked for here is which file is taken. */
    static const char empty_zip[22] = "PK\005\006";
    const char *folder = scratch_mkdir("npz");
    (void)state;
    refused(folder, ATTN_ENOTFOUND, "npz: holds no .safetensors and no .npz file");
    scratch_write("npz/w.npz", empty_zip, sizeof empty_zip);
    refused(folder, ATTN_EFORMAT, "npz/w.npz: holds no .npy member");
    scratch_write("npz/v.npz", empty_zip, sizeof empty_zip);
    refused(folder, ATTN_EINVAL,
            "npz: holds 2 .npz files (v.npz, w.npz, ...): give the path of one");
    shard("npz/model.safetensors", "a", 1);
    attn_archive_close(open_ok(folder));
}

static void b02_a_folder_of_another_kind_names_what_it_holds(void **state)
{
    const char *folder = scratch_mkdir("torch");
    (void)state;
    text_file("torch/config.json", "{}");
    text_file("torch/pytorch_model.bin", "PK");
    refused(folder, ATTN_ENOTFOUND,
            "torch: holds no .safetensors and no .npz file; pytorch_model.bin is of a kind that is "
            "not read");
}

static void what_is_no_regular_file_is_refused_without_waiting(void **state)
{
    const char *fifo = scratch_path("pipe.safetensors");
    (void)state;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refused(fifo, ATTN_EIO, "pipe.safetensors: is not a regular file");
    refused(scratch_path("absent.safetensors"), ATTN_EIO,
            "absent.safetensors: cannot be opened: No such file or directory");
    const char *folder = scratch_mkdir("odd");
    scratch_mkdir("odd/w.safetensors");
    refused(folder, ATTN_EIO, "odd/w.safetensors: is a folder, not a file");
    if (geteuid() == 0) {
        print_message("skipped: unreadable file: root reads every file\n");
        return;
    }
    const char *locked = shard("locked.safetensors", "a", 1);
    assert_int_equal(chmod(locked, 0), 0);
    refused(locked, ATTN_EIO, "locked.safetensors: cannot be opened: Permission denied");
}

static void content_decides_where_the_name_says_nothing(void **state)
{
    blob b = {0};
    (void)state;
    blob_npy(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
             "\0\0\x80\x3f\0\0\0\x40", 8);
    attn_archive *a = open_ok(scratch_write("0123abcd", b.at, b.n));
    holds(a, "0123abcd", 1);
    attn_archive_close(a);
    a = open_ok(shard("blob", "a", 1));
    holds(a, "a", 1);
    attn_archive_close(a);
    refused(scratch_write("w.bin", "PK\003\004", 4), ATTN_EFORMAT,
            "w.bin: is cut: it starts as a zip archive, but has no directory at its end");
    blob_free(&b);
}

static void b20_a_file_renamed_over_the_path_changes_nothing(void **state)
{
    const char *path = shard("w.safetensors", "a", 1);
    attn_archive *a = open_ok(path);
    (void)state;
    assert_int_equal(rename(shard("new.safetensors", "a", 100), path), 0);
    holds(a, "a", 1);
    attn_archive_close(a);
    a = open_ok(path);
    holds(a, "a", 100);
    attn_archive_close(a);
}

static void b20_a_file_cut_or_rewritten_while_open_is_an_error(void **state)
{
    const char *path = shard("w.safetensors", "ab", 1);
    attn_archive *a = open_ok(path);
    attn_error err = {0};
    float out[2];
    struct stat st;
    char want[512];
    (void)state;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 4), 0);
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "b"), out, &err), ATTN_EIO);
    (void)snprintf(want, sizeof want,
                   "%s: ends at byte %ld, 4 bytes early: it had %ld bytes when it was opened "
                   "(tensor \"b\")",
                   path, (long)st.st_size - 4, (long)st.st_size);
    assert_string_equal(err.text, want);
    err = (attn_error){0};
    assert_int_equal(attn_archive_read_raw(a, attn_archive_find(a, "a"), out, &err), ATTN_EIO);
    (void)snprintf(want, sizeof want,
                   "%s: changed while it was read: it had %ld bytes, now %ld (tensor \"a\")", path,
                   (long)st.st_size, (long)st.st_size - 4);
    assert_string_equal(err.text, want);

    shard("w.safetensors", "ab", 70); /* the same size again, other bytes */
    const struct timespec times[2] = {{0, UTIME_NOW}, {st.st_mtim.tv_sec + 1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    err = (attn_error){0};
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "a"), out, &err), ATTN_EIO);
    (void)snprintf(want, sizeof want, "%s: was written to while it was read (tensor \"a\")", path);
    assert_string_equal(err.text, want);
    attn_archive_close(a);
}

enum { READERS = 4, ROUNDS = 50 };

static void *read_often(void *arg)
{
    const attn_archive *a = arg;
    size_t wrong = 0;

    for (int i = 0; i < ROUNDS; i++) {
        for (size_t k = 0; k < attn_archive_count(a); k++) {
            float out[2] = {0};
            if (attn_archive_read_f32(a, attn_archive_at(a, k), out, NULL) != ATTN_OK ||
                out[0] != (float)(2 * k) || out[1] != (float)(2 * k + 1))
                wrong++;
        }
    }
    return wrong == 0 ? NULL : arg;
}

static void several_threads_read_one_archive(void **state)
{
    attn_archive *a = open_ok(shard("w.safetensors", "abcdef", 0));
    pthread_t thread[READERS];
    (void)state;
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_often, a), 0);
    for (size_t i = 0; i < READERS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    attn_archive_close(a);
}

static void no_descriptor_is_left_open(void **state)
{
    const char *bad = text_file("bad.safetensors", "version https://git-lfs");
    attn_archive *a = NULL;
    int before = open("/dev/null", O_RDONLY);
    (void)state;
    assert_true(before >= 0);
    assert_int_equal(close(before), 0);
    assert_int_equal(attn_archive_open(&a, bad, NULL), ATTN_EFORMAT);
    assert_int_equal(attn_archive_open(&a, scratch_path("map"), NULL), ATTN_EFORMAT);
    attn_archive_close(open_ok(scratch_path("index")));
    attn_archive_close(NULL);
    int after = open("/dev/null", O_RDONLY);
    assert_int_equal(after, before);
    assert_int_equal(close(after), 0);
}

static void real_models_are_read_whole(void **state)
{
    static const char *const models[] = {"gpt-nano-sort/hf", "gpt-nano-sort/native",
                                         "stories260K/hf", "ppocrv4-rec-attention/torch"};
    const char *shared = getenv("ATTND_SHARED");
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/models/%s", shared != NULL ? shared : "../shared",
                       models[i]);
        if (access(path, R_OK) != 0) {
            print_message("skipped: model %s: not here\n", models[i]);
            continue;
        }
        attn_archive *a = open_ok(path);
        assert_true(attn_archive_count(a) > 0);
        for (size_t k = 0; k < attn_archive_count(a); k++) {
            const attn_tensor *t = attn_archive_at(a, k);
            float *out = malloc(t->count * sizeof *out + 1);
            assert_non_null(out);
            if (t->dtype <= ATTN_F64) {
                assert_int_equal(attn_archive_read_f32(a, t, out, NULL), ATTN_OK);
                for (size_t n = 0; n < t->count; n++)
                    assert_true(out[n] > -1e4f && out[n] < 1e4f);
            }
            free(out);
        }
        attn_archive_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_without_index_is_all_its_files_together),
        cmocka_unit_test(a_slash_at_the_end_of_a_folder_does_not_matter),
        cmocka_unit_test(an_index_names_its_shards),
        cmocka_unit_test(b12_missing_shards_are_all_named_on_one_line),
        cmocka_unit_test(b12_more_missing_shards_than_a_sentence_holds_are_counted),
        cmocka_unit_test(b12_the_map_must_be_true),
        cmocka_unit_test(b12_only_plain_names_beside_the_index_are_followed),
        cmocka_unit_test(beside_a_whole_file_an_index_counts_only_with_all_its_shards),
        cmocka_unit_test(a_folder_with_one_npz_is_that),
        cmocka_unit_test(b02_a_folder_of_another_kind_names_what_it_holds),
        cmocka_unit_test(what_is_no_regular_file_is_refused_without_waiting),
        cmocka_unit_test(content_decides_where_the_name_says_nothing),
        cmocka_unit_test(b20_a_file_renamed_over_the_path_changes_nothing),
        cmocka_unit_test(b20_a_file_cut_or_rewritten_while_open_is_an_error),
        cmocka_unit_test(several_threads_read_one_archive),
        cmocka_unit_test(no_descriptor_is_left_open),
        cmocka_unit_test(real_models_are_read_whole),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
