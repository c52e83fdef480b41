/* The table of keys, the JSON Schema and the help say the same, and units do what the schema says. */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/config_keys.h"
#include "config/units.h"

static const struct {
    const char *path, *type, *fallback, *help;
    uint64_t least, most;
} KEYS[] = {
#define KEY(path, type, member, fallback, least, most, help)                                       \
    {path, #type, fallback, help, least, most},
    CFG_KEYS(KEY)
#undef KEY
};

enum { N_KEYS = sizeof KEYS / sizeof *KEYS };

static attn_json *schema;

static int read_schema(void **state)
{
    (void)state;
    attn_error err = {0};
    if (attn_json_read_file(&schema, "config/attnd.schema.json", 1 << 20, &err) == ATTN_OK)
        return 0;
    print_error("%s\n", err.text);
    return -1;
}

static int free_schema(void **state)
{
    (void)state;
    attn_json_free(schema);
    return 0;
}

static const attn_json *get(const attn_json *v, const char *key)
{
    const attn_json *member = attn_json_get(v, key);
    if (member == NULL)
        fail_msg("the schema has no \"%s\" where one is due", key);
    return member;
}

/* The schema of a key by its dotted path; NULL = not there. */
static const attn_json *find(const char *path)
{
    const attn_json *v = schema;
    char part[64];
    while (*path != '\0') {
        size_t n = strcspn(path, ".");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = attn_json_get(attn_json_get(v, "properties"), part);
        path += n + (path[n] == '.');
    }
    return v;
}

static void assert_string(const attn_json *v, const char *want)
{
    const char *text;
    assert_true(attn_json_string(v, &text));
    assert_string_equal(text, want);
}

static void assert_integer(const attn_json *v, uint64_t want)
{
    int64_t number;
    assert_true(attn_json_integer(v, &number));
    assert_int_equal(number, want);
}

static void assert_names(const attn_json *list, const char *const *names, size_t n)
{
    assert_int_equal(attn_json_length(list), n);
    for (size_t i = 0; i < n; i++)
        assert_string(attn_json_at(list, i), names[i]);
}

static void assert_default(const attn_json *v, const char *want)
{
    char text[32];
    want = strcmp(want, CFG_NOTHING) == 0 ? "" : want;
    const char *string;
    int64_t integer;
    bool truth;
    if (attn_json_string(v, &string))
        assert_string_equal(string, want);
    else if (attn_json_bool(v, &truth))
        assert_string_equal(truth ? "true" : "false", want);
    else if (attn_json_is_array(v))
        assert_string_equal(attn_json_length(v) == 0 ? "[]" : "?", want);
    else {
        assert_true(attn_json_integer(v, &integer));
        (void)snprintf(text, sizeof text, "%lld", (long long)integer);
        assert_string_equal(text, want);
    }
}

/* {"anyOf": [{"type": "string"}, {"type": "array", ...}]} */
static void assert_list(const attn_json *v, uint64_t least, uint64_t most)
{
    const attn_json *forms = get(v, "anyOf"), *list = attn_json_at(forms, 1);
    assert_int_equal(attn_json_length(forms), 2);
    assert_string(get(attn_json_at(forms, 0), "type"), "string");
    assert_string(get(list, "type"), "array");
    assert_string(get(get(list, "items"), "type"), "string");
    assert_integer(get(list, "minItems"), least);
    assert_integer(get(list, "maxItems"), most);
}

/* {"anyOf": [{"const": "auto"}, other]}: gives other. */
static const attn_json *beside_auto(const attn_json *v)
{
    const attn_json *list = get(v, "anyOf");
    assert_int_equal(attn_json_length(list), 2);
    assert_string(get(attn_json_at(list, 0), "const"), "auto");
    return attn_json_at(list, 1);
}

static void every_key_of_the_table_stands_in_the_schema_alike(void **state)
{
    (void)state;
    static const char *const levels[] = {CFG_LOG_LEVELS}, *const formats[] = {CFG_LOG_FORMATS};
    for (size_t i = 0; i < N_KEYS; i++) {
        const char *type = KEYS[i].type;
        const attn_json *v = find(KEYS[i].path);
        if (v == NULL)
            fail_msg("%s is not in the schema", KEYS[i].path);
        assert_string(get(v, "description"), KEYS[i].help);
        assert_default(get(v, "default"), KEYS[i].fallback);

        bool is_auto = strncmp(type, "AUTO_", 5) == 0;
        const attn_json *kind = is_auto ? beside_auto(v) : v;
        type += is_auto ? 5 : 0;
        bool integer = strcmp(type, "INTEGER") == 0, size = strcmp(type, "SIZE") == 0;
        assert_int_equal(integer || size, attn_json_get(v, "minimum") != NULL);
        if (integer || size) {
            assert_integer(get(v, "minimum"), KEYS[i].least);
            assert_integer(get(v, "maximum"), KEYS[i].most);
        }
        if (integer)
            assert_string(get(kind, "type"), "integer");
        else if (size)
            assert_string(get(kind, "$ref"), "#/$defs/size");
        else if (strcmp(type, "DURATION") == 0)
            assert_string(get(v, "$ref"), "#/$defs/duration");
        else if (strcmp(type, "ADDRESSES") == 0 || strcmp(type, "HOSTS") == 0 ||
                 strcmp(type, "ORIGINS") == 0)
            assert_list(v, KEYS[i].least, KEYS[i].most);
        else if (strcmp(type, "PREFIX") == 0 || strcmp(type, "FILE_NAME") == 0)
            assert_string(get(v, "type"), "string");
        else if (strcmp(type, "BOOLEAN") == 0)
            assert_string(get(v, "type"), "boolean");
        else if (strcmp(type, "LOG_LEVEL") == 0)
            assert_names(get(v, "enum"), levels, sizeof levels / sizeof *levels);
        else if (strcmp(type, "LOG_FORMAT") == 0)
            assert_names(get(v, "enum"), formats, sizeof formats / sizeof *formats);
        else if (strcmp(type, "MODELS") == 0)
            assert_string(get(v, "type"), "array");
        else
            fail_msg("type %s is not known here", type);
    }
}

static void assert_closed(const attn_json *v)
{
    bool more = true;
    assert_string(get(v, "type"), "object");
    assert_true(attn_json_bool(get(v, "additionalProperties"), &more));
    assert_false(more);
}

static bool in_table(const char *path)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(KEYS[i].path, path) == 0)
            return true;
    }
    return false;
}

