/* The families, a row for each stack of layers, and what only one of them does. */
#include <math.h>
#include <string.h>

#include "layout.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Names of the four parts of a layer, for a row of the table. */
#define NAMES(q, k, v, o)                                                                          \
    .weight = {q ".weight", k ".weight", v ".weight", o ".weight"},                                \
    .bias = {q ".bias", k ".bias", v ".bias", o ".bias"}
#define FUSED(qkv, o) NAMES(qkv, qkv, qkv, o)

#define BIAS_O    (1U << ATTN_O)
#define BIAS_NO_K (1U << ATTN_Q | 1U << ATTN_V | 1U << ATTN_O)
#define BIAS_QKV  (1U << ATTN_Q | 1U << ATTN_K | 1U << ATTN_V)
#define BIAS_ALL  (BIAS_QKV | BIAS_O)

static const attn_rope_keys plain_rope = {"full_attention", "rope_theta|rotary_emb_base", 10000.0,
                                          1.0};

/* --- what only one family does -------------------------------------------------------------- */

static attn_status finish_bert(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    const char *type = "absolute";
    bool decoder = false;

    ATTN_TRY(attn_config_string(p->config, "position_embedding_type", &type, err));
    if (strcmp(type, "absolute") != 0)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: position_embedding_type \"%.40s\" is not supported; absolute is",
                         p->config->label, type);
    ATTN_TRY(attn_config_bool(p->config, "is_decoder", &decoder, err));
    spec->is_causal = decoder && !spec->cross;
    return ATTN_OK;
}

static attn_status finish_gpt2(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    bool scaled = true, by_layer = false;

    ATTN_TRY(attn_config_bool(p->config, "scale_attn_weights", &scaled, err));
    ATTN_TRY(attn_config_bool(p->config, "scale_attn_by_inverse_layer_idx", &by_layer, err));
    double scale = scaled ? 1.0 / sqrt((double)spec->head_dim) : 1.0;
    spec->scale = (float)(by_layer ? scale / (double)(p->n + 1) : scale);
    return ATTN_OK;
}

static attn_status finish_neox(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    static const attn_rope_keys keys = {"full_attention", "rope_theta|rotary_emb_base", 10000.0,
                                        0.25};
    return attn_config_rope(p->config, &keys, spec->head_dim, &spec->rope, err);
}

static attn_status finish_llama(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    return attn_config_rope(p->config, &plain_rope, spec->head_dim, &spec->rope, err);
}

/* layer_types[n], or NULL when there is no such list. */
static attn_status layer_type(const attn_layer_place *p, const char **out, attn_error *err)
{
    const attn_json *types = NULL;

    *out = NULL;
    if (p->config->object != NULL)
        types = attn_json_get(p->config->object, "layer_types");
    if (attn_json_is_null(types))
        return ATTN_OK;
    if (!attn_json_is_array(types) || attn_json_length(types) != p->layers)
        return attn_fail(err, ATTN_EINVAL, "%s: layer_types must be a list of %zu, one a layer",
                         p->config->label, p->layers);
    if (!attn_json_string(attn_json_at(types, p->n), out) ||
        (strcmp(*out, "full_attention") != 0 && strcmp(*out, "sliding_attention") != 0))
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: layer_types[%zu] is neither full_attention nor sliding_attention",
                         p->config->label, p->n);
    return ATTN_OK;
}

static bool has_key(const attn_config *c, const char *key)
{
    return c->object != NULL && attn_json_get(c->object, key) != NULL;
}

/* sliding_window W as these causal models mean it: i - W < j <= i. Null or 0 for the default: off. */
static attn_status slide(const attn_layer_place *p, bool by_rule, size_t default_size,
                         attn_layer_spec *spec, attn_error *err)
{
    const char *type = NULL;
    size_t size = has_key(p->config, "sliding_window") ? 0 : default_size;
    bool found = false;

    ATTN_TRY(layer_type(p, &type, err));
    ATTN_TRY(attn_config_size(p->config, "sliding_window", &size, &found, err));
    bool slides = type != NULL ? strcmp(type, "sliding_attention") == 0 : by_rule;
    if (slides && size > 0)
        spec->window = (attn_window){(int64_t)size - 1, -1};
    return ATTN_OK;
}

