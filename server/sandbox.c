#include "server/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define OF_FILES                                                                                   \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE)
#define SOCKETS (LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* All that the first version knows; later ones add to it, and what is not handled stays allowed. */
#define HANDLED                                                                                    \
    (READING | SOCKETS | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |              \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |  \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |  \
     LANDLOCK_ACCESS_FS_MAKE_SYM)

/* Libraries that are found late (names of hosts), and what /metrics reads. */
static const char *const system_files[] = {"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys"};

/* What cannot be opened has no rule, and needs none. A rule about a file may say nothing of folders. */
static void allow(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    struct stat st;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return;
    if (fstat(rule.parent_fd, &st) != 0 || !S_ISDIR(st.st_mode))
        rule.allowed_access &= OF_FILES;
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

/* Where the links in a folder lead: caches of models keep files elsewhere, under names of their own. */
static void allow_linked(int rules, const char *folder, int below)
{
    DIR *d = opendir(folder);
    char path[PATH_MAX];
    struct stat st;

    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' || n < 0 || (size_t)n >= sizeof path || lstat(path, &st) != 0)
            continue;
        char *real = S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
        if (real != NULL)
            allow_beside(rules, real, READING);
        else if (S_ISDIR(st.st_mode) && below > 0)
            allow_linked(rules, path, below - 1);
        free(real);
    }
    if (d != NULL)
        (void)closedir(d);
}

static void allow_all(int rules, const srv_sandbox_options *o)
{
    enum { DEPTH = 1 }; /* of folders in a model's folder: 1_Pooling */

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
        allow_linked(rules, o->files[i], DEPTH);
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
