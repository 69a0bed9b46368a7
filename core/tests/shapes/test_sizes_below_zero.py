"""Sizes that might be less than 0 by what is known: they are as when a model runs.

Exporters subtract before they divide, and no name of a size is known to be large.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx
import pytest

from onnxplug.authoring.sizes import Size
from onnxplug.ep import TensorType
from onnxplug.graph.load import load_model
from onnxplug.prepare import infer_types


def size_of_y(nodes: str, inputs: str, constants: str, axis: int = 0) -> str:
    """The size that is inferred of y's *axis*."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (y)'
        f" <{constants}> {{ {nodes} }}"
    )
    graph = load_model(proto).graph
    infer_types(graph)
    type = graph.types["y"]
    assert isinstance(type, TensorType) and type.shape is not None
    return str(type.shape[axis])


def check(found: str, expected: Callable[[int], int], least: int = 0) -> None:
    size = Size.parse(found)
    assert size is not None and "unk__" not in found, found
    for n in range(least, 30):
        assert size.evaluate({"N": n}) == expected(n), (found, n)


@pytest.mark.parametrize("divisor", [1, 2, 3, 4])
@pytest.mark.parametrize("less", range(7))
def test_a_quotient_is_rounded_towards_0(less: int, divisor: int) -> None:
    found = size_of_y(
        "s = Shape (x) l = Squeeze (s) m = Add (l, less) q = Div (m, by) "
        "t = Add (q, ten) y = Range (zero, t, one)",
        "float[N] x",
        f"int64 less = {{{-less}}}, int64 by = {{{divisor}}}, int64 zero = {{0}}, "
        "int64 one = {1}, int64 ten = {10}",
    )
    check(found, lambda n: math.trunc((n - less) / divisor) + 10)


@pytest.mark.parametrize(
    "made", ["y = Expand (e, m)", "y = ConstantOfShape (m)", "y = Range (zero, l, one)"]
)
def test_a_count_that_is_not_less_than_0_where_the_node_runs(made: str) -> None:
    found = size_of_y(
        f"s = Shape (x) m = Add (s, less) l = Squeeze (m) {made}",
        "float[N] x",
        "int64[1] less = {-3}, int64 zero = {0}, int64 one = {1}, float[1] e = {1}",
    )
    check(found, lambda n: max(0, n - 3), least=3 if "Range" not in made else 0)


def test_a_target_beside_another_that_is_inferred() -> None:
    nodes = (
        "c = Slice (x, first, last, first) s = Shape (c) m = Slice (s, first, last) "
        "t = Concat <axis = 0> (m, rest) y = Reshape (c, t)"
    )
    constants = "int64[1] first = {0}, int64[1] last = {1}, int64[2] rest = {-1, 2}"
    found = size_of_y(nodes, "float[N, 6] x", constants, 1)
    assert found == "3"
    nodes = (
        "s = Shape <start = 0, end = 1> (x) m = Add (s, less) "
        "t = Concat <axis = 0> (m, rest) y = Reshape (z, t)"
    )
    constants = "int64[1] less = {-3}, int64[2] rest = {-1, 2}"
    found = size_of_y(nodes, "float[N] x, float[M] z", constants)
    check(found, lambda n: n - 3, least=3)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "before", "after"),
    [
        (3, 2, 1, 0, 0),
        (2, 3, 1, 0, 0),
        (3, 3, 1, 1, 1),
        (2, 2, 2, 0, 1),
        (1, 4, 1, 0, 0),
    ],
)
def test_pools_that_round_up(
    kernel: int, stride: int, dilation: int, before: int, after: int
) -> None:
    found = size_of_y(
        f"y = MaxPool <ceil_mode = 1, kernel_shape = [{kernel}], strides = [{stride}], "
        f"dilations = [{dilation}], pads = [{before}, {after}]> (x)",
        "float[1, 1, N] x",
        "float unused = {0}",
        axis=2,
    )
    span = (kernel - 1) * dilation + 1

    def places(n: int) -> int:
        """As ONNX's documentation has it."""
        places = math.ceil((n + before + after - span) / stride) + 1
        return places - 1 if (places - 1) * stride >= n + before else places

    check(found, places, least=span)


def test_valid_pools_round_nothing_up() -> None:
    """ONNX's text has ceil((n - span + 1) / stride) for ``VALID``."""
    found = size_of_y(
        'y = MaxPool <ceil_mode = 1, auto_pad = "VALID", kernel_shape = [3], '
        "strides = [3]> (x)",
        "float[1, 1, N] x",
        "float unused = {0}",
        axis=2,
    )
    check(found, lambda n: math.ceil((n - 3 + 1) / 3), least=3)
