"""client_requests.py [URL]: sends six tokens to the demo model, prints which token each one takes most from.

requests and numpy. urllib3, below requests, waits for Retry-After itself.
"""
import base64
import sys

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry


def tensor(x):
    data = base64.b64encode(x.astype("<f4").tobytes()).decode()
    return {"shape": x.shape, "dtype": "float32", "data": data}


def array(t):
    return np.frombuffer(base64.b64decode(t["data"]), "<f4").reshape(t["shape"])


def main(url="http://127.0.0.1:8080"):
    session = requests.Session()
    session.mount(url, HTTPAdapter(max_retries=Retry(total=5, status_forcelist=[503], allowed_methods=None)))
    words = "the cat sat on the mat".split()
    x = np.array([
        [1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
        [1, 1, 1, 0, 1, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1],
        [1, 2, 4, 0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1],
        [1, 3, 9, 0, 0, 0, 1, 0, 1, -1, 1, 1, -1, -1, -1, -1],
        [1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
        [1, 5, 25, 0, 1, 0, 0, 0, -1, -1, 1, -1, -1, -1, -1, -1]])
    answer = session.post(f"{url}/v1/models/demo/attention", timeout=60, json={
        "inputs_embeds": tensor(x), "return_attentions": {"heads": [0]}, "encoding_format": "base64"})
    if not answer.ok:
        sys.exit(f"{answer.status_code}: {answer.text}")
    outputs, attentions = array(answer.json()["outputs"]), array(answer.json()["attentions"])
    for i, j in enumerate(attentions[0].argmax(axis=1)):
        print(f"{words[i]} looks at {words[j]}: {attentions[0, i, j]:.4f}")
    print(f"outputs [{outputs.shape[0]},{outputs.shape[1]}], sum {outputs.sum(dtype=float):.4f}")


main(*sys.argv[1:])
