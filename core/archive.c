#include "archive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "npy.h"
#include "npz.h"
#include "safetensors.h"
#include "shards.h"

enum {
    SNIFF_BYTES = 64,
    CHUNK_BYTES = 16384 /* of stored elements that are converted at a time, on the stack */
};

typedef enum { SAFETENSORS, NPZ, NPY } format;

/* One open file with its tensors. */
typedef struct {
    attn_file file;
    format format;
    attn_safetensors safetensors;
    attn_npz npz;
    attn_tensor npy;
    char *npy_name;
    char npy_descr[ATTN_NPY_DESCR_MAX];
} source;

struct attn_archive {
    attn_shards shards;
    source *source; /* one for each path of shards; several only of safetensors */
    size_t num_sources;
    attn_tensor *tensor; /* by name; the strings are the sources' */
    size_t count;
};

static attn_status fail_memory(attn_error *err, const char *path)
{
    return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to open it", path);
}

/* The name decides where it says what it is, so that a wrong content is told as such. */
static format choose_format(const char *path, const unsigned char *start, size_t n)
{
    static const struct {
        const char *suffix;
        format format;
    } names[] = {{".safetensors", SAFETENSORS}, {".npz", NPZ}, {".npy", NPY}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (attn_ends_with(path, names[i].suffix))
            return names[i].format;
    }
    if (n >= 6 && memcmp(start, "\x93NUMPY", 6) == 0)
        return NPY;
    if (n >= 4 && memcmp(start, "PK\003\004", 4) == 0)
        return NPZ;
    return SAFETENSORS;
}

static attn_status open_safetensors(source *s, const unsigned char *start, size_t n,
                                    attn_error *err)
{
    attn_status rc = ATTN_OK;
    size_t header_bytes = 0;
    char *header = NULL;

    ATTN_TRY(attn_safetensors_measure(&header_bytes, start, n, s->file.size, s->file.path, err));
    header = malloc(header_bytes);
    if (header == NULL)
        return fail_memory(err, s->file.path);
    rc = attn_file_read(&s->file, ATTN_SAFETENSORS_PREFIX, header, header_bytes, err);
    if (rc == ATTN_OK)
        rc = attn_safetensors_parse(&s->safetensors, header, header_bytes,
                                    s->file.size - ATTN_SAFETENSORS_PREFIX - header_bytes,
                                    s->file.path, err);
    free(header);
    return rc;
}

static attn_status open_npy(source *s, const unsigned char *start, size_t n, attn_error *err)
{
    attn_status rc = ATTN_OK;
    const char *name = attn_file_name(s->file.path);
    size_t length = strlen(name) - (attn_ends_with(name, ".npy") ? strlen(".npy") : 0);
    size_t header_bytes = 0;
    char *header = NULL;

    ATTN_TRY(attn_npy_measure(&header_bytes, start, n, s->file.size, s->file.path, err));
    header = malloc(header_bytes);
    s->npy_name = strndup(name, length);
    if (header == NULL || s->npy_name == NULL) {
        free(header);
        return fail_memory(err, s->file.path);
    }
    rc = attn_file_read(&s->file, 0, header, header_bytes, err);
    if (rc == ATTN_OK)
        rc = attn_npy_parse(&s->npy, s->npy_descr, header, header_bytes, s->file.size, s->file.path,
                            err);
    s->npy.name = s->npy_name;
    s->npy.file = s->file.path;
    free(header);
    return rc;
}

/* On failure *s is for source_close() all the same. */
static attn_status source_open(source *s, const char *path, attn_error *err)
{
    unsigned char start[SNIFF_BYTES];
    size_t n = 0;

    ATTN_TRY(attn_file_open(&s->file, path, err));
    n = s->file.size < sizeof start ? (size_t)s->file.size : sizeof start;
    ATTN_TRY(attn_file_read(&s->file, 0, start, n, err));
    s->format = choose_format(path, start, n);
    switch (s->format) {
    case NPZ:
        return attn_npz_init(&s->npz, &s->file, err);
    case NPY:
        return open_npy(s, start, n, err);
    default:
        return open_safetensors(s, start, n, err);
    }
}

static void source_close(source *s)
{
    attn_safetensors_deinit(&s->safetensors);
    attn_npz_deinit(&s->npz);
    free(s->npy_name);
    attn_file_close(&s->file);
}

static const attn_tensor *source_tensors(const source *s, size_t *count)
{
    switch (s->format) {
    case NPZ:
        *count = s->npz.count;
        return s->npz.tensor;
    case NPY:
        *count = 1;
        return &s->npy;
    default:
        *count = s->safetensors.count;
        return s->safetensors.tensor;
    }
}

static const source *source_of(const attn_archive *a, const attn_tensor *t)
{
    /* In a .npz, which stands alone, the tensor's number is the member's. */
    return &a->source[a->source[0].format == SAFETENSORS ? t->source : 0];
}

