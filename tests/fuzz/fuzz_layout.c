/* Which attention layers a folder has, from its config.json and the names, types and shapes of its tensors; layers that
 * load compute a request. Input: config.json; then a line "NAME DTYPE 2,3,4" a tensor; then a layout object or nothing.
 * A line "--" stands between the three. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/model.h"
#include "server/request.h"
#include "tests/fuzz/answering.h"

enum { MOST_DATA = 256 << 10, MOST_TENSORS = 128, MOST_WIDTH = 512, MEMORY = 16 << 20 };

typedef struct {
    char *text; /* the header */
    size_t n, room;
    size_t data; /* bytes */
    size_t tensors;
} header;

/* Reads "NAME DTYPE 2,3,4" into the header; passes over what would not be a tensor of moderate size. */
static void add_tensor(header *h, const char *line)
{
    static const struct {
        char name[5];
        size_t size;
    } types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}, {"BOOL", 1}};
    char name[256], type[8], shape[64];
    size_t size = 0;

    if (h->tensors == MOST_TENSORS ||
        sscanf(line, "%255s %7[A-Z0-9] %63[0-9,]", name, type, shape) != 3)
        return;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        size = strcmp(type, types[i].name) == 0 ? types[i].size : size;
    for (const char *p = shape; *p != '\0'; p += strspn(p, ",")) {
        char *end = NULL;
        size_t dim = strtoul(p, &end, 10);
        if (dim > MOST_DATA || end == p)
            return;
        size *= dim;
        if (size > MOST_DATA)
            return;
        p = end;
    }
    if (h->data + size > MOST_DATA || shape[0] == ',' || shape[strlen(shape) - 1] == ',' ||
        strstr(shape, ",,") != NULL)
        return;
    h->n +=
        (size_t)snprintf(h->text + h->n, h->room - h->n,
                         "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         h->tensors == 0 ? '{' : ',', name, type, shape, h->data, h->data + size);
    h->data += size;
    h->tensors++;
}

static void write_tensors(fuzz_input part)
{
    header h = {.room = 16 + MOST_TENSORS * 512};
    char *lines = fuzz_text(part.at, part.n);

    h.text = malloc(h.room);
    FUZZ_CHECK(h.text != NULL);
    for (char *save = NULL, *line = strtok_r(lines, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        if (strpbrk(line, "\"\\") == NULL)
            add_tensor(&h, line);
    }
    h.n += (size_t)snprintf(h.text + h.n, h.room - h.n, h.tensors == 0 ? "{}" : "}");
    unsigned char *file = malloc(8 + h.n + h.data);
    FUZZ_CHECK(file != NULL);
    for (size_t i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)h.n >> 8 * i);
    memcpy(file + 8, h.text, h.n);
    for (size_t i = 0; i < h.data; i++)
        file[8 + h.n + i] = (unsigned char)(i % 4 < 2 ? i * 37 : 0x3c); /* around 0.01 */
    fuzz_file("model.safetensors", file, 8 + h.n + h.data);
    free(file);
    free(h.text);
    free(lines);
}

/* Two tokens of zeros; the answer may be an error, of which the layer's owner hears. */
static void compute(const attn_model *m, size_t layer)
{
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, layer));
    size_t characters = (2 * s->d_model * sizeof(float) + 2) / 3 * 4, room = characters + 256;
    char *body = malloc(room), *text = NULL;
    srv_request *r = NULL;
    attn_budget budget;
    attn_error err = {0};
    size_t n = 0;

    FUZZ_CHECK(body != NULL);
    size_t used = (size_t)snprintf(
        body, room,
        "{\"layer\":%zu,\"inputs_embeds\":{\"shape\":[2,%zu],\"dtype\":\"float32\",\"data\":\"",
        layer, s->d_model);
    size_t bytes = 2 * s->d_model * sizeof(float);
    memset(body + used, 'A', characters);
    for (size_t i = 0; i < (3 - bytes % 3) % 3; i++)
        body[used + characters - 1 - i] = '=';
    used += characters;
    used += (size_t)snprintf(body + used, room - used, "\"},\"return_attentions\":true}");
    attn_budget_init(&budget, MEMORY);
    attn_status rc = srv_request_new(&r, SRV_ATTENTION, m, &budget, &err);
    if (rc == ATTN_OK)
        rc = srv_request_feed(r, body, used, &err);
    if (rc == ATTN_OK)
        rc = srv_request_parse(r, 1, &err);
    if (rc == ATTN_OK)
        text = answering_text(r, &n, &err);
    FUZZ_CHECK(err.code != ATTN_EINVAL && err.code != ATTN_EINTERNAL);
    free(text);
    srv_request_free(r);
    FUZZ_CHECK(budget.used == 0);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    fuzz_input config = fuzz_part(&in), tensors = fuzz_part(&in);
    attn_json *layout = NULL;
    attn_model *m = NULL;
    attn_error err = {0};

    (void)answering_model(); /* chooses the kernels */
    if (in.n > 0 && attn_json_parse(&layout, (const char *)in.at, in.n, "layout", NULL) != ATTN_OK)
        return -1;
    if (layout != NULL &&
        !attn_json_is_object(layout)) { /* the configuration takes objects alone */
        attn_json_free(layout);
        return -1;
    }
    if (config.n > 0)
        fuzz_file("config.json", config.at, config.n);
    write_tensors(tensors);
    attn_model_options options = {.name = "fuzz", .path = fuzz_folder(), .layout = layout};
    attn_status rc = attn_model_load(&m, &options, &err);
    FUZZ_CHECK(rc == err.code && (rc == ATTN_OK) == (m != NULL));
    FUZZ_CHECK(rc == ATTN_OK || (err.text[0] != '\0' && rc != ATTN_ENOMEM && rc != ATTN_EIO));
    for (size_t i = 0; rc == ATTN_OK && i < attn_model_layer_count(m) && i < 3; i++) {
        const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
        FUZZ_CHECK(s->num_kv_heads > 0 && s->num_heads % s->num_kv_heads == 0);
        FUZZ_CHECK(attn_model_layer_source(m, i) != NULL);
        if (s->d_model <= MOST_WIDTH)
            compute(m, i);
    }
    attn_model_free(m);
    attn_json_free(layout);
    fuzz_file("config.json", NULL, 0);
    fuzz_file("model.safetensors", NULL, 0);
    return 0;
}
