#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "server/png.h"
#include "tests/scratch.h"

/* --- a picture, read back by libpng ------------------------------------------------------------- */

typedef struct {
    png_uint_32 width, height;
    unsigned char *at; /* [height][width] places in the palette */
    png_color palette[256];
    png_byte alpha[256];
} picture;

typedef struct {
    const blob *file;
    size_t at;
} stream;

static void give(png_structp png, png_bytep out, size_t n)
{
    stream *s = png_get_io_ptr(png);

    assert_true(s->file->n - s->at >= n);
    memcpy(out, s->file->at + s->at, n);
    s->at += n;
}

static void read_png(picture *p, const blob *file)
{
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    stream s = {file, 0};
    png_colorp palette = NULL;
    png_bytep alpha = NULL;
    int colors = 0, alphas = 0;

    if (setjmp(png_jmpbuf(png)) != 0)
        fail_msg("libpng refuses the file");
    png_set_read_fn(png, &s, give);
    png_read_info(png, info);
    p->width = png_get_image_width(png, info);
    p->height = png_get_image_height(png, info);
    assert_int_equal(png_get_color_type(png, info), PNG_COLOR_TYPE_PALETTE);
    assert_int_equal(png_get_bit_depth(png, info), 8);
    assert_true(png_get_PLTE(png, info, &palette, &colors) != 0);
    assert_int_equal(colors, 256);
    memcpy(p->palette, palette, sizeof p->palette);
    assert_true(png_get_tRNS(png, info, &alpha, &alphas, NULL) != 0);
    memset(p->alpha, 255, sizeof p->alpha);
    memcpy(p->alpha, alpha, (size_t)alphas);
    p->at = malloc((size_t)p->width * p->height);
    assert_non_null(p->at);
    for (png_uint_32 y = 0; y < p->height; y++)
        png_read_row(png, p->at + (size_t)y * p->width, NULL);
    png_read_end(png, NULL);
    assert_int_equal(s.at, file->n); /* nothing is behind its end */
    png_destroy_read_struct(&png, &info, NULL);
}

static unsigned pixel(const picture *p, size_t x, size_t y)
{
    assert_true(x < p->width && y < p->height);
    return p->at[y * p->width + x];
}

/* --- maps --------------------------------------------------------------------------------------- */

typedef struct {
    const float *x; /* [maps][rows][columns] */
    size_t rows, columns;
    size_t asked;
} maps;

static void row(void *arg, size_t map, size_t i, float *out)
{
    maps *m = arg;

    assert_true(i < m->rows);
    memcpy(out, m->x + (map * m->rows + i) * m->columns, m->columns * sizeof *out);
    m->asked++;
}

static void draw(blob *file, const srv_png_options *o, const float *x, size_t piece)
{
    maps m = {x, o->rows, o->columns, 0};
    srv_png *p = NULL;
    attn_error err = {0};
    char *out = malloc(piece);
    ssize_t got = 1;

    assert_non_null(out);
    assert_int_equal(srv_png_new(&p, o, row, &m, &err), ATTN_OK);
    while (got != 0) {
        got = srv_png_read(p, out, piece);
        assert_in_range(got, 0, piece);
        blob_add(file, out, (size_t)got);
    }
    assert_int_equal(srv_png_read(p, out, piece), 0);
    assert_int_equal(m.asked, o->maps * o->rows * (o->range == SRV_PNG_ALL ? 2 : 1));
    srv_png_free(p);
    free(out);
}

static picture drawn(const srv_png_options *o, const float *x)
{
    picture p = {0};
    blob file = {0};

    draw(&file, o, x, 4096);
    read_png(&p, &file);
    blob_free(&file);
    return p;
}

static unsigned level(double part)
{
    return (unsigned)(SRV_PNG_FIRST + lround(part * (SRV_PNG_LEVELS - 1)));
}

static void every_cell_is_a_square_of_its_color(void **state)
{
    const float x[] = {0.0f, 0.25f, 1.0f, 0.5f, 1.5f, -1.0f}; /* what is beyond 0..1 is cut there */
    const double want[] = {0, 0.25, 1, 0.5, 1, 0};

    (void)state;
    for (size_t scale = 1; scale < 12; scale += 5) {
        const srv_png_options o = {1, 2, 3, scale, SRV_VIRIDIS, SRV_PNG_UNIT};
        picture p = drawn(&o, x);
        assert_int_equal(p.width, 3 * scale);
        assert_int_equal(p.height, 2 * scale);
        for (size_t v = 0; v < p.height; v++) {
            for (size_t u = 0; u < p.width; u++)
                assert_int_equal(pixel(&p, u, v), level(want[v / scale * 3 + u / scale]));
        }
        free(p.at);
    }
}

