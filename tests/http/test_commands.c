/* Every command of the command line as a process: what it prints, where, and how it ends. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/st.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static char *folder_;

static int start(void **state)
{
    (void)state;
    folder_ = st_temp_dir();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    st_remove_dir(folder_);
    return 0;
}

static void contains(const char *text, const char *word)
{
    if (strstr(text, word) == NULL)
        fail_msg("\"%s\" is not in:\n%s", word, text);
}

/* --- serve ----------------------------------------------------------------------------------- */

static void serve_prints_one_line_when_it_is_ready(void **state)
{
    const char *const *const FORMS[] = {COMMAND("serve"), (const char *const[]){NULL},
                                        COMMAND("--set", "log.level=debug"),
                                        COMMAND("serve", "--set", "log.format=text")};
    (void)state;

    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        test_daemon *d = daemon_start(FORMS[i]);
        unsigned port = 0;
        char *more = NULL;
        assert_int_equal(sscanf(daemon_url(d), "http://127.0.0.1:%u", &port), 1);
        assert_in_range(port, 1, 65535);
        test_reply r = daemon_request(d, "GET", "/health/ready", NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        kill(daemon_pid(d), SIGTERM);
        assert_int_equal(daemon_wait(d, 10000, &more), 0);
        assert_string_equal(more, "");
        free(more);
    }
}

static int bound_socket(int family, unsigned *port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t n = family == AF_INET ? sizeof v4 : sizeof v6;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, a, n) != 0 || listen(fd, 1) != 0 || getsockname(fd, a, &n) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    return fd;
}

static void serve_listens_on_ipv6_too(void **state)
{
    unsigned port;
    int fd = bound_socket(AF_INET6, &port);
    (void)state;

    if (fd < 0) {
        printf("skipped: IPv6: there is no [::1] on this machine\n");
        skip();
    }
    close(fd);
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", "[::1]:0"));
    assert_int_equal(sscanf(daemon_url(d), "http://[::1]:%u", &port), 1);
    test_reply r = daemon_request(d, "GET", "/health/ready", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    daemon_stop(d);
}

static void an_address_that_cannot_be_had_is_one_sentence(void **state)
{
    static const char *const BAD[] = {"",           "nonsense",        "127.0.0.1",
                                      "127.0.0.1:", ":8080:",          "127.0.0.1:-1",
                                      "[::1:80",    "127.0.0.1:65536", "host:name:1"};
    unsigned port;
    int fd = bound_socket(AF_INET, &port);
    char *taken = st_path("127.0.0.1:%u", port), *set;
    (void)state;

    assert_true(fd >= 0);
    command_refuse(COMMAND("serve", "--listen", taken), 1, WORDS(taken, "in use"));
    command_refuse(COMMAND("serve", "--listen", "192.0.2.1:0"), 1, WORDS("192.0.2.1"));
    command_refuse(COMMAND("serve", "--listen", "no-such-host.invalid:0"), 1,
                   WORDS("no-such-host.invalid"));
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        set = st_path("server.listen=%s", BAD[i]);
        command_refuse(COMMAND("serve", "--listen", BAD[i]), 1, WORDS("--listen", BAD[i]));
        command_refuse(COMMAND("check", "--set", set), 1, WORDS("server.listen", BAD[i]));
        free(set);
    }
    close(fd);
    free(taken);
}

/* --- check ----------------------------------------------------------------------------------- */

static void check_prints_models_layers_and_the_memory_plan(void **state)
{
    test_command c = command_succeed(COMMAND("check"));
    (void)state;
    contains(c.out, "model demo:");
    contains(c.out, "layer 0: d_model 16, 6 heads");
    contains(c.out, "layer 1: ");
    contains(c.out, "memory: ");
    contains(c.out, "threads: ");
    contains(c.out, "listen: 127.0.0.1:8080");
    assert_string_equal(c.err, "");
    command_free(&c);
}

