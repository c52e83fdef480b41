#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/types.h>

#include "server/accept.h"

enum { JSON, NPY, SAFETENSORS, PNG, TYPES };
static const char *const types[TYPES] = {"application/json", "application/x-npy",
                                         "application/vnd.safetensors", "image/png"};

static srv_lines one(const char *const *line)
{
    return (srv_lines){line, *line == NULL ? 0 : 1};
}

typedef struct {
    const char *accept;
    size_t want;
} choice;

static void hold(const choice *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t got = srv_accept_type(one(&c[i].accept), types, TYPES);
        if (got != c[i].want)
            fail_msg("Accept: %s gives offer %zd, not %zd", c[i].accept, (ssize_t)got,
                     (ssize_t)c[i].want);
    }
}
#define HOLD(c) hold(c, sizeof(c) / sizeof(c)[0])

static void without_accept_our_first_type_is_sent(void **state)
{
    static const choice c[] = {{NULL, JSON}, {"", JSON}, {"  ", JSON}, {",, ,", JSON}};

    (void)state;
    HOLD(c);
}

static void the_heaviest_type_wins_and_ours_first_among_equals(void **state)
{
    static const choice c[] = {
        {"*/*", JSON},
        {"application/x-npy", NPY},
        {"image/png, */*;q=0.1", PNG},
        {"application/x-npy, application/json", JSON},
        {"application/json;q=0.8, application/x-npy;q=0.9", NPY},
        {"application/json;q=0.8,application/x-npy;q=0.801", NPY},
        {"image/*", PNG},
        {"application/*;q=0.3, image/png;q=0.2", JSON},
        {"text/html, application/xhtml+xml, application/xml;q=0.9, image/avif, image/webp, "
         "*/*;q=0.8",
         JSON},
        {"APPLICATION/X-NPY", NPY},
    };

    (void)state;
    HOLD(c);
}

static void the_most_specific_range_counts(void **state)
{
    static const choice c[] = {
        {"application/json;q=0.1, application/*;q=0.9", NPY},
        {"application/*, application/json;q=0", NPY},
        {"*/*;q=0.5, application/json;q=0, application/x-npy;q=0", SAFETENSORS},
        {"*/*, application/*;q=0", PNG},
        {"application/json;v=2;q=0.1, application/json;q=0.9, application/x-npy;q=0.5", JSON},
        {"application/json;v=2;q=0.1, application/*;q=0.9", NPY},
    };

    (void)state;
    HOLD(c);
}

static void a_type_of_weight_zero_is_not_sent(void **state)
{
    static const choice c[] = {
        {"text/html", SRV_NO_OFFER},
        {"*/*;q=0", SRV_NO_OFFER},
        {"*/*;q=0.000", SRV_NO_OFFER},
        {"application/json;q=0", SRV_NO_OFFER},
        {"application/jsonx, xapplication/json, application/jso", SRV_NO_OFFER},
        {"image/png;q=0, image/*", SRV_NO_OFFER},
    };

    (void)state;
    HOLD(c);
}

static void parameters_do_not_keep_a_type_from_being_sent(void **state)
{
    static const choice c[] = {
        {"application/json;charset=utf-8", JSON},
        {"application/json; charset=\"UTF-8\" ; q=0.5 , text/plain", JSON},
        {"application/x-npy;version=1", NPY},
        {"application/x-npy;a=\"x,y;q=0\";q=0.5, application/json;q=0.4", NPY},
        {"application/x-npy;a=\"\\\",\";q=0.5, application/json;q=0.4", NPY},
        {"application/json;q=0.5;ext=1, application/x-npy;q=0.4", JSON},
    };

    (void)state;
    HOLD(c);
}

static void what_is_malformed_is_passed_over(void **state)
{
    static const choice c[] = {
        {"json", JSON},
        {"image/png;q=abc, application/x-npy", NPY},
        {"image/png;q=-1, application/x-npy;q=0.1", NPY},
        {"image/png;q=, application/x-npy;q=0.1", NPY},
        {"*/json, application/x-npy", NPY},
        {"image/, /png, application/x-npy", NPY},
        {"image/p ng, application/x-npy", NPY},
        {"*; q=.2, application/x-npy; q=.3", NPY},
        {"image/png;q=7, application/json", JSON}, /* more than 1 is 1 */
        {"image/png;\"", JSON},
    };

    (void)state;
    HOLD(c);
}

