#include "tests/schema.h"

#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const json_t *document;
    char at[256]; /* JSON Pointer into the value */
    char *why;
    size_t size;
} checker;

typedef bool keyword(checker *c, const json_t *schema, const json_t *rule, const json_t *value);

static bool holds(checker *c, const json_t *schema, const json_t *value);

static bool refuse(checker *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(checker *c, const char *format, ...)
{
    va_list args;
    int n = snprintf(c->why, c->size, "%s: ", c->at[0] != '\0' ? c->at : "the value");

    va_start(args, format);
    if (n > 0 && (size_t)n < c->size)
        (void)vsnprintf(c->why + n, c->size - (size_t)n, format, args);
    va_end(args);
    return false;
}

const json_t *schema_resolve(const json_t *document, const json_t *node)
{
    for (const json_t *ref; (ref = json_object_get(node, "$ref")) != NULL;) {
        const char *at = json_string_value(ref);
        char part[128];

        assert_true(at != NULL && strncmp(at, "#/", 2) == 0);
        node = document;
        for (at++; *at == '/' && node != NULL;) {
            size_t n = strcspn(++at, "/");
            assert_true(n < sizeof part && memchr(at, '~', n) == NULL);
            (void)snprintf(part, sizeof part, "%.*s", (int)n, at);
            node = json_object_get(node, part);
            at += n;
        }
        if (node == NULL)
            fail_msg("there is nothing at %s", json_string_value(ref));
    }
    return node;
}

/* Checks a value inside the value, named by key or, with NULL, by index. */
static bool inside(checker *c, const json_t *schema, const json_t *value, const char *key, size_t i)
{
    size_t n = strlen(c->at);
    bool ok;

    if (key != NULL)
        (void)snprintf(c->at + n, sizeof c->at - n, "/%s", key);
    else
        (void)snprintf(c->at + n, sizeof c->at - n, "/%zu", i);
    ok = holds(c, schema, value);
    c->at[n] = '\0';
    return ok;
}

static bool is_integer(const json_t *v)
{
    return json_is_integer(v) ||
           (json_is_real(v) && json_real_value(v) == rint(json_real_value(v)));
}

static bool is_type(const json_t *v, const char *name)
{
    return strcmp(name, "object") == 0    ? json_is_object(v)
           : strcmp(name, "array") == 0   ? json_is_array(v)
           : strcmp(name, "string") == 0  ? json_is_string(v)
           : strcmp(name, "number") == 0  ? json_is_number(v)
           : strcmp(name, "integer") == 0 ? is_integer(v)
           : strcmp(name, "boolean") == 0 ? json_is_boolean(v)
                                          : strcmp(name, "null") == 0 && json_is_null(v);
}

static bool check_type(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    size_t i;
    const json_t *one;

    (void)schema;
    if (json_is_string(rule))
        return is_type(value, json_string_value(rule)) ||
               refuse(c, "is not of type %s", json_string_value(rule));
    json_array_foreach(rule, i, one)
    {
        if (is_type(value, json_string_value(one)))
            return true;
    }
    return refuse(c, "is of none of the types");
}

static bool check_ref(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)rule;
    return holds(c, schema_resolve(c->document, schema), value);
}

static bool check_any_of(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    size_t i;
    const json_t *one;

    (void)schema;
    json_array_foreach(rule, i, one)
    {
        if (holds(c, one, value))
            return true;
    }
    return refuse(c, "is nothing of anyOf");
}

static bool check_enum(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    size_t i;
    const json_t *one;

    (void)schema;
    json_array_foreach(rule, i, one)
    {
        if (json_equal(one, value))
            return true;
    }
    return refuse(c, "is nothing of the enum");
}

static bool check_const(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)schema;
    return json_equal(rule, value) || refuse(c, "is not the const");
}

static bool check_required(checker *c, const json_t *schema, const json_t *rule,
                           const json_t *value)
{
    size_t i;
    const json_t *name;

    (void)schema;
    json_array_foreach(rule, i, name)
    {
        if (json_is_object(value) && json_object_get(value, json_string_value(name)) == NULL)
            return refuse(c, "has no %s", json_string_value(name));
    }
    return true;
}

static bool check_properties(checker *c, const json_t *schema, const json_t *rule,
                             const json_t *value)
{
    const char *key;
    json_t *member, *mutable = (json_t *)(uintptr_t)value; /* the iterator asks for it */

    (void)schema;
    json_object_foreach(mutable, key, member)
    {
        const json_t *one = json_object_get(rule, key);
        if (one != NULL && !inside(c, one, member, key, 0))
            return false;
    }
    return true;
}

