#include "server/inspect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive.h"
#include "core/decimal.h"
#include "core/kern.h"
#include "core/model.h"
#include "server/json_writer.h"

/* "[768,768]" into text, which is large enough for ATTN_MAX_RANK sizes. */
enum { SHAPE_CHARS = ATTN_MAX_RANK * 21 + 3, NUMBER_CHARS = 24 };

static const char *shape_text(char text[SHAPE_CHARS], const attn_tensor *t)
{
    size_t n = 0;

    text[n++] = '[';
    for (size_t i = 0; i < t->rank; i++)
        n += (size_t)snprintf(text + n, SHAPE_CHARS - n, "%s%zu", i == 0 ? "" : ",", t->dim[i]);
    text[n++] = ']';
    text[n] = '\0';
    return text;
}

/* A float32 as its shortest text. */
static const char *float_text(char text[ATTN_F32_CHARS + 1], float x)
{
    text[attn_f32_print(text, x)] = '\0';
    return text;
}

/* --- for people -------------------------------------------------------------------------------- */

/* Names come from files: what would move the cursor or hide text is shown as '?'. */
static void print_name(FILE *out, const char *name, size_t width)
{
    size_t columns = 0;

    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++) {
        (void)fputc(*p < 0x20 || *p == 0x7f ? '?' : *p, out);
        columns += (*p & 0xc0) != 0x80; /* bytes that continue a UTF-8 character take none */
    }
    for (; columns < width; columns++)
        (void)fputc(' ', out);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t columns_of(const char *name)
{
    size_t columns = 0;

    for (; *name != '\0'; name++)
        columns += ((unsigned char)*name & 0xc0) != 0x80;
    return columns;
}

static void print_tensors(FILE *out, const attn_archive *a)
{
    size_t name = 0, dtype = 0, shape = 0, bytes = 0, total = 0;
    char text[SHAPE_CHARS];
    size_t n = attn_archive_count(a);

    for (size_t i = 0; i < n; i++) {
        const attn_tensor *t = attn_archive_at(a, i);
        name = larger(name, columns_of(t->name));
        dtype = larger(dtype, strlen(t->dtype_name));
        shape = larger(shape, strlen(shape_text(text, t)));
        bytes = larger(bytes, (size_t)snprintf(NULL, 0, "%zu", t->bytes));
        total += t->bytes;
    }
    (void)fprintf(out, "%zu tensor%s, %zu bytes\n", n, n == 1 ? "" : "s", total);
    for (size_t i = 0; i < n; i++) {
        const attn_tensor *t = attn_archive_at(a, i);
        (void)fputs("  ", out);
        print_name(out, t->name, name);
        (void)fprintf(out, "  %-*s  %-*s  %*zu\n", (int)dtype, t->dtype_name, (int)shape,
                      shape_text(text, t), (int)bytes, t->bytes);
    }
}

/* A side of a window, or "-" for none. */
static const char *side_text(char text[NUMBER_CHARS], int64_t side)
{
    if (side < 0)
        return "-";
    (void)snprintf(text, NUMBER_CHARS, "%" PRId64, side);
    return text;
}

enum { COLUMNS = 12, CELL_CHARS = 64 };

typedef char row[COLUMNS][CELL_CHARS];

static void fill_row(row r, const attn_model *m, size_t i)
{
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
    char number[ATTN_F32_CHARS + 1], left[NUMBER_CHARS], right[NUMBER_CHARS];

    (void)snprintf(r[0], CELL_CHARS, "%zu", i);
    (void)snprintf(r[1], CELL_CHARS, "%zu", s->d_model);
    (void)snprintf(r[2], CELL_CHARS, "%zu", s->num_heads);
    (void)snprintf(r[3], CELL_CHARS, "%zu", s->num_kv_heads);
    (void)snprintf(r[4], CELL_CHARS, "%zu", s->head_dim);
    (void)snprintf(r[5], CELL_CHARS, "%zu", s->v_head_dim);
    (void)snprintf(r[6], CELL_CHARS, "%s", float_text(number, s->scale));
    (void)snprintf(r[7], CELL_CHARS, "%s", s->is_causal ? "yes" : "no");
    if (s->window.left < 0 && s->window.right < 0)
        (void)snprintf(r[8], CELL_CHARS, "none");
    else
        (void)snprintf(r[8], CELL_CHARS, "%s..%s", side_text(left, s->window.left),
                       side_text(right, s->window.right));
    (void)snprintf(r[9], CELL_CHARS, "%s",
                   s->softcap > 0.0F ? float_text(number, s->softcap) : "none");
    (void)snprintf(r[10], CELL_CHARS, "%s", attn_model_layer_position(m, i));
    (void)snprintf(r[11], CELL_CHARS, "%s", s->cross ? "cross" : "self");
}

static void print_layers(FILE *out, const attn_model *m)
{
    static const char *const heads[COLUMNS] = {"layer",  "d_model", "heads",    "kv_heads",
                                               "d_head", "d_value", "scale",    "causal",
                                               "window", "softcap", "position", "keys"};
    size_t n = attn_model_layer_count(m), width[COLUMNS];
    row r;

    for (size_t c = 0; c < COLUMNS; c++)
        width[c] = strlen(heads[c]);
    for (size_t i = 0; i < n; i++) {
        fill_row(r, m, i);
        for (size_t c = 0; c < COLUMNS; c++)
            width[c] = larger(width[c], strlen(r[c]));
    }
    (void)fprintf(out, "\n%zu attention layer%s, family %s, %zu bytes of weights in memory\n", n,
                  n == 1 ? "" : "s", attn_model_family(m), attn_model_weights_bytes(m));
    for (size_t c = 0; c < COLUMNS; c++)
        (void)fprintf(out, "  %-*s", (int)width[c], heads[c]);
    (void)fputs("  source\n", out);
    for (size_t i = 0; i < n; i++) {
        fill_row(r, m, i);
        for (size_t c = 0; c < COLUMNS; c++)
            (void)fprintf(out, "  %-*s", (int)width[c], r[c]);
        (void)fputs("  ", out);
        print_name(out, attn_model_layer_source(m, i), 0);
        (void)fputc('\n', out);
    }
    for (size_t i = 0; i < attn_model_warning_count(m); i++) {
        (void)fputs(i == 0 ? "\nwarning: " : "warning: ", out);
        print_name(out, attn_model_warning(m, i), 0);
        (void)fputc('\n', out);
    }
}