static attn_status open_sources(attn_archive *a, attn_error *err)
{
    a->source = calloc(a->shards.count, sizeof *a->source);
    if (a->source == NULL)
        return fail_memory(err, a->shards.path[0]);
    while (a->num_sources < a->shards.count) {
        size_t i = a->num_sources++;
        ATTN_TRY(source_open(&a->source[i], a->shards.path[i], err));
    }
    return ATTN_OK;
}

static int compare_names(const void *a, const void *b)
{
    const attn_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Joins the tensors of all sources, by name. */
static attn_status merge(attn_archive *a, attn_error *err)
{
    size_t total = 0, count = 0;

    for (size_t i = 0; i < a->num_sources; i++) {
        (void)source_tensors(&a->source[i], &count);
        total += count;
    }
    a->tensor = calloc(total + 1, sizeof *a->tensor); /* never of zero bytes */
    if (a->tensor == NULL)
        return fail_memory(err, a->shards.path[0]);
    for (size_t i = 0; i < a->num_sources; i++) {
        const attn_tensor *t = source_tensors(&a->source[i], &count);
        for (size_t k = 0; k < count; k++) {
            a->tensor[a->count] = t[k];
            if (a->source[i].format == SAFETENSORS)
                a->tensor[a->count].source = i;
            a->count++;
        }
    }
    qsort(a->tensor, a->count, sizeof *a->tensor, compare_names);
    for (size_t i = 1; i < a->count; i++) {
        const attn_tensor *t = &a->tensor[i];
        if (strcmp(t[-1].name, t->name) != 0)
            continue;
        if (t[-1].file == t->file)
            return attn_fail(err, ATTN_EFORMAT, "%s: holds two tensors \"%s\"", t->file, t->name);
        return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\" is also in %s", t->file, t->name,
                         t[-1].file);
    }
    return ATTN_OK;
}

static attn_status check_map(const attn_archive *a, const char *path, attn_error *err)
{
    const attn_json *value = NULL;
    const char *name = NULL, *file = NULL;
    void *it = NULL;

    while (attn_json_next(a->shards.weight_map, &it, &name, &value)) {
        const attn_tensor *t = attn_archive_find(a, name);
        if (!attn_json_string(value, &file))
            return attn_fail(err, ATTN_EINTERNAL, "%s: weight_map was not checked", path);
        if (t == NULL)
            return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\" is not in %s", path, name, file);
        if (strcmp(attn_file_name(t->file), file) != 0)
            return attn_fail(err, ATTN_EFORMAT, "%s: tensor \"%s\" is not in %s but in %s", path,
                             name, file, attn_file_name(t->file));
    }
    return ATTN_OK;
}

attn_status attn_archive_open(attn_archive **out, const char *path, attn_error *err)
{
    attn_archive *a = calloc(1, sizeof *a);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (a == NULL)
        return fail_memory(err, path);
    rc = attn_shards_find(&a->shards, path, err);
    if (rc == ATTN_OK)
        rc = open_sources(a, err);
    if (rc == ATTN_OK)
        rc = merge(a, err);
    if (rc == ATTN_OK && a->shards.weight_map != NULL)
        rc = check_map(a, path, err);
    if (rc != ATTN_OK) {
        attn_archive_close(a);
        a = NULL;
    }
    *out = a;
    return rc;
}

void attn_archive_close(attn_archive *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->num_sources; i++)
        source_close(&a->source[i]);
    free(a->source);
    free(a->tensor);
    attn_shards_deinit(&a->shards);
    free(a);
}

size_t attn_archive_count(const attn_archive *a)
{
    return a->count;
}

const attn_tensor *attn_archive_at(const attn_archive *a, size_t i)
{
    return i < a->count ? &a->tensor[i] : NULL;
}

const attn_tensor *attn_archive_find(const attn_archive *a, const char *name)
{
    const attn_tensor key = {.name = name};
    return bsearch(&key, a->tensor, a->count, sizeof *a->tensor, compare_names);
}

/* The stored bytes of one tensor, in order. */
typedef struct {
    const source *source;
    uint64_t offset;         /* of the next byte */
    attn_npz_member *member; /* NULL: straight from the file */
} stream;

static attn_status stream_open(stream *s, const source *from, const attn_tensor *t, attn_error *err)
{
    *s = (stream){.source = from, .offset = t->offset};
    return from->format == NPZ ? attn_npz_member_open(&s->member, &from->file, t, err) : ATTN_OK;
}

static attn_status stream_read(stream *s, void *out, size_t n, attn_error *err)
{
    if (s->member != NULL)
        return attn_npz_member_read(s->member, out, n, err);
    ATTN_TRY(attn_file_read(&s->source->file, s->offset, out, n, err));
    s->offset += n;
    return ATTN_OK;
}

/* Takes the status of the reading so far; holds the end, and closes. */
static attn_status stream_close(stream *s, attn_status rc, attn_error *err)
{
    if (rc == ATTN_OK && s->member != NULL)
        rc = attn_npz_member_finish(s->member, err);
    if (rc == ATTN_OK)
        rc = attn_file_check_unchanged(&s->source->file, err);
    attn_npz_member_close(s->member);
    return rc;
}

