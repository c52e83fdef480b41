#include "tests/fuzz/weights.h"

#include <stdio.h>
#include <string.h>

#include "core/archive.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_BYTES = 1 << 20 }; /* of a tensor that is read */

static void try_tensor(const attn_archive *a, const attn_tensor *t)
{
    size_t size = attn_dtype_size(t->dtype), count = 1;
    attn_error err = {0};

    FUZZ_CHECK(t->name != NULL && t->file != NULL && t->dtype_name != NULL);
    FUZZ_CHECK(t->rank <= ATTN_MAX_RANK && attn_archive_find(a, t->name) == t);
    for (size_t i = 0; i < t->rank; i++)
        count *= t->dim[i];
    FUZZ_CHECK(count == t->count && (size == 0 || t->bytes == count * size));
    if (t->bytes > MOST_BYTES || t->count > MOST_BYTES)
        return;
    unsigned char *raw = malloc(t->bytes > 0 ? t->bytes : 1);
    float *x = malloc(t->count > 0 ? t->count * sizeof *x : 1);
    FUZZ_CHECK(raw != NULL && x != NULL);
    attn_status stored = attn_archive_read_raw(a, t, raw, &err);
    attn_status widened = attn_archive_read_f32(a, t, x, NULL);
    FUZZ_CHECK(stored != ATTN_ENOMEM);
    if (t->dtype == ATTN_F32 && !t->column_major && !t->big_endian)
        FUZZ_CHECK(stored == widened && (stored != ATTN_OK || memcmp(raw, x, t->bytes) == 0));
    else if (t->dtype > ATTN_F64)
        FUZZ_CHECK(widened == ATTN_EUNSUPPORTED);
    free(x);
    free(raw);
}

void weights_try(const char *name)
{
    char path[512];
    attn_archive *a = NULL;
    attn_error err = {0};

    (void)snprintf(path, sizeof path, "%s%s%s", fuzz_folder(), name != NULL ? "/" : "",
                   name != NULL ? name : "");
    attn_status rc = attn_archive_open(&a, path, &err);
    FUZZ_CHECK(rc == err.code && (rc == ATTN_OK) == (a != NULL));
    FUZZ_CHECK(rc == ATTN_OK || strncmp(err.text, path, strlen(path)) == 0);
    for (size_t i = 0; rc == ATTN_OK && i < attn_archive_count(a); i++)
        try_tensor(a, attn_archive_at(a, i));
    attn_archive_close(a);
}
