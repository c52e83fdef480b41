/* examples.h: a model folder's example requests, examples/NAME.json, held in memory. */
#ifndef SRV_EXAMPLES_H
#define SRV_EXAMPLES_H

#include <stddef.h>

#include "core/status.h"

#define SRV_EXAMPLE_BYTES (4u << 20) /* of one file, at most */
#define SRV_EXAMPLES_MAX  256u       /* files of one folder */

typedef struct srv_examples srv_examples; /* immutable; share it across threads */

/* Reads the folder "examples" in the model's folder (of a weight file: where the file lies). None is
 * none. A name is the file's without ".json", [A-Za-z0-9._-]{1,64}; files named otherwise, and hidden
 * ones, are passed over. Every file must hold one JSON object (ATTN_EFORMAT); ATTN_ETOOBIG: a file or
 * their number is over the limits above; ATTN_EIO names path and system reason. */
ATTN_NODISCARD attn_status srv_examples_load(srv_examples **out, const char *model_path,
                                             attn_error *err);

/* Those of the demo model, from memory. */
ATTN_NODISCARD attn_status srv_examples_demo(srv_examples **out, attn_error *err);
void srv_examples_free(srv_examples *e); /* takes NULL */

/* Sorted by name, byte by byte. Valid until srv_examples_free(). A NULL `e` has none. */
size_t srv_examples_count(const srv_examples *e);
const char *srv_examples_name(const srv_examples *e, size_t i);
const char *srv_examples_body(const srv_examples *e, size_t i, size_t *n);

#endif
