/* Opens and reads every kind of archive with each allocation failing in turn. malloc and its kin
 * are defined here over those of the C library, which reaches the libraries that we use as well. */
#include "core/archive.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zip.h>

#include "tests/scratch.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifdef SANITIZED

int main(void)
{
    print_message("skipped: failing allocations: the sanitizer has its own malloc\n");
    return 0;
}

#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static long fail_at;   /* the nth call from here fails; 0 = none */
static long allocated; /* and not yet freed */

static bool fails(void)
{
    return fail_at > 0 && --fail_at == 0;
}

void *malloc(size_t n)
{
    void *p = fails() ? NULL : __libc_malloc(n);
    allocated += p != NULL;
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __libc_calloc(n, size);
    allocated += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __libc_realloc(old, n);
    allocated += old == NULL && p != NULL;
    return p;
}

void free(void *p)
{
    allocated -= p != NULL;
    __libc_free(p);
}

/* Opens `path` and reads all of it. */
static attn_status open_and_read(const char *path, attn_error *err)
{
    attn_archive *a = NULL;
    attn_status rc = attn_archive_open(&a, path, err);

    assert_int_equal(rc == ATTN_OK, a != NULL);
    for (size_t i = 0; rc == ATTN_OK && i < attn_archive_count(a); i++) {
        float out[8];
        assert_in_range(attn_archive_at(a, i)->count, 1, 8);
        rc = attn_archive_read_f32(a, attn_archive_at(a, i), out, err);
    }
    attn_archive_close(a);
    return rc;
}

/* libzip and opendir() tell some failures their own way: any code but success is right, and the
 * sentence still names the path. `balanced`: a failure frees all that was allocated. */
static void survives_every_failed_allocation(const char *path, bool balanced)
{
    bool reached = true;
    long n = 0;

    assert_int_equal(open_and_read(path, NULL), ATTN_OK); /* what is made once is made */
    while (reached) {
        attn_error err = {0};
        long before = allocated;
        fail_at = ++n;
        attn_status rc = open_and_read(path, &err);
        reached = fail_at == 0;
        fail_at = 0;
        if (balanced)
            assert_int_equal(allocated, before);
        assert_int_equal(err.code, rc);
        if (rc != ATTN_OK && strstr(err.text, scratch_dir()) != err.text)
            fail_msg("allocation %ld: %s", n, err.text);
        if (!reached)
            assert_int_equal(rc, ATTN_OK);
        assert_true(n < 10000);
    }
    assert_true(n > 5);
}

static void a_file_survives(void **state)
{
    blob b = {0};
    (void)state;
    blob_safetensors(&b,
                     "{\"__metadata__\":{\"k\":\"v\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2],"
                     "\"data_offsets\":[0,8]}}",
                     8);
    const char *path = scratch_write("w.safetensors", b.at, b.n);
    blob_free(&b);
    survives_every_failed_allocation(path, true);
}

static void a_folder_with_an_index_survives(void **state)
{
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
    const char *folder = scratch_mkdir("f");
    (void)state;
    for (int i = 0; i < 2; i++) {
        blob b = {0};
        blob_safetensors(&b,
                         i == 0 ? "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}"
                                : "{\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}",
                         8);
        scratch_write(i == 0 ? "f/1.safetensors" : "f/2.safetensors", b.at, b.n);
        blob_free(&b);
    }
    survives_every_failed_allocation(folder, true); /* without the index */
    scratch_write("f/model.safetensors.index.json", index, sizeof index - 1);
    survives_every_failed_allocation(folder, true);
}

static void npy_and_npz_survive(void **state)
{
    blob b = {0};
    (void)state;
    blob_npy(&b, 1, "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 1), }",
             "\x3f\x80\0\0\x3f\x80\0\0", 8);
    survives_every_failed_allocation(scratch_write("w.npy", b.at, b.n), true);

    const char *path = scratch_path("w.npz");
    zip_t *z = zip_open(path, ZIP_CREATE, NULL);
    assert_non_null(z);
    for (int i = 0; i < 2; i++) {
        zip_source_t *s = zip_source_buffer(z, b.at, b.n, 0);
        zip_int64_t at = zip_file_add(z, i == 0 ? "a.npy" : "b.npy", s, 0);
        assert_int_equal(at, i);
        assert_int_equal(zip_set_file_compression(z, (zip_uint64_t)at,
                                                  i == 0 ? ZIP_CM_STORE : ZIP_CM_DEFLATE, 9),
                         0);
    }
    assert_int_equal(zip_close(z), 0);
    blob_free(&b);
    /* Out of memory, zip_fopen_index() of libzip 1.7 keeps a source of its own, and tzset(), which
     * it calls, the name of a zone less. */
    survives_every_failed_allocation(path, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_survives),
        cmocka_unit_test(a_folder_with_an_index_survives),
        cmocka_unit_test(npy_and_npz_survive),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

#endif
