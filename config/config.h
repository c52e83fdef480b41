/* config.h: the options of the daemon: file, environment and flags, each known by its dotted path.
 *
 * Precedence: flag > environment > file > default. One table (config_keys.h) says every key's path,
 * type, default, range and help; parsing, --help, --print-config and the JSON Schema follow it. */
#ifndef CFG_CONFIG_H
#define CFG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"

typedef struct {
    char *name; /* as in URLs: [A-Za-z0-9._-]{1,64} */
    char *path;
    bool all_layers; /* else layers[0..num_layers) */
    int64_t *layers;
    size_t num_layers;
    const attn_json *layout; /* explicit layout object, or NULL; lives as long as the config */
} cfg_model;

typedef struct {
    char **item;
    size_t n;
} cfg_list;

typedef enum { CFG_LOG_ERROR, CFG_LOG_WARN, CFG_LOG_INFO, CFG_LOG_DEBUG } cfg_log_level;
typedef enum { CFG_LOG_AUTO, CFG_LOG_TEXT, CFG_LOG_JSON } cfg_log_format;

typedef struct cfg_config {
    struct {
        cfg_list listen; /* one at least: "127.0.0.1:8080", "[::]:0", "localhost:0", "unix:/path" */
        char *base_path; /* "" or "/prefix", without a slash at its end */
        /* What Host may say, without ports, IPv6 in brackets; "*" alone = anything. Empty: loopback's
         * names where all listeners are on loopback, else anything. */
        cfg_list allowed_hosts;
        int64_t io_threads, max_connections;
        uint64_t max_body_bytes;
        int64_t header_timeout_ms, request_timeout_ms, shutdown_delay_ms;
        int64_t shutdown_timeout_ms;
    } server;
    struct {
        char *keys_file; /* "" = none */
        bool protect_metrics;
    } auth;
    struct {
        char *certificate_file, *key_file; /* both, or both "" */
    } tls;
    struct {
        cfg_list allow_origins; /* "https://host:port" each, or "*" alone */
    } cors;
    cfg_model *models;
    size_t num_models;
    uint64_t budget_bytes; /* 0 = auto */
    int64_t threads;       /* 0 = auto */
    bool pin;              /* pin workers to CPUs */
    int64_t queue_max_requests;
    bool metrics; /* GET /metrics is there */
    bool docs;    /* GET /docs and /openapi.json are */
    bool ui;      /* GET / is */
    bool admin;   /* models may be loaded and unloaded over HTTP */
    bool sandbox; /* give up what is not needed once the models are loaded */
    struct {
        cfg_log_level level;
        cfg_log_format format;
    } log;
    struct cfg_private *private_; /* sources of the values, the parsed file */
} cfg_config;

typedef enum {
    CFG_RUN,         /* go on */
    CFG_PRINT_CONFIG /* --print-config was given */
} cfg_action;

/* Reads defaults, the file named by --config, the environment and the flags argv[0..argc) (what
 * follows the subcommand). `environ_` is a NULL-terminated list "NAME=value".
 * ATTN_EINVAL: the file, a variable or a flag's value is wrong: err->text is one sentence that names
 * the place (file and JSON Pointer, variable, flag), the value and the nearest known key.
 * ATTN_ENOTFOUND: a usage error (unknown flag, missing argument): exit 2. ATTN_EIO: unreadable file.
 * *out is NULL on failure. */
ATTN_NODISCARD attn_status cfg_load(cfg_config **out, int argc, char *const argv[],
                                    char *const environ_[], cfg_action *action, attn_error *err);
void cfg_free(cfg_config *c); /* takes NULL */

/* What was passed over and may be a slip: environment variables that begin with ATTND_ and set nothing.
 * Sentences for the log, valid until cfg_free(). */
size_t cfg_warning_count(const cfg_config *c);
const char *cfg_warning(const cfg_config *c, size_t i);

/* Writes one line a key, "path = value (source)". Returns malloc()ed text or NULL. */
char *cfg_print(const cfg_config *c);

/* "a, b", malloc()ed, or NULL. */
char *cfg_list_text(const cfg_list *list);

/* The flags and keys as text for --help; static. */
const char *cfg_help(void);

/* "256MiB", "1.5GiB", "4096" (bytes); "10s", "500ms", "1.5min" (a unit must be there). Parts of a byte
 * or millisecond are cut off. *bytes and *ms are set only on success. */
bool cfg_parse_size(const char *text, uint64_t *bytes);
bool cfg_parse_duration(const char *text, int64_t *ms);

#endif
