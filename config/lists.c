#include "config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char UNIX[] = "unix:";

bool cfg_is_list(cfg_type type)
{
    return type == CFG_TYPE_ADDRESSES || type == CFG_TYPE_HOSTS || type == CFG_TYPE_ORIGINS;
}

void cfg_list_clear(cfg_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->item[i]);
    free(list->item);
    *list = (cfg_list){0};
}

/* --- items ------------------------------------------------------------------------------------- */

static bool is_port(const char *text)
{
    size_t n = strlen(text);
    return n >= 1 && n <= 5 && strspn(text, "0123456789") == n && strtol(text, NULL, 10) <= 65535;
}

/* HOST:PORT, where HOST has colons only in brackets. Whether the host exists is for the listener. */
static bool is_host_and_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text)
        return false;
    size_t host = (size_t)(colon - text);
    bool brackets = text[0] == '[' && text[host - 1] == ']' && host > 2;

    for (size_t i = 0; i < host; i++) {
        if (text[i] <= ' ' || text[i] == 0x7f || text[i] == '/')
            return false;
        if (!brackets && strchr(":[]", text[i]) != NULL)
            return false;
    }
    return is_port(colon + 1);
}

static bool is_address(const char *text)
{
    const char *path = text + sizeof UNIX - 1;

    if (strncmp(text, UNIX, sizeof UNIX - 1) != 0)
        return is_host_and_port(text);
    for (const char *p = path; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return false; /* the ready line is one line */
    }
    return path[0] == '/' && strlen(path) < sizeof((struct sockaddr_un *)NULL)->sun_path;
}

/* The length of a host as it stands in URLs: a name, an IPv4 address or [IPv6]; 0 = it is none. */
static size_t host_length(const char *text)
{
    char allowed[sizeof LETTERS + 16];
    size_t n;

    if (text[0] == '[') {
        n = strspn(text + 1, "0123456789abcdefABCDEF:.");
        return n >= 2 && text[n + 1] == ']' ? n + 2 : 0;
    }
    (void)snprintf(allowed, sizeof allowed, "%s0123456789.-_", LETTERS);
    n = strspn(text, allowed);
    return n <= 253 ? n : 0;
}

static bool is_host(const char *text)
{
    size_t n = host_length(text);
    return n > 0 && text[n] == '\0';
}

/* As a browser writes it: scheme and host in small letters, no default port, nothing behind. */
static bool is_origin(const char *text)
{
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    const char *host = text + scheme + 3;

    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return false;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p >= 'A' && *p <= 'Z')
            return false;
    }
    size_t n = host_length(host);
    if (n == 0 || host[n] == '\0')
        return n > 0;
    return host[n] == ':' && is_port(host + n + 1) &&
           !(strncmp(text, "http:", 5) == 0 && strcmp(host + n, ":80") == 0) &&
           !(strncmp(text, "https:", 6) == 0 && strcmp(host + n, ":443") == 0);
}

static attn_status check_item(const cfg_key *key, const char *text, const cfg_place *at,
                              attn_error *err)
{
    char shown[CFG_CLIP_CHARS];
    bool any = strcmp(text, "*") == 0, good = false;
    const char *due = "";

    switch (key->type) {
    case CFG_TYPE_ADDRESSES:
        good = is_address(text);
        due = "HOST:PORT, such as 127.0.0.1:8080 or [::]:8080, or unix:/PATH";
        break;
    case CFG_TYPE_HOSTS:
        good = any || is_host(text);
        due = "a host without a port, such as example.org or [::1], or *";
        break;
    default:
        good = any || is_origin(text);
        due = "an origin as browsers send it, such as https://example.org:8443, or *";
        break;
    }
    cfg_clip(shown, text);
    return good ? ATTN_OK : cfg_refuse(at, err, "\"%s\" is not %s", shown, due);
}

/* --- lists ------------------------------------------------------------------------------------- */

static attn_status no_memory(attn_error *err)
{
    return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
}

static attn_status append(cfg_list *list, const cfg_key *key, const char *text, size_t n,
                          const cfg_place *at, attn_error *err)
{
    attn_status rc;
    char *copy = strndup(text, n);
    char **grown;

    if (copy == NULL)
        return no_memory(err);
    rc = check_item(key, copy, at, err);
    if (rc == ATTN_OK && list->n == key->most)
        rc = cfg_refuse(at, err, "there are more than %d", (int)key->most);
    if (rc == ATTN_OK) {
        grown = realloc(list->item, (list->n + 1) * sizeof *grown);
        if (grown != NULL) {
            list->item = grown;
            list->item[list->n++] = copy;
            return ATTN_OK;
        }
        rc = no_memory(err);
    }
    free(copy);
    return rc;
}

