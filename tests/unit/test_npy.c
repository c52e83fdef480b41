#include "core/archive.h"
#include "core/npy.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/scratch.h"

#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }    \n"
#define SIX DICT("'<f4'", "False", "(2, 3)")

static const float six[] = {1, 2, 3, 4, 5, 6};

static const char *npy_file(const char *name, const char *header, const void *data, size_t n)
{
    blob b = {0};
    blob_npy(&b, 1, header, data, n);
    const char *path = scratch_write(name, b.at, b.n);
    blob_free(&b);
    return path;
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

static void header_refused(const char *header, attn_status code, const char *sentence)
{
    path_refused(npy_file("x.npy", header, six, sizeof six), code, sentence);
}

/* Opens x.npy and expects these values, row-major. */
static void reads_as(const char *header, const void *data, size_t n, const float *want,
                     size_t count)
{
    float out[32] = {0};
    attn_archive *a = open_ok(npy_file("x.npy", header, data, n));
    const attn_tensor *t = attn_archive_at(a, 0);

    assert_int_equal(t->count, count);
    assert_int_equal(attn_archive_read_f32(a, t, out, NULL), ATTN_OK);
    assert_memory_equal(out, want, count * sizeof *want);
    attn_archive_close(a);
}

static void a_file_is_one_tensor_named_after_it(void **state)
{
    attn_archive *a = open_ok(npy_file("layers.0.wq.npy", SIX, six, sizeof six));
    const attn_tensor *t = attn_archive_find(a, "layers.0.wq");
    (void)state;
    assert_non_null(t);
    assert_int_equal(attn_archive_count(a), 1);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dim[0], 2);
    assert_int_equal(t->dim[1], 3);
    assert_int_equal(t->dtype, ATTN_F32);
    assert_string_equal(t->dtype_name, "<f4");
    assert_false(t->column_major || t->big_endian);
    attn_archive_close(a);
    reads_as(SIX, six, sizeof six, six, 6);
    a = open_ok(npy_file("noext", SIX, six, sizeof six));
    assert_non_null(attn_archive_find(a, "noext"));
    attn_archive_close(a);
}

static void versions_1_2_and_3_are_read(void **state)
{
    (void)state;
    for (int version = 1; version <= 3; version++) {
        float out[6];
        blob b = {0};
        blob_npy(&b, version, SIX, six, sizeof six);
        attn_archive *a = open_ok(scratch_write("v.npy", b.at, b.n));
        assert_int_equal(attn_archive_read_f32(a, attn_archive_at(a, 0), out, NULL), ATTN_OK);
        assert_memory_equal(out, six, sizeof six);
        attn_archive_close(a);
        blob_free(&b);
    }
    path_refused(scratch_write("v.npy", "\x93NUMPY\4\0\0\0\0\0", 12), ATTN_EFORMAT,
                 ": .npy version 4.0 is none of 1.0, 2.0, 3.0");
    path_refused(scratch_write("v.npy", "\x93NUMPY\1\1\0\0\0\0", 12), ATTN_EFORMAT,
                 ": .npy version 1.1 is none of 1.0, 2.0, 3.0");
}

static void keys_stand_in_any_order_and_spacing(void **state)
{
    (void)state;
    reads_as("{'shape':(2,3),'fortran_order':False,'descr':'<f4'}", six, 24, six, 6);
    reads_as("{ \"fortran_order\" : False , \"shape\" : ( 2 , 3 , ) , \"descr\" : \"<f4\" , }\n",
             six, 24, six, 6);
    reads_as("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", six, 24, six, 6);
    reads_as("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", six, 4, six, 1);
    reads_as("{'descr': '<f4', 'fortran_order': True, 'shape': (0,7), }", six, 0, six, 0);
}

