"""Rectangles, byte counts and integers without a point, which a JSON Schema cannot demand: makes them of
what was generated.

Only what has the right types is touched, so that requests meant to be wrong stay wrong."""
import base64
import math

import schemathesis

SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "bool": 1}
LISTS = {"query", "key", "value", "past_key", "past_value", "inputs_embeds", "encoder_hidden_states",
         "attention_mask", "attention_bias", "position_ids", "lengths", "causal_offset"}


def integers(value):
    """2.0 is an integer to JSON Schema, and none to the daemon."""
    if isinstance(value, dict):
        return {k: integers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [integers(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def is_size(n):
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0


def tensor(value):
    shape, dtype = value.get("shape"), value.get("dtype")
    if set(value) == {"shape", "dtype", "data"} and isinstance(shape, list) and all(map(is_size, shape)) \
            and len(shape) <= 8 and isinstance(dtype, str) and dtype in SIZES and isinstance(value["data"], str):
        shape = [n % 4 for n in shape]
        value = {"shape": shape, "dtype": dtype,
                 "data": base64.b64encode(bytes(math.prod(shape) * SIZES[dtype])).decode()}
    return value


def dimensions(value):
    """The sizes that all lists of a level have at least; None: a list beside something else."""
    if not isinstance(value, list):
        return []
    inner = [dimensions(v) for v in value]
    if None in inner:
        return None
    depth = min(map(len, inner), default=0)
    if any(len(d) > depth for d in inner) and not any(len(d) == depth and 0 in d for d in inner):
        return None
    return [len(value)] + [min(sizes) for sizes in zip(*inner)]


def cut(value, sizes):
    return [cut(v, sizes[1:]) for v in value[:sizes[0]]] if sizes else value


def whole(value):
    if isinstance(value, dict):
        return tensor(value)
    sizes = dimensions(value)
    return value if sizes is None else cut(value, sizes)


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict):
        case.body = {k: whole(v) if k in LISTS else v for k, v in integers(case.body).items()}
