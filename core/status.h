/* status.h: how every function of the library reports failure. */
#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#define ATTN_NODISCARD    __attribute__((warn_unused_result))
#define ATTN_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* The list of failures, in one place: enumerator suffix and stable name. */
#define ATTN_STATUS_LIST(X)                                                                        \
    X(OK, "ok")                                                                                    \
    X(EINVAL, "invalid")           /* wrong by itself: type, value, unknown name */                \
    X(ESHAPE, "shape_mismatch")    /* disagrees with the model or with another argument */         \
    X(ENONFINITE, "not_finite")    /* NaN or Inf where it is attended, or in the result */         \
    X(EFORMAT, "bad_format")       /* a file is damaged or is not what its name says */            \
    X(EUNSUPPORTED, "unsupported") /* well-formed, but this version cannot do it */                \
    X(ENOTFOUND, "not_found")      /* no such file, tensor, model or layer */                      \
    X(EIO, "io_error")             /* the system refused a read, a socket, a thread */             \
    X(ENOMEM, "out_of_memory")     /* an allocation failed */                                      \
    X(ETOOBIG, "too_large")        /* can never fit the limit */                                   \
    X(EBUSY, "busy")               /* does not fit now */                                          \
    X(ETIMEDOUT, "deadline")       /* the request's deadline passed */                             \
    X(ECANCELED, "canceled")       /* the caller gave up */                                        \
    X(EINTERNAL, "internal")       /* one of our own invariants does not hold */

typedef enum {
#define ATTN_STATUS_ENUM(name, text) ATTN_##name,
    ATTN_STATUS_LIST(ATTN_STATUS_ENUM)
#undef ATTN_STATUS_ENUM
        ATTN_STATUS_COUNT
} attn_status;

/* The first failure: its code, one sentence with the values that disagreed and, where a request
 * or a configuration file is at fault, the JSON Pointer of the culprit ("" = the document, or none).
 * `needed` and `limit` are bytes, set with ATTN_ETOOBIG and ATTN_EBUSY where they are known, else 0.
 * Zero-initialise before use. */
typedef struct {
    attn_status code;
    char text[480];
    char pointer[160];
    size_t needed;
    size_t limit;
} attn_error;

/* Fills *err (unless NULL or already holding a failure) and returns code. */
attn_status attn_fail(attn_error *err, attn_status code, const char *format, ...) ATTN_PRINTF(3, 4);

/* The same with a JSON Pointer. */
attn_status attn_fail_at(attn_error *err, attn_status code, const char *pointer, const char *format,
                         ...) ATTN_PRINTF(4, 5);

/* The stable name of a code, "shape_mismatch"; never NULL. */
const char *attn_status_name(attn_status code);

/* Returns from the calling function when `expression` failed; only where nothing is held. */
#define ATTN_TRY(expression)                                                                       \
    do {                                                                                           \
        attn_status attn_try_status = (expression);                                                \
        if (attn_try_status != ATTN_OK)                                                            \
            return attn_try_status;                                                                \
    } while (0)

#endif
