#include "core/archive.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <zip.h>

#include "tests/scratch.h"

#define SIX "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n"

static const float six[] = {1, 2, 3, 4, 5, 6};

static uint32_t crc32_of(const unsigned char *byte, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (; n > 0; n--, byte++) {
        crc ^= *byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
    }
    return ~crc;
}

/* A zip written by hand, so that its fields can lie. */
typedef struct {
    blob file, directory;
    size_t members;
} pack;

typedef struct {
    const char *name;
    const void *bytes; /* as stored */
    size_t stored;     /* their number */
    uint64_t size;     /* inflated, as it is claimed */
    unsigned method;   /* 0 stored, 8 deflate */
    uint32_t crc;      /* of what it inflates to */
    bool local64;      /* sizes in the local header's zip64 extra field, as NumPy writes them */
    bool directory64;  /* sizes in the directory's too */
    unsigned flags;
} member;

static void pack_add(pack *z, member m)
{
    uint64_t at = z->file.n;

    blob_uint(&z->file, 0x04034b50, 4);
    blob_uint(&z->file, m.local64 ? 45 : 20, 2);
    blob_uint(&z->file, m.flags, 2);
    blob_uint(&z->file, m.method, 2);
    blob_uint(&z->file, 0x00210000, 4);
    blob_uint(&z->file, m.crc, 4);
    blob_uint(&z->file, m.local64 ? 0xffffffff : m.stored, 4);
    blob_uint(&z->file, m.local64 ? 0xffffffff : m.size, 4);
    blob_uint(&z->file, strlen(m.name), 2);
    blob_uint(&z->file, m.local64 ? 20 : 0, 2);
    blob_text(&z->file, m.name);
    if (m.local64) {
        blob_uint(&z->file, 1, 2);
        blob_uint(&z->file, 16, 2);
        blob_uint(&z->file, m.size, 8);
        blob_uint(&z->file, m.stored, 8);
    }
    blob_add(&z->file, m.bytes, m.stored);

    blob *d = &z->directory;
    blob_uint(d, 0x02014b50, 4);
    blob_uint(d, 45, 2);
    blob_uint(d, m.directory64 ? 45 : 20, 2);
    blob_uint(d, m.flags, 2);
    blob_uint(d, m.method, 2);
    blob_uint(d, 0x00210000, 4);
    blob_uint(d, m.crc, 4);
    blob_uint(d, m.directory64 ? 0xffffffff : m.stored, 4);
    blob_uint(d, m.directory64 ? 0xffffffff : m.size, 4);
    blob_uint(d, strlen(m.name), 2);
    blob_uint(d, m.directory64 ? 20 : 0, 2);
    blob_uint(d, 0, 2); /* comment */
    blob_uint(d, 0, 2); /* disk */
    blob_uint(d, 0, 2); /* attributes, two kinds */
    blob_uint(d, 0, 4);
    blob_uint(d, at, 4);
    blob_text(d, m.name);
    if (m.directory64) {
        blob_uint(d, 1, 2);
        blob_uint(d, 16, 2);
        blob_uint(d, m.size, 8);
        blob_uint(d, m.stored, 8);
    }
    z->members++;
}

/* Writes the file and empties z. */
static const char *pack_write(pack *z, const char *name)
{
    size_t directory_at = z->file.n;

    blob_add(&z->file, z->directory.at, z->directory.n);
    blob_uint(&z->file, 0x06054b50, 4);
    blob_uint(&z->file, 0, 4);
    blob_uint(&z->file, z->members, 2);
    blob_uint(&z->file, z->members, 2);
    blob_uint(&z->file, z->directory.n, 4);
    blob_uint(&z->file, directory_at, 4);
    blob_uint(&z->file, 0, 2);
    const char *path = scratch_write(name, z->file.at, z->file.n);
    blob_free(&z->file);
    blob_free(&z->directory);
    z->members = 0;
    return path;
}

static member stored(const char *name, const blob *npy)
{
    return (member){.name = name,
                    .bytes = npy->at,
                    .stored = npy->n,
                    .size = npy->n,
                    .crc = crc32_of(npy->at, npy->n)};
}

/* The .npy of `six`, each value plus `shift`. */
static blob npy_of_six(float shift)
{
    blob b = {0};
    float data[6];
    for (size_t i = 0; i < 6; i++)
        data[i] = six[i] + shift;
    blob_npy(&b, 1, SIX, data, sizeof data);
    return b;
}

