#include "core/archive.h"
#include "core/safetensors.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/scratch.h"

#define W "w.safetensors"

/* Opens bytes as w.safetensors and expects exactly this sentence behind the file's name. */
static void bytes_refused(const void *bytes, size_t n, attn_status code, const char *sentence)
{
    const char *path = scratch_write(W, bytes, n);
    attn_archive *a = NULL;
    attn_error err = {0};

    assert_int_equal(attn_archive_open(&a, path, &err), code);
    assert_null(a);
    assert_int_equal(err.code, code);
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    assert_string_equal(err.text + strlen(path), sentence);
}

static void header_refused(const char *header, size_t data_bytes, const char *sentence)
{
    blob b = {0};
    blob_safetensors(&b, header, data_bytes);
    bytes_refused(b.at, b.n, ATTN_EFORMAT, sentence);
    blob_free(&b);
}

static attn_archive *open_header(const char *header, size_t data_bytes)
{
    attn_archive *a = NULL;
    attn_error err = {0};
    blob b = {0};

    blob_safetensors(&b, header, data_bytes);
    if (attn_archive_open(&a, scratch_write(W, b.at, b.n), &err) != ATTN_OK)
        fail_msg("%s: %s", header, err.text);
    blob_free(&b);
    return a;
}

static void one_tensor_is_read(void **state)
{
    blob b = {0};
    const float data[] = {1, -2, 0.5f, 3, 4, 5};
    float out[6] = {0}, raw[6] = {0};
    attn_archive *a = NULL;
    (void)state;

    blob_text(&b, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}");
    blob whole = {0};
    blob_uint(&whole, b.n, 8);
    blob_add(&whole, b.at, b.n);
    blob_add(&whole, data, sizeof data);
    const char *path = scratch_write(W, whole.at, whole.n);
    assert_int_equal(attn_archive_open(&a, path, NULL), ATTN_OK);
    assert_int_equal(attn_archive_count(a), 1);
    const attn_tensor *t = attn_archive_find(a, "w");
    assert_ptr_equal(t, attn_archive_at(a, 0));
    assert_null(attn_archive_at(a, 1));
    assert_null(attn_archive_find(a, "v"));
    assert_string_equal(t->name, "w");
    assert_string_equal(t->file, path);
    assert_string_equal(t->dtype_name, "F32");
    assert_int_equal(t->dtype, ATTN_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dim[0], 2);
    assert_int_equal(t->dim[1], 3);
    assert_int_equal(t->count, 6);
    assert_int_equal(t->bytes, 24);
    assert_int_equal(t->offset, 8 + b.n);
    assert_int_equal(attn_archive_read_f32(a, t, out, NULL), ATTN_OK);
    assert_memory_equal(out, data, sizeof data);
    assert_int_equal(attn_archive_read_raw(a, t, raw, NULL), ATTN_OK);
    assert_memory_equal(raw, data, sizeof data);
    attn_archive_close(a);
    blob_free(&b);
    blob_free(&whole);
}

static void b01_header_length_is_held_against_the_file(void **state)
{
    unsigned char ones[8];
    blob b = {0};
    (void)state;

    memset(ones, 0xff, sizeof ones);
    bytes_refused(ones, 8, ATTN_EFORMAT,
                  ": header length 18446744073709551615 is larger than the file (8 bytes)");
    bytes_refused("\0\0\0\0\0\0\0\1", 8, ATTN_EFORMAT,
                  ": header length 72057594037927936 is larger than the file (8 bytes)");
    bytes_refused("", 0, ATTN_EFORMAT, ": is empty (0 bytes)");
    bytes_refused("\2\0\0\0\0\0\0", 7, ATTN_EFORMAT,
                  ": not a safetensors file: 7 bytes cannot hold the 8 of the header length");
    bytes_refused("\2\0\0\0\0\0\0\0", 8, ATTN_EFORMAT,
                  ": header length 2 is larger than what follows it in the file (0 bytes)");
    bytes_refused("\0\0\0\0\0\0\0\0{}", 10, ATTN_EFORMAT,
                  ": not a safetensors file: it looks like a file of zeros (a cut download)");
    bytes_refused("\1\0\0\0\0\0\0\0{}", 10, ATTN_EFORMAT,
                  ": header length 1 is too short for a JSON object");
    bytes_refused("\3\0\0\0\0\0\0\0{}", 10, ATTN_EFORMAT,
                  ": header length 3 is larger than what follows it in the file (2 bytes)");
    blob_uint(&b, 100000001, 8);
    const char *path = scratch_write(W, b.at, b.n);
    blob_free(&b);
    assert_int_equal(truncate(path, 8 + 100000001), 0); /* sparse */
    attn_archive *a = NULL;
    attn_error err = {0};
    assert_int_equal(attn_archive_open(&a, path, &err), ATTN_EFORMAT);
    assert_string_equal(err.text + strlen(path),
                        ": header length 100000001 is over the limit of 100000000");
}

