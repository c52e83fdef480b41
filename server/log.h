/* log.h: one line an event on stderr, as text or as a JSON object. Thread-safe.
 *
 * A log that nobody reads, or a full disk, holds nothing up: lines that cannot be written at once are lost, and their
 * number is said as soon as one can. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { SRV_LOG_ERROR, SRV_LOG_WARN, SRV_LOG_INFO, SRV_LOG_DEBUG } srv_log_level;

/* Once, before the first thread. `json`: JSON lines, else text. */
void srv_log_init(srv_log_level level, bool json);
bool srv_log_enabled(srv_log_level level);

/* Extra fields are pairs: a name, then a value made by one of these. */
typedef struct {
    const char *name;
    enum { SRV_LOG_STRING, SRV_LOG_INTEGER, SRV_LOG_NUMBER } kind;
    const char *string;
    int64_t integer;
    double number;
} srv_log_field;

#define SRV_STR(name_, value_)                                                                     \
    ((srv_log_field){.name = (name_), .kind = SRV_LOG_STRING, .string = (value_)})
#define SRV_INT(name_, value_)                                                                     \
    ((srv_log_field){.name = (name_), .kind = SRV_LOG_INTEGER, .integer = (int64_t)(value_)})
#define SRV_NUM(name_, value_)                                                                     \
    ((srv_log_field){.name = (name_), .kind = SRV_LOG_NUMBER, .number = (value_)})

/* event is a stable token, "ready", "request"; msg one sentence. NULL strings are left out. */
void srv_log(srv_log_level level, const char *event, const char *msg, const srv_log_field *fields,
             size_t n);

/* Lines that were lost. */
uint64_t srv_log_lost(void);

#endif