/* --- for programs ------------------------------------------------------------------------------ */

static void write_tensors(srv_json_writer *w, const attn_archive *a)
{
    char text[SHAPE_CHARS];

    srv_json_writer_format(w, ",\"tensors\":[");
    for (size_t i = 0; i < attn_archive_count(a); i++) {
        const attn_tensor *t = attn_archive_at(a, i);
        srv_json_writer_format(w, "%s\n{\"name\":", i == 0 ? "" : ",");
        srv_json_writer_string(w, t->name);
        srv_json_writer_format(w, ",\"dtype\":");
        srv_json_writer_string(w, t->dtype_name);
        srv_json_writer_format(w, ",\"shape\":%s,\"bytes\":%zu}", shape_text(text, t), t->bytes);
    }
    srv_json_writer_format(w, "]");
}

static void write_layers(srv_json_writer *w, const attn_model *m)
{
    char number[ATTN_F32_CHARS + 1];

    srv_json_writer_format(w, ",\"family\":");
    srv_json_writer_string(w, attn_model_family(m));
    srv_json_writer_format(w, ",\"weights_bytes\":%zu,\"layers\":[", attn_model_weights_bytes(m));
    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
        srv_json_writer_format(w,
                               "%s\n{\"layer\":%zu,\"d_model\":%zu,\"num_heads\":%zu,"
                               "\"num_kv_heads\":%zu,\"head_dim\":%zu,\"v_head_dim\":%zu",
                               i == 0 ? "" : ",", i, s->d_model, s->num_heads, s->num_kv_heads,
                               s->head_dim, s->v_head_dim);
        srv_json_writer_format(w, ",\"scale\":%s,\"is_causal\":%s", float_text(number, s->scale),
                               s->is_causal ? "true" : "false");
        srv_json_writer_format(
            w, ",\"window\":{\"left\":%" PRId64 ",\"right\":%" PRId64 "},\"softcap\":%s",
            s->window.left, s->window.right, float_text(number, s->softcap));
        srv_json_writer_format(w, ",\"cross\":%s,\"position\":", s->cross ? "true" : "false");
        srv_json_writer_string(w, attn_model_layer_position(m, i));
        srv_json_writer_format(w, ",\"source\":");
        srv_json_writer_string(w, attn_model_layer_source(m, i));
        srv_json_writer_format(w, "}");
    }
    srv_json_writer_format(w, "],\"warnings\":[");
    for (size_t i = 0; i < attn_model_warning_count(m); i++) {
        srv_json_writer_format(w, "%s", i == 0 ? "" : ",");
        srv_json_writer_string(w, attn_model_warning(m, i));
    }
    srv_json_writer_format(w, "]");
}

/* One object; what is NULL is not in it. `error` "" = none. */
static attn_status write_json(FILE *out, const char *path, const attn_archive *a,
                              const attn_model *m, const char *error, attn_error *err)
{
    char piece[4096];
    size_t n = 0;
    srv_json_writer *w = srv_json_writer_new();

    if (w == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory to print it", path);
    srv_json_writer_format(w, "{\"path\":");
    srv_json_writer_string(w, path);
    if (a != NULL)
        write_tensors(w, a);
    if (m != NULL)
        write_layers(w, m);
    if (error[0] != '\0') {
        srv_json_writer_format(w, ",\"error\":");
        srv_json_writer_string(w, error);
    }
    srv_json_writer_format(w, "}\n");
    attn_status rc = srv_json_writer_status(w);
    while (rc == ATTN_OK && (n = srv_json_writer_read(w, piece, sizeof piece)) > 0)
        (void)fwrite(piece, 1, n, out);
    srv_json_writer_free(w);
    return rc == ATTN_OK ? rc : attn_fail(err, rc, "%s: no memory to print it", path);
}

int srv_inspect(const char *path, bool json, FILE *out, attn_error *err)
{
    attn_archive *a = NULL;
    attn_model *m = NULL;
    attn_model_options options = {.name = "inspect", .path = path};
    /* Weights are packed for the kernels in force. */
    attn_status rc = attn_kern_init(getenv("ATTND_ISA"), err);

    if (rc == ATTN_OK)
        rc = attn_archive_open(&a, path, err);
    if (rc == ATTN_OK && !json)
        print_tensors(out, a);
    if (rc == ATTN_OK)
        rc = attn_model_load(&m, &options, err);
    if (json) {
        attn_status written = write_json(out, path, a, m, err->text, err);
        rc = rc == ATTN_OK ? written : rc;
    } else if (rc == ATTN_OK) {
        print_layers(out, m);
    }
    attn_model_free(m);
    attn_archive_close(a);
    if ((fflush(out) != 0 || ferror(out)) && rc == ATTN_OK)
        rc = attn_fail(err, ATTN_EIO, "%s: cannot write what was found", path);
    return rc == ATTN_OK ? 0 : 1;
}