static attn_status finish_mistral(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    ATTN_TRY(finish_llama(p, spec, err));
    return slide(p, true, 0, spec, err);
}

/* Qwen2 and Qwen3: windows only with use_sliding_window, on the layers from max_window_layers on. */
static attn_status finish_qwen(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    bool use = false, found = false;
    double first = 28, eps = 1e-6;

    ATTN_TRY(finish_llama(p, spec, err));
    ATTN_TRY(attn_config_number(p->config, "rms_norm_eps", &eps, &found, err));
    spec->qk_norm_eps = (float)eps;
    ATTN_TRY(attn_config_bool(p->config, "use_sliding_window", &use, err));
    ATTN_TRY(attn_config_number(p->config, "max_window_layers", &first, &found, err));
    return use ? slide(p, (double)p->n >= first, 4096, spec, err) : ATTN_OK;
}

static attn_status finish_gemma2(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    /* null switches the cap off; only a missing key means the default. */
    double scalar = 256, cap = has_key(p->config, "attn_logit_softcapping") ? 0 : 50;
    bool found = false, both_ways = false;

    ATTN_TRY(finish_llama(p, spec, err));
    ATTN_TRY(attn_config_number(p->config, "query_pre_attn_scalar", &scalar, &found, err));
    if (!(scalar > 0))
        return attn_fail(err, ATTN_EINVAL, "%s: query_pre_attn_scalar is %g; it must be positive",
                         p->config->label, scalar);
    spec->scale = (float)(1.0 / sqrt(scalar));
    ATTN_TRY(attn_config_number(p->config, "attn_logit_softcapping", &cap, &found, err));
    spec->softcap = (float)cap;
    ATTN_TRY(slide(p, p->n % 2 == 0, 4096, spec, err));
    ATTN_TRY(attn_config_bool(p->config, "use_bidirectional_attention", &both_ways, err));
    if (both_ways && spec->window.left >= 0)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: use_bidirectional_attention with sliding_window is not supported",
                         p->config->label);
    spec->is_causal = !both_ways;
    return ATTN_OK;
}

static attn_status finish_t5(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    bool found = false;

    spec->scale = 1.0F;
    if (p->stack->rel_bias == NULL)
        return ATTN_OK;
    spec->rel_bidirectional = !spec->is_causal;
    spec->rel_buckets = 32; /* as T5Config has it when the key is missing */
    spec->rel_max_distance = 128;
    ATTN_TRY(attn_config_size(p->config, "relative_attention_num_buckets", &spec->rel_buckets,
                              &found, err));
    return attn_config_size(p->config, "relative_attention_max_distance", &spec->rel_max_distance,
                            &found, err);
}

/* Global and local layers have a rotary base each; local ones see local_attention / 2 keys on either
 * side, the ends included. */
static attn_status finish_modernbert(const attn_layer_place *p, attn_layer_spec *spec,
                                     attn_error *err)
{
    static const attn_rope_keys global = {"full_attention", "global_rope_theta|rope_theta",
                                          160000.0, 1.0};
    static const attn_rope_keys local = {
        "sliding_attention", "local_rope_theta|global_rope_theta|rope_theta", 10000.0, 1.0};
    size_t every = 3, span = 128;
    const char *type = NULL;
    bool found = false;

    ATTN_TRY(layer_type(p, &type, err));
    ATTN_TRY(attn_config_size(p->config, "global_attn_every_n_layers", &every, &found, err));
    ATTN_TRY(attn_config_size(p->config, "local_attention", &span, &found, err));
    bool is_local = type != NULL ? strcmp(type, "sliding_attention") == 0 : p->n % every != 0;
    if (is_local)
        spec->window = (attn_window){(int64_t)span / 2, (int64_t)span / 2};
    return attn_config_rope(p->config, is_local ? &local : &global, spec->head_dim, &spec->rope,
                            err);
}

