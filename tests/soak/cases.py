"""The requests of the soak, and what each set of weights answers: files for clients in any language.

    FOLDER/cases.json   a list of
        name, method, path, headers
        body        a file
        weight      how often it is asked, beside the others
        small       whether its time counts
        reader      how tensors stand in the answer: json, npy, safetensors, oip (the last with its binary tensors)
        tensors     their names or paths in the answer
        expect      for each set of weights the files of these tensors, float32; none: `status` is the right answer
        status      a list
"""
import base64
import gzip
import json

import numpy as np

from models import GROUPS, HEAD, HEADS, WIDTH, attend

JSON, NPY, SAFETENSORS = "application/json", "application/x-npy", "application/vnd.safetensors"
LAYER, DEMO, ENCODE = "/v1/models/layer/attention", "/v1/models/demo/attention", "/v1/models/encoder/encode"
# As a tokeniser splits them.
SPLIT = ["the cat sat on a mat .", "dog saw the cat and ran", "the tired cat ##s ran and the dog was tired which was a mat ."]
TEXTS = [text.replace(" ##", "") for text in SPLIT]
TENSORS = ("outputs", "attentions", "logsumexp")


def tensor(x):
    return {"shape": list(x.shape), "dtype": "float32", "data": base64.b64encode(x.tobytes()).decode()}


