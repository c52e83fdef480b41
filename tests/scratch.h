/* scratch.h: a temporary folder for a test program, and bytes to put into its files. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* For cmocka_run_group_tests(): make the folder, and remove it with all that is in it. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

const char *scratch_dir(void); /* without a '/' at its end */

/* The path of `name` in the folder. The last eight results stay valid. */
const char *scratch_path(const char *name);

/* Writes a file and returns its path, as scratch_path(). */
const char *scratch_write(const char *name, const void *bytes, size_t n);

/* Makes a folder in the folder. */
const char *scratch_mkdir(const char *name);

/* Growing bytes; start with {0}. */
typedef struct {
    unsigned char *at;
    size_t n;
} blob;

void blob_free(blob *b); /* and empties it */
void blob_add(blob *b, const void *bytes, size_t n);
void blob_text(blob *b, const char *text);
void blob_uint(blob *b, uint64_t value, size_t bytes); /* little-endian */

/* A safetensors file: header length, header, `data_bytes` of data 0, 1, 2, ... (mod 251). */
void blob_safetensors(blob *b, const char *header, size_t data_bytes);

/* A .npy file of the version 1 to 3: the header text as it is given, then the data. */
void blob_npy(blob *b, int version, const char *header, const void *data, size_t data_bytes);

#endif