static void b02_other_files_are_told_by_what_they_look_like(void **state)
{
    static const struct {
        const char *start, *what;
    } other[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0",
         "a Git LFS pointer (fetch the file itself: git lfs pull)"},
        {"PK\003\004\024", "a zip archive (a PyTorch checkpoint or an .npz)"},
        {"<!DOCTYPE html>", "an HTML page (a failed download)"},
        {"\x80\002\x8a\nl\xfc", "a Python pickle (an old PyTorch checkpoint)"},
        {"GGUF\003", "a GGUF file"},
        {"\x93NUMPY\001", "a NumPy .npy file"},
        {"{\"weight_map\":{}}", "a JSON document"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char want[160];
        (void)snprintf(want, sizeof want, ": not a safetensors file: it looks like %s",
                       other[i].what);
        bytes_refused(other[i].start, strlen(other[i].start), ATTN_EFORMAT, want);
    }
}

static void b03_a_tensor_twice_in_the_header_is_refused(void **state)
{
    (void)state;
    header_refused("{\"layers.0.attention.wq.weight\":{\"dtype\":\"F32\",\"shape\":[4],"
                   "\"data_offsets\":[0,16]},\"layers.0.attention.wq.weight\":{\"dtype\":\"F32\","
                   "\"shape\":[4],\"data_offsets\":[16,32]}}",
                   32,
                   ": header: line 1, column 112: the key \"layers.0.attention.wq.weight\" stands "
                   "twice");
    header_refused("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
                   "\"data_offsets\":[0,4]}}",
                   4, ": header: line 1, column 27: the key \"dtype\" stands twice");
}

static void b04_holes_overlap_and_rest_are_refused(void **state)
{
    (void)state;
    header_refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]}}", 32,
                   ": bytes 0 to 16 of the data, before tensor \"w\", belong to no tensor");
    header_refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 24,
                   ": bytes 16 to 24 of the data, after the last tensor, belong to no tensor");
    header_refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 15,
                   ": is cut: tensor \"w\" ends at byte 16 of the data, the file holds 15");
    header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
                   9, ": bytes 4 to 5 of the data, before tensor \"b\", belong to no tensor");
    header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
                   7, ": tensor \"b\" begins at 3 of the data and overlaps \"a\", which ends at 4");
    header_refused("{}", 1,
                   ": bytes 0 to 1 of the data, after the last tensor, belong to no tensor");

    blob b = {0}; /* ten tensors on one range */
    for (int i = 0; i < 10; i++) {
        char entry[96];
        (void)snprintf(entry, sizeof entry,
                       "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}",
                       i == 0 ? "{" : ",", i);
        blob_text(&b, entry);
    }
    blob_add(&b, "}", 2);
    blob whole = {0};
    attn_archive *a = NULL;
    attn_error err = {0};
    blob_safetensors(&whole, (const char *)b.at, 4);
    assert_int_equal(attn_archive_open(&a, scratch_write(W, whole.at, whole.n), &err),
                     ATTN_EFORMAT);
    assert_non_null(strstr(err.text, "overlaps"));
    blob_free(&b);
    blob_free(&whole);
}

