/* assets.h: the files that the daemon carries within itself, and the routes that give them out: the
 * OpenAPI document, the page of it, the viewer. */
#ifndef SRV_ASSETS_H
#define SRV_ASSETS_H

#include <stddef.h>

#include "server/http.h"

typedef struct {
    const char *begin, *end; /* a NUL stands at `end` */
    const char *tag;         /* ETag, quotes included */
} srv_asset_bytes;

typedef struct {
    const char *path; /* at which it is served: "/", "/docs/page.js", "/openapi.json" */
    const char *file; /* where it stood when the daemon was built */
    srv_asset_bytes plain, packed; /* as it stood there, and after gzip */
} srv_asset;

/* Made by the Makefile with server/embed.sh; the last one has no path. */
extern const srv_asset srv_assets[];

const srv_asset *srv_asset_find(const char *path); /* NULL = there is none */

/* By the end of its file's name; NULL = we do not know what it is. */
const char *srv_asset_type(const srv_asset *a);

/* GET /openapi.json, /docs and /docs/{file}. */
extern const srv_route srv_docs_routes[];
extern const size_t srv_num_docs_routes;

/* GET / and /ui/{file}. */
extern const srv_route srv_ui_routes[];
extern const size_t srv_num_ui_routes;

#endif
