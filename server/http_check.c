#include "server/http_private.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

const char *srv_header_find(const srv_exchange *x, const char *name, size_t *count)
{
    const char *value = NULL;
    size_t n = 0;
    for (size_t i = 0; i < x->num_headers; i++) {
        if (strcasecmp(x->header[i].name, name) != 0)
            continue;
        value = n == 0 ? x->header[i].value : value;
        n++;
    }
    if (count != NULL)
        *count = n;
    return value;
}

srv_field_lines srv_header_lines(const srv_exchange *x, const char *name)
{
    srv_field_lines lines = {.n = 0};

    for (size_t i = 0; i < x->num_headers && lines.n < SRV_FIELD_LINES; i++) {
        if (strcasecmp(x->header[i].name, name) == 0)
            lines.line[lines.n++] = x->header[i].value;
    }
    return lines;
}

/* --- request id --- */

static bool is_request_id(const char *s)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(s, allowed);
    return n > 0 && s[n] == '\0' && n < SRV_REQUEST_ID_BYTES;
}

/* RFC 9562, section 5.7: 48 bits of Unix milliseconds, version, variant, the rest random. */
static void uuid7(char out[SRV_REQUEST_ID_BYTES])
{
    unsigned char b[16] = {0};
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    uint64_t ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    (void)!getrandom(b, sizeof b, 0); /* does not fail for so few bytes */
    for (int i = 0; i < 6; i++)
        b[i] = (unsigned char)(ms >> (8 * (5 - i)));
    b[6] = (unsigned char)(0x70 | (b[6] & 0x0F));
    b[8] = (unsigned char)(0x80 | (b[8] & 0x3F));
    (void)snprintf(out, SRV_REQUEST_ID_BYTES,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
}

void srv_request_id(char out[SRV_REQUEST_ID_BYTES], const char *from_client)
{
    if (from_client != NULL && is_request_id(from_client))
        memcpy(out, from_client, strlen(from_client) + 1);
    else
        uuid7(out);
}

/* --- where the request ends: what two readers could understand differently is refused --- */

static void break_off(srv_exchange *x)
{
    x->broken = true;
    x->reply.close = true;
}

static bool is_token(const char *s)
{
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        if (!isalnum((unsigned char)*s) && strchr("!#$%&'*+-.^_`|~", *s) == NULL)
            return false;
    }
    return true;
}

static bool has_control(const char *s)
{
    for (; *s != '\0'; s++) {
        if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7F)
            return true;
    }
    return false;
}

static bool read_content_length(srv_exchange *x, const char *text)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    x->content_length = value;
    x->has_body = value > 0;
    return true;
}

static void check_framing(srv_exchange *x)
{
    size_t lengths = 0, codings = 0, hosts = 0;
    const char *length = srv_header_find(x, "Content-Length", &lengths);
    const char *coding = srv_header_find(x, "Transfer-Encoding", &codings);
    (void)srv_header_find(x, "Host", &hosts);
    const char *wrong = NULL;

    x->has_body = x->chunked = codings > 0;
    x->content_length = codings > 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < x->num_headers; i++) {
        if (!is_token(x->header[i].name))
            wrong = "a header field has a name that is none";
        else if (has_control(x->header[i].value))
            wrong = "a header field holds a control character";
    }
    if (lengths > 1)
        wrong = "Content-Length stands there more than once";
    else if (lengths == 1 && codings > 0)
        wrong = "Content-Length and Transfer-Encoding exclude each other";
    else if (lengths == 1 && !read_content_length(x, length))
        wrong = "Content-Length is not a number of bytes";
    else if (codings > 1)
        wrong = "Transfer-Encoding stands there more than once";
    else if (codings == 1 && x->http_1_0)
        wrong = "HTTP/1.0 has no Transfer-Encoding";
    else if (hosts > 1)
        wrong = "Host stands there more than once";
    if (wrong != NULL || (codings == 1 && strcasecmp(coding, "chunked") != 0))
        break_off(x);
    /* The library may see a body where we do not: it must not wait for one unwatched. */
    x->has_body = x->has_body || (x->broken && lengths > 0);
    if (wrong != NULL)
        srv_reply_refuse(x, 400, "invalid", "%s", wrong);
    else if (x->broken)
        srv_reply_refuse(x, 501, "unsupported",
                         "the only Transfer-Encoding understood here is chunked");
}

