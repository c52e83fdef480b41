/* demo.h: the demo model as files and as layers: small, made from formulas, its heads do what their
 * names say. No file is needed to serve it. */
#ifndef SRV_DEMO_H
#define SRV_DEMO_H

#include <stddef.h>

#include "core/layer.h"

/* The folder's files, the same bytes every time: config.json, model.safetensors, examples/NAME.json.
 * *name is static, relative to the folder; *bytes is malloc()ed. i < srv_demo_file_count(). */
size_t srv_demo_file_count(void);
ATTN_NODISCARD attn_status srv_demo_file(size_t i, const char **name, char **bytes, size_t *n,
                                         attn_error *err);

/* Writes the files into the folder `dir`, which is made when it is not there (its parent must be).
 * A folder that holds anything but files equal to ours is refused untouched (ATTN_EINVAL).
 * ATTN_EIO names path and system reason. */
ATTN_NODISCARD attn_status srv_demo_write(const char *dir, attn_error *err);

/* *layers = a malloc()ed array of *n layers: what loading the written folder gives. */
ATTN_NODISCARD attn_status srv_demo_layers(attn_layer ***layers, size_t *n, attn_error *err);

#endif
