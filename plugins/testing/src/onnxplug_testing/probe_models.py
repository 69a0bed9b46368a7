"""Small models by which families of operators are probed on a device.

An EP keeps as files those that it supplies as probes, as importing onnx takes longer
than reading them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from onnxplug_testing import gpu_probe_models

X: Final = "float[2, 6, 9, 7] x"
"""The input of all of them; sizes are no multiple of anything's tile."""

WAVE: Final = np.sin(np.arange(504) * 1.3)
"""Weights in float64, for models of other types than float32."""

MODELS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "product": (
        "p = MatMul (x, m)\n r = Reshape (p, rows)\n y = Gemm <transB = 1> (r, g, b)",
        "float[36, 3] y",
        {"m": (7, 5), "rows": [36, 15], "g": (3, 15), "b": (3,)},
    ),
    "convolution": (
        "c = Conv <pads = [1, 0, 2, 1], strides = [2, 1], group = 2> (x, f, b)\n"
        "y = ConvTranspose <strides = [2, 2], output_padding = [1, 0]> (c, t)",
        "float[2, 3, h, w] y",
        {"f": (4, 3, 3, 3), "b": (4,), "t": (4, 3, 2, 3)},
    ),
    "pooling": (
        "a = MaxPool <kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1> (x)\n"
        "y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 0, 0]> (a)",
        "float[2, 6, h, w] y",
        {},
    ),
    "normalization": (
        "a = LayerNormalization (x, s, o)\n"
        "c = BatchNormalization (a, k, l, l, q)\n"
        "y = InstanceNormalization (c, k, l)",
        "float[2, 6, 9, 7] y",
        {"s": (7,), "o": (7,), "k": (6,), "l": (6,), "q": "positive"},
    ),
    "arithmetic": (
        "a = Mul (x, w)\n c = Add (a, x)\n d = Div (c, q)\n e = Erf (d)\n f = Exp (e)\n"
        "y = Sqrt (f)",
        "float[2, 6, 9, 7] y",
        {"w": (6, 1, 7), "q": "positive column"},
    ),
    "activation": (
        "a = LeakyRelu (x)\n c = Sigmoid (a)\n d = Elu (x)\n e = Add (c, d)\n"
        "y = Softmax <axis = 2> (e)",
        "float[2, 6, 9, 7] y",
        {},
    ),
    "reduction": (
        "a = ReduceMean (x, last)\n c = ReduceMax (x, last)\n d = Add (a, c)\n"
        "y = ReduceSum <keepdims = 0> (d, first)",
        "float[2, 9, 1] y",
        {"last": [-1], "first": [1]},
    ),
    "movement": (
        "a = Transpose <perm = [0, 2, 3, 1]> (x)\n"
        "c = Slice (a, low, high, axes, steps)\n d = Pad (c, pads)\n"
        "y = Concat <axis = 1> (d, d)",
        "float[2, h, w, 6] y",
        {"low": [-1], "high": [-9], "axes": [1], "steps": [-2],
         "pads": [0, 1, 0, 0, 0, 0, 2, 0]},
    ),
    "indexing": (
        "a = Gather <axis = 2> (x, i)\n"
        "y = ScatterND <reduction = \"add\"> (a, n, u)",
        "float[2, 6, 3, 7] y",
        {"i": [-1, 0, 4], "n": [[1, 5], [0, 0], [1, 5]], "u": (3, 3, 7)},
    ),
    "attention": (
        "t = Transpose <perm = [0, 1, 3, 2]> (x)\n s = MatMul (x, t)\n"
        "m = Add (s, w)\n p = Softmax <axis = -1> (m)\n y = MatMul (p, x)",
        "float[2, 6, 9, 7] y",
        {"w": (9, 9)},
    ),
    "recurrent": (
        "r = Reshape (x, steps)\n"
        "y, h, c = LSTM <hidden_size = 5, direction = \"bidirectional\"> (r, w, k, b)",
        "float[12, 2, 9, 5] y",
        {"steps": [12, 9, 7], "w": (2, 20, 7), "k": (2, 20, 5), "b": (2, 40)},
    ),
    "resize": (
        "y = Resize <mode = \"linear\"> (x, none, none, sizes)",
        "float[2, 6, 13, 5] y",
        {"sizes": [2, 6, 13, 5]},
    ),
    "cast": (
        "a = Mul (x, w)\n c = Add (a, a)\n d = Add (c, c)\n"
        "h = Cast <to = 10> (d)\n y = Cast <to = 1> (h)\n"
        "i = Cast <to = 7> (d)\n j = Cast <to = 3> (i)\n z = Cast <to = 1> (j)",
        "float[2, 6, 9, 7] y, float[2, 6, 9, 7] z",
        {"w": (6, 1, 7)},
    ),
    # scales are powers of two, so that no quotient is near a tie by rounding
    "quantization": (
        "q = QuantizeLinear <axis = 1> (x, s, o)\n"
        "y = DequantizeLinear <axis = 1> (q, s, o)",
        "float[2, 6, 9, 7] y",
        {"s": np.array([2, 4, 8, 16, 32, 64], np.float32) ** -1,
         "o": np.arange(125, 131, dtype=np.uint8)},
    ),
    "quantized_product": (
        "q = QuantizeLinear (x, s, o)\n m = QLinearMatMul (q, s, o, w, s, v, t, o)\n"
        "c = QLinearConv (q, s, o, f, s, v, t, o)\n"
        "y = DequantizeLinear (m, t, o)\n z = DequantizeLinear (c, t, o)",
        "float[2, 6, 9, 5] y, float[2, 4, 7, 6] z",
        {"s": np.float32(0.0625), "t": np.float32(0.5), "o": np.uint8(131),
         "v": np.int8(3), "w": np.arange(-17, 18, dtype=np.int8).reshape(7, 5),
         "f": (np.arange(4 * 6 * 3 * 2) % 23 - 9).astype(np.int8).reshape(4, 6, 3, 2)},
    ),
    # of what engines have seldom, so that it is computed by kernels over arrays
    "kernels": (
        "c = CenterCropPad <axes = [2, 3]> (x, size)\n r = Reshape (c, steps)\n"
        "y, h, s = LSTM <hidden_size = 5, clip = 0.5> (r, w, k, b)\n z = Unique (y)",
        "float[12, 1, 5, 5] y, float[n] z",
        {"size": [5, 7], "steps": [12, 5, 7], "w": (1, 20, 7), "k": (1, 20, 5),
         "b": (1, 40)},
    ),
    # of sizes that have tiles of other shapes, and rows that many lanes share
    "tiles": (
        "r = Reshape (x, wide)\n y = MatMul (r, m)\n s = Reshape (x, small)\n"
        "z = MatMul (s, n)",
        "float[84, 40] y, float[18, 20] z",
        {"wide": [84, 9], "m": (9, 40), "small": [18, 42], "n": (42, 20)},
    ),
    "long_rows": (
        "r = Reshape (x, long)\n a = Softmax (r)\n c = LayerNormalization (r, s, o)\n"
        "d = Add (a, c)\n m = ReduceMax (d, last)\n t = ReduceSum (d, last)\n"
        "e = Mul (d, t)\n y = Sub (e, m)",
        "float[4, 189] y",
        {"long": [4, 189], "s": (189,), "o": (189,), "last": [-1]},
    ),
    # elements that share a word, and those of two words
    "bytes": (
        "g = Greater (x, w)\n t = Transpose <perm = [0, 2, 3, 1]> (g)\n"
        "y = Cast <to = 1> (t)",
        "float[2, 9, 7, 6] y",
        {"w": (6, 1, 7)},
    ),
    "half": (
        "a = Reshape (x, rows)\n h = Cast <to = 10> (a)\n p = MatMul (h, m)\n"
        "y = Cast <to = 1> (p)",
        "float[36, 24] y",
        {"rows": [36, 21], "m": WAVE.reshape(21, 24).astype(np.float16)},
    ),
    "double": (
        "d = Cast <to = 11> (x)\n p = MatMul (d, m)\n e = Exp (p)\n"
        "s = Softmax <axis = 2> (e)\n r = ReduceSum (s, last)\n y = Div (e, r)",
        "double[2, 6, 9, 5] y",
        {"m": WAVE[:35].reshape(7, 5), "last": [-1]},
    ),
    "int64": (
        "a = Mul (x, w)\n c = Mul (a, e)\n i = Cast <to = 6> (c)\n"
        "j = Cast <to = 7> (i)\n k = Mul (j, j)\n l = Add (k, n)\n"
        "y = Cast <to = 1> (l)",
        "float[2, 6, 9, 7] y",
        {"w": (6, 1, 7), "e": np.float32(4096), "n": np.int64(-(2**33) - 5)},
    ),
    "sorting": (
        "y, i = TopK <axis = 1> (x, k)",
        "float[2, 4, 9, 7] y, int64[2, 4, 9, 7] i",
        {"k": [4]},
    ),
}  # fmt: skip