static void damaged_dicts_are_refused(void **state)
{
    static const struct {
        const char *header, *sentence;
    } bad[] = {
        {"", ": header length 0 is too short for a dict"},
        {"[]", ": the header has no dict at character 0"},
        {"{ ", ": the header has no quoted key with its colon at character 2"},
        {"{}", ": the header has no key \"descr\""},
        {"{'descr': '<f4'}", ": the header has no key \"fortran_order\""},
        {"{'descr': '<f4', 'fortran_order': False}", ": the header has no key \"shape\""},
        {"{'shape': (6,), 'fortran_order': False}", ": the header has no key \"descr\""},
        {"{'descr': '<f4', 'descr': '<f4'}", ": the key \"descr\" stands twice"},
        {"{'shape': (6,), 'shape': (6,)}", ": the key \"shape\" stands twice"},
        {"{'extra': 1}", ": the header has the unknown key \"extra\""},
        {"{'a_very_long_key_name_here': 1}",
         ": the header has no quoted key with its colon at character 17"},
        {"{'des\\x63r': '<f4'}", ": the header has no quoted key with its colon at character 5"},
        {"{'descr' '<f4'}", ": the header has no quoted key with its colon at character 9"},
        {"{,}", ": the header has no quoted key with its colon at character 1"},
        {"{'descr': '<f4' 'shape': (6,)}", ": the header has no comma at character 16"},
        {"{'descr': <f4}", ": the header has no dtype in quotes at character 10"},
        {"{'descr': '<f4", ": the header has no dtype in quotes at character 14"},
        {"{'fortran_order': true}", ": the header has no True or False at character 18"},
        {"{'fortran_order': 0}", ": the header has no True or False at character 18"},
        {"{'fortran_order': Falsey}", ": the header has no comma at character 23"},
        {"{'shape': 6}", ": the header has no tuple for the shape at character 10"},
        {"{'shape': [6]}", ": the header has no tuple for the shape at character 10"},
        {"{'shape': (6)}", ": the header has no tuple for the shape at character 13"},
        {"{'shape': (-6,)}", ": the header has no plain dimension at character 11"},
        {"{'shape': (6.0,)}", ": the header has no comma in the shape at character 12"},
        {"{'shape': (2 3)}", ": the header has no comma in the shape at character 13"},
        {"{'shape': (,)}", ": the header has no plain dimension at character 11"},
        {"{'shape': (6,", ": the header has no plain dimension at character 13"},
        {"{'shape': (99999999999999999999,)}",
         ": the header has no plain dimension at character 30"},
        {SIX "x", ": the header has no end at character 64"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        header_refused(bad[i].header, ATTN_EFORMAT, bad[i].sentence);
    header_refused(DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,6)"), ATTN_EUNSUPPORTED,
                   ": more than 8 dimensions are not read");
}

static void b18_sizes_are_held_against_the_file(void **state)
{
    unsigned char cut[128] = "\x93NUMPY\1\0\xff\xff";
    (void)state;
    path_refused(scratch_write("x.npy", cut, sizeof cut), ATTN_EFORMAT,
                 ": header length 65535 is larger than what follows it (118 bytes)");
    memcpy(cut, "\x93NUMPY\2\0\xff\xff\xff\xff", 12);
    path_refused(scratch_write("x.npy", cut, sizeof cut), ATTN_EFORMAT,
                 ": header length 4294967295 is larger than what follows it (116 bytes)");
    memcpy(cut, "\x93NUMPY\2\0\0\0\1\0", 12);
    const char *path = scratch_write("x.npy", cut, sizeof cut);
    assert_int_equal(truncate(path, 1 << 20), 0);
    path_refused(path, ATTN_EFORMAT, ": header length 65536 is over the limit of 65535");
    header_refused(DICT("'<f4'", "False", "(4294967296, 4294967296)"), ATTN_EFORMAT,
                   ": the size of its shape overflows");
    header_refused(DICT("'<f8'", "False", "(4294967296, 536870912)"), ATTN_EFORMAT,
                   ": the size of its shape overflows");
    header_refused(DICT("'<f4'", "False", "(4294967296, 4294967296, 0)"), ATTN_EFORMAT,
                   ": the size of its shape overflows");
    header_refused(DICT("'<f4'", "False", "(2, 4)"), ATTN_EFORMAT,
                   ": shape and dtype <f4 need 32 bytes of data, it has 24");
    header_refused(DICT("'<f4'", "False", "(5,)"), ATTN_EFORMAT,
                   ": shape and dtype <f4 need 20 bytes of data, it has 24");
    path_refused(scratch_write("x.npy", "", 0), ATTN_EFORMAT,
                 ": not a .npy file: it is empty (0 bytes)");
    path_refused(scratch_write("x.npy", "\x93NUMPY\1", 7), ATTN_EFORMAT,
                 ": is cut: it has only 7 bytes");
    path_refused(scratch_write("x.npy", "\x93NUMP", 5), ATTN_EFORMAT,
                 ": not a .npy file: it does not start with the magic string");
    path_refused(scratch_write("x.npy", "PK\003\004", 4), ATTN_EFORMAT,
                 ": not a .npy file: it looks like a zip archive (a PyTorch checkpoint or an "
                 ".npz)");
}

static void b18_a_header_in_memory_is_parsed_without_a_file(void **state)
{
    blob b = {0};
    attn_tensor t = {0};
    attn_error err = {0};
    char descr[ATTN_NPY_DESCR_MAX];
    (void)state;
    blob_npy(&b, 1, SIX, six, sizeof six);
    assert_int_equal(attn_npy_parse(&t, descr, b.at, b.n, b.n, "body", NULL), ATTN_OK);
    assert_int_equal(t.offset, b.n - sizeof six);
    assert_int_equal(t.bytes, sizeof six);
    assert_ptr_equal(t.dtype_name, descr);
    for (size_t n = 0; n < b.n; n++) { /* exactly n bytes on the heap: ASan sees one more */
        unsigned char *cut = malloc(n + (n == 0));
        assert_non_null(cut);
        memcpy(cut, b.at, n);
        assert_int_equal(attn_npy_parse(&t, descr, cut, n, n, "body", &err), ATTN_EFORMAT);
        assert_int_equal(strncmp(err.text, "body: ", 6), 0);
        free(cut);
    }
    blob_free(&b);
}

static void b15_column_major_arrays_are_transposed(void **state)
{
    static const float stored[] = {1, 3, 2, 4}, square[] = {1, 2, 3, 4};
    static const float oblong[] = {1, 3, 5, 2, 4, 6};
    float cube[24], cube_stored[24];
    attn_archive *a = NULL;
    (void)state;
    reads_as(DICT("'<f4'", "True", "(2, 2)"), stored, sizeof stored, square, 4);
    reads_as(DICT("'<f4'", "True", "(2, 3)"), six, sizeof six, oblong, 6);
    reads_as(DICT("'<f4'", "True", "(6,)"), six, sizeof six, six, 6);
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 3; j++) {
            for (size_t k = 0; k < 4; k++) {
                cube[(i * 3 + j) * 4 + k] = (float)(100 * i + 10 * j + k);
                cube_stored[i + 2 * (j + 3 * k)] = (float)(100 * i + 10 * j + k);
            }
        }
    }
    reads_as(DICT("'<f4'", "True", "(2, 3, 4)"), cube_stored, sizeof cube_stored, cube, 24);
    a = open_ok(npy_file("x.npy", DICT("'<f4'", "True", "(2, 2)"), stored, sizeof stored));
    float raw[4];
    assert_int_equal(attn_archive_read_raw(a, attn_archive_at(a, 0), raw, NULL), ATTN_OK);
    assert_memory_equal(raw, stored, sizeof stored);
    attn_archive_close(a);
}

