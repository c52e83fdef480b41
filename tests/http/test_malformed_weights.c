/* Weight files and configurations that are broken in every way we know: check and serve refuse them in
 * one sentence that names the file, soon, and without a signal. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/scratch.h"
#include "tests/st.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zip.h>

#define GOOD_CONFIG                                                                                \
    "{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"num_kv_heads\":1,\"head_dim\":2}"

/* An entry of a safetensors header. */
#define E(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define W(letter, offsets) E("layers.0.w" letter ".weight", "F32", "[2,2]", offsets)
#define Q                  W("q", "[0,16]")
#define KVO                W("k", "[16,32]") "," W("v", "[32,48]") "," W("o", "[48,64]")

/* Holds that the model at `path` is refused in a sentence that has both words. */
static void refuse(const char *path, const char *file, const char *word)
{
    char *model = st_path("m=%s", path);
    const char *const words[] = {file, word, NULL};

    command_refuse(COMMAND("check", "--model", model), 1, words);
    command_refuse(COMMAND("serve", "--listen", "127.0.0.1:0", "--model", model), 1, words);
    free(model);
    test_command c = command_run(COMMAND("inspect", path));
    if (c.code > 1 || (c.code == 1 && strncmp(c.err, "attnd: ", 7) != 0))
        fail_msg("attnd inspect %s ended with %d:\n%s", path, c.code, c.err);
    command_free(&c);
}

static void accept(const char *path)
{
    char *model = st_path("m=%s", path);
    test_command c = command_succeed(COMMAND("check", "--model", model));
    command_free(&c);
    c = command_succeed(COMMAND("inspect", path));
    command_free(&c);
    free(model);
}

/* --- safetensors ------------------------------------------------------------------------------ */

typedef struct {
    const char *what, *header;
    size_t data_bytes;
    const char *word; /* in the sentence; NULL = nothing special */
} header_case;

