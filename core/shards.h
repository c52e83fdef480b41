/* shards.h: which files a weight folder or index stands for. */
#ifndef ATTN_SHARDS_H
#define ATTN_SHARDS_H

#include "json.h"

typedef struct {
    char **path; /* sorted, each once */
    size_t count;
    attn_json *index;            /* the index that named them, or NULL */
    const attn_json *weight_map; /* its object {tensor: file name}, or NULL */
} attn_shards;

/* Resolves `path` by the rules of archive.h; the files are there, but not yet opened. On failure *s
 * is empty. ATTN_EIO, ATTN_EFORMAT, ATTN_ENOTFOUND, ATTN_EINVAL: several .npz in a folder. */
ATTN_NODISCARD attn_status attn_shards_find(attn_shards *s, const char *path, attn_error *err);
void attn_shards_deinit(attn_shards *s); /* takes an empty one */

bool attn_ends_with(const char *text, const char *suffix);

/* The part of a path behind its last '/'. */
const char *attn_file_name(const char *path);

#endif