static void rows_are_stretched_each_for_itself(void **state)
{
    const float x[] = {0.1f,  0.2f,      0.0f, /* 0 to 0.2 */
                       0.5f,  0.25f,     0.5f, /* from 0, though the least is 0.25 */
                       -1.0f, 0.0f,      1.0f, /* from -1 */
                       0.0f,  0.0f,      0.0f, /* a row without any key */
                       -2.0f, -INFINITY, NAN};
    const double want[] = {0.5, 1, 0, 1, 0.5, 1, 0, 0.5, 1, 0, 0, 0, 0};
    const srv_png_options o = {1, 5, 3, 1, SRV_GREYS, SRV_PNG_ROW};

    (void)state;
    picture p = drawn(&o, x);
    for (size_t i = 0; i < 13; i++)
        assert_int_equal(pixel(&p, i % 3, i / 3), level(want[i]));
    assert_int_equal(pixel(&p, 1, 4), SRV_PNG_NOTHING);
    assert_int_equal(pixel(&p, 2, 4), SRV_PNG_NOTHING);
    free(p.at);
}

static void all_maps_share_one_range(void **state)
{
    const float x[] = {1, 2, -INFINITY, 4, /* and */ 8, -2, 0, 3};
    const double want[] = {0.3, 0.4, -1, 0.6, 1, 0, 0.2, 0.5};
    const srv_png_options o = {2, 2, 2, 1, SRV_MAGMA, SRV_PNG_ALL};

    (void)state;
    picture p = drawn(&o, x);
    for (size_t i = 0; i < 8; i++) {
        size_t left = i / 4 * (2 + SRV_PNG_GAP);
        assert_int_equal(pixel(&p, left + i % 2, i % 4 / 2),
                         want[i] < 0 ? SRV_PNG_NOTHING : level(want[i]));
    }
    free(p.at);
}

static void numbers_at_the_ends_of_float_are_drawn(void **state)
{
    const float x[] = {-3.4028235e38f, 3.4028235e38f, 0.0f, 1e-45f};
    const srv_png_options o = {1, 1, 4, 1, SRV_GREYS, SRV_PNG_ALL};

    (void)state;
    picture p = drawn(&o, x);
    assert_int_equal(pixel(&p, 0, 0), level(0));
    assert_int_equal(pixel(&p, 1, 0), level(1));
    assert_int_equal(pixel(&p, 2, 0), level(0.5));
    free(p.at);
}

static void maps_stand_in_a_grid_with_gaps(void **state)
{
    enum { MAPS = 5, ROWS = 2, COLUMNS = 3, SCALE = 2 };
    const srv_png_options o = {MAPS, ROWS, COLUMNS, SCALE, SRV_CIVIDIS, SRV_PNG_UNIT};
    const size_t wide = COLUMNS * SCALE + SRV_PNG_GAP, tall = ROWS * SCALE + SRV_PNG_GAP;
    float x[MAPS * ROWS * COLUMNS];
    size_t cells = 0;

    (void)state;
    for (size_t i = 0; i < MAPS * ROWS * COLUMNS; i++)
        x[i] = (float)i / 32;
    picture p = drawn(&o, x);
    assert_int_equal(p.width, 3 * wide - SRV_PNG_GAP);
    assert_int_equal(p.height, 2 * tall - SRV_PNG_GAP);
    for (size_t v = 0; v < p.height; v++) {
        for (size_t u = 0; u < p.width; u++) {
            size_t map = v / tall * 3 + u / wide, i = v % tall / SCALE, j = u % wide / SCALE;
            bool inside = map < MAPS && i < ROWS && j < COLUMNS;
            cells += inside;
            assert_int_equal(pixel(&p, u, v),
                             inside ? level((map * 6 + i * 3 + j) / 32.0) : SRV_PNG_BETWEEN);
        }
    }
    assert_int_equal(cells, sizeof x / sizeof *x * SCALE * SCALE);
    free(p.at);
}

static void a_grid_is_as_wide_as_it_is_high(void **state)
{
    static const size_t want[] = {1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4};

    (void)state;
    for (size_t n = 1; n < sizeof want / sizeof *want; n++)
        assert_int_equal(srv_png_across(n), want[n]);
    assert_int_equal(srv_png_across(144), 12);
    assert_int_equal(srv_png_across(145), 13);
}

static void the_bytes_do_not_depend_on_how_they_are_read(void **state)
{
    enum { N = 150 };
    static float x[4 * N * N];
    const srv_png_options o = {4, N, N, 3, SRV_VIRIDIS, SRV_PNG_ROW};
    uint32_t r = 1;
    blob whole = {0};

    (void)state;
    for (size_t i = 0; i < 4 * N * N; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = (float)(r >> 8) / 16777216.0f;
    }
    draw(&whole, &o, x, 1 << 20);
    assert_true(whole.n > 20000);
    for (size_t piece = 1; piece < 100000; piece = piece * 9 + 5) {
        blob file = {0};
        draw(&file, &o, x, piece);
        assert_int_equal(file.n, whole.n);
        assert_memory_equal(file.at, whole.at, whole.n);
        blob_free(&file);
    }
    blob_free(&whole);
}

