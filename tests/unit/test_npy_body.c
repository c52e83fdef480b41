#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/npy_body.h"
#include "tests/reading.h"
#include "tests/scratch.h"

#define INVALID "invalid"
#define SHAPE   "shape_mismatch"

static const float six[] = {1.0f, -2.5f, 0.1f, 3.4028235e38f, -0.0f, 1e-45f};
#define SIX "1 -2.5 0.100000001 3.40282347e+38 -0 1.40129846e-45"

/* Holds what comes of a .npy file with this header and data. `want` is NULL where it must be refused. */
static void read_npy(int version, const char *header, const void *data, size_t bytes,
                     const char *query, const char *want)
{
    blob b = {0};

    blob_npy(&b, version, header, data, bytes);
    reading_body body = {.type = SRV_BODY_NPY, .query = query, .bytes = b.at, .n = b.n};
    reading_body_expect(&body, want);
    blob_free(&b);
}

static void refuse_npy(const char *header, const void *data, size_t bytes, const char *code,
                       const char *pointer, const char *says)
{
    blob b = {0};

    blob_npy(&b, 1, header, data, bytes);
    for (int chunked = 0; chunked < 2; chunked++) {
        reading_body body = {.type = SRV_BODY_NPY, .chunked = chunked, .bytes = b.at, .n = b.n};
        reading_body_refuse(&body, code, pointer, says);
    }
    blob_free(&b);
}

#define C_ORDER(descr, shape) "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }"
#define F_ORDER(descr, shape) "{'descr': '" descr "', 'fortran_order': True, 'shape': " shape ", }"

static void float32_is_read_as_it_is(void **state)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f};

    (void)state;
    for (int version = 1; version <= 3; version++)
        read_npy(version, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six, NULL,
                 "inputs_embeds [1,3,2]: " SIX);
    read_npy(1, C_ORDER("<f4", "(3, 2)"), six, sizeof six, NULL, "inputs_embeds [3,2]: " SIX);
    read_npy(1, C_ORDER("<f4", "(2, 2)"), odd, sizeof odd, NULL,
             "inputs_embeds [2,2]: nan inf -inf -0");
}

static void narrower_and_wider_floats_are_converted(void **state)
{
    const uint16_t half[] = {0x0001, 0x7BFF, 0x3555, 0xFC00};
    const double wide[] = {0.1, -1e-46, INFINITY, 3.4028234663852886e38};
    const double beyond[] = {0, 0, 1e39, 0};

    (void)state;
    read_npy(1, C_ORDER("<f2", "(2, 2)"), half, sizeof half, NULL,
             "inputs_embeds [2,2]: 5.96046448e-08 65504 0.333251953 -inf");
    read_npy(1, C_ORDER("<f8", "(2, 2)"), wide, sizeof wide, NULL,
             "inputs_embeds [2,2]: 0.100000001 -0 inf 3.40282347e+38");
    refuse_npy(C_ORDER("<f8", "(2, 2)"), beyond, sizeof beyond, INVALID, "/inputs_embeds",
               "element 2 is beyond float32");
}

static void big_endian_is_read(void **state)
{
    const unsigned char single[] = {0x3F, 0x80, 0, 0, 0xC0, 0x20, 0, 0};
    const unsigned char wide[] = {0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0xC0, 4, 0, 0, 0, 0, 0, 0};
    const unsigned char half[] = {0x3C, 0, 0xC1, 0};

    (void)state;
    read_npy(1, C_ORDER(">f4", "(1, 2)"), single, 8, NULL, "inputs_embeds [1,2]: 1 -2.5");
    read_npy(1, C_ORDER(">f8", "(1, 2)"), wide, 16, NULL, "inputs_embeds [1,2]: 1 -2.5");
    read_npy(1, C_ORDER(">f2", "(1, 2)"), half, 4, NULL, "inputs_embeds [1,2]: 1 -2.5");
}

