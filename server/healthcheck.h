/* healthcheck.h: asks a running daemon whether it is ready, for container health checks. */
#ifndef SRV_HEALTHCHECK_H
#define SRV_HEALTHCHECK_H

#include "core/status.h"

/* GET /health/ready of "http://HOST:PORT", within 5 s. ATTN_OK when it answers 200. */
ATTN_NODISCARD attn_status srv_healthcheck(const char *url, attn_error *err);

#endif
