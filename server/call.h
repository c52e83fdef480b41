/* call.h: the routes that compute: attention, estimates, the Open Inference Protocol, whole encoders. */
#ifndef SRV_CALL_H
#define SRV_CALL_H

#include "server/app.h"

extern const srv_route srv_call_routes[];
extern const size_t srv_num_call_routes;

#endif
