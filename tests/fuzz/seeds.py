#!/usr/bin/env python3
"""Makes the inputs that fuzzing starts from: seeds.py FOLDER ATTND

One folder a target in FOLDER. The demo model's files and requests are the material, and, where they are there, the
stored vectors ($ATTND_SHARED, else ../shared). README.md beside this file tells how a target's inputs look.
"""
import base64
import gzip
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

import numpy as np

folder, attnd = pathlib.Path(sys.argv[1]), sys.argv[2]
shared = pathlib.Path(os.environ.get("ATTND_SHARED", "../shared"))
here = pathlib.Path(__file__).parent
rng = random.Random(8)
count = {}


def seed(target, data):
    """One input; a text is UTF-8."""
    data = data.encode() if isinstance(data, str) else data
    if len(data) <= 16384:
        (folder / target).mkdir(parents=True, exist_ok=True)
        count[target] = count.get(target, 0) + 1
        (folder / target / f"{count[target]:04}").write_bytes(data)


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    return out.getvalue()


def safetensors(tensors, metadata=None, names={"f4": "F32", "f2": "F16", "f8": "F64", "i8": "I64", "i4": "I32", "b1": "BOOL"}):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, a in tensors.items():
        begin, data = len(data), data + a.tobytes()
        header[name] = {"dtype": names[a.dtype.str[1:]], "shape": list(a.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def floats(*shape):
    return np.array([rng.choice([0.5, -1.25, 2, 0.1, -3e-3, 1e4]) for _ in range(int(np.prod(shape)))], "<f4").reshape(shape)


def tensor(a):
    return {"shape": list(a.shape), "dtype": a.dtype.name, "data": base64.b64encode(a.tobytes()).decode()}


# --- requests: what the members are, in every form -------------------------------------------------------------------

OPTIONS = [
    {"layer": 1, "return_attentions": True},
    {"layer": 0, "return_attentions": {"heads": [0, 2], "reduce_heads": "mean", "queries": [0, 2], "keys": [1, 3]}},
    {"return_attentions": {"stage": "masked", "dtype": "float16"}, "encoding_format": "base64", "is_causal": True},
    {"return_attentions": {"top_k": 2}, "return_intermediates": ["query", "key", "value", "logsumexp", "context"]},
    {"return_attentions": {"pool": {"size": 2, "kind": "max"}, "dtype": "uint8"}, "encoding_format": "base64"},
    {"window": {"left": 1, "right": 0}, "scale": 0.25, "softcap": 30.0, "timeout_ms": 1000, "return_outputs": False},
    {"lengths": [2, 3], "attention_mask": [[1, 1, 0], [True, False, True]], "position_offset": 0},
    {"attention_bias": [["-inf", 0.5, -1e9]] * 3, "tokens": [["a", "é", "\U0001f600"], ["", "\\\"", "\t"]]},
    {"return_attentions": {"stage": "scores", "heads": "all", "reduce_heads": "max"}, "causal_offset": [0, 1], "is_causal": True},
]
bodies = [{"inputs_embeds": floats(2, 3, 16).tolist(), **o} for o in OPTIONS]
bodies += [{"inputs_embeds": floats(3, 16).tolist(), **OPTIONS[0]},
           {"inputs_embeds": [floats(1, 16).tolist()[0:1], floats(3, 16).tolist()], **OPTIONS[0]},
           {"inputs_embeds": tensor(floats(1, 4, 16)), "encoder_hidden_states": tensor(floats(1, 2, 16)), "layer": 1},
           {"inputs_embeds": tensor(floats(1, 2, 16).astype("<f2")), "past_key": tensor(floats(1, 1, 2, 16)),
            "past_value": tensor(floats(1, 1, 2, 8)), "is_causal": True},
           {"inputs_embeds": [], "return_attentions": True}, {"inputs_embeds": [[]]}]
sdpa = {"query": floats(1, 4, 3, 2).tolist(), "key": floats(1, 2, 5, 2).tolist(), "value": floats(1, 2, 5, 3).tolist()}
sdpas = [{**sdpa, **o} for o in OPTIONS[:6]] + [{k: tensor(np.array(v, "<f4")) for k, v in sdpa.items()}]
estimates = [{"shape": [2, 3, 16], **OPTIONS[1]}, {"shape": [1, 1000, 16], "context_length": 50, "layer": 1}]

with tempfile.TemporaryDirectory() as tmp:
    subprocess.run([attnd, "demo", tmp + "/demo"], check=True, stdout=subprocess.DEVNULL)
    demo_config = pathlib.Path(tmp, "demo/config.json").read_text()
    demo_weights = pathlib.Path(tmp, "demo/model.safetensors").read_bytes()
    examples = [p.read_text() for p in sorted(pathlib.Path(tmp, "demo/examples").glob("*.json"))]

for i, b in enumerate([json.dumps(b) for b in bodies] + examples):
    for cuts in (0, 1, 7):
        seed("json", bytes([cuts]) + b.encode())
    seed("request", bytes([32 * (i & 1) + 64 * (i % 4), i]) + b.encode())
    seed("request", bytes([16, i]) + gzip.compress(b.encode(), mtime=0))
for i, b in enumerate(sdpas):
    seed("json", bytes([3]) + json.dumps(b).encode())
    seed("request", bytes([1 + 32 * (i & 1), i]) + json.dumps(b).encode())
for b in estimates:
    seed("request", bytes([2, 5]) + json.dumps(b).encode())
for b in bodies + sdpas:
    tensors = {k: np.array(v, "<f4") for k, v in b.items() if k in ("inputs_embeds", "query", "key", "value") and v
               and isinstance(v, list) and len({len(x) for x in v}) == 1}
    rest = {k: json.dumps(v) for k, v in b.items() if k not in tensors}
    if tensors:
        seed("request", bytes([("query" in b) + 4, 9]) + safetensors(tensors, rest))
    if "inputs_embeds" in tensors:
        query = "&".join(f"{k}={json.dumps(v)}" for k, v in rest.items() if "float" not in k)
        seed("request", bytes([8 + 32, 9]) + b"\n--\n" + npy(tensors["inputs_embeds"]))
        seed("request", bytes([8, 9]) + b"layer=1&return_attentions=true\n--\n" + npy(tensors["inputs_embeds"].astype(">f8")))
text_cases = ['{"inputs_embeds":[[[1,2],[3]]]}', '{"inputs_embeds":[[[NaN,1]]]}', '{"inputs_embeds":[[[1e400,-1e-400]]]}',
              '{"layer":{"a":[[[1,null,true,"\\u00e9\\ud83d\\ude00"]]]}}', '{"layer":1,"layer":2}', '{"lengths":[1,2],}', '\ufeff{}',
              '{"attention_mask":[[0.0,1.0,true,false]],"position_ids":[[0,-1,9223372036854775807]]}', '{"query":[[[[]]]]}',
              '{"tokens":["a",["b"]],"causal_offset":3}', ' {"inputs_embeds":{"dtype":"float32","shape":[1,2],"data":"AAAAAAAAgD8="}} \n']
for i, t in enumerate(text_cases):
    seed("json", bytes([i % 4]) + t.encode())

# --- the Open Inference Protocol -------------------------------------------------------------------------------------

def oip(inputs, outputs=None, parameters=None, binary=True):
    """The two lines in front, JSON, bytes."""
    listed, data = [], b""
    names = {"f4": "FP32", "f2": "FP16", "f8": "FP64", "i8": "INT64", "i4": "INT32", "b1": "BOOL"}
    for name, a in inputs.items():
        one = {"name": name, "shape": list(a.shape), "datatype": names[a.dtype.str[1:]]}
        if binary:
            one["parameters"] = {"binary_data_size": a.nbytes}
            data += a.tobytes()
        else:
            one["data"] = a.ravel().tolist()
        listed.append(one)
    body = {"id": "7", "inputs": listed}
    if outputs is not None:
        body["outputs"] = outputs
    if parameters:
        body["parameters"] = parameters
    text = json.dumps(body).encode()
    return str(len(text)).encode() if binary else b"", text + data


oips = []
for binary in (True, False):
    x = {"hidden_states": floats(2, 3, 16)}
    mask = np.array([[1, 1, 0], [1, 0, 1]], "?")
    oips += [oip(x, binary=binary), oip({**x, "attend_mask": mask}, [{"name": "output"}], {"layer": 1}, binary),
             oip({**x, "lengths": np.array([2, 3], "<i8")}, [{"name": "attention", "parameters": {"binary_data": binary}}],
                 {"return_attentions": "{\"heads\":[1]}", "is_causal": True, "binary_data_output": True}, binary),
             oip({"attention_bias": floats(3, 3), **x}, [{"name": "lse"}, {"name": "output", "parameters": {"binary_data": True}}],
                 {"window": "{\"left\":1}", "scale": 0.5}, binary)]
oips.append(oip({"hidden_states": floats(1, 2, 16).astype("<f2")}))
for i, (length, body) in enumerate(oips):
    seed("oip", bytes([0, i]) + length + b"\n" + body)
    seed("oip", bytes([4, 1]) + length + b"\n" + body)
    seed("oip", bytes([1, i]) + length + b"\n" + gzip.compress(body, mtime=0))
    seed("oip", bytes([2, i]) + length + b"\n" + zlib.compress(body))
seed("oip", bytes([0, 9]) + b"0\n" + floats(1, 3, 16).tobytes())

# --- text and bytes ---------------------------------------------------------------------------------------------------

for i, n in enumerate([0, 1, 2, 3, 47, 48, 49, 96, 150]):
    seed("base64", bytes([i * 7]) + base64.b64encode(rng.randbytes(n)))
lists = ["1,2,3]", "-0.5, 1e10,3.4028235e38]", "0.1,0.333333343,1.17549435e-38,1e-45,5e-46,-0]", " 1.5 ,2\t]",
         "16777217,9007199254740993,17000000000000000000,1e400]", "01,.5,1.,+1,0x10]",
         ",".join(repr(rng.uniform(-9, 9)) for _ in range(40)) + "]",
         ", ".join(repr(float(np.float32(rng.uniform(-9, 9)))) for _ in range(40)) + "]"]
for text in lists:
    seed("decimal", b"\x40" + text.encode())
for i, d in enumerate([b"", b"hello", b"a" * 1000, rng.randbytes(300), json.dumps(bodies[0]).encode()]):
    seed("inflate", bytes([40, i * 50]) + gzip.compress(d, mtime=0))
    seed("inflate", bytes([41, i * 50]) + zlib.compress(d))
    seed("inflate", bytes([30, 1]) + gzip.compress(d, mtime=0) * 2)

# --- files of weights -------------------------------------------------------------------------------------------------

arrays = [floats(2, 3), np.asfortranarray(floats(3, 4)), floats(4).astype(">f4"), floats(2, 2).astype("<f2"), floats(3).astype("<f8"),
          np.arange(6, dtype="<i8").reshape(2, 3), np.array(1.5, "<f4"), np.zeros((0, 4), "<f4"), np.array([True, False])]
for i, a in enumerate(arrays):
    for version in ((1, 0), (2, 0), (3, 0)):
        seed("npy", bytes([i % 2]) + npy(a, version))
    seed("npy", bytes([4]) + npy(a))
for write in (np.savez, np.savez_compressed):
    out = io.BytesIO()
    write(out, **{f"layers.0.w{i}": a for i, a in enumerate(arrays)})
    seed("npy", b"\2" + out.getvalue())
    seed("npy", b"\0" + out.getvalue())
out = io.BytesIO()
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("notes.txt", "hello")
    z.writestr("a/b.npy", npy(floats(5)))
seed("npy", b"\2" + out.getvalue())
seed("npy", b"\1\x93NUMPY\1\0\x46\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }           \n" + bytes(8))

one, two = {"a": floats(2, 3), "b": floats(4).astype("<f2")}, {"c": np.arange(3, dtype="<i8"), "empty": np.zeros((0, 2), "<f4")}
for t in (one, two, {**one, **two}, {"x" * 80: floats(1)}, {}):
    seed("safetensors", b"\0" + safetensors(t, {"format": "pt"} if len(t) == 2 else None))
index = json.dumps({"metadata": {"total_size": 1}, "weight_map": {
    "a": "model.safetensors", "b": "model.safetensors", "c": "b.safetensors", "empty": "b.safetensors"}})
seed("safetensors", b"\2" + index.encode() + b"\n--\n" + safetensors(one) + b"\n--\n" + safetensors(two))
seed("safetensors", b"\0" + safetensors(one) + b"\n--\n" + safetensors(two))
seed("safetensors", b"\x11" + b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}')
seed("safetensors", b"\x23" + index.encode() + b'\n--\n{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":'
     b'{"dtype":"BF16","shape":[8],"data_offsets":[16,32]},"__metadata__":{"k":"v"}}\n--\n{"c":{"dtype":"F8_E4M3","shape":[32],"data_offsets":[0,32]}}')
seed("safetensors", b"\0" + demo_weights)
for file in sorted(shared.glob("vectors/mha/*/vectors.safetensors"))[:12]:
    seed("safetensors", b"\0" + file.read_bytes())

# --- models: the checkpoints of the tests, of every family, with small tensors ----------------------------------------


def layout_of(model):
    """config.json and a line a tensor."""
    data = (model / "model.safetensors").read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    lines = [f"{k} {v['dtype']} {','.join(map(str, v['shape']))}" for k, v in header.items() if k != "__metadata__"]
    config = model / "config.json"
    return (config.read_bytes() if config.exists() else b"") + b"\n--\n" + "\n".join(lines).encode()


with tempfile.TemporaryDirectory() as tmp:
    subprocess.run([sys.executable, here.parent / "make_checkpoints.py", tmp + "/m"], check=True, stdout=subprocess.DEVNULL)
    for model in sorted(pathlib.Path(tmp, "m").glob("**/model.safetensors")):
        text = layout_of(model.parent)
        seed("layout", text)
        config = json.loads(text.split(b"\n--\n")[0] or b"{}")
        if "layout" in config:
            seed("layout", b"\n--\n" + text.split(b"\n--\n")[1] + b"\n--\n" + json.dumps(config["layout"]).encode())

# --- the configuration ------------------------------------------------------------------------------------------------

schema = json.loads((here.parent.parent / "config/attnd.schema.json").read_text())


def example(s, depth=0):
    """A value that the schema allows."""
    s = s[0] if isinstance(s, list) else s
    for key in ("default", "const"):
        if key in s:
            return s[key]
    if "enum" in s:
        return rng.choice(s["enum"])
    for key in ("oneOf", "anyOf"):
        if key in s:
            return example(rng.choice(s[key]), depth + 1)
    kind = s.get("type")
    if "$ref" in s or depth > 8:
        return {}
    if kind == "object" or "properties" in s:
        return {k: example(v, depth + 1) for k, v in s.get("properties", {}).items() if rng.random() < 0.7}
    return {"array": [], "integer": 3, "number": 0.5, "boolean": True, "string": "10s", "null": None}.get(kind, "x")


for _ in range(12):
    seed("config", json.dumps(example(schema)))
seed("config", json.dumps(example(schema)) + "\n--\nATTND_SERVER_LISTEN=[::]:0\nATTND_MEMORY_BUDGET=1GiB\nATTND_SERVER_LISTN=x\nPATH=/bin"
     "\n--\n--set\nlog.level=debug\n--listen\nlocalhost:0\n--model\nm=/models/m\n--print-config")
seed("config", '{"models":[{"name":"a","path":"/m","layers":[0,2],"dtype":"float32","layout":{"num_heads":2}},{"path":"/n","layers":"all"}]}'
     '\n--\n\n--\n--set\nmodels=[]\n--set=queue.max_requests=5\n--config=/nowhere')
seed("config", '{"server":{"max_body":"1.5GiB","request_timeout":"500ms","listn":1},"$schema":"x"}')

# --- whole connections ------------------------------------------------------------------------------------------------


def post(path, body=b"", *fields, host=b"x", length=True):
    body = body.encode() if isinstance(body, str) else body
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"Host: " + host, *[f.encode() for f in fields]]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def get(path, *fields, method="GET", version="1.1"):
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: 127.0.0.1", *fields]).encode() + b"\r\n\r\n"


def chunked(body, size):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


ATTENTION, host = "/v1/models/demo/attention", b"127.0.0.1"
short = json.dumps(bodies[3]).encode()
conversations = [get(p) for p in ("/", "/v1/models", "/v1/models/demo", "/v1/models/demo/examples", "/health/live", "/health/ready",
                                  "/metrics", "/openapi.json", "/v2", "/v2/models/demo", "/v2/models/demo/ready", "/nowhere", "/%00", "/a%zz")]
conversations += [get("/v1/models", "X-Request-Id: abc", "Accept: text/html", "Accept-Encoding: gzip;q=0.5, *;q=0"),
                  get("/health/live", method="HEAD") + get("/health/live"), get(ATTENTION), get("/v1/models", method="OPTIONS"),
                  get("/v1/models", "Connection: close"), get("/v1/models", version="1.0"), get("*", method="OPTIONS"),
                  get("/health/live") * 3, b"\r\n" + get("/v1/models"), b"GET /v1/models HTTP/1.1\nHost: 127.0.0.1\n\n",
                  get("/v1/models", "Host: b"), get("/v1/models", "A: b", " folded"), b"GET / HTTP/2.0\r\n\r\n", b"\x16\x03\x01\2\0\1\0"]
conversations += [post(ATTENTION, json.dumps(b), "Content-Type: application/json", host=host) for b in bodies[:8]]
conversations += [post("/v1/scaled-dot-product-attention", json.dumps(b), host=host) for b in sdpas[:3]]
conversations += [post(ATTENTION + "/estimate", json.dumps(estimates[0]), host=host),
                  post(ATTENTION, short, "Transfer-Encoding: chunked", host=host),
                  post(ATTENTION, chunked(short, 700), "Transfer-Encoding: chunked", host=host, length=False) + get("/health/live"),
                  post(ATTENTION, short, "Expect: 100-continue", host=host), post(ATTENTION, short, host=host)[:-9],
                  post(ATTENTION, gzip.compress(short, mtime=0), "Content-Encoding: gzip", "Accept-Encoding: gzip", host=host),
                  post(ATTENTION, short, "Accept: application/vnd.safetensors", host=host),
                  post(ATTENTION + "?scale=4&colormap=grey&head=0", json.dumps(bodies[0]), "Accept: image/png", host=host),
                  post(ATTENTION + "?layer=1", npy(floats(2, 16)), "Content-Type: application/x-npy", "Accept: application/x-npy", host=host),
                  post(ATTENTION, safetensors({"inputs_embeds": floats(2, 16)}, {"layer": "1"}), "Content-Type: application/vnd.safetensors", host=host),
                  post("/v1/models/none/attention", short, host=host), post(ATTENTION, short[:-1], host=host) * 2]
for length, body in oips[:6]:
    fields = [b"Inference-Header-Content-Length: " + length] if length else []
    conversations.append(post("/v2/models/demo/infer", body, *[f.decode() for f in fields], host=host))
for i, c in enumerate(conversations):
    seed("http", bytes([0]) + c)
    if i % 3 == 0:
        seed("http", bytes([1 + 40 * (i % 5)]) + c)

# --- tokenisers -------------------------------------------------------------------------------------------------------


def byte_letters():
    """The letter that stands for each byte in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b if b in plain else next(rest)) for b in range(256)]


letters = "abcdefghinorst"
specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
added = [{"id": i, "content": t, "single_word": False, "lstrip": t == "[MASK]", "rstrip": False, "normalized": False, "special": True}
         for i, t in enumerate(specials)]
pieces = specials + list(letters) + ["##" + c for c in letters] + ["the", "##ing", "on", "##s", ",", "é", "中"]
template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                                     {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [specials.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")}}
wordpiece = {"version": "1.0", "added_tokens": added,
             "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
             "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": template, "decoder": None,
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                       "vocab": {t: i for i, t in enumerate(pieces)}}}
vocab = {c: i for i, c in enumerate(byte_letters())}
for t in ("th", "the", "Ġthe", "in", "ing", "on"):
    vocab[t] = len(vocab)
bpe = {"added_tokens": [], "normalizer": {"type": "NFC"},
       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
       "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
       "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": ["t h", "th e", "Ġ the", "i n", "in g", "o n"]}}
unigram = {"added_tokens": [{"id": 0, "content": "<s>", "special": True, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}],
           "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                                                              {"type": "Strip", "strip_left": True, "strip_right": False}]},
           "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
           "post_processor": {"type": "RobertaProcessing", "sep": ["<s>", 0], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": True},
           "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
                     "vocab": [["<s>", 0.0], ["<unk>", 0.0], ["▁the", -2.5], ["▁", -3.0], ["ing", -3.5], *[[c, -5.0 - i / 8] for i, c in enumerate(letters)]]}}
texts = ["the singing, on the inn", "Thé  SINGS [MASK] 中文 \u00c0\u0301 it's 1,234", "\U0001f469\u200d\U0001f680 \t\x00 e\u0301\u00a0x", "", "a" * 120]
for i, t in enumerate(texts):
    for kind in (wordpiece, bpe, unigram):
        seed("tokenizer", bytes([4 * (i * 3)]) + json.dumps(kind, ensure_ascii=False).encode() + b"\n--\n" + t.encode() + b"\n--\n" + texts[0].encode())
    seed("tokenizer", bytes([1 + 16]) + "\n".join(pieces).encode() + b'\n--\n{"do_lower_case":true,"model_max_length":9}\n--\n' + t.encode())
    seed("tokenizer", bytes([2]) + json.dumps(vocab).encode() + "\n--\n#version: 0.2\nt h\nth e\nĠ the\ni n\nin g\n--\n".encode() + t.encode())

# --- whole encoders ---------------------------------------------------------------------------------------------------

encodes = [{"inputs": "The cats on a mat."}, {"inputs": ["the cat", "", "on a mat [MASK] ."], "return_hidden_states": True, "pooling": "cls"},
           {"inputs": [["the cat", "a mat"]], "return_attentions": {"layers": [0, 1], "rollout": True, "heads": [1]}, "normalize": False},
           {"input_ids": [[2, 5, 6, 7, 3], [2, 3]], "token_type_ids": [[0, 0, 1, 1, 1], [0, 0]], "return_hidden_states": [0, 2]},
           {"input_ids": [[2, 5, 3, 0], [2, 3, 0, 0]], "lengths": [3, 2], "return_attentions": True, "encoding_format": "base64"},
           {"input_ids": [[2, 5, 3], [2, 6, 3]], "attention_mask": [[1, 1, 1], [1, 1, 0]], "return_embeddings": False, "return_attentions":
            {"top_k": 2, "layers": "all"}}, {"inputs_embeds": floats(1, 3, 8).tolist(), "pooling": "none", "timeout_ms": 500},
           {"inputs": "the cat " * 30, "truncate": False}, {"inputs": []}, {"inputs": "", "return_attentions": {"pool": {"size": 2}}}]
for i, b in enumerate(encodes):
    seed("encode", bytes([0, i]) + json.dumps(b).encode())
for i, b in enumerate([{"input": ["the cat", "a mat"], "model": "tiny"}, {"input": "the", "encoding_format": "base64", "dimensions": 4, "user": "x"},
                       {"input": [2, 5, 3]}, {"input": [[2, 5, 3], [2, 3]], "model": "other"}]):
    seed("encode", bytes([1, i]) + json.dumps(b).encode())
for i, b in enumerate([{"inputs": ["the cat", "mat"], "normalize": True, "truncate": True}, {"inputs": "a", "truncation_direction": "right"}]):
    seed("encode", bytes([2, i]) + json.dumps(b).encode())
for i, (path, b) in enumerate([("/v1/models/tiny/encode", encodes[0]), ("/v1/models/tiny/encode", encodes[2]), ("/v1/models/tiny/encode", encodes[5]),
                               ("/v1/embeddings", {"input": ["the cat", "a mat"], "model": "tiny", "encoding_format": "base64"}),
                               ("/embed", {"inputs": "a mat"}), ("/v1/models/demo/encode", encodes[0])]):
    seed("http", bytes([40 * (i % 2)]) + post(path, json.dumps(b), host=host))