static void fortran_order_is_transposed(void **state)
{
    const float square[] = {1, 3, 2, 4};
    const float cube[] = {1, 7, 4, 10, 2, 8, 5, 11, 3, 9, 6, 12}; /* 1..12 as [2,2,3] */
    const double wide[] = {1, 3, 2, 4};

    (void)state;
    read_npy(1, F_ORDER("<f4", "(2, 2)"), square, sizeof square, NULL,
             "inputs_embeds [2,2]: 1 2 3 4");
    read_npy(1, F_ORDER("<f4", "(2, 2, 3)"), cube, sizeof cube, NULL,
             "inputs_embeds [2,2,3]: 1 2 3 4 5 6 7 8 9 10 11 12");
    read_npy(1, F_ORDER("<f8", "(2, 2)"), wide, sizeof wide, NULL, "inputs_embeds [2,2]: 1 2 3 4");
    read_npy(1, F_ORDER("<f4", "(2, 0, 3)"), NULL, 0, NULL, "inputs_embeds [2,0,3]:");
}

/* More elements than are converted at a time, against a plain loop. */
static void long_arrays_come_out_the_same_in_every_order(void **state)
{
    enum { B = 3, T = 7, D = 61, N = B * T * D };
    static double values[N];
    static unsigned char stored[8 * N];
    static const char *const headers[] = {
        C_ORDER("<f8", "(3, 7, 61)"), F_ORDER("<f8", "(3, 7, 61)"), C_ORDER(">f8", "(3, 7, 61)"),
        F_ORDER(">f8", "(3, 7, 61)")};
    reading_text want = {NULL, 0};

    (void)state;
    reading_add(&want, "inputs_embeds [3,7,61]:");
    for (size_t i = 0; i < N; i++) {
        values[i] = (double)(i * 37 % 1009) - 500;
        reading_add(&want, " %.9g", values[i]);
    }
    for (int how = 0; how < 4; how++) {
        for (size_t i = 0; i < N; i++) {
            size_t b = i / (T * D), t = i / D % T, d = i % D;
            size_t place = how % 2 == 0 ? i : b + B * (t + T * d);
            const unsigned char *x = (const unsigned char *)&values[i];
            for (size_t k = 0; k < 8; k++)
                stored[8 * place + k] = x[how < 2 ? k : 7 - k];
        }
        read_npy(1, headers[how], stored, sizeof stored, NULL, want.p);
    }
    free(want.p);
}

static void empty_arrays_keep_their_sizes(void **state)
{
    (void)state;
    read_npy(1, C_ORDER("<f4", "(0, 3, 2)"), NULL, 0, NULL, "inputs_embeds [0,3,2]:");
    read_npy(1, C_ORDER("<f4", "(2, 0, 4)"), NULL, 0, NULL, "inputs_embeds [2,0,4]:");
}

static void options_stand_in_the_query(void **state)
{
    (void)state;
    read_npy(1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six, "layer=1&lengths=[2]&scale=0.5",
             "inputs_embeds [1,3,2]: " SIX "; lengths [1]: 2; layer: 1; scale: 0.5");
    read_npy(1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six,
             "&return_attentions=%7B%22heads%22%3A+%5B0%5D%7D&&attention_mask=%5b[1,0,1]]&",
             "inputs_embeds [1,3,2]: " SIX "; attention_mask [1,3]: 1 0 1; "
             "return_attentions: an object of 1");
    read_npy(1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six, "tokens=[\"a\",\"b%26c\",\"d\"]",
             "inputs_embeds [1,3,2]: " SIX "; tokens [3]: [\"a\",\"b&c\",\"d\"]");
}

static void refuse_query(const char *query, const char *pointer, const char *says)
{
    blob b = {0};

    blob_npy(&b, 1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six);
    reading_body body = {.type = SRV_BODY_NPY, .query = query, .bytes = b.at, .n = b.n};
    reading_body_refuse(&body, INVALID, pointer, says);
    blob_free(&b);
}