static void swap_bytes(unsigned char *element, size_t n, size_t size)
{
    for (; n > 0; n--, element += size) {
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char byte = element[i];
            element[i] = element[size - 1 - i];
            element[size - 1 - i] = byte;
        }
    }
}

/* Where a column-major tensor's stored element goes in row-major order; a walk needs no division. */
typedef struct {
    const attn_tensor *tensor;
    size_t index[ATTN_MAX_RANK], stride[ATTN_MAX_RANK];
    size_t at;
} walk;

static void walk_start(walk *w, const attn_tensor *t)
{
    size_t stride = 1;

    *w = (walk){.tensor = t};
    for (size_t k = t->rank; k-- > 0;) {
        w->stride[k] = stride;
        stride *= t->dim[k];
    }
}

static void walk_next(walk *w)
{
    for (size_t k = 0; k < w->tensor->rank; k++) {
        w->at += w->stride[k];
        if (++w->index[k] < w->tensor->dim[k])
            return;
        w->at -= w->stride[k] * w->tensor->dim[k];
        w->index[k] = 0;
    }
}

/* attn_widen() has refused one of these n doubles: says which. `w` stands at the first one. */
static attn_status fail_beyond(const attn_tensor *t, walk *w, size_t first, const void *chunk,
                               size_t n, attn_error *err)
{
    const unsigned char *byte = chunk;
    double x = 0;

    for (size_t i = 0; i < n; i++) {
        memcpy(&x, byte + i * sizeof x, sizeof x);
        if (!isinf(x) && isinf((float)x))
            return attn_fail(err, ATTN_EINVAL,
                             "%s: tensor \"%s\": element %zu is %.10g, beyond float32", t->file,
                             t->name, t->column_major ? w->at : first + i, x);
        walk_next(w);
    }
    return attn_fail(err, ATTN_EINTERNAL, "%s: tensor \"%s\" cannot be widened", t->file, t->name);
}

static attn_status convert(stream *s, const attn_tensor *t, float *out, attn_error *err)
{
    _Alignas(8) unsigned char chunk[CHUNK_BYTES];
    float column[CHUNK_BYTES / 2] = {0};
    const size_t size = attn_dtype_size(t->dtype), most = sizeof chunk / size;
    size_t n = 0;
    walk w;

    walk_start(&w, t);
    for (size_t first = 0; first < t->count; first += n) {
        n = t->count - first < most ? t->count - first : most;
        ATTN_TRY(stream_read(s, chunk, n * size, err));
        if (t->big_endian)
            swap_bytes(chunk, n, size);
        float *to = t->column_major ? column : out + first;
        if (attn_widen(to, chunk, n, t->dtype, NULL) != ATTN_OK)
            return fail_beyond(t, &w, first, chunk, n, err);
        for (size_t i = 0; t->column_major && i < n; i++) {
            out[w.at] = column[i];
            walk_next(&w);
        }
    }
    return ATTN_OK;
}

/* A failure of the file does not know whose bytes were wanted. */
static attn_status name_tensor(attn_status rc, const attn_error *cause, const attn_tensor *t,
                               attn_error *err)
{
    if (rc == ATTN_OK || cause->code != ATTN_EIO)
        return rc == ATTN_OK ? rc : attn_fail(err, rc, "%s", cause->text);
    return attn_fail(err, rc, "%s (tensor \"%s\")", cause->text, t->name);
}

attn_status attn_archive_read_f32(const attn_archive *a, const attn_tensor *t, float *out,
                                  attn_error *err)
{
    attn_error cause = {0};
    attn_status rc = ATTN_OK;
    stream s;

    if (t->dtype != ATTN_F32 && t->dtype != ATTN_F16 && t->dtype != ATTN_BF16 &&
        t->dtype != ATTN_F64)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: tensor \"%s\" has dtype %s; weights are read from F32, F16, BF16 and "
                         "F64",
                         t->file, t->name, t->dtype_name);
    rc = stream_open(&s, source_of(a, t), t, &cause);
    if (rc == ATTN_OK && t->dtype == ATTN_F32 && !t->big_endian && !t->column_major)
        rc = stream_read(&s, out, t->bytes, &cause);
    else if (rc == ATTN_OK)
        rc = convert(&s, t, out, &cause);
    return name_tensor(stream_close(&s, rc, &cause), &cause, t, err);
}

attn_status attn_archive_read_raw(const attn_archive *a, const attn_tensor *t, void *out,
                                  attn_error *err)
{
    attn_error cause = {0};
    stream s;
    attn_status rc = stream_open(&s, source_of(a, t), t, &cause);

    if (rc == ATTN_OK)
        rc = stream_read(&s, out, t->bytes, &cause);
    return name_tensor(stream_close(&s, rc, &cause), &cause, t, err);
}
