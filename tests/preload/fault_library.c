/* Preloaded into the daemon by tests (tests/faults.h): counts its blocks, and lets calls fail on demand. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/faults.h"

/* What glibc's own functions are called as well. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static fault_page before_opened;
static fault_page *page = &before_opened;
static atomic_uint calls;

__attribute__((constructor)) static void open_page(void)
{
    const char *path = getenv(FAULT_VARIABLE);
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return;
    void *p = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (p == MAP_FAILED)
        return;
    fault_page *shared = p;
    atomic_store(&shared->live, atomic_load(&page->live));
    page = shared;
}

/* Does this call fail? */
static bool fails(fault_kind kind)
{
    if (atomic_load_explicit(&page->kind, memory_order_relaxed) != (int)kind)
        return false;
    long left = atomic_fetch_sub(&page->before, 1);
    if (left > 0 || (left < 0 && atomic_load(&page->repeat) == 0))
        return false;
    atomic_fetch_add(&page->hits, 1);
    return true;
}

static bool fails_with_error(fault_kind kind)
{
    if (!fails(kind))
        return false;
    errno = atomic_load(&page->error);
    return true;
}

/* EINTR for every second call, and one byte for the others. */
static bool interrupted(size_t *n)
{
    if (atomic_load_explicit(&page->interrupt, memory_order_relaxed) != 0 &&
        atomic_fetch_add(&calls, 1) % 2 == 0) {
        errno = EINTR;
        return true;
    }
    if (atomic_load_explicit(&page->shorten, memory_order_relaxed) != 0 && *n > 1)
        *n = 1;
    return false;
}

/* --- memory --- */

static void *counted(void *p)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&page->live, 1, memory_order_relaxed);
    return p;
}

static void *none(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n)
{
    return fails(FAULT_ALLOC) ? none() : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return fails(FAULT_ALLOC) ? none() : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
    if (p == NULL)
        return malloc(n);
    if (n == 0) {
        free(p);
        return NULL;
    }
    return fails(FAULT_ALLOC) ? none() : __libc_realloc(p, n);
}

void *memalign(size_t alignment, size_t n)
{
    return fails(FAULT_ALLOC) ? none() : counted(__libc_memalign(alignment, n));
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = memalign(alignment, n);
    if (p == NULL)
        return ENOMEM;
    *out = p;
    return 0;
}

void free(void *p)
{
    if (p == NULL)
        return;
    atomic_fetch_sub_explicit(&page->live, 1, memory_order_relaxed);
    __libc_free(p);
}

/* --- calls of the system --- */

/* The function of that name behind ours. */
#define NEXT(type, name)                                                                           \
    static type *next_;                                                                            \
    if (next_ == NULL) {                                                                           \
        void *found = dlsym(RTLD_NEXT, name);                                                      \
        memcpy(&next_, &found, sizeof next_);                                                      \
    }

static bool is_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

typedef ssize_t pread_function(int, void *, size_t, off_t);
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    NEXT(pread_function, "pread")
    if (fails_with_error(FAULT_READ) || interrupted(&n))
        return -1;
    return next_(fd, to, n, at);
}

typedef ssize_t read_function(int, void *, size_t);
ssize_t read(int fd, void *to, size_t n)
{
    NEXT(read_function, "read")
    if (is_file(fd) && (fails_with_error(FAULT_READ) || interrupted(&n)))
        return -1;
    return next_(fd, to, n);
}

typedef ssize_t write_function(int, const void *, size_t);
ssize_t write(int fd, const void *from, size_t n)
{
    NEXT(write_function, "write")
    if (fd == STDERR_FILENO && fails_with_error(FAULT_LOG))
        return -1;
    return next_(fd, from, n);
}

typedef ssize_t recv_function(int, void *, size_t, int);
ssize_t recv(int fd, void *to, size_t n, int flags)
{
    NEXT(recv_function, "recv")
    if ((flags & MSG_PEEK) == 0 && (fails_with_error(FAULT_RECV) || interrupted(&n)))
        return -1;
    return next_(fd, to, n, flags);
}

typedef ssize_t send_function(int, const void *, size_t, int);
ssize_t send(int fd, const void *from, size_t n, int flags)
{
    NEXT(send_function, "send")
    if (fails_with_error(FAULT_SEND) || interrupted(&n))
        return -1;
    return next_(fd, from, n, flags);
}

typedef ssize_t sendmsg_function(int, const struct msghdr *, int);
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    size_t n = 1;
    NEXT(sendmsg_function, "sendmsg")
    if (fails_with_error(FAULT_SEND) || interrupted(&n))
        return -1;
    return next_(fd, m, flags);
}

typedef ssize_t writev_function(int, const struct iovec *, int);
ssize_t writev(int fd, const struct iovec *v, int count)
{
    size_t n = 1;
    NEXT(writev_function, "writev")
    if (fails_with_error(FAULT_SEND) || interrupted(&n))
        return -1;
    return next_(fd, v, count);
}

typedef int accept_function(int, struct sockaddr *, socklen_t *, int);
int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags)
{
    NEXT(accept_function, "accept4")
    if (fails_with_error(FAULT_ACCEPT))
        return -1;
    return next_(fd, from, length, flags);
}

typedef int thread_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    NEXT(thread_function, "pthread_create")
    if (fails(FAULT_THREAD))
        return EAGAIN;
    return next_(t, a, run, arg);
}