_DOMAINS: Final = {"com.microsoft": 1, "ai.onnx.ml": 3}


def write(name: str) -> bytes:
    """The model of a family."""
    body, outputs, constants = (MODELS | gpu_probe_models.MODELS)[name]
    body = body.replace("none, none", ", ")
    versions = {"": gpu_probe_models.OPSETS.get(name, 18)}
    versions |= {domain: n for domain, n in _DOMAINS.items() if f"{domain}." in body}
    needed = ", ".join(f'"{domain}": {n}' for domain, n in versions.items())
    model = onnx.parser.parse_model(
        f"<ir_version: {8 if versions[''] == 18 else 10}, opset_import: [{needed}]> "
        f"{name} ({X}) => ({outputs}) {{ {body} }}"
    )
    draw = np.random.default_rng(0)
    for key, content in constants.items():
        array: np.ndarray[Any, Any]
        if isinstance(content, np.ndarray | np.generic):
            array = np.asarray(content)
        elif isinstance(content, list):
            array = np.array(content, np.int64)
        elif isinstance(content, tuple):
            array = draw.normal(size=content).astype(np.float32)
        else:
            shape = (9, 1) if "column" in content else (6,)
            array = draw.uniform(0.5, 2, size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
    onnx.checker.check_model(model, full_check=True)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def write_all(families: Iterable[str], folder: Path) -> None:
    """Write the models of *families* to *folder*, which has no others then."""
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.onnx"):
        file.unlink()
    for family in families:
        (folder / f"{family}.onnx").write_bytes(write(family))
