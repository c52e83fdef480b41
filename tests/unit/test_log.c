#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/log.h"

static char captured[1 << 20];

/* Runs fn with stderr in a file and leaves what was written in `captured`. */
static size_t capture(void (*fn)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    fn();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    (void)close(saved);
    rewind(file);
    size_t n = fread(captured, 1, sizeof captured - 1, file);
    captured[n] = '\0';
    (void)fclose(file);
    return n;
}

static void assert_matches(const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&re, captured, 0, NULL, 0) != 0)
        fail_msg("no match of %s in: %s", pattern, captured);
    regfree(&re);
}

static void log_one(void)
{
    srv_log(SRV_LOG_INFO, "request", "answered",
            (const srv_log_field[]){SRV_STR("route", "/v1/models/{model}"), SRV_INT("status", 200),
                                    SRV_NUM("duration_s", 0.0125), SRV_STR("absent", NULL)},
            4);
}

static void a_json_line_has_all_fields_in_order(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, true);
    capture(log_one);
    assert_matches(
        "^\\{\"ts\":\"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z\","
        "\"level\":\"info\",\"msg\":\"answered\",\"event\":\"request\","
        "\"route\":\"/v1/models/\\{model\\}\",\"status\":200,\"duration_s\":0\\.0125\\}\n$");
}

static void a_text_line_reads_as_words(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, false);
    capture(log_one);
    assert_matches("^[0-9T:.-]+Z info  request: answered route=/v1/models/\\{model\\} status=200 "
                   "duration_s=0\\.0125\n$");
}

static void log_hostile(void)
{
    srv_log(SRV_LOG_ERROR, "x", "two\nlines",
            (const srv_log_field[]){SRV_STR("a", "q\"\\\n\t\x01\x7f"), SRV_STR("b", "\xff\xc3"),
                                    SRV_STR("c", "\xc3\xa9\xf0\x9f\x98\x80"),
                                    SRV_STR("d", "\xc0\xaf\xed\xa0\x80"), SRV_STR("e", "")},
            5);
}

static void hostile_strings_are_escaped(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, true);
    capture(log_hostile);
    const char *want =
        "\"msg\":\"two\\nlines\",\"event\":\"x\",\"a\":\"q\\\"\\\\\\n\\t\\u0001\\u007f\","
        "\"b\":\"\xef\xbf\xbd\xef\xbf\xbd\",\"c\":\"\xc3\xa9\xf0\x9f\x98\x80\","
        "\"d\":\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\","
        "\"e\":\"\"}\n";
    const char *at = strstr(captured, "\"msg\"");
    assert_non_null(at);
    assert_string_equal(at, want);

    srv_log_init(SRV_LOG_INFO, false);
    capture(log_hostile);
    assert_non_null(strstr(captured, " x: \"two\\nlines\" a=\"q\\\"\\\\\\n\\t\\u0001\\u007f\""));
    assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void log_numbers(void)
{
    srv_log(SRV_LOG_INFO, "n", "m",
            (const srv_log_field[]){SRV_NUM("a", 0), SRV_NUM("b", 1.5), SRV_NUM("c", 0.000001),
                                    SRV_NUM("d", -2.25), SRV_NUM("e", NAN), SRV_NUM("f", INFINITY),
                                    SRV_NUM("g", 123456.7891234), SRV_NUM("h", -1e-9),
                                    SRV_INT("i", INT64_MIN)},
            9);
}

static void numbers_are_json_whatever_they_are(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, true);
    capture(log_numbers);
    assert_non_null(strstr(captured, "\"a\":0.0,\"b\":1.5,\"c\":0.000001,\"d\":-2.25,\"e\":null,"
                                     "\"f\":null,\"g\":123456.789123,\"h\":0.0,"
                                     "\"i\":-9223372036854775808}\n"));
}

static void log_long(void)
{
    static char text[1 << 16];
    memset(text, '"', sizeof text - 1);
    srv_log_field f[32];
    for (size_t i = 0; i < 31; i++)
        f[i] = SRV_STR("long", text);
    f[31] = SRV_INT("last", 1);
    srv_log(SRV_LOG_INFO, "long", text, f, 32);
}

static void a_line_too_long_stays_well_formed(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, true);
    size_t n = capture(log_long);
    assert_true(n < 8192);
    assert_string_equal(captured + n - 3, "1}\n"); /* the small field still had room */
    size_t quotes = 0;
    for (size_t i = 0; i < n; i++) {
        if (captured[i] == '\\')
            i++;
        else
            quotes += captured[i] == '"';
    }
    assert_int_equal(quotes % 2, 0);
}

static void log_levels(void)
{
    srv_log(SRV_LOG_ERROR, "e", "m", NULL, 0);
    srv_log(SRV_LOG_WARN, "w", "m", NULL, 0);
    srv_log(SRV_LOG_INFO, "i", "m", NULL, 0);
    srv_log(SRV_LOG_DEBUG, "d", "m", NULL, 0);
}

