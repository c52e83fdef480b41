#!/usr/bin/python3
"""Writes tiny encoders of every family that attnd computes whole, and what they compute.

    tests/make_encoders.py DIR

DIR/NAME/...                          a model as its own library would save it
DIR/vectors/NAME.safetensors          sequences, and what ref_encoder.py makes of them
DIR/without/NAME/..., NAME.txt        a model whose layers are there but no encoder, and words that say why
DIR/pooling/NAME/..., NAME.txt        files of sentence-transformers, and words that attnd must find in them

Weights are random with a fixed seed; sizes differ wherever they can, so that mix-ups show.
"""
import copy
import json
import os
import sys
import zlib

sys.dont_write_bytecode = True
import numpy as np

import ref_encoder

MODELS = {}


class Model:
    def __init__(self, name, lengths, vocabulary, types=0, width=None, padding=None):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.name, self.tensors, self.files, self.half, self.shards = name, {}, {}, set(), 1
        self.sequences = []
        for i, T in enumerate(lengths):
            s = {"ids": self.rng.integers(0, vocabulary, T)}
            if types > 1 and i % 2:
                s["types"] = self.rng.integers(0, types, T)
            if padding is not None and i == 1:
                s["ids"][-2:] = padding
            if i % 3 == 2:
                s["mask"] = (self.rng.random(T) < 0.7).astype(np.int64)
                s["mask"][0] = 1
            if width and i == len(lengths) - 1:
                s = {"embeds": self.rng.standard_normal((T, width)).astype(np.float32)}
            self.sequences.append(s)

    def put(self, name, value):
        self.tensors[name] = value.astype(np.float32)

    def linear(self, stem, out, width, bias=True):
        self.put(stem + ".weight", self.rng.standard_normal((out, width)) / np.sqrt(width))
        if bias:
            self.put(stem + ".bias", 0.5 * self.rng.standard_normal(out))

    def norm(self, stem, n, names=("weight", "bias")):
        self.put(f"{stem}.{names[0]}", 1 + 0.3 * self.rng.standard_normal(n))
        if len(names) > 1:
            self.put(f"{stem}.{names[1]}", 0.3 * self.rng.standard_normal(n))

    def table(self, stem, rows, width):
        self.put(stem + ".weight", self.rng.standard_normal((rows, width)))

    def write(self, root):
        folder = os.path.join(root, self.name)
        os.makedirs(folder)
        for name, text in self.files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as f:
                json.dump(text, f)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(self.config, f, indent=1)
        names, where = list(self.tensors), {}
        for i in range(self.shards):
            file = "model.safetensors" if self.shards == 1 else f"model-{i + 1:05}-of-{self.shards:05}.safetensors"
            part = {n: self.tensors[n] for n in names[i::self.shards]}
            ref_encoder.save(os.path.join(folder, file), part, self.half)
            where.update({n: file for n in part})
        if self.shards > 1:
            with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
                json.dump({"weight_map": where}, f)
        if not self.sequences:
            return
        config, tensors = ref_encoder.load_folder(folder)
        weights, out = ref_encoder.Weights(tensors), {}
        for i, s in enumerate(self.sequences):
            for key, value in {**s, **ref_encoder.encode(config, weights, s)}.items():
                out[f"seq.{i}.{key}"] = value if value.dtype == np.int64 else value.astype(np.float32)
        ref_encoder.save(os.path.join(root, "vectors", self.name + ".safetensors"), out)


def model(*args, **kwargs):
    """Registers a function that fills a Model and returns its config."""
    def register(f):
        MODELS[f.__name__] = m = Model(f.__name__, *args, **kwargs)
        m.config = f(m)
        return f
    return register


def bert_layers(m, prefix, depth, D, F, norm=("weight", "bias")):
    for n in range(depth):
        at = f"{prefix}encoder.layer.{n}."
        for name in ("query", "key", "value"):
            m.linear(at + "attention.self." + name, D, D)
        m.linear(at + "attention.output.dense", D, D)
        m.norm(at + "attention.output.LayerNorm", D, norm)
        m.linear(at + "intermediate.dense", F, D)
        m.linear(at + "output.dense", D, F)
        m.norm(at + "output.LayerNorm", D, norm)


