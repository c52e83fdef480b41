#include "server/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Reads a small file whole; false when there is nothing. */
static bool read_text(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(out, 1, size - 1, f) : 0;

    if (f != NULL)
        (void)fclose(f);
    out[n] = '\0';
    return n > 0;
}

bool srv_process_resident_bytes(uint64_t *bytes)
{
    char text[256];
    long page = sysconf(_SC_PAGESIZE);

    if (page <= 0 || !read_text("/proc/self/statm", text, sizeof text))
        return false;
    const char *resident = strchr(text, ' '); /* behind the size, in pages as it is */
    if (resident == NULL)
        return false;
    *bytes = (uint64_t)strtoull(resident, NULL, 10) * (uint64_t)page;
    return true;
}

bool srv_process_open_fds(uint64_t *fds)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (dir == NULL)
        return false;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    *fds = n > 0 ? n - 1 : 0; /* not the one of this folder */
    return true;
}

bool srv_process_started_ms(int64_t *ms)
{
    enum { STARTED = 22, AFTER_NAME = 3 }; /* fields of /proc/self/stat, see proc(5) */
    char text[1024];
    struct timespec now = {0}, boot = {0};
    long ticks = sysconf(_SC_CLK_TCK);

    if (ticks <= 0 || !read_text("/proc/self/stat", text, sizeof text) ||
        clock_gettime(CLOCK_REALTIME, &now) != 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0)
        return false;
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = AFTER_NAME; at != NULL && field <= STARTED; field++)
        at = strchr(at + 1, ' ');
    if (at == NULL)
        return false;
    int64_t since_boot = (int64_t)strtoull(at, NULL, 10) * 1000 / ticks;
    *ms = ((int64_t)now.tv_sec - boot.tv_sec) * 1000 + (now.tv_nsec - boot.tv_nsec) / 1000000 +
          since_boot;
    return true;
}

uint64_t srv_process_cpu_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