def npy(x):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {x.shape}, }}".encode()
    head += b" " * (-(11 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + x.tobytes()


def safetensors(x, **options):
    head = json.dumps({"__metadata__": {k: json.dumps(v) for k, v in options.items()}, "inputs_embeds": {
        "dtype": "F32", "shape": list(x.shape), "data_offsets": [0, x.nbytes]}}).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + x.tobytes()


def oip(x, binary, **parameters):
    """The body and the length of its header."""
    one = {"name": "hidden_states", "datatype": "FP32", "shape": list(x.shape)}
    one.update({"parameters": {"binary_data_size": x.nbytes}} if binary else {"data": x.ravel().tolist()})
    head = json.dumps({"inputs": [one], "parameters": {"binary_data_output": binary, **parameters}}).encode()
    return head + (x.tobytes() if binary else b""), len(head)


class Cases:
    def __init__(self, folder, models):
        self.folder, self.models, self.list = folder, models, []
        self.chance = np.random.default_rng(5)
        folder.mkdir()
        self.layers()
        self.heads()
        self.texts()
        self.wrong()
        (folder / "cases.json").write_text(json.dumps(self.list))

    def numbers(self, *shape):
        """Of few digits, so that JSON is short."""
        return (self.chance.integers(-64, 65, shape) / 32).astype(np.float32)

    def add(self, name, path, body, expect=(), kind=JSON, accept=JSON, reader="json", tensors=(), weight=20, small=True,
            status=(200,), **headers):
        stem = f"{len(self.list):02}"
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        (self.folder / stem).write_bytes(body)
        files = []
        for n, arrays in enumerate(expect):
            files.append([f"{stem}.{n}.{i}" for i in range(len(arrays))])
            for file, x in zip(files[-1], arrays):
                x.astype("<f4").tofile(self.folder / file)
        self.list.append({
            "name": name, "method": "POST", "path": path, "body": stem, "expect": files, "tensors": list(tensors),
            "headers": {"Content-Type": kind, "Accept": accept, **{k.replace("_", "-"): v for k, v in headers.items()}},
            "reader": reader, "weight": weight, "small": small, "status": list(status)})

    def layer(self, names, x, *wanted, model="layer", causal=False):
        """What each set makes of the batch x, all or those wanted."""
        sets = []
        for compute in self.models.sets[model]:
            each = [compute(s, causal) for s in x]
            sets.append([np.stack([e[w] for e in each]) for w in wanted])
        return {"expect": sets, "tensors": [names.get(w, w) for w in wanted]}

    def layers(self):
        inside = {"logsumexp": "intermediates.logsumexp"}
        short = {"outputs": "output", "attentions": "attention", "logsumexp": "lse"}
        demo, one, two, long = (self.numbers(*shape) for shape in ((1, 9, 16), (1, 24, WIDTH), (3, 40, WIDTH), (1, 1100, WIDTH)))
        demo /= 8  # its scores are as large as squares
        every = {"return_attentions": True, "return_intermediates": ["logsumexp"]}

        self.add("demo", DEMO, {"inputs_embeds": demo.tolist()}, **self.layer({}, demo, "outputs", model="demo"))
        self.add("demo, maps", DEMO, {"inputs_embeds": demo.tolist(), "return_attentions": True},
                 **self.layer({}, demo, "outputs", "attentions", model="demo"))
        self.add("numbers", LAYER, {"inputs_embeds": one.tolist()}, weight=40, **self.layer({}, one, "outputs"))
        self.add("numbers, all", LAYER, {"inputs_embeds": two.tolist(), **every}, **self.layer(inside, two, *TENSORS))
        self.add("base64, causal", LAYER, {"inputs_embeds": tensor(two), "is_causal": True, "encoding_format": "base64", **every},
                 **self.layer(inside, two, *TENSORS, causal=True))
        self.add("gzip", LAYER, gzip.compress(json.dumps({"inputs_embeds": two.tolist(), **every}).encode(), 1),
                 Content_Encoding="gzip", Accept_Encoding="gzip", weight=10, **self.layer(inside, two, *TENSORS))
        self.add("npy", LAYER, npy(one), kind=NPY, accept=NPY, reader="npy", **self.layer({}, one, "outputs"))
        self.add("safetensors", LAYER, safetensors(two, **every), kind=SAFETENSORS, accept=SAFETENSORS, reader="safetensors",
                 **self.layer({}, two, *TENSORS))
        for binary in (True, False):
            body, n = oip(two, binary)
            headers = {"Inference_Header_Content_Length": str(n)} if binary else {}
            self.add("protocol, bytes" if binary else "protocol, numbers", "/v2/models/layer/infer", body,
                     kind="application/octet-stream", reader="oip", **headers, **self.layer(short, two, *TENSORS))
        # More than 16 MiB of maps: they leave while they are computed.
        maps = self.layer({}, long, "attentions")
        self.add("stream, npy", LAYER + "?return_outputs=false&return_attentions=true", npy(long), kind=NPY, accept=NPY,
                 reader="npy", weight=1, small=False, **maps)
        self.add("stream, safetensors", LAYER, safetensors(long, return_outputs=False, return_attentions=True),
                 kind=SAFETENSORS, accept=SAFETENSORS, reader="safetensors", weight=1, small=False, **maps)
        self.add("stream, numbers", LAYER, {"inputs_embeds": tensor(long), "return_outputs": False,
                                            "return_attentions": {"queries": [0, 400]}, "encoding_format": "base64"},
                 weight=1, small=False, expect=[[e[0][:, :, :400]] for e in maps["expect"]], tensors=["attentions"])

    def heads(self):
        q, k, v = self.numbers(1, HEADS, 30, HEAD), self.numbers(1, GROUPS, 50, HEAD), self.numbers(1, GROUPS, 50, HEAD)
        want = attend(*(x[0].astype(np.float64) for x in (q, k, v)), HEAD ** -0.5)
        self.add("heads", "/v1/scaled-dot-product-attention",
                 {"query": tensor(q), "key": tensor(k), "value": tensor(v), "return_attentions": True},
                 expect=[[want["outputs"], want["attentions"]]], tensors=["outputs", "attentions"])

    def texts(self):
        sets = [[compute(t) for t in SPLIT] for compute in self.models.sets["encoder"]]

        def alone(n):
            return [[s[n]["mean"]] for s in sets]

        for n, text in enumerate(TEXTS):
            self.add(f"text {n}", ENCODE, {"inputs": [text]}, weight=15, expect=alone(n), tensors=["embeddings"])
        self.add("texts", ENCODE, {"inputs": TEXTS, "encoding_format": "base64"}, tensors=["embeddings"],
                 expect=[[np.stack([e["mean"] for e in s])] for s in sets])
        self.add("text, all", ENCODE, {"inputs": TEXTS[2:], "return_hidden_states": [0, 1, 2], "return_attentions": {"rollout": True}},
                 tensors=["embeddings", "hidden_states", "attentions", "rollout"],
                 expect=[[s[2][k] for k in ("mean", "hidden", "maps", "rollout")] for s in sets])
        self.add("openai", "/v1/embeddings", {"model": "encoder", "input": TEXTS[0]}, weight=15, expect=alone(0),
                 tensors=["data.0.embedding"])
        self.add("embed", "/embed", {"inputs": TEXTS[:1]}, weight=15, tensors=[""],
                 expect=[[s[0]["mean"] / np.linalg.norm(s[0]["mean"])] for s in sets])

    def wrong(self):
        x = self.numbers(1, 4, WIDTH)
        whole = json.dumps({"inputs_embeds": x.tolist()}).encode()
        for name, path, body, status, kind in (
                ("cut", LAYER, whole[:-200], 400, JSON),
                ("no JSON", LAYER, b"\0\1\2 nonsense", 400, JSON),
                ("unknown field", LAYER, whole[:-1] + b', "input_embeds": 1}', 400, JSON),
                ("too narrow", LAYER, json.dumps({"inputs_embeds": x[:, :, :63].tolist()}).encode(), 422, JSON),
                ("no such layer", LAYER, whole[:-1] + b', "layer": 7}', 422, JSON),
                ("cut npy", LAYER, npy(x)[:-5], 400, NPY),
                ("cut safetensors", LAYER, safetensors(x)[:-5], 400, SAFETENSORS),
                ("no such model", "/v1/models/layre/attention", whole, 404, JSON),
                ("no such token", ENCODE, b'{"input_ids": [[2, 5, 99, 3]]}', 422, JSON),
                ("cut text", ENCODE, b'{"inputs": ["the cat', 400, JSON),
                ("deep", "/v1/embeddings", b'{"input": ' + b"[" * 5000, 400, JSON)):
            self.add(name, path, body, weight=3, status=[status], kind=kind, small=False)