/* Puts `fresh` in the place of *list, or clears it. */
static attn_status settle(cfg_list *list, cfg_list *fresh, const cfg_key *key, attn_status rc,
                          const cfg_place *at, attn_error *err)
{
    if (rc == ATTN_OK && fresh->n < key->least)
        rc = cfg_refuse(at, err, "the list is empty");
    for (size_t i = 0; rc == ATTN_OK && fresh->n > 1 && i < fresh->n; i++) {
        if (strcmp(fresh->item[i], "*") == 0)
            rc = cfg_refuse(at, err, "\"*\" stands for all and leaves no room for others");
    }
    if (rc != ATTN_OK) {
        cfg_list_clear(fresh);
        return rc;
    }
    cfg_list_clear(list);
    *list = *fresh;
    return ATTN_OK;
}

attn_status cfg_list_read_json(cfg_list *list, const cfg_key *key, const attn_json *v,
                               const cfg_place *at, attn_error *err)
{
    cfg_list fresh = {0};
    attn_status rc = ATTN_OK;
    char shown[CFG_CLIP_CHARS];
    const char *string;

    if (attn_json_string(v, &string)) {
        rc = append(&fresh, key, string, strlen(string), at, err);
        return settle(list, &fresh, key, rc, at, err);
    }
    if (!attn_json_is_array(v)) {
        cfg_show_json(shown, v);
        return cfg_refuse(at, err, "%s is not a string or a list of strings", shown);
    }
    for (size_t i = 0; rc == ATTN_OK && i < attn_json_length(v); i++) {
        const attn_json *item = attn_json_at(v, i);
        cfg_place inner = *at;
        size_t end = strlen(inner.text), pointer_end = strlen(inner.pointer);

        (void)snprintf(inner.text + end, sizeof inner.text - end, "/%zu", i);
        (void)snprintf(inner.pointer + pointer_end, sizeof inner.pointer - pointer_end, "/%zu", i);
        cfg_show_json(shown, item);
        rc = attn_json_string(item, &string)
                 ? append(&fresh, key, string, strlen(string), &inner, err)
                 : cfg_refuse(&inner, err, "%s is not a string", shown);
    }
    return settle(list, &fresh, key, rc, at, err);
}

/* "[" begins an IPv6 address, too. */
static bool is_json(const char *text)
{
    text += strspn(text, " \t\r\n");
    if (*text++ != '[')
        return false;
    text += strspn(text, " \t\r\n");
    return *text == '"' || *text == ']';
}

static attn_status read_commas(cfg_list *fresh, const cfg_key *key, const char *text,
                               const cfg_place *at, attn_error *err)
{
    for (;;) {
        text += strspn(text, " \t");
        size_t n = strcspn(text, ","), trimmed = n;
        while (trimmed > 0 && (text[trimmed - 1] == ' ' || text[trimmed - 1] == '\t'))
            trimmed--;
        ATTN_TRY(append(fresh, key, text, trimmed, at, err));
        if (text[n] == '\0')
            return ATTN_OK;
        text += n + 1;
    }
}

attn_status cfg_list_read(cfg_list *list, const cfg_key *key, const char *text, bool add,
                          const cfg_place *at, attn_error *err)
{
    cfg_list fresh = {0};
    attn_json *document = NULL;
    attn_status rc = ATTN_OK;

    if (is_json(text)) {
        ATTN_TRY(attn_json_parse(&document, text, strlen(text), at->text, err));
        rc = cfg_list_read_json(list, key, document, at, err);
        attn_json_free(document);
        return rc;
    }
    for (size_t i = 0; rc == ATTN_OK && add && i < list->n; i++)
        rc = append(&fresh, key, list->item[i], strlen(list->item[i]), at, err);
    if (rc == ATTN_OK && (*text != '\0' || key->least > 0))
        rc = read_commas(&fresh, key, text, at, err);
    return settle(list, &fresh, key, rc, at, err);
}

char *cfg_list_text(const cfg_list *list)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (f == NULL)
        return NULL;
    for (size_t i = 0; i < list->n; i++)
        (void)fprintf(f, "%s%s", i > 0 ? ", " : "", list->item[i]);
    if (list->n == 0)
        (void)fputs("[]", f);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
