/* attnd inspect on the demo model and on a file without layers. */
#include "server/inspect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/json.h"
#include "server/demo.h"

static char folder[64];

static char *in_folder(const char *name)
{
    static char path[320];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    (void)snprintf(folder, sizeof folder, "%.30s/attnd-inspect-XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(folder) != NULL && srv_demo_write(folder, NULL) == ATTN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *bytes = NULL;
        size_t n = 0;
        if (srv_demo_file(i, &name, &bytes, &n, NULL) == ATTN_OK)
            (void)unlink(in_folder(name));
        free(bytes);
    }
    (void)rmdir(in_folder("examples"));
    (void)unlink(in_folder("other.safetensors"));
    return rmdir(folder);
}

/* What is printed, as text to be freed. */
static char *inspect(const char *path, bool json, int code, attn_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    assert_int_equal(srv_inspect(path, json, f, err), code);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void contains(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("\"%s\" is not in:\n%s", words, text);
}

static void tensors_and_layers_are_printed_in_columns(void **state)
{
    attn_error err = {0};
    (void)state;
    char *text = inspect(folder, false, 0, &err);
    contains(text, "8 tensors, 21504 bytes\n"
                   "  layers.0.wk.weight  F32  [16,16]  1024\n"
                   "  layers.0.wo.weight  F32  [16,48]  3072\n");
    contains(text, "  layers.1.wv.weight  F32  [8,16]    512\n");
    contains(text, "\n2 attention layers, family attnd, ");
    contains(text,
             "  layer  d_model  heads  kv_heads  d_head  d_value  scale  causal  window  softcap  "
             "position  keys  source\n"
             "  0      16       6      1         16      8        1      no      none    none     "
             "none      self  layers.0\n");
    free(text);
}

static void json_is_one_object_with_the_same(void **state)
{
    attn_error err = {0};
    attn_json *root = NULL;
    const char *string = NULL;
    int64_t integer = 0;
    bool causal = true;
    (void)state;
    char *text = inspect(folder, true, 0, &err);
    assert_int_equal(attn_json_parse(&root, text, strlen(text), "answer", NULL), ATTN_OK);
    free(text);
    assert_true(attn_json_string(attn_json_get(root, "path"), &string));
    assert_string_equal(string, folder);
    const attn_json *tensors = attn_json_get(root, "tensors");
    assert_int_equal(attn_json_length(tensors), 8);
    const attn_json *t = attn_json_at(tensors, 1);
    assert_true(attn_json_string(attn_json_get(t, "name"), &string));
    assert_string_equal(string, "layers.0.wo.weight");
    assert_true(attn_json_integer(attn_json_at(attn_json_get(t, "shape"), 1), &integer));
    assert_int_equal(integer, 48);
    const attn_json *layers = attn_json_get(root, "layers");
    assert_int_equal(attn_json_length(layers), 2);
    const attn_json *l = attn_json_at(layers, 1);
    assert_true(attn_json_integer(attn_json_get(l, "num_kv_heads"), &integer));
    assert_int_equal(integer, 1);
    assert_true(attn_json_integer(attn_json_get(attn_json_get(l, "window"), "left"), &integer));
    assert_int_equal(integer, -1);
    assert_true(attn_json_bool(attn_json_get(l, "is_causal"), &causal));
    assert_false(causal);
    assert_true(attn_json_string(attn_json_get(l, "source"), &string));
    assert_string_equal(string, "layers.1");
    assert_int_equal(attn_json_length(attn_json_get(root, "warnings")), 0);
    assert_null(attn_json_get(root, "error"));
    attn_json_free(root);
}

/* One tensor that is no layer, and whose name would clear a terminal. */
static const char *write_other(void)
{
    static const char header[] =
        "{\"\\u001b[2Jx\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    FILE *f = fopen(in_folder("other.safetensors"), "wb");
    assert_non_null(f);
    assert_int_equal(fputc((int)strlen(header), f), (int)strlen(header));
    assert_int_equal(fwrite("\0\0\0\0\0\0\0", 1, 7, f), 7);
    assert_true(fputs(header, f) >= 0);
    assert_int_equal(fwrite("\0\0\0\0", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
    return in_folder("other.safetensors");
}

static void tensors_without_layers_are_printed_with_the_reason(void **state)
{
    attn_error err = {0};
    attn_json *root = NULL;
    const char *string = NULL;
    (void)state;
    char *text = inspect(write_other(), false, 1, &err);
    assert_string_equal(text, "1 tensor, 4 bytes\n  ?[2Jx  F32  [1]  4\n");
    free(text);
    contains(err.text, "other.safetensors");

    err = (attn_error){0};
    text = inspect(in_folder("other.safetensors"), true, 1, &err);
    assert_int_equal(attn_json_parse(&root, text, strlen(text), "answer", NULL), ATTN_OK);
    free(text);
    assert_int_equal(attn_json_length(attn_json_get(root, "tensors")), 1);
    assert_true(attn_json_string(attn_json_get(root, "error"), &string));
    assert_string_equal(string, err.text);
    assert_null(attn_json_get(root, "layers"));
    attn_json_free(root);
}

static void a_path_that_is_not_there_is_an_error_alone(void **state)
{
    attn_error err = {0};
    (void)state;
    char *text = inspect(in_folder("nothing"), false, 1, &err);
    assert_string_equal(text, "");
    free(text);
    contains(err.text, "nothing");
    contains(err.text, "No such file or directory");
}

#define TEST(claim) cmocka_unit_test_setup_teardown(claim, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_and_layers_are_printed_in_columns),
        TEST(json_is_one_object_with_the_same),
        TEST(tensors_without_layers_are_printed_with_the_reason),
        TEST(a_path_that_is_not_there_is_an_error_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
