#include "tests/st.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

/* --- reading ----------------------------------------------------------------------------- */

static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("%s: cannot open", path);
    if (fseek(f, 0, SEEK_END) != 0)
        fail_msg("%s: cannot seek", path);
    long size = ftell(f);
    rewind(f);
    unsigned char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, f);
    fclose(f);
    if (*n != (size_t)size)
        fail_msg("%s: short read", path);
    bytes[*n] = 0;
    return bytes;
}

static size_t element_bytes(const char *dtype)
{
    if (strcmp(dtype, "F32") == 0)
        return 4;
    if (strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0)
        return 2;
    if (strcmp(dtype, "I64") == 0 || strcmp(dtype, "F64") == 0)
        return 8;
    return strcmp(dtype, "BOOL") == 0 ? 1 : 0;
}

static void read_entry(st_tensor *t, const char *name, json_t *entry, const unsigned char *data,
                       size_t data_bytes)
{
    json_t *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *dim;
    size_t i;

    t->name = name;
    snprintf(t->dtype, sizeof t->dtype, "%s", json_string_value(json_object_get(entry, "dtype")));
    t->rank = json_array_size(shape);
    assert_true(t->rank <= ST_MAX_RANK);
    t->count = 1;
    json_array_foreach(shape, i, dim)
    {
        t->dim[i] = (size_t)json_integer_value(dim);
        t->count *= t->dim[i];
    }
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    t->bytes = end - begin;
    if (end < begin || end > data_bytes ||
        (element_bytes(t->dtype) > 0 && t->bytes != t->count * element_bytes(t->dtype)))
        fail_msg("tensor %s lies outside its file or does not fit its shape", name);
    t->data = data + begin;
}

st_file *st_open(const char *path)
{
    size_t size, length = 0, n = 0;
    json_error_t error;
    const char *name;
    json_t *entry;
    st_file *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->bytes = read_file(path, &size);
    for (size_t i = 0; size >= 8 && i < 8; i++)
        length |= (size_t)f->bytes[i] << (8 * i);
    if (size < 8 || length > size - 8)
        fail_msg("%s: not a safetensors file", path);
    json_t *header = json_loadb((const char *)f->bytes + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL)
        fail_msg("%s: %s", path, error.text);
    f->header = header;
    f->tensor = calloc(json_object_size(header) + 1, sizeof *f->tensor);
    assert_non_null(f->tensor);
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") != 0)
            read_entry(&f->tensor[n++], name, entry, f->bytes + 8 + length, size - 8 - length);
    }
    f->count = n;
    return f;
}

void st_close(st_file *f)
{
    if (f == NULL)
        return;
    json_decref(f->header);
    free(f->tensor);
    free(f->bytes);
    free(f);
}

const st_tensor *st_find(const st_file *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    }
    return NULL;
}

const st_tensor *st_need(const st_file *f, const char *name)
{
    const st_tensor *t = st_find(f, name);
    if (t == NULL)
        fail_msg("no tensor \"%s\"", name);
    return t;
}

float st_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value;
    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, -24);
    else
        value = ldexp(1024 + fraction, exponent - 25);
    return (float)(bits & 0x8000 ? -value : value);
}

uint16_t st_half_bits(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0, best = 0;
    double magnitude = fabs((double)value);
    if (isnan(value))
        return 0x7E00;
    if (magnitude >= 65520)
        return sign | 0x7C00;
    for (int bit = 14; bit >= 0; bit--) { /* the largest float16 that is not above it */
        uint16_t next = (uint16_t)(best | 1u << bit);
        if (next < 0x7C00 && (double)st_half(next) <= magnitude)
            best = next;
    }
    if (best < 0x7BFF) {
        double below = magnitude - (double)st_half(best);
        double above = (double)st_half((uint16_t)(best + 1)) - magnitude;
        if (above < below || (above == below && (best & 1)))
            best++;
    }
    return sign | best;
}

float *st_floats(const st_tensor *t)
{
    if (t == NULL)
        return NULL;
    float *out = malloc((t->count + 1) * sizeof *out);
    assert_non_null(out);
    if (strcmp(t->dtype, "F32") == 0) {
        memcpy(out, t->data, t->count * sizeof *out);
    } else if (strcmp(t->dtype, "F16") == 0) {
        for (size_t i = 0; i < t->count; i++) {
            uint16_t bits;
            memcpy(&bits, (const char *)t->data + 2 * i, 2);
            out[i] = st_half(bits);
        }
    } else {
        fail_msg("tensor %s is %s, not floating point", t->name, t->dtype);
    }
    return out;
}

double *st_doubles(const st_tensor *t)
{
    if (t == NULL)
        return NULL;
    float *narrow = st_floats(t);
    double *out = malloc((t->count + 1) * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < t->count; i++)
        out[i] = (double)narrow[i];
    free(narrow);
    return out;
}

int64_t *st_ints(const st_tensor *t)
{
    if (t == NULL)
        return NULL;
    int64_t *out = malloc((t->count + 1) * sizeof *out);
    assert_non_null(out);
    assert_string_equal(t->dtype, "I64");
    memcpy(out, t->data, t->count * sizeof *out);
    return out;
}

unsigned char *st_bools(const st_tensor *t)
{
    if (t == NULL)
        return NULL;
    unsigned char *out = malloc(t->count + 1);
    assert_non_null(out);
    assert_string_equal(t->dtype, "BOOL");
    memcpy(out, t->data, t->count);
    return out;
}

/* --- writing ----------------------------------------------------------------------------- */

