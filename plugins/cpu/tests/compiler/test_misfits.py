"""Nodes given inputs of any sizes: the compiled tier refuses what the array tier does.

The host's rules say what shapes outputs have, and mostly not whether inputs go
together; that the compiled tier looks at by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from .differential import difference, session

MOST_TRIALS = 60

NODES: dict[str, tuple[str, ...]] = {
    # the operator and its attributes, and its inputs: data, or constants by what is
    # drawn for them
    "Add()": ("x", "x"),
    "Where()": ("bool", "x", "x"),
    "PRelu()": ("x", "x"),
    "Clip()": ("x", "x", "x"),
    "Max()": ("x", "x", "x"),
    "MatMul()": ("x", "x"),
    "Gemm()": ("x", "x", "x"),
    "Gemm(transA=1, transB=1)": ("x", "x", "x"),
    "Concat(axis=0)": ("x", "x"),
    "Concat(axis=1)": ("x", "x", "x"),
    "Concat(axis=-1)": ("x", "x"),
    "Reshape()": ("x", "sizes"),
    "Reshape(allowzero=1)": ("x", "sizes"),
    "Flatten(axis=1)": ("x",),
    "Squeeze()": ("x", "axes"),
    "Unsqueeze()": ("x", "axes"),
    "Transpose(perm=[1, 0])": ("x",),
    "Expand()": ("x", "sizes"),
    "Slice()": ("x", "places", "places"),
    "Slice(_)": ("x", "places", "places", "axes", "steps"),
    "Split(num_outputs=2)": ("x",),
    "Split()": ("x", "sizes"),
    "Tile()": ("x", "sizes"),
    "Pad()": ("x", "pads"),
    'Pad(mode="edge")': ("x", "pads"),
    'Pad(mode="reflect")': ("x", "pads"),
    'Pad(mode="wrap")': ("x", "pads"),
    'Resize(mode="linear")': ("x", "", "scales"),
    "Resize()": ("x", "", "", "sizes"),
    'Resize(keep_aspect_ratio_policy="not_larger")': ("x", "", "", "sizes"),
    "GridSample()": ("x4", "x4"),
    'GridSample(mode="cubic", padding_mode="reflection")': ("x", "x"),
    "RoiAlign()": ("x4", "regions", "images"),
    "BatchNormalization()": ("x", "channels", "channels", "channels", "channels"),
    "InstanceNormalization()": ("x", "channels", "channels"),
    "GroupNormalization(num_groups=2)": ("x", "channels", "channels"),
    "LRN(size=3)": ("x",),
    "LpNormalization(axis=1)": ("x",),
    "Trilu()": ("x",),
    "CumSum()": ("x", "axis"),
    "Gather(axis=0)": ("x", "places"),
    "Gather(axis=1)": ("x", "places"),
    "GatherElements(axis=1)": ("x", "indices"),
    "GatherND()": ("x", "indices"),
    "GatherND(batch_dims=1)": ("x", "indices"),
    "ScatterElements(axis=0)": ("x", "indices", "x"),
    "ScatterND()": ("x", "indices", "updates"),
    "ReduceSum()": ("x", "axes"),
    "ReduceMax(keepdims=0)": ("x", "axes"),
    "Softmax(axis=1)": ("x",),
    "LayerNormalization(axis=-1)": ("x", "x", "x"),
    "RMSNormalization(axis=1)": ("x", "x"),
    "Attention()": ("x4", "x4", "x4"),
}

CONSTANTS = {
    "sizes": lambda draw: [draw.randrange(-1, 4) for _ in range(draw.randrange(4))],
    "places": lambda draw: [draw.randrange(-3, 4) for _ in range(draw.randrange(1, 3))],
    "steps": lambda draw: [draw.choice([-2, -1, 1, 2]) for _ in range(2)],
    "axes": lambda draw: draw.sample([-3, -2, -1, 0, 1, 2], draw.randrange(1, 3)),
    "axis": lambda draw: draw.randrange(-2, 3),
    "scales": lambda draw: [
        draw.choice([0.5, 1.0, 1.0, 1.5, 2.0, -1.0, 0.0])
        for _ in range(draw.choice([1, 2, 2, 3]))
    ],
    "pads": lambda draw: [draw.randrange(-1, 3) for _ in range(draw.choice([2, 4, 4]))],
}


_FITTING: dict[str, Callable[[Any, random.Random], tuple[int, ...]]] = {
    "channels": lambda before, draw: before[0][1:2],
    "regions": lambda before, draw: (draw.randrange(3), 4),
    "images": lambda before, draw: before[1][:1],
}
"""Shapes that mostly fit."""


def _drawn(kind: str, shape: tuple[int, ...], draw: random.Random) -> np.ndarray:
    if kind in ("indices", "images"):
        return np.array(
            [draw.randrange(-1, 2) for _ in range(int(np.prod(shape)))], np.int64
        ).reshape(shape)
    count = int(np.prod(shape))
    values = np.arange(count, dtype=np.float32).reshape(shape) / 4
    return values > 0.3 if kind == "bool" else values


def _shape(
    kind: str, before: list[tuple[int, ...]], rank: int, draw: random.Random
) -> tuple[int, ...]:
    """A shape that may fit to those of the inputs before."""
    if kind == "updates" and before[1] and draw.random() < 0.7:
        data, indices = before
        return (*indices[:-1], *data[indices[-1] :])
    if kind in _FITTING and draw.random() < 0.9:
        return _FITTING[kind](before, draw)
    this = 4 if kind == "x4" else draw.choice([rank, rank, rank, rank, 0, 1, 3])
    shape = [draw.choice([0, 1, 2, 2, 2, 3]) for _ in range(this)]
    if before and before[0] and kind != "indices" and draw.random() < 0.6:
        shape = list(before[0])
        shape[draw.randrange(len(shape))] = draw.choice([0, 1, 2, 2, 3])
    return tuple(shape)


def _trial(text: str, kinds: tuple[str, ...], draw: random.Random) -> tuple[Any, Any]:
    """A model of one node of inputs of any rank and size, and a feed."""
    operator, _, rest = text.partition("(")
    attributes = {} if rest == "_)" else eval(f"dict({rest}")
    feeds: dict[str, np.ndarray] = {}
    inputs, constants = [], []
    rank = draw.choice([1, 2, 2, 2, 3])
    for number, kind in enumerate(kinds):
        name = f"i{number}"
        if not kind:
            continue
        if kind in CONSTANTS:
            dtype = np.float32 if kind == "scales" else np.int64
            array = np.array(CONSTANTS[kind](draw), dtype)
            constants.append(numpy_helper.from_array(array, name))
            continue
        before = [array.shape for array in feeds.values()]
        array = feeds[name] = _drawn(kind, _shape(kind, before, rank, draw), draw)
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, dtype, None))
    count = 2 if operator == "Split" else 1
    outputs = [f"y{number}" for number in range(count)]
    node = helper.make_node(
        operator,
        [f"i{number}" if kind else "" for number, kind in enumerate(kinds)],
        outputs,
        **attributes,
    )
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs
    ]
    graph = helper.make_graph([node], "g", inputs, infos, constants)
    opset = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10), feeds


def _outcome(model: onnx.ModelProto, feeds: Any, *, compiled: bool) -> Any:
    try:
        with np.errstate(all="ignore"):
            return session(model, compiled=compiled).run(None, feeds)
    except Exception as error:  # noqa: BLE001  that it says so is what is wanted
        return error


@pytest.mark.parametrize("text", NODES)
@pytest.mark.parametrize(
    "trials", [6, pytest.param(MOST_TRIALS, marks=pytest.mark.exhaustive)]
)
def test_what_does_not_fit_is_refused_alike(text: str, trials: int) -> None:
    draw = random.Random(text)
    right = 0
    for number in range(MOST_TRIALS):
        if number >= trials and right:  # something fits
            break
        model, feeds = _trial(text, NODES[text], draw)
        expected = _outcome(model, feeds, compiled=False)
        found = _outcome(model, feeds, compiled=True)
        told = onnx.printer.to_text(model.graph), {k: v.shape for k, v in feeds.items()}
        if isinstance(expected, Exception):
            # a kernel finds indices that are wrong by itself, and tells less of it; it
            # does not look at those of rows without elements
            if "IndexError" in str(expected) and not isinstance(found, Exception):
                assert not any(array.size for array in found), told
            else:
                assert type(found) is type(expected), (told, found)
                if "IndexError" not in str(expected):
                    assert str(found) == str(expected), told
            continue
        assert not isinstance(found, Exception), (told, found)
        right += 1
        for one, other in zip(expected, found, strict=True):
            assert difference(one, other, 1e-5) is None, told
    assert right
