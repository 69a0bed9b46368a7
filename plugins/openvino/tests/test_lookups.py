"""Indices that are out of range are errors, though OpenVINO tells of none.

Without the guard it gives zeros for some of these, and ends the process for others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import errors

from .conftest import EP

X: Final = np.arange(12, dtype=np.float32).reshape(4, 3)
Z: Final = -np.ones((2, 3), np.float32)

LOOKUPS: Final = {
    "Gather (x, i)": ((2,), 4),
    "Gather <axis = -1> (x, i)": ((2,), 3),
    "Gather <axis = 1> (x, i)": ((), 3),
    "GatherElements <axis = 0> (x, i)": ((2, 3), 4),
    "GatherElements <axis = 1> (x, i)": ((4, 2), 3),
    "GatherND (x, i)": ((2, 1), 4),
    "ScatterElements <axis = 0> (x, i, z)": ((2, 3), 4),
    "ScatterND (x, i, z)": ((2, 1), 4),
}
"""Nodes, with the shape of indices and how many elements they count along."""

SIZES: Final = {
    "known": ("[4, 3]", lambda shape: str(list(shape))),
    "unknown": ("[n, m]", lambda shape: f"[{', '.join('abc'[: len(shape)])}]"),
}


Make: TypeAlias = Callable[[str, str], onnxplug.InferenceSession]


@pytest.fixture
def session(parse: Callable[..., Any]) -> Make:
    """A session on the EP alone of a node of ``LOOKUPS``, and one of ``SIZES``."""

    def make(node: str, sizes: str) -> onnxplug.InferenceSession:
        of_x, of_indices = SIZES[sizes]
        shape, _ = LOOKUPS[node]
        dims = ", ".join("pq"[: 2 if shape else 1])
        model = parse(
            f"y = {node}",
            # a scalar has no brackets
            f"float{of_x} x, int64{of_indices(shape) if shape else ''} i, "
            "float[2, 3] z",
            f"float[{dims}] y",
        )
        return onnxplug.InferenceSession(model, providers=[EP])

    return make


def feeds(session: onnxplug.InferenceSession, indices: Any) -> dict[str, Any]:
    given = {"x": X, "z": Z, "i": np.asarray(indices, np.int64)}
    return {each.name: given[each.name] for each in session.get_inputs()}


@pytest.mark.parametrize(
    ("node", "sizes"),
    # of sizes that are not known it does not get this one
    sorted({*itertools.product(LOOKUPS, SIZES)} - {("GatherND (x, i)", "unknown")}),
)
def test_indices_at_both_ends_are_right_and_beyond_them_errors(
    session: Make, parse: Any, node: str, sizes: str
) -> None:
    shape, count = LOOKUPS[node]
    opened = session(node, sizes)
    model = parse(
        f"y = {node}", "float[4, 3] x, int64[k] i, float[2, 3] z", "float[p] y"
    )
    evaluator = ReferenceEvaluator(model)
    for right in (0, count - 1, -count):
        # no place is written to twice
        indices = np.full(shape, right)
        if node.startswith("Scatter"):
            indices[1] = (right + 1) % count
        given = {"x": X, "i": indices, "z": Z}
        (found,) = opened.run(None, feeds(opened, indices))
        (expected,) = evaluator.run(None, given)
        np.testing.assert_array_equal(found, expected)
    for wrong in (count, -count - 1, 1 << 20, -(1 << 20)):
        indices = np.zeros(shape, np.int64)
        indices[(0,) * len(shape)] = wrong
        said = f"{node.split()[0]} giving 'y': an index is out of range"
        with pytest.raises(errors.EpError, match=said):
            opened.run(None, feeds(opened, indices))
        opened.run(None, feeds(opened, np.zeros(shape)))


@pytest.mark.parametrize("wrong", [1 << 33, -(1 << 40)])
def test_an_index_is_not_read_in_32_bits(session: Make, wrong: int) -> None:
    opened = session("Gather (x, i)", "known")
    with pytest.raises(errors.EpError, match=f"input 'i' has {wrong}, and OpenVINO"):
        opened.run(None, feeds(opened, [0, wrong]))


def test_how_many_numbers_there_are_may_be_asked_of_any(parse: Any) -> None:
    model = parse("y = Shape (i)", "int64[n] i", "int64[1] y")
    opened = onnxplug.InferenceSession(model, providers=[EP])
    assert opened.run(None, {"i": np.array([1 << 40, 2])})[0].tolist() == [2]


def test_constants_that_do_not_fit_what_is_fed_are_errors(parse: Any) -> None:
    model = parse(
        "y = Gather (x, i)", "float[n, 3] x", "float[2, 3] y",
        weights="int64[2] i = {-1, 3}",
    )  # fmt: skip
    opened = onnxplug.InferenceSession(model, providers=[EP])
    np.testing.assert_array_equal(opened.run(None, {"x": X})[0], X[[-1, 3]])
    for rows in (3, 0):
        with pytest.raises(errors.EpError, match="an index is out of range"):
            opened.run(None, {"x": X[:rows]})


def test_what_is_computed_is_looked_at_and_told_by_node(parse: Any) -> None:
    model = parse(
        """j = ArgMax <axis = 0, keepdims = 0> (x)
        a = Gather (x, j)
        s = Add (x, x)
        k = Squeeze (i)
        b = Gather (s, k)
        y = Add (a, b)""",
        "float[4, 3] x, int64[1, 3] i", "float[3, 3] y",
    )  # fmt: skip
    opened = onnxplug.InferenceSession(model, providers=[EP])
    indices = np.array([[0, 3, -4]])
    expected = X[[3, 3, 3]] + 2 * X[[0, 3, 0]]
    np.testing.assert_array_equal(opened.run(None, {"x": X, "i": indices})[0], expected)
    with pytest.raises(errors.EpError, match="IndexError: Gather giving 'b': an index"):
        opened.run(None, {"x": X, "i": indices + 1})


def test_what_was_compiled_ahead_looks_at_indices(parse: Any, tmp_path: Path) -> None:
    model = parse("y = Gather (x, i)", "float[n, 3] x, int64[m] i", "float[m, 3] y")
    options = onnxplug.SessionOptions()
    options.add_provider(EP, {})
    path = tmp_path / "compiled.onnx"
    onnxplug.ModelCompiler(options, model).compile_to_file(path)
    opened = onnxplug.InferenceSession(path, providers=[EP])
    for indices in ([0, 3, -4], []):
        given = np.array(indices, np.int64)
        (found,) = opened.run(None, {"x": X, "i": given})
        np.testing.assert_array_equal(found, X[given])
    with pytest.raises(errors.EpError, match="Gather giving 'y': an index is out of"):
        opened.run(None, {"x": X, "i": np.array([4])})


def test_bound_outputs_are_filled_where_indices_are_looked_at(parse: Any) -> None:
    model = parse("y = Gather (x, i)", "float[4, 3] x, int64[2] i", "float[2, 3] y")
    opened = onnxplug.InferenceSession(model, providers=[EP])
    binding, target = opened.io_binding(), np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("i", np.array([3, 1]))
    binding.bind_output("y", "cpu", 0, np.float32, (2, 3), target.ctypes.data)
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, X[[3, 1]])