def embeddings(m, prefix, vocabulary, positions, types, E, norm=("weight", "bias")):
    m.table(prefix + "embeddings.word_embeddings", vocabulary, E)
    m.table(prefix + "embeddings.position_embeddings", positions, E)
    if types:
        m.table(prefix + "embeddings.token_type_embeddings", types, E)
    m.norm(prefix + "embeddings.LayerNorm", E, norm)


def bert_config(kind, depth, D, H, **more):
    return {"model_type": kind, "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": depth, **more}


@model((5, 1, 9, 4, 7), 50, types=2, width=24)
def bert(m):  # old names of the norms; in two files
    old = ("gamma", "beta")
    embeddings(m, "bert.", 50, 12, 2, 24, old)
    bert_layers(m, "bert.", 2, 24, 40, old)
    m.shards = 2
    return bert_config("bert", 2, 24, 3, layer_norm_eps=1e-6)


@model((300, 17, 64, 1, 129, 40), 60, types=2)
def bert_wide(m):  # more than a panel and, all together, more than a tile for each worker
    embeddings(m, "", 60, 300, 2, 80)
    bert_layers(m, "", 2, 80, 200)
    return bert_config("bert", 2, 80, 5)


@model((6, 8, 5), 40, padding=1, width=20)
def roberta(m):
    embeddings(m, "roberta.", 40, 12, 1, 20)
    bert_layers(m, "roberta.", 2, 20, 28)
    return bert_config("roberta", 2, 20, 2, layer_norm_eps=1e-5, pad_token_id=1, hidden_act="relu")


@model((3, 6, 4), 33, padding=0)
def xlm_roberta(m):  # half precision, padding elsewhere
    embeddings(m, "", 33, 8, 1, 16)
    bert_layers(m, "", 1, 16, 36)
    for name in m.tensors:
        m.tensors[name] = m.tensors[name].astype(np.float16)
    return bert_config("xlm-roberta", 1, 16, 4, layer_norm_eps=1e-5, pad_token_id=0)


@model((4, 6, 5), 30, padding=1)
def camembert(m):  # words in bfloat16
    embeddings(m, "roberta.", 30, 10, 1, 12)
    bert_layers(m, "roberta.", 1, 12, 20)
    words = "roberta.embeddings.word_embeddings.weight"
    m.tensors[words] = (m.tensors[words].view("<u4") & 0xffff0000).view("<f4")
    m.half = {words}
    return bert_config("camembert", 1, 12, 3, pad_token_id=1, hidden_act="silu")


@model((6, 3, 8), 45, types=2, width=10)
def electra(m):
    embeddings(m, "electra.", 45, 9, 2, 10)
    m.linear("electra.embeddings_project", 18, 10)
    bert_layers(m, "electra.", 2, 18, 30)
    return bert_config("electra", 2, 18, 3, embedding_size=10)


@model((5, 7, 2), 35, width=16)
def distilbert(m):
    embeddings(m, "distilbert.", 35, 11, 0, 16)
    for n in range(2):
        at = f"distilbert.transformer.layer.{n}."
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            m.linear(at + "attention." + name, 16, 16)
        m.norm(at + "sa_layer_norm", 16)
        m.linear(at + "ffn.lin1", 44, 16)
        m.linear(at + "ffn.lin2", 16, 44)
        m.norm(at + "output_layer_norm", 16)
    return {"model_type": "distilbert", "dim": 16, "n_heads": 4, "n_layers": 2, "activation": "gelu"}


