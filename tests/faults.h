/* faults.h: a program whose library calls fail on demand.
 *
 * build/tests/libfaults.so (fault_library.c) is preloaded into the daemon; what it does is told through a page that
 * the test and the daemon share, so that a fault can be set while the daemon serves. */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>

typedef enum {
    FAULT_NONE,
    FAULT_ALLOC,  /* malloc and its relatives give NULL */
    FAULT_READ,   /* pread, read of files: EIO */
    FAULT_RECV,   /* recv: `error` */
    FAULT_SEND,   /* send, sendmsg, writev: `error` */
    FAULT_ACCEPT, /* accept4: `error` */
    FAULT_LOG,    /* write to descriptor 2: `error` */
    FAULT_THREAD, /* pthread_create: EAGAIN */
    FAULT_KINDS
} fault_kind;

/* The page. While kind is set, each call of that kind counts `before` down; that which finds it at 0 fails, and with
 * `repeat` all after it, too. `shorten`: pread, read, recv and send take one byte at a time; `interrupt`: every second
 * one of them fails with EINTR. */
typedef struct {
    atomic_int kind;
    atomic_long before;
    atomic_int repeat, error, shorten, interrupt;
    atomic_long hits; /* calls that were made to fail */
    atomic_long live; /* blocks allocated and not freed */
} fault_page;

#define FAULT_VARIABLE "ATTND_TEST_FAULTS" /* the path of the page's file */

/* Makes the page and sets the environment so that programs started from now on are under it; NULL: the library was
 * not built (sanitizers have their own malloc), or this system cannot preload. */
fault_page *faults_open(void);
void faults_close(void); /* what is started from now on runs as always */

/* The n-th call (from 0) of this kind fails; hits are counted from 0. */
void faults_set(fault_page *f, fault_kind kind, long before, bool repeat, int error);
long faults_clear(fault_page *f); /* how often it was met */

#endif