static void a_query_is_held_to_the_same_rules_as_a_body(void **state)
{
    (void)state;
    refuse_query("laier=1", "/laier", "unknown field \"laier\"; did you mean \"layer\"?");
    char many[3 * 512 + 1] = "";
    for (size_t i = 0; i < 512; i++)
        memcpy(many + 3 * i, "%85", 4);
    refuse_query(many, "",
                 "the query is not valid UTF-8"); /* and nothing is written past a pointer's end */
    refuse_query("layer=1&layer=1", "", "the parameter \"layer\" twice");
    refuse_query("inputs_embeds=[[1]]", "/inputs_embeds", "duplicate field");
    refuse_query("layer", "/layer", "/layer:  is not one JSON value");
    refuse_query("layer=", "/layer", "/layer:  is not one JSON value");
    refuse_query("layer=1,%22scale%22:2", "/layer", "is not one JSON value");
    refuse_query("layer=1,", "/layer", "is not one JSON value");
    refuse_query("layer=1}", "/layer", "is not one JSON value");
    refuse_query("layer=1}x", "/layer", "at byte 2");
    refuse_query("layer=1]", "/layer", "/layer: at byte 1: ");
    refuse_query("layer=[1", "/layer", "is not one JSON value");
    refuse_query("layer=\"1", "/layer", "is not one JSON value");
    refuse_query("layer=1%002", "", "NUL");
    refuse_query("layer=%zz", "", "two hexadecimal digits");
    refuse_query("layer=%4", "", "two hexadecimal digits");
    refuse_query("lengths=[1,x]", "/lengths/1", "/lengths/1: at byte 3: ");
    refuse_query("lengths=true", "/lengths", "expected an array of numbers, found true");
}

static void other_types_are_refused_by_name(void **state)
{
    const int64_t ints[] = {1, 2};

    (void)state;
    refuse_npy(C_ORDER("<i8", "(1, 2)"), ints, 16, INVALID, "/inputs_embeds",
               "dtype <i8 is not read here; float32, float16, bfloat16 and float64 are");
    refuse_npy(C_ORDER("|b1", "(1, 2)"), ints, 2, INVALID, "/inputs_embeds", "dtype |b1");
    refuse_npy(C_ORDER("<c8", "(1, 2)"), ints, 16, INVALID, "/inputs_embeds", "dtype <c8");
    refuse_npy(C_ORDER("|O", "(1, 2)"), ints, 16, INVALID, "", "Python objects");
    refuse_npy(C_ORDER("float", "(1, 2)"), ints, 16, INVALID, "", "is not known");
}

static void the_rank_must_be_that_of_the_member(void **state)
{
    (void)state;
    refuse_npy(C_ORDER("<f4", "(6,)"), six, 24, SHAPE, "/inputs_embeds",
               "inputs_embeds has rank 1, expected 2 to 3");
    refuse_npy(C_ORDER("<f4", "(1, 1, 3, 2)"), six, 24, SHAPE, "/inputs_embeds", "rank 4");
    refuse_npy(C_ORDER("<f4", "()"), six, 4, SHAPE, "/inputs_embeds", "rank 0");
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refuse_npy(C_ORDER("<f4", "(1, 3, 2)"), six, 23, INVALID, "",
               "need 24 bytes of data, it has 23");
    refuse_npy(C_ORDER("<f4", "(1, 3, 2)"), six, 20, INVALID, "",
               "need 24 bytes of data, it has 20");
    refuse_npy(C_ORDER("<f4", "(1, 2, 2)"), six, 24, INVALID, "", "need 16 bytes of data, it has");
    refuse_npy(C_ORDER("<f4", "(1, 3, 2)"), NULL, 0, INVALID, "",
               "need 24 bytes of data, it has 0");
    refuse_npy(C_ORDER("<f4", "(4294967296, 4294967296)"), six, 24, INVALID, "", "overflows");
    refuse_npy(C_ORDER("<f4", "(4611686018427387904, 1)"), six, 24, INVALID, "", "overflows");
    refuse_npy(C_ORDER("<f4", "(-1, 2)"), six, 24, INVALID, "", "dimension");
    refuse_npy(C_ORDER("<f4", "(18446744073709551616, 2)"), six, 24, INVALID, "", "dimension");
}

/* What needs no memory before its bytes come: 2^59 floats. */
static void a_huge_claim_costs_nothing_until_it_is_sent(void **state)
{
    blob b = {0};

    (void)state;
    blob_npy(&b, 1, C_ORDER("<f4", "(576460752303423488, 1)"), six, sizeof six);
    reading_body body = {.type = SRV_BODY_NPY, .chunked = true, .bytes = b.at, .n = b.n};
    reading_body_refuse(&body, INVALID, "", "need 2305843009213693952 bytes of data, it has 24");
    blob_free(&b);
}

