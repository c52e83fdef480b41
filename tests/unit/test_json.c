#include "core/json.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/scratch.h"

static attn_json *parse(const char *text)
{
    attn_json *v = NULL;
    attn_error err = {0};

    if (attn_json_parse(&v, text, strlen(text), "t", &err) != ATTN_OK)
        fail_msg("%s: %s", text, err.text);
    return v;
}

static void refused(const char *text, size_t n, const char *sentence)
{
    attn_error err = {0};
    attn_json *v = (attn_json *)&err; /* anything but NULL */

    assert_int_equal(attn_json_parse(&v, text, n, "c.json", &err), ATTN_EFORMAT);
    assert_null(v);
    assert_int_equal(err.code, ATTN_EFORMAT);
    assert_string_equal(err.text, sentence);
}

static void refused_somehow(const char *text, size_t n)
{
    attn_error err = {0};
    attn_json *v = NULL;

    assert_int_equal(attn_json_parse(&v, text, n, "c.json", &err), ATTN_EFORMAT);
    assert_null(v);
    if (strncmp(err.text, "c.json: not valid JSON: line ", 29) != 0 ||
        strpbrk(err.text, "\n\r\t") != NULL)
        fail_msg("%s", err.text);
}

static void d11_duplicate_keys_are_refused_by_name_at_every_level(void **state)
{
    static const char longer[] =
        "{\n \"layers.0.attention.wq.weight\": 1,\n \"layers.0.attention.wq.weight\": 2}";
    static const char deep[] = "{\"a\":[{\"b\":{\"c\":1,\"d\":2,\"c\":3}}]}";
    static const char escaped[] = "{\"q\\\"\\\\\":1,\"q\\\"\\\\\":1}";
    (void)state;
    refused("{\"w\":1,\"w\":2}", 13, "c.json: line 1, column 10: the key \"w\" stands twice");
    refused(longer, sizeof longer - 1,
            "c.json: line 3, column 31: the key \"layers.0.attention.wq.weight\" stands twice");
    refused(deep, sizeof deep - 1, "c.json: line 1, column 27: the key \"c\" stands twice");
    refused(escaped, sizeof escaped - 1,
            "c.json: line 1, column 18: the key \"q\\\"\\\\\" stands twice");
    refused("{\"\":1,\"\":2}", 11, "c.json: line 1, column 8: the key \"\" stands twice");
}

static void d12_bom_nul_empty_and_bad_utf8_are_refused(void **state)
{
    (void)state;
    refused("", 0, "c.json: not valid JSON: it is empty");
    refused_somehow("  \n", 3);
    refused_somehow("\xef\xbb\xbf{}", 5);
    refused_somehow("{}\0", 3);
    refused_somehow("{\0}", 3);
    refused_somehow("[1\0,2]", 6);
    refused_somehow("{\"a\":1\0}", 8);
    refused_somehow("{\"a\\u0000\":1}", 13);
    refused_somehow("\"\\u0000\"", 8);
    refused_somehow("\"\xff\"", 3);
    refused_somehow("\"\xc0\x80\"", 4);
    refused_somehow("\"\\ud800\"", 8);
    refused_somehow("{\0\"\0a\0", 6);
}

