/* schema.h: JSON Schema 2020-12, as much of it as config/openapi.json uses. */
#ifndef TESTS_SCHEMA_H
#define TESTS_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Follows {"$ref": "#/a/b"} in the document until something else stands there. The test fails when
 * there is nothing at such a place. */
const json_t *schema_resolve(const json_t *document, const json_t *node);

/* Whether the value is what the schema says; else `why` tells the first place where it is not. The test
 * fails when the schema holds a keyword that this does not know. */
bool schema_holds(const json_t *document, const json_t *schema, const json_t *value, char *why,
                  size_t size);

#endif
