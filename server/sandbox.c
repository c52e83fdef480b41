#include "server/sandbox.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define SOCKETS (LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* All that the first version knows; later ones add to it, and what is not handled stays allowed. */
#define HANDLED                                                                                    \
    (READING | SOCKETS | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |              \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |  \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |  \
     LANDLOCK_ACCESS_FS_MAKE_SYM)

/* Libraries that are found late (names of hosts), and what /metrics reads. */
static const char *const system_files[] = {"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys"};

/* What cannot be opened has no rule, and needs none. */
static void allow(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return;
    (void)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    (void)close(rule.parent_fd);
}

/* The folder that a path's last part lies in. */
static void allow_beside(int rules, const char *path, uint64_t access)
{
    char folder[PATH_MAX];
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof folder)
        return;
    (void)snprintf(folder, sizeof folder, "%.*s", n > 0 ? (int)n : 1, n > 0 ? path : ".");
    allow(rules, strcmp(folder, "/") == 0 ? path : folder, access); /* not all there is */
}

static void allow_all(int rules, const srv_sandbox_options *o)
{
    for (size_t i = 0; i < sizeof system_files / sizeof *system_files; i++)
        allow(rules, system_files[i], READING);
    for (size_t i = 0; i < o->num_files; i++) {
        if (o->files[i] == NULL || o->files[i][0] == '\0')
            continue;
        char *real = realpath(o->files[i], NULL);
        allow_beside(rules, o->files[i], READING);
        if (real != NULL) /* a symbolic link may be set to another folder beside the one it names */
            allow_beside(rules, real, READING);
        free(real);
    }
    for (size_t i = 0; i < o->num_sockets; i++) {
        if (o->sockets[i] != NULL)
            allow_beside(rules, o->sockets[i], READING | SOCKETS);
    }
}

bool srv_sandbox_enter(const srv_sandbox_options *o)
{
    const struct landlock_ruleset_attr attr = {.handled_access_fs = HANDLED};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

    if (rules < 0)
        return false;
    allow_all(rules, o);
    bool entered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    (void)close(rules);
    return entered;
}