static void b04_the_order_of_the_header_is_free(void **state)
{
    attn_archive *a = open_header("{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[6,8]},"
                                  "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]},"
                                  "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                                  8);
    unsigned char out[4];
    (void)state;
    assert_int_equal(attn_archive_count(a), 3);
    assert_string_equal(attn_archive_at(a, 0)->name, "a");
    assert_string_equal(attn_archive_at(a, 1)->name, "b");
    assert_string_equal(attn_archive_at(a, 2)->name, "c");
    assert_int_equal(attn_archive_read_raw(a, attn_archive_at(a, 0), out, NULL), ATTN_OK);
    assert_memory_equal(out, "\2\3\4\5", 4);
    attn_archive_close(a);
}

static void tensor_refused(const char *dtype, const char *shape, const char *offsets,
                           const char *sentence)
{
    char header[512], want[256];

    (void)snprintf(header, sizeof header, "{\"w\":{\"dtype\":%s,\"shape\":%s,\"data_offsets\":%s}}",
                   dtype, shape, offsets);
    (void)snprintf(want, sizeof want, ": tensor \"w\"%s", sentence);
    header_refused(header, 16, want);
}

static void b05_ranges_must_fit_shape_and_type(void **state)
{
    static const char *const bad[] = {"[0]",
                                      "[0,16,32]",
                                      "[]",
                                      "[-1,16]",
                                      "[0,16.0]",
                                      "[0,1e1]",
                                      "[\"0\",16]",
                                      "{\"0\":16}",
                                      "[0,null]",
                                      "null",
                                      "16",
                                      "[true,16]",
                                      "[0,9007199254740993]"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        tensor_refused("\"F32\"", "[4]", bad[i],
                       ": data_offsets are not two integers from 0 to 2^53");
    tensor_refused("\"F32\"", "[4]", "[16,0]", ": data_offsets [16,0] end before they begin");
    tensor_refused("\"F32\"", "[32,8]", "[0,65536]",
                   ": data_offsets [0,65536] hold 65536 bytes, its shape and dtype F32 need 1024");
    tensor_refused("\"F32\"", "[4]", "[0,4]",
                   ": data_offsets [0,4] hold 4 bytes, its shape and dtype F32 need 16");
    tensor_refused("\"BF16\"", "[4]", "[0,16]",
                   ": data_offsets [0,16] hold 16 bytes, its shape and dtype BF16 need 8");
    tensor_refused("\"F4\"", "[3]", "[0,2]", ": 3 elements of F4 do not fill whole bytes");
    tensor_refused("\"F32\"", "[4611686018427387904]", "[0,16]",
                   ": shape[0] is not an integer from 0 to 2^53");
    tensor_refused("\"F32\"", "[9007199254740992,512]", "[0,16]",
                   ": the size of its shape overflows");
    tensor_refused("\"U8\"", "[4294967296,4294967296]", "[0,16]",
                   ": the product of its shape overflows");
    tensor_refused("\"U8\"", "[4294967296,4294967296,0]", "[0,16]",
                   ": the product of its shape overflows");
}

static void b06_dimensions_are_plain_integers(void **state)
{
    static const struct {
        const char *shape;
        int at;
    } bad[] = {{"[-1,4]", 0},  {"[2.0,2]", 0},  {"[\"2\",2]", 0}, {"[2,null]", 1},
               {"[1e0,4]", 0}, {"[true,4]", 0}, {"[2,[2]]", 1},   {"[4,9007199254740993]", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[80];
        (void)snprintf(want, sizeof want, ": shape[%d] is not an integer from 0 to 2^53",
                       bad[i].at);
        tensor_refused("\"F32\"", bad[i].shape, "[0,16]", want);
    }
    tensor_refused("\"F32\"", "4", "[0,16]", ": shape is an integer, not an array");
    tensor_refused("\"F32\"", "null", "[0,16]", ": shape is null, not an array");
    tensor_refused("4", "[4]", "[0,16]", ": dtype is an integer, not a string");
    header_refused("{\"w\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
                   ": tensor \"w\": dtype is nothing, not a string");
    header_refused("{\"w\":[1]}", 0, ": tensor \"w\" is an array, not an object");

    char header[256] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1";
    for (int i = 1; i < 40; i++)
        strcat(header, ",1");
    strcat(header, "],\"data_offsets\":[0,1]}}");
    blob b = {0};
    blob_safetensors(&b, header, 1);
    bytes_refused(b.at, b.n, ATTN_EUNSUPPORTED,
                  ": tensor \"w\" has 40 dimensions, at most 8 are read");
    blob_free(&b);
}

static void b07_unaligned_data_are_read(void **state)
{
    char header[128];
    const float want[] = {1.5f, -2.25f};
    (void)state;
    for (size_t pad = 0; pad < 9; pad++) {
        blob b = {0};
        float out[2] = {0};
        attn_archive *a = NULL;
        (void)snprintf(header, sizeof header,
                       "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                       "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]}}%*s",
                       (int)pad, "");
        blob_safetensors(&b, header, 3);
        blob_add(&b, want, sizeof want);
        assert_int_equal(attn_archive_open(&a, scratch_write(W, b.at, b.n), NULL), ATTN_OK);
        assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "w"), out, NULL), ATTN_OK);
        assert_memory_equal(out, want, sizeof want);
        attn_archive_close(a);
        blob_free(&b);
    }
}

