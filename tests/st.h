/* st.h: a small safetensors reader and writer for tests.
 *
 * It shares no code with core, so that a mistake in core's reader cannot hide itself. Whatever is
 * wrong with a file fails the running test. */
#ifndef TESTS_ST_H
#define TESTS_ST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ST_MAX_RANK 8

typedef struct {
    const char *name;
    char dtype[8]; /* as the file spells it: "F32", "F16", "I64", "BOOL" */
    size_t rank, dim[ST_MAX_RANK];
    size_t count;     /* product of dim */
    size_t bytes;     /* of data */
    const void *data; /* little-endian, at any alignment; valid until st_close() */
} st_tensor;

typedef struct {
    st_tensor *tensor;
    size_t count;
    void *header; /* a jansson object: owns the names */
    unsigned char *bytes;
} st_file;

st_file *st_open(const char *path);
void st_close(st_file *f); /* takes NULL */

const st_tensor *st_find(const st_file *f, const char *name); /* NULL = not there */
const st_tensor *st_need(const st_file *f, const char *name); /* not there: the test fails */

/* A tensor's values, widened; the caller frees them. F32 and F16 become floats or doubles, I64
 * becomes ints, BOOL becomes bytes of 0 and 1. NULL in, NULL out. */
double *st_doubles(const st_tensor *t);
float *st_floats(const st_tensor *t);
int64_t *st_ints(const st_tensor *t);
unsigned char *st_bools(const st_tensor *t);

/* One tensor to write: the elements as they lie in memory, `bytes` of them. */
typedef struct {
    const char *name, *dtype;
    size_t rank, dim[ST_MAX_RANK];
    const void *data;
    size_t bytes;
} st_entry;

/* Writes a safetensors file with these tensors in this order. */
void st_write(const char *path, const st_entry *entry, size_t n);

/* A model of one layer in the native layout. */
typedef struct {
    size_t d_model, num_heads, num_kv_heads, head_dim;
    const float *weight[4]; /* q, k, v, o as [out,in]; NULL = identity, as far as it goes */
    const float *bias[4];   /* NULL = none */
    bool half;              /* store as F16 */
    const char *config;     /* further members of config.json, "\"alibi\":true"; NULL = none */
} st_native;

/* Writes it into a new folder. */
void st_write_native(const char *dir, const st_native *m);

/* The same with weights in -1..1 and biases in -0.5..0.5 that follow from `seed` alone; those of *m are
 * not looked at. */
void st_write_random(const char *dir, const st_native *m, uint32_t seed);

/* x[i] in -1..1; *state carries on from call to call. */
void st_random(uint32_t *state, float *x, size_t n);

float st_half(uint16_t bits);       /* the value of a float16 */
uint16_t st_half_bits(float value); /* the nearest float16, ties to even */

/* Folders and files for tests. */
char *st_temp_dir(void);       /* a new empty folder; give it to st_remove_dir() */
void st_remove_dir(char *dir); /* removes it with all it holds, and frees the name */
void st_write_text(const char *path, const char *text);
char *st_path(const char *format, ...) __attribute__((format(printf, 1, 2))); /* caller frees */

/* The folder of shared vectors ($ATTND_SHARED, else ../shared), with `below` behind it; NULL when
 * it is not there. The caller frees it. */
char *st_shared(const char *below);

#endif
