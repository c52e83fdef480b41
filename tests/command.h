/* command.h: the program run to its end, and held to what every command promises. */
#ifndef TESTS_COMMAND_H
#define TESTS_COMMAND_H

/* "COMMAND("check", "--model", path)": a NULL-terminated list. */
#define COMMAND(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct {
    int code; /* 128 + signal when a signal ended it */
    char *out, *err;
    double seconds;
} test_command;

test_command command_run(const char *const *args);
void command_free(test_command *c);

/* Runs it; the test fails unless it exits 0. */
test_command command_succeed(const char *const *args);

/* Runs it; the test fails unless it ends within 2 s (20 under a sanitizer) with this code, with
 * nothing on stdout, and with one sentence on stderr, "attnd: ...", that holds every word of the
 * NULL-terminated list. Log lines, JSON objects, may come before the sentence. */
void command_refuse(const char *const *args, int code, const char *const *words);

#endif
