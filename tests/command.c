#include "tests/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/daemon.h"
#include "tests/rawhttp.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

static const double LIMIT = SLOW ? 20 : 2;

test_command command_run(const char *const *args)
{
    test_command c = {0};
    long long begin = raw_now_ms();
    c.code = daemon_run(args, &c.out, &c.err);
    c.seconds = (double)(raw_now_ms() - begin) / 1000;
    return c;
}

void command_free(test_command *c)
{
    free(c->out);
    free(c->err);
    memset(c, 0, sizeof *c);
}

static void show(const char *const *args, const test_command *c)
{
    printf("attnd");
    for (; *args != NULL; args++)
        printf(" '%s'", *args);
    printf("\nexit code %d after %.2f s\n--- stdout\n%.2000s\n--- stderr\n%.2000s\n---\n", c->code,
           c->seconds, c->out, c->err);
}

test_command command_succeed(const char *const *args)
{
    test_command c = command_run(args);
    if (c.code != 0) {
        show(args, &c);
        fail_msg("exit code %d", c.code);
    }
    return c;
}

/* The sentence at the end of stderr, or NULL when there is more or less than log lines and one. */
static const char *sentence_of(const char *err)
{
    while (*err == '{' && strchr(err, '\n') != NULL)
        err = strchr(err, '\n') + 1;
    const char *end = strchr(err, '\n');
    if (strncmp(err, "attnd: ", 7) != 0 || end == NULL)
        return NULL;
    /* LeakSanitizer's word on a thread that was joined and has not quite gone. */
    bool alone = end[1] == '\0' || (end[1] == '=' && strstr(end, "was not suspended") != NULL);
    return alone ? err : NULL;
}

void command_refuse(const char *const *args, int code, const char *const *words)
{
    test_command c = command_run(args);
    const char *sentence = sentence_of(c.err), *why = NULL;

    if (c.code != code)
        why = "another exit code";
    else if (c.seconds > LIMIT)
        why = "it took too long";
    else if (sentence == NULL)
        why = "stderr is not one sentence";
    else if (*c.out)
        why = "there is something on stdout";
    if (why != NULL) {
        show(args, &c);
        fail_msg("exit code %d expected: %s", code, why);
    }
    for (; words != NULL && *words != NULL; words++) {
        if (strstr(sentence, *words) == NULL) {
            show(args, &c);
            fail_msg("the sentence does not say \"%s\"", *words);
        }
    }
    command_free(&c);
}
