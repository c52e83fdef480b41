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

attn_status attn_file_open(attn_file *f, const char *path, attn_error *err)
{
    attn_status rc = ATTN_OK;
    struct stat st;

    /* Opening a pipe without O_NONBLOCK would wait for a writer. */
    *f = (attn_file){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (f->fd < 0)
        return fail_errno(err, path, "opened");
    if (fstat(f->fd, &st) != 0)
        rc = fail_errno(err, path, "examined");
    else if (S_ISDIR(st.st_mode))
        rc = attn_fail(err, ATTN_EIO, "%s: is a folder, not a file", path);
    else if (!S_ISREG(st.st_mode))
        rc = attn_fail(err, ATTN_EIO, "%s: is not a regular file", path);
    if (rc != ATTN_OK) {
        attn_file_close(f);
        return rc;
    }
    f->size = (uint64_t)st.st_size;
    f->modified = st.st_mtim;
    return ATTN_OK;
}

void attn_file_close(attn_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}

attn_status attn_file_read(const attn_file *f, uint64_t offset, void *out, size_t n,
                           attn_error *err)
{
    char *to = out;

    while (n > 0) {
        ssize_t got = pread(f->fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, f->path, "read");
        if (got == 0)
            return attn_fail(err, ATTN_EIO,
                             "%s: ends at byte %" PRIu64 ", %zu bytes early: "
                             "it had %" PRIu64 " bytes when it was opened",
                             f->path, offset, n, f->size);
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return ATTN_OK;
}

attn_status attn_file_check_unchanged(const attn_file *f, attn_error *err)
{
    struct stat st;

    if (fstat(f->fd, &st) != 0)
        return fail_errno(err, f->path, "examined");
    if ((uint64_t)st.st_size != f->size)
        return attn_fail(err, ATTN_EIO,
                         "%s: changed while it was read: it had %" PRIu64 " bytes, now %" PRIu64,
                         f->path, f->size, (uint64_t)st.st_size);
    if (st.st_mtim.tv_sec != f->modified.tv_sec || st.st_mtim.tv_nsec != f->modified.tv_nsec)
        return attn_fail(err, ATTN_EIO, "%s: was written to while it was read", f->path);
    return ATTN_OK;
}

char *attn_file_folder(const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    size_t n = strlen(path);

    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        if (slash == NULL)
            return strdup(".");
        n = (size_t)(slash - path) + 1;
    }
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

const char *attn_file_looks_like(const void *start, size_t n)
{
    static const struct {
        const char *start;
        size_t length;
        const char *what;
    } known[] = {
        {"version https://git-lfs", 23, "a Git LFS pointer (fetch the file itself: git lfs pull)"},
        {"PK\003\004", 4, "a zip archive (a PyTorch checkpoint or an .npz)"},
        {"PK\005\006", 4, "an empty zip archive"},
        {"\x93NUMPY", 6, "a NumPy .npy file"},
        {"GGUF", 4, "a GGUF file"},
        {"\x89HDF\r\n", 6, "an HDF5 file"},
        {"\x1f\x8b", 2, "a gzip file"},
        {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
        {"\x80\002", 2, "a Python pickle (an old PyTorch checkpoint)"},
        {"\x80\003", 2, "a Python pickle"},
        {"\x80\004", 2, "a Python pickle"},
        {"<!DOCTYPE", 9, "an HTML page (a failed download)"},
        {"<!doctype", 9, "an HTML page (a failed download)"},
        {"<html", 5, "an HTML page (a failed download)"},
        {"<?xml", 5, "an XML document (a failed download)"},
        {"{\"", 2, "a JSON document"},
        {"{\n", 2, "a JSON document"},
        {"\0\0\0\0\0\0\0\0", 8, "a file of zeros (a cut download)"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (n >= known[i].length && memcmp(start, known[i].start, known[i].length) == 0)
            return known[i].what;
    }
    return NULL;
}
