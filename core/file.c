#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_status fail_errno(attn_error *err, const char *path, const char *verb)
{
    char buffer[128];
    return attn_fail(err, ATTN_EIO, "%s: cannot be %s: %s", path, verb,
                     strerror_r(errno, buffer, sizeof buffer));
}

attn_status attn_file_open(const char *path, int *fd, uint64_t *size, attn_error *err)
{
    attn_status rc = ATTN_OK;
    struct stat st;
    /* Opening a pipe without O_NONBLOCK would wait for a writer. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    *fd = -1;
    if (file < 0)
        return fail_errno(err, path, "opened");
    if (fstat(file, &st) != 0)
        rc = fail_errno(err, path, "examined");
    else if (S_ISDIR(st.st_mode))
        rc = attn_fail(err, ATTN_EIO, "%s: is a folder, not a file", path);
    else if (!S_ISREG(st.st_mode))
        rc = attn_fail(err, ATTN_EIO, "%s: is not a regular file", path);
    if (rc != ATTN_OK) {
        (void)close(file);
        return rc;
    }
    *size = (uint64_t)st.st_size;
    *fd = file;
    return ATTN_OK;
}

attn_status attn_file_read(int fd, const char *path, uint64_t offset, void *out, size_t n,
                           attn_error *err)
{
    char *to = out;

    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, path, "read");
        if (got == 0)
            return attn_fail(err, ATTN_EIO,
                             "%s: ends at byte %" PRIu64 ", where %zu more bytes were expected; "
                             "has it changed since it was opened?",
                             path, offset, n);
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return ATTN_OK;
}
