/* process.h: what the system says of this process. */
#ifndef SRV_PROCESS_H
#define SRV_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Each false when /proc is not there or does not say; the value is then untouched. */
bool srv_process_resident_bytes(uint64_t *bytes);
bool srv_process_open_fds(uint64_t *fds);
bool srv_process_started_ms(int64_t *ms); /* since 1970; moves with the clock, so ask once */

uint64_t srv_process_cpu_ns(void); /* user and system time of all threads */

#endif
