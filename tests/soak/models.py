"""What the soak serves: the demo, a layer and a whole encoder. The last two have two sets of weights each, and one
folder that is broken; a link says which is served. And what they compute, in float64, with nothing but NumPy."""
import json
import os

import numpy as np

import make_encoders
import ref_encoder
from claims import ATTND, command

WIDTH, HEADS, GROUPS, HEAD = 64, 4, 2, 16
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s on a mat . sat dog saw and which was tired ran".split()
SETS = "ab"


class Layer:
    """A layer of the native layout."""

    def __init__(self, folder, n=0):
        with open(folder / "config.json") as f:
            self.config = json.load(f)
        tensors = ref_encoder.load(folder / "model.safetensors")
        at = f"layers.{n}."
        self.tensors = {k[len(at):]: v.astype(np.float64) for k, v in tensors.items() if k.startswith(at)}

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0)

    def __call__(self, x, causal=False):
        """One sequence [T,D]: outputs, attentions [H,T,T] and their logsumexp [H,T]."""
        heads, groups = self.config["num_heads"], self.config["num_kv_heads"]
        q, k, v = (ref_encoder.split(self.linear(name, x.astype(np.float64)), n)
                   for name, n in (("wq", heads), ("wk", groups), ("wv", groups)))
        out = attend(q, k, v, self.config.get("scale", q.shape[-1] ** -0.5), causal)
        joined = out["outputs"].transpose(1, 0, 2).reshape(len(x), -1)
        return {**out, "outputs": self.linear("wo", joined)}


def attend(q, k, v, scale, causal=False):
    k, v = (np.repeat(x, len(q) // len(k), 0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[1:]) != 0, scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    p = np.exp(scores - most)
    total = p.sum(-1, keepdims=True)
    return {"outputs": p / total @ v, "attentions": p / total, "logsumexp": (most + np.log(total))[..., 0]}


def write_layer(folder, seed):
    chance = np.random.default_rng(seed)
    tensors = {}
    for name, out, width in (("wq", HEADS * HEAD, WIDTH), ("wk", GROUPS * HEAD, WIDTH), ("wv", GROUPS * HEAD, WIDTH),
                             ("wo", WIDTH, HEADS * HEAD)):
        tensors[f"layers.0.{name}.weight"] = (chance.standard_normal((out, width)) / np.sqrt(width)).astype(np.float32)
        tensors[f"layers.0.{name}.bias"] = chance.standard_normal(out).astype(np.float32) / 2
    folder.mkdir()
    ref_encoder.save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "attnd", "d_model": WIDTH, "num_heads": HEADS, "num_kv_heads": GROUPS, "head_dim": HEAD,
        "v_head_dim": HEAD, "is_causal": False}))


def write_encoder(folder, seed):
    """Two layers of BERT."""
    m = make_encoders.Model(folder.name, (), len(WORDS))
    m.rng = np.random.default_rng(seed)
    make_encoders.embeddings(m, "", len(WORDS), 64, 2, 32)
    make_encoders.bert_layers(m, "", 2, 32, 80)
    m.config = make_encoders.bert_config("bert", 2, 32, 4, vocab_size=len(WORDS), max_position_embeddings=64,
                                         hidden_act="gelu", layer_norm_eps=1e-12)
    m.files = {"tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True}}
    m.write(folder.parent)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def ids(text):
    """Of words that stand in the vocabulary, with what a tokeniser puts around them."""
    return [WORDS.index(w) for w in ("[CLS]", *text.split(), "[SEP]")]


class Encoder:
    def __init__(self, folder):
        self.config, tensors = ref_encoder.load_folder(folder)
        self.weights = ref_encoder.Weights(tensors)

    def __call__(self, text):
        return ref_encoder.encode(self.config, self.weights, {"ids": np.array(ids(text))})


def break_weights(whole, folder):
    """What is left when a copy was cut short."""
    folder.mkdir()
    for name in os.listdir(whole):
        data = (whole / name).read_bytes()
        (folder / name).write_bytes(data[:len(data) // 2] if name == "model.safetensors" else data)


class Models:
    """In this folder. `sets` are what each set of weights computes; the demo's are one."""

    def __init__(self, folder):
        self.folder = folder
        command(ATTND, "demo", str(folder / "demo"))
        self.sets = {"demo": [Layer(folder / "demo")], "layer": [], "encoder": []}
        for n, name in enumerate(SETS):
            write_layer(folder / f"layer-{name}", n)
            write_encoder(folder / f"encoder-{name}", n)
            self.sets["layer"].append(Layer(folder / f"layer-{name}"))
            self.sets["encoder"].append(Encoder(folder / f"encoder-{name}"))
        for model in ("layer", "encoder"):
            break_weights(folder / f"{model}-a", folder / f"{model}-broken")
            self.serve(model, "a")

    def serve(self, model, name):
        """From the next load on. The link is there at any time."""
        new = self.folder / "new"
        new.symlink_to(f"{model}-{name}")
        new.replace(self.folder / model)

    def options(self):
        return [word for name in self.sets for word in ("--model", f"{name}={self.folder / name}")]
