/* inspect.h: what is in a weight file or model folder, for people and for programs. */
#ifndef SRV_INSPECT_H
#define SRV_INSPECT_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"

/* Prints the tensors (name, dtype, shape, bytes) and the attention layers of `path` to `out`: aligned
 * text, or with `json` one object. Returns the exit code: 0, or 1 with one sentence in *err, which is
 * not optional. Tensors without layers that we recognise are printed all the same, then it is 1 and,
 * in JSON, "error" has the sentence too. */
ATTN_NODISCARD int srv_inspect(const char *path, bool json, FILE *out, attn_error *err);

#endif
