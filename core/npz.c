#include "npz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "npy.h"

enum {
    SUFFIX_BYTES = 4,        /* ".npy" */
    DEFLATE_MAX_RATIO = 1032 /* 258 bytes from two bits: no deflate stream gives more */
};

/* libzip's view of our file: a position of its own over pread(), so that each reader has its own
 * and all share one descriptor. */
typedef struct {
    const attn_file *file;
    uint64_t position;
    zip_error_t error;
} zip_input;

static zip_int64_t input_read(zip_input *in, void *out, zip_uint64_t n)
{
    uint64_t left = in->position < in->file->size ? in->file->size - in->position : 0;
    size_t wanted = (size_t)(n < left ? n : left);

    if (attn_file_read(in->file, in->position, out, wanted, NULL) != ATTN_OK) {
        zip_error_set(&in->error, ZIP_ER_READ, EIO);
        return -1;
    }
    in->position += wanted;
    return (zip_int64_t)wanted;
}

static zip_int64_t input_command(void *state, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    zip_input *in = state;

    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    case ZIP_SOURCE_OPEN:
        in->position = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return input_read(in, data, n);
    case ZIP_SOURCE_SEEK: {
        zip_int64_t to =
            zip_source_seek_compute_offset(in->position, in->file->size, data, n, &in->error);
        if (to < 0)
            return -1;
        in->position = (uint64_t)to;
        return 0;
    }
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)in->position;
    case ZIP_SOURCE_STAT: {
        zip_stat_t *st = ZIP_SOURCE_GET_ARGS(zip_stat_t, data, n, &in->error);
        if (st == NULL)
            return -1;
        zip_stat_init(st);
        st->size = in->file->size;
        st->valid = ZIP_STAT_SIZE;
        return sizeof *st;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&in->error, data, n);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: /* the input is ours */
        return 0;
    default:
        zip_error_set(&in->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static attn_status fail_zip(attn_error *err, zip_error_t *e, const char *path, const char *member)
{
    const char *reason = zip_error_strerror(e);
    attn_status code = ATTN_EFORMAT;

    switch (zip_error_code_zip(e)) {
    case ZIP_ER_MEMORY:
        code = ATTN_ENOMEM;
        break;
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
    case ZIP_ER_OPEN:
        code = ATTN_EIO;
        break;
    case ZIP_ER_NOPASSWD:
    case ZIP_ER_ENCRNOTSUPP:
        code = ATTN_EUNSUPPORTED;
        break;
    default:
        break;
    }
    if (member != NULL)
        return attn_fail(err, code, "%s: member \"%s\": %s", path, member, reason);
    return attn_fail(err, code, "%s: %s", path, reason);
}

static attn_status fail_not_zip(const attn_file *f, attn_error *err)
{
    unsigned char start[64];
    size_t n = f->size < sizeof start ? (size_t)f->size : sizeof start;
    const char *other = NULL;

    ATTN_TRY(attn_file_read(f, 0, start, n, err));
    if (n >= 4 && memcmp(start, "PK\003\004", 4) == 0)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: is cut: it starts as a zip archive, but has no directory at its end",
                         f->path);
    other = attn_file_looks_like(start, n);
    return attn_fail(err, ATTN_EFORMAT, "%s: not a zip archive%s%s", f->path,
                     other != NULL ? ": it looks like " : "", other != NULL ? other : "");
}

static bool has_no_directory(const zip_error_t *e)
{
#ifdef ZIP_ER_TRUNCATED_ZIP /* since 1.11, for what begins like an archive */
    if (zip_error_code_zip(e) == ZIP_ER_TRUNCATED_ZIP)
        return true;
#endif
    return zip_error_code_zip(e) == ZIP_ER_NOZIP;
}

/* `in` must outlive *out. */
static attn_status open_zip(zip_t **out, zip_input *in, const attn_file *f, attn_error *err)
{
    attn_status rc = ATTN_OK;
    zip_source_t *source = NULL;
    zip_error_t e;

    *out = NULL;
    in->file = f;
    in->position = 0;
    zip_error_init(&in->error);
    zip_error_init(&e);
    source = zip_source_function_create(input_command, in, &e);
    if (source != NULL)
        *out = zip_open_from_source(source, ZIP_RDONLY, &e);
    if (*out == NULL) {
        if (source != NULL)
            zip_source_free(source);
        rc = has_no_directory(&e) ? fail_not_zip(f, err) : fail_zip(err, &e, f->path, NULL);
    }
    zip_error_fini(&e);
    return rc;
}