/* --- the target --- */

/* The byte that an escape stands for, -1 = it is none. */
static int escape_value(const char *s)
{
    unsigned value = 0;
    if (!isxdigit((unsigned char)s[1]) || !isxdigit((unsigned char)s[2]) ||
        sscanf(s + 1, "%2x", &value) != 1)
        return -1;
    return (int)value;
}

static const char *target_fault(const char *s)
{
    bool in_path = true;
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s <= ' ' || *s == 0x7F)
            return "the request target holds a blank or a control character";
        in_path = in_path && *s != '?';
        if (*s != '%')
            continue;
        int value = escape_value(s);
        if (value < 0)
            return "the request target holds a % that is not followed by two hexadecimal digits";
        if (value == 0 || (in_path && (value < ' ' || value == 0x7F)))
            return "the request target holds an escaped control character";
    }
    return NULL;
}

/* Sets x->path. Proxies are sent "http://host/path"; the host in it then counts as Host. */
static void check_target(srv_exchange *x, char *host, size_t host_size)
{
    const char *fault = target_fault(x->target);
    size_t scheme = strncasecmp(x->target, "http://", 7) == 0    ? 7
                    : strncasecmp(x->target, "https://", 8) == 0 ? 8
                                                                 : 0;
    x->path = x->target;
    if (fault == NULL && scheme > 0) {
        const char *authority = x->target + scheme;
        size_t n = strcspn(authority, "/?");
        if (n == 0 || n >= host_size)
            fault = "the request target names no host";
        else
            (void)snprintf(host, host_size, "%.*s", (int)n, authority);
        x->path = authority[n] == '/' ? authority + n : "/";
    }
    bool asterisk = strcmp(x->target, "*") == 0 && strcmp(x->method, "OPTIONS") == 0;
    if (fault == NULL && x->path[0] != '/' && !asterisk)
        fault = "the request target does not begin with a slash";
    if (fault != NULL)
        srv_reply_refuse(x, 400, "invalid", "%s", fault);
}

/* Takes the prefix off x->path. Without its last slash the prefix alone would be a page whose links lead astray. */
static void strip_base(srv_exchange *x, const char *base)
{
    size_t n = base != NULL ? strlen(base) : 0;
    bool get = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;

    if (n == 0 || x->path[0] != '/')
        return;
    bool ours = strncmp(x->path, base, n) == 0;
    if (ours && x->path[n] == '/') {
        x->path += n;
    } else if (ours && get && (x->path[n] == '\0' || x->path[n] == '?')) {
        char place[SRV_EXTRA_BYTES / 2];
        int length = snprintf(place, sizeof place, "%s/%s", base, x->path + n);
        if ((size_t)length >= sizeof place)
            (void)snprintf(place, sizeof place, "%s/", base);
        srv_http_set_header(x, "Location", place);
        srv_http_reply_text(x, 308, NULL, "", 0);
    } else {
        srv_reply_refuse(x, 404, "not_found", "there is nothing at this path");
    }
}

/* --- Host: a page on the web must not reach a server that listens on loopback by a name of its own
 * that resolves to 127.0.0.1 --- */

