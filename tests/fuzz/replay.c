/* Runs files, and all files of folders, through the target that it is linked with. Built by afl-clang-fast it is a
 * target for AFL++ in persistent mode when it is called without arguments. */
#include "tests/fuzz/fuzz.h"

#include <fts.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#ifdef __AFL_FUZZ_TESTCASE_LEN
__AFL_FUZZ_INIT();

static void fuzz_for_afl(void)
{
    __AFL_INIT();
    const unsigned char *bytes = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(10000)) {
        size_t n = (size_t)__AFL_FUZZ_TESTCASE_LEN;
        char *copy = fuzz_copy(bytes, n);
        (void)LLVMFuzzerTestOneInput((const uint8_t *)copy, n);
        free(copy);
    }
}
#endif

/* The input that runs, told when the process dies. */
static const char *now = "none yet";

static void say_input(void)
{
    (void)!write(2, "input: ", 7);
    (void)!write(2, now, strlen(now));
    (void)!write(2, "\n", 1);
}

static void on_fault(int sig)
{
    say_input();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

/* Sanitizers end the process in their own way. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch_for_faults(void)
{
    static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(say_input);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        (void)signal(faults[i], on_fault);
}

static void replay(const char *path)
{
    size_t n = 0, room = 1 << 16;
    char *bytes = malloc(room);
    FILE *f = fopen(path, "rb");

    FUZZ_CHECK(bytes != NULL);
    if (f == NULL) {
        perror(path);
        exit(2);
    }
    for (size_t got; (got = fread(bytes + n, 1, room - n, f)) > 0;) {
        n += got;
        if (n == room) {
            room *= 2;
            bytes = realloc(bytes, room);
            FUZZ_CHECK(bytes != NULL);
        }
    }
    (void)fclose(f);
    char *exact = fuzz_copy(bytes, n);
    free(bytes);
    now = path;
    (void)LLVMFuzzerTestOneInput((const uint8_t *)exact, n);
    free(exact);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

int main(int argc, char **argv)
{
    size_t count = 0;

#ifdef __AFL_FUZZ_TESTCASE_LEN
    if (argc == 1) {
        fuzz_for_afl();
        return 0;
    }
#endif
    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s FILE|FOLDER...\n", argv[0]);
        return 2;
    }
    watch_for_faults();
    FTS *walk = fts_open(argv + 1, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    FUZZ_CHECK(walk != NULL);
    for (const FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk)) {
        if (e->fts_info == FTS_NS || e->fts_info == FTS_ERR || e->fts_info == FTS_DNR) {
            (void)fprintf(stderr, "%s: %s\n", e->fts_path, strerror(e->fts_errno));
            return 2;
        }
        if (e->fts_info == FTS_F) {
            replay(e->fts_path);
            count++;
        }
    }
    (void)fts_close(walk);
    (void)printf("%zu inputs\n", count);
    return 0;
}