/* A key that must be missing, null or false: it changes the result in an unsupported way. */
static attn_status refuse_key(const attn_config *c, const char *key, attn_error *err)
{
    const attn_json *v = c->object != NULL ? attn_json_get(c->object, key) : NULL;
    bool on = true;

    if (attn_json_is_null(v) || (attn_json_bool(v, &on) && !on))
        return ATTN_OK;
    return attn_fail(err, ATTN_EUNSUPPORTED, "%s: %s is not supported", c->label, key);
}

static attn_status finish_nomic(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    double fraction = 1.0;
    bool found = false, interleaved = false;

    ATTN_TRY(refuse_key(p->config, "rotary_scaling_factor", err));
    ATTN_TRY(refuse_key(p->config, "rotary_emb_scale_base", err));
    ATTN_TRY(attn_config_bool(p->config, "causal", &spec->is_causal, err));
    ATTN_TRY(attn_config_number(p->config, "rotary_emb_fraction", &fraction, &found, err));
    ATTN_TRY(attn_config_bool(p->config, "rotary_emb_interleaved", &interleaved, err));
    if (fraction == 0.0)
        return ATTN_OK;
    attn_rope_keys keys = plain_rope;
    keys.fraction = fraction;
    ATTN_TRY(attn_config_rope(p->config, &keys, spec->head_dim, &spec->rope, err));
    if (interleaved)
        spec->rope.style = ATTN_ROPE_INTERLEAVED;
    return ATTN_OK;
}

static attn_status finish_gte(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    const char *type = "rope";

    ATTN_TRY(refuse_key(p->config, "logn_attention_scale", err));
    ATTN_TRY(attn_config_string(p->config, "position_embedding_type", &type, err));
    return strcmp(type, "rope") == 0 ? finish_llama(p, spec, err) : ATTN_OK;
}

/* nn.MultiheadAttention does not know; who made the config.json may. */
static attn_status finish_torch(const attn_layer_place *p, attn_layer_spec *spec, attn_error *err)
{
    return spec->cross ? ATTN_OK : attn_config_bool(p->config, "is_causal", &spec->is_causal, err);
}

/* --- the table ------------------------------------------------------------------------------ */

#define BERT_KEYS                                                                                  \
    .width = "hidden_size", .heads = "num_attention_heads", .depth = "num_hidden_layers"

static const attn_stack bert[] = {
    {.layer = "encoder.layer.{N}.attention.",
     NAMES("self.query", "self.key", "self.value", "output.dense"),
     BERT_KEYS,
     .bias_always = BIAS_ALL,
     .quiet = "output.LayerNorm.",
     .refuse = "self.distance_embedding.",
     .finish = finish_bert},
    {.layer = "encoder.layer.{N}.crossattention.",
     NAMES("self.query", "self.key", "self.value", "output.dense"),
     BERT_KEYS,
     .cross = true,
     .bias_always = BIAS_ALL,
     .quiet = "output.LayerNorm.",
     .refuse = "self.distance_embedding.",
     .finish = finish_bert},
};

static const attn_stack distilbert[] = {
    {.layer = "layer.{N}.attention.",
     NAMES("q_lin", "k_lin", "v_lin", "out_lin"),
     .width = "dim|hidden_size",
     .heads = "n_heads|num_attention_heads",
     .depth = "n_layers|num_hidden_layers",
     .bias_always = BIAS_ALL},
};

static const attn_stack albert[] = {
    {.layer = "encoder.albert_layer_groups.{G}.albert_layers.{N}.attention.",
     NAMES("query", "key", "value", "dense"),
     BERT_KEYS,
     .bias_always = BIAS_ALL,
     .quiet = "LayerNorm.",
     .refuse = "distance_embedding.",
     .finish = finish_bert},
};

