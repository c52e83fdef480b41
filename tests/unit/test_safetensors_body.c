#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/safetensors_body.h"
#include "tests/reading.h"
#include "tests/scratch.h"

#define INVALID "invalid"
#define SHAPE   "shape_mismatch"

/* A body with this header, ' for ", and these data. */
static void body(blob *b, const char *header, const void *data, size_t bytes)
{
    size_t n = strlen(header);

    blob_uint(b, n, 8);
    for (size_t i = 0; i < n; i++)
        blob_add(b, header[i] == '\'' ? "\"" : header + i, 1);
    blob_add(b, data, bytes);
}

static void expect(const char *header, const void *data, size_t bytes, const char *want)
{
    blob b = {0};

    body(&b, header, data, bytes);
    reading_body r = {.type = SRV_BODY_SAFETENSORS, .bytes = b.at, .n = b.n};
    reading_body_expect(&r, want);
    blob_free(&b);
}

static void refuse(const char *header, const void *data, size_t bytes, const char *code,
                   const char *pointer, const char *says)
{
    blob b = {0};

    body(&b, header, data, bytes);
    for (int chunked = 0; chunked < 2; chunked++) {
        reading_body r = {
            .type = SRV_BODY_SAFETENSORS, .chunked = chunked, .bytes = b.at, .n = b.n};
        reading_body_refuse(&r, code, pointer, says);
    }
    blob_free(&b);
}

static const float four[] = {1.0f, -2.5f, 0.1f, 3.4028235e38f};
#define FOUR "1 -2.5 0.100000001 3.40282347e+38"

static void tensors_become_the_members_of_their_names(void **state)
{
    const float data[] = {1, 2, 3, 4, 5, -INFINITY, 7, 8};

    (void)state;
    expect("{'inputs_embeds':{'dtype':'F32','shape':[1,2,2],'data_offsets':[0,16]}}", four, 16,
           "inputs_embeds [1,2,2]: " FOUR);
    /* In the file's order, which is neither the header's nor ours. */
    expect("{'query':{'dtype':'F32','shape':[1,1,1,2],'data_offsets':[24,32]},"
           "'inputs_embeds':{'dtype':'F32','shape':[2,2],'data_offsets':[8,24]},"
           "'attention_bias':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}",
           data, 32,
           "inputs_embeds [2,2]: 3 4 5 -inf; query [1,1,1,2]: 7 8; attention_bias [2]: 1 2");
    expect("{'attention_bias':{'dtype':'F32','shape':[],'data_offsets':[0,4]}}   ", four, 4,
           "attention_bias []: 1");
}

static void every_type_that_json_takes_is_read(void **state)
{
    const uint16_t half[] = {0x0001, 0x7BFF}, brain[] = {0x3F80, 0x4049};
    const double wide[] = {0.1, INFINITY};
    const unsigned char bools[] = {1, 0};
    const int32_t narrow[] = {0, 1}, negative[] = {3, -7};
    const int64_t ones[] = {1, 1}, large[] = {INT64_MAX, INT64_MIN};

    (void)state;
    expect("{'inputs_embeds':{'dtype':'F16','shape':[1,2],'data_offsets':[0,4]}}", half, 4,
           "inputs_embeds [1,2]: 5.96046448e-08 65504");
    expect("{'inputs_embeds':{'dtype':'BF16','shape':[1,2],'data_offsets':[0,4]}}", brain, 4,
           "inputs_embeds [1,2]: 1 3.140625");
    expect("{'inputs_embeds':{'dtype':'F64','shape':[1,2],'data_offsets':[0,16]}}", wide, 16,
           "inputs_embeds [1,2]: 0.100000001 inf");
    expect("{'attention_mask':{'dtype':'BOOL','shape':[1,2],'data_offsets':[0,2]}}", bools, 2,
           "attention_mask [1,2]: 1 0");
    expect("{'attention_mask':{'dtype':'I32','shape':[1,2],'data_offsets':[0,8]}}", narrow, 8,
           "attention_mask [1,2]: 0 1");
    expect("{'attention_mask':{'dtype':'I64','shape':[1,2],'data_offsets':[0,16]}}", ones, 16,
           "attention_mask [1,2]: 1 1");
    expect("{'lengths':{'dtype':'I32','shape':[2],'data_offsets':[0,8]}}", negative, 8,
           "lengths [2]: 3 -7");
    expect("{'lengths':{'dtype':'I64','shape':[2],'data_offsets':[0,16]}}", large, 16,
           "lengths [2]: 9223372036854775807 -9223372036854775808");
}

