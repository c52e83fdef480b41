#include "server/demo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/demo_model.h"

/* --- the files --------------------------------------------------------------------------------- */

#define EXAMPLES "examples"

static const struct {
    const char *name;
    size_t layer;
    const char *sentences[2]; /* one, or a batch of two; tokens stand between spaces */
} examples[] = {
    {EXAMPLES "/1-cat-on-the-mat.json",
     0,
     {"the cat sat on the mat because the cat was tired .", NULL}},
    {EXAMPLES "/2-a-rose-is-a-rose.json", 0, {"a rose is a rose is a rose .", NULL}},
    {EXAMPLES "/3-cat-and-dog-layer-1.json",
     1,
     {"the cat saw a dog and the dog saw the cat .", NULL}},
    {EXAMPLES "/4-rain-layer-1.json",
     1,
     {"when the rain came , the dog ran and the cat ran .", NULL}},
    {EXAMPLES "/5-batch-of-two.json",
     0,
     {"the dog sat and the cat sat .", "which dog saw the cat ? the dog on the mat ."}},
};

enum { CONFIG, WEIGHTS, FIRST_EXAMPLE, NUM_EXAMPLES = sizeof examples / sizeof *examples };

static void print_config(FILE *f)
{
    size_t n = 0;
    const srv_demo_token *token = srv_demo_vocabulary(&n);
    attn_layer_spec s = srv_demo_spec();

    (void)fprintf(
        f,
        "{\n  \"model_type\": \"attnd\",\n"
        "  \"description\": \"Made from formulas, not trained. An embedding is 1, p, p*p (the "
        "position p from 0), 5 flags for the kind of word, and the token's index in the vocabulary "
        "as 8 binary digits, 1 or -1, lowest first. An output adds up an eighth of the digits that "
        "each head reads.\",\n"
        "  \"d_model\": %zu,\n  \"num_heads\": %zu,\n  \"num_kv_heads\": %zu,\n"
        "  \"head_dim\": %zu,\n  \"v_head_dim\": %zu,\n  \"is_causal\": false,\n"
        "  \"scale\": 1,\n  \"head_names\": [\n",
        s.d_model, s.num_heads, s.num_kv_heads, s.head_dim, s.v_head_dim);
    for (size_t l = 0; l < SRV_DEMO_LAYERS; l++) {
        for (size_t h = 0; h < SRV_DEMO_HEADS; h++)
            (void)fprintf(f, "%s\"%s\"", h == 0 ? "    [" : ", ", srv_demo_head_name(l, h));
        (void)fprintf(f, "]%s\n", l + 1 < SRV_DEMO_LAYERS ? "," : "");
    }
    (void)fprintf(f, "  ],\n  \"vocabulary\": {\n    \"kinds\": [");
    for (size_t k = 0; k < SRV_DEMO_KINDS; k++)
        (void)fprintf(f, "%s\"%s\"", k == 0 ? "" : ", ", srv_demo_kind_name(k));
    (void)fprintf(f, "],\n    \"tokens\": [\n");
    for (size_t i = 0; i < n; i++)
        (void)fprintf(f, "      {\"token\": \"%s\", \"kind\": \"%s\"}%s\n", token[i].text,
                      srv_demo_kind_name(token[i].kind), i + 1 < n ? "," : "");
    (void)fprintf(f, "    ]\n  }\n}\n");
}

/* The tensors of one layer in the order of the file. */
typedef struct {
    const char *name;
    size_t rows, columns;
    size_t place; /* in srv_demo_weights */
} tensor;

static const tensor tensors[] = {
    {"wq", (size_t)SRV_DEMO_HEADS *SRV_DEMO_WIDTH, SRV_DEMO_WIDTH, offsetof(srv_demo_weights, wq)},
    {"wk", SRV_DEMO_WIDTH, SRV_DEMO_WIDTH, offsetof(srv_demo_weights, wk)},
    {"wv", SRV_DEMO_DIGITS, SRV_DEMO_WIDTH, offsetof(srv_demo_weights, wv)},
    {"wo", SRV_DEMO_WIDTH, (size_t)SRV_DEMO_HEADS *SRV_DEMO_DIGITS, offsetof(srv_demo_weights, wo)},
};