static void b08_empty_tensors_are_accepted(void **state)
{
    float out[1] = {7};
    attn_archive *a =
        open_header("{\"e\":{\"dtype\":\"F32\",\"shape\":[2,0,3],\"data_offsets\":[4,4]},"
                    "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                    "\"tag\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                    4);
    (void)state;
    assert_int_equal(attn_archive_find(a, "tag")->count, 0);
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "tag"), out, NULL), ATTN_OK);
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "e"), NULL, NULL), ATTN_OK);
    assert_true(out[0] == 7);
    attn_archive_close(a);
    a = open_header("{}", 0);
    assert_int_equal(attn_archive_count(a), 0);
    assert_null(attn_archive_find(a, ""));
    attn_archive_close(a);
    tensor_refused("\"F32\"", "[1]", "[0,0]",
                   ": data_offsets [0,0] hold 0 bytes, its shape and dtype F32 need 4");
}

static void b09_scalars_are_accepted(void **state)
{
    attn_archive *a =
        open_header("{\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
    (void)state;
    assert_int_equal(attn_archive_at(a, 0)->rank, 0);
    assert_int_equal(attn_archive_at(a, 0)->count, 1);
    attn_archive_close(a);
}

static void b10_bf16_and_f16_are_told_apart(void **state)
{
    blob b = {0};
    float out[2];
    attn_archive *a = NULL;
    (void)state;
    blob_safetensors(&b,
                     "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                     "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
                     0);
    blob_add(&b, "\x80\x3f\x49\x40\x80\x3f\x01\x00", 8);
    assert_int_equal(attn_archive_open(&a, scratch_write(W, b.at, b.n), NULL), ATTN_OK);
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "b"), out, NULL), ATTN_OK);
    assert_true(out[0] == 1.0f && out[1] == 3.140625f);
    assert_int_equal(attn_archive_read_f32(a, attn_archive_find(a, "h"), out, NULL), ATTN_OK);
    assert_true(out[0] == 1.875f && out[1] == 0x1p-24f);
    attn_archive_close(a);
    blob_free(&b);
}

static void b11_every_named_type_is_known_and_only_floats_are_read(void **state)
{
    static const struct {
        const char *name;
        int bits;
    } types[] = {{"BOOL", 8},    {"F4", 4},   {"F6_E2M3", 6},     {"F6_E3M2", 6},
                 {"U8", 8},      {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8},
                 {"F8_E8M0", 8}, {"I16", 16}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
                 {"U16", 16},    {"F16", 16}, {"BF16", 16},       {"I32", 32},
                 {"U32", 32},    {"F32", 32}, {"C64", 64},        {"F64", 64},
                 {"I64", 64},    {"U64", 64}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[160], want[160];
        float out[4];
        attn_error err = {0};
        (void)snprintf(header, sizeof header,
                       "{\"w\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%d]}}",
                       types[i].name, types[i].bits / 2);
        attn_archive *a = open_header(header, (size_t)types[i].bits / 2);
        const attn_tensor *t = attn_archive_at(a, 0);
        attn_status rc = attn_archive_read_f32(a, t, out, &err);
        if (t->dtype <= ATTN_F64) {
            assert_int_equal(rc, ATTN_OK);
        } else {
            (void)snprintf(want, sizeof want,
                           ": tensor \"w\" has dtype %s; weights are read from F32, F16, BF16 and "
                           "F64",
                           types[i].name);
            assert_int_equal(rc, ATTN_EUNSUPPORTED);
            assert_string_equal(err.text + strlen(t->file), want);
        }
        if (t->dtype != ATTN_OTHER)
            assert_int_equal(attn_dtype_size(t->dtype) * 8, types[i].bits);
        attn_archive_close(a);
        (void)snprintf(header, sizeof header,
                       "{\"w\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,16777216]}}",
                       types[i].name);
        (void)snprintf(want, sizeof want,
                       ": tensor \"w\": data_offsets [0,16777216] hold 16777216 bytes, its shape "
                       "and dtype %s need %d",
                       types[i].name, types[i].bits);
        header_refused(header, 0, want);
    }
}