static void nothing_needs_to_be_aligned(void **state)
{
    unsigned char data[3 + 16 + 16 + 8];
    const int64_t lengths[] = {5, 6};
    const double wide[] = {0.5, 2};

    (void)state;
    memcpy(data, "\1\0\1", 3);
    memcpy(data + 3, lengths, 16);
    memcpy(data + 19, wide, 16);
    memcpy(data + 35, four, 8);
    expect("{'attention_mask':{'dtype':'BOOL','shape':[1,3],'data_offsets':[0,3]},"
           "'lengths':{'dtype':'I64','shape':[2],'data_offsets':[3,19]},"
           "'query':{'dtype':'F64','shape':[1,1,1,2],'data_offsets':[19,35]},"
           "'inputs_embeds':{'dtype':'F32','shape':[1,2],'data_offsets':[35,43]}}",
           data, sizeof data,
           "inputs_embeds [1,2]: 1 -2.5; query [1,1,1,2]: 0.5 2; attention_mask [1,3]: 1 0 1; "
           "lengths [2]: 5 6");
}

static void empty_tensors_keep_their_sizes(void **state)
{
    (void)state;
    expect("{'inputs_embeds':{'dtype':'F32','shape':[0,3,2],'data_offsets':[0,0]}}", NULL, 0,
           "inputs_embeds [0,3,2]:");
    expect("{'lengths':{'dtype':'I64','shape':[0],'data_offsets':[8,8]},"
           "'inputs_embeds':{'dtype':'F32','shape':[1,2],'data_offsets':[0,8]}}",
           four, 8, "inputs_embeds [1,2]: 1 -2.5; lengths [0]:");
    expect("{}", NULL, 0, "");
}

static void options_stand_in_the_metadata(void **state)
{
    (void)state;
    expect("{'__metadata__':{'layer':'3','format':'pt','return_attentions':'{\\'heads\\':[0]}',"
           "'lengths':'[1]','tokens':'[\\'a\\',\\'b\\']'},"
           "'inputs_embeds':{'dtype':'F32','shape':[2,2],'data_offsets':[0,16]}}",
           four, 16,
           "inputs_embeds [2,2]: " FOUR "; lengths [1]: 1; tokens [2]: [\"a\",\"b\"]; layer: 3; "
           "return_attentions: an object of 1");
    expect("{'__metadata__':{'scale':' 0.5 '}}", NULL, 0, "scale: 0.5");
    expect("{'__metadata__':{}}", NULL, 0, "");
}

static void metadata_is_held_to_the_same_rules_as_a_body(void **state)
{
    (void)state;
    refuse("{'__metadata__':{'laier':'1'}}", NULL, 0, INVALID, "/laier", "did you mean \"layer\"?");
    refuse("{'__metadata__':{'layer':'1,'}}", NULL, 0, INVALID, "/layer", "is not one JSON value");
    refuse("{'__metadata__':{'layer':''}}", NULL, 0, INVALID, "/layer", "is not one JSON value");
    refuse("{'__metadata__':{'layer':'x'}}", NULL, 0, INVALID, "/layer", "/layer: at byte 0: ");
    refuse("{'__metadata__':{'layer':1}}", NULL, 0, INVALID, "", "not a string");
    refuse("{'__metadata__':{'layer':'1','layer':'2'}}", NULL, 0, INVALID, "", "stands twice");
    refuse("{'__metadata__':{'inputs_embeds':'[[1]]'},"
           "'inputs_embeds':{'dtype':'F32','shape':[2,2],'data_offsets':[0,16]}}",
           four, 16, INVALID, "/inputs_embeds", "duplicate field");
}