static void every_property_of_the_schema_stands_in_the_table(void **state)
{
    (void)state;
    const char *name, *member;
    const attn_json *v, *inner;
    size_t seen = 0;
    assert_closed(schema);
    for (void *it = NULL; attn_json_next(get(schema, "properties"), &it, &name, &v);) {
        if (strcmp(name, "$schema") == 0)
            continue;
        if (in_table(name)) {
            seen++;
            continue;
        }
        assert_closed(v);
        for (void *jt = NULL; attn_json_next(get(v, "properties"), &jt, &member, &inner);) {
            char path[128];
            (void)snprintf(path, sizeof path, "%s.%s", name, member);
            if (!in_table(path))
                fail_msg("%s stands in the schema alone", path);
            seen++;
        }
    }
    assert_int_equal(seen, N_KEYS);
}

static void members_of_a_model_are_those_of_the_schema(void **state)
{
    (void)state;
#define MEMBER(name) name,
    static const char *const members[] = {CFG_MODEL_MEMBERS(MEMBER)};
#undef MEMBER
    const size_t n = sizeof members / sizeof *members;
    const attn_json *items = get(find("models"), "items");
    assert_closed(items);
    assert_int_equal(attn_json_length(get(items, "properties")), n);
    for (size_t i = 0; i < n; i++)
        (void)get(get(items, "properties"), members[i]);
}

static void help_names_every_key_and_flag(void **state)
{
    (void)state;
    static const char *const usages[] = {
#define USAGE(id, name, argument, usage, help) usage,
        CFG_FLAGS(USAGE)
#undef USAGE
    };
    const char *help = cfg_help();
    for (size_t i = 0; i < N_KEYS; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, "\n  %s = %s\n      %s\n", KEYS[i].path, KEYS[i].fallback,
                       KEYS[i].help);
        assert_non_null(strstr(help, line));
    }
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++)
        assert_non_null(strstr(help, usages[i]));
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, 90);
}

static bool matches(const attn_json *pattern, const char *text)
{
    const char *source;
    regex_t re;
    assert_true(attn_json_string(pattern, &source));
    assert_int_equal(regcomp(&re, source, REG_EXTENDED | REG_NOSUB), 0);
    bool match = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return match;
}

