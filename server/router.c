#include "server/http_private.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 0;
}

/* Decodes path[0..n), whose escapes were checked, once. Returns the length, out is terminated. */
static size_t decode(char *out, const char *path, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (path[i] == '%' && i + 2 < n) {
            out[used++] = (char)(hex_value(path[i + 1]) * 16 + hex_value(path[i + 2]));
            i += 2;
        } else {
            out[used++] = path[i];
        }
    }
    out[used] = '\0';
    return used;
}

/* Compares segment by segment; the parameters found are left in x. */
static bool match(srv_exchange *x, const char *pattern)
{
    const char *path = x->path;
    char *out = x->decoded;
    x->num_params = 0;
    while (*pattern == '/' && *path == '/') {
        size_t want = strcspn(++pattern, "/");
        size_t have = strcspn(++path, "/?");
        size_t n = decode(out, path, have);
        if (pattern[0] == '{') {
            if (n == 0 || x->num_params == SRV_MAX_PARAMS)
                return false;
            x->param[x->num_params++] =
                (srv_param){.name = pattern + 1, .name_length = want - 2, .value = out};
        } else if (n != want || memcmp(out, pattern, n) != 0) {
            return false;
        }
        out += n + 1; /* no longer than the segment and its slash */
        pattern += want;
        path += have;
    }
    return *pattern == '\0' && (*path == '\0' || *path == '?');
}

unsigned srv_route_find(srv_exchange *x, const srv_route *routes, size_t n, const char *method)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    unsigned allowed = 0;
    for (size_t i = 0; i < n && x->route == NULL; i++) {
        if (!match(x, routes[i].path))
            continue;
        allowed |= strcmp(routes[i].method, "GET") == 0 ? SRV_ALLOW_GET : SRV_ALLOW_POST;
        if (strcmp(routes[i].method, wanted) == 0)
            x->route = &routes[i];
    }
    return allowed;
}