static bool check_additional(checker *c, const json_t *schema, const json_t *rule,
                             const json_t *value)
{
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *member, *mutable = (json_t *)(uintptr_t)value;

    json_object_foreach(mutable, key, member)
    {
        if (json_object_get(properties, key) != NULL)
            continue;
        if (json_is_false(rule))
            return refuse(c, "has a member %s too many", key);
        if (!inside(c, rule, member, key, 0))
            return false;
    }
    return true;
}

static bool check_names(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    const char *key;
    json_t *member, *mutable = (json_t *)(uintptr_t)value;

    (void)schema;
    json_object_foreach(mutable, key, member)
    {
        json_t *name = json_string(key);
        bool ok = inside(c, rule, name, key, 0);
        json_decref(name);
        if (!ok)
            return false;
    }
    return true;
}

static bool check_items(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    size_t i;
    const json_t *item;

    (void)schema;
    json_array_foreach(value, i, item)
    {
        if (!inside(c, rule, item, NULL, i))
            return false;
    }
    return true;
}

static bool check_min_items(checker *c, const json_t *schema, const json_t *rule,
                            const json_t *value)
{
    (void)schema;
    return !json_is_array(value) || json_array_size(value) >= (size_t)json_integer_value(rule) ||
           refuse(c, "is too short");
}

static bool check_max_items(checker *c, const json_t *schema, const json_t *rule,
                            const json_t *value)
{
    (void)schema;
    return !json_is_array(value) || json_array_size(value) <= (size_t)json_integer_value(rule) ||
           refuse(c, "is too long");
}

static bool check_unique(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)schema;
    assert_true(json_is_true(rule));
    for (size_t i = 0; i < json_array_size(value); i++) {
        for (size_t k = 0; k < i; k++) {
            if (json_equal(json_array_get(value, i), json_array_get(value, k)))
                return refuse(c, "holds something twice");
        }
    }
    return true;
}

static bool check_minimum(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)schema;
    return !json_is_number(value) || json_number_value(value) >= json_number_value(rule) ||
           refuse(c, "is less than %g", json_number_value(rule));
}

static bool check_maximum(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)schema;
    return !json_is_number(value) || json_number_value(value) <= json_number_value(rule) ||
           refuse(c, "is more than %g", json_number_value(rule));
}

static bool check_pattern(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    regex_t expression;

    (void)schema;
    if (!json_is_string(value))
        return true;
    assert_int_equal(regcomp(&expression, json_string_value(rule), REG_EXTENDED | REG_NOSUB), 0);
    int found = regexec(&expression, json_string_value(value), 0, NULL, 0);
    regfree(&expression);
    return found == 0 || refuse(c, "does not match %s", json_string_value(rule));
}

static bool no_check(checker *c, const json_t *schema, const json_t *rule, const json_t *value)
{
    (void)c, (void)schema, (void)rule, (void)value;
    return true;
}

static const struct {
    const char *name;
    keyword *check;
} keywords[] = {{"$ref", check_ref},
                {"type", check_type},
                {"anyOf", check_any_of},
                {"enum", check_enum},
                {"const", check_const},
                {"required", check_required},
                {"properties", check_properties},
                {"additionalProperties", check_additional},
                {"propertyNames", check_names},
                {"items", check_items},
                {"minItems", check_min_items},
                {"maxItems", check_max_items},
                {"uniqueItems", check_unique},
                {"minimum", check_minimum},
                {"maximum", check_maximum},
                {"pattern", check_pattern},
                {"description", no_check},
                {"default", no_check},
                {"examples", no_check},
                {"contentEncoding", no_check}};

static bool holds(checker *c, const json_t *schema, const json_t *value)
{
    const char *key;
    json_t *rule, *mutable = (json_t *)(uintptr_t)schema;

    assert_true(json_is_object(schema));
    json_object_foreach(mutable, key, rule)
    {
        size_t i = 0, n = sizeof keywords / sizeof *keywords;
        while (i < n && strcmp(key, keywords[i].name) != 0)
            i++;
        if (i == n)
            fail_msg("the schema has the keyword %s, which tests/schema.c does not know", key);
        if (!keywords[i].check(c, schema, rule, value))
            return false;
    }
    return true;
}

bool schema_holds(const json_t *document, const json_t *schema, const json_t *value, char *why,
                  size_t size)
{
    checker c = {.document = document, .why = why, .size = size};
    return holds(&c, schema, value);
}
