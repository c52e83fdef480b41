/* healthcheck.h: asks a daemon whether it is ready, for containers without curl. */
#ifndef SRV_HEALTHCHECK_H
#define SRV_HEALTHCHECK_H

#include <stdbool.h>

#include "config/config.h"
#include "core/status.h"

/* GET /health/ready below `url`: "http://HOST[:PORT][/BASE]", https:// likewise, "unix:/PATH[:/BASE]". `insecure` takes
 * any certificate. ATTN_OK when the answer is 200; ATTN_EBUSY: it is another; ATTN_EIO: there is none within some
 * seconds; ATTN_EINVAL: no such URL. */
ATTN_NODISCARD attn_status srv_healthcheck(const char *url, bool insecure, attn_error *err);

/* The same of the daemon that was started on this machine with this configuration: at the first address it listens on,
 * by the first name it allows, whatever its certificate is. ATTN_EINVAL: the port is any free one. */
ATTN_NODISCARD attn_status srv_healthcheck_own(const cfg_config *c, attn_error *err);

#endif