static void check_takes_what_serve_takes(void **state)
{
    unsigned port;
    int fd = bound_socket(AF_INET, &port); /* check does not listen, so this is no fault */
    char *demo = st_path("%s/checked", folder_), *file = st_path("%s/all.json", folder_);
    char *text =
        st_path("{\"server\":{\"listen\":\"127.0.0.1:%u\",\"io_threads\":3,\"max_body\":\"2MiB\","
                "\"max_connections\":7,\"header_timeout\":\"1s\",\"request_timeout\":\"500ms\","
                "\"shutdown_timeout\":\"1min\"},\"models\":[{\"name\":\"d\",\"path\":\"%s\","
                "\"layers\":[1],\"dtype\":\"float32\"}],\"memory\":{\"budget\":\"3MiB\"},"
                "\"compute\":{\"threads\":2},\"queue\":{\"max_requests\":9},"
                "\"log\":{\"level\":\"warn\",\"format\":\"json\"}}",
                port, demo);
    (void)state;

    assert_true(fd >= 0);
    test_command c = command_succeed(COMMAND("demo", demo));
    command_free(&c);
    st_write_text(file, text);
    c = command_succeed(COMMAND("check", "--config", file));
    contains(c.out, "model d: ");
    contains(c.out, "layer 0: d_model 16");
    assert_null(strstr(c.out, "layer 1: "));
    contains(c.out, "memory: 3.0 MiB for requests");
    /* 3 for requests, 48 for the process, 7/16 for connections, 11 KiB of weights */
    contains(c.out, "memory limit to give: 52 MiB (weights, budget, process and connections)\n");
    contains(c.out, "threads: 2 ");
    contains(c.out, "bodies up to 2097152 bytes");
    command_free(&c);
    c = command_succeed(COMMAND("check", "--config", file, "--set", "memory.budget=5MiB",
                                "--set=compute.threads=1"));
    contains(c.out, "memory: 5.0 MiB for requests");
    contains(c.out, "threads: 1 ");
    command_free(&c);
    c = command_succeed(COMMAND("check", "--config", file, "--set", "memory.budget=1048576GiB"));
    contains(c.out, "connections); there is less: set a smaller memory.budget\n");
    command_free(&c);
    close(fd);
    free(text);
    free(file);
    free(demo);
}

static void every_value_has_its_source(void **state)
{
    char *file = st_path("%s/sources.json", folder_);
    (void)state;

    st_write_text(file, "{\"server\":{\"io_threads\":3},\"queue\":{\"max_requests\":11},"
                        "\"log\":{\"level\":\"error\"}}");
    setenv("ATTND_QUEUE_MAX_REQUESTS", "12", 1);
    setenv("ATTND_LOG_LEVEL", "warn", 1);
    test_command c =
        command_run(COMMAND("--print-config", "--config", file, "--set", "log.level=debug"));
    unsetenv("ATTND_QUEUE_MAX_REQUESTS");
    unsetenv("ATTND_LOG_LEVEL");
    assert_int_equal(c.code, 0);
    contains(c.out, "server.listen = 127.0.0.1:8080 (default)\n");
    contains(c.out, "server.io_threads = 3 (");
    contains(c.out, "sources.json)\n");
    contains(c.out, "queue.max_requests = 12 (environment ATTND_QUEUE_MAX_REQUESTS)\n");
    contains(c.out, "log.level = debug (flag --set)\n");
    command_free(&c);
    free(file);
}

