#include "shards.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

enum { INDEX_BYTES_MAX = 100000000, MISSING_TEXT = 320 };

bool attn_ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

const char *attn_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Appends `folder` (n bytes) joined with `name`. */
static attn_status add(attn_shards *s, const char *folder, size_t n, const char *name,
                       attn_error *err)
{
    const char *slash = n > 0 && folder[n - 1] != '/' ? "/" : "";
    size_t bytes = n + strlen(slash) + strlen(name) + 1;
    char **grown = realloc(s->path, (s->count + 1) * sizeof *grown);
    char *path = NULL;

    if (grown != NULL) {
        s->path = grown;
        path = malloc(bytes);
    }
    if (path == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%.*s%s%s: not enough memory to list it", (int)n, folder,
                         slash, name);
    (void)snprintf(path, bytes, "%.*s%s%s", (int)n, folder, slash, name);
    s->path[s->count++] = path;
    return ATTN_OK;
}

static int compare_paths(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static void sort_and_unite(attn_shards *s)
{
    size_t kept = 0;

    if (s->count > 0)
        qsort(s->path, s->count, sizeof *s->path, compare_paths);
    for (size_t i = 0; i < s->count; i++) {
        if (kept > 0 && strcmp(s->path[kept - 1], s->path[i]) == 0)
            free(s->path[i]);
        else
            s->path[kept++] = s->path[i];
    }
    s->count = kept;
}

static bool is_missing(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* All missing files in one sentence, as many as fit. */
static attn_status check_present(const attn_shards *s, const char *index, attn_error *err)
{
    char names[MISSING_TEXT] = "";
    size_t missing = 0, shown = 0, used = 0;

    for (size_t i = 0; i < s->count; i++) {
        const char *name = attn_file_name(s->path[i]);
        if (!is_missing(s->path[i]))
            continue;
        missing++;
        if (shown + 1 == missing && used + strlen(name) + 2 < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     shown > 0 ? ", " : "", name);
            shown++;
        }
    }
    if (missing == 0)
        return ATTN_OK;
    if (shown < missing)
        return attn_fail(err, ATTN_ENOTFOUND, "%s: %zu files are missing: %s and %zu more", index,
                         missing, names, missing - shown);
    return attn_fail(err, ATTN_ENOTFOUND, "%s: %zu file%s missing: %s", index, missing,
                     missing == 1 ? " is" : "s are", names);
}

/* A file beside the index and nothing else: no path that leads out of the folder. */
static bool is_plain_name(const char *name)
{
    return strpbrk(name, "/\\") == NULL && name[0] != '.' && attn_ends_with(name, ".safetensors");
}

static attn_status read_index(attn_shards *s, const char *path, attn_error *err)
{
    const char *tensor = NULL, *name = NULL;
    const attn_json *value = NULL;
    void *it = NULL;
    size_t folder = (size_t)(attn_file_name(path) - path);

    ATTN_TRY(attn_json_read_file(&s->index, path, INDEX_BYTES_MAX, err));
    s->weight_map = attn_json_get(s->index, "weight_map");
    if (!attn_json_is_object(s->weight_map) || attn_json_length(s->weight_map) == 0)
        return attn_fail(
            err, ATTN_EFORMAT, "%s: weight_map is %s, not an object of tensor and file names", path,
            attn_json_is_object(s->weight_map) ? "empty" : attn_json_type_name(s->weight_map));
    while (attn_json_next(s->weight_map, &it, &tensor, &value)) {
        if (!attn_json_string(value, &name))
            return attn_fail(err, ATTN_EFORMAT, "%s: the file of tensor \"%s\" is %s, not a string",
                             path, tensor, attn_json_type_name(value));
        if (!is_plain_name(name))
            return attn_fail(err, ATTN_EFORMAT,
                             "%s: the file of tensor \"%s\" is \"%s\", not the name of a "
                             ".safetensors file in the same folder",
                             path, tensor, name);
        /* Tensors of a shard mostly follow each other: most repetitions go here. */
        if (s->count > 0 && strcmp(attn_file_name(s->path[s->count - 1]), name) == 0)
            continue;
        ATTN_TRY(add(s, path, folder, name, err));
    }
    sort_and_unite(s);
    return check_present(s, path, err);
}

/* What a folder holds, by name alone. */
typedef struct {
    attn_shards index, single; /* none or one file: INDEX_NAME, SINGLE_NAME */
    attn_shards safetensors, npz;
    char foreign[64]; /* a weight file that is not read, for the message */
} listing;

static attn_status list_entry(listing *l, const char *folder, const char *name, attn_error *err)
{
    static const char *const foreign[] = {".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".onnx"};

    if (name[0] == '.')
        return ATTN_OK;
    if (strcmp(name, INDEX_NAME) == 0)
        return add(&l->index, folder, strlen(folder), name, err);
    if (strcmp(name, SINGLE_NAME) == 0)
        ATTN_TRY(add(&l->single, folder, strlen(folder), name, err));
    if (attn_ends_with(name, ".safetensors"))
        return add(&l->safetensors, folder, strlen(folder), name, err);
    if (attn_ends_with(name, ".npz"))
        return add(&l->npz, folder, strlen(folder), name, err);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (attn_ends_with(name, foreign[i]))
            (void)snprintf(l->foreign, sizeof l->foreign, "%.60s", name);
    }
    return ATTN_OK;
}

static attn_status list_folder(listing *l, const char *folder, attn_error *err)
{
    attn_status rc = ATTN_OK;
    char reason[128];
    const struct dirent *entry = NULL;
    DIR *dir = opendir(folder);

    if (dir == NULL)
        return attn_fail(err, errno == ENOMEM ? ATTN_ENOMEM : ATTN_EIO, "%s: cannot be listed: %s",
                         folder, strerror_r(errno, reason, sizeof reason));
    errno = 0;
    while (rc == ATTN_OK && (entry = readdir(dir)) != NULL) {
        rc = list_entry(l, folder, entry->d_name, err);
        errno = 0;
    }
    if (rc == ATTN_OK && errno != 0)
        rc = attn_fail(err, ATTN_EIO, "%s: cannot be listed: %s", folder,
                       strerror_r(errno, reason, sizeof reason));
    (void)closedir(dir);
    sort_and_unite(&l->safetensors);
    sort_and_unite(&l->npz);
    return rc;
}

static void move(attn_shards *to, attn_shards *from)
{
    attn_shards_deinit(to);
    *to = *from;
    *from = (attn_shards){0};
}

/* The index, unless a file of its list is missing and the whole model lies beside it in one. */
static attn_status choose_index(attn_shards *s, listing *l, attn_error *err)
{
    attn_error reason = {0};
    attn_status rc = read_index(s, l->index.path[0], &reason);

    if (rc == ATTN_ENOTFOUND && l->single.count > 0) {
        move(s, &l->single);
        return ATTN_OK;
    }
    return rc == ATTN_OK ? rc : attn_fail(err, rc, "%s", reason.text);
}

static attn_status choose(attn_shards *s, listing *l, const char *folder, attn_error *err)
{
    if (l->index.count > 0)
        return choose_index(s, l, err);
    if (l->safetensors.count > 0) {
        move(s, &l->safetensors);
        return ATTN_OK;
    }
    if (l->npz.count == 1) {
        move(s, &l->npz);
        return ATTN_OK;
    }
    if (l->npz.count > 1)
        return attn_fail(
            err, ATTN_EINVAL, "%s: holds %zu .npz files (%s, %s, ...): give the path of one",
            folder, l->npz.count, attn_file_name(l->npz.path[0]), attn_file_name(l->npz.path[1]));
    if (l->foreign[0] != '\0')
        return attn_fail(err, ATTN_ENOTFOUND,
                         "%s: holds no .safetensors and no .npz file; %s is of a kind that is not "
                         "read",
                         folder, l->foreign);
    return attn_fail(err, ATTN_ENOTFOUND, "%s: holds no .safetensors and no .npz file", folder);
}

attn_status attn_shards_find(attn_shards *s, const char *path, attn_error *err)
{
    attn_status rc = ATTN_OK;
    char reason[128];
    struct stat st;

    *s = (attn_shards){0};
    if (stat(path, &st) != 0)
        return attn_fail(err, ATTN_EIO, "%s: cannot be opened: %s", path,
                         strerror_r(errno, reason, sizeof reason));
    if (S_ISDIR(st.st_mode)) {
        listing l = {0};
        rc = list_folder(&l, path, err);
        if (rc == ATTN_OK)
            rc = choose(s, &l, path, err);
        attn_shards_deinit(&l.index);
        attn_shards_deinit(&l.single);
        attn_shards_deinit(&l.safetensors);
        attn_shards_deinit(&l.npz);
    } else if (attn_ends_with(path, ".index.json")) {
        rc = read_index(s, path, err);
    } else {
        rc = add(s, "", 0, path, err);
    }
    if (rc != ATTN_OK)
        attn_shards_deinit(s);
    return rc;
}

void attn_shards_deinit(attn_shards *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->path[i]);
    free(s->path);
    attn_json_free(s->index);
    *s = (attn_shards){0};
}