enum { NUM_TENSORS = sizeof tensors / sizeof *tensors };

static void print_header(FILE *f)
{
    size_t offset = 0;

    for (size_t l = 0; l < SRV_DEMO_LAYERS; l++) {
        for (size_t t = 0; t < NUM_TENSORS; t++) {
            size_t end = offset + tensors[t].rows * tensors[t].columns * sizeof(float);
            (void)fprintf(f,
                          "%s\"layers.%zu.%s.weight\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],"
                          "\"data_offsets\":[%zu,%zu]}",
                          offset == 0 ? "{" : ",", l, tensors[t].name, tensors[t].rows,
                          tensors[t].columns, offset, end);
            offset = end;
        }
    }
    (void)fputc('}', f);
    while (ftell(f) % 8 != 0)
        (void)fputc(' ', f);
}

/* `n` low bytes of v, lowest first. */
static void put_little(FILE *f, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)fputc((int)(v >> 8 * i & 0xff), f);
}

static void put_floats(FILE *f, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &x[i], sizeof bits);
        put_little(f, bits, sizeof bits);
    }
}

/* False when there is no memory; as with the other files, `f` remembers its own failures. */
static bool print_weights(FILE *f)
{
    char *header = NULL;
    size_t n = 0;
    srv_demo_weights *w = malloc(sizeof *w);
    FILE *h = open_memstream(&header, &n);
    bool ok = w != NULL && h != NULL;

    if (ok)
        print_header(h);
    if (h != NULL && fclose(h) != 0)
        ok = false;
    if (ok) {
        put_little(f, n, 8);
        (void)fwrite(header, 1, n, f);
    }
    for (size_t l = 0; ok && l < SRV_DEMO_LAYERS; l++) {
        srv_demo_fill(w, l);
        for (size_t t = 0; t < NUM_TENSORS; t++)
            put_floats(f, (const float *)((const char *)w + tensors[t].place),
                       tensors[t].rows * tensors[t].columns);
    }
    free(header);
    free(w);
    return ok;
}

/* Cuts the next token off a sentence; false at its end. */
static bool next_token(const char **sentence, const char **token, size_t *n)
{
    *token = *sentence + strspn(*sentence, " ");
    *n = strcspn(*token, " ");
    *sentence = *token + *n;
    return *n > 0;
}

static size_t token_number(const char *text, size_t n)
{
    size_t count = 0;
    const srv_demo_token *token = srv_demo_vocabulary(&count);

    for (size_t i = 0; i < count; i++) {
        if (strlen(token[i].text) == n && memcmp(token[i].text, text, n) == 0)
            return i;
    }
    abort(); /* the examples are ours: their words are in the vocabulary */
}

static void print_tokens(FILE *f, const char *sentence)
{
    const char *token = NULL;
    size_t n = 0;

    for (const char *separator = "["; next_token(&sentence, &token, &n); separator = ", ")
        (void)fprintf(f, "%s\"%.*s\"", separator, (int)n, token);
    (void)fputc(']', f);
}

static void print_embeddings(FILE *f, const char *sentence)
{
    static const int width[SRV_DEMO_WIDTH] = {1, 2, 3, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};
    const char *token = NULL;
    size_t n = 0;

    for (int p = 0; next_token(&sentence, &token, &n); p++) {
        int x[SRV_DEMO_WIDTH];
        srv_demo_embed(x, token_number(token, n), p);
        (void)fputs(p == 0 ? "      [" : ",\n      [", f);
        for (size_t i = 0; i < SRV_DEMO_WIDTH; i++)
            (void)fprintf(f, "%s%*d", i == 0 ? "" : ", ", width[i], x[i]);
        (void)fputc(']', f);
    }
}

