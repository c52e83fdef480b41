/* cpu.h: what this machine and its container allow. */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include <stddef.h>
#include <stdint.h>

#define ATTN_CPU_AVX2   1u /* AVX2 and FMA, usable (the system saves the registers) */
#define ATTN_CPU_AVX512 2u /* AVX-512 F, BW, DQ, VL, usable */
#define ATTN_CPU_NEON   4u /* arm64's vectors, with fused multiply-add */

unsigned attn_cpu_flags(void); /* ATTN_CPU_* of this machine */

typedef struct {
    size_t affinity;   /* CPUs of sched_getaffinity() */
    double quota;      /* CPUs that the cgroup (v2 cpu.max, v1 cfs quota) allows; 0 = no limit */
    size_t threads;    /* max(1, min(affinity, floor(quota))) */
    uint64_t physical; /* bytes of memory of the machine */
    uint64_t cgroup;   /* bytes that the cgroup allows (v2 memory.max, v1 limit); 0 = no limit */
    uint64_t memory;   /* the smaller of the two */
} attn_limits;

/* Reads the limits of the calling process; parents of its cgroup count too. `root` is "" but in
 * tests, where it holds a copy of /proc and /sys/fs/cgroup. */
void attn_limits_read(attn_limits *out, const char *root);

/* Subnormal numbers count as zero in this thread from now on, as operands and as results: they cost a
 * hundred times as much as others, and no result that we give can tell. Returns the state before, for
 * attn_restore_float_state(). Does nothing on processors other than x86-64 and arm64. */
uint64_t attn_flush_subnormals(void);
void attn_restore_float_state(uint64_t state);

#endif
