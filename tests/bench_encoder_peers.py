#!/usr/bin/env python3
"""A whole encoder, attnd beside transformers (eager) and onnxruntime, one after the other in each round.

    tests/bench_encoder_peers.py BENCH FOLDER [--rounds N] [SHAPE...]

BENCH is build/tests/bench_encoder; a shape is a length, BxT, or "mixed" (32 sequences of 8 to 128 tokens, which the
peers have to pad). Each measurement is a process of its own, with the machine's number of threads, and says the median
of its calls. onnxruntime gets what torch exports, then fused for BERT by its own optimizer; with maps the export
returns them all, which the optimizer cannot fuse. Needs torch, transformers and onnxruntime (onnx, sympy), of pip.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = float(os.environ.get("BENCH_MS", "1000")) / 1000
THREADS = len(os.sched_getaffinity(0))


def lengths_of(shape):
    if shape == "mixed":
        return [8 + i * 73 % 121 for i in range(32)]
    count, _, length = shape.rpartition("x")
    return [int(length)] * int(count or 1)


def inputs_of(shape):
    """The ids that BENCH takes, padded, and their mask."""
    import numpy as np
    lengths = lengths_of(shape)
    ids = np.zeros((len(lengths), max(lengths)), np.int64)
    mask = np.zeros_like(ids)
    for i, n in enumerate(lengths):
        ids[i, :n] = 1000 + 37 * np.arange(n) + i
        mask[i, :n] = 1
    return ids, mask


def median_ms(call):
    times, begin = [], time.perf_counter()
    call()
    while time.perf_counter() - begin < SECONDS or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def eager(folder):
    import torch
    from transformers import AutoModel
    torch.set_num_threads(THREADS)
    return torch, AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def pooled(torch, hidden, mask):
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1))


def time_transformers(folder, shape, maps):
    torch, model = eager(folder)
    ids, mask = map(torch.from_numpy, inputs_of(shape))

    def call():
        with torch.inference_mode():
            out = model(input_ids=ids, attention_mask=mask, output_attentions=maps)
            return pooled(torch, out.last_hidden_state, mask), out.attentions
    return median_ms(call)


def export(folder, path, maps):
    torch, model = eager(folder)
    ids, mask = map(torch.from_numpy, inputs_of("2x16"))

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, output_attentions=maps)
            return (pooled(torch, out.last_hidden_state, attention_mask), *(out.attentions or ()))
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask")}
    torch.onnx.export(Whole(), (ids, mask), path, input_names=["input_ids", "attention_mask"], dynamic_axes=axes,
                      opset_version=17, dynamo=False)
    if not maps:
        from onnxruntime.transformers import optimizer
        config = model.config
        fused = optimizer.optimize_model(path, "bert", num_heads=config.num_attention_heads,
                                         hidden_size=config.hidden_size, opt_level=1)
        print(json.dumps(fused.get_fused_operator_statistics()), file=sys.stderr)
        fused.save_model_to_file(path)


def time_onnxruntime(path, shape, _maps):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ids, mask = inputs_of(shape)
    return median_ms(lambda: session.run(None, {"input_ids": ids, "attention_mask": mask}))


def child(*words):
    """What this program says of one measurement, done in a process of its own."""
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--child", *map(str, words)], check=True,
                          stdout=subprocess.PIPE, env={**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def time_attnd(bench, folder, shape, maps):
    done = subprocess.run([bench, folder, *(["maps"] if maps else []), shape], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["ms"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bench")
    p.add_argument("folder")
    p.add_argument("shapes", nargs="*")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_intermixed_args()
    print("| tokens | maps | attnd, ms | transformers eager | ratio | onnxruntime | ratio |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for maps in (False, True):
            onnx = os.path.join(scratch, f"{maps}.onnx")
            child("export", a.folder, onnx, int(maps))
            for shape in a.shapes or ["16", "128", "mixed"]:
                ms = [[], [], []]
                for _ in range(a.rounds):
                    ms[0].append(time_attnd(a.bench, a.folder, shape, maps))
                    ms[1].append(child("transformers", a.folder, shape, int(maps)))
                    ms[2].append(child("onnxruntime", onnx, shape, int(maps)))
                ours, torch, ort = map(statistics.median, ms)
                print(f"| {shape} | {'all' if maps else 'none'} | {ours:.2f} | {torch:.2f} | {torch / ours:.2f} | "
                      f"{ort:.2f} | {ort / ours:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--child"]:
        main()
    else:
        what, model_, to, with_maps = sys.argv[2:]
        if what == "export":
            export(model_, to, with_maps == "1")
            print(0)
        else:
            print({"transformers": time_transformers, "onnxruntime": time_onnxruntime}[what](model_, to, with_maps == "1"))
