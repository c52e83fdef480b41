/* trace.h: the place of a request in a distributed trace: W3C Trace Context, level 1. */
#ifndef SRV_TRACE_H
#define SRV_TRACE_H

enum { SRV_TRACE_ID_BYTES = 33, SRV_SPAN_ID_BYTES = 17 };

typedef struct {
    char trace_id[SRV_TRACE_ID_BYTES]; /* 32 hexadecimal digits, the caller's or a fresh one */
    char span_id[SRV_SPAN_ID_BYTES];   /* 16, of this request: always fresh */
} srv_trace;

/* `traceparent` is the value of that header field; NULL, and what is malformed, begins a trace of its own. */
void srv_trace_begin(srv_trace *t, const char *traceparent);

#endif
