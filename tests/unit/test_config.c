#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"

enum { MAX_WORDS = 16 };

static char dir[256];
static char file[300]; /* dir/attnd.json */

static int make_dir(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%s/attn_config.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(file, sizeof file, "%s/attnd.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(file);
    return rmdir(dir);
}

static void put(const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Lists of words end with NULL. */
typedef const char *const words[MAX_WORDS];

static attn_status load(cfg_config **c, words flags, words environment, cfg_action *action,
                        attn_error *err)
{
    char *argv[MAX_WORDS] = {NULL}, *environ_[MAX_WORDS] = {NULL};
    int argc = 0;
    size_t n = 0;
    for (; flags[argc] != NULL; argc++)
        argv[argc] = strdup(flags[argc]);
    for (; environment[n] != NULL; n++)
        environ_[n] = strdup(environment[n]);

    *c = (cfg_config *)c;
    attn_status rc = cfg_load(c, argc, argv, environ_, action, err);
    for (int i = 0; i < argc; i++) /* nothing of it may be kept */
        free(argv[i]);
    for (size_t i = 0; i < n; i++)
        free(environ_[i]);
    return rc;
}

static words NONE = {NULL};

static cfg_config *good(words flags, words environment)
{
    cfg_config *c = NULL;
    cfg_action action = CFG_PRINT_CONFIG;
    attn_error err = {0};
    if (load(&c, flags, environment, &action, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(action, CFG_RUN);
    return c;
}

static attn_error bad(words flags, words environment, attn_status code)
{
    cfg_config *c;
    cfg_action action;
    attn_error err = {0};
    assert_int_equal(load(&c, flags, environment, &action, &err), code);
    assert_null(c);
    assert_int_equal(err.code, code);
    return err;
}

/* The sentence without the folder of the file in front. */
static const char *without_dir(const attn_error *err)
{
    size_t n = strlen(dir);
    return strncmp(err->text, dir, n) == 0 ? err->text + n + 1 : err->text;
}

static void assert_listen(const cfg_config *c, const char *want)
{
    assert_int_equal(c->server.listen.n, 1);
    assert_string_equal(c->server.listen.item[0], want);
}

static void defaults_are_those_of_the_contract(void **state)
{
    (void)state;
    cfg_config *c = good(NONE, NONE);
    assert_listen(c, "127.0.0.1:8080");
    assert_int_equal(c->server.io_threads, 2);
    assert_int_equal(c->server.max_connections, 1024);
    assert_int_equal(c->server.max_body_bytes, 256u << 20);
    assert_int_equal(c->server.header_timeout_ms, 10000);
    assert_int_equal(c->server.request_timeout_ms, 60000);
    assert_int_equal(c->server.shutdown_delay_ms, 0);
    assert_int_equal(c->server.shutdown_timeout_ms, 30000);
    assert_string_equal(c->server.base_path, "");
    assert_int_equal(c->server.allowed_hosts.n, 0);
    assert_string_equal(c->auth.keys_file, "");
    assert_true(c->auth.protect_metrics);
    assert_string_equal(c->tls.certificate_file, "");
    assert_string_equal(c->tls.key_file, "");
    assert_int_equal(c->cors.allow_origins.n, 0);
    assert_false(c->admin);
    assert_int_equal(c->num_models, 0);
    assert_int_equal(c->budget_bytes, 0);
    assert_int_equal(c->threads, 0);
    assert_true(c->pin);
    assert_int_equal(c->queue_max_requests, 256);
    assert_true(c->metrics);
    assert_true(c->docs);
    assert_true(c->ui);
    assert_int_equal(c->log.level, CFG_LOG_INFO);
    assert_int_equal(c->log.format, CFG_LOG_AUTO);
    assert_int_equal(cfg_warning_count(c), 0);
    cfg_free(c);
    cfg_free(NULL);
}

static void the_file_sets_every_key(void **state)
{
    (void)state;
    put("{\"$schema\": \"attnd.schema.json\","
        " \"server\": {\"listen\": \"[::]:0\", \"io_threads\": 64, \"max_body\": \"1KiB\","
        "   \"max_connections\": 1, \"header_timeout\": \"1ms\", \"request_timeout\": \"1.5s\","
        "   \"shutdown_timeout\": \"2min\", \"shutdown_delay\": \"1s\", \"base_path\": \"/a/b-1/\","
        "   \"allowed_hosts\": [\"a.b\", \"[::1]\"]},"
        " \"auth\": {\"keys_file\": \"/k\", \"protect_metrics\": false},"
        " \"tls\": {\"certificate_file\": \"/c.pem\", \"key_file\": \"/k.pem\"},"
        " \"cors\": {\"allow_origins\": [\"https://a.b\"]}, \"admin\": {\"enabled\": true},"
        " \"models\": ["
        "   {\"name\": \"a-B_1.x\", \"path\": \"/m/a\", \"layers\": [3, 0], \"dtype\": \"float32\","
        "    \"layout\": {\"wq\": \"q\"}},"
        "   {\"path\": \"/m/bert/\", \"layers\": \"all\"}],"
        " \"memory\": {\"budget\": 1048576}, \"compute\": {\"threads\": 1024, \"pin\": false},"
        " \"queue\": {\"max_requests\": 65536}, \"metrics\": {\"enabled\": false},"
        " \"docs\": {\"enabled\": false}, \"ui\": {\"enabled\": false},"
        " \"log\": {\"level\": \"debug\", \"format\": \"json\"}}");
    cfg_config *c = good((words){"--config", file}, NONE);
    assert_listen(c, "[::]:0");
    assert_string_equal(c->server.base_path, "/a/b-1");
    assert_int_equal(c->server.allowed_hosts.n, 2);
    assert_string_equal(c->server.allowed_hosts.item[1], "[::1]");
    assert_int_equal(c->server.shutdown_delay_ms, 1000);
    assert_string_equal(c->auth.keys_file, "/k");
    assert_false(c->auth.protect_metrics);
    assert_string_equal(c->tls.certificate_file, "/c.pem");
    assert_string_equal(c->tls.key_file, "/k.pem");
    assert_int_equal(c->cors.allow_origins.n, 1);
    assert_string_equal(c->cors.allow_origins.item[0], "https://a.b");
    assert_true(c->admin);
    assert_int_equal(c->server.io_threads, 64);
    assert_int_equal(c->server.max_body_bytes, 1024);
    assert_int_equal(c->server.max_connections, 1);
    assert_int_equal(c->server.header_timeout_ms, 1);
    assert_int_equal(c->server.request_timeout_ms, 1500);
    assert_int_equal(c->server.shutdown_timeout_ms, 120000);
    assert_int_equal(c->budget_bytes, 1 << 20);
    assert_int_equal(c->threads, 1024);
    assert_false(c->pin);
    assert_int_equal(c->queue_max_requests, 65536);
    assert_false(c->metrics);
    assert_false(c->docs);
    assert_false(c->ui);
    assert_int_equal(c->log.level, CFG_LOG_DEBUG);
    assert_int_equal(c->log.format, CFG_LOG_JSON);

    assert_int_equal(c->num_models, 2);
    const cfg_model *m = c->models;
    assert_string_equal(m[0].name, "a-B_1.x");
    assert_string_equal(m[0].path, "/m/a");
    assert_false(m[0].all_layers);
    assert_int_equal(m[0].num_layers, 2);
    assert_int_equal(m[0].layers[0], 3);
    assert_int_equal(m[0].layers[1], 0);
    const char *wq = NULL;
    assert_true(attn_json_string(attn_json_get(m[0].layout, "wq"), &wq));
    assert_string_equal(wq, "q");
    assert_string_equal(m[1].name, "bert");
    assert_string_equal(m[1].path, "/m/bert/");
    assert_true(m[1].all_layers);
    assert_null(m[1].layout);
    cfg_free(c);
}

static void flag_beats_environment_beats_file_beats_default(void **state)
{
    (void)state;
    put("{\"server\": {\"listen\": \"file:1\", \"io_threads\": 3},"
        " \"queue\": {\"max_requests\": 7}, \"compute\": {\"threads\": 5}}");
    cfg_config *c = good((words){"--listen", "flag:3", "--config", file, "--set", "log.level=warn"},
                         (words){"ATTND_SERVER_LISTEN=env:2", "ATTND_SERVER_IO_THREADS=4",
                                 "ATTND_LOG_LEVEL=error", "ATTND_COMPUTE_THREADS=auto", "PATH=/"});
    assert_listen(c, "flag:3");
    assert_int_equal(c->server.io_threads, 4);
    assert_int_equal(c->queue_max_requests, 7);
    assert_int_equal(c->log.level, CFG_LOG_WARN);
    assert_int_equal(c->threads, 0);
    assert_int_equal(c->server.max_connections, 1024);
    cfg_free(c);
}

static void the_last_flag_counts_and_equals_signs_may_be_used(void **state)
{
    (void)state;
    cfg_config *c = good((words){"--listen=a:1", "--set=server.listen=b:2", "--set",
                                 "compute.pin=false", "--set=memory.budget=1.5GiB"},
                         NONE);
    assert_listen(c, "b:2");
    assert_false(c->pin);
    assert_int_equal(c->budget_bytes, (uint64_t)3 << 29);
    cfg_free(c);
}

static void models_of_the_command_line_replace_those_of_the_file(void **state)
{
    (void)state;
    put("{\"models\": [{\"name\": \"old\", \"path\": \"/old\", \"layout\": {}}]}");
    cfg_config *c = good((words){"--model", "a=/x=1/y", "--config", file, "--model=/m/bert//",
                                 "--model", "./w/tiny.safetensors"},
                         (words){"ATTND_MODELS=env=/e"});
    static const char *const want[][2] = {
        {"a", "/x=1/y"}, {"bert", "/m/bert//"}, {"tiny", "./w/tiny.safetensors"}};
    assert_int_equal(c->num_models, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(c->models[i].name, want[i][0]);
        assert_string_equal(c->models[i].path, want[i][1]);
        assert_true(c->models[i].all_layers);
    }
    cfg_free(c);
}

static void a_variable_may_hold_models_as_json_or_as_a_flag_would(void **state)
{
    (void)state;
    cfg_config *c = good(NONE, (words){"ATTND_MODELS=[{\"path\":\"/m/a\",\"layout\":{\"k\":1}}]"});
    assert_int_equal(c->num_models, 1);
    assert_string_equal(c->models[0].name, "a");
    assert_non_null(attn_json_get(c->models[0].layout, "k"));
    cfg_free(c);

    c = good(NONE, (words){"ATTND_MODELS=x=/m/a"});
    assert_int_equal(c->num_models, 1);
    assert_string_equal(c->models[0].name, "x");
    cfg_free(c);
}

static void a_variable_with_file_at_its_end_names_a_file(void **state)
{
    (void)state;
    char variable[400];
    static const char *const contents[] = {"h:1", "h:1\n", "h:1\r\n"};
    (void)snprintf(variable, sizeof variable, "ATTND_SERVER_LISTEN__FILE=%s", file);
    for (size_t i = 0; i < 3; i++) {
        put(contents[i]);
        cfg_config *c = good(NONE, (words){variable});
        assert_listen(c, "h:1");
        assert_int_equal(cfg_warning_count(c), 0);
        cfg_free(c);
    }

    put("h:1\n\n"); /* one newline only */
    attn_error err = bad(NONE, (words){variable}, ATTN_EINVAL);
    assert_non_null(strstr(err.text, "ATTND_SERVER_LISTEN__FILE: \"h:1?\" is not HOST:PORT"));
    err = bad(NONE, (words){variable, "ATTND_SERVER_LISTEN=a:1"}, ATTN_EINVAL);
    assert_string_equal(err.text, "ATTND_SERVER_LISTEN and ATTND_SERVER_LISTEN__FILE are both set");

    char *large = malloc(70000);
    assert_non_null(large);
    memset(large, 'x', 70000);
    large[69999] = '\0';
    put(large);
    free(large);
    err = bad(NONE, (words){variable}, ATTN_EINVAL);
    assert_non_null(strstr(err.text, "longer than 65536 bytes"));
    assert_int_equal(truncate(file, 3), 0);
    assert_int_equal(truncate(file, 5), 0); /* xxx NUL NUL */
    err = bad(NONE, (words){variable}, ATTN_EINVAL);
    assert_non_null(strstr(err.text, "is not a text"));

    assert_int_equal(unlink(file), 0);
    err = bad(NONE, (words){variable}, ATTN_EIO);
    assert_non_null(strstr(err.text, "ATTND_SERVER_LISTEN__FILE: "));
    assert_non_null(strstr(err.text, "No such file or directory"));
}

static void what_is_wrong_in_the_file_is_named(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        /* file, sentence, pointer */
        {"{\"server\":{\"max_bdy\":1}}",
         "attnd.json: /server/max_bdy is not a known key; did you mean \"max_body\"?",
         "/server/max_bdy"},
        {"{\"servr\":{}}", "attnd.json: /servr is not a known key; did you mean \"server\"?",
         "/servr"},
        {"{\"a/b~c\":1}", "attnd.json: /a~1b~0c is not a known key", "/a~1b~0c"},
        {"{\"server\":{\"listen\":[\"a:1\",\"a\"]}}",
         "attnd.json: /server/listen/1: \"a\" is not HOST:PORT, such as 127.0.0.1:8080 or "
         "[::]:8080, or unix:/PATH",
         "/server/listen/1"},
        {"{\"server\":{\"listen\":[1]}}", "attnd.json: /server/listen/0: 1 is not a string",
         "/server/listen/0"},
        {"{\"server\":{\"listen\":[]}}", "attnd.json: /server/listen: the list is empty",
         "/server/listen"},
        {"{\"server.listen\":\"a:1\"}", "attnd.json: /server.listen is not a known key",
         "/server.listen"},
        {"{\"\\n\":1}", "attnd.json: /? is not a known key", "/?"},
        {"{\"model\":[]}", "attnd.json: /model is not a known key; did you mean \"models\"?",
         "/model"},
        {"[]", "attnd.json: an array is not an object", ""},
        {"{\"server\":3}", "attnd.json: /server: 3 is not an object", "/server"},
        {"{\"server\":{\"io_threads\":\"2\"}}",
         "attnd.json: /server/io_threads: \"2\" is not an integer in 1..64", "/server/io_threads"},
        {"{\"server\":{\"io_threads\":2.0}}",
         "attnd.json: /server/io_threads: 2.0 is not an integer in 1..64", "/server/io_threads"},
        {"{\"server\":{\"io_threads\":0.5}}",
         "attnd.json: /server/io_threads: 0.5 is not an integer in 1..64", "/server/io_threads"},
        {"{\"server\":{\"io_threads\":null}}",
         "attnd.json: /server/io_threads: null is not an integer in 1..64", "/server/io_threads"},
        {"{\"server\":{\"io_threads\":65}}", "attnd.json: /server/io_threads: 65 is not in 1..64",
         "/server/io_threads"},
        {"{\"server\":{\"io_threads\":-1}}", "attnd.json: /server/io_threads: -1 is not in 1..64",
         "/server/io_threads"},
        {"{\"server\":{\"max_body\":1023}}",
         "attnd.json: /server/max_body: 1023 is not in 1KiB..1048576GiB", "/server/max_body"},
        {"{\"server\":{\"max_body\":\"1MB\"}}",
         "attnd.json: /server/max_body: \"1MB\" is not a size in B, KiB, MiB or GiB",
         "/server/max_body"},
        {"{\"server\":{\"header_timeout\":10}}",
         "attnd.json: /server/header_timeout: 10 has no unit; write \"10s\" for seconds",
         "/server/header_timeout"},
        {"{\"server\":{\"header_timeout\":\"0s\"}}",
         "attnd.json: /server/header_timeout: 0s is not in 1ms..86400s", "/server/header_timeout"},
        {"{\"server\":{\"header_timeout\":\"1h\"}}",
         "attnd.json: /server/header_timeout: \"1h\" is not a duration in ms, s or min",
         "/server/header_timeout"},
        {"{\"server\":{\"listen\":8080}}",
         "attnd.json: /server/listen: 8080 is not a string or a list of strings", "/server/listen"},
        {"{\"compute\":{\"threads\":\"4\"}}",
         "attnd.json: /compute/threads: \"4\" is not \"auto\" or an integer in 1..1024",
         "/compute/threads"},
        {"{\"compute\":{\"pin\":1}}", "attnd.json: /compute/pin: 1 is not true or false",
         "/compute/pin"},
        {"{\"memory\":{\"budget\":\"1KiB\"}}",
         "attnd.json: /memory/budget: 1KiB is not in 1MiB..1048576GiB", "/memory/budget"},
        {"{\"log\":{\"level\":\"inf\"}}",
         "attnd.json: /log/level: \"inf\" is not error, warn, info or debug; "
         "did you mean \"info\"?",
         "/log/level"},
        {"{\"log\":{\"format\":\"xml\"}}",
         "attnd.json: /log/format: \"xml\" is not auto, text or json", "/log/format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(cases[i][0]);
        attn_error err = bad((words){"--config", file}, NONE, ATTN_EINVAL);
        assert_string_equal(without_dir(&err), cases[i][1]);
        assert_string_equal(err.pointer, cases[i][2]);
    }
}

static void what_is_wrong_with_a_model_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "/models: an object is not a list of models"},
        {"[3]", "/models/0: 3 is not an object with the path of a model"},
        {"[{\"name\":\"a\"}]", "/models/0: the model has no \"path\""},
        {"[{\"path\":\"\"}]", "/models/0/path: the path of a model is empty"},
        {"[{\"path\":3}]", "/models/0/path: 3 is not a string"},
        {"[{\"path\":\"/\"}]", "/models/0: \"\" cannot be a model's name: "
                               "1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"},
        {"[{\"path\":\"p\",\"name\":\"..\"}]", "/models/0/name: \"..\" cannot be a model's name: "
                                               "1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"},
        {"[{\"path\":\"p\",\"name\":\"\"}]", "/models/0/name: \"\" cannot be a model's name: "
                                             "1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"},
        {"[{\"path\":\"p\",\"nam\":\"x\"}]",
         "/models/0/nam is not a known key; did you mean \"name\"?"},
        {"[{\"path\":\"p\"},{\"path\":\"q\",\"name\":\"p\"}]",
         "/models/1/name: another model is named \"p\""},
        {"[{\"path\":\"x/p\"},{\"path\":\"y/p\"}]", "/models/1: another model is named \"p\""},
        {"[{\"path\":\"p\",\"layers\":\"some\"}]",
         "/models/0/layers: \"some\" is not \"all\" or a list of layers"},
        {"[{\"path\":\"p\",\"layers\":[]}]",
         "/models/0/layers: 0 layers are listed, not 1 to 4096"},
        {"[{\"path\":\"p\",\"layers\":[0,-1]}]",
         "/models/0/layers/1: -1 is not a layer, an integer from 0"},
        {"[{\"path\":\"p\",\"layers\":[1.0]}]",
         "/models/0/layers/0: 1.0 is not a layer, an integer from 0"},
        {"[{\"path\":\"p\",\"layers\":[2,2]}]", "/models/0/layers/1: layer 2 is listed twice"},
        {"[{\"path\":\"p\",\"dtype\":\"float16\"}]",
         "/models/0/dtype: \"float16\" is not supported; models compute in \"float32\""},
        {"[{\"path\":\"p\",\"layout\":[]}]", "/models/0/layout: an array is not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], want[512];
        (void)snprintf(text, sizeof text, "{\"models\":%s}", cases[i][0]);
        (void)snprintf(want, sizeof want, "attnd.json: %s", cases[i][1]);
        put(text);
        attn_error err = bad((words){"--config", file}, NONE, ATTN_EINVAL);
        assert_string_equal(without_dir(&err), want);
        size_t n = strcspn(cases[i][1], ": ");
        assert_int_equal(strlen(err.pointer), n);
        assert_memory_equal(err.pointer, cases[i][1], n);
    }
}

static void bad_json_and_duplicate_keys_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"queue\":{},\"queue\":{}}", "\"queue\""},
        {"{\"log\":{\"level\":\"info\",\"level\":\"info\"}}", "\"level\""},
        {"{\"server\":", "line 1"},
        {"{} {}", "line 1"},
        {"", "attnd.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(cases[i][0]);
        attn_error err = bad((words){"--config", file}, NONE, ATTN_EINVAL);
        assert_int_equal(strncmp(err.text, file, strlen(file)), 0);
        assert_non_null(strstr(err.text, cases[i][1]));
    }
}