static void what_is_no_such_member_is_refused(void **state)
{
    (void)state;
    refuse("{'input_embeds':{'dtype':'F32','shape':[2,2],'data_offsets':[0,16]}}", four, 16,
           INVALID, "/input_embeds", "did you mean \"inputs_embeds\"?");
    refuse("{'layer':{'dtype':'I64','shape':[],'data_offsets':[0,8]}}", four, 8, INVALID, "/layer",
           "/layer is an option and cannot be a tensor");
    refuse("{'tokens':{'dtype':'I64','shape':[1],'data_offsets':[0,8]}}", four, 8, INVALID,
           "/tokens", "is an option");
    refuse("{'inputs_embeds':{'dtype':'I64','shape':[1,2],'data_offsets':[0,16]}}", four, 16,
           INVALID, "/inputs_embeds",
           "dtype I64 is not read here; float32, float16, bfloat16 and float64");
    refuse("{'inputs_embeds':{'dtype':'F8_E4M3','shape':[4,4],'data_offsets':[0,16]}}", four, 16,
           INVALID, "/inputs_embeds", "dtype F8_E4M3 is not read here");
    refuse("{'attention_mask':{'dtype':'U8','shape':[4,4],'data_offsets':[0,16]}}", four, 16,
           INVALID, "/attention_mask", "dtype U8 is not read here; bool, int32 and int64 are");
    refuse("{'inputs_embeds':{'dtype':'F32','shape':[4],'data_offsets':[0,16]}}", four, 16, SHAPE,
           "/inputs_embeds", "inputs_embeds has rank 1, expected 2 to 3");
    refuse("{'lengths':{'dtype':'I64','shape':[1,2],'data_offsets':[0,16]}}", four, 16, SHAPE,
           "/lengths", "lengths has rank 2, expected 1");
}

static void values_that_json_refuses_are_refused(void **state)
{
    const double beyond[] = {0, -1e39};
    const unsigned char two[] = {1, 2};
    const int64_t large[] = {1, INT64_C(1) << 32};

    (void)state;
    refuse("{'inputs_embeds':{'dtype':'F64','shape':[1,2],'data_offsets':[0,16]}}", beyond, 16,
           INVALID, "/inputs_embeds", "element 1 is beyond float32");
    refuse("{'attention_mask':{'dtype':'BOOL','shape':[1,2],'data_offsets':[0,2]}}", two, 2,
           INVALID, "/attention_mask", "element 1 is neither 0 nor 1 (1 = may attend)");
    refuse("{'attention_mask':{'dtype':'I64','shape':[1,2],'data_offsets':[0,16]}}", large, 16,
           INVALID, "/attention_mask", "element 1 is neither");
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
    static const char header[] =
        "{'inputs_embeds':{'dtype':'F32','shape':[1,2,2],'data_offsets':[0,16]}}";
    blob b = {0};

    (void)state;
    body(&b, header, four, 16);
    blob_add(&b, "", 1);
    reading_body r = {.type = SRV_BODY_SAFETENSORS, .bytes = b.at, .n = b.n};
    reading_body_refuse(&r, INVALID, "", "after the last tensor, belong to no tensor");
    r.chunked = true;
    reading_body_refuse(&r, INVALID, "", "goes on behind the data of its last tensor");
    r.n -= 2;
    reading_body_refuse(&r, INVALID, "", "its tensors need 1 bytes more");
    r.chunked = false;
    reading_body_refuse(&r, INVALID, "", "is cut: tensor \"inputs_embeds\" ends at byte 16");
    blob_free(&b);

    refuse("{'inputs_embeds':{'dtype':'F32','shape':[1,2,2],'data_offsets':[0,12]}}", four, 12,
           INVALID, "", "hold 12 bytes, its shape and dtype F32 need 16");
    refuse("{'inputs_embeds':{'dtype':'F32','shape':[1,2,2],'data_offsets':[4,20]}}", four, 16,
           INVALID, "", "belong to no tensor");
    refuse(
        "{'inputs_embeds':{'dtype':'F32','shape':[4294967296,4294967296],'data_offsets':[0,16]}}",
        four, 16, INVALID, "", "overflows");
    refuse(
        "{'inputs_embeds':{'dtype':'F32','shape':[9223372036854775808,1],'data_offsets':[0,16]}}",
        four, 16, INVALID, "", "");
    refuse("{'inputs_embeds':{'dtype':'F32','shape':[-1,4],'data_offsets':[0,16]}}", four, 16,
           INVALID, "", "shape[0] is not an integer from 0");
}