static void a_fault_in_the_configuration_is_one_sentence(void **state)
{
    static const struct {
        const char *text;
        const char *word[3];
    } FAULT[] = {
        {"", {NULL}},
        {"{", {NULL}},
        {"{\"server\":{}} x", {NULL}},
        {"[]", {NULL}},
        {"null", {NULL}},
        {"\xEF\xBB\xBF{}", {NULL}},
        {"{\"server\":{\"listen\":\"\xFF\"}}", {NULL}},
        {"{\"log\":{},\"log\":{}}", {"log"}},
        {"{\"sever\":{}}", {"/sever", "server"}},
        {"{\"server\":{\"lisen\":\"127.0.0.1:0\"}}", {"/server/lisen", "listen"}},
        {"{\"memory\":{\"budgets\":\"1GiB\"}}", {"/memory/budgets", "budget"}},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/p\",\"dtyp\":\"float32\"}]}",
         {"/models/0/dtyp", "dtype"}},
        {"{\"server\":7}", {"/server", "7"}},
        {"{\"server\":{\"io_threads\":\"two\"}}", {"/server/io_threads", "two"}},
        {"{\"server\":{\"io_threads\":2.5}}", {"/server/io_threads", "2.5"}},
        {"{\"server\":{\"io_threads\":0}}", {"/server/io_threads", "0"}},
        {"{\"server\":{\"max_body\":\"256MB\"}}", {"/server/max_body", "256MB"}},
        {"{\"server\":{\"header_timeout\":\"10\"}}", {"/server/header_timeout", "10"}},
        {"{\"server\":{\"request_timeout\":\"-1s\"}}", {"/server/request_timeout", "-1s"}},
        {"{\"server\":{\"listen\":null}}", {"/server/listen", "null"}},
        {"{\"memory\":{\"budget\":\"99999999999GiB\"}}", {"/memory/budget", "99999999999GiB"}},
        {"{\"memory\":{\"budget\":1}}", {"/memory/budget", "1"}},
        {"{\"compute\":{\"threads\":\"many\"}}", {"/compute/threads", "many"}},
        {"{\"queue\":{\"max_requests\":true}}", {"/queue/max_requests", "true"}},
        {"{\"log\":{\"level\":\"inf\"}}", {"/log/level", "inf", "info"}},
        {"{\"models\":{}}", {"/models"}},
        {"{\"models\":[7]}", {"/models/0"}},
        {"{\"models\":[{\"name\":\"a\"}]}", {"/models/0", "path"}},
        {"{\"models\":[{\"name\":\"a/b\",\"path\":\"/p\"}]}", {"/models/0/name", "a/b"}},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/p\"},{\"name\":\"a\",\"path\":\"/q\"}]}",
         {"/models/1/name", "a"}},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/p\",\"layers\":\"some\"}]}",
         {"/models/0/layers", "some"}},
        {"{\"models\":[{\"name\":\"a\",\"path\":\"/p\",\"dtype\":\"float8\"}]}",
         {"/models/0/dtype", "float8"}},
    };
    char *file = st_path("%s/bad.json", folder_);
    (void)state;

    for (size_t i = 0; i < sizeof FAULT / sizeof *FAULT; i++) {
        const char *const words[] = {"bad.json", FAULT[i].word[0], FAULT[i].word[1],
                                     FAULT[i].word[2], NULL};
        st_write_text(file, FAULT[i].text);
        command_refuse(COMMAND("check", "--config", file), 1, words);
        command_refuse(COMMAND("serve", "--config", file), 1, words);
    }
    assert_int_equal(unlink(file), 0);
    command_refuse(COMMAND("check", "--config", file), 1, WORDS("bad.json"));
    command_refuse(COMMAND("serve", "--config", file), 1, WORDS("bad.json"));
    command_refuse(COMMAND("check", "--config", folder_), 1, WORDS(folder_));
    command_refuse(COMMAND("serve", "--config", folder_), 1, WORDS(folder_));
    free(file);
}

/* --- inspect and demo ------------------------------------------------------------------------ */

/* Every file of both folders, in one listing, with its bytes. */
static char *bytes_of(const char *folder)
{
    static const char *const NAME[] = {"config.json", "model.safetensors",
                                       "examples/1-cat-on-the-mat.json"};
    char *text = NULL;
    size_t n = 0;
    FILE *all = open_memstream(&text, &n);

    assert_non_null(all);
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++) {
        char *path = st_path("%s/%s", folder, NAME[i]);
        FILE *f = fopen(path, "rb");
        if (f == NULL)
            fail_msg("%s is not there", path);
        for (int c; (c = fgetc(f)) != EOF;)
            fprintf(all, "%02x", (unsigned)c);
        fclose(f);
        free(path);
    }
    fclose(all);
    return text;
}

