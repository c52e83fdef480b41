/* png.h: attention maps as a picture: one map, or a grid of them, a square of pixels for each cell. */
#ifndef SRV_PNG_H
#define SRV_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/status.h"

#define SRV_PNG_TYPE "image/png"

/* Perceptual, readable for the colour-blind, brighter = more. */
typedef enum { SRV_VIRIDIS, SRV_CIVIDIS, SRV_MAGMA, SRV_GREYS, SRV_COLORMAPS } srv_colormap;
extern const char *const srv_colormap_names[SRV_COLORMAPS]; /* "viridis", ... */

enum {
    SRV_PNG_SIDE = 16384, /* most pixels of a side */
    SRV_PNG_SCALE = 256,  /* most pixels of a cell's side */
    SRV_PNG_GAP = 4,      /* transparent pixels between maps */

    /* The picture has a palette: what is between the maps, what is not finite, and the map's colours. */
    SRV_PNG_BETWEEN = 0,
    SRV_PNG_NOTHING = 1,
    SRV_PNG_FIRST = 2,
    SRV_PNG_LEVELS = 254
};

/* What one takes at most, libpng and zlib included; for the budget. */
#define SRV_PNG_BYTES ((size_t)640 << 10)

/* Colours of the palette's entries: red, green and blue. */
void srv_png_palette(srv_colormap map, unsigned char rgb[256][3]);

/* Which numbers have the first and the last colour. */
typedef enum {
    SRV_PNG_UNIT, /* 0 and 1, everywhere: for probabilities */
    SRV_PNG_ALL, /* the least (or 0, if all are above) and the greatest of all maps: these are read twice */
    SRV_PNG_ROW /* the same of each row for itself */
} srv_png_range;

typedef struct {
    size_t maps, rows, columns; /* each map is [rows][columns] */
    size_t scale;               /* pixels of a cell's side, 1 to SRV_PNG_SCALE */
    srv_colormap colormap;
    srv_png_range range;
} srv_png_options;

/* row[columns] = row `i` of map `map`. */
typedef void srv_png_row(void *arg, size_t map, size_t i, float *row);

typedef struct srv_png srv_png;

/* ATTN_ESHAPE: an empty map, a scale out of range, a picture larger than SRV_PNG_SIDE; ATTN_ENOMEM. */
ATTN_NODISCARD attn_status srv_png_new(srv_png **out, const srv_png_options *o, srv_png_row *row,
                                       void *row_arg, attn_error *err);
void srv_png_free(srv_png *p); /* takes NULL */

/* The next bytes of the file, at most n; 0 = that was all; negative: no memory. Rows are asked for from the top to
 * the bottom, those of maps side by side in turn. The bytes do not depend on how they are cut. */
ssize_t srv_png_read(srv_png *p, char *out, size_t n);

/* Maps stand in the order of reading, this many side by side. */
size_t srv_png_across(size_t maps);

#endif