def albert_of(m, width):  # four layers, two groups: 0 0 1 1
    embeddings(m, "albert.", 38, 10, 2, width)
    m.linear("albert.encoder.embedding_hidden_mapping_in", 24, width)
    for g in range(2):
        at = f"albert.encoder.albert_layer_groups.{g}.albert_layers.0."
        for name in ("query", "key", "value", "dense"):
            m.linear(at + "attention." + name, 24, 24)
        m.norm(at + "attention.LayerNorm", 24)
        m.linear(at + "ffn", 52, 24)
        m.linear(at + "ffn_output", 24, 52)
        m.norm(at + "full_layer_layer_norm", 24)
    return bert_config("albert", 4, 24, 2, num_hidden_groups=2, inner_group_num=1)


@model((4, 9, 6, 5), 38, types=2, width=14)
def albert(m):
    return albert_of(m, 14)


@model((4, 9, 6, 5), 38, types=2, width=24)
def albert_square(m):  # mapped though it need not be
    return albert_of(m, 24)


@model((19, 5, 30, 12), 55, width=24)
def modernbert(m):
    m.table("model.embeddings.tok_embeddings", 55, 24)
    m.norm("model.embeddings.norm", 24, ("weight",))
    for n in range(4):
        at = f"model.layers.{n}."
        if n > 0:
            m.norm(at + "attn_norm", 24, ("weight",))
        m.linear(at + "attn.Wqkv", 72, 24, False)
        m.linear(at + "attn.Wo", 24, 24, False)
        m.norm(at + "mlp_norm", 24, ("weight",))
        m.linear(at + "mlp.Wi", 68, 24, False)
        m.linear(at + "mlp.Wo", 24, 34, False)
    m.norm("model.final_norm", 24, ("weight",))
    return bert_config("modernbert", 4, 24, 3, local_attention=8, global_attn_every_n_layers=3,
                       global_rope_theta=160000.0, local_rope_theta=10000.0, max_position_embeddings=30)


# --- what is not there, and what stands beside -----------------------------------------------------

def drop(beginning):
    return lambda m: [m.tensors.pop(n) for n in list(m.tensors) if n.startswith(beginning)]


def reshape(name, *shape):
    return lambda m: m.tensors.update({name: np.ones(shape, np.float32)})


def put(key, value):
    return lambda m: m.config.update({key: value})


WORDS = "bert.embeddings.word_embeddings.weight"
WITHOUT = (
    ("layers_alone", "bert", drop("bert.embeddings"), [WORDS, "wanted for the encoder"]),
    ("positions", "bert", drop("bert.embeddings.position"), ["bert.embeddings.position_embeddings.weight"]),
    ("norm", "bert", drop("bert.embeddings.LayerNorm.beta"), ["bert.embeddings.LayerNorm.beta"]),
    ("feed", "bert", drop("bert.encoder.layer.1.output"), ["bert.encoder.layer.1.output.LayerNorm.weight"]),
    ("words_shape", "bert", reshape(WORDS, 24), [WORDS]),
    ("words_width", "bert", reshape(WORDS, 50, 23), ["23"]),
    ("words_narrow", "roberta", reshape("roberta.embeddings.word_embeddings.weight", 40, 16), ["16", "20"]),
    ("norm_width", "bert", reshape("bert.encoder.layer.0.output.LayerNorm.gamma", 23), ["layer.0", "23", "24"]),
    ("up_width", "bert", reshape("bert.encoder.layer.0.intermediate.dense.weight", 40, 23), ["intermediate", "24"]),
    ("down_width", "bert", reshape("bert.encoder.layer.0.output.dense.weight", 24, 41), ["[24,40]"]),
    ("no_positions", "roberta", reshape("roberta.embeddings.position_embeddings.weight", 2, 20), ["2 rows"]),
    ("projection", "albert", drop("albert.encoder.embedding_hidden"), ["embedding_hidden_mapping_in.weight"]),
    ("activation", "bert", put("hidden_act", "mish"), ["mish", "gelu_new"]),
    ("activation_type", "bert", put("hidden_act", 1), ["hidden_act"]),
    ("eps", "bert", put("layer_norm_eps", -1), ["layer_norm_eps", "-1"]),
    ("padding", "roberta", put("pad_token_id", -1), ["pad_token_id", "-1"]),
)


