#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LONGEST_PATH = 4096,
    LONGEST_FILE = 65536,
    MAX_CPUS = 1 << 16 /* where the search for the size of the kernel's mask ends */
};

/* cgroup v1 writes "no limit" as the largest multiple of the page size below 2^63. */
static const uint64_t V1_NO_LIMIT = (uint64_t)1 << 62;

unsigned attn_cpu_flags(void)
{
    unsigned flags = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        flags |= ATTN_CPU_AVX2;
    if ((flags & ATTN_CPU_AVX2) != 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        flags |= ATTN_CPU_AVX512;
#elif defined(__aarch64__)
    flags |= ATTN_CPU_NEON; /* part of the architecture */
#endif
    return flags;
}

/* Reads root/path as a string, cut at size - 1 bytes. Files of /proc say no length: read to the end. */
static bool read_text(const char *root, const char *path, char *text, size_t size)
{
    char full[LONGEST_PATH];
    int length = snprintf(full, sizeof full, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof full)
        return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;

    size_t have = 0;
    while (have < size - 1) {
        ssize_t got = read(fd, text + have, size - 1 - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    (void)close(fd);
    text[have] = '\0';
    return have > 0;
}

/* The unsigned number at the start of text; *end is behind it. */
static bool parse_number(const char *text, const char **end, uint64_t *out)
{
    char *stop;
    if (*text < '0' || *text > '9')
        return false; /* strtoull() takes signs */
    errno = 0;
    *out = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool read_number(const char *root, const char *path, uint64_t *out)
{
    char text[64];
    const char *end;
    return read_text(root, path, text, sizeof text) && parse_number(text, &end, out);
}

static void lower_quota(attn_limits *l, uint64_t quota, uint64_t period)
{
    if (quota == 0 || period == 0)
        return;
    double cpus = (double)quota / (double)period;
    if (l->quota <= 0 || cpus < l->quota)
        l->quota = cpus;
}

static void lower_memory(attn_limits *l, uint64_t bytes)
{
    if (l->cgroup == 0 || bytes < l->cgroup)
        l->cgroup = bytes;
}

/* One folder of a hierarchy. What is not there or says "max" is no limit. */
typedef void read_folder(attn_limits *l, const char *root, const char *folder);

static void read_v2(attn_limits *l, const char *root, const char *folder)
{
    char path[LONGEST_PATH], text[64];
    uint64_t quota, period = 100000, bytes;
    const char *end;

    (void)snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_text(root, path, text, sizeof text) && parse_number(text, &end, &quota)) {
        if (*end == ' ')
            (void)parse_number(end + 1, &end, &period);
        lower_quota(l, quota, period);
    }
    (void)snprintf(path, sizeof path, "%s/memory.max", folder);
    if (read_number(root, path, &bytes))
        lower_memory(l, bytes);
}

static void read_v1_cpu(attn_limits *l, const char *root, const char *folder)
{
    char path[LONGEST_PATH];
    uint64_t quota, period;

    (void)snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_number(root, path, &quota)) /* -1 = no limit */
        return;
    (void)snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (read_number(root, path, &period))
        lower_quota(l, quota, period);
}

static void read_v1_memory(attn_limits *l, const char *root, const char *folder)
{
    char path[LONGEST_PATH];
    uint64_t bytes;

    (void)snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
    if (read_number(root, path, &bytes) && bytes < V1_NO_LIMIT)
        lower_memory(l, bytes);
}

/* Reads the cgroup at mount + group and its parents up to the mount. A container often sees its own
 * cgroup as the mount while /proc names it as the host does: folders that are not there are passed
 * over. A group outside of the namespace ("/../x") cannot be seen at all. */
static void read_upwards(attn_limits *l, const char *root, const char *mount, const char *group,
                         read_folder *read)
{
    char folder[LONGEST_PATH - 64];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    size_t top = strlen(mount);

    if (length < 0 || (size_t)length >= sizeof folder || strncmp(group, "/..", 3) == 0)
        (void)snprintf(folder, sizeof folder, "%s", mount);
    for (;;) {
        size_t n = strlen(folder);
        while (n > top && folder[n - 1] == '/')
            folder[--n] = '\0';
        read(l, root, folder);
        if (n <= top)
            return;
        *strrchr(folder, '/') = '\0';
    }
}

static bool names_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (;;) {
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || list[n] == '\0'))
            return true;
        list = strchr(list, ',');
        if (list == NULL)
            return false;
        list++;
    }
}

