"""Models whose kernels take a few microseconds: what a run costs besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feed = Mapping[str, np.ndarray[Any, Any]]

_RANDOM: Final = np.random.default_rng(0)
_ML: Final = "ai.onnx.ml"


class Tiny(NamedTuple):
    """A model, and what it is run on in turn."""

    model: onnx.ModelProto
    feeds: Sequence[Feed]


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(key, *each) for key, each in inputs.items()]
    stored = [numpy_helper.from_array(a, key) for key, a in (weights or {}).items()]
    return helper.make_model(
        helper.make_graph(nodes, "tiny", given, outputs, stored),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(_ML, 3)],
        ir_version=10,
    )


def _output(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _floats(*shape: int) -> np.ndarray[Any, Any]:
    return _RANDOM.standard_normal(shape, np.float32)


def one_add() -> Tiny:
    """One ``Add`` of two numbers."""
    inputs = {name: (TensorProto.FLOAT, [1]) for name in "ab"}
    node = helper.make_node("Add", ["a", "b"], ["c"])
    feeds = [{"a": _floats(1), "b": _floats(1)} for _ in range(64)]
    return Tiny(_model([node], inputs, [_output("c", 1)]), feeds)


def columns() -> Tiny:
    """A classifier of twelve columns: six floats, three integers, three texts."""
    kinds = {
        **{f"f{i}": TensorProto.FLOAT for i in range(6)},
        **{f"i{i}": TensorProto.INT64 for i in range(3)},
        **{f"s{i}": TensorProto.STRING for i in range(3)},
    }
    words = ["red", "green", "blue"]
    numbers = [name for name in kinds if name[0] != "s"]
    casts = [helper.make_node("Cast", [f"i{i}"], [f"c{i}"], to=1) for i in range(3)]
    ready = [name.replace("i", "c") for name in numbers]
    encoded = [
        helper.make_node(
            "OneHotEncoder", [f"s{i}"], [f"h{i}"], domain=_ML, cats_strings=words
        )
        for i in range(3)
    ]
    flat = [helper.make_node("Reshape", [f"h{i}", "rows"], [f"e{i}"]) for i in range(3)]
    features = len(numbers) + 3 * len(words)
    nodes = [
        *casts, *encoded, *flat,
        helper.make_node("Concat", ready, ["all"], axis=1),
        helper.make_node(
            "Scaler", ["all"], ["scaled"], domain=_ML,
            offset=_floats(len(ready)).tolist(), scale=_floats(len(ready)).tolist(),
        ),
        helper.make_node("Concat", ["scaled", "e0", "e1", "e2"], ["x"], axis=1),
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "scores"], domain=_ML,
            coefficients=_floats(3 * features).tolist(), intercepts=[0.1, 0.2, 0.3],
            classlabels_ints=[0, 1, 2], post_transform="SOFTMAX",
        ),
    ]  # fmt: skip
    given: dict[int, Callable[[], np.ndarray[Any, Any]]] = {
        TensorProto.FLOAT: lambda: _floats(1, 1),
        TensorProto.INT64: lambda: _RANDOM.integers(0, 9, (1, 1)),
        TensorProto.STRING: lambda: _RANDOM.choice(words, (1, 1)).astype(object),
    }
    feeds = [{name: given[kind]() for name, kind in kinds.items()} for _ in range(64)]
    outputs = [
        _output("label", "N", kind=TensorProto.INT64),
        _output("scores", "N", 3),
    ]
    inputs = {name: (kind, ["N", 1]) for name, kind in kinds.items()}
    rows = {"rows": np.array([-1, len(words)])}
    return Tiny(_model(nodes, inputs, outputs, rows), feeds)


def maps() -> Tiny:
    """A classifier as scikit-learn's are exported: labels as texts, scores as maps."""
    labels = ["a", "b", "c"]
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "scores"], domain=_ML,
            coefficients=_floats(12).tolist(), intercepts=[0.1, 0.2, 0.3],
            classlabels_strings=labels, post_transform="SOFTMAX",
        ),
        helper.make_node(
            "ZipMap", ["scores"], ["maps"], domain=_ML, classlabels_strings=labels
        ),
    ]  # fmt: skip
    kind = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    outputs = [
        _output("label", "N", kind=TensorProto.STRING),
        helper.make_value_info("maps", helper.make_sequence_type_proto(kind)),
    ]
    feeds = [{"x": _floats(1, 4)} for _ in range(64)]
    inputs = {"x": (TensorProto.FLOAT, ["N", 4])}
    return Tiny(_model(nodes, inputs, outputs), feeds)