static void every_cut_is_refused(void **state)
{
    blob b = {0};

    (void)state;
    body(&b,
         "{'__metadata__':{'layer':'3'},"
         "'inputs_embeds':{'dtype':'F32','shape':[1,2,2],'data_offsets':[0,16]}}",
         four, 16);
    for (size_t n = 0; n < b.n; n++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            reading_body r = {
                .type = SRV_BODY_SAFETENSORS, .chunked = chunked, .bytes = b.at, .n = n};
            reading_body_refuse(&r, INVALID, "", "");
        }
    }
    blob_free(&b);
}

static void headers_without_sense_are_refused(void **state)
{
    static const struct {
        uint64_t length;
        const char *code, *says;
    } claims[] = {{UINT64_MAX, INVALID, "header length 18446744073709551615"},
                  {0, INVALID, "a file of zeros"},
                  {1, INVALID, "too short"},
                  {100000001, INVALID, "over the limit of 100000000"},
                  {SRV_SAFETENSORS_HEADER + 1, "too_large", "at most 4194304 are read"}};

    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        blob b = {0};
        blob_uint(&b, claims[i].length, 8);
        blob_text(&b, "{}        ");
        reading_body r = {.type = SRV_BODY_SAFETENSORS, .chunked = true, .bytes = b.at, .n = b.n};
        reading_body_refuse(&r, claims[i].code, "", claims[i].says);
        blob_free(&b);
    }
    refuse("[]", NULL, 0, INVALID, "", "an array, not an object");
    refuse("{'a':", NULL, 0, INVALID, "", "not valid JSON");
    reading_body json = {.type = SRV_BODY_SAFETENSORS,
                         .chunked = true,
                         .bytes = "{\"inputs_embeds\":[[1,2]]}",
                         .n = 25};
    reading_body_refuse(&json, INVALID, "", "it looks like a JSON document");
}

/* The whole budget is held: what the header's tree may take is charged before it is made. */
static attn_status charge_at_most(void *arg, ptrdiff_t bytes, attn_error *err)
{
    ptrdiff_t *left = arg;

    if (bytes > *left)
        return attn_fail(err, ATTN_EBUSY, "no room");
    *left -= bytes;
    return ATTN_OK;
}

static void a_header_is_charged_for(void **state)
{
    blob b = {0}, header = {0};
    ptrdiff_t left = 10000;
    srv_json_reader *r = NULL;
    srv_safetensors_body *s = NULL;

    (void)state;
    blob_text(&header, "{'__metadata__':{'format':'");
    for (int i = 0; i < 500; i++)
        blob_text(&header, "x");
    blob_text(&header, "'}}");
    blob_add(&header, "", 1);
    body(&b, (const char *)header.at, NULL, 0);
    assert_int_equal(
        srv_json_reader_new(&r, reading_fields, reading_num_fields, charge_at_most, &left, NULL),
        ATTN_OK);
    assert_int_equal(srv_safetensors_body_new(&s, r, b.n, NULL), ATTN_OK);
    assert_int_equal(srv_safetensors_body_feed(s, (const char *)b.at, b.n, NULL), ATTN_EBUSY);
    srv_safetensors_body_free(s);
    srv_safetensors_body_free(NULL);
    srv_json_reader_free(r);
    assert_int_equal(left, 10000);
    blob_free(&header);
    blob_free(&b);
}