def module(kind, path=""):
    return {"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models." + kind}


def pooling(**on):
    return {"word_embedding_dimension": 24, **{f"pooling_mode_{k}": v for k, v in on.items()}}


FILES = {"modules.json": [module("Transformer"), module("Pooling", "1_Pooling")]}
NORMAL = {"modules.json": FILES["modules.json"] + [module("Normalize", "2_Normalize")]}
POOL = "1_Pooling/config.json"
MEAN = {POOL: pooling(cls_token=False, mean_tokens=True, max_tokens=False)}
POOLING = (  # words: pooling and normalize, usual length, lower case, then words of a refusal
    ("nothing", {}, ["mean 0 12 0"]),
    ("mean", {**NORMAL, **MEAN, "sentence_bert_config.json": {"max_seq_length": 7, "do_lower_case": True}},
     ["mean 1 7 1"]),
    ("cls", {**FILES, POOL: pooling(cls_token=True, mean_tokens=False)}, ["cls 0 12 0"]),
    ("max", {**FILES, POOL: pooling(max_tokens=True), "sentence_roberta_config.json": {"max_seq_length": 600}},
     ["max 0 12 0"]),
    ("sqrt", {**FILES, POOL: pooling(mean_sqrt_len_tokens=True),
              "sentence_bert_config.json": {"max_seq_length": None}}, ["mean_sqrt 0 12 0"]),
    ("word", {**FILES, POOL: {"pooling_mode": "cls"}}, ["cls 0 12 0"]),
    ("without_modules", {POOL: pooling(cls_token=True)}, ["cls 0 12 0"]),
    ("two", {**FILES, POOL: pooling(cls_token=True, mean_tokens=True)}, ["several ways"]),
    ("none", {**FILES, POOL: pooling(mean_tokens=False)}, ["no way of pooling"]),
    ("last", {**FILES, POOL: pooling(lasttoken=True)}, ["pooling_mode_lasttoken"]),
    ("unknown_word", {**FILES, POOL: {"pooling_mode": "attention"}}, ["attention"]),
    ("missing", FILES, [POOL, "no such file"]),
    ("dense", {**MEAN, "modules.json": NORMAL["modules.json"] + [module("Dense", "3_Dense")]}, ["Dense"]),
    ("elsewhere", {"modules.json": [module("Pooling", "../1_Pooling")]}, ["Pooling"]),
    ("prompts", {**FILES, **MEAN, "config_sentence_transformers.json": {
        "prompts": {"query": "Query: ", "document": ""}, "default_prompt_name": None}}, ["mean 0 12 0"]),
    ("empty_prompt", {**FILES, **MEAN, "config_sentence_transformers.json": {
        "prompts": {"query": "Query: ", "document": ""}, "default_prompt_name": "document"}}, ["mean 0 12 0"]),
    ("prompt", {**FILES, **MEAN, "config_sentence_transformers.json": {
        "prompts": {"query": "Query: "}, "default_prompt_name": "query"}},
     ["config_sentence_transformers.json", "default_prompt_name", "query"]),
    ("not_a_list", {"modules.json": {}}, ["list"]),
)


def write_variant(root, kind, name, base, change, words):
    m = copy.copy(MODELS[base])
    m.name, m.sequences, m.shards = name, [], 1
    m.config, m.tensors, m.files = dict(m.config), dict(m.tensors), {}
    change(m)
    folder = os.path.join(root, kind)
    m.write(folder)
    with open(os.path.join(folder, name + ".txt"), "w") as f:
        f.write("\n".join(words) + "\n")


def main():
    root = sys.argv[1]
    os.makedirs(os.path.join(root, "vectors"))
    for m in MODELS.values():
        m.write(root)
    for name, base, change, words in WITHOUT:
        write_variant(root, "without", name, base, change, words)
    for name, files, words in POOLING:
        write_variant(root, "pooling", name, "bert", lambda m: m.files.update(files), words)


if __name__ == "__main__":
    main()