static void levels_above_the_chosen_one_are_silent(void **state)
{
    (void)state;
    static const srv_log_level levels[] = {SRV_LOG_ERROR, SRV_LOG_WARN, SRV_LOG_INFO,
                                           SRV_LOG_DEBUG};
    for (size_t l = 0; l < 4; l++) {
        srv_log_init(levels[l], true);
        capture(log_levels);
        size_t lines = 0;
        for (const char *c = captured; *c != '\0'; c++)
            lines += *c == '\n';
        assert_int_equal(lines, l + 1);
        assert_true(srv_log_enabled(levels[l]));
        assert_false(l < 3 && srv_log_enabled(SRV_LOG_DEBUG));
    }
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 200; i++)
        srv_log(SRV_LOG_INFO, "many", "from a thread",
                (const srv_log_field[]){SRV_STR("name", arg), SRV_INT("i", i)}, 2);
    return NULL;
}

static void log_from_threads(void)
{
    static char names[4][8] = {"one", "two", "three", "four"};
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, log_many, names[i]), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    srv_log_init(SRV_LOG_INFO, true);
    capture(log_from_threads);
    size_t lines = 0;
    for (char *save = NULL, *line = strtok_r(captured, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        assert_memory_equal(line, "{\"ts\":\"", 7);
        assert_int_equal(line[strlen(line) - 1], '}');
        assert_null(strstr(line + 1, "{\"ts\""));
        lines++;
    }
    assert_int_equal(lines, 800);
}

/* --- nobody takes the lines: a call that waited would end the test by SIGALRM --- */

static int real_stderr;

static void stderr_is(int fd)
{
    if (real_stderr == 0)
        real_stderr = dup(STDERR_FILENO);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    srv_log_init(SRV_LOG_INFO, true);
    (void)alarm(20);
}

static void stderr_is_back(void)
{
    (void)alarm(0);
    assert_int_equal(dup2(real_stderr, STDERR_FILENO), STDERR_FILENO);
}

static void log_six_kilobytes(void)
{
    static char text[1001];
    memset(text, 'x', sizeof text - 1);
    srv_log(SRV_LOG_INFO, "long", "m",
            (const srv_log_field[]){SRV_STR("a", text), SRV_STR("b", text), SRV_STR("c", text),
                                    SRV_STR("d", text), SRV_STR("e", text), SRV_STR("f", text)},
            6);
}

static size_t empty(int fd)
{
    size_t n = 0;
    ssize_t got;
    while (n < sizeof captured - 1 && (got = read(fd, captured + n, sizeof captured - 1 - n)) > 0)
        n += (size_t)got;
    captured[n] = '\0';
    return n;
}

static void a_pipe_that_nobody_reads_loses_lines_and_says_so(void **state)
{
    int fd[2];
    uint64_t before = srv_log_lost();
    (void)state;

    assert_int_equal(pipe(fd), 0);
    assert_int_equal(fcntl(fd[0], F_SETFL, O_NONBLOCK), 0);
    stderr_is(fd[1]);
    for (int i = 0; i < 100; i++) /* over 600 KB, a pipe has 64 */
        log_six_kilobytes();
    uint64_t lost = srv_log_lost() - before;
    assert_in_range(lost, 80, 99);
    (void)empty(fd[0]);
    log_one();
    stderr_is_back();
    assert_int_equal(srv_log_lost() - before, lost);
    (void)empty(fd[0]);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "\"event\":\"log\",\"lines\":%d}\n{", (int)lost);
    assert_non_null(strstr(captured, expected)); /* and then the line itself */
    assert_true(captured[0] == '{' || strncmp(captured, "\n{", 2) == 0);
    assert_non_null(strstr(captured, "\"status\":200"));
    (void)close(fd[0]);
    (void)close(fd[1]);
}

static void a_reader_that_left_and_a_full_disk_are_no_end(void **state)
{
    int fd[2], full = open("/dev/full", O_WRONLY);
    uint64_t before = srv_log_lost();
    (void)state;

    (void)signal(SIGPIPE, SIG_IGN); /* as the daemon has it */
    assert_int_equal(pipe(fd), 0);
    (void)close(fd[0]);
    stderr_is(fd[1]);
    log_one();
    stderr_is_back();
    (void)close(fd[1]);
    assert_int_equal(srv_log_lost() - before, 1);
    if (full < 0) {
        printf("skipped: a full disk: there is no /dev/full\n");
        return;
    }
    stderr_is(full);
    log_one();
    stderr_is_back();
    (void)close(full);
    assert_int_equal(srv_log_lost() - before, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_json_line_has_all_fields_in_order),
        cmocka_unit_test(a_text_line_reads_as_words),
        cmocka_unit_test(hostile_strings_are_escaped),
        cmocka_unit_test(numbers_are_json_whatever_they_are),
        cmocka_unit_test(a_line_too_long_stays_well_formed),
        cmocka_unit_test(levels_above_the_chosen_one_are_silent),
        cmocka_unit_test(lines_of_threads_do_not_mix),
        cmocka_unit_test(a_pipe_that_nobody_reads_loses_lines_and_says_so),
        cmocka_unit_test(a_reader_that_left_and_a_full_disk_are_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