/* --- answers ---------------------------------------------------------------------------------- */

static const srv_safetensors_entry entries[] = {{"outputs", ATTN_F32, 3, {1, 4, 4}},
                                                {"attentions", ATTN_F32, 4, {1, 2, 2, 3}},
                                                {"empty", ATTN_F32, 2, {0, 7}},
                                                {"half", ATTN_F16, 1, {3}},
                                                {"bytes", ATTN_U8, 0, {0}}};
enum { ENTRIES = sizeof entries / sizeof *entries, DATA_BYTES = 64 + 48 + 6 + 1 };

static void an_answer_begins_with_whole_lines_of_64_bytes(void **state)
{
    const srv_safetensors_option options[] = {{"model", "\"d\""}, {"layer", "0"}};
    size_t n = 0;

    (void)state;
    char *h = srv_safetensors_header(entries, 2, options, 2, &n);
    assert_non_null(h);
    assert_int_equal(n % 64, 0);
    uint64_t length = 0;
    memcpy(&length, h, 8);
    assert_int_equal(length, n - 8);
    static const char want[] =
        "{\"__metadata__\":{\"model\":\"\\\"d\\\"\",\"layer\":\"0\"},"
        "\"outputs\":{\"dtype\":\"F32\",\"shape\":[1,4,4],\"data_offsets\":[0,64]},"
        "\"attentions\":{\"dtype\":\"F32\",\"shape\":[1,2,2,3],\"data_offsets\":[64,112]}}";
    assert_memory_equal(h + 8, want, sizeof want - 1);
    for (size_t i = 8 + sizeof want - 1; i < n; i++)
        assert_int_equal(h[i], ' ');
    free(h);
    h = srv_safetensors_header(entries, 0, NULL, 0, &n);
    assert_non_null(h);
    assert_memory_equal(h + 8, "{}", 2);
    assert_int_equal(n, 64);
    free(h);
}

static void long_options_are_kept_whole(void **state)
{
    blob text = {0};
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 5000; i++)
        blob_text(&text, "\"\\\n");
    blob_add(&text, "", 1);
    const srv_safetensors_option option = {"tokens", (const char *)text.at};
    char *h = srv_safetensors_header(NULL, 0, &option, 1, &n);
    assert_non_null(h);
    assert_int_equal(n % 64, 0);
    assert_in_range(n, 8 + 26 + 30000, 8 + 26 + 30000 + 64);
    free(h);
    blob_free(&text);
}

static void sizes_that_overflow_give_no_answer(void **state)
{
    const srv_safetensors_entry huge[] = {{"a", ATTN_F32, 2, {SIZE_MAX / 8, 4}}},
                                two[] = {{"a", ATTN_U8, 1, {SIZE_MAX}}, {"b", ATTN_U8, 1, {1}}};
    size_t n = 0;

    (void)state;
    assert_null(srv_safetensors_header(huge, 1, NULL, 0, &n));
    assert_null(srv_safetensors_header(two, 2, NULL, 0, &n));
}

