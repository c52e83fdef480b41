/* From a plan to a layer: reads tensors one at a time and takes apart what is fused. */
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "layout.h"

/* The buffers of one layer, and the stored tensor that was read last: fused parts come in a row. */
typedef struct {
    const attn_archive *archive;
    const attn_tensor *last;
    float *stored;
    float *buffer[2 * ATTN_PARTS + 3];
    size_t buffers;
} reader;

static float *new_floats(size_t n, const attn_tensor *t, attn_error *err)
{
    size_t bytes = 0;
    float *p = attn_size_mul(n, sizeof(float), &bytes) ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (p == NULL)
        (void)attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to read %s", t->file, t->name);
    return p;
}

/* The whole tensor into a buffer of its own. */
static attn_status read_whole(reader *r, const attn_tensor *t, const float **out, attn_error *err)
{
    *out = NULL;
    if (t == NULL)
        return ATTN_OK;
    float *p = new_floats(t->count, t, err);
    if (p == NULL)
        return ATTN_ENOMEM;
    r->buffer[r->buffers++] = p;
    *out = p;
    return attn_archive_read_f32(r->archive, t, p, err);
}

/* r->stored = the tensor, unless it is there already. */
static attn_status read_stored(reader *r, const attn_tensor *t, attn_error *err)
{
    if (r->last == t)
        return ATTN_OK;
    free(r->stored);
    r->last = NULL;
    r->stored = new_floats(t->count, t, err);
    if (r->stored == NULL)
        return ATTN_ENOMEM;
    ATTN_TRY(attn_archive_read_f32(r->archive, t, r->stored, err));
    r->last = t;
    return ATTN_OK;
}

/* The features of one part as [out,in]; for a bias, in is 1. */
static attn_status read_part(reader *r, const attn_part *part, const float **out, attn_error *err)
{
    const attn_tensor *t = part->tensor;
    *out = NULL;
    if (t == NULL)
        return ATTN_OK;

    size_t rows = t->dim[part->in_out ? 1 : 0], kept = part->blocks * part->length;
    if (kept == rows && !part->in_out)
        return read_whole(r, t, out, err);
    ATTN_TRY(read_stored(r, t, err));
    size_t in = t->count / rows; /* no dimension is 0: the plan has compared them with sizes */
    float *p = new_floats(kept * in, t, err);
    if (p == NULL)
        return ATTN_ENOMEM;
    r->buffer[r->buffers++] = p;
    *out = p;
    for (size_t b = 0; b < part->blocks; b++) {
        size_t from = part->start + b * part->stride;
        float *to = p + b * part->length * in;
        if (!part->in_out) {
            memcpy(to, r->stored + from * in, part->length * in * sizeof(float));
            continue;
        }
        for (size_t i = 0; i < part->length; i++) {
            for (size_t c = 0; c < in; c++)
                to[i * in + c] = r->stored[c * rows + from + i];
        }
    }
    return ATTN_OK;
}

static attn_status read_all(reader *r, const attn_layer_plan *plan, attn_layer_weights *w,
                            attn_error *err)
{
    const float **weight[ATTN_PARTS] = {&w->wq, &w->wk, &w->wv, &w->wo};
    const float **bias[ATTN_PARTS] = {&w->bq, &w->bk, &w->bv, &w->bo};

    for (size_t i = 0; i < ATTN_PARTS; i++)
        ATTN_TRY(read_part(r, &plan->weight[i], weight[i], err));
    for (size_t i = 0; i < ATTN_PARTS; i++)
        ATTN_TRY(read_part(r, &plan->bias[i], bias[i], err));
    ATTN_TRY(read_whole(r, plan->q_norm, &w->q_norm, err));
    ATTN_TRY(read_whole(r, plan->k_norm, &w->k_norm, err));
    return read_whole(r, plan->rel_bias, &w->rel_bias, err);
}

attn_status attn_layer_read(attn_layer **out, const attn_archive *a, const attn_layer_plan *plan,
                            attn_error *err)
{
    reader r = {.archive = a};
    attn_layer_weights weights = {0};
    attn_error inner = {0};

    *out = NULL;
    attn_status rc = read_all(&r, plan, &weights, err);
    free(r.stored);
    if (rc == ATTN_OK) {
        rc = attn_layer_new(out, &plan->spec, &weights, &inner);
        if (rc != ATTN_OK) /* it knows numbers, and not whose they are */
            (void)attn_fail(err, rc, "%s: layer %s: %s", plan->weight[ATTN_Q].tensor->file,
                            plan->source, inner.text);
    }
    for (size_t i = 0; i < r.buffers; i++)
        free(r.buffer[i]);
    return rc;
}