static void lines_of_one_field_are_one_list(void **state)
{
    static const char *const lines[] = {"application/json;q=0.5", "", "image/png;q=0.6, text/html"};

    (void)state;
    assert_int_equal(srv_accept_type((srv_lines){lines, 3}, types, TYPES), PNG);
    assert_int_equal(srv_accept_type((srv_lines){lines, 1}, types, TYPES), JSON);
}

static void content_type_is_one_known_essence(void **state)
{
    static const char *const good[] = {"application/json", "Application/JSON ; charset=UTF-8",
                                       "application/json;charset=\"utf-8\"", " application/json;",
                                       "application/json;indent=2"};
    const char *npy = "application/x-npy", *empty = " ";
    size_t which = 99;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(srv_content_type(one(&good[i]), types, 3, &which, NULL), ATTN_OK);
        assert_int_equal(which, JSON);
    }
    assert_int_equal(srv_content_type(one(&npy), types, 3, &which, NULL), ATTN_OK);
    assert_int_equal(which, NPY);
    assert_int_equal(srv_content_type(one(&empty), types, 3, &which, NULL), ATTN_OK);
    assert_int_equal(which, 3);
    assert_int_equal(srv_content_type((srv_lines){NULL, 0}, types, 3, &which, NULL), ATTN_OK);
    assert_int_equal(which, 3);
}

static void refuse_type(const char *line, const char *says)
{
    attn_error err = {0};
    size_t which = 0;

    assert_int_equal(srv_content_type(one(&line), types, 3, &which, &err), ATTN_EUNSUPPORTED);
    if (strstr(err.text, says) == NULL)
        fail_msg("Content-Type: %s gives \"%s\", without \"%s\"", line, err.text, says);
}

static void other_content_types_are_refused_by_name(void **state)
{
    static const char *const two[] = {"application/json", "application/json"};
    size_t which = 0;

    (void)state;
    refuse_type("application/x-www-form-urlencoded",
                "application/x-www-form-urlencoded is not understood here; the body can be "
                "application/json, application/x-npy or application/vnd.safetensors");
    refuse_type("image/png", "image/png is not understood here");
    refuse_type("json", "not one media type");
    refuse_type("*/*", "not one media type");
    refuse_type("application/json, application/x-npy", "not one media type");
    refuse_type("application/json;charset=utf-16", "charset");
    refuse_type("application/json;charset", "not one media type");
    assert_int_equal(srv_content_type((srv_lines){two, 2}, types, 3, &which, NULL),
                     ATTN_EUNSUPPORTED);
}

static void names_that_do_not_fit_are_left_out(void **state)
{
    char out[36];

    (void)state;
    srv_name_types(out, sizeof out, types, 3);
    assert_string_equal(out, "application/json, application/x-npy");
    srv_name_types(out, sizeof out - 1, types, 3);
    assert_string_equal(out, "application/json");
    srv_name_types(out, 1, types, 3);
    assert_string_equal(out, "");
}

#define OURS (1u << SRV_GZIP | 1u << SRV_DEFLATE)

static void codings(const char *line, unsigned ours, bool floats, int want)
{
    srv_codings c = srv_accept_codings(one(&line));
    srv_coding got = SRV_CODINGS;
    bool acceptable = srv_choose_coding(&c, ours, floats, &got);

    if (acceptable ? (int)got != want : want != -1)
        fail_msg("Accept-Encoding: %s gives %s", line,
                 acceptable ? srv_coding_names[got] : "nothing");
}