static void the_reference_package_reads_our_answers(void **state)
{
    const srv_safetensors_option options[] = {{"model", "\"d\xc3\xa9mo\""}};
    unsigned char data[DATA_BYTES];
    char command[1200];
    size_t n = 0;
    blob b = {0};

    (void)state;
    if (system(
            "PYTHONPATH=build/python /usr/bin/python3 -c 'import safetensors.numpy' 2>/dev/null") !=
        0) {
        printf("skipped: the safetensors package reads our answers: pip could not install it\n");
        skip();
    }
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = (unsigned char)(i % 64);
    char *h = srv_safetensors_header(entries, ENTRIES, options, 1, &n);
    assert_non_null(h);
    blob_add(&b, h, n);
    blob_add(&b, data, DATA_BYTES);
    free(h);
    const char *path = scratch_write("answer.safetensors", b.at, b.n);
    (void)snprintf(command, sizeof command,
                   "PYTHONPATH=build/python /usr/bin/python3 -c \"\n"
                   "import safetensors, safetensors.numpy as st\n"
                   "raw = open('%s', 'rb').read()\n"
                   "t = st.load(raw)\n"
                   "got = sorted((k, str(a.dtype), a.shape) for k, a in t.items())\n"
                   "want = [('attentions', 'float32', (1, 2, 2, 3)), ('bytes', 'uint8', ()),\n"
                   "        ('empty', 'float32', (0, 7)), ('half', 'float16', (3,)), ('outputs', "
                   "'float32', (1, 4, 4))]\n"
                   "assert got == want, got\n"
                   "order = ['outputs', 'attentions', 'empty', 'half', 'bytes']\n"
                   "assert b''.join(t[k].tobytes() for k in order) == raw[%zu:]\n"
                   "with safetensors.safe_open('%s', 'np') as f:\n"
                   "    assert f.metadata() == {'model': '\\\"d\\u00e9mo\\\"'}, f.metadata()\n\"",
                   path, n, path);
    assert_int_equal(system(command), 0);
    blob_free(&b);
}

static void what_the_reference_package_writes_is_read(void **state)
{
    char command[1000], bytes[8192];
    blob b = {0};

    (void)state;
    if (system(
            "PYTHONPATH=build/python /usr/bin/python3 -c 'import safetensors.numpy' 2>/dev/null") !=
        0) {
        printf("skipped: we read what the safetensors package writes: pip could not install it\n");
        skip();
    }
    const char *path = scratch_path("request.safetensors");
    (void)snprintf(
        command, sizeof command,
        "PYTHONPATH=build/python /usr/bin/python3 -c \"\n"
        "import numpy as np, safetensors.numpy as st\n"
        "st.save_file({'inputs_embeds': np.array([[[1, -2.5]]], 'f2'),\n"
        "              'lengths': np.array([1]), 'attention_mask': np.array([[True]])},\n"
        "             '%s', {'layer': '1', 'scale': '0.25'})\n\"",
        path);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    blob_add(&b, bytes, fread(bytes, 1, sizeof bytes, f));
    (void)fclose(f);
    reading_body r = {.type = SRV_BODY_SAFETENSORS, .bytes = b.at, .n = b.n};
    reading_body_expect(&r,
                        "inputs_embeds [1,1,2]: 1 -2.5; attention_mask [1,1]: 1; lengths [1]: 1; "
                        "layer: 1; scale: 0.25");
    blob_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_become_the_members_of_their_names),
        cmocka_unit_test(every_type_that_json_takes_is_read),
        cmocka_unit_test(nothing_needs_to_be_aligned),
        cmocka_unit_test(empty_tensors_keep_their_sizes),
        cmocka_unit_test(options_stand_in_the_metadata),
        cmocka_unit_test(metadata_is_held_to_the_same_rules_as_a_body),
        cmocka_unit_test(what_is_no_such_member_is_refused),
        cmocka_unit_test(values_that_json_refuses_are_refused),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(headers_without_sense_are_refused),
        cmocka_unit_test(a_header_is_charged_for),
        cmocka_unit_test(an_answer_begins_with_whole_lines_of_64_bytes),
        cmocka_unit_test(long_options_are_kept_whole),
        cmocka_unit_test(sizes_that_overflow_give_no_answer),
        cmocka_unit_test(the_reference_package_reads_our_answers),
        cmocka_unit_test(what_the_reference_package_writes_is_read),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
