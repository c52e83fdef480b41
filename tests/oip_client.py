"""The protocol's reference client against a running daemon: oip_client.py URL"""
import base64
import json
import sys
import urllib.request

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

url = sys.argv[1]
client = triton.InferenceServerClient(url.removeprefix("http://"))
x = (numpy.arange(2 * 5 * 16, dtype=numpy.float32) * 37 % 101 / 50 - 1).reshape(2, 5, 16)


def tensor(name, array, datatype, binary=True):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def v1(**options):
    body = {"inputs_embeds": x.tolist(), "encoding_format": "base64", "return_attentions": True,
            "return_intermediates": ["logsumexp"], **options}
    request = urllib.request.Request(url + "/v1/models/demo/attention", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request))
    tensors = {"output": answer["outputs"], "attention": answer["attentions"],
               "lse": answer["intermediates"]["logsumexp"]}
    return {k: numpy.frombuffer(base64.b64decode(t["data"]), "<f4").reshape(t["shape"])
            for k, t in tensors.items()}


def same(result, want, names=("output", "attention", "lse")):
    assert [o["name"] for o in result.get_response()["outputs"]] == list(names)
    for name in names:
        got = result.as_numpy(name)
        assert got.dtype == numpy.float32 and got.shape == want[name].shape, (name, got.shape)
        assert got.tobytes() == want[name].tobytes(), name


assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("demo") and client.is_model_ready("demo", "1")
assert not client.is_model_ready("none")
assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
assert client.get_model_metadata("demo")["inputs"][0]["name"] == "hidden_states"
assert client.get_model_config("demo")["input"][0]["data_type"] == "TYPE_FP32"
assert client.get_model_repository_index()[0]["state"] == "READY"

want = v1()
states = tensor("hidden_states", x, "FP32")
same(client.infer("demo", [states]), want)
same(client.infer("demo", [states], model_version="1"), want)
same(client.infer("demo", [tensor("hidden_states", x, "FP32", binary=False)]), want)
for binary_in in (True, False):
    for binary_out in (True, False):
        for coding in (None, "gzip", "deflate"):
            result = client.infer(
                "demo", [tensor("hidden_states", x, "FP32", binary_in)], request_id="7",
                outputs=[triton.InferRequestedOutput("lse", binary_data=binary_out),
                         triton.InferRequestedOutput("output", binary_data=binary_out)],
                request_compression_algorithm=coding, response_compression_algorithm=coding)
            assert result.get_response()["id"] == "7"
            same(result, want, ("lse", "output"))

same(client.infer("demo", [states, tensor("lengths", numpy.array([5, 3]), "INT64")],
                  parameters={"layer": 1, "is_causal": True, "maps.heads": "[2,0]"}, timeout=10000000, priority=1),
     v1(lengths=[5, 3], layer=1, is_causal=True, return_attentions={"heads": [2, 0]}))
mask = numpy.array([[True, True, False, True, True], [False] * 5])
same(client.infer("demo", [tensor("attend_mask", mask, "BOOL"), states]), v1(attention_mask=mask.tolist()))
half = x.astype(numpy.float16)
result = client.infer("demo", [tensor("hidden_states", half, "FP16")])
assert numpy.abs(result.as_numpy("output") - want["output"]).max() < 0.05

for arguments, status in ((("none", [states]), "404"), (("demo", []), "400"),
                          (("demo", [tensor("hidden_states", x[:, :, :5].copy(), "FP32")]), "422")):
    try:
        client.infer(*arguments)
    except InferenceServerException as error:
        assert error.status() == status and error.message(), (error.status(), error.message())
    else:
        raise AssertionError(arguments)
stats = client.get_inference_statistics("demo")["model_stats"][0]
assert stats["inference_stats"]["success"]["count"] > 10, stats
