#include "tests/tiny_encoder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/st.h"

enum { INNER = 12, MOST_TENSORS = 5 + 16 * TINY_LAYERS, NAME_BYTES = 96 };

const char *const tiny_words[TINY_WORDS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the",
                                            "cat",   "##s",   "on",    "a",     "mat",    "."};

typedef struct {
    st_entry entry[MOST_TENSORS];
    char name[MOST_TENSORS][NAME_BYTES];
    size_t n;
    uint32_t seed;
} tensors;

/* In -1..1, and around 1 where a norm multiplies. */
static float *add(tensors *t, const char *name, size_t rows, size_t columns)
{
    size_t count = rows * (columns > 0 ? columns : 1);
    float *x = malloc(count * sizeof *x);

    assert_true(x != NULL && t->n < MOST_TENSORS);
    st_random(&t->seed, x, count);
    if (strstr(name, "LayerNorm.weight") != NULL) {
        for (size_t i = 0; i < count; i++)
            x[i] = 1 + x[i] / 4;
    }
    (void)snprintf(t->name[t->n], NAME_BYTES, "%s", name);
    t->entry[t->n] = (st_entry){.name = t->name[t->n],
                                .dtype = "F32",
                                .rank = columns > 0 ? 2 : 1,
                                .dim = {rows, columns},
                                .data = x,
                                .bytes = count * sizeof *x};
    t->n++;
    return x;
}

static void add_linear(tensors *t, size_t layer, const char *name, size_t out, size_t in)
{
    char full[NAME_BYTES];

    (void)snprintf(full, sizeof full, "encoder.layer.%zu.%s.weight", layer, name);
    (void)add(t, full, out, in);
    (void)snprintf(full, sizeof full, "encoder.layer.%zu.%s.bias", layer, name);
    (void)add(t, full, out, 0);
}

static void write_in(const char *dir, const char *name, const char *text)
{
    char *path = st_path("%s/%s", dir, name);

    st_write_text(path, text);
    free(path);
}

static void write_words(const char *dir)
{
    char text[1024];
    size_t used = 0;

    for (size_t i = 0; i < TINY_WORDS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", tiny_words[i]);
    write_in(dir, "vocab.txt", text);
    write_in(dir, "tokenizer_config.json",
             "{\"tokenizer_class\":\"BertTokenizer\",\"do_lower_case\":true}");
}

static void write_config(const char *dir, int pooling, size_t words)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "{\"model_type\":\"bert\",\"hidden_size\":%d,\"num_attention_heads\":%d,"
                   "\"num_hidden_layers\":%d,\"intermediate_size\":%d,\"hidden_act\":\"gelu\","
                   "\"vocab_size\":%zu,\"max_position_embeddings\":%d,\"type_vocab_size\":2,"
                   "\"layer_norm_eps\":1e-12}",
                   TINY_WIDTH, TINY_HEADS, TINY_LAYERS, INNER, words, TINY_TOKENS);
    write_in(dir, "config.json", text);
    if (!pooling)
        return;
    write_in(dir, "modules.json",
             "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.models."
             "Transformer\"},"
             "{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":\"sentence_transformers."
             "models.Pooling\"},"
             "{\"idx\":2,\"name\":\"2\",\"path\":\"2_Normalize\",\"type\":\"sentence_transformers."
             "models.Normalize\"}]");
    char *folder = st_path("%s/1_Pooling", dir);
    assert_int_equal(mkdir(folder, 0755), 0);
    (void)snprintf(text, sizeof text,
                   "{\"word_embedding_dimension\":%d,\"pooling_mode_cls_token\":false,"
                   "\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":false,"
                   "\"pooling_mode_mean_sqrt_len_tokens\":false}",
                   TINY_WIDTH);
    write_in(folder, "config.json", text);
    free(folder);
}

/* The folder with its weights and config.json; the word embeddings go to *table, the caller frees. */
static void write_model(const char *dir, unsigned seed, int pooling, size_t words, float **table)
{
    tensors t = {.seed = seed};

    assert_int_equal(mkdir(dir, 0755), 0);
    float *first = add(&t, "embeddings.word_embeddings.weight", words, TINY_WIDTH);
    (void)add(&t, "embeddings.position_embeddings.weight", TINY_TOKENS, TINY_WIDTH);
    (void)add(&t, "embeddings.token_type_embeddings.weight", 2, TINY_WIDTH);
    (void)add(&t, "embeddings.LayerNorm.weight", TINY_WIDTH, 0);
    (void)add(&t, "embeddings.LayerNorm.bias", TINY_WIDTH, 0);
    for (size_t l = 0; l < TINY_LAYERS; l++) {
        add_linear(&t, l, "attention.self.query", TINY_WIDTH, TINY_WIDTH);
        add_linear(&t, l, "attention.self.key", TINY_WIDTH, TINY_WIDTH);
        add_linear(&t, l, "attention.self.value", TINY_WIDTH, TINY_WIDTH);
        add_linear(&t, l, "attention.output.dense", TINY_WIDTH, TINY_WIDTH);
        add_linear(&t, l, "attention.output.LayerNorm", TINY_WIDTH, 0);
        add_linear(&t, l, "intermediate.dense", INNER, TINY_WIDTH);
        add_linear(&t, l, "output.dense", TINY_WIDTH, INNER);
        add_linear(&t, l, "output.LayerNorm", TINY_WIDTH, 0);
    }
    char *file = st_path("%s/model.safetensors", dir);
    st_write(file, t.entry, t.n);
    free(file);
    write_config(dir, pooling, words);
    *table = malloc(words * TINY_WIDTH * sizeof **table);
    assert_non_null(*table);
    memcpy(*table, first, words * TINY_WIDTH * sizeof **table);
    for (size_t i = 0; i < t.n; i++)
        free((void *)(uintptr_t)t.entry[i].data);
}

void tiny_encoder_write(const char *dir, unsigned seed, int pooling, float **words)
{
    float *table = NULL;

    write_model(dir, seed, pooling, TINY_WORDS, &table);
    write_words(dir);
    if (words != NULL)
        *words = table;
    else
        free(table);
}

void tiny_encoder_write_for(const char *dir, unsigned seed, const char *tokenizer)
{
    enum { MOST = 1 << 20 };
    float *table = NULL;
    char *text = malloc(MOST);
    FILE *f = fopen(tokenizer, "r");

    assert_true(text != NULL && f != NULL);
    size_t n = fread(text, 1, MOST - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    write_model(dir, seed, 1, TINY_MOST_WORDS, &table);
    write_in(dir, "tokenizer.json", text);
    free(table);
    free(text);
}