static bool host_is(const char *host, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

/* Loopback's own names, and those that listeners were given. */
static bool is_ours(const char *host, size_t n, const srv_listeners *l)
{
    if (host_is(host, n, "localhost") || host_is(host, n, "127.0.0.1") || host_is(host, n, "[::1]"))
        return true;
    bool v6 = host[0] == '[' && n >= 2;
    for (size_t i = 0; i < l->n; i++) {
        if (!l->item[i].local && host_is(host + v6, v6 ? n - 2 : n, l->item[i].host))
            return true;
    }
    return false;
}

static bool on_loopback_only(const srv_listeners *l)
{
    bool only = true;
    for (size_t i = 0; i < l->n; i++)
        only = only && (l->item[i].loopback || l->item[i].local);
    return only;
}

static bool is_listed(const char *host, size_t n, const srv_http_options *o)
{
    for (size_t i = 0; i < o->num_hosts; i++) {
        if (strcmp(o->hosts[i], "*") == 0 || host_is(host, n, o->hosts[i]))
            return true;
    }
    return false;
}

static void check_host(srv_exchange *x, const char *host, const srv_http_options *o,
                       const srv_listeners *l)
{
    if (host == NULL) {
        if (!x->http_1_0) {
            break_off(x);
            srv_reply_refuse(x, 400, "invalid", "an HTTP/1.1 request needs a Host");
        }
        return;
    }
    /* No page of a browser reaches a unix socket. */
    if (srv_conn_local(x->conn) || (o->num_hosts == 0 && !on_loopback_only(l)))
        return;
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t n = end != NULL ? (size_t)(end - host) + 1 : strcspn(host, ":");
    const char *port = host + n;
    bool port_ok =
        *port == '\0' || (*port == ':' && strspn(port + 1, "0123456789") == strlen(port + 1));
    if (o->num_hosts > 0 && !(port_ok && is_listed(host, n, o)))
        srv_reply_refuse(x, 403, "host_not_allowed",
                         "that Host is not one of this server's (server.allowed_hosts)");
    else if (o->num_hosts == 0 && !(port_ok && is_ours(host, n, l)))
        srv_reply_refuse(x, 403, "host_not_allowed",
                         "this server listens on loopback only and is not called by that Host");
}

/* --- API keys --- */

/* The key of "Authorization: Bearer KEY", or NULL. */
static const char *bearer(const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return NULL;
    return value + 7 + strspn(value + 7, " ");
}

static bool is_known(srv_access *access, const char *key)
{
    size_t n = strlen(key);
    while (n > 0 && (key[n - 1] == ' ' || key[n - 1] == '\t'))
        n--;
    return srv_access_knows(access, key, n);
}

static void check_key(srv_exchange *x, srv_access *access)
{
    size_t bearers = 0, keys = 0;
    const char *authorization = srv_header_find(x, "Authorization", &bearers);
    const char *key = srv_header_find(x, "X-API-Key", &keys);

    if (access == NULL || !srv_access_has_keys(access) || x->route->open)
        return;
    const char *token = bearers == 1 ? bearer(authorization) : NULL;
    if ((token != NULL && is_known(access, token)) || (keys == 1 && is_known(access, key)))
        return;
    srv_http_set_header(x, "WWW-Authenticate", "Bearer");
    srv_reply_refuse(x, 401, "unauthorized",
                     bearers + keys == 0 ? "an API key is needed: \"Authorization: Bearer KEY\" or "
                                           "\"X-API-Key: KEY\""
                                         : "the API key is not one of this server's");
}

/* --- route, media types --- */

static void check_route(srv_exchange *x, const srv_http_options *o)
{
    bool options = strcmp(x->method, "OPTIONS") == 0;
    bool asterisk = options && strcmp(x->target, "*") == 0;
    unsigned allowed = asterisk ? SRV_ALLOW_GET | SRV_ALLOW_POST
                                : srv_route_find(x, o->routes, o->num_routes, x->method);
    if (allowed == 0) {
        srv_reply_refuse(x, 404, "not_found", "there is nothing at this path");
    } else if (x->route == NULL) {
        bool get = (allowed & SRV_ALLOW_GET) != 0, post = (allowed & SRV_ALLOW_POST) != 0;
        const char *list = !post ? "GET, HEAD, OPTIONS"
                           : get ? "GET, HEAD, OPTIONS, POST"
                                 : "OPTIONS, POST";
        srv_http_set_header(x, "Allow", list);
        if (options) {
            srv_cors_preflight(x, list);
            srv_http_reply_text(x, 204, NULL, "", 0);
        } else {
            srv_reply_refuse(x, 405, "method_not_allowed", "this path takes %s", list);
        }
    }
}

static const char *const json_alone[] = {"application/json"};
static const srv_media json_media = {json_alone, 1, 1u << SRV_IDENTITY,
                                     json_alone, 1, 1u << SRV_IDENTITY};

static void refuse_media(srv_exchange *x, const char *field, const char *takes, const char *hint,
                         const attn_error *err)
{
    srv_http_set_header(x, field, takes);
    srv_reply_refuse(x, 415, "unsupported_media_type", "%s%s", err->text, hint);
}

/* "a, b", as a header field lists them. */
static void list_names(char *out, size_t size, const char *const *name, size_t n, unsigned bits)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n && used < size; i++) {
        if (bits & 1u << i)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", name[i]);
    }
}