static const header_case BROKEN_HEADER[] = {
    {"B03 duplicate name", "{" Q "," Q "," KVO "}", 64, "layers.0.wq.weight"},
    {"B03 duplicate key",
     "{\"layers.0.wq.weight\":{\"dtype\":\"F32\",\"dtype\":\"F32\","
     "\"shape\":[2,2],\"data_offsets\":[0,16]}," KVO "}",
     64, "dtype"},
    {"B04 hole at the start", "{" W("q", "[64,80]") "," KVO "}", 80, NULL},
    {"B04 hole in the middle",
     "{" Q "," W("k", "[16,32]") "," W("v", "[40,56]") "," W("o", "[56,72]") "}", 72,
     "layers.0.wv.weight"},
    {"B04 spare bytes", "{" Q "," KVO "}", 72, "after the last tensor"},
    {"B04 overlap", "{" Q "," W("k", "[8,24]") "," W("v", "[32,48]") "," W("o", "[48,64]") "}", 64,
     NULL},
    {"B04 one byte short", "{" Q "," KVO "}", 63, NULL},
    {"B05 range too large", "{" W("q", "[0,65536]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 range too small", "{" W("q", "[0,4]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 range backwards", "{" W("q", "[16,0]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 one offset", "{" W("q", "[0]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 three offsets", "{" W("q", "[0,16,32]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 negative offset", "{" W("q", "[-1,15]") "," KVO "}", 64, "layers.0.wq.weight"},
    {"B05 huge offset", "{" W("q", "[0,18446744073709551616]") "," KVO "}", 64, NULL},
    {"B06 negative dimension", "{" E("layers.0.wq.weight", "F32", "[-1,4]", "[0,16]") "," KVO "}",
     64, "layers.0.wq.weight"},
    {"B06 real dimension", "{" E("layers.0.wq.weight", "F32", "[2.0,2]", "[0,16]") "," KVO "}", 64,
     "layers.0.wq.weight"},
    {"B06 exponent", "{" E("layers.0.wq.weight", "F32", "[2e0,2]", "[0,16]") "," KVO "}", 64,
     "layers.0.wq.weight"},
    {"B06 string dimension", "{" E("layers.0.wq.weight", "F32", "[\"2\",2]", "[0,16]") "," KVO "}",
     64, "layers.0.wq.weight"},
    {"B06 null dimension", "{" E("layers.0.wq.weight", "F32", "[2,null]", "[0,16]") "," KVO "}", 64,
     "layers.0.wq.weight"},
    {"B06 shape is a number", "{" E("layers.0.wq.weight", "F32", "4", "[0,16]") "," KVO "}", 64,
     "layers.0.wq.weight"},
    {"B06 forty dimensions",
     "{" E("layers.0.wq.weight", "F32",
           "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2,2]",
           "[0,16]") "," KVO "}",
     64, "layers.0.wq.weight"},
    {"B06 product overflows",
     "{" E("layers.0.wq.weight", "F32", "[4294967296,4294967296,4]", "[0,16]") "," KVO "}", 64,
     "layers.0.wq.weight"},
    {"B08 one element of none", "{" Q "," KVO "," E("tag", "F32", "[1]", "[64,64]") "}", 64, "tag"},
    {"B11 eight bit type",
     "{" E("layers.0.wq.weight", "F8_E4M3", "[2,2]",
           "[0,4]") "," W("k", "[4,20]") "," W("v", "[20,36]") "," W("o", "[36,52]") "}",
     52, "F8_E4M3"},
    {"B11 lower case type", "{" E("layers.0.wq.weight", "f32", "[2,2]", "[0,16]") "," KVO "}", 64,
     "f32"},
    {"B11 integers where weights are due",
     "{" E("layers.0.wq.weight", "I32", "[2,2]", "[0,16]") "," KVO "}", 64, "I32"},
    {"type is a number",
     "{\"layers.0.wq.weight\":{\"dtype\":5,\"shape\":[2,2],"
     "\"data_offsets\":[0,16]}," KVO "}",
     64, "layers.0.wq.weight"},
    {"no shape", "{\"layers.0.wq.weight\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}," KVO "}", 64,
     "layers.0.wq.weight"},
    {"an entry is an array", "{\"layers.0.wq.weight\":[]," KVO "}", 64, "layers.0.wq.weight"},
    {"an array", "[]", 0, NULL},
    {"no object", "7", 0, NULL},
    {"a cut header", "{" Q "," KVO, 64, NULL},
    {"text behind the header", "{" Q "," KVO "} x", 64, NULL},
    {"not UTF-8", "{\"\xFF\":1," Q "," KVO "}", 64, NULL},
    {"metadata is a list", "{\"__metadata__\":[]," Q "," KVO "}", 64, "__metadata__"},
};

/* Sound files that hold no such model: the sentence names the model's folder. */
static const header_case OTHER_TENSORS[] = {
    {"an empty object", "{}", 0, NULL},
    {"B14 a weight is missing", "{" Q "," W("k", "[16,32]") "," W("v", "[32,48]") "}", 48,
     "layers.0.wo.weight"},
    {"B14 other names", "{" E("a", "F32", "[2,2]", "[0,16]") "}", 16, NULL},
    {"A08 shapes that the configuration denies",
     "{" E("layers.0.wq.weight", "F32", "[3,2]",
           "[0,24]") "," W("k", "[24,40]") "," W("v", "[40,56]") "," W("o", "[56,72]") "}",
     72, "[3,2]"},
    {"a weight of three dimensions",
     "{" E("layers.0.wq.weight", "F32", "[2,2,1]", "[0,16]") "," KVO "}", 64, "[2,2,1]"},
};

static const header_case GOOD_HEADER[] = {
    {"plain", "{" Q "," KVO "}", 64, NULL},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," Q "," KVO "}", 64, NULL},
    {"B04 another order",
     "{" W("o", "[48,64]") "," W("v", "[32,48]") "," W("k", "[16,32]") "," Q "}", 64, NULL},
    {"B07 unaligned",
     "{" E("pad", "U8", "[3]", "[0,3]") "," W("q", "[3,19]") "," W("k", "[19,35]") "," W(
         "v", "[35,51]") "," W("o", "[51,67]") "}",
     67, NULL},
    {"B08 an empty tensor", "{" E("tag", "F32", "[0]", "[0,0]") "," Q "," KVO "}", 64, NULL},
    {"B09 a scalar", "{" Q "," KVO "," E("step", "I64", "[]", "[64,72]") "}", 72, NULL},
    {"B11 an unknown type that is not needed",
     "{" Q "," KVO "," E("x", "F8_E4M3", "[4]", "[64,68]") "}", 68, NULL},
};

/* The weights are bytes 0, 1, 2, ...: as floats all finite. file NULL: the model is good. */
static void each_header(const header_case *c, const char *file)
{
    blob b = {0};
    const char *dir = scratch_path("m");

    printf("%s\n", c->what);
    blob_safetensors(&b, c->header, c->data_bytes);
    scratch_write("m/model.safetensors", b.at, b.n);
    if (file == NULL)
        accept(dir);
    else
        refuse(dir, file, c->word);
    blob_free(&b);
}

static void headers_of_safetensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD_HEADER / sizeof *GOOD_HEADER; i++)
        each_header(&GOOD_HEADER[i], NULL);
    for (size_t i = 0; i < sizeof BROKEN_HEADER / sizeof *BROKEN_HEADER; i++)
        each_header(&BROKEN_HEADER[i], "model.safetensors");
    for (size_t i = 0; i < sizeof OTHER_TENSORS / sizeof *OTHER_TENSORS; i++)
        each_header(&OTHER_TENSORS[i], scratch_path("m"));
}

static void starts_of_safetensors(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *word;
    } START[] = {
        {"", 0, NULL},
        {"\x40\0\0\0\0\0\0", 7, "7"},
        {"\x40\0\0\0\0\0\0\0", 8, "64"},
        {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, "18446744073709551615"},
        {"\0\0\0\0\0\0\0\0", 8, NULL},
        {"\1\0\0\0\0\0\0\0{", 9, NULL},
        {"\3\0\0\0\0\0\0\0{}", 10, "3"},
        {"\0\xE1\xF5\5\0\0\0\0{}", 10, "100000000"},
        {"\1\xE1\xF5\5\0\0\0\0{}", 10, "100000001"},
        {"\0\0\0\0\0\0\0\x80{}", 10, "9223372036854775808"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", 64, "LFS"},
        {"PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, "zip"},
        {"<!DOCTYPE html><html><body>Not Found</body></html>", 50, "HTML"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof START / sizeof *START; i++) {
        scratch_write("m/model.safetensors", START[i].bytes, START[i].n);
        refuse(scratch_path("m"), "model.safetensors", START[i].word);
        refuse(scratch_path("m/model.safetensors"), "model.safetensors", START[i].word);
    }
}

/* Every weight is 1 but this one. */
static void write_with_value(const char *dtype, const void *value, size_t size)
{
    static const char *const NAME[] = {"layers.0.wq.weight", "layers.0.wk.weight",
                                       "layers.0.wv.weight", "layers.0.wo.weight"};
    float one[4] = {1, 1, 1, 1};
    unsigned char odd[32] = {0};
    st_entry entry[4];

    memcpy(odd + 2 * size, value, size);
    for (size_t i = 0; i < 4; i++)
        entry[i] = (st_entry){NAME[i], "F32", 2, {2, 2}, one, sizeof one};
    entry[1] = (st_entry){NAME[1], dtype, 2, {2, 2}, odd, 4 * size};
    char *path = st_path("%s/m/model.safetensors", scratch_dir());
    st_write(path, entry, 4);
    free(path);
}

static void values_of_weights(void **state)
{
    const double huge = 1e39, largest = 3.4028234663852886e38;
    (void)state;
    write_with_value("F64", &largest, sizeof largest);
    accept(scratch_path("m"));
    write_with_value("F64", &huge, sizeof huge);
    refuse(scratch_path("m"), "model.safetensors", "layers.0.wk.weight");
}

/* --- shards ----------------------------------------------------------------------------------- */

static void write_shards(const char *index)
{
    blob a = {0}, b = {0};
    blob_safetensors(&a, "{" Q "," W("k", "[16,32]") "}", 32);
    blob_safetensors(&b, "{" W("v", "[0,16]") "," W("o", "[16,32]") "}", 32);
    scratch_write("shards/a.safetensors", a.at, a.n);
    scratch_write("shards/b.safetensors", b.at, b.n);
    scratch_write("shards/model.safetensors.index.json", index, strlen(index));
    blob_free(&a);
    blob_free(&b);
}

#define MAP(q, k, v, o)                                                                            \
    "{\"weight_map\":{\"layers.0.wq.weight\":" q ",\"layers.0.wk.weight\":" k                      \
    ",\"layers.0.wv.weight\":" v ",\"layers.0.wo.weight\":" o "}}"
#define A_ "\"a.safetensors\""
#define B_ "\"b.safetensors\""

static void indices_of_shards(void **state)
{
    static const struct {
        const char *index, *file, *word;
    } BAD[] = {
        {MAP(A_, A_, "\"c.safetensors\"", B_), "c.safetensors", NULL},
        {MAP(A_, A_, "\"../b.safetensors\"", B_), "index.json", "../b.safetensors"},
        {MAP(A_, A_, "\"/etc/passwd\"", B_), "index.json", "/etc/passwd"},
        {MAP(A_, A_, "\"\"", B_), "index.json", NULL},
        {MAP(A_, A_, "7", B_), "index.json", "layers.0.wv.weight"},
        {MAP(A_, A_, A_, B_), "safetensors", "layers.0.wv.weight"},
        {"{\"weight_map\":[]}", "index.json", "weight_map"},
        {"{}", "index.json", "weight_map"},
        {"{\"weight_map\":", "index.json", NULL},
        {"", "index.json", NULL},
    };
    const char *dir = scratch_mkdir("shards");
    (void)state;

    scratch_write("shards/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    write_shards(MAP(A_, A_, B_, B_));
    dir = scratch_path("shards");
    accept(dir);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        write_shards(BAD[i].index);
        refuse(scratch_path("shards"), BAD[i].file, BAD[i].word);
    }
    write_shards(MAP(A_, A_, B_, B_));
    scratch_write("shards/b.safetensors", "", 0);
    refuse(scratch_path("shards"), "b.safetensors", NULL);
    assert_int_equal(unlink(scratch_path("shards/b.safetensors")), 0);
    refuse(scratch_path("shards"), "b.safetensors", NULL);
}

/* --- npy and npz ------------------------------------------------------------------------------ */

#define NPY(descr, order, shape)                                                                   \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }\n"

/* An archive of the four weights; `odd` stands in the place of the first. */
static void write_npz(const blob *odd, zip_int32_t method)
{
    static const char *const NAME[] = {"layers.0.wq.weight.npy", "layers.0.wk.weight.npy",
                                       "layers.0.wv.weight.npy", "layers.0.wo.weight.npy"};
    static const float IDENTITY[] = {1, 0, 0, 1};
    blob plain = {0};
    zip_t *z = zip_open(scratch_path("z/model.npz"), ZIP_CREATE | ZIP_TRUNCATE, NULL);

    assert_non_null(z);
    blob_npy(&plain, 1, NPY("<f4", "False", "(2, 2)"), IDENTITY, sizeof IDENTITY);
    for (size_t i = 0; i < 4; i++) {
        const blob *b = i == 0 && odd != NULL ? odd : &plain;
        zip_int64_t at = zip_file_add(z, NAME[i], zip_source_buffer(z, b->at, b->n, 0), 0);
        assert_true(at >= 0);
        if (i == 0)
            assert_int_equal(zip_set_file_compression(z, (zip_uint64_t)at, method, 0), 0);
    }
    assert_int_equal(zip_close(z), 0);
    blob_free(&plain);
}

static const struct {
    const char *header;
    size_t data_bytes;
    const char *word;
} BROKEN_NPY[] = {
    {NPY("|O", "False", "(2, 2)"), 16, "float"},
    {NPY("<f4", "False", "(4294967296, 4294967296)"), 16, NULL},
    {NPY("<f4", "False", "(2, 3)"), 16, NULL},
    {NPY("<f4", "False", "(2, 1)"), 16, NULL},
    {NPY("<f4", "False", "(-2, -2)"), 16, NULL},
    {NPY("<f4", "False", "(2.0, 2)"), 16, NULL},
    {NPY("<f4", "False", "2"), 16, NULL},
    {NPY("<f4", "Maybe", "(2, 2)"), 16, NULL},
    {NPY("<x9", "False", "(2, 2)"), 16, "<x9"},
    {"{'descr': '<f4', 'shape': (2, 2)}\n", 16, "fortran_order"},
    {"{'descr': '<f4', 'fortran_order': False}\n", 16, "shape"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2)}\n", 16, NULL},
    {"{", 16, NULL},
    {"", 16, NULL},
    {NPY("<f4", "False", "(2, 2)"), 15, NULL},
};

static void npy_files_and_archives_of_them(void **state)
{
    static const float DATA[4] = {1, 2, 3, 4};
    blob b = {0};
    (void)state;

    scratch_mkdir("z");
    scratch_write("z/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    write_npz(NULL, ZIP_CM_STORE);
    accept(scratch_path("z"));
    accept(scratch_path("z/model.npz"));
    write_npz(NULL, ZIP_CM_DEFLATE);
    accept(scratch_path("z"));
    blob_npy(&b, 2, NPY(">f4", "True", "(2, 2)"), DATA, sizeof DATA);
    write_npz(&b, ZIP_CM_DEFLATE);
    accept(scratch_path("z"));
    blob_free(&b);
    for (size_t i = 0; i < sizeof BROKEN_NPY / sizeof *BROKEN_NPY; i++) {
        printf("%s", BROKEN_NPY[i].header);
        blob_npy(&b, 1, BROKEN_NPY[i].header, DATA, BROKEN_NPY[i].data_bytes);
        write_npz(&b, i % 2 == 0 ? ZIP_CM_STORE : ZIP_CM_DEFLATE);
        refuse(scratch_path("z"), "model.npz", BROKEN_NPY[i].word);
        scratch_write("single.npy", b.at, b.n);
        refuse(scratch_path("single.npy"), "single.npy", NULL);
        blob_free(&b);
    }
}

static void broken_archives(void **state)
{
    blob bomb = {0}, whole = {0};
    char bytes[8192];
    (void)state;

    /* B17: an array that inflates to a thousand times what its header says. */
    blob_npy(&bomb, 1, NPY("<f4", "False", "(2, 2)"), NULL, 0);
    bomb.at = realloc(bomb.at, bomb.n + (64u << 20));
    assert_non_null(bomb.at);
    memset(bomb.at + bomb.n, 0, 64u << 20);
    bomb.n += 64u << 20;
    write_npz(&bomb, ZIP_CM_DEFLATE);
    refuse(scratch_path("z"), "model.npz", "layers.0.wq.weight");
    blob_free(&bomb);

    write_npz(NULL, ZIP_CM_DEFLATE);
    FILE *f = fopen(scratch_path("z/model.npz"), "rb");
    assert_non_null(f);
    blob_add(&whole, bytes, fread(bytes, 1, sizeof bytes, f));
    fclose(f);
    const size_t cut[] = {0, 1, 4, 30, whole.n / 2, whole.n - 22, whole.n - 1};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        printf("cut at %zu\n", cut[i]);
        scratch_write("z/model.npz", whole.at, cut[i]);
        refuse(scratch_path("z"), "model.npz", NULL);
    }
    for (size_t at = 60; at < 100; at += 13) { /* in the data of the first member */
        whole.at[at] ^= 0x55;
        scratch_write("z/model.npz", whole.at, whole.n);
        refuse(scratch_path("z"), "model.npz", NULL);
        whole.at[at] ^= 0x55;
    }
    blob_free(&whole);
}

/* --- configurations --------------------------------------------------------------------------- */

#define SIZES(heads, kv, dim)                                                                      \
    "{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":" heads ",\"num_kv_heads\":" kv         \
    ",\"head_dim\":" dim "}"

static void configurations_of_models(void **state)
{
    static const struct {
        const char *text, *word;
    } BAD[] = {
        {SIZES("0", "1", "2"), "num_heads"},
        {SIZES("-1", "1", "2"), "num_heads"},
        {SIZES("2147483648", "1", "2"), "num_heads"},
        {SIZES("1e0", "1", "2"), "num_heads"},
        {SIZES("\"1\"", "1", "2"), "num_heads"},
        {SIZES("1", "0", "2"), "num_kv_heads"},
        {SIZES("1", "1", "0"), "head_dim"},
        {SIZES("1", "1", "-2"), "head_dim"},
        {SIZES("6", "4", "2"), "4"},
        {SIZES("1", "1", "4294967297"), "4294967297"},
        {"{\"model_type\":\"attnd\",\"d_model\":8,\"num_heads\":3}", "3"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"scale\":\"big\"}", "scale"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"is_causal\":2}", "is_causal"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"window\":{\"left\":-2}}",
         "left"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"rope\":{\"theta\":10000}}",
         "style"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"rope\":{\"theta\":0,"
         "\"style\":\"half\"}}",
         "theta"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"rope\":{\"theta\":10000,"
         "\"style\":\"half\",\"dims\":3}}",
         "3"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"num_heads\":1}", "num_heads"},
        {"{\"model_type\":\"attnd\",\"d_model\":2,\"num_heads\":1,\"softcap\":-1}", "softcap"},
        {"{\"model_type\":7}", "model_type"},
        {"{\"model_type\":\"attnd\"", NULL},
        {"", NULL},
        {"[]", NULL},
        {"\xEF\xBB\xBF" GOOD_CONFIG, NULL},
    };
    blob b = {0};
    (void)state;

    blob_safetensors(&b, "{" Q "," KVO "}", 64);
    scratch_write("m/model.safetensors", b.at, b.n);
    blob_free(&b);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        printf("%s\n", BAD[i].text);
        scratch_write("m/config.json", BAD[i].text, strlen(BAD[i].text));
        refuse(scratch_path("m"), "config.json", BAD[i].word);
    }
    scratch_write("m/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    accept(scratch_path("m"));
}

static void folders_and_paths(void **state)
{
    (void)state;
    scratch_mkdir("empty");
    refuse(scratch_path("empty"), "empty", NULL);
    refuse(scratch_path("nothing"), "nothing", NULL);
    refuse("/dev/null", "/dev/null", NULL);
    scratch_mkdir("only");
    scratch_write("only/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    refuse(scratch_path("only"), "only", NULL);
    scratch_mkdir("nested");
    scratch_mkdir("nested/model.safetensors");
    scratch_write("nested/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    refuse(scratch_path("nested"), "nested", NULL);
    scratch_write("weights.bin", "123", 3);
    refuse(scratch_path("weights.bin"), "weights.bin", NULL);
}

/* --- B20: a file that changes under our hands ------------------------------------------------- */

enum { SIZE = 192, STARTS = 20 };

/* q and k are zero, so every row is the mean of all; v and o multiply it by `factor` each. */
static void write_scaled(const char *name, float factor)
{
    float *scaled = calloc((size_t)SIZE * SIZE, sizeof *scaled);
    float *zero = calloc((size_t)SIZE * SIZE, sizeof *zero);
    char *dir = st_path("%s/%s", scratch_dir(), name);
    assert_true(scaled != NULL && zero != NULL);
    for (size_t i = 0; i < SIZE; i++)
        scaled[i * SIZE + i] = factor;
    const st_native m = {.d_model = SIZE,
                         .num_heads = 1,
                         .num_kv_heads = 1,
                         .head_dim = SIZE,
                         .weight = {zero, zero, scaled, scaled}};
    st_write_native(dir, &m);
    free(dir);
    free(scaled);
    free(zero);
}

static atomic_bool swapping_;

static void *swap_files(void *arg)
{
    char *from[2] = {st_path("%s/one/model.safetensors", scratch_dir()),
                     st_path("%s/two/model.safetensors", scratch_dir())};
    char *next = st_path("%s/one/next", scratch_dir());
    char *target = st_path("%s/swapped.safetensors", scratch_dir());
    int *failures = arg;

    for (size_t i = 0; atomic_load(&swapping_); i++) {
        *failures += link(from[i % 2], next) != 0 || rename(next, target) != 0;
        usleep(200);
    }
    free(from[0]);
    free(from[1]);
    free(next);
    free(target);
    return NULL;
}

static float first_output(const char *model)
{
    float ones[2 * SIZE];
    test_body b;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    test_daemon *d = daemon_start(COMMAND("serve", "--model", model));
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", ones, DIMS(2, SIZE));
    test_reply r = daemon_post(d, "/v1/models/m/attention", body_text(&b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(2, SIZE));
    for (size_t i = 1; i < out.count; i++)
        assert_true(out.data[i] == out.data[0]);
    float first = out.data[0];
    answer_free(&out);
    json_decref(answer);
    reply_free(&r);
    body_free(&b);
    daemon_stop(d);
    return first;
}

static void B20_a_swapped_file_is_loaded_whole(void **state)
{
    char *model = st_path("m=%s/swapped.safetensors", scratch_dir());
    int failures = 0, ones = 0, twos = 0;
    pthread_t thread;
    (void)state;

    write_scaled("one", 1);
    write_scaled("two", 4);
    scratch_write("config.json", "", 0);
    char *config = st_path("%s/one/config.json", scratch_dir());
    assert_int_equal(rename(config, scratch_path("config.json")), 0);
    free(config);
    char *first = st_path("%s/two/model.safetensors", scratch_dir());
    assert_int_equal(link(first, scratch_path("swapped.safetensors")), 0);
    free(first);
    atomic_store(&swapping_, true);
    assert_int_equal(pthread_create(&thread, NULL, swap_files, &failures), 0);
    for (size_t i = 0; i < STARTS; i++) {
        float x = first_output(model);
        ones += x == 1;
        twos += x == 16; /* 4 times 4; half of either file would be 4 */
    }
    atomic_store(&swapping_, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(failures, 0);
    assert_int_equal(ones + twos, STARTS);
    free(model);
}

static int start(void **state)
{
    int rc = scratch_setup(state);
    scratch_mkdir("m");
    scratch_write("m/config.json", GOOD_CONFIG, strlen(GOOD_CONFIG));
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_safetensors),
        cmocka_unit_test(starts_of_safetensors),
        cmocka_unit_test(values_of_weights),
        cmocka_unit_test(indices_of_shards),
        cmocka_unit_test(npy_files_and_archives_of_them),
        cmocka_unit_test(broken_archives),
        cmocka_unit_test(configurations_of_models),
        cmocka_unit_test(folders_and_paths),
        cmocka_unit_test(B20_a_swapped_file_is_loaded_whole),
    };
    return cmocka_run_group_tests(tests, start, scratch_teardown);
}
