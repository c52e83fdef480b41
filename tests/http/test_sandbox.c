/* What the daemon gives up once it is ready. */
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/daemon.h"
#include "tests/st.h"
#include "tests/watch.h"

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

static bool refused(int rc)
{
    return rc < 0 && errno == EACCES;
}

/* In a process of its own, for there is no way back: 0, or the number of the line that is wrong; 77 = no Landlock. */
static int try_all(const char *named, const char *beside, const char *elsewhere,
                   const char *socket_path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char other[512];

    if (!srv_sandbox_enter(
            &(srv_sandbox_options){.files = (const char *const[]){named, NULL},
                                   .num_files = 2,
                                   .sockets = (const char *const[]){NULL, socket_path},
                                   .num_sockets = 2}))
        return 77;
    if (open(named, O_RDONLY) < 0 || open(beside, O_RDONLY) < 0 ||
        open("/proc/self/status", O_RDONLY) < 0 || open("/etc/passwd", O_RDONLY) < 0)
        return __LINE__;
    if (!refused(open(elsewhere, O_RDONLY)) || !refused(open("/tmp", O_RDONLY)))
        return __LINE__;
    if (!refused(open(named, O_WRONLY)) || !refused(open(elsewhere, O_WRONLY | O_CREAT, 0600)))
        return __LINE__;
    (void)snprintf(other, sizeof other, "%s.new", named);
    if (!refused(open(other, O_WRONLY | O_CREAT, 0600)) || !refused(unlink(named)))
        return __LINE__;
    if (!refused(execl("/bin/true", "true", (char *)NULL)))
        return __LINE__;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", socket_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || unlink(socket_path) != 0)
        return __LINE__;
    return 0;
}

static void it_reads_what_is_named_and_writes_and_runs_nothing(void **state)
{
    (void)state;
    char *one = st_path("%s/one", folder_), *two = st_path("%s/two", folder_);
    char *socket_path = st_path("%s/sockets/s", folder_), *sockets = st_path("%s/sockets", folder_);
    char *models = st_path("%s/models", folder_), *named = st_path("%s/models/a", folder_),
         *beside = st_path("%s/models/b", folder_);
    int status = 0;

    assert_int_equal(mkdir(models, 0755), 0);
    assert_int_equal(mkdir(sockets, 0755), 0);
    st_write_text(named, "x");
    st_write_text(beside, "x");
    st_write_text(one, "x");
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_all(named, beside, one, socket_path));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("skipped: sandbox: this kernel has no Landlock, or it is switched off\n");
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("line %d (modulo 256)", WEXITSTATUS(status));
    free(one);
    free(two);
    free(sockets);
    free(socket_path);
    free(models);
    free(named);
    free(beside);
}

/* A model's link is set to a folder that nothing named: out of reach, unless there is no sandbox. */
static void a_model_from_elsewhere_is_out_of_reach(void **state)
{
    (void)state;
    const st_native m = {.d_model = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
    char *far = st_path("%s/far", folder_), *other = st_path("%s/far/m", folder_);
    char *near = st_path("%s/near", folder_), *first = st_path("%s/near/m", folder_);
    char *links = st_path("%s/links", folder_), *link_ = st_path("%s/links/m", folder_);
    char *model = st_path("m=%s", link_);

    assert_int_equal(mkdir(far, 0755), 0);
    assert_int_equal(mkdir(near, 0755), 0);
    assert_int_equal(mkdir(links, 0755), 0);
    st_write_random(other, &m, 1);
    st_write_random(first, &m, 2);
    for (int sandbox = 1; sandbox >= 0; sandbox--) {
        (void)unlink(link_);
        assert_int_equal(symlink(first, link_), 0);
        test_daemon *d = daemon_start((const char *const[]){
            "--model", model, "--set", sandbox ? "sandbox.enabled=true" : "sandbox.enabled=false",
            "--set", "log.format=json", NULL});
        bool inside = watch_log_has(d, "\"sandboxed\":\"yes\"");
        assert_true(sandbox || !inside);
        if (sandbox && !inside)
            printf("skipped: sandbox of the daemon: this kernel has no Landlock\n");
        assert_int_equal(unlink(link_), 0);
        assert_int_equal(symlink(other, link_), 0);
        assert_int_equal(kill(daemon_pid(d), SIGHUP), 0);
        watch_log_until(d, "reloaded\"");
        assert_true(
            watch_log_has(d, inside ? "not everything was reloaded" : "\"msg\":\"reloaded\""));
        if (inside)
            assert_true(watch_log_has(d, "Permission denied"));
        test_reply r = daemon_request(d, "GET", "/v1/models/m", NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        daemon_stop(d);
    }
    free(far);
    free(other);
    free(near);
    free(first);
    free(links);
    free(link_);
    free(model);
}

/* A cache keeps a model's files elsewhere and links to each of them. */
static void a_model_whose_files_are_links_is_loaded_again(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors"};
    const st_native m = {.d_model = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
    char *cache = st_path("%s/cache", folder_), *blobs = st_path("%s/cache/blobs", folder_);
    char *snapshots = st_path("%s/snapshots", cache), *one = st_path("%s/1", snapshots);
    char *model = st_path("m=%s", one);

    assert_int_equal(mkdir(cache, 0755), 0);
    assert_int_equal(mkdir(snapshots, 0755), 0);
    assert_int_equal(mkdir(one, 0755), 0);
    st_write_random(blobs, &m, 1);
    for (size_t i = 0; i < 2; i++) {
        char *to = st_path("../../blobs/%s", files[i]), *from = st_path("%s/%s", one, files[i]);
        assert_int_equal(symlink(to, from), 0);
        free(to);
        free(from);
    }
    test_daemon *d = daemon_start((const char *const[]){"--model", model, NULL});
    assert_int_equal(kill(daemon_pid(d), SIGHUP), 0);
    watch_log_until(d, "reloaded\"");
    assert_false(watch_log_has(d, "not everything was reloaded"));
    daemon_stop(d);
    free(cache);
    free(blobs);
    free(snapshots);
    free(one);
    free(model);
}

/* Of what lies in the root folder only itself is allowed: it has no other folder. */
static void a_file_in_the_root_folder_is_read(void **state)
{
    (void)state;
    char path[] = "/attnd-test-XXXXXX";
    int status = 0, fd = mkstemp(path);

    if (fd < 0) {
        printf("skipped: sandbox of a file in /: %s\n", strerror(errno));
        return;
    }
    (void)close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        if (!srv_sandbox_enter(
                &(srv_sandbox_options){.files = (const char *const[]){path}, .num_files = 1}))
            _exit(77);
        _exit(open(path, O_RDONLY) < 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)unlink(path);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("skipped: sandbox of a file in /: this kernel has no Landlock\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_what_is_named_and_writes_and_runs_nothing),
        cmocka_unit_test(a_model_from_elsewhere_is_out_of_reach),
        cmocka_unit_test(a_model_whose_files_are_links_is_loaded_again),
        cmocka_unit_test(a_file_in_the_root_folder_is_read),
    };
    return cmocka_run_group_tests_name("sandbox", tests, start, stop);
}
