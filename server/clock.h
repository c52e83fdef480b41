/* clock.h: the clock of all deadlines. */
#ifndef SRV_CLOCK_H
#define SRV_CLOCK_H

#include <stdint.h>

int64_t srv_now_ms(void); /* CLOCK_MONOTONIC */
double srv_now_s(void);   /* the same, in seconds */

#endif