static void demo_writes_the_same_bytes_every_time(void **state)
{
    char *a = st_path("%s/demo-a", folder_), *b = st_path("%s/demo-b", folder_);
    char *other = st_path("%s/other.txt", a), *deep = st_path("%s/no/such/parent", folder_);
    (void)state;

    test_command c = command_succeed(COMMAND("demo", a));
    contains(c.out, a);
    assert_string_equal(c.err, "");
    command_free(&c);
    c = command_succeed(COMMAND("demo", b));
    command_free(&c);
    char *first = bytes_of(a), *second = bytes_of(b);
    assert_true(strlen(first) > 1000);
    assert_string_equal(first, second);
    free(second);
    c = command_succeed(COMMAND("demo", a)); /* over its own files */
    command_free(&c);
    second = bytes_of(a);
    assert_string_equal(first, second);
    st_write_text(other, "mine");
    command_refuse(COMMAND("demo", a), 1, WORDS(a));
    assert_int_equal(access(other, R_OK), 0);
    command_refuse(COMMAND("demo", deep), 1, WORDS(deep));
    command_refuse(COMMAND("demo", "/dev/null"), 1, WORDS("/dev/null"));
    free(first);
    free(second);
    free(other);
    free(deep);
    free(a);
    free(b);
}

static void inspect_prints_tensors_and_layers(void **state)
{
    char *demo = st_path("%s/inspected", folder_), *file = st_path("%s/model.safetensors", demo);
    (void)state;

    test_command c = command_succeed(COMMAND("demo", demo));
    command_free(&c);
    const char *const path[] = {demo, file};
    for (size_t i = 0; i < 2; i++) {
        c = command_succeed(COMMAND("inspect", path[i]));
        contains(c.out, "layers.0.wq.weight");
        contains(c.out, "[96,16]");
        contains(c.out, "2 attention layers");
        command_free(&c);
        c = command_succeed(COMMAND("inspect", path[i], "--json"));
        json_t *root = answer_parse(c.out, strlen(c.out));
        assert_int_equal(json_array_size(answer_get(root, "tensors")), 8);
        assert_int_equal(json_array_size(answer_get(root, "layers")), 2);
        json_t *layer = json_array_get(answer_get(root, "layers"), 1);
        assert_int_equal(json_integer_value(json_object_get(layer, "num_heads")), 6);
        json_decref(root);
        command_free(&c);
    }
    command_refuse(COMMAND("inspect", "/no/such/file"), 1, WORDS("/no/such/file"));
    free(demo);
    free(file);
}

/* --- bench ----------------------------------------------------------------------------------- */

static double number(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_number(v))
        fail_msg("%s is no number", key);
    return json_number_value(v);
}