static void print_example(FILE *f, size_t e)
{
    size_t n = examples[e].sentences[1] == NULL ? 1 : 2;

    (void)fprintf(f, "{\n  \"layer\": %zu,\n  \"return_attentions\": true,\n  \"tokens\": [\n    ",
                  examples[e].layer);
    for (size_t b = 0; b < n; b++) {
        (void)fputs(b == 0 ? "" : ",\n    ", f);
        print_tokens(f, examples[e].sentences[b]);
    }
    (void)fputs("\n  ],\n  \"inputs_embeds\": [\n    [\n", f);
    for (size_t b = 0; b < n; b++) {
        (void)fputs(b == 0 ? "" : "\n    ],\n    [\n", f);
        print_embeddings(f, examples[e].sentences[b]);
    }
    (void)fputs("\n    ]\n  ]\n}\n", f);
}

size_t srv_demo_file_count(void)
{
    return FIRST_EXAMPLE + NUM_EXAMPLES;
}

static const char *file_name(size_t i)
{
    switch (i) {
    case CONFIG:
        return "config.json";
    case WEIGHTS:
        return "model.safetensors";
    default:
        return examples[i - FIRST_EXAMPLE].name;
    }
}

attn_status srv_demo_file(size_t i, const char **name, char **bytes, size_t *n, attn_error *err)
{
    bool ok = true;

    *name = file_name(i);
    *bytes = NULL;
    *n = 0;
    FILE *f = open_memstream(bytes, n);
    if (f != NULL) {
        if (i == CONFIG)
            print_config(f);
        else if (i == WEIGHTS)
            ok = print_weights(f);
        else
            print_example(f, i - FIRST_EXAMPLE);
        ok = !ferror(f) && ok;
        ok = fclose(f) == 0 && ok;
    }
    if (f == NULL || !ok) {
        free(*bytes);
        *bytes = NULL;
        *n = 0;
        (void)attn_fail(err, ATTN_ENOMEM, "no memory for the demo's %s", *name);
        return ATTN_ENOMEM;
    }
    return ATTN_OK;
}

/* --- as a folder ------------------------------------------------------------------------------- */

static attn_status fail_errno(attn_error *err, const char *dir, const char *name, const char *verb)
{
    return attn_fail(err, ATTN_EIO, "%s%s%s: cannot %s: %s", dir, name[0] ? "/" : "", name, verb,
                     strerror(errno));
}

static bool is_ours(const char *path)
{
    for (size_t i = 0; i < srv_demo_file_count(); i++) {
        if (strcmp(path, file_name(i)) == 0)
            return true;
    }
    return strcmp(path, EXAMPLES) == 0;
}

/* Refuses a folder with a name in it that is not ours; `sub` is "" or a folder in it with "/". */
static attn_status check_names(int dir_fd, const char *dir, const char *sub, attn_error *err)
{
    attn_status rc = ATTN_OK;
    const struct dirent *e = NULL;
    int fd = openat(dir_fd, sub[0] ? sub : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (d == NULL) {
        int reason = errno;
        if (fd >= 0)
            (void)close(fd);
        errno = reason;
        return reason == ENOENT ? ATTN_OK : fail_errno(err, dir, sub, "read");
    }
    while (rc == ATTN_OK && (errno = 0, e = readdir(d)) != NULL) {
        char path[sizeof e->d_name + sizeof EXAMPLES];
        (void)snprintf(path, sizeof path, "%s%s", sub, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !is_ours(path))
            rc = attn_fail(err, ATTN_EINVAL,
                           "%s: the folder is not empty and not a demo model: it holds %s", dir,
                           path);
    }
    if (rc == ATTN_OK && errno != 0)
        rc = fail_errno(err, dir, sub, "read");
    (void)closedir(d);
    return rc;
}

/* *found: a file of that name is there, and it has these bytes; others are refused. */
static attn_status check_file(int dir_fd, const char *dir, const char *name, const char *bytes,
                              size_t n, bool *found, attn_error *err)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char *have = NULL;
    bool equal = false;

    *found = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? ATTN_OK : fail_errno(err, dir, name, "read");
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uintmax_t)st.st_size == n &&
        (have = malloc(n + 1)) != NULL) {
        size_t got = 0;
        ssize_t r = 0;
        while (got < n && (r = read(fd, have + got, n - got)) > 0)
            got += (size_t)r;
        equal = got == n && memcmp(have, bytes, n) == 0;
    }
    free(have);
    (void)close(fd);
    return equal ? ATTN_OK
                 : attn_fail(err, ATTN_EINVAL,
                             "%s/%s is there and differs from the demo's; nothing was changed", dir,
                             name);
}

