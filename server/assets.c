#include "server/assets.h"

#include <stdio.h>
#include <string.h>

#include "server/accept.h"

/* Nothing from elsewhere, nothing inline. The viewer shows pictures that it has made (blob:). */
static const char PAGE_POLICY[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                                  "connect-src 'self'; img-src 'self' data: blob:; "
                                  "base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const srv_asset *srv_asset_find(const char *path)
{
    for (const srv_asset *a = srv_assets; a->path != NULL; a++) {
        if (strcmp(a->path, path) == 0)
            return a;
    }
    return NULL;
}

const char *srv_asset_type(const srv_asset *a)
{
    static const struct {
        const char *ending, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".json", "application/json"},
                 {".svg", "image/svg+xml"},
                 {".png", "image/png"}};
    const char *ending = strrchr(a->file, '.');

    for (size_t i = 0; ending != NULL && i < sizeof types / sizeof *types; i++) {
        if (strcmp(ending, types[i].ending) == 0)
            return types[i].type;
    }
    return NULL;
}

/* Whether If-None-Match names the tag: RFC 9110, section 13.1.2, a weak comparison. No tag of ours
 * can be part of another one: all are of the same length, quotes included. */
static bool client_has(const srv_exchange *x, const char *tag)
{
    const char *list = srv_http_header(x, "If-None-Match");
    return list != NULL && (strcmp(list, "*") == 0 || strstr(list, tag) != NULL);
}

/* The copy for this client; gzip is made at build and costs nothing here. */
static const srv_asset_bytes *copy_for(const srv_exchange *x, const srv_asset *a)
{
    const char *line = srv_http_header(x, "Accept-Encoding");
    srv_codings c = srv_accept_codings((srv_lines){&line, line != NULL ? 1 : 0});
    srv_coding coding = SRV_IDENTITY;

    return srv_choose_coding(&c, 1U << SRV_GZIP, false, &coding) && coding == SRV_GZIP ? &a->packed
                                                                                       : &a->plain;
}

/* NULL: there is no such file. */
static void reply(srv_exchange *x, const srv_asset *a)
{
    attn_error err = {0};
    const char *type = a != NULL ? srv_asset_type(a) : NULL;

    if (type == NULL) {
        (void)attn_fail(&err, ATTN_ENOTFOUND, "there is nothing at this path");
        srv_http_reply_problem(x, &err, "not_found");
        return;
    }
    const srv_asset_bytes *b = copy_for(x, a);
    srv_http_set_header(x, "ETag", b->tag);
    srv_http_set_header(x, "Vary", "Accept-Encoding");
    if (b == &a->packed)
        srv_http_set_header(x, "Content-Encoding", "gzip");
    srv_http_set_header(x, "Cache-Control", "no-cache"); /* keep it, but ask whether it changed */
    if (strncmp(type, "text/html", 9) == 0) {
        srv_http_set_header(x, "Content-Security-Policy", PAGE_POLICY);
        srv_http_set_header(x, "Referrer-Policy", "no-referrer");
    }
    bool has = client_has(x, b->tag);
    srv_http_reply_text(x, has ? 304 : 200, has ? NULL : type, b->begin,
                        (size_t)(b->end - b->begin));
}

/* Pages stand in the table by other paths than their files' names, so none is found here. */
static void get_file(srv_exchange *x, const char *folder)
{
    char path[128];
    bool fits =
        snprintf(path, sizeof path, "%s%s", folder, srv_http_param(x, "file")) < (int)sizeof path;
    reply(x, fits ? srv_asset_find(path) : NULL);
}

static void get_openapi(srv_exchange *x)
{
    reply(x, srv_asset_find("/openapi.json"));
}

static void get_docs(srv_exchange *x)
{
    reply(x, srv_asset_find("/docs"));
}

static void get_docs_file(srv_exchange *x)
{
    get_file(x, "/docs/");
}

static void get_viewer(srv_exchange *x)
{
    reply(x, srv_asset_find("/"));
}

static void get_viewer_file(srv_exchange *x)
{
    /* Other origins' pages may show maps with our element, whose modules are all in here. */
    srv_http_set_header(x, "Access-Control-Allow-Origin", "*");
    get_file(x, "/ui/");
}

const srv_route srv_docs_routes[] = {
    {.method = "GET", .path = "/openapi.json", .finish = get_openapi},
    {.method = "GET", .path = "/docs", .finish = get_docs},
    {.method = "GET", .path = "/docs/{file}", .finish = get_docs_file},
};
const size_t srv_num_docs_routes = sizeof srv_docs_routes / sizeof *srv_docs_routes;

const srv_route srv_ui_routes[] = {
    {.method = "GET", .path = "/", .finish = get_viewer},
    {.method = "GET", .path = "/ui/{file}", .finish = get_viewer_file},
};
const size_t srv_num_ui_routes = sizeof srv_ui_routes / sizeof *srv_ui_routes;
