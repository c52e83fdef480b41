#!/usr/bin/python3
"""Sentences for a BERT model, and what ref_encoder.py makes of them.

    tests/minilm_vectors.py FOLDER FROM TO OUT.safetensors TEXT...

Takes sentences FROM .. TO - 1 of the texts, round and round; every 20th is twelve of them in one. OUT gets of each
seq.N.ids [T], seq.N.mean [D] and seq.N.maps [L,H,T,T]. The tokens come from the folder's vocab.txt, the longest
first, and are good enough to be real ones.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
import numpy as np

import ref_encoder

MOST = 256


def sentences(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for s in re.split(r"[.!?:;|]\s|\n", f.read()):
                if re.search("[a-z]{3}", s):
                    yield s.strip()


def tokens(vocabulary, text):
    out = [vocabulary["[CLS]"]]
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()):
        pieces, at = [], 0
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if ("##" if at else "") + word[at:e] in vocabulary), None)
            if end is None:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[("##" if at else "") + word[at:end]])
            at = end
        out += pieces
    return np.array(out[:MOST - 1] + [vocabulary["[SEP]"]])


def main():
    folder, first, last, wanted, *paths = sys.argv[1:]
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as f:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(f)}
    config, tensors = ref_encoder.load_folder(folder)
    weights, texts, out = ref_encoder.Weights(tensors), list(sentences(paths)), {}
    for n in range(int(first), int(last)):
        many = 12 if n % 20 == 7 else 1
        ids = tokens(vocabulary, " ".join(texts[(n + i) % len(texts)] for i in range(many)))
        result = ref_encoder.encode(config, weights, {"ids": ids})
        at = f"seq.{n - int(first)}."
        out[at + "ids"] = ids
        for key in ("mean", "maps"):
            out[at + key] = result[key].astype(np.float32)
    ref_encoder.save(wanted, out)


main()