static void what_is_no_npy_is_refused(void **state)
{
    static const char *const texts[] = {"", "{}", "{\"inputs_embeds\":[[1]]}", "\x93NUMPY\x01",
                                        "\x93NUM"};
    static const char *const says[] = {"it is empty (0 bytes)", "not a .npy file",
                                       "not a .npy file", "is cut", "not a .npy file"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        reading_body body = {
            .type = SRV_BODY_NPY, .chunked = true, .bytes = texts[i], .n = strlen(texts[i])};
        reading_body_refuse(&body, INVALID, "", says[i]);
    }
    refuse_npy("{'descr': '<f4'}", six, 24, INVALID, "", "no key");
    refuse_npy("[]", six, 24, INVALID, "", "dict");
    blob b = {0};
    blob_npy(&b, 4, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six);
    reading_body body = {.type = SRV_BODY_NPY, .bytes = b.at, .n = b.n};
    reading_body_refuse(&body, INVALID, "", "version 4.0");
    blob_free(&b);
}

static void every_cut_is_refused(void **state)
{
    blob b = {0};

    (void)state;
    blob_npy(&b, 1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six);
    for (size_t n = 0; n < b.n; n += 5) {
        reading_body body = {.type = SRV_BODY_NPY, .chunked = true, .bytes = b.at, .n = n};
        reading_body_refuse(&body, INVALID, "", "");
    }
    blob_free(&b);
}

static void a_changed_header_never_reads_beyond_its_bytes(void **state)
{
    blob b = {0};

    (void)state;
    blob_npy(&b, 1, C_ORDER("<f4", "(1, 3, 2)"), six, sizeof six);
    size_t header = b.n - sizeof six;
    for (size_t i = 0; i < header; i++) {
        static const unsigned char values[] = {0, 0xFF, '9', '\''};
        unsigned char kept = b.at[i];
        for (size_t v = 0; v < sizeof values; v++) {
            b.at[i] = values[v];
            reading_body body = {.type = SRV_BODY_NPY, .bytes = b.at, .n = b.n};
            srv_json_reader *r = NULL;
            srv_npy_body *npy = NULL;
            attn_error err = {0};
            assert_int_equal(
                srv_json_reader_new(&r, reading_fields, reading_num_fields, NULL, NULL, NULL),
                ATTN_OK);
            assert_int_equal(srv_npy_body_new(&npy, r, "inputs_embeds", body.n, NULL), ATTN_OK);
            attn_status rc = srv_npy_body_feed(npy, (const char *)b.at, b.n, &err);
            if (rc == ATTN_OK)
                rc = srv_npy_body_finish(npy, &err);
            assert_true(rc == ATTN_OK || rc == ATTN_EINVAL || rc == ATTN_ESHAPE);
            srv_npy_body_free(npy);
            srv_json_reader_free(r);
        }
        b.at[i] = kept;
    }
    srv_npy_body_free(NULL);
    blob_free(&b);
}

static void gzip_is_decoded_on_the_way(void **state)
{
    /* numpy.save of [[1, -2.5]] in float32, compressed. */
    blob b = {0};

    (void)state;
    const char *path = scratch_path("x.npy.gz");
    char command[400];
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c \"import gzip, io, numpy; f = io.BytesIO(); "
                   "numpy.save(f, numpy.array([[1, -2.5]], 'f4')); "
                   "open('%s', 'wb').write(gzip.compress(f.getvalue()))\" 2>/dev/null",
                   path);
    if (system(command) != 0) {
        printf("skipped: gzip of numpy: python3 with numpy is not there\n");
        skip();
    }
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char bytes[4096];
    blob_add(&b, bytes, fread(bytes, 1, sizeof bytes, f));
    (void)fclose(f);
    reading_body body = {
        .type = SRV_BODY_NPY, .coding = SRV_GZIP, .query = "layer=2", .bytes = b.at, .n = b.n};
    reading_body_expect(&body, "inputs_embeds [1,2]: 1 -2.5; layer: 2");
    body.n -= 3;
    reading_body_refuse(&body, INVALID, "", "gzip body: it is cut after");
    blob_free(&b);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void headers_are_whole_lines_of_64_bytes(void **state)
{
    static const size_t most[ATTN_MAX_RANK] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX,
                                               SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    char out[SRV_NPY_HEADER_MAX + 1];

    (void)state;
    for (size_t rank = 0; rank <= ATTN_MAX_RANK; rank++) {
        memset(out, '#', sizeof out);
        size_t n = srv_npy_header(out, ATTN_F32, rank, most);
        assert_int_equal(n % 64, 0);
        assert_in_range(n, 64, SRV_NPY_HEADER_MAX);
        assert_memory_equal(out, "\x93NUMPY\x01\0", 8);
        assert_int_equal((unsigned char)out[8] + 256 * (unsigned char)out[9], n - 10);
        assert_int_equal(out[n - 1], '\n');
        assert_int_equal(out[SRV_NPY_HEADER_MAX], '#');
    }
    size_t n = srv_npy_header(out, ATTN_F16, 3, (size_t[]){1, 0, 30});
    assert_int_equal(n, 128);
    assert_memory_equal(out + 10, C_ORDER("<f2", "(1, 0, 30,)"), 60);
}

