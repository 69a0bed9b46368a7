"""Softmax and norms between codes, to the bit as what is made floats in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .differential import session
from .lowered import commands

RNG = np.random.default_rng(77)
NOTE = "computes rows of codes, to the bit as the model's float32"


def model(
    operator: str,
    shape: Sequence[int],
    *,
    codes: Any = np.uint8,
    results: Any = np.uint8,
    zeros: bool = True,
    biased: bool = True,
    also: bool = False,
    one: bool = False,
    opset: int = 23,
    **form: Any,
) -> onnx.ModelProto:
    """Codes to codes; *also* gives the floats that are quantised; weights are *one*
    number for all columns."""
    columns = 1 if one else shape[-1]
    normal = RNG.standard_normal
    constants = {
        "s": np.array(0.03, np.float32),
        "t": np.array(1 / 255 if operator == "Softmax" else 0.03, np.float32),
        "g": (1 + normal(columns) / 9).astype(np.float32),
        "b": (normal(columns) / 9).astype(np.float32),
    }
    middle = [], []
    if zeros:
        constants |= {"z": np.array(3, codes), "w": np.array(7, results)}
        middle = ["z"], ["w"]
    more = []
    if operator != "Softmax":
        more = ["g", "b"] if biased and operator == "LayerNormalization" else ["g"]
    kind = helper.np_dtype_to_tensor_dtype
    target = {} if zeros else {"output_dtype": kind(np.dtype(results))}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", *middle[0]], ["d"]),
        helper.make_node(operator, ["d", *more], ["n"], **form),
        helper.make_node("QuantizeLinear", ["n", "t", *middle[1]], ["y"], **target),
    ]
    used = {name for node in nodes for name in node.input}
    element = kind(np.dtype(codes))
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", element, [None] * len(shape))],
        [helper.make_empty_tensor_value_info(n) for n in ["y", *["n"] * also]],
        [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


CASES: dict[str, dict[str, Any]] = {
    "Softmax": {"shape": (3, 40, 128)},
    "Softmax of odd rows": {"shape": (37, 77), "codes": np.int8},
    "Softmax of short rows": {"shape": (2, 9, 5, 3), "results": np.int8},
    "Softmax of long rows": {"shape": (5, 1111), "zeros": False},
    "Softmax of one row": {"shape": (1, 300), "axis": 1, "opset": 17},
    "LayerNormalization": {"shape": (2, 19, 96)},
    "LayerNormalization of odd rows": {"shape": (33, 101), "codes": np.int8},
    "LayerNormalization without a bias": {"shape": (4, 5000), "biased": False},
    "LayerNormalization by one number": {"shape": (5, 33), "one": True},
    "RMSNormalization": {"shape": (3, 7, 64), "results": np.int8},
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_codes_are_those_of_floats(name: str, threads: int) -> None:
    form = dict(CASES[name])
    shape, operator = form.pop("shape"), name.split()[0]
    state = RNG.bit_generator.state
    own = session(model(operator, shape, **form), compiled=True, threads=threads)
    RNG.bit_generator.state = state
    apart = model(operator, shape, also=True, **form)
    other = session(apart, compiled=True, threads=threads)
    limits = np.iinfo(form.get("codes", np.uint8))
    for sizes in (shape, [1] * (len(shape) - 1) + [shape[-1]], [0, *shape[1:]]):
        x = RNG.integers(limits.min, limits.max + 1, sizes).astype(limits.dtype)
        (found,) = own.run(None, {"x": x})
        wanted, _ = other.run(None, {"x": x})
        np.testing.assert_array_equal(found, wanted)
    assert {node.note for node in own.explain().nodes if node.note} >= {NOTE}
    assert NOTE not in {node.note for node in other.explain().nodes}


def test_rows_that_take_a_chunk_too_long_are_computed_step_by_step() -> None:
    x = RNG.integers(0, 256, (1, 11_000_000)).astype(np.uint8)
    labels = commands(model("Softmax", x.shape), {"x": x}, 1)
    assert len(labels) > 2


def test_rows_along_another_axis_are_floats() -> None:
    x = RNG.integers(0, 256, (4, 5, 6)).astype(np.uint8)
    labels = commands(model("Softmax", x.shape, axis=1), {"x": x}, 1)
    assert not any("of codes" in label for label in labels)


def test_rows_are_written_where_they_are_joined() -> None:
    """Channels of several images, beside convolutions."""
    make = helper.make_node
    weights = (RNG.standard_normal((4, 4, 1, 1)) / 3).astype(np.float32)
    nodes, joined = [], []
    for n in "ab":
        nodes += [
            make("Conv", [n, "k"], [f"c{n}"]),
            make("QuantizeLinear", [f"c{n}", "s", "z"], [f"q{n}"]),
            make("DequantizeLinear", [f"q{n}", "s", "z"], [f"d{n}"]),
            make("Softmax", [f"d{n}"], [f"m{n}"]),
            make("QuantizeLinear", [f"m{n}", "t", "z"], [f"p{n}"]),
        ]
        joined.append(f"p{n}")
    nodes += [
        make("Concat", joined, ["j"], axis=1),
        make("DequantizeLinear", ["j", "t", "z"], ["f"]),
        make("Conv", ["f", "l"], ["g"]),
        make("QuantizeLinear", ["g", "s", "z"], ["y"]),
    ]
    constants = {
        "k": weights, "l": np.concatenate([weights, -weights], 1),
        "s": np.array(0.02, np.float32), "t": np.array(1 / 255, np.float32),
        "z": np.array(128, np.uint8),
    }  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "joined",
        [helper.make_tensor_value_info(n, kind, [3, 4, 5, 6]) for n in "ab"],
        [helper.make_empty_tensor_value_info(n) for n in ("y", "j")],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    feeds = {n: RNG.standard_normal((3, 4, 5, 6)).astype(np.float32) for n in "ab"}
    own = session(whole, compiled=True)
    found = own.run(None, feeds)
    assert NOTE in {node.note for node in own.explain().nodes}
    for one, other in zip(
        found, ReferenceEvaluator(whole).run(None, feeds), strict=True
    ):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