static bool is_npy(const char *name)
{
    size_t n = strlen(name);
    return n > SUFFIX_BYTES && strcmp(name + n - SUFFIX_BYTES, ".npy") == 0;
}

/* What the directory of the zip says about a member, before a byte of it is trusted. */
static attn_status check_stat(const zip_stat_t *st, const attn_file *f, attn_error *err)
{
    const zip_uint64_t needed =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;

    if ((st->valid & needed) != needed)
        return attn_fail(err, ATTN_EFORMAT, "%s: member \"%s\": its sizes are not known", f->path,
                         st->name);
    if (st->encryption_method != ZIP_EM_NONE)
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s: member \"%s\" is encrypted", f->path,
                         st->name);
    if (st->comp_method != ZIP_CM_STORE && st->comp_method != ZIP_CM_DEFLATE)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: member \"%s\" has compression method %u, only stored (0) and deflate "
                         "(8) are read",
                         f->path, st->name, st->comp_method);
    if (st->comp_size > f->size)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: member \"%s\" claims %" PRIu64 " stored bytes, the file has %" PRIu64,
                         f->path, st->name, st->comp_size, f->size);
    if (st->size > st->comp_size * (st->comp_method == ZIP_CM_STORE ? 1 : DEFLATE_MAX_RATIO))
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: member \"%s\" claims %" PRIu64 " bytes, more than its %" PRIu64
                         " stored bytes can give",
                         f->path, st->name, st->size, st->comp_size);
    return ATTN_OK;
}

static attn_status fail_member(attn_error *err, zip_file_t *member, const char *path,
                               const char *name)
{
    return fail_zip(err, zip_file_get_error(member), path, name);
}

/* Reads n bytes, or less at the end, which *got tells. */
static attn_status read_member(zip_file_t *member, void *out, size_t n, size_t *got,
                               const char *path, const char *name, attn_error *err)
{
    char *to = out;

    for (*got = 0; *got < n;) {
        zip_int64_t bytes = zip_fread(member, to + *got, n - *got);
        if (bytes < 0)
            return fail_member(err, member, path, name);
        if (bytes == 0)
            break;
        *got += (size_t)bytes;
    }
    return ATTN_OK;
}

/* Fills t from the .npy header of member t->source; `header` has room for the longest. */
static attn_status read_header(attn_tensor *t, char *descr, zip_t *zip, const zip_stat_t *st,
                               unsigned char *header, attn_error *err)
{
    attn_status rc = ATTN_OK;
    size_t got = 0, more = 0, header_bytes = 0;
    char what[sizeof err->text];
    zip_file_t *member = zip_fopen_index(zip, t->source, 0);

    if (member == NULL)
        return fail_zip(err, zip_get_error(zip), t->file, st->name);
    (void)snprintf(what, sizeof what, "%s: member \"%s\"", t->file, st->name);
    rc = read_member(member, header, ATTN_NPY_PREFIX, &got, t->file, st->name, err);
    if (rc == ATTN_OK)
        rc = attn_npy_measure(&header_bytes, header, got, st->size, what, err);
    if (rc == ATTN_OK && header_bytes > got)
        rc = read_member(member, header + got, header_bytes - got, &more, t->file, st->name, err);
    if (rc == ATTN_OK)
        rc = attn_npy_parse(t, descr, header, got + more, st->size, what, err);
    (void)zip_fclose(member);
    return rc;
}

/* Fills z->tensor from every .npy member; z->strings has room for their names and types. */
static attn_status read_table(attn_npz *z, zip_t *zip, const attn_file *f, zip_uint64_t members,
                              unsigned char *header, attn_error *err)
{
    char *string = z->strings;

    for (zip_uint64_t i = 0; i < members; i++) {
        zip_stat_t st;
        if (zip_stat_index(zip, i, 0, &st) != 0)
            return fail_zip(err, zip_get_error(zip), f->path, NULL);
        if (!is_npy(st.name))
            continue;
        attn_tensor *t = &z->tensor[z->count];
        size_t n = strlen(st.name) - SUFFIX_BYTES;
        char *descr = string + n + 1;
        memcpy(string, st.name, n);
        string[n] = '\0';
        t->name = string;
        t->file = f->path;
        t->source = (size_t)i;
        ATTN_TRY(check_stat(&st, f, err));
        ATTN_TRY(read_header(t, descr, zip, &st, header, err));
        string = descr + strlen(descr) + 1;
        z->count++;
    }
    if (z->count == 0)
        return attn_fail(err, ATTN_EFORMAT, "%s: holds no .npy member%s", f->path,
                         zip_name_locate(zip, "data.pkl", ZIP_FL_NODIR) >= 0
                             ? ": it looks like a PyTorch checkpoint"
                             : "");
    return ATTN_OK;
}