#define GPT2_KEYS                                                                                  \
    .width = "n_embd|hidden_size", .heads = "n_head|num_attention_heads",                          \
    .depth = "n_layer|num_hidden_layers"

static const attn_stack gpt2[] = {
    {.layer = "h.{N}.attn.",
     FUSED("c_attn", "c_proj"),
     GPT2_KEYS,
     .in_out = true,
     .causal = true,
     .bias_always = BIAS_ALL,
     .quiet = "bias|masked_bias",
     .finish = finish_gpt2},
    {.layer = "h.{N}.crossattention.",
     NAMES("q_attn", "c_attn", "c_attn", "c_proj"),
     GPT2_KEYS,
     .in_out = true,
     .cross = true,
     .bias_always = BIAS_ALL,
     .quiet = "bias|masked_bias",
     .finish = finish_gpt2},
};

static const attn_stack gpt_neox[] = {
    {.layer = "layers.{N}.attention.",
     FUSED("query_key_value", "dense"),
     BERT_KEYS,
     .per_head = true,
     .causal = true,
     .bias_key = "attention_bias",
     .bias_switched = BIAS_ALL,
     .bias_default = true,
     .quiet = "bias|masked_bias|rotary_emb.",
     .finish = finish_neox},
};

/* Llama and its kin differ in a few fields; a later designator may not repeat an earlier one. */
#define LLAMA_ROW                                                                                  \
    .layer = "layers.{N}.self_attn.", NAMES("q_proj", "k_proj", "v_proj", "o_proj"), BERT_KEYS,    \
    .kv_heads = "num_key_value_heads", .head_dim = "head_dim", .causal = true,                     \
    .quiet = "rotary_emb."
#define NO_QK_NORM .refuse = "q_norm.|k_norm.|sinks"

static const attn_stack llama[] = {
    {LLAMA_ROW, NO_QK_NORM, .bias_key = "attention_bias", .bias_switched = BIAS_ALL,
     .finish = finish_llama},
};
static const attn_stack mistral[] = {
    {LLAMA_ROW, NO_QK_NORM, .finish = finish_mistral},
};
static const attn_stack qwen2[] = {
    {LLAMA_ROW, NO_QK_NORM, .bias_always = BIAS_QKV, .finish = finish_qwen},
};
static const attn_stack qwen3[] = {
    {LLAMA_ROW, .refuse = "sinks", .q_norm = "q_norm.weight", .k_norm = "k_norm.weight",
     .bias_key = "attention_bias", .bias_switched = BIAS_ALL, .finish = finish_qwen},
};
static const attn_stack gemma2[] = {
    {LLAMA_ROW, NO_QK_NORM, .bias_key = "attention_bias", .bias_switched = BIAS_ALL,
     .finish = finish_gemma2},
};

#define T5_ROW                                                                                     \
    NAMES("q", "k", "v", "o"), .width = "d_model", .heads = "num_heads", .head_dim = "d_kv",       \
                               .finish = finish_t5
#define T5_TABLE "relative_attention_bias.weight"

static const attn_stack t5[] = {
    {.layer = "encoder.block.{N}.layer.0.SelfAttention.",
     T5_ROW,
     .depth = "num_layers",
     .rel_bias = T5_TABLE},
    {.layer = "decoder.block.{N}.layer.0.SelfAttention.",
     T5_ROW,
     .depth = "num_decoder_layers|num_layers",
     .rel_bias = T5_TABLE,
     .causal = true},
    {.layer = "decoder.block.{N}.layer.1.EncDecAttention.",
     T5_ROW,
     .depth = "num_decoder_layers|num_layers",
     .cross = true,
     .needs_previous = true,
     .quiet = T5_TABLE}, /* left over in old files; Hugging Face does not read it either */
};

