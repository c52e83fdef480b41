#include "server/examples.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "server/demo.h"

enum { NAME_CHARS = 64 };

typedef struct {
    char name[NAME_CHARS + 1];
    char *body;
    size_t bytes;
} example;

struct srv_examples {
    size_t count;
    example item[SRV_EXAMPLES_MAX];
};

/* name = that of a file "NAME.json"; false when we do not list it. */
static bool example_name(char name[NAME_CHARS + 1], const char *file)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(file), suffix = strlen(".json");

    if (n <= suffix || n - suffix > NAME_CHARS || strcmp(file + n - suffix, ".json") != 0 ||
        file[0] == '.' || strspn(file, allowed) != n)
        return false;
    memcpy(name, file, n - suffix);
    name[n - suffix] = '\0';
    return true;
}

/* Takes `body`, also on failure. */
static attn_status add_take(srv_examples *e, const char *name, char *body, size_t bytes,
                            const char *path, attn_error *err)
{
    attn_json *document = NULL;
    attn_status rc = attn_json_parse(&document, body, bytes, path, err);

    if (rc == ATTN_OK && !attn_json_is_object(document))
        rc = attn_fail(err, ATTN_EFORMAT, "%s: an example is an object, not %s", path,
                       attn_json_type_name(document));
    if (rc == ATTN_OK && e->count == SRV_EXAMPLES_MAX)
        rc = attn_fail(err, ATTN_ETOOBIG, "%s: more than %u examples", path, SRV_EXAMPLES_MAX);
    attn_json_free(document);
    if (rc != ATTN_OK) {
        free(body);
        return rc;
    }
    example *x = &e->item[e->count++];
    (void)snprintf(x->name, sizeof x->name, "%s", name);
    x->body = body;
    x->bytes = bytes;
    return ATTN_OK;
}

static attn_status load_file(srv_examples *e, const char *folder, const char *file, attn_error *err)
{
    char name[NAME_CHARS + 1];
    char *path = NULL, *body = NULL;
    attn_file f = {.fd = -1};

    if (!example_name(name, file))
        return ATTN_OK;
    if (asprintf(&path, "%s/%s", folder, file) < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %s", file);
    attn_status rc = attn_file_open(&f, path, err);
    if (rc == ATTN_OK && f.size > SRV_EXAMPLE_BYTES)
        rc = attn_fail(err, ATTN_ETOOBIG, "%s: %" PRIu64 " bytes; an example has at most %u", path,
                       f.size, SRV_EXAMPLE_BYTES);
    if (rc == ATTN_OK && (body = malloc((size_t)f.size + 1)) == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "%s: no memory", path);
    if (rc == ATTN_OK)
        rc = attn_file_read(&f, 0, body, (size_t)f.size, err);
    if (rc == ATTN_OK) {
        rc = add_take(e, name, body, (size_t)f.size, path, err);
        body = NULL;
    }
    free(body);
    attn_file_close(&f);
    free(path);
    return rc;
}

static attn_status load_folder(srv_examples *e, const char *folder, attn_error *err)
{
    attn_status rc = ATTN_OK;
    const struct dirent *entry = NULL;
    DIR *d = opendir(folder);

    if (d == NULL) {
        if (errno == ENOENT || errno == ENOTDIR)
            return ATTN_OK;
        return attn_fail(err, ATTN_EIO, "%s: cannot read the folder: %s", folder, strerror(errno));
    }
    while (rc == ATTN_OK && (errno = 0, entry = readdir(d)) != NULL)
        rc = load_file(e, folder, entry->d_name, err);
    if (rc == ATTN_OK && errno != 0)
        rc = attn_fail(err, ATTN_EIO, "%s: cannot read the folder: %s", folder, strerror(errno));
    (void)closedir(d);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const example *)a)->name, ((const example *)b)->name);
}

static attn_status finish(srv_examples **out, srv_examples *e, attn_status rc)
{
    if (rc != ATTN_OK) {
        srv_examples_free(e);
        e = NULL;
    } else {
        qsort(e->item, e->count, sizeof *e->item, by_name);
    }
    *out = e;
    return rc;
}

attn_status srv_examples_load(srv_examples **out, const char *model_path, attn_error *err)
{
    attn_status rc = ATTN_ENOMEM;
    char *path = NULL, *folder = attn_file_folder(model_path);
    int n = folder == NULL ? -1 : asprintf(&path, "%s/examples", folder);

    *out = NULL;
    free(folder);
    if (n < 0)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory", model_path);
    srv_examples *e = calloc(1, sizeof *e);
    if (e != NULL)
        rc = load_folder(e, path, err);
    else
        (void)attn_fail(err, ATTN_ENOMEM, "%s: no memory", model_path);
    free(path);
    return finish(out, e, rc);
}

attn_status srv_examples_demo(srv_examples **out, attn_error *err)
{
    static const char folder[] = "examples/";
    attn_status rc = ATTN_OK;
    srv_examples *e = calloc(1, sizeof *e);

    *out = NULL;
    if (e == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the demo's examples");
    for (size_t i = 0; i < srv_demo_file_count() && rc == ATTN_OK; i++) {
        char name[NAME_CHARS + 1];
        const char *path = NULL;
        char *body = NULL;
        size_t n = 0;
        rc = srv_demo_file(i, &path, &body, &n, err);
        if (rc == ATTN_OK && strncmp(path, folder, strlen(folder)) == 0 &&
            example_name(name, path + strlen(folder)))
            rc = add_take(e, name, body, n, path, err);
        else
            free(body);
    }
    return finish(out, e, rc);
}

void srv_examples_free(srv_examples *e)
{
    for (size_t i = 0; e != NULL && i < e->count; i++)
        free(e->item[i].body);
    free(e);
}

size_t srv_examples_count(const srv_examples *e)
{
    return e != NULL ? e->count : 0;
}

const char *srv_examples_name(const srv_examples *e, size_t i)
{
    return e->item[i].name;
}

const char *srv_examples_body(const srv_examples *e, size_t i, size_t *n)
{
    *n = e->item[i].bytes;
    return e->item[i].body;
}
