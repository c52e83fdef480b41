#include "scratch.h"

#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATHS = 8, PATH_BYTES = 512 };

static char dir[256];

int scratch_setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/attnd-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

int scratch_teardown(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_dir(void)
{
    return dir;
}

const char *scratch_path(const char *name)
{
    static char paths[PATHS][PATH_BYTES];
    static size_t next;
    char *path = paths[next++ % PATHS];

    (void)snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    return path;
}

const char *scratch_write(const char *name, const void *bytes, size_t n)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");

    if (f == NULL || (n > 0 && fwrite(bytes, 1, n, f) != n) || fclose(f) != 0) {
        perror(path);
        abort();
    }
    return path;
}

const char *scratch_mkdir(const char *name)
{
    const char *path = scratch_path(name);

    if (mkdir(path, 0700) != 0) {
        perror(path);
        abort();
    }
    return path;
}

void blob_free(blob *b)
{
    free(b->at);
    *b = (blob){0};
}

void blob_add(blob *b, const void *bytes, size_t n)
{
    unsigned char *grown = realloc(b->at, b->n + n + 1);

    if (grown == NULL)
        abort();
    b->at = grown;
    if (n > 0)
        memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void blob_text(blob *b, const char *text)
{
    blob_add(b, text, strlen(text));
}

void blob_uint(blob *b, uint64_t value, size_t bytes)
{
    unsigned char byte[8];

    assert(bytes <= sizeof byte);
    for (size_t i = 0; i < bytes; i++)
        byte[i] = (unsigned char)(value >> (8 * i));
    blob_add(b, byte, bytes);
}

void blob_safetensors(blob *b, const char *header, size_t data_bytes)
{
    blob_uint(b, strlen(header), 8);
    blob_text(b, header);
    for (size_t i = 0; i < data_bytes; i++)
        blob_uint(b, i % 251, 1);
}

void blob_npy(blob *b, int version, const char *header, const void *data, size_t data_bytes)
{
    blob_text(b, "\x93NUMPY");
    blob_uint(b, (uint64_t)version, 1);
    blob_uint(b, 0, 1);
    blob_uint(b, strlen(header), version == 1 ? 2 : 4);
    blob_text(b, header);
    blob_add(b, data, data_bytes);
}