static attn_archive *open_ok(const char *path)
{
    attn_archive *a = NULL;
    attn_error err = {0};
    if (attn_archive_open(&a, path, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return a;
}

static void path_refused(const char *path, attn_status code, const char *sentence)
{
    attn_archive *a = NULL;
    attn_error err = {0};

    assert_int_equal(attn_archive_open(&a, path, &err), code);
    assert_null(a);
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    assert_string_equal(err.text + strlen(path), sentence);
}

/* Opens, but reading the only tensor fails: with the sentence, where there is one. */
static void read_refused(const char *path, attn_status code, const char *sentence)
{
    float out[6];
    attn_error err = {0};
    attn_archive *a = open_ok(path);

    assert_int_equal(attn_archive_read_f32(a, attn_archive_at(a, 0), out, &err), code);
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    if (sentence != NULL)
        assert_string_equal(err.text + strlen(path), sentence);
    attn_archive_close(a);
}

static void holds_six(const attn_archive *a, const char *name, float shift)
{
    float out[6] = {0};
    const attn_tensor *t = attn_archive_find(a, name);

    assert_non_null(t);
    assert_int_equal(t->count, 6);
    assert_int_equal(attn_archive_read_f32(a, t, out, NULL), ATTN_OK);
    for (size_t i = 0; i < 6; i++)
        assert_true(out[i] == six[i] + shift);
}

/* A zip written by libzip: for the methods that need a compressor. */
static const char *compressed(const char *name, zip_int32_t method, zip_uint16_t encryption)
{
    const char *path = scratch_path(name);
    blob b = npy_of_six(0);
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);

    assert_non_null(z);
    zip_int64_t i = zip_file_add(z, "w.npy", zip_source_buffer(z, b.at, b.n, 0), ZIP_FL_ENC_UTF_8);
    assert_int_equal(i, 0);
    assert_int_equal(zip_set_file_compression(z, 0, method, 9), 0);
    if (encryption != ZIP_EM_NONE)
        assert_int_equal(zip_file_set_encryption(z, 0, encryption, "secret"), 0);
    assert_int_equal(zip_close(z), 0);
    blob_free(&b);
    return path;
}

static void b16_zip64_sizes_of_small_members_are_read(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        pack z = {0};
        for (int i = 0; i < 3; i++) {
            char name[8];
            blob b = npy_of_six((float)(10 * i));
            (void)snprintf(name, sizeof name, "%c.npy", 'c' - i);
            member m = stored(name, &b);
            m.local64 = (kind & 1) != 0;
            m.directory64 = (kind & 2) != 0;
            pack_add(&z, m);
            blob_free(&b);
        }
        attn_archive *a = open_ok(pack_write(&z, "w.npz"));
        assert_int_equal(attn_archive_count(a), 3);
        assert_string_equal(attn_archive_at(a, 0)->name, "a");
        holds_six(a, "a", 20);
        holds_six(a, "b", 10);
        holds_six(a, "c", 0);
        attn_archive_close(a);
    }
}

static void b17_deflated_members_are_inflated(void **state)
{
    attn_archive *a = open_ok(compressed("w.npz", ZIP_CM_DEFLATE, ZIP_EM_NONE));
    unsigned char raw[24];
    (void)state;
    holds_six(a, "w", 0);
    assert_int_equal(attn_archive_read_raw(a, attn_archive_at(a, 0), raw, NULL), ATTN_OK);
    assert_memory_equal(raw, six, sizeof six);
    attn_archive_close(a);
}

static void b17_other_methods_and_encryption_are_refused(void **state)
{
    blob b = npy_of_six(0);
    pack z = {0};
    member m = stored("w.npy", &b);
    (void)state;
    m.method = 14;
    pack_add(&z, m);
    path_refused(pack_write(&z, "w.npz"), ATTN_EUNSUPPORTED,
                 ": member \"w.npy\" has compression method 14, only stored (0) and deflate (8) "
                 "are read");
    blob_free(&b);
    if (zip_compression_method_supported(ZIP_CM_BZIP2, 1))
        path_refused(compressed("b.npz", ZIP_CM_BZIP2, ZIP_EM_NONE), ATTN_EUNSUPPORTED,
                     ": member \"w.npy\" has compression method 12, only stored (0) and deflate "
                     "(8) are read");
    else
        print_message("skipped: bzip2 member: libzip is built without it\n");
    if (zip_encryption_method_supported(ZIP_EM_AES_256, 1))
        path_refused(compressed("e.npz", ZIP_CM_STORE, ZIP_EM_AES_256), ATTN_EUNSUPPORTED,
                     ": member \"w.npy\" is encrypted");
    else
        print_message("skipped: encrypted member: libzip is built without encryption\n");
}

