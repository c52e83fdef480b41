/* tiny_encoder.h: a whole encoder of the BERT family with a tokeniser, small enough to be made by a test. */
#ifndef TESTS_TINY_ENCODER_H
#define TESTS_TINY_ENCODER_H

enum {
    TINY_WIDTH = 8,
    TINY_HEADS = 2,
    TINY_LAYERS = 2,
    TINY_TOKENS = 16,
    TINY_WORDS = 12,
    TINY_MOST_WORDS = 1200
};

/* The words of its vocabulary, by id: "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", ... */
extern const char *const tiny_words[TINY_WORDS];

/* Writes the folder, whose weights follow from `seed`; with `pooling`, its sentence-transformers files, too: the mean,
 * to length 1. *words (unless NULL) are its word embeddings, [TINY_WORDS][TINY_WIDTH]; the caller frees. */
void tiny_encoder_write(const char *dir, unsigned seed, int pooling, float **words);

/* The same with pooling and a copy of this tokenizer.json, which may have TINY_MOST_WORDS tokens. */
void tiny_encoder_write_for(const char *dir, unsigned seed, const char *tokenizer);

#endif
