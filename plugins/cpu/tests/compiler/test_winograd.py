"""Convolutions by transforms in networks: which ones, and that these are right."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import OptionError
from onnxplug_cpu.compiler.segment import Compiler

from .replanning import compared_with_fresh_plans

Array = np.ndarray[Any, Any]
C = 32
RNG = np.random.default_rng(5)
WEIGHTS = {
    "w": RNG.standard_normal((40, C, 3, 3)) / 12,
    "v": RNG.standard_normal((40, 40, 3, 3)) / 13,
    "b": RNG.standard_normal(40),
    "scale": RNG.uniform(0.5, 2, 40),
    "shift": RNG.standard_normal(40),
    "mean": RNG.standard_normal(40),
    "variance": RNG.uniform(0.5, 2, 40),
}


def model(
    nodes: list[onnx.NodeProto],
    weights: dict[str, Array],
    shape: list[int | str] | None = None,
    dtype: type[np.floating[Any]] = np.float32,
) -> onnx.ModelProto:
    """A graph from x, of *shape*, to y."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = ["N", C, "H", "W"] if shape is None else shape
    return helper.make_model(
        helper.make_graph(
            nodes,
            "convolutions",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info("y", kind, None)],
            [
                numpy_helper.from_array(array.astype(dtype), name)
                for name, array in weights.items()
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def block(dtype: type[np.floating[Any]] = np.float32) -> onnx.ModelProto:
    """Two convolutions, with what networks have behind them, the second of a value
    that a third one, which is added, reads as well."""
    statistics = ["scale", "shift", "mean", "variance"]
    return model(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", ["a", *statistics], ["n"]),
            helper.make_node("Relu", ["n"], ["r"]),
            helper.make_node("Conv", ["r", "v"], ["c"], pads=[0, 2, 2, 0]),
            helper.make_node("Add", ["c", "r"], ["s"]),
            helper.make_node("HardSwish", ["s"], ["y"]),
        ],
        WEIGHTS,
        dtype=dtype,
    )


class Session:
    """A session, and what its weights were packed to."""

    def __init__(self, made: onnx.ModelProto, threads: int = 1, **given: Any) -> None:
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = threads
        compilers: list[Compiler] = []
        make = Compiler.for_threads

        def noted(*rest: Any, **named: Any) -> Compiler:
            compilers.append(make(*rest, **named))
            return compilers[-1]

        with mock.patch.object(Compiler, "for_threads", noted):
            self.session = onnxplug.InferenceSession(
                made, options, providers=[("CPUExecutionProvider", given)]
            )
        self._compilers = compilers

    def run(self, x: Array) -> Array:
        (y,) = self.session.run(None, {"x": x})
        return np.asarray(y)

    @property
    def transformed(self) -> int:
        """How many weights were transformed."""
        layouts = [layout for c in self._compilers for _, layout in c.packed]
        return sum(layout.startswith("winograd") for layout in layouts)


def images(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exact(x: Array) -> Array:
    (y,) = ReferenceEvaluator(block(np.float64)).run(None, {"x": x.astype(np.float64)})
    return np.asarray(y)


def rms(array: Array) -> float:
    return float(np.sqrt((array.astype(np.float64) ** 2).mean()))


def without_tiles(**given: Any) -> dict[str, Any]:
    """Options with which no product is computed by AMX, which would be preferred."""
    return {"fp32_matmul": "fma", **given}


@pytest.mark.parametrize(
    ("threads", "tiles", "most"), [(1, "2x2", 1e-6), (2, "2x2", 1e-6), (2, "4x4", 2e-6)]
)
def test_networks_are_right(threads: int, tiles: str, most: float) -> None:
    found = Session(block(), threads, **without_tiles(winograd=tiles))
    direct = Session(block(), threads, **without_tiles(winograd="off"))
    for number, (n, h, w) in enumerate([(1, 28, 28), (2, 13, 30), (1, 9, 50)]):
        x = images(n, C, h, w, seed=number)
        expected, y = exact(x), found.run(x)
        assert y.shape == expected.shape
        assert rms(y - expected) <= most * rms(expected)
        assert rms(direct.run(x) - expected) <= 1e-6 * rms(expected)
    assert found.transformed == 2
    assert direct.transformed == 0


def test_small_tiles_are_the_default() -> None:
    x = images(1, C, 48, 48)
    given, off, small, large = (
        Session(block(), **without_tiles(**options))
        for options in (
            {},
            {"winograd": "off"},
            {"winograd": "2x2"},
            {"winograd": "4x4"},
        )
    )
    np.testing.assert_array_equal(given.run(x), small.run(x))
    assert not np.array_equal(off.run(x), small.run(x))
    assert not np.array_equal(large.run(x), small.run(x))
    assert off.transformed == 0
    assert given.transformed == small.transformed == large.transformed == 2
    with pytest.raises(OptionError, match="winograd"):
        Session(block(), winograd="fast")


def test_plans_for_new_shapes_are_as_fresh_ones() -> None:
    found = Session(block(), **without_tiles())
    choose = np.random.default_rng(2)
    with compared_with_fresh_plans() as compared:
        for number in range(12):
            n, h, w = (int(size) for size in choose.integers([0, 3, 3], [3, 30, 30]))
            x = images(n, C, h, w, seed=number)
            y, expected = found.run(x), exact(x)
            assert y.shape == expected.shape
            if x.size:
                assert abs(y - expected).max() <= 1e-4
    assert len(compared) > 4
    assert found.transformed == 2


CONV = {"pads": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("attributes", "weights", "expected"),
    [
        (CONV, (C, C, 3, 3), 1),
        ({"auto_pad": "SAME_LOWER"}, (C, C, 3, 3), 1),
        ({}, (C, C, 3, 3), 1),
        ({**CONV, "strides": [2, 2]}, (C, C, 3, 3), 0),
        ({**CONV, "strides": [1, 2]}, (C, C, 3, 3), 0),
        ({**CONV, "dilations": [2, 1]}, (C, C, 3, 3), 1),
        ({"dilations": [1, 2], "pads": [0, 3, 2, 4]}, (C, C, 3, 3), 1),
        ({"dilations": [3, 2], "pads": [7, 2, 0, 5]}, (C, C, 3, 3), 1),
        ({**CONV, "group": 2}, (2 * C, C // 2, 3, 3), 0),
        ({**CONV, "group": C}, (C, 1, 3, 3), 0),
        (CONV, (C, C, 3, 1), 0),
        (CONV, (C, C, 5, 5), 0),
        (CONV, (8, C, 3, 3), 0),
    ],
)
def test_which_convolutions_it_concerns(
    attributes: dict[str, Any], weights: tuple[int, ...], expected: int
) -> None:
    kernel = np.random.default_rng(1).standard_normal(weights) / 10
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    x = images(1, C, 48, 47)  # with fewer tiles it depends on caches
    found = Session(model([node], {"w": kernel}), **without_tiles())
    y = found.run(x)
    assert found.transformed == expected
    wide = model([node], {"w": kernel}, dtype=np.float64)
    (right,) = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})
    np.testing.assert_allclose(y, right, 1e-4, 1e-4)


def test_other_ranks_and_computed_weights_are_no_concern() -> None:
    line = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1])
    found = Session(
        model([line], {"w": RNG.standard_normal((C, C, 3))}, ["N", C, "W"]),
        **without_tiles(),
    )
    found.run(images(1, C, 300))
    assert found.transformed == 0
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0),
        helper.make_node("Mul", ["v", "m"], ["u"]),
        helper.make_node("Conv", ["x", "u"], ["y"]),
    ]
    found = Session(
        model(nodes, {"v": RNG.standard_normal((C, C, 3, 3))}),
        **without_tiles(),
    )
    found.run(images(1, C, 24, 24))
    assert found.transformed == 0


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_where_it_was(special: float) -> None:
    node = helper.make_node("Conv", ["x", "v"], ["y"], pads=[1, 1, 1, 1])
    made = model([node], {"v": WEIGHTS["w"]})
    x = images(1, C, 24, 24)
    x[0, 5, 11, 20] = special
    found = Session(made, **without_tiles())
    direct = Session(made, **without_tiles(winograd="off"))
    y, expected = found.run(x), direct.run(x)
    assert found.transformed == 1
    np.testing.assert_allclose(y, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_transformed(special: float) -> None:
    kernel = WEIGHTS["w"].copy()
    kernel[7, 3, 1] = special
    node = helper.make_node("Conv", ["x", "v"], ["y"], pads=[1, 1, 1, 1])
    made, x = model([node], {"v": kernel}), images(1, C, 24, 24)
    with np.errstate(all="ignore"):
        y = Session(made, **without_tiles()).run(x)
        expected = Session(made, **without_tiles(winograd="off")).run(x)
    np.testing.assert_array_equal(y, expected)
