#include "tests/faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[64];

fault_page *faults_open(void)
{
    const char *attnd = getenv("ATTND");
    char library[4096], *real = NULL;

    /* It lies beside the tests of the same build. */
    if (attnd == NULL || *attnd == '\0')
        attnd = "build/attnd";
    const char *slash = strrchr(attnd, '/');
    (void)snprintf(library, sizeof library, "%.*s/tests/libfaults.so",
                   slash != NULL ? (int)(slash - attnd) : 1, slash != NULL ? attnd : ".");
    if ((real = realpath(library, NULL)) == NULL)
        return NULL;
    (void)snprintf(path, sizeof path, "/tmp/attnd-faults-XXXXXX");
    int fd = mkstemp(path);
    void *page = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(fault_page)) == 0)
        page = mmap(NULL, sizeof(fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (page != MAP_FAILED) {
        (void)setenv(FAULT_VARIABLE, path, 1);
        (void)setenv("LD_PRELOAD", real, 1);
    }
    free(real);
    return page == MAP_FAILED ? NULL : page;
}

void faults_close(void)
{
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv(FAULT_VARIABLE);
    if (path[0] != '\0')
        (void)unlink(path);
}

void faults_set(fault_page *f, fault_kind kind, long before, bool repeat, int error)
{
    atomic_store(&f->kind, FAULT_NONE);
    atomic_store(&f->before, before);
    atomic_store(&f->repeat, repeat);
    atomic_store(&f->error, error);
    atomic_store(&f->hits, 0);
    atomic_store(&f->kind, (int)kind);
}

long faults_clear(fault_page *f)
{
    atomic_store(&f->kind, FAULT_NONE);
    return atomic_load(&f->hits);
}
