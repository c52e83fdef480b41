/* picture.h: the maps of an answered request as a picture, drawn as the query of its target says. */
#ifndef SRV_PICTURE_H
#define SRV_PICTURE_H

#include "server/png.h"
#include "server/query.h"
#include "server/request.h"

typedef struct {
    size_t scale; /* pixels of a cell's side; 0 = as fits a screen */
    srv_colormap colormap;
    srv_png_range range;
    size_t head; /* SIZE_MAX = all that the body chooses */
} srv_picture;

/* Takes "scale", "colormap", "range" ("all", "unit", "row") and "head" out of the query. ATTN_EINVAL. */
ATTN_NODISCARD attn_status srv_picture_read(srv_picture *p, srv_query *query, attn_error *err);

/* All maps of r, which is planned; they must be computed before the first byte is read. ATTN_ESHAPE as by
 * srv_png_new(). */
ATTN_NODISCARD attn_status srv_picture_new(srv_png **out, const srv_picture *p,
                                           const srv_request *r, attn_error *err);

#endif
