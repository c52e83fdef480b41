#include <errno.h>
#include <ftw.h>
#include <sched.h>
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

#include "core/cpu.h"

static const uint64_t MIB = 1u << 20;

static char root[256];

/* Writes root/path, making the folders on the way. */
static void put(const char *path, const char *text)
{
    char full[1024];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(full, 0777) != 0)
            assert_int_equal(errno, EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    assert_int_equal(fclose(f), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%s/attn_cpu.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(root) == NULL)
        return -1;
    put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         1234 kB\n");
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static attn_limits limits(void)
{
    attn_limits l;
    memset(&l, 0xff, sizeof l);
    attn_limits_read(&l, root);
    return l;
}

static void assert_quota(const attn_limits *l, double quota)
{
    if (l->quota != quota)
        fail_msg("quota is %g, not %g", l->quota, quota);
}

static void affinity_is_that_of_the_system(void **state)
{
    (void)state;
    attn_limits l;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    attn_limits_read(&l, "");
    assert_int_equal(l.affinity, CPU_COUNT(&set));
    assert_in_range(l.threads, 1, l.affinity);
    assert_true(l.memory > 0 && l.memory <= l.physical);
}

static void affinity_of_one_cpu_gives_one_thread(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    attn_limits l = limits();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(l.affinity, 1);
    assert_int_equal(l.threads, 1);
}

static void nothing_but_meminfo_means_no_limit(void **state)
{
    (void)state;
    attn_limits l = limits();
    assert_quota(&l, 0);
    assert_int_equal(l.threads, l.affinity);
    assert_int_equal(l.physical, 8192 * MIB);
    assert_int_equal(l.cgroup, 0);
    assert_int_equal(l.memory, 8192 * MIB);
}

static void missing_meminfo_falls_back_to_the_system(void **state)
{
    (void)state;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    assert_int_equal(unlink(path), 0);
    attn_limits l = limits();
    assert_true(l.physical > 0);
    assert_int_equal(l.memory, l.physical);
}

static void v2_max_means_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    attn_limits l = limits();
    assert_quota(&l, 0);
    assert_int_equal(l.threads, l.affinity);
    assert_int_equal(l.cgroup, 0);
}

static void v2_quota_is_rounded_down_to_at_least_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    attn_limits l = limits();
    assert_quota(&l, 1.5);
    assert_int_equal(l.threads, 1);
    assert_int_equal(l.cgroup, 256 * MIB);
    assert_int_equal(l.memory, 256 * MIB);

    put("/sys/fs/cgroup/cpu.max", "20000 100000\n");
    l = limits();
    assert_quota(&l, 0.2);
    assert_int_equal(l.threads, 1);

    put("/sys/fs/cgroup/cpu.max", "100000000 50000\n");
    l = limits();
    assert_quota(&l, 2000);
    assert_int_equal(l.threads, l.affinity < 2000 ? l.affinity : 2000);
}

static void v2_parents_count(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a.slice/b.service/c\n");
    put("/sys/fs/cgroup/a.slice/cpu.max", "120000 100000\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a.slice/b.service/memory.max", "104857600\n");
    put("/sys/fs/cgroup/a.slice/b.service/c/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/a.slice/b.service/c/memory.max", "209715200\n");
    put("/sys/fs/cgroup/other/memory.max", "1048576\n");
    attn_limits l = limits();
    assert_quota(&l, 1.2);
    assert_int_equal(l.cgroup, 100 * MIB);
}

static void v2_group_outside_of_the_namespace_is_not_followed(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/../x\n");
    put("/sys/fs/cgroup/memory.max", "104857600\n");
    put("/sys/fs/x/memory.max", "1048576\n");
    assert_int_equal(limits().cgroup, 100 * MIB);
}

static void a_limit_over_the_physical_memory_does_not_count(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "17179869184\n");
    attn_limits l = limits();
    assert_int_equal(l.cgroup, 16384 * MIB);
    assert_int_equal(l.memory, 8192 * MIB);
}

static void v1_limits_are_read_with_their_parents(void **state)
{
    (void)state;
    put("/proc/self/cgroup",
        "5:cpuset:/pod/one\n4:memory:/pod/one\n3:cpu,cpuacct:/pod/one\n0::/\n");
    put("/sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/pod/one/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
    attn_limits l = limits();
    assert_quota(&l, 2.5);
    assert_int_equal(l.cgroup, 512 * MIB);
}

static void v1_without_limits_means_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/\n3:cpu:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    attn_limits l = limits();
    assert_quota(&l, 0);
    assert_int_equal(l.cgroup, 0);
    assert_int_equal(l.threads, l.affinity);
}

/* Without a cgroup namespace /proc names the host's path, and only the mount is there. */
static void v1_container_sees_its_group_as_the_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/0123\n3:cpuacct,cpu:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    attn_limits l = limits();
    assert_quota(&l, 1);
    assert_int_equal(l.threads, 1);
    assert_int_equal(l.cgroup, 100 * MIB);
}

static void damaged_files_mean_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "nonsense\n1:\n0::/\n\n4:memory:/\n3:cpu:/\n");
    put("/proc/meminfo", "MemTotal: lots\n");
    put("/sys/fs/cgroup/cpu.max", "100000 0\n");
    put("/sys/fs/cgroup/memory.max", "99999999999999999999999\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
    attn_limits l = limits();
    assert_quota(&l, 0);
    assert_int_equal(l.cgroup, 0);
    assert_true(l.physical > 0);
    assert_int_equal(l.threads, l.affinity);
}

static void avx512_implies_avx2_and_neon_is_arm64(void **state)
{
    (void)state;
    unsigned flags = attn_cpu_flags();
    assert_int_equal(flags & ~(ATTN_CPU_AVX2 | ATTN_CPU_AVX512 | ATTN_CPU_NEON), 0);
#if defined(__aarch64__)
    assert_int_equal(flags, ATTN_CPU_NEON);
#else
    assert_int_equal(flags & ATTN_CPU_NEON, 0);
#endif
    assert_true((flags & ATTN_CPU_AVX512) == 0 || (flags & ATTN_CPU_AVX2) != 0);
    assert_int_equal(flags, attn_cpu_flags());
}

#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(affinity_is_that_of_the_system),
        WITH_ROOT(affinity_of_one_cpu_gives_one_thread),
        WITH_ROOT(nothing_but_meminfo_means_no_limit),
        WITH_ROOT(missing_meminfo_falls_back_to_the_system),
        WITH_ROOT(v2_max_means_no_limit),
        WITH_ROOT(v2_quota_is_rounded_down_to_at_least_one),
        WITH_ROOT(v2_parents_count),
        WITH_ROOT(v2_group_outside_of_the_namespace_is_not_followed),
        WITH_ROOT(a_limit_over_the_physical_memory_does_not_count),
        WITH_ROOT(v1_limits_are_read_with_their_parents),
        WITH_ROOT(v1_without_limits_means_no_limit),
        WITH_ROOT(v1_container_sees_its_group_as_the_mount),
        WITH_ROOT(damaged_files_mean_no_limit),
        cmocka_unit_test(avx512_implies_avx2_and_neon_is_arm64),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
