/* serve.h: the commands that load models. */
#ifndef SRV_SERVE_H
#define SRV_SERVE_H

#include "config/config.h"

/* Loads, serves until SIGTERM or SIGINT, and returns the exit code. */
int srv_serve(const cfg_config *config);

/* Loads and prints what would be served and the memory plan; 0, or 1 after one sentence on stderr. */
int srv_check_config(const cfg_config *config);

#endif
