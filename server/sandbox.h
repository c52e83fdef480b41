/* sandbox.h: the daemon gives up what it does not need once its models are loaded (Landlock, Linux 5.13 and later).
 *
 * It can read the system's own files, what its configuration names, and what lies beside that (a model or a
 * certificate is replaced by renaming another over it), or is linked to from there; it can write, make and run nothing, but for the sockets that it
 * listens on. */
#ifndef SRV_SANDBOX_H
#define SRV_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *const
        *files; /* readable, with the folder that each lies in; NULLs are passed over */
    size_t num_files;
    const char *const *sockets; /* made and removed; NULLs are passed over */
    size_t num_sockets;
} srv_sandbox_options;

/* For the calling thread and all that it starts from now on, for good. False: the system has no Landlock, or refuses it;
 * nothing has changed then. */
bool srv_sandbox_enter(const srv_sandbox_options *o);

#endif