static void numpy_reads_our_answers(void **state)
{
    static const struct {
        attn_dtype dtype;
        size_t rank, dim[4];
        const char *name;
    } kinds[] = {{ATTN_F32, 3, {2, 3, 4}, "float32 (2, 3, 4)"},
                 {ATTN_F16, 2, {2, 3}, "float16 (2, 3)"},
                 {ATTN_U8, 1, {5}, "uint8 (5,)"},
                 {ATTN_I32, 2, {0, 7}, "int32 (0, 7)"},
                 {ATTN_F64, 0, {0}, "float64 ()"},
                 {ATTN_BOOL, 1, {2}, "bool (2,)"},
                 {ATTN_I64, 4, {1, 1, 1, 2}, "int64 (1, 1, 1, 2)"}};
    char command[600];

    (void)state;
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
        printf("skipped: numpy reads our answers: python3 with numpy is not there\n");
        skip();
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char header[SRV_NPY_HEADER_MAX];
        size_t n = srv_npy_header(header, kinds[i].dtype, kinds[i].rank, kinds[i].dim), count = 1;
        blob b = {0};
        blob_add(&b, header, n);
        for (size_t k = 0; k < kinds[i].rank; k++)
            count *= kinds[i].dim[k];
        for (size_t k = 0; k < count * attn_dtype_size(kinds[i].dtype); k++)
            blob_add(&b, k % 3 == 0 ? "\1" : "\0", 1);
        const char *path = scratch_write("answer.npy", b.at, b.n);
        (void)snprintf(
            command, sizeof command,
            "/usr/bin/python3 -c \"import numpy; a = numpy.load('%s', allow_pickle=False); "
            "assert '%%s %%s' %% (a.dtype, a.shape) == '%s', (a.dtype, a.shape); "
            "assert a.tobytes() == open('%s', 'rb').read()[%zu:]; "
            "assert a.flags.c_contiguous\"",
            path, kinds[i].name, path, n);
        assert_int_equal(system(command), 0);
        blob_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_is_read_as_it_is),
        cmocka_unit_test(narrower_and_wider_floats_are_converted),
        cmocka_unit_test(big_endian_is_read),
        cmocka_unit_test(fortran_order_is_transposed),
        cmocka_unit_test(long_arrays_come_out_the_same_in_every_order),
        cmocka_unit_test(empty_arrays_keep_their_sizes),
        cmocka_unit_test(options_stand_in_the_query),
        cmocka_unit_test(a_query_is_held_to_the_same_rules_as_a_body),
        cmocka_unit_test(other_types_are_refused_by_name),
        cmocka_unit_test(the_rank_must_be_that_of_the_member),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(a_huge_claim_costs_nothing_until_it_is_sent),
        cmocka_unit_test(what_is_no_npy_is_refused),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(a_changed_header_never_reads_beyond_its_bytes),
        cmocka_unit_test(gzip_is_decoded_on_the_way),
        cmocka_unit_test(headers_are_whole_lines_of_64_bytes),
        cmocka_unit_test(numpy_reads_our_answers),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