static const attn_stack vit[] = {
    {.layer = "encoder.layer.{N}.attention.",
     NAMES("attention.query", "attention.key", "attention.value", "output.dense"),
     BERT_KEYS,
     .bias_always = BIAS_O,
     .bias_key = "qkv_bias",
     .bias_switched = BIAS_QKV,
     .bias_default = true},
};

static const attn_stack timm[] = {
    {.layer = "blocks.{N}.attn.",
     FUSED("qkv", "proj"),
     .width = "embed_dim",
     .heads = "num_heads",
     .depth = "depth",
     .refuse = "q_norm.|k_norm.|norm.|relative_position_bias_table|q_bias|v_bias"},
};

/* Hugging Face leaves out of text_config and vision_config what its classes have as defaults. */
#define CLIP_ROW NAMES("q_proj", "k_proj", "v_proj", "out_proj"), BERT_KEYS, .bias_always = BIAS_ALL
#define TORCH_FUSED                                                                                \
    .weight = {"in_proj_weight", "in_proj_weight", "in_proj_weight", "out_proj.weight"},           \
    .bias = {"in_proj_bias", "in_proj_bias", "in_proj_bias", "out_proj.bias"},                     \
    .refuse = "bias_k|bias_v"
#define TORCH_SPLIT                                                                                \
    .weight = {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"},              \
    .bias = {"in_proj_bias", "in_proj_bias", "in_proj_bias", "out_proj.bias"},                     \
    .refuse = "bias_k|bias_v", .any_width = true

static const attn_stack clip[] = {
    {.layer = "text_model.encoder.layers.{N}.self_attn.",
     CLIP_ROW,
     .section = "text_config",
     .default_heads = 8,
     .causal = true},
    {.layer = "vision_model.encoder.layers.{N}.self_attn.",
     CLIP_ROW,
     .section = "vision_config",
     .default_heads = 12},
    {.layer = "transformer.resblocks.{N}.attn.",
     TORCH_FUSED,
     .bias_always = BIAS_ALL,
     .heads = "transformer_heads",
     .default_head = 64,
     .causal = true},
    {.layer = "visual.transformer.resblocks.{N}.attn.",
     TORCH_FUSED,
     .bias_always = BIAS_ALL,
     .heads = "vision_heads",
     .default_head = 64},
};

#define WHISPER_ROW        NAMES("q_proj", "k_proj", "v_proj", "out_proj"), .width = "d_model"
#define WHISPER_OPENAI_ROW NAMES("query", "key", "value", "out"), .bias_always = BIAS_NO_K

static const attn_stack whisper[] = {
    {.layer = "encoder.layers.{N}.self_attn.",
     WHISPER_ROW,
     .bias_always = BIAS_NO_K,
     .heads = "encoder_attention_heads",
     .depth = "encoder_layers"},
    {.layer = "decoder.layers.{N}.self_attn.",
     WHISPER_ROW,
     .bias_always = BIAS_NO_K,
     .heads = "decoder_attention_heads",
     .depth = "decoder_layers",
     .causal = true},
    {.layer = "decoder.layers.{N}.encoder_attn.",
     WHISPER_ROW,
     .bias_always = BIAS_NO_K,
     .heads = "decoder_attention_heads",
     .depth = "decoder_layers",
     .cross = true,
     .needs_previous = true},
    {.layer = "encoder.blocks.{N}.attn.",
     WHISPER_OPENAI_ROW,
     .width = "n_audio_state|d_model",
     .heads = "n_audio_head|encoder_attention_heads",
     .depth = "n_audio_layer|encoder_layers"},
    {.layer = "decoder.blocks.{N}.attn.",
     WHISPER_OPENAI_ROW,
     .width = "n_text_state|d_model",
     .heads = "n_text_head|decoder_attention_heads",
     .depth = "n_text_layer|decoder_layers",
     .causal = true},
    {.layer = "decoder.blocks.{N}.cross_attn.",
     WHISPER_OPENAI_ROW,
     .width = "n_text_state|d_model",
     .heads = "n_text_head|decoder_attention_heads",
     .depth = "n_text_layer|decoder_layers",
     .cross = true,
     .needs_previous = true},
};

#define TORCH_KEYS                                                                                 \
    .width = "d_model|embed_dim", .heads = "num_heads|nhead|num_attention_heads",                  \
    .finish = finish_torch
#define TORCH_BOTH(layers, is_cross)                                                               \
    {.layer = layers, TORCH_FUSED, TORCH_KEYS, .cross = is_cross},                                 \
    {                                                                                              \
        .layer = layers, TORCH_SPLIT, TORCH_KEYS, .cross = is_cross                                \
    }

static const attn_stack torch[] = {
    TORCH_BOTH("encoder.layers.{N}.self_attn.", false),
    TORCH_BOTH("decoder.layers.{N}.self_attn.", false),
    TORCH_BOTH("decoder.layers.{N}.multihead_attn.", true),
    TORCH_BOTH("layers.{N}.self_attn.", false),
    TORCH_BOTH("layers.{N}.multihead_attn.", true),
    TORCH_BOTH("", false),
};

static const attn_stack modernbert[] = {
    {.layer = "layers.{N}.attn.",
     FUSED("Wqkv", "Wo"),
     BERT_KEYS,
     .bias_key = "attention_bias",
     .bias_switched = BIAS_ALL,
     .quiet = "rotary_emb.",
     .finish = finish_modernbert},
};

static const attn_stack nomic[] = {
    {.layer = "encoder.layers.{N}.attn.",
     FUSED("Wqkv", "out_proj"),
     GPT2_KEYS,
     .bias_key = "qkv_proj_bias",
     .bias_switched = BIAS_ALL,
     .quiet = "rotary_emb.",
     .finish = finish_nomic},
};

static const attn_stack gte[] = {
    {.layer = "encoder.layer.{N}.attention.",
     FUSED("qkv_proj", "o_proj"),
     BERT_KEYS,
     .bias_always = BIAS_ALL,
     .quiet = "rotary_emb.",
     .finish = finish_gte},
};

static const attn_stack native[] = {
    {.layer = "layers.{N}.",
     NAMES("wq", "wk", "wv", "wo"),
     .width = "d_model",
     .heads = "num_heads",
     .kv_heads = "num_kv_heads",
     .head_dim = "head_dim",
     .v_head_dim = "v_head_dim",
     .depth = "num_layers",
     .any_width = true,
     .bias_key = "bias|attention_bias",
     .bias_switched = BIAS_ALL,
     .finish = attn_finish_native},
};

#define TYPES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define FAMILY(stack, ...)                                                                         \
    {                                                                                              \
        TYPES(__VA_ARGS__), stack, COUNT(stack)                                                    \
    }

const attn_family attn_families[] = {
    FAMILY(native, "attnd"),
    FAMILY(bert, "bert", "roberta", "xlm-roberta", "camembert", "electra"),
    FAMILY(distilbert, "distilbert"),
    FAMILY(albert, "albert"),
    FAMILY(gpt2, "gpt2"),
    FAMILY(gpt_neox, "gpt_neox"),
    FAMILY(llama, "llama", "gemma"),
    FAMILY(mistral, "mistral", "mixtral"),
    FAMILY(qwen2, "qwen2"),
    FAMILY(qwen3, "qwen3"),
    FAMILY(gemma2, "gemma2"),
    FAMILY(t5, "t5", "mt5", "umt5"),
    FAMILY(vit, "vit", "deit", "dinov2"),
    FAMILY(clip, "clip", "clip_text_model", "clip_vision_model"),
    FAMILY(whisper, "whisper"),
    FAMILY(torch, "torch"),
    FAMILY(modernbert, "modernbert"),
    FAMILY(nomic, "nomic_bert"),
    FAMILY(gte, "gte", "new"),
    FAMILY(timm, "timm"),
};
const size_t attn_family_count = COUNT(attn_families);