typedef struct {
    blob out;
    unsigned bits, count;
} bit_writer;

static void put_bits(bit_writer *w, unsigned value, unsigned n)
{
    w->bits |= value << w->count;
    for (w->count += n; w->count >= 8; w->count -= 8, w->bits >>= 8)
        blob_uint(&w->out, w->bits & 0xff, 1);
}

/* A Huffman code goes first bit first. */
static void put_code(bit_writer *w, unsigned code, unsigned n)
{
    while (n-- > 0)
        put_bits(w, code >> n & 1, 1);
}

/* Deflate: a .npy in a stored block, then one and `repeats` times 258 zeros by the fixed code. */
static blob bomb(const blob *npy, size_t repeats)
{
    bit_writer w = {0};

    put_bits(&w, 0, 8); /* not last, stored, padding */
    blob_uint(&w.out, npy->n, 2);
    blob_uint(&w.out, ~npy->n & 0xffff, 2);
    blob_add(&w.out, npy->at, npy->n);
    put_bits(&w, 1, 1);
    put_bits(&w, 1, 2);
    put_code(&w, 0x30, 8); /* literal 0 */
    for (size_t i = 0; i < repeats; i++) {
        put_code(&w, 0xc5, 8); /* length 258 */
        put_code(&w, 0, 5);    /* distance 1 */
    }
    put_code(&w, 0, 7);
    put_bits(&w, 0, 7);
    return w.out;
}

static void b17_a_member_that_inflates_to_more_is_refused(void **state)
{
    pack z = {0};
    blob b = npy_of_six(0), stream = bomb(&b, 20000); /* 5 MB from 32 KB */
    (void)state;
    pack_add(&z, (member){.name = "w.npy",
                          .bytes = stream.at,
                          .stored = stream.n,
                          .size = b.n,
                          .method = 8,
                          .crc = crc32_of(b.at, b.n)});
    read_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w\" goes on after the 24 bytes of its array");
    blob_free(&b);
    blob_free(&stream);
}

static void b17_claimed_sizes_are_held_against_what_is_stored(void **state)
{
    blob b = npy_of_six(0), huge = {0};
    pack z = {0};
    member m = stored("w.npy", &b);
    (void)state;

    m.size++;
    pack_add(&z, m);
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w.npy\" claims 98 bytes, more than its 97 stored bytes can give");
    m.size = UINT64_C(1) << 40;
    m.method = 8;
    m.local64 = m.directory64 = true;
    pack_add(&z, m);
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w.npy\" claims 1099511627776 bytes, more than its 97 stored bytes can "
                 "give");
    blob_npy(&huge, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }\n", six,
             24);
    pack_add(&z, stored("w.npy", &huge));
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w.npy\": shape and dtype <f4 need 4000000 bytes of data, it has 24");
    blob_free(&b);
    blob_free(&huge);
}

static void a_damaged_stream_is_refused_when_it_is_read(void **state)
{
    blob b = npy_of_six(0), wrong = npy_of_six(0);
    pack z = {0};
    member m = stored("w.npy", &b);
    (void)state;

    wrong.at[wrong.n - 1] ^= 1; /* the checksum is that of the right bytes */
    m.bytes = wrong.at;
    pack_add(&z, m);
    read_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT, ": member \"w\": CRC error");

    blob stream = bomb(&b, 0);
    pack_add(&z, (member){.name = "w.npy",
                          .bytes = stream.at,
                          .stored = stream.n,
                          .size = b.n + 10,
                          .method = 8,
                          .crc = m.crc});
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w.npy\": shape and dtype <f4 need 24 bytes of data, it has 34");

    /* Ends within the array: the stored block alone, and cut. */
    pack_add(&z, (member){.name = "w.npy",
                          .bytes = stream.at,
                          .stored = b.n - 5,
                          .size = b.n,
                          .method = 8,
                          .crc = m.crc});
    read_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT, NULL);
    blob_free(&b);
    blob_free(&wrong);
    blob_free(&stream);
}