static void check_bench_line(char *line, bool maps, bool core)
{
    static const char *const KEY[] = {"shape",       "maps",    "core",   "threads",
                                      "ms",          "ms_min",  "ms_max", "gflops",
                                      "peak_gflops", "rss_mib", "causal"};
    static const size_t SHAPE[] = {1, 16, 64, 4};
    json_t *root = answer_parse(line, strlen(line)), *value;
    const char *key;
    size_t n = 0;
    cpu_set_t cpus;

    json_object_foreach(root, key, value)
    {
        assert_true(n < sizeof KEY / sizeof *KEY);
        assert_string_equal(key, KEY[n++]);
    }
    assert_int_equal(n, sizeof KEY / sizeof *KEY);
    assert_int_equal(json_array_size(json_object_get(root, "shape")), 4);
    json_array_foreach(json_object_get(root, "shape"), n, value)
    {
        assert_int_equal(json_integer_value(value), SHAPE[n]);
    }
    assert_int_equal(json_typeof(json_object_get(root, "maps")), maps ? JSON_TRUE : JSON_FALSE);
    assert_int_equal(json_typeof(json_object_get(root, "core")), core ? JSON_TRUE : JSON_FALSE);
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    assert_true(json_is_integer(json_object_get(root, "threads")));
    assert_in_range(json_integer_value(json_object_get(root, "threads")), 1, CPU_COUNT(&cpus));
    double ms = number(root, "ms"),
           work = core ? 4.0 * 16 * 16 * 64 : 8.0 * 16 * 64 * 64 + 4.0 * 16 * 16 * 64;
    assert_true(ms > 0 && number(root, "ms_min") <= ms && ms <= number(root, "ms_max"));
    /* Both are printed rounded: ms to four digits, gflops to one behind the point. */
    assert_true(fabs(number(root, "gflops") - work / ms / 1e6) <=
                0.06 + 0.001 * number(root, "gflops"));
    assert_true(number(root, "peak_gflops") > 0);
    assert_true(number(root, "rss_mib") > 1);
    json_decref(root);
}

static void bench_prints_one_json_object_a_shape(void **state)
{
    static const struct {
        const char *flag[2];
        bool maps, core;
    } FORM[] = {{{NULL}, false, false},
                {{"--maps", NULL}, true, false},
                {{"--core", NULL}, false, true},
                {{"--maps", "--core"}, true, true}};
    (void)state;

    for (size_t i = 0; i < sizeof FORM / sizeof *FORM; i++) {
        const char *args[] = {"bench",         "--json",        "--shape", "1,16,64,4",
                              FORM[i].flag[0], FORM[i].flag[1], NULL};
        test_command c = command_succeed(args);
        assert_string_equal(c.err, "");
        char *end = strchr(c.out, '\n');
        assert_non_null(end);
        assert_string_equal(end, "\n");
        check_bench_line(c.out, FORM[i].maps, FORM[i].core);
        command_free(&c);
    }
}

static void bench_prints_a_line_of_text_a_shape(void **state)
{
    test_command c = command_succeed(COMMAND("bench", "--shape", "1,8,8,2", "--shape=2,4,8,1"));
    (void)state;
    contains(c.out, "1,8,8,2");
    contains(c.out, "2,4,8,1");
    contains(c.out, "GFLOP/s");
    command_free(&c);
}

/* --- healthcheck ----------------------------------------------------------------------------- */

static void healthcheck_tells_ready_from_the_rest(void **state)
{
    test_daemon *d = daemon_start(COMMAND("serve"));
    char *equals = st_path("--url=%s", daemon_url(d)), *url = strdup(daemon_url(d));
    raw_conn busy;
    (void)state;

    test_command c = command_succeed(COMMAND("healthcheck", "--url", url));
    assert_string_equal(c.err, "");
    command_free(&c);
    c = command_succeed(COMMAND("healthcheck", equals));
    command_free(&c);
    inflight_open(&busy, d);
    assert_true(inflight_post(&busy, INFLIGHT_SDPA, "{}", 1)); /* keeps it draining */
    usleep(50000);
    kill(daemon_pid(d), SIGTERM);
    usleep(100000);
    command_refuse(COMMAND("healthcheck", "--url", url), 1, WORDS(url)); /* draining */
    kill(daemon_pid(d), SIGTERM);
    (void)daemon_wait(d, 10000, NULL);
    command_refuse(COMMAND("healthcheck", "--url", url), 1, WORDS(url)); /* gone */
    raw_close(&busy);
    free(equals);
    free(url);
}

/* --- version, help, usage -------------------------------------------------------------------- */

static void version_has_the_build_and_blas(void **state)
{
    test_command c = command_succeed(COMMAND("--version"));
    (void)state;
    assert_memory_equal(c.out, "attnd " ATTND_VERSION "\n", strlen(ATTND_VERSION) + 7);
    contains(c.out, "OpenBLAS");
    contains(c.out, "libmicrohttpd");
    contains(c.out, "jansson");
    contains(c.out, "kernels");
    assert_string_equal(c.err, "");
    command_free(&c);
}

