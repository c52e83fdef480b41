/* fuzz.h: what the fuzz targets share.
 *
 * A target is one function over bytes. Its main() is libFuzzer's (make fuzz) or that of replay.c, which runs files
 * and folders through it and knows AFL++. README.md beside this file tells how inputs look. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Ends the process, as a fault that a sanitizer finds does. */
#define FUZZ_CHECK(claim)                                                                          \
    do {                                                                                           \
        if (!(claim))                                                                              \
            fuzz_fail(__FILE__, __LINE__, #claim);                                                 \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *claim);

/* The input, taken from its front. */
typedef struct {
    const uint8_t *at;
    size_t n;
} fuzz_input;

unsigned fuzz_byte(fuzz_input *in); /* 0 when there is none */

/* What stands before the next line that is only "--", and takes that line, too; or all the rest. */
fuzz_input fuzz_part(fuzz_input *in);

/* The same bytes in a block of exactly that size, so that AddressSanitizer sees one byte too many; never NULL. */
char *fuzz_copy(const void *bytes, size_t n);
char *fuzz_text(const void *bytes, size_t n); /* with a NUL behind them */

/* How a body is cut: 0 = not at all, 1 = into single bytes, else at places that follow from the number. */
typedef struct {
    unsigned how;
    uint32_t state;
} fuzz_cuts;

fuzz_cuts fuzz_cuts_of(unsigned byte);
size_t fuzz_cut(fuzz_cuts *c, size_t left); /* bytes of the next piece; left > 0 */

/* Two errors that say the same. */
bool fuzz_same_error(const attn_error *a, const attn_error *b);

/* An empty folder of this process, the same each time, which is removed when it ends. No '/' at its end. */
const char *fuzz_folder(void);
/* Makes a file in it, or takes it away with bytes = NULL. */
void fuzz_file(const char *name, const void *bytes, size_t n);

#endif