static void b19_object_members_are_refused_with_a_hint(void **state)
{
    blob b = {0};
    pack z = {0};
    (void)state;
    blob_npy(&b, 1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "\x80\4N.", 4);
    pack_add(&z, stored("names.npy", &b));
    path_refused(pack_write(&z, "w.npz"), ATTN_EUNSUPPORTED,
                 ": member \"names.npy\": dtype |O holds pickled Python objects, which are not "
                 "read: save plain float arrays");
    blob_free(&b);
}

static void members_that_are_no_arrays_are_passed_over(void **state)
{
    blob b = npy_of_six(0), text = {0};
    pack z = {0};
    (void)state;
    blob_text(&text, "hello");
    pack_add(&z, stored("README", &text));
    pack_add(&z, stored(".npy", &text));
    pack_add(&z, stored("enc/layer.0.npy", &b));
    attn_archive *a = open_ok(pack_write(&z, "w.npz"));
    assert_int_equal(attn_archive_count(a), 1);
    holds_six(a, "enc/layer.0", 0);
    attn_archive_close(a);

    pack_add(&z, stored("README", &text));
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT, ": holds no .npy member");
    pack_add(&z, stored("archive/data.pkl", &text));
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": holds no .npy member: it looks like a PyTorch checkpoint");
    pack_add(&z, stored("w.npy", &text));
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT,
                 ": member \"w.npy\": not a .npy file: it does not start with the magic string");
    pack_add(&z, stored("w.npy", &b));
    pack_add(&z, stored("w.npy", &b));
    path_refused(pack_write(&z, "w.npz"), ATTN_EFORMAT, ": holds two tensors \"w\"");
    blob_free(&b);
    blob_free(&text);
}

static void what_is_no_zip_is_told(void **state)
{
    blob b = npy_of_six(0);
    pack z = {0};
    (void)state;
    path_refused(scratch_write("w.npz", "", 0), ATTN_EFORMAT, ": is empty (0 bytes)");
    path_refused(scratch_write("w.npz", "hello", 5), ATTN_EFORMAT, ": not a zip archive");
    path_refused(scratch_write("w.npz", b.at, b.n), ATTN_EFORMAT,
                 ": not a zip archive: it looks like a NumPy .npy file");
    pack_add(&z, stored("w.npy", &b));
    path_refused(scratch_write("w.npz", z.file.at, z.file.n), ATTN_EFORMAT,
                 ": is cut: it starts as a zip archive, but has no directory at its end");
    blob_free(&z.file);
    blob_free(&z.directory);
    blob_free(&b);
}

enum { READERS = 4, ROUNDS = 20 };

static void *read_often(void *arg)
{
    const attn_archive *a = arg;
    size_t wrong = 0;

    for (int i = 0; i < ROUNDS; i++) {
        for (size_t k = 0; k < attn_archive_count(a); k++) {
            float out[6] = {0};
            if (attn_archive_read_f32(a, attn_archive_at(a, k), out, NULL) != ATTN_OK ||
                out[5] != six[5] + (float)k)
                wrong++;
        }
    }
    return wrong == 0 ? NULL : arg;
}

static void several_threads_read_one_archive(void **state)
{
    pack z = {0};
    pthread_t thread[READERS];
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[8];
        blob b = npy_of_six((float)i);
        (void)snprintf(name, sizeof name, "%c.npy", 'a' + i);
        pack_add(&z, stored(name, &b));
        blob_free(&b);
    }
    attn_archive *a = open_ok(pack_write(&z, "w.npz"));
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_often, a), 0);
    for (size_t i = 0; i < READERS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    attn_archive_close(a);
}

