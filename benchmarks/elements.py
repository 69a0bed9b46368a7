"""Graphs and operators of other numbers than float32, beside ONNX Runtime.

Position ids, buckets and masks of texts, which are integers and truths; a mixture of
Gaussians in float64, as scikit-learn's models are; and single operators on a million
elements of a type.  Both runtimes have one thread and take turns in one process, each
timed by what its thread takes of the processor; the ratio is ONNX Runtime's time
divided by onnxplug's, the median of all turns.  Prints the ratios, and writes them as
JSON.

    python benchmarks/elements.py [--seconds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import onnxruntime
from machine import describe_machine
from onnx import helper, numpy_helper

import onnxplug

Array: TypeAlias = np.ndarray[Any, Any]
Feeds: TypeAlias = Mapping[str, Array]
Node: TypeAlias = tuple[Any, ...]

_TURN: Final = 2e-3  # seconds, or one run

MASK: Final[Sequence[Node]] = (
    ("Equal", "ids padding", "absent"),
    ("Not", "absent", "present"),
    ("Cast", "present", "ones", {"to": onnx.TensorProto.INT64}),
    ("CumSum", "ones last", "counts"),
    ("Mul", "counts ones", "kept"),
    ("Sub", "kept one", "shifted"),
    ("Less", "shifted zero", "below"),
    ("Where", "below one shifted", "positions"),
    ("Shape", "ids", "shape"),
    ("Gather", "shape last", "length"),
    ("Range", "zero length one", "places"),
    ("Unsqueeze", "places front", "columns"),
    ("Unsqueeze", "places back", "rows"),
    ("LessOrEqual", "columns rows", "causal"),
    ("Unsqueeze", "present middle", "keys"),
    ("And", "keys causal", "mask"),
    ("Where", "mask seen hidden", "scores"),
    ("Not", "mask", "unseen"),
    ("Cast", "unseen", "counted", {"to": onnx.TensorProto.INT64}),
    ("ReduceSum", "counted end", "total", {"keepdims": 0}),
)
"""As decoders begin; *scores* is what attention adds."""

MIXTURE: Final[Sequence[Node]] = (
    ("MatMul", "x weights", "product"),
    ("Sub", "product means", "centred"),
    ("Mul", "centred centred", "squares"),
    ("ReduceSum", "squares middle", "distances", {"keepdims": 0}),
    ("Mul", "distances half", "halves"),
    ("Sub", "offsets halves", "scores"),
    ("ReduceLogSumExp", "scores front", "total"),
    ("Sub", "scores total", "logarithms"),
    ("Exp", "logarithms", "probabilities"),
    ("ArgMax", "scores", "label", {"axis": 0, "keepdims": 0}),
)


def model_of(
    nodes: Sequence[Node],
    feeds: Feeds,
    outputs: Sequence[str],
    constants: Mapping[str, Any],
) -> bytes:
    """Nodes as (operator, inputs, output, attributes), for inputs of any sizes."""
    graph = helper.make_graph(
        [
            helper.make_node(operator, inputs.split(), [output], **dict(*more))
            for operator, inputs, output, *more in nodes
        ],
        "elements",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [f"{name}{axis}" for axis in range(array.ndim)],
            )
            for name, array in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model.SerializeToString()


def masks() -> Iterator[tuple[str, bytes, Feeds]]:
    """Of some batches and lengths."""
    constants = {
        "padding": 0, "one": 1, "zero": 0, "last": 1, "front": [0], "back": [1],
        "middle": [1, 2], "end": [-1], "seen": np.float32(0),
        "hidden": np.float32(-1e9),
    }  # fmt: skip
    for batch, length in ((1, 16), (1, 128), (4, 512)):
        rng = np.random.default_rng(0)
        feeds = {"ids": rng.integers(0, 5, (batch, length))}
        outputs = ["positions", "scores", "total"]
        yield (
            f"masks {batch}×{length}",
            model_of(MASK, feeds, outputs, constants),
            feeds,
        )


def mixtures() -> Iterator[tuple[str, bytes, Feeds]]:
    """Of five components and twenty features, for some rows."""
    rng = np.random.default_rng(0)
    constants = {
        "weights": rng.standard_normal((5, 20, 20)),
        "means": rng.standard_normal((5, 1, 20)),
        "offsets": rng.standard_normal((5, 1)),
        "half": 0.5,
        "front": [0],
        "middle": [2],
    }
    for rows in (1, 10, 1000):
        feeds = {"x": rng.standard_normal((rows, 20))}
        outputs = ["probabilities", "label"]
        model = model_of(MIXTURE, feeds, outputs, constants)
        yield f"mixture, {rows} rows", model, feeds


def operators() -> Iterator[tuple[str, bytes, Feeds]]:
    """On a million elements, products of 256 rows and columns."""
    cases: list[tuple[str, str, dict[str, Any]]] = [
        *((op, t, {}) for op in ("Add", "Mul", "Div", "Max") for t in _NUMBERS),
        *((op, t, {}) for op in ("Less", "Equal", "Where") for t in _NUMBERS),
        *((op, "bool", {}) for op in ("And", "Or", "Not")),
        *((op, "float64", {}) for op in _FUNCTIONS),
        *((op, t, {}) for op in ("ReduceSum", "ReduceMax") for t in _NUMBERS),
        *(("MatMul", t, {}) for t in _NUMBERS),
        *(
            ("Cast", t, {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})
            for t, to in (
                ("uint8", "float32"), ("int64", "float32"), ("float32", "int64"),
                ("bool", "float32"), ("float64", "float32"), ("float32", "uint8"),
            )
        ),
    ]  # fmt: skip
    for operator, dtype, attributes in cases:
        rng = np.random.default_rng(0)
        shape = (256, 256) if operator == "MatMul" else (1000, 1000)
        numbers = rng.uniform(0.1, 9, (2, *shape)).astype(dtype)
        if dtype == "bool":
            numbers = rng.random((2, *shape)) < 0.5
        elif numbers.dtype.kind == "i":
            numbers = np.maximum(numbers, 1)
        feeds = {"a": numbers[0], "b": numbers[1]}
        names = "a b" if operator in _OF_TWO else "a"
        if operator == "Where":
            feeds, names = {"c": rng.random(shape) < 0.5, **feeds}, "c a b"
        elif operator not in _OF_TWO:
            del feeds["b"]
        constants = {"axes": [1]} if operator.startswith("Reduce") else {}
        node = operator, " ".join([names, *constants]), "y", attributes
        model = model_of([node], feeds, ["y"], constants)
        name = f"{operator} {dtype}"
        if "to" in attributes:
            name += f" to {helper.tensor_dtype_to_np_dtype(attributes['to'])}"
        yield name, model, feeds


_NUMBERS: Final = ("int32", "int64", "float64")
_FUNCTIONS: Final = ("Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Pow", "Softmax")
_OF_TWO: Final = frozenset("Add Mul Div Max Less Equal Where And Or Pow MatMul".split())


def measure(model: bytes, feeds: Feeds, seconds: float) -> dict[str, Any]:
    """The ratio, onnxplug's time, and how many nodes are not compiled."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    own_options = onnxplug.SessionOptions()
    own_options.intra_op_num_threads = 1
    own = onnxplug.InferenceSession(model, own_options, ["CPUExecutionProvider"])
    given = dict(feeds)
    expected, found = peer.run(None, given), own.run(None, given)
    for theirs, ours in zip(expected, found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    for session in (peer, own):
        session.run(None, given)
    runs = max(1, round(_TURN / _timed(lambda: own.run(None, given), 3)))
    ratios, times = [], []
    until = time.monotonic() + seconds
    while time.monotonic() < until or not ratios:
        theirs_s = _timed(lambda: peer.run(None, given), runs)
        ours_s = _timed(lambda: own.run(None, given), runs)
        ratios.append(theirs_s / ours_s)
        times.append(ours_s)
    return {
        "ratio": statistics.median(ratios),
        "seconds": statistics.median(times),
        "not_compiled": sum(node.tier != "compiled" for node in own.explain().nodes),
    }


def _timed(run: Callable[[], object], count: int) -> float:
    before = time.thread_time()
    for _ in range(count):
        run()
    return (time.thread_time() - before) / count


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=Path("elements.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": describe_machine(), "cases": {}}
    for cases in (masks, mixtures, operators):
        for name, model, feeds in cases():
            row = measure(model, feeds, arguments.seconds)
            result["cases"][name] = row
            print(
                f"{name:28} {row['ratio']:6.2f}× {row['seconds'] * 1e6:10.1f} µs"
                + (f", {row['not_compiled']} not compiled" * bool(row["not_compiled"]))
            )
    text = json.dumps(result, indent=2, ensure_ascii=False)
    arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
