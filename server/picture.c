#include "server/picture.h"

#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "server/pieces.h"

enum {
    SCREEN = 1024, /* pixels of a side that a picture should not exceed */
    LARGEST = 32,  /* scale that is chosen for small maps */
    RANGES = 3
};

static const char *const range_names[RANGES] = {"all", "unit", "row"};
static const srv_png_range ranges[RANGES] = {SRV_PNG_ALL, SRV_PNG_UNIT, SRV_PNG_ROW};

static attn_status read_number(srv_query *q, const char *name, size_t *out, attn_error *err)
{
    const char *text = srv_query_take(q, name);
    char *end = NULL;

    if (text == NULL)
        return ATTN_OK;
    bool digits = text[0] >= '0' && text[0] <= '9' && strlen(text) < 10;
    *out = digits ? strtoul(text, &end, 10) : 0;
    if (!digits || *end != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s is \"%.40s\"; a whole number is due", name, text);
    return ATTN_OK;
}

static attn_status read_name(srv_query *q, const char *name, const char *const *names, size_t n,
                             size_t *out, attn_error *err)
{
    const char *text = srv_query_take(q, name);

    if (text == NULL)
        return ATTN_OK;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return ATTN_OK;
        }
    }
    const char *near = attn_nearest(text, names, n);
    return attn_fail(err, ATTN_EINVAL, "%s is \"%.40s\"; %s \"%s\"", name, text,
                     near != NULL ? "did you mean" : "one choice is",
                     near != NULL ? near : names[0]);
}

attn_status srv_picture_read(srv_picture *p, srv_query *query, attn_error *err)
{
    size_t colormap = SRV_VIRIDIS, range = 0;

    *p = (srv_picture){.head = SIZE_MAX};
    ATTN_TRY(read_number(query, "scale", &p->scale, err));
    ATTN_TRY(read_number(query, "head", &p->head, err));
    ATTN_TRY(read_name(query, "colormap", srv_colormap_names, SRV_COLORMAPS, &colormap, err));
    ATTN_TRY(read_name(query, "range", range_names, RANGES, &range, err));
    p->colormap = (srv_colormap)colormap;
    p->range = ranges[range];
    return ATTN_OK;
}

static void row(void *arg, size_t map, size_t i, float *out)
{
    const srv_request *r = arg;
    srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[0]);

    memcpy(out, r->results[SRV_MAPS].data + (map * z.rows + i) * z.width, z.width * sizeof(float));
}

attn_status srv_picture_new(srv_png **out, const srv_picture *p, const srv_request *r,
                            attn_error *err)
{
    srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[0]);
    size_t maps = r->batch * z.heads, across = maps > 0 ? srv_png_across(maps) : 1;
    size_t down = maps / across + (maps % across != 0);
    size_t wide = across * z.width, high = down * z.rows, side = wide > high ? wide : high;
    size_t scale = side > 0 && side < SCREEN ? SCREEN / side : 1;

    return srv_png_new(out,
                       &(srv_png_options){.maps = maps,
                                          .rows = z.rows,
                                          .columns = z.width,
                                          .scale = p->scale != 0     ? p->scale
                                                   : scale > LARGEST ? LARGEST
                                                                     : scale,
                                          .colormap = p->colormap,
                                          .range = p->range},
                       row, (void *)(uintptr_t)r, err);
}
