/* notify.h: what the service manager is told and what it passes on: the protocols of sd_notify(3) and
 * sd_listen_fds(3), spoken without its library. Without such a manager nothing happens. */
#ifndef SRV_NOTIFY_H
#define SRV_NOTIFY_H

#include <stddef.h>
#include <stdint.h>

/* Sends a state such as "READY=1", and beside it a sentence for people; either may be NULL. It goes to the socket that
 * NOTIFY_SOCKET names: a path, or "@name" without one. Any thread. Never blocks; what cannot be sent is lost. */
void srv_notify(const char *state, const char *status);

/* "RELOADING=1" with the time, which a manager wants to see beside it. "READY=1" ends it. */
void srv_notify_reloading(void);

/* How often the manager wants to hear WATCHDOG=1, in ms: half of what it waits. 0 = never. */
int64_t srv_notify_watchdog_ms(void);

/* The listening sockets that were passed, from *first on; returns how many, 0 = none. They are closed in what is
 * executed from here on. */
size_t srv_notify_sockets(int *first);

#endif
