/* config_keys.h: every key, flag and model member, once. Code, help, schema test: all expand this. */
#ifndef CFG_CONFIG_KEYS_H
#define CFG_CONFIG_KEYS_H

#define CFG_KIB ((uint64_t)1 << 10)
#define CFG_MIB ((uint64_t)1 << 20)
#define CFG_PIB ((uint64_t)1 << 50)
#define CFG_DAY ((uint64_t)24 * 3600 * 1000)

/* The default of a text: none. Written like that it is one on a command line, too. */
#define CFG_NOTHING "\"\""

/* X(path, type, member of cfg_config, default, least, most, help)
 *
 * Types: ADDRESSES, HOSTS and ORIGINS (lists); PREFIX (of paths in URLs) and FILE_NAME, texts; INTEGER
 * and SIZE, AUTO_ before them where "auto" (stored as 0) is a value too; DURATION (in ms); BOOLEAN;
 * LOG_LEVEL and LOG_FORMAT (names in the order of the enumerators); MODELS. Least and most bound what
 * is a number, and how many items a list has. */
#define CFG_KEYS(X)                                                                                \
    X("server.listen", ADDRESSES, server.listen, "127.0.0.1:8080", 1, 16,                          \
      "HOST:PORT, [HOST]:PORT, unix:/PATH, or several of them; port 0 is any free one")            \
    X("server.base_path", PREFIX, server.base_path, CFG_NOTHING, 0, 0,                             \
      "what every path begins with, /attnd for example")                                           \
    X("server.allowed_hosts", HOSTS, server.allowed_hosts, "[]", 0, 256,                           \
      "names that Host may have, or *; without: loopback's, if it listens there only")             \
    X("server.io_threads", INTEGER, server.io_threads, "2", 1, 64,                                 \
      "threads that read requests and write answers")                                              \
    X("server.max_body", SIZE, server.max_body_bytes, "256MiB", CFG_KIB, CFG_PIB,                  \
      "the largest request body")                                                                  \
    X("server.max_connections", INTEGER, server.max_connections, "1024", 1, 65536,                 \
      "connections open at the same time")                                                         \
    X("server.header_timeout", DURATION, server.header_timeout_ms, "10s", 1, CFG_DAY,              \
      "time for a request's header to arrive")                                                     \
    X("server.request_timeout", DURATION, server.request_timeout_ms, "60s", 1, CFG_DAY,            \
      "time for a request from its first byte to its answer")                                      \
    X("server.shutdown_delay", DURATION, server.shutdown_delay_ms, "0s", 0, CFG_DAY,               \
      "time to go on serving, but not to be ready, when the daemon is told to end")                \
    X("server.shutdown_timeout", DURATION, server.shutdown_timeout_ms, "30s", 0, CFG_DAY,          \
      "time for requests under way when the daemon is told to end")                                \
    X("auth.keys_file", FILE_NAME, auth.keys_file, CFG_NOTHING, 0, 0,                              \
      "a file with one API key a line; with it, models can be asked with a key only")              \
    X("auth.protect_metrics", BOOLEAN, auth.protect_metrics, "true", 0, 0,                         \
      "GET /metrics needs a key, too")                                                             \
    X("tls.certificate_file", FILE_NAME, tls.certificate_file, CFG_NOTHING, 0, 0,                  \
      "certificate and the chain behind it, PEM; with tls.key_file: https only")                   \
    X("tls.key_file", FILE_NAME, tls.key_file, CFG_NOTHING, 0, 0,                                  \
      "the certificate's private key, PEM")                                                        \
    X("cors.allow_origins", ORIGINS, cors.allow_origins, "[]", 0, 256,                             \
      "origins whose pages may ask, such as https://example.org, or * for all")                    \
    X("admin.enabled", BOOLEAN, admin, "false", 0, 0,                                              \
      "models may be loaded and unloaded below /v2/repository")                                    \
    X("sandbox.enabled", BOOLEAN, sandbox, "true", 0, 0,                                           \
      "once ready read what is named here alone, write and run nothing (Landlock)")                \
    X("models", MODELS, models, "[]", 0, 0,                                                        \
      "what to serve: a list of {\"name\", \"path\", \"layers\", \"dtype\", \"layout\"}")          \
    X("memory.budget", AUTO_SIZE, budget_bytes, "auto", CFG_MIB, CFG_PIB,                          \
      "bytes for all requests together; auto is half of what machine or container have")           \
    X("compute.threads", AUTO_INTEGER, threads, "auto", 1, 1024,                                   \
      "threads that compute; auto is the CPUs that machine and container allow")                   \
    X("compute.pin", BOOLEAN, pin, "true", 0, 0, "keep each computing thread on a CPU of its own") \
    X("queue.max_requests", INTEGER, queue_max_requests, "256", 1, 65536,                          \
      "requests that may wait")                                                                    \
    X("metrics.enabled", BOOLEAN, metrics, "true", 0, 0, "answer GET /metrics")                    \
    X("docs.enabled", BOOLEAN, docs, "true", 0, 0, "answer GET /openapi.json and its page, /docs") \
    X("ui.enabled", BOOLEAN, ui, "true", 0, 0, "answer GET / with the viewer")                     \
    X("log.level", LOG_LEVEL, log.level, "info", 0, 0, "error, warn, info or debug")               \
    X("log.format", LOG_FORMAT, log.format, "auto", 0, 0, "text, json, or auto: text on a terminal")

#define CFG_LOG_LEVELS  "error", "warn", "info", "debug"
#define CFG_LOG_FORMATS "auto", "text", "json"

/* X(enumerator, name, takes an argument, usage, help) */
#define CFG_FLAGS(X)                                                                               \
    X(CONFIG, "config", true, "--config FILE", "read the configuration file, JSON")                \
    X(MODEL, "model", true, "--model [NAME=]PATH", "serve this model; may be repeated")            \
    X(LISTEN, "listen", true, "--listen ADDRESS",                                                  \
      "listen on HOST:PORT, [HOST]:PORT or unix:/PATH; may be repeated")                           \
    X(SET, "set", true, "--set KEY=VALUE", "set any key below; may be repeated")                   \
    X(MODEL_DIR, "model_dir", true, "--model_dir PATH", "KServe's spelling of --model PATH")       \
    X(MODEL_NAME, "model_name", true, "--model_name NAME", "the name of --model_dir's model")      \
    X(HTTP_PORT, "http_port", true, "--http_port PORT",                                            \
      "KServe's spelling of --listen 0.0.0.0:PORT")                                                \
    X(PRINT_CONFIG, "print-config", false, "--print-config",                                       \
      "print every key with its value and source, and exit")

/* X(member of an entry of "models") */
#define CFG_MODEL_MEMBERS(X)                                                                       \
    X("name")                                                                                      \
    X("path")                                                                                      \
    X("layers")                                                                                    \
    X("dtype")                                                                                     \
    X("layout")

#endif