static void b11_an_unknown_spelling_is_skipped_by_its_offsets(void **state)
{
    float out[4];
    attn_error err = {0};
    attn_archive *a = open_header("{\"q\":{\"dtype\":\"f32\",\"shape\":[4],\"data_offsets\":[0,5]},"
                                  "\"w\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[5,8]}}",
                                  8);
    const attn_tensor *t = attn_archive_find(a, "q");
    unsigned char raw[5];
    (void)state;
    assert_int_equal(t->dtype, ATTN_OTHER);
    assert_string_equal(t->dtype_name, "f32");
    assert_int_equal(attn_archive_read_f32(a, t, out, &err), ATTN_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "tensor \"q\" has dtype f32;"));
    assert_int_equal(attn_archive_read_raw(a, t, raw, NULL), ATTN_OK);
    assert_memory_equal(raw, "\0\1\2\3\4", 5);
    attn_archive_close(a);
}

static void b11_f64_beyond_float32_is_refused_with_tensor_index_and_value(void **state)
{
    enum { COUNT = 5000 }; /* more than one chunk of the conversion */
    static double data[COUNT];
    static float out[COUNT];
    blob b = {0};
    attn_archive *a = NULL;
    attn_error err = {0};
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        data[i] = (double)i + 0.1;
    for (int beyond = 0; beyond < 2; beyond++) {
        if (beyond)
            data[4321] = -1e300;
        blob_safetensors(
            &b, "{\"w\":{\"dtype\":\"F64\",\"shape\":[50,100],\"data_offsets\":[0,40000]}}", 0);
        blob_add(&b, data, sizeof data);
        assert_int_equal(attn_archive_open(&a, scratch_write(W, b.at, b.n), NULL), ATTN_OK);
        blob_free(&b);
        attn_status rc = attn_archive_read_f32(a, attn_archive_at(a, 0), out, &err);
        attn_archive_close(a);
        if (!beyond) {
            assert_int_equal(rc, ATTN_OK);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(out[i] == (float)data[i]);
            continue;
        }
        assert_int_equal(rc, ATTN_EINVAL);
        assert_non_null(
            strstr(err.text, W ": tensor \"w\": element 4321 is -1e+300, beyond float32"));
    }
}

static void blanks_around_the_header_are_accepted(void **state)
{
    (void)state;
    attn_archive_close(open_header(
        " \n\t{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  \r\n", 1));
    header_refused("    ", 0,
                   ": header: not valid JSON: line 1, column 4: unexpected token near end of file");
}

static void a_header_that_is_no_object_is_refused(void **state)
{
    (void)state;
    header_refused("[]", 0, ": the header is an array, not an object");
    header_refused("null", 0, ": the header is null, not an object");
    header_refused("{\"w\":", 0,
                   ": header: not valid JSON: line 1, column 5: unexpected token near end of file");
    header_refused("{\"\xff\":1}", 0,
                   ": header: not valid JSON: line 1, column 2: unable to decode byte 0xff near "
                   "'\"'");
}

