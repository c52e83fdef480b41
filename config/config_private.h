/* config_private.h: what the files of config/ share. */
#ifndef CFG_CONFIG_PRIVATE_H
#define CFG_CONFIG_PRIVATE_H

#include "config.h"
#include "config_keys.h"

typedef enum {
    CFG_TYPE_ADDRESSES,
    CFG_TYPE_HOSTS,
    CFG_TYPE_ORIGINS,
    CFG_TYPE_PREFIX,
    CFG_TYPE_FILE_NAME,
    CFG_TYPE_INTEGER,
    CFG_TYPE_AUTO_INTEGER,
    CFG_TYPE_SIZE,
    CFG_TYPE_AUTO_SIZE,
    CFG_TYPE_DURATION,
    CFG_TYPE_BOOLEAN,
    CFG_TYPE_LOG_LEVEL,
    CFG_TYPE_LOG_FORMAT,
    CFG_TYPE_MODELS
} cfg_type;

typedef struct {
    const char *path;
    cfg_type type;
    size_t offset; /* of the value in cfg_config */
    const char *fallback;
    uint64_t least, most;
} cfg_key;

enum {
#define CFG_COUNT_KEY(path, type, member, fallback, least, most, help) +1
    CFG_NUM_KEYS = 0 CFG_KEYS(CFG_COUNT_KEY),
#undef CFG_COUNT_KEY
    CFG_MAX_MODELS = 1024,
    CFG_MAX_LAYERS = 4096, /* in the list of one model */
    CFG_FILE_BYTES = 4 << 20,
    CFG_PATH_CHARS = 64 /* longer than the path of any key */
};

extern const cfg_key cfg_keys[CFG_NUM_KEYS];

/* The key of that path, or NULL. */
const cfg_key *cfg_key_find(const char *path);

typedef enum {
    CFG_FROM_DEFAULT,
    CFG_FROM_FILE,
    CFG_FROM_VARIABLE,
    CFG_FROM_VARIABLE_FILE, /* NAME__FILE */
    CFG_FROM_FLAG,          /* --listen, --model and their like */
    CFG_FROM_SET
} cfg_source;

struct cfg_private {
    cfg_source source[CFG_NUM_KEYS];
    const char *flag[CFG_NUM_KEYS]; /* the last one, where the source is a flag; a literal */
    char *file;                     /* as --config named it, or NULL */
    attn_json *models_text;         /* the document that the models' layouts point into, or NULL */
    char **warnings;
    size_t num_warnings;
};

/* Where a value stands: how messages begin, and the JSON Pointer ("" = none). */
typedef struct {
    char text[320];
    char pointer[160];
} cfg_place;

void cfg_place_init(cfg_place *at, const char *format, ...) ATTN_PRINTF(2, 3);

/* at = "what: pointer"; only the end of a long `what`. */
void cfg_place_json(cfg_place *at, const char *what, const char *pointer);

/* Appends "/key" to a JSON Pointer of at most 160 characters, escaped. */
void cfg_pointer_add(char pointer[160], const char *key);

/* "place: message", ATTN_EINVAL. */
attn_status cfg_refuse(const cfg_place *at, attn_error *err, const char *format, ...)
    ATTN_PRINTF(3, 4);

/* "place is not a known key; did you mean near?", ATTN_EINVAL; near may be NULL. */
attn_status cfg_unknown(const cfg_place *at, const char *near, attn_error *err);

/* For messages: at most CFG_CLIP_CHARS - 1 bytes of text, "..." when more, no control characters. */
enum { CFG_CLIP_CHARS = 72 };
void cfg_clip(char out[CFG_CLIP_CHARS], const char *text);

/* A JSON value for messages: strings in quotes, numbers as they are, else "an object" and so on. */
void cfg_show_json(char out[CFG_CLIP_CHARS], const attn_json *v);

/* Both replace what a weaker source has set. The JSON form insists on the JSON type, and takes all
 * keys but "models". */
attn_status cfg_set_text(cfg_config *c, const cfg_key *key, const char *text, cfg_source source,
                         const cfg_place *at, attn_error *err);
attn_status cfg_set_json(cfg_config *c, const cfg_key *key, const attn_json *v, cfg_source source,
                         const cfg_place *at, attn_error *err);

/* The value of a key for people; NULL when memory is out. For free(). */
char *cfg_value_text(const cfg_config *c, const cfg_key *key);

/* lists.c. Both take the list's items into *list, in place of what is there or, with `add`, behind it;
 * on failure it is as it was. A text has commas between its items, or is a JSON list. */
bool cfg_is_list(cfg_type type);
attn_status cfg_list_read(cfg_list *list, const cfg_key *key, const char *text, bool add,
                          const cfg_place *at, attn_error *err);
attn_status cfg_list_read_json(cfg_list *list, const cfg_key *key, const attn_json *v,
                               const cfg_place *at, attn_error *err);
void cfg_list_clear(cfg_list *list);

/* model_list.c. cfg_models_add() takes one [NAME=]PATH or, when text begins with '[', a JSON list.
 * cfg_models_read() takes a JSON list; messages begin with `what` and its `pointer`. Layouts point into
 * the document of the list: the caller of cfg_models_read() gives it to private_->models_text. */
void cfg_models_clear(cfg_config *c);
attn_status cfg_models_add(cfg_config *c, const char *text, const cfg_place *at, attn_error *err);
attn_status cfg_models_read(cfg_config *c, const attn_json *list, const char *what,
                            const char *pointer, attn_error *err);
char *cfg_models_text(const cfg_config *c);

/* The layers over the defaults, weakest first. */
attn_status cfg_apply_file(cfg_config *c, const char *path, attn_error *err);
attn_status cfg_apply_environment(cfg_config *c, char *const environ_[], attn_error *err);
attn_status cfg_apply_flags(cfg_config *c, int argc, char *const argv[], attn_error *err);

/* Finds usage errors, --config (NULL = not given) and --print-config. */
attn_status cfg_scan_flags(int argc, char *const argv[], const char **config, cfg_action *action,
                           attn_error *err);

/* "ATTND_SERVER_LISTEN" */
enum { CFG_VARIABLE_CHARS = CFG_PATH_CHARS + 8 };
void cfg_variable_name(char out[CFG_VARIABLE_CHARS], const cfg_key *key);

#endif