/* Room for the names of all .npy members and the spellings of their types; *npy = how many. */
static attn_status measure_strings(zip_t *zip, const attn_file *f, zip_uint64_t members,
                                   size_t *npy, size_t *bytes, attn_error *err)
{
    *npy = 0;
    *bytes = 1;
    for (zip_uint64_t i = 0; i < members; i++) {
        const char *name = zip_get_name(zip, i, 0);
        if (name == NULL)
            return fail_zip(err, zip_get_error(zip), f->path, NULL);
        if (!is_npy(name))
            continue;
        *npy += 1;
        *bytes += strlen(name) + ATTN_NPY_DESCR_MAX;
    }
    return ATTN_OK;
}

attn_status attn_npz_init(attn_npz *z, const attn_file *f, attn_error *err)
{
    attn_status rc = ATTN_OK;
    zip_t *zip = NULL;
    zip_input input;
    unsigned char *header = NULL;
    zip_int64_t members = 0;
    size_t npy = 0, bytes = 0;

    *z = (attn_npz){0};
    if (f->size == 0) /* which libzip takes for an archive without members */
        return attn_fail(err, ATTN_EFORMAT, "%s: is empty (0 bytes)", f->path);
    rc = open_zip(&zip, &input, f, err);
    if (zip == NULL)
        goto done;
    members = zip_get_num_entries(zip, 0);
    rc = measure_strings(zip, f, (zip_uint64_t)members, &npy, &bytes, err);
    if (rc != ATTN_OK)
        goto done;
    z->tensor = calloc(npy + 1, sizeof *z->tensor);
    z->strings = malloc(bytes);
    header = malloc(ATTN_NPY_HEADER_MAX);
    if (z->tensor == NULL || z->strings == NULL || header == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for %zu members", f->path, npy);
        goto done;
    }
    rc = read_table(z, zip, f, (zip_uint64_t)members, header, err);
done:
    free(header);
    if (zip != NULL)
        zip_discard(zip);
    if (rc != ATTN_OK)
        attn_npz_deinit(z);
    return rc;
}

void attn_npz_deinit(attn_npz *z)
{
    free(z->tensor);
    free(z->strings);
    *z = (attn_npz){0};
}

struct attn_npz_member {
    const attn_tensor *tensor;
    zip_input input;
    zip_t *zip;
    zip_file_t *file;
};

attn_status attn_npz_member_open(attn_npz_member **out, const attn_file *f, const attn_tensor *t,
                                 attn_error *err)
{
    attn_status rc = ATTN_OK;
    attn_npz_member *m = calloc(1, sizeof *m);
    char header[1024];

    *out = NULL;
    if (m == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to inflate", f->path);
    m->tensor = t;
    rc = open_zip(&m->zip, &m->input, f, err);
    if (rc != ATTN_OK)
        goto done;
    m->file = zip_fopen_index(m->zip, t->source, 0);
    if (m->file == NULL) {
        rc = fail_zip(err, zip_get_error(m->zip), f->path, t->name);
        goto done;
    }
    for (size_t left = t->offset; left > 0 && rc == ATTN_OK;) {
        size_t n = left < sizeof header ? left : sizeof header;
        rc = attn_npz_member_read(m, header, n, err);
        left -= n;
    }
done:
    if (rc != ATTN_OK) {
        attn_npz_member_close(m);
        m = NULL;
    }
    *out = m;
    return rc;
}

attn_status attn_npz_member_read(attn_npz_member *m, void *out, size_t n, attn_error *err)
{
    size_t got = 0;

    ATTN_TRY(read_member(m->file, out, n, &got, m->tensor->file, m->tensor->name, err));
    if (got < n)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: member \"%s\" ends %zu bytes before the end of its array",
                         m->tensor->file, m->tensor->name, n - got);
    return ATTN_OK;
}

attn_status attn_npz_member_finish(attn_npz_member *m, attn_error *err)
{
    size_t got = 0;
    char more = 0;

    ATTN_TRY(read_member(m->file, &more, 1, &got, m->tensor->file, m->tensor->name, err));
    if (got > 0)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: member \"%s\" goes on after the %zu bytes of its array",
                         m->tensor->file, m->tensor->name, m->tensor->bytes);
    return ATTN_OK;
}

void attn_npz_member_close(attn_npz_member *m)
{
    if (m == NULL)
        return;
    if (m->file != NULL)
        (void)zip_fclose(m->file);
    if (m->zip != NULL)
        zip_discard(m->zip);
    free(m);
}