static void what_cannot_be_drawn_is_refused(void **state)
{
    static const struct {
        srv_png_options o;
        const char *says;
    } bad[] = {{{1, 0, 5, 1, 0, 0}, "nothing to draw"},
               {{1, 5, 0, 1, 0, 0}, "nothing to draw"},
               {{0, 5, 5, 1, 0, 0}, "nothing to draw"},
               {{1, 5, 5, 0, 0, 0}, "it can have 1 to 256"},
               {{1, 5, 5, 257, 0, 0}, "it can have 1 to 256"},
               {{1, 16385, 1, 1, 0, 0}, "larger than 16384 pixels"},
               {{1, 1, 16385, 1, 0, 0}, "larger than 16384 pixels"},
               {{1, 8192, 2, 3, 0, 0}, "larger than 16384 pixels"},
               {{4, 8192, 1, 1, 0, 0}, "larger than 16384 pixels"},
               {{SIZE_MAX, 1, 1, 1, 0, 0}, "larger than 16384 pixels"},
               {{1, SIZE_MAX, SIZE_MAX, 256, 0, 0}, "larger than 16384 pixels"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        attn_error err = {0};
        srv_png *p = NULL;
        assert_int_equal(srv_png_new(&p, &bad[i].o, row, NULL, &err), ATTN_ESHAPE);
        assert_null(p);
        if (strstr(err.text, bad[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].says);
    }
    const srv_png_options most = {1, 1, 16384, 1, SRV_GREYS, SRV_PNG_UNIT};
    srv_png *p = NULL;
    assert_int_equal(srv_png_new(&p, &most, row, NULL, NULL), ATTN_OK);
    srv_png_free(p);
    srv_png_free(NULL);
}

/* CIE 1976 lightness, 0 to 100, of an sRGB colour. */
static double lightness(const unsigned char *rgb)
{
    static const double weight[] = {0.2126, 0.7152, 0.0722};
    double y = 0;

    for (int c = 0; c < 3; c++) {
        double s = rgb[c] / 255.0;
        y += weight[c] * (s <= 0.04045 ? s / 12.92 : pow((s + 0.055) / 1.055, 2.4));
    }
    return y > 0.008856 ? 116 * cbrt(y) - 16 : 903.3 * y;
}

static void more_is_always_lighter(void **state)
{
    (void)state;
    for (srv_colormap m = SRV_VIRIDIS; m < SRV_COLORMAPS; m++) {
        unsigned char rgb[256][3];
        srv_png_palette(m, rgb);
        double first = lightness(rgb[SRV_PNG_FIRST]), last = lightness(rgb[255]);
        assert_true(first < 20 && last > 88);
        for (int i = SRV_PNG_FIRST + 1; i < 256; i++) {
            double step = lightness(rgb[i]) - lightness(rgb[i - 1]);
            if (step < -0.2 || step > 1.1)
                fail_msg("%s: step %.2f at %d", srv_colormap_names[m], step, i);
        }
        /* As even as the eye wants it: a quarter of the way is about a quarter of the lightness. */
        for (int q = 1; q < 4; q++) {
            double at = lightness(rgb[SRV_PNG_FIRST + q * (SRV_PNG_LEVELS - 1) / 4]);
            double even = first + (last - first) * q / 4;
            if (fabs(at - even) > 6)
                fail_msg("%s: lightness %.1f at quarter %d, %.1f is due", srv_colormap_names[m], at,
                         q, even);
        }
    }
}

static void palettes_begin_and_end_as_published(void **state)
{
    const srv_png_options o = {1, 1, 1, 1, SRV_VIRIDIS, SRV_PNG_UNIT};
    const float x = 0;
    unsigned char rgb[256][3];

    (void)state;
    srv_png_palette(SRV_VIRIDIS, rgb);
    assert_memory_equal(rgb[SRV_PNG_FIRST], "\x44\x01\x54", 3);
    assert_memory_equal(rgb[255], "\xfd\xe7\x25", 3);
    picture p = drawn(&o, &x);
    for (int i = 0; i < 256; i++) {
        const unsigned char in_file[] = {p.palette[i].red, p.palette[i].green, p.palette[i].blue};
        assert_memory_equal(in_file, rgb[i], 3);
    }
    assert_int_equal(p.alpha[SRV_PNG_BETWEEN], 0);
    assert_int_equal(p.alpha[SRV_PNG_FIRST], 255);
    free(p.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_a_square_of_its_color),
        cmocka_unit_test(rows_are_stretched_each_for_itself),
        cmocka_unit_test(all_maps_share_one_range),
        cmocka_unit_test(numbers_at_the_ends_of_float_are_drawn),
        cmocka_unit_test(maps_stand_in_a_grid_with_gaps),
        cmocka_unit_test(a_grid_is_as_wide_as_it_is_high),
        cmocka_unit_test(the_bytes_do_not_depend_on_how_they_are_read),
        cmocka_unit_test(what_cannot_be_drawn_is_refused),
        cmocka_unit_test(more_is_always_lighter),
        cmocka_unit_test(palettes_begin_and_end_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