static void sizes_are_read_exactly_and_as_the_schema_says(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {{"0", 0},
                 {"4096", 4096},
                 {"1B", 1},
                 {"1KiB", 1024},
                 {"007MiB", 7 << 20},
                 {"256MiB", 256 << 20},
                 {"1.5GiB", (uint64_t)3 << 29},
                 {"0.1KiB", 102},
                 {"0.000000001GiB", 1},
                 {"0.999999999GiB", 1073741822},
                 {"18446744073709551615", UINT64_MAX}};
    static const char *const wrong[] = {"",           "B",      "-1",      "+1",
                                        " 1",         "1 ",     "1 KiB",   "1KB",
                                        "1kib",       "1K",     "1.",      ".5KiB",
                                        "1.KiB",      "1.5",    "1.5B",    "1e3",
                                        "0x1",        "1,5KiB", "1.5KiBs", "0.0000000001GiB",
                                        "\xd9\xa1KiB"};
    const attn_json *forms = get(get(get(schema, "$defs"), "size"), "anyOf");
    const attn_json *pattern = get(attn_json_at(forms, 1), "pattern");
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        uint64_t bytes = 77;
        assert_true(cfg_parse_size(right[i].text, &bytes));
        assert_true(bytes == right[i].bytes);
        assert_true(matches(pattern, right[i].text));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t bytes = 77;
        if (cfg_parse_size(wrong[i], &bytes))
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_int_equal(bytes, 77);
        assert_false(matches(pattern, wrong[i]));
    }
}

static void sizes_and_durations_do_not_overflow(void **state)
{
    (void)state;
    static const char *const sizes[] = {"18446744073709551616", "17179869184GiB",
                                        "99999999999999999999999KiB"};
    static const char *const durations[] = {"9223372036854775808ms", "9223372036854776s",
                                            "18446744073709551616ms"};
    uint64_t bytes = 77;
    int64_t ms = 77;
    for (size_t i = 0; i < 3; i++) {
        assert_false(cfg_parse_size(sizes[i], &bytes));
        assert_false(cfg_parse_duration(durations[i], &ms));
    }
    assert_int_equal(bytes, 77);
    assert_int_equal(ms, 77);
    assert_true(cfg_parse_size("17179869183.999999999GiB", &bytes));
    assert_true(cfg_parse_duration("9223372036854775807ms", &ms));
    assert_true(ms == INT64_MAX);
}

static void durations_are_read_exactly_and_as_the_schema_says(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } right[] = {{"0s", 0},        {"10s", 10000},   {"1500ms", 1500}, {"1.5s", 1500},
                 {"2min", 120000}, {"0.1min", 6000}, {"0.0015s", 1}};
    static const char *const wrong[] = {
        "",    "10",    "-1s", "s",   "1 s",  "1h",  "1m",   "1S",
        "1.5", "1.5ms", "1.s", ".5s", "1e3s", "1us", "1sec", "0.0000000001s"};
    const attn_json *pattern = get(get(get(schema, "$defs"), "duration"), "pattern");
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        int64_t ms = 77;
        assert_true(cfg_parse_duration(right[i].text, &ms));
        assert_int_equal(ms, right[i].ms);
        assert_true(matches(pattern, right[i].text));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t ms = 77;
        if (cfg_parse_duration(wrong[i], &ms))
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_int_equal(ms, 77);
        assert_false(matches(pattern, wrong[i]));
    }
}

static void what_is_printed_reads_back(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0,        1,        1023,           1024,       1025,
                                     3u << 20, 1u << 30, (1u << 30) + 1, UINT64_MAX, CFG_PIB};
    static const int64_t durations[] = {0, 1, 999, 1000, 1500, 60000, INT64_MAX};
    char text[CFG_UNIT_CHARS];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes = 77;
        cfg_size_text(text, sizes[i]);
        assert_true(cfg_parse_size(text, &bytes));
        assert_true(bytes == sizes[i]);
    }
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        int64_t ms = 77;
        cfg_duration_text(text, durations[i]);
        assert_true(cfg_parse_duration(text, &ms));
        assert_true(ms == durations[i]);
    }
    cfg_size_text(text, 256 << 20);
    assert_string_equal(text, "256MiB");
    cfg_duration_text(text, 60000);
    assert_string_equal(text, "60s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_the_table_stands_in_the_schema_alike),
        cmocka_unit_test(every_property_of_the_schema_stands_in_the_table),
        cmocka_unit_test(members_of_a_model_are_those_of_the_schema),
        cmocka_unit_test(help_names_every_key_and_flag),
        cmocka_unit_test(sizes_are_read_exactly_and_as_the_schema_says),
        cmocka_unit_test(sizes_and_durations_do_not_overflow),
        cmocka_unit_test(durations_are_read_exactly_and_as_the_schema_says),
        cmocka_unit_test(what_is_printed_reads_back),
    };
    return cmocka_run_group_tests_name("config_schema", tests, read_schema, free_schema);
}