static void answers_are_encoded_only_when_asked(void **state)
{
    (void)state;
    codings(NULL, OURS, false, SRV_IDENTITY);
    codings("", OURS, false, SRV_IDENTITY);
    codings("*", OURS, false, SRV_IDENTITY);
    codings("br, zstd", OURS, false, SRV_IDENTITY);
    codings("gzip", OURS, false, SRV_GZIP);
    codings("GZip", OURS, false, SRV_GZIP);
    codings("x-gzip", OURS, false, SRV_GZIP);
    codings("deflate", OURS, false, SRV_DEFLATE);
    codings("deflate", 1u << SRV_GZIP, false, SRV_IDENTITY);
    codings("deflate, gzip", OURS, false, SRV_GZIP);
    codings("gzip;q=0.5, deflate;q=0.6", OURS, false, SRV_DEFLATE);
    codings("gzip;q=0", OURS, false, SRV_IDENTITY);
    codings("gzip;q=0.5, identity", OURS, false, SRV_IDENTITY);
    codings("gzip, identity", OURS, false, SRV_GZIP);
    codings("gzip;q=0.001", OURS, false, SRV_GZIP);
    codings("gzip;q=x, deflate;q=0.1", OURS, false, SRV_DEFLATE);
    codings("gz ip, deflate;v=1", OURS, false, SRV_IDENTITY);
}

static void identity_can_be_excluded(void **state)
{
    (void)state;
    codings("identity;q=0, gzip", OURS, false, SRV_GZIP);
    codings("identity;q=0, *;q=0.5", OURS, false, SRV_GZIP);
    codings("identity;q=0", OURS, false, -1);
    codings("*;q=0", OURS, false, -1);
    codings("*;q=0, identity", OURS, false, SRV_IDENTITY);
    codings("*;q=0, deflate", OURS, true, SRV_DEFLATE);
    codings("identity;q=0, br", OURS, true, -1);
}

static void floats_are_encoded_only_when_that_is_preferred(void **state)
{
    (void)state;
    codings("gzip", OURS, true, SRV_IDENTITY);
    codings("gzip, deflate, br", OURS, true, SRV_IDENTITY);
    codings("gzip, identity", OURS, true, SRV_IDENTITY);
    codings("gzip, identity;q=0.5", OURS, true, SRV_GZIP);
    codings("gzip, identity;q=0", OURS, true, SRV_GZIP);
}

static void body_codings_are_known_or_refused(void **state)
{
    static const char *const refused[] = {"br",      "zstd", "gzip, gzip", "gzip;q=1",
                                          "deflate", "*",    "gzip, br"};
    static const char *const two[] = {"gzip", "gzip"};
    const char *const accepted[] = {"gzip", " X-GZIP ", "identity", "", ", identity, gzip"};
    const srv_coding want[] = {SRV_GZIP, SRV_GZIP, SRV_IDENTITY, SRV_IDENTITY, SRV_GZIP};
    srv_coding got = SRV_CODINGS;

    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        assert_int_equal(srv_content_coding(one(&accepted[i]), 1u << SRV_GZIP, &got, NULL),
                         ATTN_OK);
        assert_int_equal(got, want[i]);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        attn_error err = {0};
        assert_int_equal(srv_content_coding(one(&refused[i]), 1u << SRV_GZIP, &got, &err),
                         ATTN_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "identity or gzip is"));
    }
    assert_int_equal(srv_content_coding((srv_lines){two, 2}, OURS, &got, NULL), ATTN_EUNSUPPORTED);
    const char *deflate = "deflate";
    assert_int_equal(srv_content_coding(one(&deflate), OURS, &got, NULL), ATTN_OK);
    assert_int_equal(got, SRV_DEFLATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_accept_our_first_type_is_sent),
        cmocka_unit_test(the_heaviest_type_wins_and_ours_first_among_equals),
        cmocka_unit_test(the_most_specific_range_counts),
        cmocka_unit_test(a_type_of_weight_zero_is_not_sent),
        cmocka_unit_test(parameters_do_not_keep_a_type_from_being_sent),
        cmocka_unit_test(what_is_malformed_is_passed_over),
        cmocka_unit_test(lines_of_one_field_are_one_list),
        cmocka_unit_test(content_type_is_one_known_essence),
        cmocka_unit_test(other_content_types_are_refused_by_name),
        cmocka_unit_test(names_that_do_not_fit_are_left_out),
        cmocka_unit_test(answers_are_encoded_only_when_asked),
        cmocka_unit_test(identity_can_be_excluded),
        cmocka_unit_test(floats_are_encoded_only_when_that_is_preferred),
        cmocka_unit_test(body_codings_are_known_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
