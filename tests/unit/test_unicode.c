/* Lower case as Python has it. The other tables are tested by the tokenisers that use them. */
#include "core/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/st.h"

static attn_unicode unicode;

/* The text in lower case, in a block of exactly the room that is promised; the caller frees. */
static char *lower(const char *s, size_t n, size_t *out_n)
{
    char *out = malloc(ATTN_LOWER_BYTES(n) + (n == 0)), *copy = malloc(n + (n == 0));

    assert_true(out != NULL && copy != NULL);
    memcpy(copy, s, n);
    *out_n = attn_unicode_lower_text(&unicode, copy, n, out);
    assert_true(*out_n <= ATTN_LOWER_BYTES(n));
    free(copy);
    return out;
}

static char *read_file(const char *path, size_t *n)
{
    enum { MOST = 64 << 20 };
    char *text = malloc(MOST);
    FILE *f = fopen(path, "rb");

    assert_true(text != NULL && f != NULL);
    *n = fread(text, 1, MOST, f);
    assert_true(*n < MOST);
    (void)fclose(f);
    return text;
}

static void words_are_put_in_lower_case(void **state)
{
    static const char *const words[][2] = {
        {"", ""},
        {"The CAT, 42", "the cat, 42"},
        {"\xc4\xb0", "i\xcc\x87"},    /* a capital I with a dot becomes two */
        {"\xc8\xba", "\xe2\xb1\xa5"}, /* two bytes become three */
        {"\xe2\x84\xaa", "k"},        /* the sign of kelvin: three become one */
        {"STRASSE \xe1\xba\x9e", "strasse \xc3\x9f"},
        {"\xce\xa3", "\xcf\x83"},                     /* a sigma alone */
        {"\xce\x9f\xce\xa3", "\xce\xbf\xcf\x82"},     /* at the end of a word */
        {"\xce\x9f\xce\xa3.", "\xce\xbf\xcf\x82."},   /* what it ends with does not count, */
        {"\xce\x9f\xce\xa3.A", "\xce\xbf\xcf\x83.a"}, /* but a letter behind that */
        {"A'\xce\xa3 B", "a'\xcf\x82 b"},
        {"1\xce\xa3", "1\xcf\x83"},
        {"A\xce\xa3\xce\xa3", "a\xcf\x83\xcf\x82"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = 0;
        char *out = lower(words[i][0], strlen(words[i][0]), &n);
        if (n != strlen(words[i][1]) || memcmp(out, words[i][1], n) != 0)
            fail_msg("\"%s\" became \"%.*s\"", words[i][0], (int)n, out);
        free(out);
    }
}

static void every_character_becomes_what_python_makes_of_it(void **state)
{
    char *dir = st_temp_dir(), *text = st_path("%s/text", dir), *low = st_path("%s/low", dir);
    char *command = st_path("PATH=/usr/bin:$PATH python3 tests/lower_case.py '%s' '%s'", text, low);
    int rc = system(command);
    size_t n = 0, want_n = 0, got_n = 0;

    (void)state;
    free(command);
    if (WIFEXITED(rc) && WEXITSTATUS(rc) == 2) {
        printf("skipped: lower case of all characters: python3 knows another version of Unicode\n");
    } else {
        assert_int_equal(rc, 0);
        char *s = read_file(text, &n), *want = read_file(low, &want_n), *got;
        got = lower(s, n, &got_n);
        for (size_t i = 0; i < got_n && i < want_n; i++) {
            if (got[i] != want[i])
                fail_msg("at byte %zu of the text in lower case", i);
        }
        assert_int_equal(got_n, want_n);
        assert_true(n > 1000000);
        free(s);
        free(want);
        free(got);
    }
    st_remove_dir(dir);
    free(text);
    free(low);
}

static int start(void **state)
{
    (void)state;
    return attn_unicode_init(&unicode, NULL) == ATTN_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    attn_unicode_deinit(&unicode);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_put_in_lower_case),
        cmocka_unit_test(every_character_becomes_what_python_makes_of_it),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
