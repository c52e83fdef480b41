#!/usr/bin/python3
"""Writes tiny checkpoints of every family that attnd knows, and what their attention computes.

    tests/make_checkpoints.py DIR

DIR/NAME/{config.json,model.safetensors}   a model as its own library would save it
DIR/vectors/NAME.safetensors               layer.N.x, layer.N.context (cross attention), layer.N.output
DIR/wrong/NAME/..., DIR/wrong/NAME.txt     a model with one fault, and words that its refusal must say

The expected outputs are computed here in float64, each family by its own formula and from its own
tensors. Weights are random with a fixed seed; sizes differ wherever they can, so that mix-ups show.
Needs NumPy alone.
"""
import copy
import json
import os
import sys
import zlib

import numpy as np

T, S = 7, 5  # query tokens, and key tokens in cross attention
MODELS, WRONG = {}, {}


def save(path, tensors):
    header, at, data = {}, 0, []
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        kind = {"float32": "F32", "int64": "I64", "bool": "BOOL"}[value.dtype.name]
        header[name] = {"dtype": kind, "shape": list(value.shape),
                        "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
        data.append(value.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


class Model:
    """Tensors by name (float32), and expected values of its layers in order."""

    def __init__(self, name, config):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.config, self.tensors, self.vectors, self.layers = config, {}, {}, 0

    def weight(self, name, *shape):
        value = (self.rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)
        self.tensors[name] = value
        return value.astype(np.float64)

    def vector(self, name, n, around=0.0):
        value = (around + 0.5 * self.rng.standard_normal(n)).astype(np.float32)
        self.tensors[name] = value
        return value.astype(np.float64)

    def linear(self, stem, out, width, bias=True):
        """torch nn.Linear: [out,in]."""
        w = self.weight(stem + ".weight", out, width)
        b = self.vector(stem + ".bias", out) if bias else np.zeros(out)
        return lambda x: x @ w.T + b

    def conv1d(self, stem, width, out):
        """Conv1D of GPT-2: [in,out]."""
        w, b = self.weight(stem + ".weight", width, out), self.vector(stem + ".bias", out)
        return lambda x: x @ w + b

    def tokens(self, n, width):
        return self.rng.standard_normal((n, width)).astype(np.float32).astype(np.float64)

    def expect(self, forward, width, kv_width=None):
        """The next layer: forward(x) or, with kv_width, forward(x, context)."""
        x = self.tokens(T, width)
        inputs = {"x": x}
        if kv_width is not None:
            inputs["context"] = self.tokens(S, kv_width)
        inputs["output"] = forward(*inputs.values())
        for key, value in inputs.items():
            self.vectors[f"layer.{self.layers}.{key}"] = value.astype(np.float32)
        self.layers += 1


def model(f):
    """Registers a function that fills a Model and returns its config."""
    name = f.__name__
    MODELS[name] = m = Model(name, {})
    m.config = f(m)
    return f


def wrong(name, base, change, words):
    """Registers a fault: `change` spoils (config, tensors) of a copy of a model."""
    m = copy.copy(MODELS[base])
    m.config, m.tensors = copy.deepcopy(m.config), dict(m.tensors)
    change(m.config, m.tensors)
    WRONG[name] = (m, words)


# --- attention -------------------------------------------------------------------------------

def heads(x, n):
    """[T, n*d] to [n, T, d]: head-major features."""
    return x.reshape(len(x), n, -1).transpose(1, 0, 2)


def joined(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def attend(q, k, v, scale, allowed=None, bias=None, cap=0.0):
    """q [H,T,d], k [G,S,d], v [G,S,e]; each key head serves H/G query heads in a row."""
    k, v = np.repeat(k, len(q) // len(k), 0), np.repeat(v, len(q) // len(v), 0)
    scores = np.einsum("htd,hsd->hts", q, k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return joined(np.einsum("hts,hse->hte", p / p.sum(-1, keepdims=True), v))


I, J = np.arange(T)[:, None], np.arange(T)[None, :]
CAUSAL = J <= I


def rotate_half(x, theta, dims, scaled=lambda f: f):
    """Hugging Face's apply_rotary_pos_emb on the first dims elements; x is [H,T,d]."""
    frequency = scaled(theta ** (-np.arange(0, dims, 2) / dims))
    angle = np.arange(x.shape[1])[:, None] * np.concatenate([frequency, frequency])
    turned, rest = x[..., :dims], x[..., dims:]
    other = np.concatenate([-turned[..., dims // 2:], turned[..., :dims // 2]], -1)
    return np.concatenate([turned * np.cos(angle) + other * np.sin(angle), rest], -1)


def rotate_pairs(x, theta, dims):
    """The original RoPE: neighbours as complex numbers."""
    frequency = theta ** (-np.arange(0, dims, 2) / dims)
    z = (x[..., 0:dims:2] + 1j * x[..., 1:dims:2]) * np.exp(1j * np.arange(x.shape[1])[:, None] * frequency)
    out = x.copy()
    out[..., 0:dims:2], out[..., 1:dims:2] = z.real, z.imag
    return out


def rms_norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def plain(m, q, k, v, o, width, n, allowed=None, kv_width=None, scale=None):
    """Multi-head attention without positions, of four maps."""
    def forward(x, context=None):
        c = x if context is None else context
        qh, kh, vh = heads(q(x), n), heads(k(c), n), heads(v(c), n)
        return o(attend(qh, kh, vh, scale or qh.shape[-1] ** -0.5, allowed))
    m.expect(forward, width, kv_width)


# --- BERT and its kin ------------------------------------------------------------------------

def bert_like(m, prefix, depth, D, H, name="attention", allowed=None, kv_width=None):
    for n in range(depth):
        at = f"{prefix}encoder.layer.{n}.{name}."
        maps = [m.linear(at + p, D, D) for p in ("self.query", "self.key", "self.value", "output.dense")]
        m.vector(at + "output.LayerNorm.gamma", D, 1)
        m.vector(at + "output.LayerNorm.beta", D)
        plain(m, *maps, D, H, allowed, kv_width)
    m.tensors[f"{prefix}embeddings.position_ids"] = np.arange(16)[None]


@model
def bert(m):
    bert_like(m, "bert.", 2, 12, 3)
    return {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 12,
            "num_attention_heads": 3, "num_hidden_layers": 2, "layer_norm_eps": 1e-12}


@model
def roberta(m):  # named by its class alone
    bert_like(m, "roberta.", 1, 10, 5)
    return {"architectures": ["XLMRobertaForSequenceClassification"], "hidden_size": 10,
            "num_attention_heads": 5}


@model
def bert_decoder(m):
    bert_like(m, "", 2, 12, 2, allowed=CAUSAL)
    bert_like(m, "", 2, 12, 2, "crossattention", kv_width=12)
    return {"model_type": "bert", "hidden_size": 12, "num_attention_heads": 2, "is_decoder": True,
            "add_cross_attention": True, "position_embedding_type": "absolute"}


@model
def distilbert(m):
    for n in range(2):
        at = f"distilbert.transformer.layer.{n}.attention."
        plain(m, *[m.linear(at + p, 12, 12) for p in ("q_lin", "k_lin", "v_lin", "out_lin")], 12, 4)
        m.vector(f"distilbert.transformer.layer.{n}.sa_layer_norm.weight", 12, 1)
    return {"model_type": "distilbert", "dim": 12, "n_heads": 4, "n_layers": 2}


@model
def albert(m):  # four layers, two groups: 0 0 1 1
    groups = []
    for g in range(2):
        at = f"albert.encoder.albert_layer_groups.{g}.albert_layers.0.attention."
        groups.append([m.linear(at + p, 12, 12) for p in ("query", "key", "value", "dense")])
        m.vector(at + "LayerNorm.weight", 12, 1)
    for n in range(4):
        plain(m, *groups[n // 2], 12, 2)
    return {"model_type": "albert", "hidden_size": 12, "num_attention_heads": 2,
            "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 1}


def modernbert_like(m, D, H, local):
    for n, near in enumerate(local):
        at = f"model.layers.{n}.attn."
        qkv, o = m.linear(at + "Wqkv", 3 * D, D, False), m.linear(at + "Wo", D, D, False)

        def forward(x, qkv=qkv, o=o, near=near):
            theta, allowed = (500.0, np.abs(I - J) <= 2) if near else (160000.0, None)
            q, k, v = qkv(x).reshape(T, 3, H, D // H).transpose(1, 2, 0, 3)
            q, k = rotate_half(q, theta, D // H), rotate_half(k, theta, D // H)
            return o(attend(q, k, v, (D // H) ** -0.5, allowed))
        m.expect(forward, D)


@model
def modernbert(m):
    modernbert_like(m, 12, 3, [False, True, True, False])
    return {"model_type": "modernbert", "hidden_size": 12, "num_attention_heads": 3,
            "num_hidden_layers": 4, "global_attn_every_n_layers": 3, "local_attention": 4,
            "global_rope_theta": 160000.0, "local_rope_theta": 500.0, "attention_bias": False}


@model
def modernbert_nested(m):  # as transformers 5 writes it
    modernbert_like(m, 12, 3, [True, False])
    return {"model_type": "modernbert", "hidden_size": 12, "num_attention_heads": 3,
            "num_hidden_layers": 2, "local_attention": 4,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
                                "sliding_attention": {"rope_theta": 500.0, "rope_type": "default"}}}


@model
def nomic_bert(m):
    D, H = 12, 3
    at = "encoder.layers.0.attn."
    qkv, o = m.linear(at + "Wqkv", 3 * D, D, False), m.linear(at + "out_proj", D, D, False)

    def forward(x):
        q, k, v = (heads(p, H) for p in np.split(qkv(x), 3, -1))
        return o(attend(rotate_half(q, 1000.0, 4), rotate_half(k, 1000.0, 4), v, 0.5))
    m.expect(forward, D)
    return {"model_type": "nomic_bert", "n_embd": D, "n_head": H, "n_layer": 1,
            "rotary_emb_fraction": 1.0, "rotary_emb_base": 1000, "rotary_emb_interleaved": False,
            "qkv_proj_bias": False, "rotary_scaling_factor": None}


@model
def gte(m):
    D, H = 12, 2
    at = "new.encoder.layer.0.attention."
    qkv, o = m.linear(at + "qkv_proj", 3 * D, D), m.linear(at + "o_proj", D, D)

    def forward(x):
        q, k, v = (heads(p, H) for p in np.split(qkv(x), 3, -1))
        return o(attend(rotate_half(q, 20000.0, 6), rotate_half(k, 20000.0, 6), v, 6 ** -0.5))
    m.expect(forward, D)
    return {"model_type": "new", "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": 1,
            "position_embedding_type": "rope", "rope_theta": 20000.0, "rope_scaling": None}


# --- GPT -------------------------------------------------------------------------------------

@model
def gpt2(m):
    D, H = 12, 3
    cross = []
    for n in range(2):
        at = f"transformer.h.{n}.attn."
        qkv, o = m.conv1d(at + "c_attn", D, 3 * D), m.conv1d(at + "c_proj", D, D)
        m.tensors[at + "bias"] = np.tril(np.ones((1, 1, 16, 16), bool))
        m.tensors[at + "masked_bias"] = np.float32(-1e4).reshape(())

        def forward(x, qkv=qkv, o=o, n=n):
            q, k, v = (heads(p, H) for p in np.split(qkv(x), 3, -1))
            return o(attend(q, k, v, 0.5 / (n + 1), CAUSAL))
        m.expect(forward, D)
    for n in range(2):
        at = f"transformer.h.{n}.crossattention."
        q, kv, o = m.conv1d(at + "q_attn", D, D), m.conv1d(at + "c_attn", D, 2 * D), m.conv1d(at + "c_proj", D, D)

        def forward(x, context, q=q, kv=kv, o=o, n=n):
            k, v = (heads(p, H) for p in np.split(kv(context), 2, -1))
            return o(attend(heads(q(x), H), k, v, 0.5 / (n + 1)))
        m.expect(forward, D, D)
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": D, "n_head": H,
            "n_layer": 2, "scale_attn_by_inverse_layer_idx": True, "add_cross_attention": True}


@model
def gpt2_unscaled(m):  # the base class: no prefix
    qkv, o = m.conv1d("h.0.attn.c_attn", 12, 36), m.conv1d("h.0.attn.c_proj", 12, 12)

    def forward(x):
        q, k, v = (heads(p, 2) for p in np.split(qkv(x), 3, -1))
        return o(attend(q, k, v, 1.0, CAUSAL))
    m.expect(forward, 12)
    return {"model_type": "gpt2", "n_embd": 12, "n_head": 2, "n_layer": 1, "scale_attn_weights": False}


@model
def gpt_neox(m):
    D, H, d = 24, 3, 8
    for n in range(2):
        at = f"gpt_neox.layers.{n}.attention."
        qkv, o = m.linear(at + "query_key_value", 3 * D, D), m.linear(at + "dense", D, D)
        m.tensors[at + "bias"] = np.tril(np.ones((1, 1, 16, 16), bool))
        m.vector(at + "rotary_emb.inv_freq", 2)

        def forward(x, qkv=qkv, o=o):
            q, k, v = qkv(x).reshape(T, H, 3, d).transpose(2, 1, 0, 3)
            return o(attend(rotate_half(q, 5000.0, 4), rotate_half(k, 5000.0, 4), v, d ** -0.5, CAUSAL))
        m.expect(forward, D)
    return {"model_type": "gpt_neox", "hidden_size": D, "num_attention_heads": H,
            "num_hidden_layers": 2, "rotary_pct": 0.5, "rotary_emb_base": 5000}


# --- Llama and its kin -----------------------------------------------------------------------

def llama_like(m, n, D, H, G, d, bias="", norm=False, rotate=None, cap=0.0, scale=None, allowed=CAUSAL):
    at = f"model.layers.{n}.self_attn."
    q, k, v = (m.linear(f"{at}{p}_proj", c * d, D, p in bias) for p, c in (("q", H), ("k", G), ("v", G)))
    o = m.linear(at + "o_proj", D, H * d, "o" in bias)
    norms = [m.vector(f"{at}{p}_norm.weight", d, 1) for p in "qk"] if norm else None

    def forward(x):
        qh, kh, vh = heads(q(x), H), heads(k(x), G), heads(v(x), G)
        if norms:
            qh, kh = rms_norm(qh, norms[0], 1e-5), rms_norm(kh, norms[1], 1e-5)
        qh, kh = rotate(qh), rotate(kh)
        return o(attend(qh, kh, vh, scale or d ** -0.5, allowed, cap=cap))
    m.expect(forward, D)


def llama_config(kind, D, H, G, depth, **more):
    return {"model_type": kind, "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": G,
            "num_hidden_layers": depth, "rms_norm_eps": 1e-5, **more}


def llama3(frequency, factor=8.0, low=1.0, high=4.0, original=64):
    out = []
    for f in frequency:
        wavelength = 2 * np.pi / f
        if wavelength > original / low:
            f = f / factor
        elif wavelength >= original / high:
            s = (original / wavelength - low) / (high - low)
            f = (1 - s) * f / factor + s * f
        out.append(f)
    return np.array(out)


@model
def llama(m):
    for n in range(2):
        llama_like(m, n, 20, 4, 2, 6, rotate=lambda x: rotate_half(x, 100.0, 6, llama3))
        m.vector(f"model.layers.{n}.self_attn.rotary_emb.inv_freq", 3)
    return llama_config("llama", 20, 4, 2, 2, head_dim=6, rope_theta=100.0, attention_bias=False,
                        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64})


@model
def llama_bias(m):  # attention_bias, linear scaling in the old spelling, head size from the width
    llama_like(m, 0, 16, 4, 4, 4, bias="qkvo", rotate=lambda x: rotate_half(x, 10000.0, 4, lambda f: f / 4))
    return llama_config("llama", 16, 4, 4, 1, attention_bias=True,
                        rope_scaling={"type": "linear", "factor": 4})


@model
def mistral(m):
    near = CAUSAL & (J > I - 3)
    for n in range(2):
        llama_like(m, n, 18, 6, 3, 4, rotate=lambda x: rotate_half(x, 10000.0, 4), allowed=near)
    return llama_config("mistral", 18, 6, 3, 2, head_dim=4, sliding_window=3, rope_theta=10000.0)


@model
def qwen2(m):
    for n in range(3):
        allowed = CAUSAL & (J > I - 2) if n >= 1 else CAUSAL
        llama_like(m, n, 16, 4, 1, 4, bias="qkv", rotate=lambda x: rotate_half(x, 1e6, 4), allowed=allowed)
    return llama_config("qwen2", 16, 4, 1, 3, rope_theta=1e6, use_sliding_window=True, sliding_window=2,
                        max_window_layers=1)


@model
def qwen3(m):
    for n in range(2):
        llama_like(m, n, 10, 4, 2, 6, norm=True, rotate=lambda x: rotate_half(x, 1e6, 6))
    return llama_config("qwen3", 10, 4, 2, 2, head_dim=6, attention_bias=False, sliding_window=2,
                        use_sliding_window=False,
                        rope_parameters={"rope_theta": 1e6, "rope_type": "default"})


@model
def gemma2(m):
    for n in range(2):
        allowed = CAUSAL & (J > I - 3) if n % 2 == 0 else CAUSAL
        llama_like(m, n, 12, 4, 2, 8, rotate=lambda x: rotate_half(x, 10000.0, 8), cap=1.5,
                   scale=24 ** -0.5, allowed=allowed)
    return llama_config("gemma2", 12, 4, 2, 2, head_dim=8, query_pre_attn_scalar=24,
                        attn_logit_softcapping=1.5, sliding_window=3)


# --- encoders and decoders -------------------------------------------------------------------

def t5_bucket(rel, both, buckets, farthest):
    """Raffel et al.'s bucket of a key at rel = j - i."""
    base = 0
    if both:
        buckets //= 2
        base, rel = (buckets, rel) if rel > 0 else (0, -rel)
    else:
        rel = max(0, -rel)
    exact = buckets // 2
    if rel < exact:
        return base + rel
    far = exact + int(np.log(rel / exact) / np.log(farthest / exact) * (buckets - exact))
    return base + min(buckets - 1, far)


@model
def t5(m):
    D, H, d = 10, 2, 6

    def maps(at):
        return [m.linear(at + p, H * d, D, False) for p in "qkv"] + [m.linear(at + "o", D, H * d, False)]

    def self_attention(stack, both):
        table = None
        for n in range(2):
            at = f"{stack}.block.{n}.layer.0.SelfAttention."
            q, k, v, o = maps(at)
            if n == 0:
                table = m.weight(at + "relative_attention_bias.weight", 8, H)
            bias = np.array([[table[t5_bucket(j - i, both, 8, 10)] for j in range(T)] for i in range(T)])

            def forward(x, q=q, k=k, v=v, o=o, bias=bias.transpose(2, 0, 1)):
                return o(attend(heads(q(x), H), heads(k(x), H), heads(v(x), H), 1.0,
                                None if both else CAUSAL, bias))
            m.expect(forward, D)
    self_attention("encoder", True)
    self_attention("decoder", False)
    for n in range(2):
        plain(m, *maps(f"decoder.block.{n}.layer.1.EncDecAttention."), D, H, kv_width=D, scale=1.0)
    return {"model_type": "t5", "d_model": D, "num_heads": H, "d_kv": d, "num_layers": 2,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}


@model
def vit(m):
    for n in range(2):
        at = f"vit.encoder.layer.{n}.attention."
        maps = [m.linear(f"{at}attention.{p}", 12, 12, False) for p in ("query", "key", "value")]
        plain(m, *maps, m.linear(at + "output.dense", 12, 12), 12, 4)
    return {"model_type": "vit", "hidden_size": 12, "num_attention_heads": 4, "num_hidden_layers": 2,
            "qkv_bias": False}


@model
def clip(m):
    for side, D, H, depth in (("text", 16, 8, 2), ("vision", 12, 3, 1)):
        for n in range(depth):
            at = f"{side}_model.encoder.layers.{n}.self_attn."
            maps = [m.linear(f"{at}{p}_proj", D, D) for p in ("q", "k", "v", "out")]
            plain(m, *maps, D, H, CAUSAL if side == "text" else None)
    return {"model_type": "clip",  # 8 heads are CLIPTextConfig's default, and so left out
            "text_config": {"hidden_size": 16, "num_hidden_layers": 2},
            "vision_config": {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1}}


def torch_mha(m, at, D, H, allowed=None, cross=False):
    """nn.MultiheadAttention with its in_proj_weight."""
    w, b = m.weight(at + "in_proj_weight", 3 * D, D), m.vector(at + "in_proj_bias", 3 * D)
    o = m.linear(at + "out_proj", D, D)
    q, k, v = ((lambda x, i=i: x @ w[i * D:i * D + D].T + b[i * D:i * D + D]) for i in range(3))
    plain(m, q, k, v, o, D, H, allowed, D if cross else None)


@model
def clip_openai(m):  # no config.json: two heads of 64 and one
    torch_mha(m, "transformer.resblocks.0.attn.", 128, 2, CAUSAL)
    torch_mha(m, "visual.transformer.resblocks.0.attn.", 64, 1)
    return None


def whisper_layers(m, stack, D, H, self_name, cross_name, names):
    def maps(at):
        return [m.linear(at + p, D, D, i != 1) for i, p in enumerate(names)]
    for n in range(2):
        plain(m, *maps(f"{stack}.{n}.{self_name}."), D, H, CAUSAL if cross_name else None)
    for n in range(2 if cross_name else 0):
        plain(m, *maps(f"{stack}.{n}.{cross_name}."), D, H, kv_width=D)


@model
def whisper(m):
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    whisper_layers(m, "model.encoder.layers", 12, 3, "self_attn", None, names)
    whisper_layers(m, "model.decoder.layers", 12, 2, "self_attn", "encoder_attn", names)
    return {"model_type": "whisper", "d_model": 12, "encoder_attention_heads": 3,
            "decoder_attention_heads": 2, "encoder_layers": 2, "decoder_layers": 2}


@model
def whisper_openai(m):
    names = ("query", "key", "value", "out")
    whisper_layers(m, "encoder.blocks", 12, 3, "attn", None, names)
    whisper_layers(m, "decoder.blocks", 12, 2, "attn", "cross_attn", names)
    return {"n_audio_state": 12, "n_audio_head": 3, "n_audio_layer": 2, "n_text_state": 12,
            "n_text_head": 2, "n_text_layer": 2}


@model
def torch(m):
    for n in range(2):
        torch_mha(m, f"layers.{n}.self_attn.", 12, 3)
    return {"d_model": 12, "num_heads": 3}


@model
def torch_transformer(m):
    torch_mha(m, "encoder.layers.0.self_attn.", 12, 3)
    torch_mha(m, "decoder.layers.0.self_attn.", 12, 3)
    torch_mha(m, "decoder.layers.0.multihead_attn.", 12, 3, cross=True)
    return {"model_type": "torch", "nhead": 3}


@model
def torch_kdim(m):
    E, H, K = 12, 4, 10
    w = [m.weight(f"{p}_proj_weight", E, width) for p, width in (("q", E), ("k", K), ("v", K))]
    b = m.vector("in_proj_bias", 3 * E)
    q, k, v = ((lambda x, i=i: x @ w[i].T + b[i * E:i * E + E]) for i in range(3))
    plain(m, q, k, v, m.linear("out_proj", E, E), E, H, kv_width=K)
    return {"num_heads": H}


# --- our own layout, and layout objects ------------------------------------------------------

@model
def attnd(m):
    D, H, G, d, e, O = 10, 4, 2, 6, 5, 9
    for n in range(2):
        at = f"layers.{n}."
        q, k, v = m.linear(at + "wq", H * d, D), m.linear(at + "wk", G * d, D, False), m.linear(at + "wv", G * e, D)
        o = m.linear(at + "wo", O, H * e)

        def forward(x, q=q, k=k, v=v, o=o):
            qh, kh = rotate_pairs(heads(q(x), H), 300.0, 4), rotate_pairs(heads(k(x), G), 300.0, 4)
            near = CAUSAL & (J >= I - 3)
            return o(attend(qh, kh, heads(v(x), G), 0.3, near, cap=2.0))
        m.expect(forward, D)
    return {"model_type": "attnd", "d_model": D, "num_heads": H, "num_kv_heads": G, "head_dim": d,
            "v_head_dim": e, "is_causal": True, "scale": 0.3, "softcap": 2.0, "window": {"left": 3},
            "rope": {"theta": 300.0, "style": "interleaved", "dims": 4}}


@model
def attnd_cross(m):  # under a prefix, keys from another width, ALiBi
    at = "model.layers.0."
    q, k, v, o = (m.linear(at + p, 8, w, False) for p, w in (("wq", 8), ("wk", 6), ("wv", 6), ("wo", 8)))

    def forward(x, context):
        distance = np.abs(np.arange(T)[:, None] - np.arange(S))
        slopes = np.array([2.0 ** -4, 2.0 ** -8])[:, None, None]
        return o(attend(heads(q(x), 2), heads(k(context), 2), heads(v(context), 2), 0.5, bias=-slopes * distance))
    m.expect(forward, 8, 6)
    return {"num_heads": 2, "alibi": True}


@model
def timm(m):  # explicit layout: fused blocks, [out,in]
    for n in range(2):
        at = f"blocks.{n}.attn."
        qkv, o = m.linear(at + "qkv", 36, 12), m.linear(at + "proj", 12, 12)

        def forward(x, qkv=qkv, o=o):
            q, k, v = (heads(p, 2) for p in np.split(qkv(x), 3, -1))
            return o(attend(q, k, v, 6 ** -0.5))
        m.expect(forward, 12)
    return {"architecture": "vit_tiny", "layout": {
        "weights": {"qkv": "blocks.{N}.attn.qkv.weight", "o": "blocks.{N}.attn.proj.weight"},
        "biases": {"qkv": "blocks.{N}.attn.qkv.bias", "o": "blocks.{N}.attn.proj.bias"},
        "orientation": "out_in", "order": "blocks", "num_heads": 2}}


@model
def layout_heads(m):  # explicit layout: fused per head, [in,out], no layer number, no biases
    qkv, o = m.weight("attention/qkv", 12, 36), m.weight("attention/o", 12, 12)

    def forward(x):
        q, k, v = (x @ qkv).reshape(T, 3, 3, 4).transpose(2, 1, 0, 3)
        return attend(q, k, v, 0.5, CAUSAL) @ o
    m.expect(forward, 12)
    return {"layout": {"weights": {"qkv": "attention/qkv", "o": "attention/o"}, "orientation": "in_out",
                       "order": "heads", "num_heads": 3, "is_causal": True}}


@model
def layout_seed(m):  # explicit layout: W_Q, W_K, W_V, W_O with X @ W, numbers before the name
    w = {p: m.weight(f"{p}.0", 8, 8) for p in ("W_Q", "W_K", "W_V", "W_O")}
    m.expect(lambda x: attend(heads(x @ w["W_Q"], 2), heads(x @ w["W_K"], 2), heads(x @ w["W_V"], 2), 0.5)
             @ w["W_O"], 8)
    return {"layout": {"weights": {p[2].lower(): p + ".{N}" for p in w}, "orientation": "in_out", "num_heads": 2}}


@model
def layout_kv(m):  # explicit layout: keys and values fused per head, fewer of them, a value size of its own
    q, kv, o = m.weight("q", 16, 10), m.weight("kv", 14, 6), m.weight("o", 10, 12)

    def forward(x, context):
        k, v = np.split((context @ kv.T).reshape(S, 2, 7).transpose(1, 0, 2), [4], -1)
        return attend(heads(x @ q.T, 4), k, v, 0.5) @ o.T
    m.expect(forward, 10, 6)
    return {"layout": {"weights": {"q": "q", "kv": "kv", "o": "o"}, "orientation": "out_in", "order": "heads",
                       "num_heads": 4, "num_kv_heads": 2, "head_dim": 4, "v_head_dim": 3}}


# --- faults ----------------------------------------------------------------------------------

def put(key, value):
    def change(config, tensors):
        *path, last = key.split(".")
        for step in path:
            config = config[step]
        config[last] = value
    return change


def drop(*names):
    def change(config, tensors):
        for name in names:
            del tensors[name]
    return change


def reshape(name, f):
    def change(config, tensors):
        tensors[name] = f(tensors.get(name))
    return change


def faults():
    at = "model.layers.0.self_attn."
    for name, base, change, words in (
        ("bert_relative", "bert", put("position_embedding_type", "relative_key"), ["relative_key"]),
        ("bert_partial", "bert", drop("bert.encoder.layer.1.attention.self.key.weight"),
         ["bert.encoder.layer.1.attention.self.key.weight", "nearest present", "layer.0.attention.self.key.weight"]),
        ("bert_depth", "bert", put("num_hidden_layers", 3), ["bert.encoder.layer.2.attention.self.query.weight"]),
        ("bert_too_deep", "bert", put("num_hidden_layers", 1), ["num_hidden_layers is 1", "2 layers"]),
        ("bert_unknown_type", "bert", put("model_type", "brt"), ["\"brt\"", "\"bert\""]),
        ("bert_zero_heads", "bert", put("num_attention_heads", 0), ["num_attention_heads is 0"]),
        ("bert_negative_heads", "bert", put("num_attention_heads", -1), ["num_attention_heads is -1"]),
        ("bert_many_heads", "bert", put("num_attention_heads", 2147483648), ["num_attention_heads is 2147483648"]),
        ("bert_text_heads", "bert", put("num_attention_heads", "3"), ["num_attention_heads", "string"]),
        ("bert_real_heads", "bert", put("num_attention_heads", 3.0), ["num_attention_heads", "integer"]),
        ("bert_odd_heads", "bert", put("num_attention_heads", 5), ["12", "5"]),
        ("bert_width", "bert", put("hidden_size", 24), ["[12,12]", "[24,24]"]),
        ("distilbert_bias", "distilbert", drop("distilbert.transformer.layer.1.attention.out_lin.bias"),
         ["layer.1.attention.out_lin.bias"]),
        ("albert_groups", "albert", put("num_hidden_groups", 3), ["num_hidden_groups is 3", "2"]),
        ("gpt2_transposed", "gpt2", reshape("transformer.h.1.attn.c_attn.weight", np.transpose),
         ["[36,12]", "[12,36]"]),
        ("gpt_neox_dynamic", "gpt_neox", put("rope_scaling", {"type": "dynamic", "factor": 2.0}), ["dynamic"]),
        ("gpt_neox_bias", "gpt_neox", drop("gpt_neox.layers.0.attention.query_key_value.bias"),
         ["query_key_value.bias", "attention_bias"]),
        ("llama_biases", "llama", put("attention_bias", True), ["q_proj.bias", "attention_bias"]),
        ("llama_yarn", "llama", put("rope_scaling.rope_type", "yarn"), ["yarn"]),
        ("llama_norms", "llama", reshape(at + "q_norm.weight", lambda _: np.ones(6, np.float32)), ["q_norm"]),
        ("mistral_key_heads", "mistral", put("num_key_value_heads", 4), ["6", "4"]),
        ("qwen2_bias", "qwen2", drop(at + "q_proj.bias"), ["q_proj.bias"]),
        ("qwen3_norm", "qwen3", drop("model.layers.1.self_attn.k_norm.weight"), ["layers.1.self_attn.k_norm.weight"]),
        ("gemma2_head", "gemma2", put("head_dim", 6), ["[32,12]", "[24,12]"]),
        ("t5_table", "t5", drop("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
         ["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]),
        ("t5_cross", "t5", drop(*[f"decoder.block.1.layer.1.EncDecAttention.{p}.weight" for p in "qkvo"]),
         ["decoder.block.1.layer.1.EncDecAttention.q.weight"]),
        ("vit_bias", "vit", put("qkv_bias", True), ["attention.query.bias", "qkv_bias"]),
        ("clip_heads", "clip", put("vision_config.num_attention_heads", 5), ["12", "5"]),
        ("clip_openai_width", "clip_openai", narrow, ["96", "64"]),
        ("whisper_bias", "whisper", drop("model.decoder.layers.1.encoder_attn.v_proj.bias"), ["encoder_attn.v_proj.bias"]),
        ("whisper_openai_shape", "whisper_openai", put("n_text_state", 24), ["[12,12]", "[24,24]"]),
        ("torch_bias_k", "torch", reshape("layers.0.self_attn.bias_k", lambda _: np.ones((1, 1, 12), np.float32)),
         ["bias_k"]),
        ("torch_no_heads", "torch", lambda config, tensors: config.pop("num_heads"), ["num_heads"]),
        ("torch_two_widths", "torch_kdim", reshape("v_proj_weight", lambda w: np.ones((12, 9), np.float32)),
         ["v_proj_weight", "10", "9"]),
        ("modernbert_types", "modernbert", put("layer_types", ["full_attention"]), ["layer_types"]),
        ("nomic_bert_scaling", "nomic_bert", put("rotary_scaling_factor", 2), ["rotary_scaling_factor"]),
        ("gte_ntk", "gte", put("rope_scaling", {"type": "ntk", "factor": 8.0}), ["ntk"]),
        ("timm_no_layout", "timm", lambda config, tensors: config.pop("layout"), ["num_heads"]),
        ("attnd_style", "attnd", lambda config, tensors: config["rope"].pop("style"), ["rope", "style"]),
        ("attnd_rope_dims", "attnd", put("rope.dims", 8), ["dims", "8", "6"]),
        ("attnd_rope_key", "attnd", put("rope.thta", 1), ["thta", "theta"]),
        ("attnd_window", "attnd", put("window.left", -2), ["window.left"]),
        ("attnd_no_match", "attnd", lambda config, tensors: (tensors.clear(), tensors.update(other=np.ones(3, np.float32))),
         ["layers.0.wq.weight", "layers.0.wo.weight", "other"]),
        ("attnd_bias", "attnd", put("bias", True), ["layers.0.wk.bias", "bias"]),
        ("two_prefixes", "attnd", lambda config, tensors: tensors.update(
            {"model." + k: v for k, v in list(tensors.items())}), ["two prefixes", "model.layers.0.wq.weight"]),
        ("nothing_known", "layout_heads", lambda config, tensors: config.clear(), ["attention/o"]),
        ("several_families", "llama", lambda config, tensors: config.pop("model_type"), ["llama", "mistral", "model_type"]),
        ("layout_orientation", "timm", lambda config, tensors: config["layout"].pop("orientation"), ["orientation"]),
        ("layout_order", "timm", lambda config, tensors: config["layout"].pop("order"), ["order"]),
        ("layout_key", "timm", put("layout.num_haeds", 2), ["num_haeds", "num_heads"]),
        ("layout_name", "timm", put("layout.weights.o", "blocks.{N}.attn.prj.weight"),
         ["blocks.0.attn.prj.weight", "nearest present", "blocks.0.attn.proj.weight"]),
        ("layout_group", "timm", put("layout.biases.o", "blocks.{N}.{G}"), ["{G}"]),
        ("layout_number", "timm", put("layout.biases.o", "blocks.0.attn.proj.bias"), ["{N}"]),
    ):
        wrong(name, base, change, words)


def narrow(config, tensors):
    at = "visual.transformer.resblocks.0.attn."
    for name, shape in (("in_proj_weight", (288, 96)), ("in_proj_bias", 288), ("out_proj.weight", (96, 96)),
                        ("out_proj.bias", 96)):
        tensors[at + name] = np.ones(shape, np.float32)


def write(folder, m):
    os.makedirs(folder)
    save(os.path.join(folder, "model.safetensors"), m.tensors)
    if m.config is not None:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(m.config, f, indent=1)


def main():
    root = sys.argv[1]
    faults()
    os.makedirs(os.path.join(root, "vectors"))
    for name, m in MODELS.items():
        write(os.path.join(root, name), m)
        save(os.path.join(root, "vectors", name + ".safetensors"), m.vectors)
    for name, (m, words) in WRONG.items():
        write(os.path.join(root, "wrong", name), m)
        with open(os.path.join(root, "wrong", name + ".txt"), "w") as f:
            f.write("\n".join(words) + "\n")


main()