/* Every byte of a small archive in turn gets other values. */
static void every_mutated_byte_is_accepted_or_refused_cleanly(void **state)
{
    static const unsigned char values[] = {0, 1, 8, 0x50, 0x80, 0xff};
    blob b = npy_of_six(0), file = {0};
    pack z = {0};
    unsigned seed = 99;
    size_t opened = 0, refused = 0;
    (void)state;

    pack_add(&z, stored("w.npy", &b));
    const char *path = pack_write(&z, "m.npz");
    FILE *f = fopen(path, "rb");
    char all[512];
    assert_non_null(f);
    blob_add(&file, all, fread(all, 1, sizeof all, f));
    assert_int_equal(fclose(f), 0);
    for (size_t at = 0; at < file.n; at++) {
        unsigned char before = file.at[at];
        for (size_t k = 0; k < sizeof values + 2; k++) {
            attn_archive *a = NULL;
            attn_error err = {0};
            seed = seed * 1664525u + 1013904223u;
            file.at[at] = k < sizeof values ? values[k] : (unsigned char)(seed >> 24);
            path = scratch_write("m.npz", file.at, file.n);
            attn_status rc = attn_archive_open(&a, path, &err);
            if ((rc == ATTN_OK) != (a != NULL) || rc == ATTN_EINTERNAL ||
                (rc != ATTN_OK && strncmp(err.text, path, strlen(path)) != 0))
                fail_msg("byte %zu = %d: %s: %s", at, file.at[at], attn_status_name(rc), err.text);
            if (a != NULL) {
                float out[24];
                assert_int_equal(attn_archive_count(a), 1);
                assert_in_range(attn_archive_at(a, 0)->count, 0, 24);
                rc = attn_archive_read_f32(a, attn_archive_at(a, 0), out, NULL);
                assert_true(rc != ATTN_EINTERNAL);
            }
            opened += rc == ATTN_OK;
            refused += rc != ATTN_OK;
            attn_archive_close(a);
        }
        file.at[at] = before;
    }
    assert_true(opened > 100 && refused > 500);
    blob_free(&b);
    blob_free(&file);
}

/* Runs NumPy on a script with the scratch folder as its argument; false when there is none. */
static bool run_numpy(const char *script)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(126);
        (void)execl("/usr/bin/python3", "python3", "-c", script, scratch_dir(), (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void b16_files_that_numpy_writes_are_read(void **state)
{
    static const char script[] =
        "import sys, numpy as np\n"
        "d = sys.argv[1]\n"
        "a = np.arange(6, dtype='f4').reshape(2, 3) + 1\n"
        "x = dict(a=a, b=a.astype('>f8') + 10, c=np.asfortranarray(a + 20), h=a.astype('f2') + "
        "30,\n"
        "         n=np.arange(3), s=np.float32(7), z=np.zeros((0, 4), 'f4'), u=np.array(['x']))\n"
        "np.savez(d + '/s.npz', **x)\n"
        "np.savez_compressed(d + '/d.npz', **x)\n"
        "np.save(d + '/o.npy', np.array([{}], dtype=object))\n";
    (void)state;
    if (!run_numpy(script)) {
        print_message("skipped: files of NumPy: /usr/bin/python3 has no numpy\n");
        return;
    }
    for (int i = 0; i < 2; i++) {
        float scalar = 0;
        attn_archive *a = open_ok(scratch_path(i == 0 ? "s.npz" : "d.npz"));
        assert_int_equal(attn_archive_count(a), 8);
        holds_six(a, "a", 0);
        holds_six(a, "b", 10);
        holds_six(a, "c", 20);
        holds_six(a, "h", 30);
        assert_true(attn_archive_find(a, "c")->column_major);
        assert_int_equal(attn_archive_find(a, "s")->rank, 0);
        assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "s"), &scalar, NULL),
                         ATTN_OK);
        assert_true(scalar == 7);
        assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "z"), &scalar, NULL),
                         ATTN_OK);
        assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "n"), &scalar, NULL),
                         ATTN_EUNSUPPORTED);
        attn_archive_close(a);
    }
    path_refused(scratch_path("o.npy"), ATTN_EUNSUPPORTED,
                 ": dtype |O holds pickled Python objects, which are not read: save plain float "
                 "arrays");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b16_zip64_sizes_of_small_members_are_read),
        cmocka_unit_test(b16_files_that_numpy_writes_are_read),
        cmocka_unit_test(b17_deflated_members_are_inflated),
        cmocka_unit_test(b17_other_methods_and_encryption_are_refused),
        cmocka_unit_test(b17_a_member_that_inflates_to_more_is_refused),
        cmocka_unit_test(b17_claimed_sizes_are_held_against_what_is_stored),
        cmocka_unit_test(a_damaged_stream_is_refused_when_it_is_read),
        cmocka_unit_test(b19_object_members_are_refused_with_a_hint),
        cmocka_unit_test(members_that_are_no_arrays_are_passed_over),
        cmocka_unit_test(what_is_no_zip_is_told),
        cmocka_unit_test(several_threads_read_one_archive),
        cmocka_unit_test(every_mutated_byte_is_accepted_or_refused_cleanly),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