static void b15_column_major_holds_across_chunks(void **state)
{
    enum { ROWS = 97, COLUMNS = 131 };
    static double stored[ROWS * COLUMNS];
    static float out[ROWS * COLUMNS];
    attn_archive *a = NULL;
    attn_error err = {0};
    (void)state;
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLUMNS; c++)
            stored[c * ROWS + r] = (double)(r * COLUMNS + c);
    }
    a = open_ok(npy_file("x.npy", DICT("'<f8'", "True", "(97, 131)"), stored, sizeof stored));
    assert_int_equal(attn_archive_read_f32(a, attn_archive_at(a, 0), out, NULL), ATTN_OK);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        assert_true(out[i] == (float)i);
    attn_archive_close(a);

    stored[100 * ROWS + 7] = 1e40; /* row 7, column 100 */
    a = open_ok(npy_file("x.npy", DICT("'<f8'", "True", "(97, 131)"), stored, sizeof stored));
    assert_int_equal(attn_archive_read_f32(a, attn_archive_at(a, 0), out, &err), ATTN_EINVAL);
    assert_non_null(strstr(err.text, "x.npy: tensor \"x\": element 1017 is 1e+40, beyond float32"));
    attn_archive_close(a);
}

static void big_endian_is_swapped(void **state)
{
    static const unsigned char f4[] = {0x3f, 0xc0, 0, 0, 0xbe, 0x80, 0, 0};
    static const unsigned char f2[] = {0x3e, 0, 0xb4, 0};
    static const unsigned char f8[] = {0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xbf, 0xd0, 0, 0, 0, 0, 0, 0};
    static const float want[] = {1.5f, -0.25f};
    (void)state;
    reads_as(DICT("'>f4'", "False", "(2,)"), f4, sizeof f4, want, 2);
    reads_as(DICT("'>f2'", "False", "(2,)"), f2, sizeof f2, want, 2);
    reads_as(DICT("'>f8'", "False", "(2,)"), f8, sizeof f8, want, 2);
    reads_as(DICT("'>f8'", "True", "(2, 1)"), f8, sizeof f8, want, 2);
}