static void a_file_that_cannot_be_read_is_named_with_the_reason(void **state)
{
    (void)state;
    attn_error err = bad((words){"--config", file}, NONE, ATTN_EIO);
    assert_int_equal(strncmp(err.text, file, strlen(file)), 0);
    assert_non_null(strstr(err.text, "No such file or directory"));
    err = bad((words){"--config", dir}, NONE, ATTN_EIO);
    assert_int_equal(strncmp(err.text, dir, strlen(dir)), 0);
    assert_non_null(strstr(err.text, "folder"));
    put("{}");
    assert_int_equal(chmod(file, 0), 0);
    if (access(file, R_OK) == 0) {
        print_message("skipped: unreadable file: root reads every file\n");
        return;
    }
    err = bad((words){"--config", file}, NONE, ATTN_EIO);
    assert_non_null(strstr(err.text, "Permission denied"));
}

static void what_is_wrong_in_flags_and_variables_is_named(void **state)
{
    (void)state;
    static const char *const flags[][2] = {
        {"--set=compute.threads=0", "--set compute.threads=0: 0 is not in 1..1024"},
        {"--set=compute.threads=99999999999999999999",
         "--set compute.threads=99999999999999999999: 99999999999999999999 is not in 1..1024"},
        {"--set=compute.threads=-9223372036854775808",
         "--set compute.threads=-9223372036854775808: -9223372036854775808 is not in 1..1024"},
        {"--set=compute.threads=0x2",
         "--set compute.threads=0x2: \"0x2\" is not \"auto\" or an integer in 1..1024"},
        {"--set=compute.thread=1",
         "--set: compute.thread is not a known key; did you mean \"compute.threads\"?"},
        {"--set==1", "--set:  is not a known key"},
        {"--set=log.level=", "--set log.level=: \"\" is not error, warn, info or debug"},
        {"--listen=:80", "--listen :80: \":80\" is not HOST:PORT, such as 127.0.0.1:8080 or "
                         "[::]:8080, or unix:/PATH"},
        {"--set=server.base_path=v1/", "--set server.base_path=v1/: \"v1/\" is not the beginning "
                                       "of paths, such as /attnd"},
        {"--set=cors.allow_origins=https://a.b/",
         "--set cors.allow_origins=https://a.b/: \"https://a.b/\" is not an origin as browsers "
         "send "
         "it, such as https://example.org:8443, or *"},
        {"--set=tls.key_file=/k.pem",
         "tls.key_file is set and tls.certificate_file is not: https needs both"},
        {"--model=a=", "--model a=: the path of a model is empty"},
        {"--model=up/d=e", "--model up/d=e: \"d=e\" cannot be a model's name: "
                           "1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"},
        {"--model=[1]", "--model [1]: /0: 1 is not an object with the path of a model"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        attn_error err = bad((words){flags[i][0]}, NONE, ATTN_EINVAL);
        assert_string_equal(err.text, flags[i][1]);
    }
    attn_error err = bad((words){"--model", "a=/x", "--model", "/y/a"}, NONE, ATTN_EINVAL);
    assert_string_equal(err.text, "--model /y/a: another model is named \"a\"");
    err = bad(NONE, (words){"ATTND_SERVER_IO_THREADS="}, ATTN_EINVAL);
    assert_string_equal(err.text, "ATTND_SERVER_IO_THREADS: \"\" is not an integer in 1..64");
    err = bad(NONE, (words){"ATTND_MODELS=[{\"path\":\"p\",\"layers\":[-1]}]"}, ATTN_EINVAL);
    assert_string_equal(err.text,
                        "ATTND_MODELS: /0/layers/0: -1 is not a layer, an integer from 0");
}

static void an_address_is_a_host_and_a_port(void **state)
{
    (void)state;
    static const char *const right[] = {"127.0.0.1:8080",    "[::]:0",
                                        "localhost:65535",   "0.0.0.0:1",
                                        "[fe80::1%eth0]:80", "unix:/run/attnd.sock"};
    static const char *const wrong[] = {
        "",      "a",       "a:",     ":1",         "a:65536",  "a:-1",  "::1:1",
        "[]:1",  "a:1x",    "a b:1",  "[::1]",      "a:000001", "a/b:1", "[::1]x:1",
        "unix:", "[::1:80", "unix:a", "unix:/a\nb", "a:1,",     ",",     "[]"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        cfg_config *c = good((words){"--listen", right[i]}, NONE);
        assert_listen(c, right[i]);
        cfg_free(c);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        (void)bad((words){"--listen", wrong[i]}, NONE, ATTN_EINVAL);
}

/* Each beside what stands first and last in the list. */
static void lists_have_commas_or_are_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *first, *last;
    } cases[] = {{"a:1", 1, "a:1", "a:1"},
                 {"a:1,b:2 , [::]:3", 3, "a:1", "[::]:3"},
                 {"[\"a:1\", \"unix:/x,y\"]", 2, "a:1", "unix:/x,y"},
                 {" [ \"[::1]:1\" ]", 1, "[::1]:1", "[::1]:1"},
                 {"[::1]:1,[::2]:2", 2, "[::1]:1", "[::2]:2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[128];
        (void)snprintf(variable, sizeof variable, "ATTND_SERVER_LISTEN=%s", cases[i].text);
        cfg_config *c = good(NONE, (words){variable});
        assert_int_equal(c->server.listen.n, cases[i].n);
        assert_string_equal(c->server.listen.item[0], cases[i].first);
        assert_string_equal(c->server.listen.item[cases[i].n - 1], cases[i].last);
        cfg_free(c);
    }
    cfg_config *c = good((words){"--set=cors.allow_origins=*", "--set=server.allowed_hosts=*",
                                 "--set=server.base_path=/", "--set=auth.keys_file=\"\""},
                         (words){"ATTND_CORS_ALLOW_ORIGINS=https://a.b,http://[::1]:3000"});
    assert_int_equal(c->cors.allow_origins.n, 1);
    assert_string_equal(c->cors.allow_origins.item[0], "*");
    assert_string_equal(c->server.base_path, "");
    assert_string_equal(c->auth.keys_file, "");
    cfg_free(c);
    c = good((words){"--set=cors.allow_origins="}, (words){"ATTND_CORS_ALLOW_ORIGINS=https://a.b"});
    assert_int_equal(c->cors.allow_origins.n, 0);
    cfg_free(c);
}

static void hosts_origins_and_prefixes_are_checked(void **state)
{
    (void)state;
    static const char *const right[] = {"server.allowed_hosts=a-b.c_d",
                                        "server.allowed_hosts=10.0.0.1",
                                        "server.allowed_hosts=[fe80::1]",
                                        "server.base_path=/a/.b/c.",
                                        "cors.allow_origins=http://localhost:3000",
                                        "cors.allow_origins=https://[::1]",
                                        "cors.allow_origins=chrome-extension://abcdef"};
    static const char *const wrong[] = {"server.allowed_hosts=a:80",
                                        "server.allowed_hosts=http://a",
                                        "server.allowed_hosts=::1",
                                        "server.allowed_hosts=a,*",
                                        "server.allowed_hosts=[]x",
                                        "server.base_path=a",
                                        "server.base_path=//",
                                        "server.base_path=/a//b",
                                        "server.base_path=/..",
                                        "server.base_path=/a/./b",
                                        "server.base_path=/a?b",
                                        "server.base_path=/%41",
                                        "cors.allow_origins=null",
                                        "cors.allow_origins=https://A.b",
                                        "cors.allow_origins=https://a.b:443",
                                        "cors.allow_origins=http://a.b:80",
                                        "cors.allow_origins=a.b",
                                        "cors.allow_origins=https://",
                                        "cors.allow_origins=https://u@a.b",
                                        "cors.allow_origins=*,https://a.b"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        cfg_free(good((words){"--set", right[i]}, NONE));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        (void)bad((words){"--set", wrong[i]}, NONE, ATTN_EINVAL);
}

static void kserve_spells_its_flags_with_underscores(void **state)
{
    (void)state;
    cfg_config *c =
        good((words){"--model_name=bert", "--model_dir=/mnt/models", "--http_port=8081"},
             (words){"ATTND_SERVER_LISTEN=a:1"});
    assert_listen(c, "0.0.0.0:8081");
    assert_int_equal(c->num_models, 1);
    assert_string_equal(c->models[0].name, "bert");
    assert_string_equal(c->models[0].path, "/mnt/models");
    char *text = cfg_print(c);
    assert_non_null(strstr(text, "server.listen = 0.0.0.0:8081 (flag --http_port)\n"));
    assert_non_null(strstr(text, "models = bert=/mnt/models (flag --model_dir)\n"));
    free(text);
    cfg_free(c);
    c = good((words){"--model_dir", "/mnt/models", "--listen", "a:1", "--listen", "unix:/x"}, NONE);
    assert_string_equal(c->models[0].name, "models");
    assert_int_equal(c->server.listen.n, 2);
    cfg_free(c);
    (void)bad((words){"--http_port=http"}, NONE, ATTN_EINVAL);
    (void)bad((words){"--model_name=a"}, NONE, ATTN_ENOTFOUND);
}

static void usage_errors_are_told_from_wrong_values(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--lisen=a:1", "--lisen is not a known flag; did you mean --listen?"},
        {"--xyzzy", "--xyzzy is not a known flag"},
        {"stray", "\"stray\" is not a flag"},
        {"-m", "\"-m\" is not a flag"},
        {"--", "\"--\" is not a flag"},
        {"--config", "--config needs a value"},
        {"--set=log.level", "--set log.level: KEY=VALUE is needed"},
        {"--print-config=yes", "--print-config takes no value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_error err = bad((words){cases[i][0]}, NONE, ATTN_ENOTFOUND);
        assert_string_equal(err.text, cases[i][1]);
    }
    attn_error err = bad((words){"--config=a", "--config=b"}, NONE, ATTN_ENOTFOUND);
    assert_string_equal(err.text, "--config is given twice");
}

static void long_and_odd_values_are_cut_in_messages(void **state)
{
    (void)state;
    char flag[600] = "--set=log.level=";
    size_t n = strlen(flag);
    for (; n + 2 < sizeof flag; n += 2)
        memcpy(flag + n, "\xc3\xa9", 3);
    attn_error err = bad((words){flag}, NONE, ATTN_EINVAL);
    assert_true(strlen(err.text) < 250);
    assert_non_null(strstr(err.text, "\xc3\xa9...\" is not error, warn, info or debug"));
    err = bad((words){"--set=log.level=\x1b[31m\n"}, NONE, ATTN_EINVAL);
    assert_non_null(strstr(err.text, "\"?[31m?\" is not"));
}

static void unknown_variables_are_passed_over_with_a_warning(void **state)
{
    (void)state;
    cfg_config *c =
        good(NONE,
             (words){"ATTND_SERVER_MAX_BDY=1", "ATTND_XYZZY_PLUGH=2", "ATTND_ISA=avx2",
                     "ATTND_SHARED=/s", "ATTND_SERVICE_HOST=10.0.0.1", "ATTND_SERVICE_PORT_HTTP=80",
                     "ATTND_PORT=tcp://10.0.0.1:80", "ATTND_PORT_80_TCP_ADDR=10.0.0.1", "ATTNDX=1",
                     "SERVER_LISTEN=x", "ATTND_LOG_LEVL__FILE=/x"});
    assert_int_equal(cfg_warning_count(c), 3);
    assert_string_equal(cfg_warning(c, 0), "the environment variable ATTND_SERVER_MAX_BDY sets "
                                           "nothing; did you mean ATTND_SERVER_MAX_BODY?");
    assert_string_equal(cfg_warning(c, 1),
                        "the environment variable ATTND_XYZZY_PLUGH sets nothing");
    assert_string_equal(cfg_warning(c, 2), "the environment variable ATTND_LOG_LEVL__FILE sets "
                                           "nothing; did you mean ATTND_LOG_LEVEL?");
    cfg_free(c);
}

static void print_config_says_every_value_and_its_source(void **state)
{
    (void)state;
    char want[2048], secret[400];
    cfg_config *c;
    cfg_action action = CFG_RUN;
    put("{\"queue\":{\"max_requests\":9},\"memory\":{\"budget\":\"1536KiB\"}}");
    (void)snprintf(secret, sizeof secret, "%s/value", dir);
    FILE *f = fopen(secret, "w");
    assert_non_null(f);
    assert_true(fputs("debug\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    char variable[500];
    (void)snprintf(variable, sizeof variable, "ATTND_LOG_LEVEL__FILE=%s", secret);
    assert_int_equal(load(&c,
                          (words){"--print-config", "--config", file, "--listen", "[::]:0", "--set",
                                  "compute.threads=3", "--model", "a=/m/a", "--model=/m/\nb/c"},
                          (words){"ATTND_SERVER_REQUEST_TIMEOUT=1500ms", variable}, &action, NULL),
                     ATTN_OK);
    assert_int_equal(unlink(secret), 0);
    assert_int_equal(action, CFG_PRINT_CONFIG);
    (void)snprintf(want, sizeof want,
                   "server.listen = [::]:0 (flag --listen)\n"
                   "server.base_path = \"\" (default)\n"
                   "server.allowed_hosts = [] (default)\n"
                   "server.io_threads = 2 (default)\n"
                   "server.max_body = 256MiB (default)\n"
                   "server.max_connections = 1024 (default)\n"
                   "server.header_timeout = 10s (default)\n"
                   "server.request_timeout = 1500ms (environment ATTND_SERVER_REQUEST_TIMEOUT)\n"
                   "server.shutdown_delay = 0s (default)\n"
                   "server.shutdown_timeout = 30s (default)\n"
                   "auth.keys_file = \"\" (default)\n"
                   "auth.protect_metrics = true (default)\n"
                   "tls.certificate_file = \"\" (default)\n"
                   "tls.key_file = \"\" (default)\n"
                   "cors.allow_origins = [] (default)\n"
                   "admin.enabled = false (default)\n"
                   "sandbox.enabled = true (default)\n"
                   "models = a=/m/a; c=/m/?b/c (flag --model)\n"
                   "memory.budget = 1536KiB (file %s)\n"
                   "compute.threads = 3 (flag --set)\n"
                   "compute.pin = true (default)\n"
                   "queue.max_requests = 9 (file %s)\n"
                   "metrics.enabled = true (default)\n"
                   "docs.enabled = true (default)\n"
                   "ui.enabled = true (default)\n"
                   "log.level = debug (environment ATTND_LOG_LEVEL__FILE)\n"
                   "log.format = auto (default)\n",
                   file, file);
    char *text = cfg_print(c);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
    cfg_free(c);

    put("{\"models\":[{\"path\":\"/m/a\",\"layers\":[0,2],\"layout\":{}}]}");
    c = good((words){"--config", file}, NONE);
    text = cfg_print(c);
    assert_non_null(text);
    assert_non_null(strstr(text, "models = a=/m/a layers 0,2 with a layout (file "));
    assert_non_null(strstr(text, "compute.threads = auto (default)\n"));
    free(text);
    cfg_free(c);
}

#define WITH_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_contract),
        WITH_DIR(the_file_sets_every_key),
        WITH_DIR(flag_beats_environment_beats_file_beats_default),
        cmocka_unit_test(the_last_flag_counts_and_equals_signs_may_be_used),
        WITH_DIR(models_of_the_command_line_replace_those_of_the_file),
        cmocka_unit_test(a_variable_may_hold_models_as_json_or_as_a_flag_would),
        WITH_DIR(a_variable_with_file_at_its_end_names_a_file),
        WITH_DIR(what_is_wrong_in_the_file_is_named),
        WITH_DIR(what_is_wrong_with_a_model_is_named),
        WITH_DIR(bad_json_and_duplicate_keys_are_refused),
        WITH_DIR(a_file_that_cannot_be_read_is_named_with_the_reason),
        cmocka_unit_test(what_is_wrong_in_flags_and_variables_is_named),
        cmocka_unit_test(an_address_is_a_host_and_a_port),
        cmocka_unit_test(lists_have_commas_or_are_json),
        cmocka_unit_test(hosts_origins_and_prefixes_are_checked),
        cmocka_unit_test(kserve_spells_its_flags_with_underscores),
        cmocka_unit_test(usage_errors_are_told_from_wrong_values),
        cmocka_unit_test(long_and_odd_values_are_cut_in_messages),
        cmocka_unit_test(unknown_variables_are_passed_over_with_a_warning),
        WITH_DIR(print_config_says_every_value_and_its_source),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
