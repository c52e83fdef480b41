/* formats.h: bodies and answers of every media type, for tests over HTTP. Use scratch_setup() with it. */
#ifndef TESTS_FORMATS_H
#define TESTS_FORMATS_H

#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/scratch.h"
#include "tests/st.h"

#define FORMAT_JSON        "application/json"
#define FORMAT_NPY         "application/x-npy"
#define FORMAT_SAFETENSORS "application/vnd.safetensors"
#define FORMAT_PNG         "image/png"

/* float32 in C order. */
blob format_npy(const float *x, size_t rank, const size_t *dim);

/* Tensors of a type each, and the text of __metadata__, an object; NULL = none. */
blob format_safetensors(const st_entry *entry, size_t n, const char *metadata);

/* A JSON body; `rest` are further members, ",\"layer\":1". */
char *format_json(const float *x, size_t rank, const size_t *dim, const char *rest);

blob format_gzip(const void *bytes, size_t n);
/* What such a body says; the test fails when it is damaged or anything follows it. */
blob format_gunzip(const void *bytes, size_t n);

/* POST with up to four more header fields ("Accept: x"), NULL = none. */
test_reply format_post(const test_daemon *d, const char *path, const char *type, const void *body,
                       size_t n, const char *const fields[4]);

/* The answer must have this status and type. */
void format_expect(const test_reply *r, long status, const char *type);

/* The tensors of a safetensors answer. */
st_file *format_tensors(const test_reply *r);

/* Array of an answer in .npy that must have this type ("<f4") and these sizes; points into the answer. */
const void *format_array(const test_reply *r, const char *type, size_t rank, const size_t *dim);

#endif