static void metadata_are_strings_only(void **state)
{
    (void)state;
    attn_archive_close(open_header("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
    attn_archive_close(open_header("{\"__metadata__\":{}}", 0));
    header_refused("{\"__metadata__\":{\"a\":1}}", 0,
                   ": __metadata__: \"a\" is an integer, not a string");
    header_refused("{\"__metadata__\":null}", 0, ": __metadata__ is null, not an object");
}

static void a_header_in_memory_is_parsed_without_a_file(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"layer\":\"3\"},\"x\":{\"dtype\":\"F16\","
                                 "\"shape\":[2,1],\"data_offsets\":[0,4]}}";
    blob b = {0};
    attn_safetensors s;
    size_t n = 0;
    const char *layer = NULL;
    (void)state;
    blob_safetensors(&b, header, 4);
    assert_int_equal(attn_safetensors_measure(&n, b.at, b.n, b.n, "body", NULL), ATTN_OK);
    assert_int_equal(n, sizeof header - 1);
    assert_int_equal(attn_safetensors_parse(&s, (const char *)b.at + 8, n, 4, "body", NULL),
                     ATTN_OK);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.tensor[0].offset, 8 + n);
    assert_true(attn_json_string(attn_json_get(attn_json_get(s.document, "__metadata__"), "layer"),
                                 &layer));
    assert_string_equal(layer, "3");
    attn_safetensors_deinit(&s);
    attn_safetensors_deinit(&s);
    blob_free(&b);
}

/* Each byte of the header in turn gets other values: it opens, or one clean sentence says why not. */
static void every_mutated_header_byte_is_accepted_or_refused_cleanly(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\""
        ":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"F16\","
        "\"shape\":[],\"data_offsets\":[24,26]}}";
    static const unsigned char values[] = {0,   1,   ' ', '"', '-',  '0',
                                           '9', '{', ']', 'e', 0x80, 0xff};
    blob b = {0};
    unsigned seed = 20240817;
    size_t opened = 0, refused = 0;
    (void)state;

    blob_safetensors(&b, header, 26);
    const char *path = scratch_path(W);
    for (size_t at = 0; at < 8 + sizeof header - 1; at++) {
        unsigned char before = b.at[at];
        for (size_t k = 0; k < sizeof values + 2; k++) {
            attn_archive *a = NULL;
            attn_error err = {0};
            seed = seed * 1664525u + 1013904223u;
            b.at[at] = k < sizeof values ? values[k] : (unsigned char)(seed >> 24);
            scratch_write(W, b.at, b.n);
            attn_status rc = attn_archive_open(&a, path, &err);
            if ((rc == ATTN_OK) != (a != NULL) || rc == ATTN_EINTERNAL ||
                (rc != ATTN_OK && strncmp(err.text, path, strlen(path)) != 0))
                fail_msg("byte %zu = %d: %s: %s", at, b.at[at], attn_status_name(rc), err.text);
            for (size_t i = 0; a != NULL && i < attn_archive_count(a); i++) {
                float out[16];
                const attn_tensor *t = attn_archive_at(a, i);
                if (t->dtype != ATTN_OTHER)
                    assert_in_range(t->count, 0, 16);
                attn_status read = attn_archive_read_f32(a, t, out, NULL);
                assert_true(read == ATTN_OK || read == ATTN_EUNSUPPORTED);
            }
            opened += rc == ATTN_OK;
            refused += rc != ATTN_OK;
            attn_archive_close(a);
        }
        b.at[at] = before;
    }
    assert_true(opened > 100 && refused > 1000);
    blob_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tensor_is_read),
        cmocka_unit_test(b01_header_length_is_held_against_the_file),
        cmocka_unit_test(b02_other_files_are_told_by_what_they_look_like),
        cmocka_unit_test(b03_a_tensor_twice_in_the_header_is_refused),
        cmocka_unit_test(b04_holes_overlap_and_rest_are_refused),
        cmocka_unit_test(b04_the_order_of_the_header_is_free),
        cmocka_unit_test(b05_ranges_must_fit_shape_and_type),
        cmocka_unit_test(b06_dimensions_are_plain_integers),
        cmocka_unit_test(b07_unaligned_data_are_read),
        cmocka_unit_test(b08_empty_tensors_are_accepted),
        cmocka_unit_test(b09_scalars_are_accepted),
        cmocka_unit_test(b10_bf16_and_f16_are_told_apart),
        cmocka_unit_test(b11_every_named_type_is_known_and_only_floats_are_read),
        cmocka_unit_test(b11_an_unknown_spelling_is_skipped_by_its_offsets),
        cmocka_unit_test(b11_f64_beyond_float32_is_refused_with_tensor_index_and_value),
        cmocka_unit_test(blanks_around_the_header_are_accepted),
        cmocka_unit_test(a_header_that_is_no_object_is_refused),
        cmocka_unit_test(metadata_are_strings_only),
        cmocka_unit_test(a_header_in_memory_is_parsed_without_a_file),
        cmocka_unit_test(every_mutated_header_byte_is_accepted_or_refused_cleanly),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
