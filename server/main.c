/* attnd: an attention inference daemon. The commands; each does its work elsewhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "core/cpu.h"
#include "core/gemm.h"
#include "core/json.h"
#include "core/kern.h"
#include "core/nearest.h"
#include "server/bench.h"
#include "server/blas_start.h"
#include "server/demo.h"
#include "server/healthcheck.h"
#include "server/http.h"
#include "server/inspect.h"
#include "server/serve.h"

extern char **environ;

enum { OK = 0, FAULT = 1, USAGE = 2 };

static int usage_error(const char *sentence, const char *about)
{
    (void)fprintf(stderr, "attnd: %s%s; see attnd --help\n", sentence, about);
    return USAGE;
}

static int fault(const attn_error *err)
{
    (void)fprintf(stderr, "attnd: %s\n", err->text);
    return FAULT;
}

static int with_config(int argc, char **argv, int (*command)(const cfg_config *))
{
    cfg_config *config = NULL;
    cfg_action action = CFG_RUN;
    attn_error err = {0};
    attn_status rc = cfg_load(&config, argc, argv, environ, &action, &err);

    if (rc != ATTN_OK) {
        (void)fprintf(stderr, "attnd: %s\n", err.text);
        return rc == ATTN_ENOTFOUND ? USAGE : FAULT;
    }
    int code = OK;
    if (action == CFG_PRINT_CONFIG) {
        char *text = cfg_print(config);
        (void)fputs(text != NULL ? text : "", stdout);
        free(text);
    } else {
        code = command(config);
    }
    cfg_free(config);
    return code;
}

static int serve(int argc, char **argv)
{
    return with_config(argc, argv, srv_serve);
}

static int check(int argc, char **argv)
{
    return with_config(argc, argv, srv_check_config);
}

static int inspect(int argc, char **argv)
{
    attn_error err = {0};
    const char *path = NULL;
    bool json = false;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-')
            return usage_error("inspect knows no ", argv[i]);
        else if (path != NULL)
            return usage_error("inspect takes one path, not also ", argv[i]);
        else
            path = argv[i];
    }
    if (path == NULL)
        return usage_error("inspect needs a path", "");
    int code = srv_inspect(path, json, stdout, &err);
    return code == OK ? OK : fault(&err);
}

static int demo(int argc, char **argv)
{
    attn_error err = {0};

    if (argc != 1 || argv[0][0] == '-')
        return usage_error("demo takes one folder", "");
    if (srv_demo_write(argv[0], &err) != ATTN_OK)
        return fault(&err);
    (void)printf("wrote the demo model to %s; attnd --model demo=%s serves it\n", argv[0], argv[0]);
    return OK;
}

static int bench(int argc, char **argv)
{
    enum { MOST_SHAPES = 64 };
    static const srv_bench_shape usual[] = {
        {1, 16, 384, 12},  {1, 128, 768, 12}, {8, 128, 768, 12}, {32, 128, 384, 12},
        {1, 512, 768, 12}, {1, 1024, 512, 8}, {1, 4096, 512, 8}};
    srv_bench_shape shapes[MOST_SHAPES];
    srv_bench_options o = {.shapes = shapes};
    attn_error err = {0};

    for (int i = 0; i < argc; i++) {
        const char *value = strncmp(argv[i], "--shape=", 8) == 0 ? argv[i] + 8 : NULL;
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
        } else if (strcmp(argv[i], "--maps") == 0) {
            o.maps = true;
        } else if (strcmp(argv[i], "--core") == 0) {
            o.core = true;
        } else if (strcmp(argv[i], "--causal") == 0) {
            o.causal = true;
        } else if (value != NULL || (strcmp(argv[i], "--shape") == 0 && i + 1 < argc)) {
            value = value != NULL ? value : argv[++i];
            if (o.num_shapes == MOST_SHAPES ||
                !srv_bench_parse_shape(value, &shapes[o.num_shapes++]))
                return usage_error("--shape takes B,T,D,H with H a divisor of D, not ", value);
        } else {
            return usage_error("bench knows no ", argv[i]);
        }
    }
    if (o.num_shapes == 0) {
        o.shapes = usual;
        o.num_shapes = sizeof usual / sizeof *usual;
    }
    return srv_bench(&o, &err) == ATTN_OK ? OK : fault(&err);
}

static int own_health(const cfg_config *config)
{
    attn_error err = {0};
    return srv_healthcheck_own(config, &err) == ATTN_OK ? OK : fault(&err);
}

static int healthcheck(int argc, char **argv)
{
    const char *url = NULL;
    bool insecure = false;
    attn_error err = {0};
    int i = 0;

    for (; i < argc; i++) {
        if (strncmp(argv[i], "--url=", 6) == 0)
            url = argv[i] + 6;
        else if (strcmp(argv[i], "--url") == 0 && i + 1 < argc)
            url = argv[++i];
        else if (strcmp(argv[i], "--insecure") == 0)
            insecure = true;
        else
            break;
    }
    if (url == NULL)
        return with_config(argc - i, argv + i, own_health);
    if (i < argc)
        return usage_error("healthcheck with --url knows no ", argv[i]);
    return srv_healthcheck(url, insecure, &err) == ATTN_OK ? OK : fault(&err);
}

static int version(int argc, char **argv)
{
    attn_blas_info blas;
    attn_error err = {0};

    (void)argc;
    (void)argv;
    attn_blas_get_info(&blas);
    if (attn_kern_init(getenv("ATTND_ISA"), &err) != ATTN_OK)
        return fault(&err);
    unsigned flags = attn_cpu_flags();
    (void)printf("attnd %s\n", ATTND_VERSION);
    (void)printf("built with %s, libmicrohttpd %s, jansson %s\n", __VERSION__,
                 srv_http_library_version(), attn_json_library_version());
    (void)printf("OpenBLAS: %s, %s build, core %s%s%s\n", blas.config, blas.parallel, blas.core,
                 srv_blas_repaired_from() != NULL ? ", chosen in place of " : "",
                 srv_blas_repaired_from() != NULL ? srv_blas_repaired_from() : "");
    (void)printf("kernels: %s; this processor has%s%s%s%s\n", attn_kernels.isa,
                 flags & ATTN_CPU_AVX2 ? " AVX2" : "", flags & ATTN_CPU_AVX512 ? " AVX-512" : "",
                 flags & ATTN_CPU_NEON ? " NEON" : "",
                 flags == 0 ? " no vector extension we know" : "");
    return OK;
}

static int help(int argc, char **argv);

static const struct {
    const char *name, *arguments, *text;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "[OPTIONS]", "serve (also without the word); prints \"attnd ready on URL\"", serve},
    {"check", "[OPTIONS]", "load and validate configuration and weights, print the plan", check},
    {"inspect", "PATH [--json]", "print the tensors and attention layers of a file or folder",
     inspect},
    {"demo", "DIR", "write the demo model into DIR", demo},
    {"bench", "[--json] [--maps] [--core] [--causal] [--shape B,T,D,H]...",
     "measure the layer on this machine", bench},
    {"healthcheck", "[--url URL] [--insecure] [OPTIONS]", "exit 0 if the daemon there is ready",
     healthcheck},
    {"--version", "", "version, build and BLAS", version},
    {"--help", "", "this text", help},
};

static int help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)printf("attnd: attention inference daemon\n\nCommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        (void)printf("  attnd %s%s%s\n      %s\n", commands[i].name,
                     commands[i].arguments[0] ? " " : "", commands[i].arguments, commands[i].text);
    (void)printf("\n%s", cfg_help());
    return OK;
}

int main(int argc, char **argv)
{
    srv_blas_repair(argv);
    (void)signal(SIGPIPE, SIG_IGN);

    const char *name = argc > 1 ? argv[1] : "serve";
    if (strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        name = "--help";
    const char *names[sizeof commands / sizeof *commands];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, commands[i].name) != 0)
            continue;
        for (int a = 2; a < argc; a++) {
            if (strcmp(argv[a], "--help") == 0)
                return help(0, NULL);
        }
        return commands[i].run(argc < 2 ? 0 : argc - 2, argv + 2);
    }
    if (name[0] == '-') /* options alone mean serve */
        return serve(argc - 1, argv + 1);
    const char *near = attn_nearest(name, names, sizeof names / sizeof *names);
    (void)fprintf(stderr, "attnd: there is no command \"%s\"%s%s%s; see attnd --help\n", name,
                  near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                  near != NULL ? "\"?" : "");
    return USAGE;
}
