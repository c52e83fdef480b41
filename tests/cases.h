/* cases.h: the stored vectors as test cases: what a README of theirs says, turned into arrays. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <jansson.h>

#include "tests/ref_attention.h"
#include "tests/st.h"

/* What the oracle says of a whole batch; the letters as in ref_attention.h. */
typedef struct {
    size_t batch, tokens, keys, heads, kv_heads, head_dim, v_head_dim, d_out;
    double *outputs;                             /* [B,T,d_out] or [B,H,T,e] */
    double *maps, *scores, *softcapped, *masked; /* [B,H,T,S] */
    double *joined, *logsumexp;                  /* [B,T,H*e], [B,H,T] */
    double *query, *key, *value;                 /* [B,H,T,d], [B,G,S,d], [B,G,S,e] */
    unsigned char *allowed;                      /* [B,H,T,S] */
} ref_batch;

/* Room for `batch` sequences of the sizes of *shape, and the oracle's answer for one of them: its
 * inputs in *r, whose result pointers are set here. */
ref_batch *ref_batch_new(size_t batch, const ref_attention *shape);
void ref_batch_run(ref_batch *out, size_t b, ref_attention *r);
void ref_batch_free(ref_batch *out); /* takes NULL */

/* One of shared/vectors/mha. Inputs that a case lacks are NULL. */
typedef struct {
    char *name;
    json_t *json; /* case.json */
    st_file *vectors, *model;
    size_t batch, tokens, keys, past, heads, kv_heads, head_dim, v_head_dim, d_model, d_kv, d_out;
    bool cross;
    bool finite; /* no NaN or Inf in the inputs */
    int64_t *lengths, *positions;
    unsigned char *mask;
    double *x, *context, *bias, *past_key, *past_value;
    double *weight[8]; /* wq wk wv wo, bq bk bv bo */
} mha_case;

/* Calls `each` for all of them in the order of index.json; false when they are not there (and says
 * "skipped: ..."). `count`, if not NULL, receives how many there were. */
bool mha_for_each(void (*each)(const mha_case *c, void *arg), void *arg, size_t *count);
void mha_sequence(const mha_case *c, size_t b, ref_attention *r); /* inputs of the oracle */
ref_batch *mha_oracle(const mha_case *c);                         /* caller: ref_batch_free() */
double mha_tolerance(const mha_case *c, const char *tensor);      /* 0 = none is stored */
/* Rows that API.md computes: in self attention those below the length, else all. */
size_t mha_real_rows(const mha_case *c, size_t b);

/* One of shared/vectors/onnx-attention, with every operand brought to rank 4 and to our fields. */
typedef struct {
    char *name;
    json_t *json;
    st_file *file;
    bool half;        /* the operands are float16 */
    bool finite;      /* no NaN or Inf in query, key, value or past */
    double tolerance; /* absolute and relative */
    size_t batch, tokens, new_keys, past, keys, heads, kv_heads, head_dim, v_head_dim;
    double scale; /* the default where none is given */
    bool scale_given, causal;
    double softcap;
    double *query, *key, *value, *past_key, *past_value; /* [B,heads,rows,size] */
    unsigned char *mask;                                 /* [mask_dim], or NULL */
    double *bias;                                        /* [mask_dim], or NULL */
    size_t mask_dim[4];                                  /* each 1 or full; the last axis is S */
    int64_t *lengths;                                    /* [B] or NULL */
    int64_t *offset;                                     /* [B] causal offsets */
    int mode;            /* of qk_matmul_output; -1 = the case has none */
    double *expected;    /* Y as [B,H,T,e] */
    double *expected_qk; /* [B,H,T,S] or NULL */
    double *present_key, *present_value;
} onnx_case;

bool onnx_for_each(void (*each)(const onnx_case *c, void *arg), void *arg, size_t *count);
void onnx_sequence(const onnx_case *c, size_t b, ref_attention *r);

/* Numbers of a case's JSON; missing ones are 0. */
double case_number(const json_t *object, const char *key);
size_t case_size(const json_t *object, const char *key);

/* Reads a JSON file; the test fails when it cannot. */
json_t *case_json(const char *path);

#endif