static void d14_number_grammar_and_trailing_text_are_strict(void **state)
{
    static const char *const bad[] = {"01",    "-01",      ".5",    "1.",       "+1",
                                      "0x10",  "[1,]",     "{} x",  "{}{}",     "NaN",
                                      "nan",   "Infinity", "1e400", "-1e400",   "{",
                                      "[1 2]", "'a'",      "{a:1}", "\"a\nb\"", "[1,\n\x01]"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused_somehow(bad[i], strlen(bad[i]));
    attn_json *v = parse(" [1e+01, 1E1, 1e-400, 4.9e-324] \n");
    double x = 0;
    assert_true(attn_json_number(attn_json_at(v, 0), &x) && x == 10);
    assert_true(attn_json_number(attn_json_at(v, 1), &x) && x == 10);
    assert_true(attn_json_number(attn_json_at(v, 2), &x) && x == 0);
    assert_true(attn_json_number(attn_json_at(v, 3), &x) && x > 0);
    attn_json_free(v);
}

static void d09_deep_nesting_is_refused_quickly(void **state)
{
    size_t n = 1000000;
    char *text = malloc(n);
    (void)state;
    assert_non_null(text);
    memset(text, '[', n);
    refused_somehow(text, n);
    refused_somehow(text, 2049);
    free(text);
}

static void types_are_exact(void **state)
{
    attn_json *v =
        parse("{\"i\":2,\"r\":2.0,\"e\":1e3,\"s\":\"2\",\"t\":true,\"f\":false,\"n\":null,"
              "\"a\":[1,2],\"o\":{\"k\":1},\"m\":-9223372036854775808}");
    int64_t i = 7;
    double x = 7;
    bool b = true;
    const char *s = "unset";
    (void)state;

    assert_true(attn_json_integer(attn_json_get(v, "i"), &i) && i == 2);
    assert_true(attn_json_integer(attn_json_get(v, "m"), &i) && i == INT64_MIN);
    static const char *const not_integers[] = {"r", "e", "s", "t", "n", "a", "o", "absent"};
    i = 7;
    for (size_t k = 0; k < sizeof not_integers / sizeof *not_integers; k++)
        assert_false(attn_json_integer(attn_json_get(v, not_integers[k]), &i));
    assert_int_equal(i, 7);

    assert_true(attn_json_number(attn_json_get(v, "i"), &x) && x == 2);
    assert_true(attn_json_number(attn_json_get(v, "e"), &x) && x == 1000);
    assert_false(attn_json_number(attn_json_get(v, "s"), &x));
    assert_false(attn_json_number(NULL, &x));

    assert_true(attn_json_bool(attn_json_get(v, "f"), &b) && !b);
    assert_true(attn_json_bool(attn_json_get(v, "t"), &b) && b);
    assert_false(attn_json_bool(attn_json_get(v, "i"), &b));
    assert_false(attn_json_bool(NULL, &b));

    assert_true(attn_json_string(attn_json_get(v, "s"), &s));
    assert_string_equal(s, "2");
    assert_false(attn_json_string(attn_json_get(v, "i"), &s));
    assert_false(attn_json_string(NULL, &s));

    assert_true(attn_json_is_null(attn_json_get(v, "n")));
    assert_true(attn_json_is_null(attn_json_get(v, "absent")));
    assert_false(attn_json_is_null(attn_json_get(v, "f")));
    assert_true(attn_json_is_object(v) && !attn_json_is_array(v));
    assert_true(attn_json_is_array(attn_json_get(v, "a")));
    assert_false(attn_json_is_object(NULL) || attn_json_is_array(NULL));

    assert_int_equal(attn_json_length(v), 10);
    assert_int_equal(attn_json_length(attn_json_get(v, "a")), 2);
    assert_int_equal(attn_json_length(attn_json_get(v, "s")), 0);
    assert_int_equal(attn_json_length(NULL), 0);
    assert_null(attn_json_at(attn_json_get(v, "a"), 2));
    assert_null(attn_json_at(v, 0));
    assert_null(attn_json_at(NULL, 0));
    assert_null(attn_json_get(attn_json_get(v, "a"), "k"));
    assert_null(attn_json_get(NULL, "k"));
    attn_json_free(v);
}

static void an_object_is_walked_in_the_order_of_the_text(void **state)
{
    attn_json *v = parse("{\"z\":1,\"a\":2,\"m\":3}"), *none = parse("{}"), *array = parse("[1]");
    const char *key = NULL;
    const attn_json *value = NULL;
    void *it = NULL;
    char keys[8] = "";
    int64_t sum = 0, i = 0;
    (void)state;

    while (attn_json_next(v, &it, &key, &value)) {
        strcat(keys, key);
        assert_true(attn_json_integer(value, &i));
        sum = sum * 10 + i;
    }
    assert_string_equal(keys, "zam");
    assert_int_equal(sum, 123);
    it = NULL;
    assert_false(attn_json_next(none, &it, &key, &value));
    assert_false(attn_json_next(array, &it, &key, &value));
    assert_false(attn_json_next(NULL, &it, &key, &value));
    attn_json_free(v);
    attn_json_free(none);
    attn_json_free(array);
    attn_json_free(NULL);
}

static void types_have_names_for_messages(void **state)
{
    attn_json *v = parse("[null,true,false,1,1.5,\"s\",[],{}]");
    static const char *const want[] = {"null",     "a boolean", "a boolean", "an integer",
                                       "a number", "a string",  "an array",  "an object"};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(attn_json_type_name(attn_json_at(v, i)), want[i]);
    assert_string_equal(attn_json_type_name(NULL), "nothing");
    attn_json_free(v);
}

static void scalars_are_documents_too(void **state)
{
    attn_json *v = parse("5");
    int64_t i = 0;
    (void)state;
    assert_true(attn_json_integer(v, &i) && i == 5);
    attn_json_free(v);
}

static void file_refused(const char *path, size_t max_bytes, attn_status code, const char *sentence)
{
    attn_error err = {0};
    attn_json *v = NULL;

    assert_int_equal(attn_json_read_file(&v, path, max_bytes, &err), code);
    assert_null(v);
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    assert_string_equal(err.text + strlen(path), sentence);
}

static void a_file_is_read_up_to_its_limit(void **state)
{
    const char *path = scratch_write("c.json", "{\"a\":1}", 7);
    attn_json *v = NULL;
    int64_t i = 0;
    (void)state;
    assert_int_equal(attn_json_read_file(&v, path, 7, NULL), ATTN_OK);
    assert_true(attn_json_integer(attn_json_get(v, "a"), &i) && i == 1);
    attn_json_free(v);
    file_refused(path, 6, ATTN_EFORMAT, ": its 7 bytes are over the limit of 6");
    file_refused(scratch_write("e.json", "", 0), 9, ATTN_EFORMAT, ": not valid JSON: it is empty");
    file_refused(scratch_write("b.json", "{", 1), 9, ATTN_EFORMAT,
                 ": not valid JSON: line 1, column 1: string or '}' expected near end of file");
}

static void what_is_no_regular_file_is_refused_without_waiting(void **state)
{
    const char *pipe_path = scratch_path("pipe.json");
    (void)state;
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    file_refused(pipe_path, 99, ATTN_EIO, ": is not a regular file");
    file_refused(scratch_dir(), 99, ATTN_EIO, ": is a folder, not a file");
    file_refused(scratch_path("absent.json"), 99, ATTN_EIO,
                 ": cannot be opened: No such file or directory");
    file_refused("/dev/null", 99, ATTN_EIO, ": is not a regular file");
    if (geteuid() == 0) {
        print_message("skipped: unreadable file: root reads every file\n");
        return;
    }
    const char *locked = scratch_write("locked.json", "{}", 2);
    assert_int_equal(chmod(locked, 0), 0);
    file_refused(locked, 99, ATTN_EIO, ": cannot be opened: Permission denied");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d11_duplicate_keys_are_refused_by_name_at_every_level),
        cmocka_unit_test(d12_bom_nul_empty_and_bad_utf8_are_refused),
        cmocka_unit_test(d14_number_grammar_and_trailing_text_are_strict),
        cmocka_unit_test(d09_deep_nesting_is_refused_quickly),
        cmocka_unit_test(types_are_exact),
        cmocka_unit_test(an_object_is_walked_in_the_order_of_the_text),
        cmocka_unit_test(types_have_names_for_messages),
        cmocka_unit_test(scalars_are_documents_too),
        cmocka_unit_test(a_file_is_read_up_to_its_limit),
        cmocka_unit_test(what_is_no_regular_file_is_refused_without_waiting),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
