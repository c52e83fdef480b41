#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

void fuzz_fail(const char *file, int line, const char *claim)
{
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, claim);
    abort();
}

unsigned fuzz_byte(fuzz_input *in)
{
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->at++;
}

fuzz_input fuzz_part(fuzz_input *in)
{
    static const char line[] = "\n--\n";
    fuzz_input part = *in;
    const uint8_t *end = in->n > 0 ? memmem(in->at, in->n, line, sizeof line - 1) : NULL;

    if (end == NULL) {
        in->at += in->n;
        in->n = 0;
        return part;
    }
    part.n = (size_t)(end - in->at);
    in->at += part.n + sizeof line - 1;
    in->n -= part.n + sizeof line - 1;
    return part;
}

char *fuzz_copy(const void *bytes, size_t n)
{
    char *copy = malloc(n > 0 ? n : 1);

    FUZZ_CHECK(copy != NULL);
    if (n > 0)
        memcpy(copy, bytes, n);
    return copy;
}

char *fuzz_text(const void *bytes, size_t n)
{
    char *copy = malloc(n + 1);

    FUZZ_CHECK(copy != NULL);
    if (n > 0)
        memcpy(copy, bytes, n);
    copy[n] = '\0';
    return copy;
}

fuzz_cuts fuzz_cuts_of(unsigned byte)
{
    return (fuzz_cuts){.how = byte, .state = byte * 2654435761u + 1};
}

size_t fuzz_cut(fuzz_cuts *c, size_t left)
{
    if (c->how == 0)
        return left;
    c->state ^= c->state << 13;
    c->state ^= c->state >> 17;
    c->state ^= c->state << 5;
    size_t n = c->how == 1 ? 1 : 1 + c->state % c->how;
    return n < left ? n : left;
}

bool fuzz_same_error(const attn_error *a, const attn_error *b)
{
    return a->code == b->code && strcmp(a->text, b->text) == 0 &&
           strcmp(a->pointer, b->pointer) == 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static char folder[256];

static void remove_folder(void)
{
    DIR *d = opendir(folder);

    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        (void)unlinkat(dirfd(d), e->d_name, 0); /* "." and ".." stay */
    if (d != NULL)
        (void)closedir(d);
    (void)rmdir(folder);
}

const char *fuzz_folder(void)
{
    const char *tmp = getenv("TMPDIR");

    if (folder[0] != '\0')
        return folder;
    if (tmp == NULL)
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int n = snprintf(folder, sizeof folder, "%s/attnd-fuzz-XXXXXX", tmp);
    FUZZ_CHECK(n > 0 && (size_t)n < sizeof folder && mkdtemp(folder) != NULL);
    FUZZ_CHECK(atexit(remove_folder) == 0);
    return folder;
}

void fuzz_file(const char *name, const void *bytes, size_t n)
{
    char path[sizeof folder + 128];

    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    if (bytes == NULL) {
        (void)unlink(path);
        return;
    }
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f != NULL);
    FUZZ_CHECK(fwrite(bytes, 1, n, f) == n);
    FUZZ_CHECK(fclose(f) == 0);
}
