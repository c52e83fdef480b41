#include "server/png.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

const char *const srv_colormap_names[SRV_COLORMAPS] = {"viridis", "cividis", "magma", "greys"};

struct srv_png {
    srv_png_options o;
    srv_png_row *row;
    void *row_arg;
    size_t across, down, width, height; /* of the grid in maps, of the picture in pixels */
    size_t line;                        /* the next one */
    float low, high;                    /* SRV_PNG_ALL */
    float *numbers;                     /* [columns] */
    unsigned char *pixels;              /* [width] */

    png_structp png;
    png_infop info;
    jmp_buf failed; /* where libpng's errors go; all of them are a lack of memory */
    bool begun, ended;

    unsigned char *out; /* what libpng has written and nobody has read */
    size_t begin, end, room;
};

/* --- colours ---------------------------------------------------------------------------------- */

/* Ten colours of each map, at equal distances, as matplotlib publishes them (CC0); what lies between is
 * interpolated. Their lightness rises evenly. */
enum { ANCHORS = 10 };
static const unsigned anchors[SRV_COLORMAPS][ANCHORS] = {
    [SRV_VIRIDIS] = {0x440154, 0x482878, 0x3e4a89, 0x31688e, 0x26828e, 0x1f9e89, 0x35b779, 0x6ece58,
                     0xb5de2b, 0xfde725},
    [SRV_CIVIDIS] = {0x00224e, 0x123570, 0x3b496c, 0x575d6d, 0x707173, 0x8a8678, 0xa59c74, 0xc3b369,
                     0xe1cc55, 0xfee838},
    [SRV_MAGMA] = {0x000004, 0x180f3d, 0x440f76, 0x721f81, 0x9e2f7f, 0xcd4071, 0xf1605d, 0xfd9668,
                   0xfeca8d, 0xfcfdbf},
    [SRV_GREYS] = {0x000000, 0x1c1c1c, 0x393939, 0x555555, 0x717171, 0x8e8e8e, 0xaaaaaa, 0xc6c6c6,
                   0xe3e3e3, 0xffffff},
};

static const unsigned char nothing_rgb[3] = {127, 127, 127};
enum { NOTHING_ALPHA = 64 };

void srv_png_palette(srv_colormap map, unsigned char rgb[256][3])
{
    memset(rgb[SRV_PNG_BETWEEN], 0, 3);
    memcpy(rgb[SRV_PNG_NOTHING], nothing_rgb, 3);
    for (int i = 0; i < SRV_PNG_LEVELS; i++) {
        int place = i * (ANCHORS - 1), k = place / (SRV_PNG_LEVELS - 1);
        k = k < ANCHORS - 1 ? k : ANCHORS - 2;
        int part = place - k * (SRV_PNG_LEVELS - 1); /* of the way to the next anchor */
        for (int c = 0; c < 3; c++) {
            int from = (int)(anchors[map][k] >> (16 - 8 * c) & 0xff);
            int to = (int)(anchors[map][k + 1] >> (16 - 8 * c) & 0xff);
            double x = from + (double)(to - from) * part / (SRV_PNG_LEVELS - 1);
            rgb[SRV_PNG_FIRST + i][c] = (unsigned char)lround(x);
        }
    }
}

/* --- libpng's calls --------------------------------------------------------------------------- */