static void help_has_every_command_and_flag(void **state)
{
    const char *const *const FORMS[] = {COMMAND("--help"), COMMAND("serve", "--help"),
                                        COMMAND("bench", "--help")};
    static const char *const WORD[] = {
        "serve",     "check",    "inspect", "demo",     "bench",        "healthcheck",
        "--version", "--config", "--model", "--listen", "--set",        "--json",
        "--shape",   "--maps",   "--core",  "--url",    "memory.budget"};
    (void)state;
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        test_command c = command_succeed(FORMS[i]);
        for (size_t w = 0; w < sizeof WORD / sizeof *WORD; w++)
            contains(c.out, WORD[w]);
        assert_string_equal(c.err, "");
        command_free(&c);
    }
}

static void usage_errors_exit_2(void **state)
{
    static const struct {
        const char *args[6], *word[2];
    } WRONG[] = {
        {{"serv"}, {"serv", "serve"}},
        {{"inspct", "x"}, {"inspct", "inspect"}},
        {{"frobnicate"}, {"frobnicate"}},
        {{""}, {NULL}},
        {{"--frobnicate"}, {"--frobnicate"}},
        {{"serve", "--lisen", "127.0.0.1:0"}, {"--lisen", "--listen"}},
        {{"serve", "extra"}, {"extra"}},
        {{"serve", "--listen"}, {"--listen"}},
        {{"check", "--modle", "a=b"}, {"--modle", "--model"}},
        {{"check", "--config"}, {"--config"}},
        {{"check", "-x"}, {"-x"}},
        {{"inspect"}, {"path"}},
        {{"inspect", "--jsn", "x"}, {"--jsn"}},
        {{"inspect", "a", "b"}, {"b"}},
        {{"demo"}, {"folder"}},
        {{"demo", "a", "b"}, {NULL}},
        {{"demo", "--json"}, {NULL}},
        {{"bench", "--jsn"}, {"--jsn"}},
        {{"bench", "--shape"}, {"--shape"}},
        {{"bench", "--shape", "1,16,64"}, {"1,16,64"}},
        {{"bench", "--shape", "1,16,64,5"}, {"1,16,64,5"}},
        {{"bench", "--shape", "0,16,64,4"}, {"0,16,64,4"}},
        {{"bench", "--shape", "1,16,64,4,2"}, {"1,16,64,4,2"}},
        {{"bench", "--shape", "1,16,-64,4"}, {"1,16,-64,4"}},
        {{"bench", "--shape", "1,99999999999999999999,64,4"}, {"99999999999999999999"}},
        {{"healthcheck", "--urls", "x"}, {"--urls"}},
        {{"healthcheck", "--url"}, {"--url"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        command_refuse(WRONG[i].args, 2, WORDS(WRONG[i].word[0], WRONG[i].word[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serve_prints_one_line_when_it_is_ready),
        cmocka_unit_test(serve_listens_on_ipv6_too),
        cmocka_unit_test(an_address_that_cannot_be_had_is_one_sentence),
        cmocka_unit_test(check_prints_models_layers_and_the_memory_plan),
        cmocka_unit_test(check_takes_what_serve_takes),
        cmocka_unit_test(every_value_has_its_source),
        cmocka_unit_test(a_fault_in_the_configuration_is_one_sentence),
        cmocka_unit_test(inspect_prints_tensors_and_layers),
        cmocka_unit_test(demo_writes_the_same_bytes_every_time),
        cmocka_unit_test(bench_prints_one_json_object_a_shape),
        cmocka_unit_test(bench_prints_a_line_of_text_a_shape),
        cmocka_unit_test(healthcheck_tells_ready_from_the_rest),
        cmocka_unit_test(version_has_the_build_and_blas),
        cmocka_unit_test(help_has_every_command_and_flag),
        cmocka_unit_test(usage_errors_exit_2),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
