"""A whole encoder in float64, family by family, with nothing but NumPy: an oracle that shares no code with attnd.

encode(config, weights, sequence) takes {"ids": [T]} or {"embeds": [T,E]}, perhaps with "types" [T] and "mask" [T]
(0 = hidden from every token, and not pooled), and gives

    hidden [L+1,T,D]   as Hugging Face's output_hidden_states
    maps [L,H,T,T]     as its output_attentions
    rollout [T,T]      Abnar and Zuidema 2020
    mean, cls, max, mean_sqrt [D]

For make_encoders.py and minilm_vectors.py.
"""
import json
import math
import os

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}


def load(path):
    """The tensors of a safetensors file; bfloat16 becomes float32."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        piece = data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            value = (np.frombuffer(piece, "<u2").astype("<u4") << 16).view("<f4")
        else:
            value = np.frombuffer(piece, DTYPES[entry["dtype"]])
        out[name] = value.reshape(entry["shape"])
    return out


def save(path, tensors, bfloat16=()):
    """Those named in bfloat16 are float32 whose lower halves are zero."""
    header, at, data = {}, 0, []
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        kind = {"float32": "F32", "float16": "F16", "int64": "I64"}[value.dtype.name]
        if name in bfloat16:
            kind, value = "BF16", (value.view("<u4") >> 16).astype("<u2")
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
        data.append(value.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


def load_folder(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(load(os.path.join(folder, name)))
    with open(os.path.join(folder, "config.json")) as f:
        return json.load(f), tensors


# --- numbers -------------------------------------------------------------------------------------

GRID = 512
TABLE = np.array([math.erf(i / GRID) for i in range(6 * GRID + 2)])


def erf(x):
    """From the nearest of a grid of math.erf by four terms of the Taylor series: 1e-15."""
    z = np.minimum(np.abs(x), 6.0)
    i = np.rint(z * GRID).astype(int)
    a = i / GRID
    d = z - a
    first = 2 / math.sqrt(math.pi) * np.exp(-a * a)
    series = d * (1 + d * (-a + d * ((2 * a * a - 1) / 3 + d * (3 * a - 2 * a ** 3) / 6)))
    return np.sign(x) * (TABLE[i] + first * series)


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {"gelu": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh,
               "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x))}


class Weights:
    """Modules by name, widened once."""

    def __init__(self, tensors):
        self.tensors, self.wide = tensors, {}

    def get(self, name):
        if name not in self.wide and name in self.tensors:
            self.wide[name] = self.tensors[name].astype(np.float64)
        return self.wide.get(name)

    def linear(self, name, x):
        bias = self.get(name + ".bias")
        y = x @ self.get(name + ".weight").T
        return y if bias is None else y + bias

    def norm(self, name, x, eps):
        weight, bias = self.get(name + ".weight"), self.get(name + ".bias")
        if weight is None:
            weight, bias = self.get(name + ".gamma"), self.get(name + ".beta")
        centered = x - x.mean(-1, keepdims=True)
        y = centered / np.sqrt((centered ** 2).mean(-1, keepdims=True) + eps) * weight
        return y if bias is None else y + bias


def split(x, heads):
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def attend(q, k, v, allowed):
    scores = np.where(allowed, q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    context = p @ v
    return p, context.transpose(1, 0, 2).reshape(len(p[0]), -1)


def rotate(x, theta):
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


# --- the families ----------------------------------------------------------------------------------

def find_prefix(tensors, name):
    return next(t[:-len(name)] for t in tensors if t.endswith(name))


def run_bert(c, w, s):
    """BERT, RoBERTa and ELECTRA; ALBERT and DistilBERT say the same in other words."""
    kind, eps = c["model_type"], c.get("layer_norm_eps", 1e-12)
    p = find_prefix(w.tensors, "embeddings.word_embeddings.weight")
    x = s["embeds"] if "embeds" in s else w.get(p + "embeddings.word_embeddings.weight")[s["ids"]]
    T = len(x)
    positions = np.arange(T)
    if kind in ("roberta", "xlm-roberta", "camembert"):
        padding = c.get("pad_token_id", 1)
        real = s["ids"] != padding if "ids" in s else np.ones(T, bool)
        positions = np.cumsum(real) * real + padding
    types = w.get(p + "embeddings.token_type_embeddings.weight")
    if types is not None:
        x = x + types[s.get("types", np.zeros(T, int))]
    x = x + w.get(p + "embeddings.position_embeddings.weight")[positions]
    x = w.norm(p + "embeddings.LayerNorm", x, eps)
    for name in ("encoder.embedding_hidden_mapping_in", "embeddings_project"):
        if p + name + ".weight" in w.tensors:
            x = w.linear(p + name, x)
    L, H = c.get("num_hidden_layers", c.get("n_layers")), c.get("num_attention_heads", c.get("n_heads"))
    act = ACTIVATIONS[c.get("hidden_act", c.get("activation", "gelu_new" if kind == "albert" else "gelu"))]
    allowed = np.broadcast_to(s.get("mask", np.ones(T)) != 0, (H, T, T))
    hidden, maps = [x], []
    for n in range(L):
        if kind == "albert":
            g = n * c["num_hidden_groups"] // L
            at = p + f"encoder.albert_layer_groups.{g}.albert_layers.0."
            q, k, v, o, n1 = (at + "attention." + i for i in ("query", "key", "value", "dense", "LayerNorm"))
            up, down, n2 = (at + i for i in ("ffn", "ffn_output", "full_layer_layer_norm"))
        elif kind == "distilbert":
            at = p + f"transformer.layer.{n}."
            q, k, v, o = (at + "attention." + i for i in ("q_lin", "k_lin", "v_lin", "out_lin"))
            n1, up, down, n2 = (at + i for i in ("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"))
        else:
            at = p + f"encoder.layer.{n}."
            q, k, v = (at + "attention.self." + i for i in ("query", "key", "value"))
            o, n1 = at + "attention.output.dense", at + "attention.output.LayerNorm"
            up, down, n2 = (at + i for i in ("intermediate.dense", "output.dense", "output.LayerNorm"))
        probabilities, context = attend(*(split(w.linear(i, x), H) for i in (q, k, v)), allowed)
        x = w.norm(n1, x + w.linear(o, context), eps)
        x = w.norm(n2, x + w.linear(down, act(w.linear(up, x))), eps)
        hidden.append(x)
        maps.append(probabilities)
    return hidden, maps


def run_modernbert(c, w, s):
    eps, H = c.get("norm_eps", 1e-5), c["num_attention_heads"]
    p = find_prefix(w.tensors, "embeddings.tok_embeddings.weight")
    x = s["embeds"] if "embeds" in s else w.get(p + "embeddings.tok_embeddings.weight")[s["ids"]]
    x = w.norm(p + "embeddings.norm", x, eps)
    T = len(x)
    i, j = np.arange(T)[:, None], np.arange(T)[None, :]
    seen = np.broadcast_to(s.get("mask", np.ones(T)) != 0, (T, T))
    act = ACTIVATIONS[c.get("hidden_activation", "gelu")]
    hidden, maps = [x], []
    for n in range(c["num_hidden_layers"]):
        at = p + f"layers.{n}."
        globally = n % c.get("global_attn_every_n_layers", 3) == 0
        allowed = seen if globally else seen & (abs(i - j) <= c.get("local_attention", 128) // 2)
        theta = c["global_rope_theta"] if globally else c["local_rope_theta"]
        y = w.norm(at + "attn_norm", x, eps) if at + "attn_norm.weight" in w.tensors else x
        q, k, v = np.split(w.linear(at + "attn.Wqkv", y), 3, -1)
        probabilities, context = attend(rotate(split(q, H), theta), rotate(split(k, H), theta), split(v, H),
                                        np.broadcast_to(allowed, (H, T, T)))
        x = x + w.linear(at + "attn.Wo", context)
        value, gate = np.split(w.linear(at + "mlp.Wi", w.norm(at + "mlp_norm", x, eps)), 2, -1)
        x = x + w.linear(at + "mlp.Wo", act(value) * gate)
        hidden.append(x)
        maps.append(probabilities)
    hidden[-1] = w.norm(p + "final_norm", x, eps)
    return hidden, maps


# --- results -----------------------------------------------------------------------------------------

def rollout(maps):
    r = np.eye(maps[0].shape[-1])
    for m in maps:
        a = 0.5 * m.mean(0) + 0.5 * np.eye(len(r))
        r = a / a.sum(-1, keepdims=True) @ r
    return r


def encode(config, weights, s):
    run = run_modernbert if config["model_type"] == "modernbert" else run_bert
    hidden, maps = run(config, weights, s)
    rows = hidden[-1][s["mask"] != 0] if "mask" in s else hidden[-1]
    return {"hidden": np.stack(hidden), "maps": np.stack(maps), "rollout": rollout(maps),
            "mean": rows.mean(0), "cls": hidden[-1][0], "max": rows.max(0),
            "mean_sqrt": rows.sum(0) / math.sqrt(len(rows))}