void st_write(const char *path, const st_entry *entry, size_t n)
{
    json_t *header = json_object();
    size_t offset = 0;

    for (size_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (size_t d = 0; d < entry[i].rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)entry[i].dim[d]));
        json_object_set_new(header, entry[i].name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", entry[i].dtype, "shape",
                                      shape, "data_offsets", (json_int_t)offset,
                                      (json_int_t)(offset + entry[i].bytes)));
        offset += entry[i].bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    assert_non_null(text);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        fail_msg("%s: cannot create", path);
    for (size_t i = 0; i < 8; i++)
        fputc((int)(padded >> (8 * i) & 255), f);
    fprintf(f, "%s%*s", text, (int)(padded - length), "");
    for (size_t i = 0; i < n; i++)
        fwrite(entry[i].data, 1, entry[i].bytes, f);
    assert_int_equal(fclose(f), 0);
    free(text);
    json_decref(header);
}

/* One matrix or bias, as stored; the caller frees entry->data. */
static void native_entry(st_entry *entry, const float *x, size_t rows, size_t columns, bool half)
{
    size_t n = rows * columns, size = half ? 2 : 4;
    unsigned char *bytes = malloc(n * size);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) {
        float value = x != NULL ? x[i] : i / columns == i % columns ? 1.0F : 0.0F;
        uint16_t bits = st_half_bits(value);
        memcpy(bytes + i * size, half ? (const void *)&bits : &value, size);
    }
    entry->dtype = half ? "F16" : "F32";
    entry->dim[0] = rows;
    entry->dim[1] = columns;
    entry->data = bytes;
    entry->bytes = n * size;
}

void st_write_native(const char *dir, const st_native *m)
{
    static const char *const WEIGHT[] = {"layers.0.wq.weight", "layers.0.wk.weight",
                                         "layers.0.wv.weight", "layers.0.wo.weight"};
    static const char *const BIAS[] = {"layers.0.wq.bias", "layers.0.wk.bias", "layers.0.wv.bias",
                                       "layers.0.wo.bias"};
    size_t q = m->num_heads * m->head_dim, kv = m->num_kv_heads * m->head_dim, n = 0;
    const size_t rows[] = {q, kv, kv, m->d_model};
    const size_t columns[] = {m->d_model, m->d_model, m->d_model, q};
    st_entry entry[8];

    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 4; i++) {
        native_entry(&entry[n], m->weight[i], rows[i], columns[i], m->half);
        entry[n].name = WEIGHT[i];
        entry[n++].rank = 2;
        if (m->bias[i] == NULL)
            continue;
        native_entry(&entry[n], m->bias[i], rows[i], 1, m->half);
        entry[n].name = BIAS[i];
        entry[n++].rank = 1;
    }
    char *weights = st_path("%s/model.safetensors", dir), *config = st_path("%s/config.json", dir);
    char *text = st_path("{\"model_type\":\"attnd\",\"d_model\":%zu,\"num_heads\":%zu,"
                         "\"num_kv_heads\":%zu,\"head_dim\":%zu%s%s}",
                         m->d_model, m->num_heads, m->num_kv_heads, m->head_dim,
                         m->config != NULL ? "," : "", m->config != NULL ? m->config : "");
    st_write(weights, entry, n);
    st_write_text(config, text);
    while (n > 0)
        free((void *)(uintptr_t)entry[--n].data);
    free(weights);
    free(config);
    free(text);
}

void st_random(uint32_t *state, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525 + 1013904223; /* Numerical Recipes' */
        x[i] = (float)((double)(*state >> 8) / 0x1p23 - 1);
    }
}

void st_write_random(const char *dir, const st_native *m, uint32_t seed)
{
    size_t q = m->num_heads * m->head_dim, kv = m->num_kv_heads * m->head_dim;
    const size_t rows[] = {q, kv, kv, m->d_model};
    const size_t columns[] = {m->d_model, m->d_model, m->d_model, q};
    st_native copy = *m;
    float *all[8];

    for (size_t i = 0; i < 4; i++) {
        all[i] = malloc(rows[i] * columns[i] * sizeof(float));
        all[4 + i] = malloc(rows[i] * sizeof(float));
        assert_true(all[i] != NULL && all[4 + i] != NULL);
        st_random(&seed, all[i], rows[i] * columns[i]);
        st_random(&seed, all[4 + i], rows[i]);
        for (size_t k = 0; k < rows[i]; k++)
            all[4 + i][k] /= 2;
        copy.weight[i] = all[i];
        copy.bias[i] = all[4 + i];
    }
    st_write_native(dir, &copy);
    for (size_t i = 0; i < 8; i++)
        free(all[i]);
}

void st_write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (f == NULL)
        fail_msg("%s: cannot create", path);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* --- folders ----------------------------------------------------------------------------- */

char *st_path(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&out, format, args);
    va_end(args);
    assert_true(n >= 0);
    return out;
}

char *st_temp_dir(void)
{
    const char *parent = getenv("TMPDIR");
    char *dir = st_path("%s/attnd-test-XXXXXX", parent != NULL && *parent ? parent : "/tmp");
    if (mkdtemp(dir) == NULL)
        fail_msg("%s: cannot make a temporary folder", dir);
    return dir;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

void st_remove_dir(char *dir)
{
    if (dir == NULL)
        return;
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

char *st_shared(const char *below)
{
    const char *root = getenv("ATTND_SHARED");
    char *path = st_path("%s/%s", root != NULL && *root ? root : "../shared", below);
    if (access(path, R_OK) != 0) {
        free(path);
        return NULL;
    }
    return path;
}
