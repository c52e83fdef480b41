/* signals.h: what the daemon is told by signals, and waiting for it.
 *
 * SIGTERM and SIGINT: end; the second one ends the process at once. SIGHUP: reload. */
#ifndef SRV_SIGNALS_H
#define SRV_SIGNALS_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/status.h"

/* Of the calling thread, and of those that it makes: they then leave these signals to others. */
void srv_signals_block(void);
void srv_signals_unblock(void);

/* Once, before srv_signals_wait(). */
ATTN_NODISCARD attn_status srv_signals_handle(attn_error *err);

/* True from the first SIGTERM or SIGINT on; srv_signals_first() is then which of them came. */
extern atomic_bool srv_signals_end;
int srv_signals_first(void);

/* Bits. */
enum { SRV_TOLD_END = 1, SRV_TOLD_RELOAD = 2 };

/* Waits until something was told, or for timeout_ms; returns it once. 0 = the time is over. Of one thread. */
unsigned srv_signals_wait(int64_t timeout_ms);

#endif