static void types_are_known_by_their_spelling(void **state)
{
    static const struct {
        const char *descr;
        size_t bytes;
        attn_dtype dtype;
    } types[] = {{"<f4", 4, ATTN_F32},   {"<f2", 2, ATTN_F16},     {"<f8", 8, ATTN_F64},
                 {"|b1", 1, ATTN_BOOL},  {"|u1", 1, ATTN_U8},      {"|i1", 1, ATTN_I8},
                 {"<i2", 2, ATTN_I16},   {"<u2", 2, ATTN_U16},     {"<i4", 4, ATTN_I32},
                 {"<u4", 4, ATTN_U32},   {">i8", 8, ATTN_I64},     {"<u8", 8, ATTN_U64},
                 {"<c8", 8, ATTN_OTHER}, {"<U3", 12, ATTN_OTHER},  {"|S5", 5, ATTN_OTHER},
                 {"|V2", 2, ATTN_OTHER}, {"<f16", 16, ATTN_OTHER}, {"<M8[ns]", 8, ATTN_OTHER}};
    static const char *const unknown[] = {"",    "<",   "<f",   "f4",    "=f4",     "|f4", "<f4x",
                                          "<x4", "< 4", "<f 4", "float", "<f4[ns]", "|i8"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[128];
        float out[2];
        (void)snprintf(header, sizeof header, DICT("'%s'", "False", "(2,)"), types[i].descr);
        unsigned char zeros[32] = {0};
        attn_archive *a = open_ok(npy_file("x.npy", header, zeros, 2 * types[i].bytes));
        const attn_tensor *t = attn_archive_at(a, 0);
        assert_int_equal(t->dtype, types[i].dtype);
        assert_string_equal(t->dtype_name, types[i].descr);
        assert_int_equal(attn_archive_read_f32(a, t, out, NULL),
                         t->dtype <= ATTN_F64 ? ATTN_OK : ATTN_EUNSUPPORTED);
        attn_archive_close(a);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char header[128], want[64];
        (void)snprintf(header, sizeof header, DICT("'%s'", "False", "(2,)"), unknown[i]);
        (void)snprintf(want, sizeof want, ": dtype \"%s\" is not known", unknown[i]);
        if (strcmp(unknown[i], "|f4") == 0 || strcmp(unknown[i], "|i8") == 0)
            (void)snprintf(want, sizeof want, ": dtype \"%s\" does not tell the byte order",
                           unknown[i]);
        header_refused(header, ATTN_EFORMAT, want);
    }
}

static void b19_objects_and_structures_are_refused_with_a_hint(void **state)
{
    (void)state;
    header_refused(DICT("'|O'", "False", "(1,)"), ATTN_EUNSUPPORTED,
                   ": dtype |O holds pickled Python objects, which are not read: save plain float "
                   "arrays");
    header_refused(DICT("[('x', '<f4')]", "False", "(6,)"), ATTN_EUNSUPPORTED,
                   ": structured arrays are not read: save plain float arrays");
}

static void every_mutated_npy_byte_is_accepted_or_refused_cleanly(void **state)
{
    static const unsigned char values[] = {0, 1, 2, ' ', '\'', '(', ',', '9', 'O', '>', 0x80, 0xff};
    blob b = {0};
    unsigned seed = 7;
    size_t opened = 0, refused = 0;
    (void)state;
    blob_npy(&b, 1, SIX, six, sizeof six);
    for (size_t at = 0; at < b.n - sizeof six; at++) {
        unsigned char before = b.at[at];
        for (size_t k = 0; k < sizeof values + 2; k++) {
            attn_tensor t = {0};
            attn_error err = {0};
            char descr[ATTN_NPY_DESCR_MAX];
            seed = seed * 1664525u + 1013904223u;
            b.at[at] = k < sizeof values ? values[k] : (unsigned char)(seed >> 24);
            attn_status rc = attn_npy_parse(&t, descr, b.at, b.n, b.n, "body", &err);
            if (rc == ATTN_OK) {
                assert_int_equal(t.offset + t.bytes, b.n);
            } else {
                assert_true(rc == ATTN_EFORMAT || rc == ATTN_EUNSUPPORTED);
                assert_int_equal(strncmp(err.text, "body: ", 6), 0);
            }
            opened += rc == ATTN_OK;
            refused += rc != ATTN_OK;
        }
        b.at[at] = before;
    }
    assert_true(opened > 20 && refused > 500);
    blob_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_one_tensor_named_after_it),
        cmocka_unit_test(versions_1_2_and_3_are_read),
        cmocka_unit_test(keys_stand_in_any_order_and_spacing),
        cmocka_unit_test(damaged_dicts_are_refused),
        cmocka_unit_test(b18_sizes_are_held_against_the_file),
        cmocka_unit_test(b18_a_header_in_memory_is_parsed_without_a_file),
        cmocka_unit_test(b15_column_major_arrays_are_transposed),
        cmocka_unit_test(b15_column_major_holds_across_chunks),
        cmocka_unit_test(big_endian_is_swapped),
        cmocka_unit_test(types_are_known_by_their_spelling),
        cmocka_unit_test(b19_objects_and_structures_are_refused_with_a_hint),
        cmocka_unit_test(every_mutated_npy_byte_is_accepted_or_refused_cleanly),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
