/* Example requests of a model folder, good and bad, and those of the demo. */
#include "server/examples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/demo.h"

static char folder[64];
static char *made[300]; /* files to remove, under the folder */
static size_t num_made;

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
    (void)snprintf(folder, sizeof folder, "%.30s/attnd-examples-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    return mkdtemp(folder) != NULL && mkdir(in_folder("examples"), 0700) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    while (num_made > 0) {
        (void)remove(in_folder(made[--num_made]));
        free(made[num_made]);
    }
    (void)rmdir(in_folder("examples"));
    return rmdir(folder);
}

static void remember(const char *name)
{
    assert_true(num_made < sizeof made / sizeof *made);
    made[num_made] = strdup(name);
    assert_non_null(made[num_made++]);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    remember(name);
}

static void expect_refusal(attn_status code, const char *words)
{
    attn_error err = {0};
    srv_examples *e = (srv_examples *)&err; /* must become NULL */
    assert_int_equal(srv_examples_load(&e, folder, &err), code);
    assert_null(e);
    if (strstr(err.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_non_null(strstr(err.text, folder));
}

static void examples_are_sorted_and_kept_byte_for_byte(void **state)
{
    srv_examples *e = NULL;
    size_t n = 0;
    (void)state;
    put("examples/b.json", "{ \"b\" :\t1 }\n");
    put("examples/a.2.json", "{}");
    put("examples/B-1_x.json", "{\"B\":[]}");
    assert_int_equal(srv_examples_load(&e, folder, NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 3);
    assert_string_equal(srv_examples_name(e, 0), "B-1_x");
    assert_string_equal(srv_examples_name(e, 1), "a.2");
    assert_string_equal(srv_examples_name(e, 2), "b");
    const char *body = srv_examples_body(e, 2, &n);
    assert_int_equal(n, 12);
    assert_memory_equal(body, "{ \"b\" :\t1 }\n", n);
    srv_examples_free(e);
}

static void names_that_no_url_should_hold_are_passed_over(void **state)
{
    char longest[128] = "examples/", longer[128] = "examples/";
    srv_examples *e = NULL;
    (void)state;
    put("examples/a b.json", "{}");
    put("examples/a%2f.json", "{}");
    put("examples/.json", "{}");
    put("examples/..json", "{}");
    put("examples/.hidden.json", "not JSON");
    put("examples/readme.txt", "not JSON");
    put("examples/a.JSON", "not JSON");
    memset(longer + 9, 'y', 65);
    put(strcat(longer, ".json"), "{}");
    memset(longest + 9, 'x', 64);
    put(strcat(longest, ".json"), "{}");
    assert_int_equal(srv_examples_load(&e, folder, NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 1);
    assert_memory_equal(srv_examples_name(e, 0), longest + 9, 64);
    assert_int_equal(strlen(srv_examples_name(e, 0)), 64);
    srv_examples_free(e);
}

static void a_weight_file_has_the_examples_beside_it(void **state)
{
    srv_examples *e = NULL;
    (void)state;
    put("examples/one.json", "{}");
    put("model.safetensors", "");
    assert_int_equal(srv_examples_load(&e, in_folder("model.safetensors"), NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 1);
    srv_examples_free(e);
}

static void a_weight_file_without_a_folder_in_its_path_looks_here(void **state)
{
    char here[4096];
    srv_examples *e = NULL;
    (void)state;
    put("examples/one.json", "{}");
    put("model.safetensors", "");
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    attn_status rc = srv_examples_load(&e, "model.safetensors", NULL);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rc, ATTN_OK);
    assert_int_equal(srv_examples_count(e), 1);
    srv_examples_free(e);
}

static void no_folder_of_examples_is_no_example(void **state)
{
    srv_examples *e = NULL;
    (void)state;
    assert_int_equal(rmdir(in_folder("examples")), 0);
    assert_int_equal(srv_examples_load(&e, folder, NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 0);
    srv_examples_free(e);
    assert_int_equal(srv_examples_load(&e, in_folder("no/such"), NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 0);
    srv_examples_free(e);
    assert_int_equal(srv_examples_count(NULL), 0);
    srv_examples_free(NULL);
}

static void what_is_not_a_json_object_is_refused_by_name(void **state)
{
    static const char *const bad[] = {"",    "{", "[]", "1", "null", "{} {}", "{\"a\":1,\"a\":2}",
                                      "\xff"};
    (void)state;
    put("examples/good.json", "{}");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("examples/bad.json", bad[i]);
        expect_refusal(ATTN_EFORMAT, "examples/bad.json");
    }
}

static void what_is_not_a_regular_file_is_refused_without_waiting(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_folder("examples/pipe.json"), 0600), 0);
    remember("examples/pipe.json");
    expect_refusal(ATTN_EIO, "examples/pipe.json");
    assert_int_equal(unlink(in_folder("examples/pipe.json")), 0);
    assert_int_equal(mkdir(in_folder("examples/folder.json"), 0700), 0);
    remember("examples/folder.json");
    expect_refusal(ATTN_EIO, "examples/folder.json");
}

static void the_largest_file_fits_and_one_byte_more_does_not(void **state)
{
    char *text = malloc(SRV_EXAMPLE_BYTES + 2);
    srv_examples *e = NULL;
    size_t n = 0;
    (void)state;
    assert_non_null(text);
    memset(text, ' ', SRV_EXAMPLE_BYTES + 1);
    text[0] = '{';
    text[SRV_EXAMPLE_BYTES - 1] = '}';
    text[SRV_EXAMPLE_BYTES] = '\0';
    put("examples/big.json", text);
    assert_int_equal(srv_examples_load(&e, folder, NULL), ATTN_OK);
    (void)srv_examples_body(e, 0, &n);
    assert_int_equal(n, SRV_EXAMPLE_BYTES);
    srv_examples_free(e);
    text[SRV_EXAMPLE_BYTES] = ' ';
    text[SRV_EXAMPLE_BYTES + 1] = '\0';
    put("examples/big.json", text);
    expect_refusal(ATTN_ETOOBIG, "4194305 bytes");
    free(text);
}

static void as_many_files_as_allowed_fit_and_one_more_does_not(void **state)
{
    srv_examples *e = NULL;
    char name[64];
    (void)state;
    for (unsigned i = 0; i < SRV_EXAMPLES_MAX; i++) {
        (void)snprintf(name, sizeof name, "examples/%03u.json", i);
        put(name, "{}");
    }
    assert_int_equal(srv_examples_load(&e, folder, NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), SRV_EXAMPLES_MAX);
    assert_string_equal(srv_examples_name(e, SRV_EXAMPLES_MAX - 1), "255");
    srv_examples_free(e);
    put("examples/one-more.json", "{}");
    expect_refusal(ATTN_ETOOBIG, "more than 256");
}

static void the_demo_has_its_files_as_examples(void **state)
{
    srv_examples *e = NULL;
    size_t found = 0;
    (void)state;
    assert_int_equal(srv_examples_demo(&e, NULL), ATTN_OK);
    assert_int_equal(srv_examples_count(e), 5);
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        const char *name = NULL;
        char *bytes = NULL, path[128];
        size_t n = 0, m = 0;
        assert_int_equal(srv_demo_file(i, &name, &bytes, &n, NULL), ATTN_OK);
        for (size_t x = 0; x < srv_examples_count(e); x++) {
            (void)snprintf(path, sizeof path, "examples/%s.json", srv_examples_name(e, x));
            if (strcmp(name, path) != 0)
                continue;
            const char *body = srv_examples_body(e, x, &m);
            assert_int_equal(m, n);
            assert_memory_equal(body, bytes, n);
            found++;
        }
        free(bytes);
    }
    assert_int_equal(found, 5);
    srv_examples_free(e);
}

#define TEST(claim) cmocka_unit_test_setup_teardown(claim, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(examples_are_sorted_and_kept_byte_for_byte),
        TEST(names_that_no_url_should_hold_are_passed_over),
        TEST(a_weight_file_has_the_examples_beside_it),
        TEST(a_weight_file_without_a_folder_in_its_path_looks_here),
        TEST(no_folder_of_examples_is_no_example),
        TEST(what_is_not_a_json_object_is_refused_by_name),
        TEST(what_is_not_a_regular_file_is_refused_without_waiting),
        TEST(the_largest_file_fits_and_one_byte_more_does_not),
        TEST(as_many_files_as_allowed_fit_and_one_more_does_not),
        TEST(the_demo_has_its_files_as_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