def sequence() -> Tiny:
    """Rows as a sequence."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("SplitToSequence", ["y"], ["rows"], axis=0),
    ]
    output = helper.make_tensor_sequence_value_info("rows", TensorProto.FLOAT, None)
    inputs = {"x": (TensorProto.FLOAT, ["N", 8])}
    return Tiny(_model(nodes, inputs, [output]), [{"x": _floats(4, 8)}])


def perceptron(batches: Sequence[int] = (1,)) -> Tiny:
    """Ten numbers through 32 to three scores, for *batches* one after another."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "c"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    weights = {
        "w": _floats(10, 32), "b": _floats(32), "v": _floats(32, 3), "c": _floats(3),
    }  # fmt: skip
    inputs = {"x": (TensorProto.FLOAT, ["N", 10])}
    model = _model(nodes, inputs, [_output("y", "N", 3)], weights)
    return Tiny(model, [{"x": _floats(batch, 10)} for batch in batches])


def changing_batches() -> Tiny:
    """All batches from 1 to 64 in a random order, again and again."""
    return perceptron((_RANDOM.permutation(64) + 1).tolist())


def transposed() -> Tiny:
    """What is fed lies column by column."""
    tiny = perceptron([4])
    return Tiny(tiny.model, [{"x": np.asfortranarray(tiny.feeds[0]["x"])}])


def five_outputs() -> Tiny:
    """Five operators of one input."""
    operators = ["Relu", "Sigmoid", "Tanh", "Exp", "Neg"]
    nodes = [helper.make_node(each, ["x"], [each.lower()]) for each in operators]
    outputs = [_output(each.lower(), "N", 8) for each in operators]
    inputs = {"x": (TensorProto.FLOAT, ["N", 8])}
    return Tiny(_model(nodes, inputs, outputs), [{"x": _floats(1, 8)}])


def on_arrays_between() -> Tiny:
    """A determinant, which is not compiled, between what is."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("Det", ["squares"], ["det"]),
        helper.make_node("Exp", ["det"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, ["N", 2, 2])}
    return Tiny(_model(nodes, inputs, [_output("y", "N")]), [{"x": _floats(1, 2, 2)}])


def convolutions() -> Tiny:
    """Three convolutions of eight channels on a picture of 16 by 16."""
    value, nodes, weights = "x", [], {}
    for layer, (depth, out) in enumerate([(3, 8), (8, 8), (8, 8)]):
        weights |= {f"w{layer}": _floats(out, depth, 3, 3), f"b{layer}": _floats(out)}
        taken = [value, f"w{layer}", f"b{layer}"]
        nodes.append(helper.make_node("Conv", taken, [f"c{layer}"], pads=[1] * 4))
        value = f"r{layer}"
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [value]))
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"]))
    inputs = {"x": (TensorProto.FLOAT, [1, 3, 16, 16])}
    model = _model(nodes, inputs, [_output("y", 1, 8, 1, 1)], weights)
    return Tiny(model, [{"x": _floats(1, 3, 16, 16)}])


def one_step(width: int = 32) -> Tiny:
    """A step of a ``GRU``."""
    weights = {
        "w": _floats(1, 3 * width, 16), "r": _floats(1, 3 * width, width),
        "b": _floats(1, 6 * width),
    }  # fmt: skip
    taken = ["x", "w", "r", "b", "", "state"]
    node = helper.make_node("GRU", taken, ["y", "next"], hidden_size=width)
    inputs = {
        "x": (TensorProto.FLOAT, [1, 1, 16]),
        "state": (TensorProto.FLOAT, [1, 1, width]),
    }
    outputs = [_output("y", 1, 1, 1, width), _output("next", 1, 1, width)]
    feeds = [{"x": _floats(1, 1, 16), "state": _floats(1, 1, width)}]
    return Tiny(_model([node], inputs, outputs, weights), feeds)


CASES: Final[Mapping[str, Callable[[], Tiny]]] = {
    "one Add": one_add,
    "twelve columns of numbers and texts": columns,
    "labels and maps": maps,
    "a sequence": sequence,
    "a perceptron": perceptron,
    "64 batches in turn": changing_batches,
    "fed column by column": transposed,
    "five outputs": five_outputs,
    "arrays between": on_arrays_between,
    "three convolutions": convolutions,
    "a step of a GRU": one_step,
}