/* A v1 hierarchy is mounted under the list of its controllers, with a link for each of them; where
 * the links are missing, the list has them. Reading a folder twice changes nothing. */
static void read_v1(attn_limits *l, const char *root, const char *list, const char *name,
                    const char *group, read_folder *read)
{
    char mount[512];

    if (!names_controller(list, name))
        return;
    (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", name);
    read_upwards(l, root, mount, group, read);
    if (strcmp(list, name) != 0) {
        (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", list);
        read_upwards(l, root, mount, group, read);
    }
}

/* /proc/self/cgroup has a line "number:controllers:group" for each v1 hierarchy, "0::group" for v2. */
static void read_cgroups(attn_limits *l, const char *root)
{
    char *text = malloc(LONGEST_FILE);
    char *rest = NULL;

    if (text == NULL)
        return;
    if (!read_text(root, "/proc/self/cgroup", text, LONGEST_FILE))
        text[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *list = strchr(line, ':');
        char *group = list != NULL ? strchr(list + 1, ':') : NULL;
        if (group == NULL)
            continue;
        list++;
        *group++ = '\0';
        if (*list == '\0') {
            read_upwards(l, root, "/sys/fs/cgroup", group, read_v2);
            read_upwards(l, root, "/sys/fs/cgroup/unified", group, read_v2);
        } else {
            read_v1(l, root, list, "cpu", group, read_v1_cpu);
            read_v1(l, root, list, "memory", group, read_v1_memory);
        }
    }
    free(text);
}

static uint64_t read_physical(const char *root)
{
    char text[4096];
    const char *line = NULL, *end;
    uint64_t kib;

    if (read_text(root, "/proc/meminfo", text, sizeof text))
        line = strstr(text, "MemTotal:");
    if (line != NULL) {
        line += strlen("MemTotal:");
        line += strspn(line, " ");
        if (parse_number(line, &end, &kib) && kib <= UINT64_MAX / 1024)
            return kib * 1024;
    }
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static size_t read_affinity(void)
{
    for (int bits = CPU_SETSIZE; bits <= MAX_CPUS; bits *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(bits);
        cpu_set_t *set = CPU_ALLOC(bits);
        if (set == NULL)
            return 1;
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return (size_t)count;
    }
    return 1;
}

void attn_limits_read(attn_limits *out, const char *root)
{
    memset(out, 0, sizeof *out);
    out->affinity = read_affinity();
    out->physical = read_physical(root);
    read_cgroups(out, root);

    out->threads = out->affinity;
    if (out->quota > 0 && out->quota < (double)out->affinity)
        out->threads = out->quota < 1 ? 1 : (size_t)out->quota;
    out->memory = out->physical;
    if (out->cgroup > 0 && (out->physical == 0 || out->cgroup < out->physical))
        out->memory = out->cgroup;
}

#if defined(__x86_64__)

uint64_t attn_flush_subnormals(void)
{
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 }; /* of MXCSR */
    unsigned state = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(state | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return state;
}

void attn_restore_float_state(uint64_t state)
{
    __builtin_ia32_ldmxcsr((unsigned)state);
}

#elif defined(__aarch64__)

uint64_t attn_flush_subnormals(void)
{
    const uint64_t flush_to_zero = UINT64_C(1) << 24; /* FPCR.FZ */
    uint64_t state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    __asm__ volatile("msr fpcr, %0" ::"r"(state | flush_to_zero));
    return state;
}

void attn_restore_float_state(uint64_t state)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(state));
}

#else

uint64_t attn_flush_subnormals(void)
{
    return 0;
}

void attn_restore_float_state(uint64_t state)
{
    (void)state;
}

#endif