static void check_body_media(srv_exchange *x, const srv_media *media)
{
    srv_field_lines types = srv_header_lines(x, "Content-Type");
    srv_field_lines codings = srv_header_lines(x, "Content-Encoding");
    attn_error err = {0};
    char names[256];

    if (media->takes != NULL &&
        srv_content_type((srv_lines){types.line, types.n}, media->takes, media->num_takes,
                         &x->body_type, &err) != ATTN_OK) {
        list_names(names, sizeof names, media->takes, media->num_takes, UINT_MAX);
        bool form = types.n == 1 && strncasecmp(types.line[0], "application/x-www-form", 22) == 0;
        refuse_media(x, "Accept", names, form ? " (curl: --json in place of -d)" : "", &err);
        return;
    }
    if (x->body_type == media->num_takes) /* nothing is said: the default */
        x->body_type = 0;
    if (srv_content_coding((srv_lines){codings.line, codings.n}, media->takes_codings,
                           &x->body_coding, &err) != ATTN_OK) {
        list_names(names, sizeof names, srv_coding_names, SRV_CODINGS, media->takes_codings);
        refuse_media(x, "Accept-Encoding", names, "", &err);
    }
}

static void check_answer_media(srv_exchange *x, const srv_media *media)
{
    srv_field_lines accept = srv_header_lines(x, "Accept");
    srv_field_lines encoding = srv_header_lines(x, "Accept-Encoding");
    srv_codings c = srv_accept_codings((srv_lines){encoding.line, encoding.n});
    srv_coding coding = SRV_IDENTITY;
    char names[256];

    x->answer_type =
        srv_accept_type((srv_lines){accept.line, accept.n}, media->gives, media->num_gives);
    if (x->answer_type == SRV_NO_OFFER) {
        srv_name_types(names, sizeof names, media->gives, media->num_gives);
        srv_reply_refuse(x, 406, "not_acceptable",
                         "the answer is %s, which the Accept field excludes", names);
    } else if (!srv_choose_coding(&c, media->gives_codings, false, &coding)) {
        list_names(names, sizeof names, srv_coding_names, SRV_CODINGS,
                   media->gives_codings | 1u << SRV_IDENTITY);
        srv_reply_refuse(
            x, 406, "not_acceptable",
            "the answer's coding is one of %s, which the Accept-Encoding field excludes", names);
    }
}

static void check_body(srv_exchange *x, uint64_t max_body_bytes)
{
    if (!x->chunked && x->content_length > max_body_bytes) {
        attn_error err = {0};
        (void)attn_fail(&err, ATTN_ETOOBIG,
                        "the body has %llu bytes, the limit (server.max_body) is %llu",
                        (unsigned long long)x->content_length, (unsigned long long)max_body_bytes);
        err.needed = x->content_length;
        err.limit = max_body_bytes;
        srv_http_reply_problem(x, &err, NULL);
    }
}

void srv_check(srv_exchange *x, const srv_http_options *o, const srv_listeners *listeners)
{
    char authority[256] = "";

    srv_cors_check(x, o->origins, o->num_origins); /* every answer says so, errors too */

    /* Framing comes first: if it is in doubt, nothing else may keep the connection. */
    check_framing(x);
    if (x->reply.status == 0)
        check_target(x, authority, sizeof authority);
    if (x->reply.status == 0)
        check_host(x, authority[0] != '\0' ? authority : srv_header_find(x, "Host", NULL), o,
                   listeners);
    if (x->reply.status == 0)
        strip_base(x, o->base_path);
    if (x->reply.status == 0)
        check_route(x, o);
    if (x->reply.status == 0)
        check_key(x, o->access);
    if (x->reply.status == 0)
        check_body(x, o->max_body_bytes);
    if (x->route == NULL || !x->route->body)
        return;
    srv_http_set_header(x, "Vary", "Accept, Accept-Encoding");
    const srv_media *media = x->route->media != NULL ? x->route->media : &json_media;
    if (x->reply.status == 0)
        check_body_media(x, media);
    if (x->reply.status == 0)
        check_answer_media(x, media);
}