static void on_error(png_structp png, png_const_charp message)
{
    srv_png *p = png_get_error_ptr(png);
    (void)message;
    longjmp(p->failed, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_write(png_structp png, png_bytep bytes, size_t n)
{
    srv_png *p = png_get_io_ptr(png);

    if (p->begin == p->end)
        p->begin = p->end = 0;
    if (p->room - p->end < n) {
        size_t room = p->end + n + 4096;
        unsigned char *more = realloc(p->out, room);
        if (more == NULL)
            png_error(png, "no memory");
        p->out = more;
        p->room = room;
    }
    memcpy(p->out + p->end, bytes, n);
    p->end += n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

/* --- numbers to colours ----------------------------------------------------------------------- */

/* Widens [*low, *high] by the finite ones of n numbers. */
static void widen(const float *x, size_t n, float *low, float *high)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            continue;
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

static unsigned char color(float x, float low, float high)
{
    if (!isfinite(x))
        return SRV_PNG_NOTHING;
    /* In double: the distance of two floats may be beyond float. */
    double part = high > low ? ((double)x - low) / ((double)high - low) : 0;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return (unsigned char)(SRV_PNG_FIRST + lround(part * (SRV_PNG_LEVELS - 1)));
}

/* The pixels of row i of a map. */
static void draw_row(srv_png *p, size_t map, size_t i, unsigned char *pixels)
{
    float low = 0.0F, high = 1.0F;

    p->row(p->row_arg, map, i, p->numbers);
    if (p->o.range == SRV_PNG_ALL) {
        low = p->low;
        high = p->high;
    } else if (p->o.range == SRV_PNG_ROW) {
        high = -INFINITY;
        widen(p->numbers, p->o.columns, &low, &high);
    }
    for (size_t j = 0; j < p->o.columns; j++, pixels += p->o.scale)
        memset(pixels, color(p->numbers[j], low, high), p->o.scale);
}

/* The pixels of the line that is next, where they differ from those of the line before. */
static void draw_line(srv_png *p)
{
    size_t tall = p->o.rows * p->o.scale, wide = p->o.columns * p->o.scale;
    size_t band = p->line / (tall + SRV_PNG_GAP), y = p->line % (tall + SRV_PNG_GAP);

    if (y >= tall) {
        memset(p->pixels, SRV_PNG_BETWEEN, p->width);
    } else if (y % p->o.scale == 0) {
        memset(p->pixels, SRV_PNG_BETWEEN, p->width);
        for (size_t k = 0; k < p->across && band * p->across + k < p->o.maps; k++)
            draw_row(p, band * p->across + k, y / p->o.scale, p->pixels + k * (wide + SRV_PNG_GAP));
    }
}

/* --- the file --------------------------------------------------------------------------------- */

static void find_range(srv_png *p)
{
    p->high = -INFINITY;
    for (size_t map = 0; map < p->o.maps; map++) {
        for (size_t i = 0; i < p->o.rows; i++) {
            p->row(p->row_arg, map, i, p->numbers);
            widen(p->numbers, p->o.columns, &p->low, &p->high);
        }
    }
}

static void write_header(srv_png *p)
{
    unsigned char rgb[256][3];
    png_color palette[256];
    png_byte alpha[] = {[SRV_PNG_BETWEEN] = 0, [SRV_PNG_NOTHING] = NOTHING_ALPHA};

    srv_png_palette(p->o.colormap, rgb);
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){rgb[i][0], rgb[i][1], rgb[i][2]};
    png_set_write_fn(p->png, p, on_write, on_flush);
    png_set_IHDR(p->png, p->info, (png_uint_32)p->width, (png_uint_32)p->height, 8,
                 PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_PLTE(p->png, p->info, palette, 256);
    png_set_tRNS(p->png, p->info, alpha, sizeof alpha, NULL);
    png_write_info(p->png, p->info);
}

/* Goes on until there is something to read. False: no memory. */
static bool advance(srv_png *p)
{
    if (setjmp(p->failed) != 0)
        return false;
    while (p->begin == p->end && !p->ended) {
        if (!p->begun) {
            if (p->o.range == SRV_PNG_ALL)
                find_range(p);
            write_header(p);
            p->begun = true;
        } else if (p->line < p->height) {
            draw_line(p);
            png_write_row(p->png, p->pixels);
            p->line++;
        } else {
            png_write_end(p->png, p->info);
            p->ended = true;
        }
    }
    return true;
}

ssize_t srv_png_read(srv_png *p, char *out, size_t n)
{
    if (!advance(p))
        return -1;
    size_t k = p->end - p->begin < n ? p->end - p->begin : n;
    if (k > 0)
        memcpy(out, p->out + p->begin, k);
    p->begin += k;
    return (ssize_t)k;
}

size_t srv_png_across(size_t maps)
{
    size_t n = 1;

    while (n * n < maps)
        n++;
    return n;
}

/* The sizes of the picture, once they are known to be small. */
static attn_status measure(srv_png *p, attn_error *err)
{
    const srv_png_options *o = &p->o;

    if (o->maps == 0 || o->rows == 0 || o->columns == 0)
        return attn_fail(err, ATTN_ESHAPE, "a map of %zu rows and %zu columns has nothing to draw",
                         o->rows, o->columns);
    if (o->scale < 1 || o->scale > SRV_PNG_SCALE)
        return attn_fail(err, ATTN_ESHAPE, "a cell of %zu pixels; it can have 1 to %d", o->scale,
                         SRV_PNG_SCALE);
    if (o->maps <= SRV_PNG_SIDE && o->rows <= SRV_PNG_SIDE && o->columns <= SRV_PNG_SIDE) {
        p->across = srv_png_across(o->maps);
        p->down = (o->maps + p->across - 1) / p->across;
        p->width = p->across * (o->columns * o->scale + SRV_PNG_GAP) - SRV_PNG_GAP;
        p->height = p->down * (o->rows * o->scale + SRV_PNG_GAP) - SRV_PNG_GAP;
        if (p->width <= SRV_PNG_SIDE && p->height <= SRV_PNG_SIDE)
            return ATTN_OK;
    }
    return attn_fail(
        err, ATTN_ESHAPE,
        "a picture of %zu maps of %zu by %zu cells of %zu pixels is larger than %d pixels; "
        "take fewer heads, queries and keys, or smaller cells",
        o->maps, o->rows, o->columns, o->scale, SRV_PNG_SIDE);
}

attn_status srv_png_new(srv_png **out, const srv_png_options *o, srv_png_row *row, void *row_arg,
                        attn_error *err)
{
    srv_png *p = calloc(1, sizeof *p);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (p == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a picture");
    p->o = *o;
    p->row = row;
    p->row_arg = row_arg;
    rc = measure(p, err);
    if (rc == ATTN_OK) {
        p->numbers = calloc(o->columns, sizeof *p->numbers);
        p->pixels = calloc(p->width, 1);
        if (setjmp(p->failed) == 0) {
            p->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, p, on_error, on_warning);
            p->info = p->png != NULL ? png_create_info_struct(p->png) : NULL;
        }
        if (p->numbers == NULL || p->pixels == NULL || p->info == NULL)
            rc = attn_fail(err, ATTN_ENOMEM, "no memory for a picture of %zu by %zu pixels",
                           p->width, p->height);
    }
    if (rc != ATTN_OK) {
        srv_png_free(p);
        return rc;
    }
    *out = p;
    return ATTN_OK;
}

void srv_png_free(srv_png *p)
{
    if (p == NULL)
        return;
    png_destroy_write_struct(&p->png, &p->info); /* takes NULL */
    free(p->out);
    free(p->numbers);
    free(p->pixels);
    free(p);
}
