"""Everything that takes memory, at once, for a while: long sequences, wide batches, maps, compressed bodies, clients
that read slowly, leave, or send half of what they said. mix.py URL SECONDS

The models are "demo" and "wide", see wide_model(). Prints how often each kind got which status.
"""
import base64
import collections
import gzip
import http.client
import json
import random
import struct
import sys
import threading
import time
import urllib.parse

D, HEADS = 768, 12


def wide_model(folder):
    """One layer of 768 numbers a token and 12 heads in attnd's own layout: 9 MiB of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "attnd", "d_model": D, "num_heads": HEADS, "is_causal": False}
    (folder / "config.json").write_text(json.dumps(config))
    size = D * D * 4
    names = [f"layers.0.{w}.weight" for w in ("wq", "wk", "wv", "wo")]
    header = json.dumps({n: {"dtype": "F32", "shape": [D, D], "data_offsets": [i * size, (i + 1) * size]}
                         for i, n in enumerate(names)}).encode()
    header += b" " * (-len(header) % 8)
    row = struct.pack(f"<{D}f", *((i % 13 - 6) / 64 for i in range(D)))
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        for i in range(4 * D):
            f.write(row[4 * (i % D):] + row[: 4 * (i % D)])


def npy(*shape):
    count = 1
    for n in shape:
        count *= n
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    some = struct.pack("<1024f", *((i * 37 % 101 - 50) / 50 for i in range(1024)))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + (some * (count // 1024 + 1))[: 4 * count]


def numbers(tokens, width):
    return [[(t * 31 + d * 17) % 200 / 100 - 1 for d in range(width)] for t in range(tokens)]


def kinds():
    """name: (path, body, headers, how the answer is read)"""
    wide, demo = "/v1/models/wide/attention", "/v1/models/demo/attention"
    as_json, as_npy = {"Content-Type": "application/json"}, {"Content-Type": "application/x-npy"}
    text = json.dumps({"inputs_embeds": [numbers(256, D)], "return_attentions": {"heads": [0]}}).encode()
    halves = base64.b64encode(bytes(2 * 4 * 512 * D)).decode()
    doubles = base64.b64encode(bytes(8 * 512 * D)).decode()
    sdpa = json.dumps({k: {"shape": [1, 8, 512, 64], "dtype": "float32",
                           "data": base64.b64encode(bytes(4 * 8 * 512 * 64)).decode()}
                       for k in ("query", "key", "value")} | {"return_attentions": True}).encode()
    return {
        "small": (demo, json.dumps({"inputs_embeds": [numbers(8, 16)], "return_attentions": True}).encode(), as_json, "all"),
        "long": (demo, npy(1, 8192, 16), as_npy | {"Accept": "application/x-npy"}, "all"),
        "long maps": (demo + "?return_attentions=true", npy(1, 2048, 16), as_npy, "some"),
        "wide batch": (wide, npy(16, 512, D), as_npy | {"Accept": "application/x-npy"}, "all"),
        "wide batch as text": (wide, npy(4, 512, D), as_npy, "all"),
        "too wide": (wide + "?return_attentions=true", npy(64, 512, D), as_npy, "some"),
        "wide maps": (wide + "?return_attentions=true", npy(8, 512, D), as_npy, "some"),
        "picture": (wide, npy(1, 1024, D), as_npy | {"Accept": "image/png"}, "all"),
        "text": (wide, text, as_json, "all"),
        "compressed": (wide, gzip.compress(text, 1), as_json | {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}, "all"),
        "bomb": (wide, gzip.compress(b'{"inputs_embeds":[[' + b"0," * 20_000_000, 1), as_json | {"Content-Encoding": "gzip"}, "all"),
        "halves": (wide, json.dumps({"inputs_embeds": {"shape": [4, 512, D], "dtype": "float16", "data": halves}}).encode(), as_json, "all"),
        "doubles": (wide, json.dumps({"inputs_embeds": {"shape": [1, 512, D], "dtype": "float64", "data": doubles}}).encode(), as_json, "all"),
        "own tensors": ("/v1/scaled-dot-product-attention", sdpa, as_json, "slowly"),
        "half sent": (wide, npy(32, 512, D), as_npy, "never"),
    }


def ask(address, kind, chance):
    path, body, headers, reading = kind
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        if reading == "never":
            connection.putrequest("POST", path)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body[: chance.randrange(len(body))])
            time.sleep(chance.random())
            return "left"
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        most = {"all": 1 << 40, "some": 8 << 20, "slowly": 2 << 20}[reading]
        got = 1
        while most > 0 and got:
            got = len(answer.read(65536))
            most -= got
            if reading == "slowly":
                time.sleep(0.05)
        return str(answer.status)
    except OSError as e: # a body that is refused while it is sent
        return type(e).__name__
    finally:
        connection.close()


class Mix:
    def __init__(self, url, clients=12, seed=1):
        at = urllib.parse.urlsplit(url)
        self.address, self.kinds = (at.hostname, at.port), kinds()
        self.counts, self.lock, self.ended = collections.Counter(), threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed * 1000 + n),), daemon=True)
                        for n in range(clients)]

    def run(self, chance):
        while not self.ended.is_set():
            name = chance.choice(list(self.kinds))
            what = ask(self.address, self.kinds[name], chance)
            with self.lock:
                self.counts[name, what] += 1

    def for_seconds(self, seconds):
        for t in self.threads:
            t.start()
        time.sleep(seconds)
        self.ended.set()
        for t in self.threads:
            t.join()
        return self.counts


def main():
    for (name, what), n in sorted(Mix(sys.argv[1]).for_seconds(float(sys.argv[2])).items()):
        print(f"{n:6} {name}: {what}")


if __name__ == "__main__":
    main()