/* All or nothing: a file that cannot be written whole is removed. */
static attn_status write_file(int dir_fd, const char *dir, const char *name, const char *bytes,
                              size_t n, attn_error *err)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    size_t done = 0;

    if (fd < 0)
        return fail_errno(err, dir, name, "write");
    while (done < n) {
        ssize_t w = write(fd, bytes + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            break;
        done += (size_t)w;
    }
    attn_status rc = done == n ? ATTN_OK : fail_errno(err, dir, name, "write");
    if (close(fd) != 0 && rc == ATTN_OK)
        rc = fail_errno(err, dir, name, "write");
    if (rc != ATTN_OK)
        (void)unlinkat(dir_fd, name, 0);
    return rc;
}

/* Checks every file that is there, or writes those that are not. */
static attn_status walk_files(int dir_fd, const char *dir, bool writing, attn_error *err)
{
    attn_status rc = ATTN_OK;

    for (size_t i = 0; i < srv_demo_file_count() && rc == ATTN_OK; i++) {
        const char *name = NULL;
        char *bytes = NULL;
        size_t n = 0;
        bool found = false;
        rc = srv_demo_file(i, &name, &bytes, &n, err);
        if (rc == ATTN_OK)
            rc = check_file(dir_fd, dir, name, bytes, n, &found, err);
        if (rc == ATTN_OK && writing && !found)
            rc = write_file(dir_fd, dir, name, bytes, n, err);
        free(bytes);
    }
    return rc;
}

attn_status srv_demo_write(const char *dir, attn_error *err)
{
    attn_status rc = ATTN_OK;
    int fd = -1;

    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return fail_errno(err, dir, "", "make the folder");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(err, dir, "", "open the folder");
    if ((rc = check_names(fd, dir, "", err)) != ATTN_OK ||
        (rc = check_names(fd, dir, EXAMPLES "/", err)) != ATTN_OK ||
        (rc = walk_files(fd, dir, false, err)) != ATTN_OK)
        goto done;
    if (mkdirat(fd, EXAMPLES, 0777) != 0 && errno != EEXIST)
        rc = fail_errno(err, dir, EXAMPLES, "make the folder");
    else
        rc = walk_files(fd, dir, true, err);
done:
    (void)close(fd);
    return rc;
}

/* --- as layers --------------------------------------------------------------------------------- */

attn_status srv_demo_layers(attn_layer ***layers, size_t *n, attn_error *err)
{
    attn_status rc = ATTN_OK;
    attn_layer_spec spec = srv_demo_spec();
    srv_demo_weights *w = malloc(sizeof *w);
    attn_layer **made = calloc(SRV_DEMO_LAYERS, sizeof(attn_layer *));

    *layers = NULL;
    *n = 0;
    if (w == NULL || made == NULL)
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for the demo's layers");
    for (size_t l = 0; l < SRV_DEMO_LAYERS && rc == ATTN_OK; l++) {
        srv_demo_fill(w, l);
        attn_layer_weights weights = {.wq = w->wq, .wk = w->wk, .wv = w->wv, .wo = w->wo};
        rc = attn_layer_new(&made[l], &spec, &weights, err);
    }
    free(w);
    if (rc == ATTN_OK) {
        *layers = made;
        *n = SRV_DEMO_LAYERS;
        return ATTN_OK;
    }
    for (size_t l = 0; made != NULL && l < SRV_DEMO_LAYERS; l++)
        attn_layer_free(made[l]);
    free(made);
    return rc;
}
