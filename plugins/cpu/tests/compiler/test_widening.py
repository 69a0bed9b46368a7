"""Models of float16 and bfloat16: what is compiled, how exact it is, what it keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxplug_compiler.schedule.constants import LARGE
from onnxplug_cpu.compiler.codegen.math.narrow import has_f16
from onnxplug_cpu.compiler.machine.isa import host_isa

from . import tiled
from .differential import difference, refusing, session
from .lowered import commands
from .random_graphs import RandomGraph
from .random_narrow import narrow as narrowed
from .random_nodes import MAKERS, VIEWS

Array = np.ndarray[Any, Any]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
UNIT = {F16: 2.0**-11, BF16: 2.0**-8}
"""Of rounding to nearest."""

RNG = np.random.default_rng(11)
node = helper.make_node


def kind(dtype: np.dtype[Any]) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def model(
    nodes: Sequence[onnx.NodeProto],
    dtype: np.dtype[Any],
    inputs: dict[str, Sequence[int]],
    outputs: Sequence[str],
    constants: dict[str, Array],
) -> onnx.ModelProto:
    """A graph of *dtype*; constants of floats are rounded to it."""
    graph = helper.make_graph(
        list(nodes),
        "narrow",
        [helper.make_tensor_value_info(n, kind(dtype), s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [
            numpy_helper.from_array(a.astype(dtype) if a.dtype.kind == "f" else a, name)
            for name, a in constants.items()
        ],
    )
    opsets = [helper.make_opsetid("", 22)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def double(narrow: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in float64, its constants what the narrow ones are."""
    copy = onnx.ModelProto.FromString(narrow.SerializeToString())
    kinds = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    for tensor in copy.graph.initializer:
        if tensor.data_type in kinds:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in copy.graph.input:
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    return copy


def check(narrow: onnx.ModelProto, *arrays: Array, error: float = 1e-5) -> list[Array]:
    """Run *narrow*, all compiled, and compare: outputs are what float64 gives, rounded
    once, but for *error* of the largest element.  Gives the outputs."""
    runner = session(narrow, compiled=True, threads=2, precision="float32")
    names = [value.name for value in narrow.graph.input]
    found = runner.run(None, dict(zip(names, arrays, strict=True)))
    (partition,) = runner.explain().partitions
    assert set(partition.tiers) == {"compiled"}, runner.explain()
    wide = [a.astype(np.float64) if a.dtype in UNIT else a for a in arrays]
    exact = ReferenceEvaluator(double(narrow)).run(
        None, dict(zip(names, wide, strict=True))
    )
    for array, expected in zip(found, exact, strict=True):
        if array.dtype not in UNIT:
            assert np.array_equal(array, expected)
            continue
        most = UNIT[array.dtype] * np.abs(expected) + error * np.abs(expected).max()
        apart = np.abs(array.astype(np.float64) - expected)
        assert (apart <= most + 2.0**-25).all(), (apart / most).max()
    return list(found)


def random(dtype: np.dtype[Any], *shape: int) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def pictures(dtype: np.dtype[Any]) -> onnx.ModelProto:
    """Convolutions of all kinds, a sum, pools and a product."""
    c, w = 32, RNG.standard_normal
    return model(
        [
            node("Conv", ["x", "stem", "shift"], ["a"], pads=[3] * 4, strides=[2, 2]),
            node("Relu", ["a"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2]),
            node("Conv", ["p", "square"], ["s"], pads=[1] * 4),
            node("Conv", ["s", "each", "shift"], ["e"], pads=[1] * 4, group=c),
            node("HardSwish", ["e"], ["h"]),
            node("Conv", ["h", "groups"], ["g"], group=4),
            node("Add", ["g", "p"], ["t"]),
            node("GlobalAveragePool", ["t"], ["m"]),
            node("Flatten", ["m"], ["f"]),
            node("Gemm", ["f", "head", "bias"], ["y"], transB=1),
        ],
        dtype,
        {"x": [2, 3, 40, 40]},
        ["y"],
        {
            "stem": w((c, 3, 7, 7)) / 12,
            "square": w((c, c, 3, 3)) / 17,
            "each": w((c, 1, 3, 3)) / 3,
            "groups": w((c, c // 4, 1, 1)) / 3,
            "shift": w(c),
            "head": w((21, c)) / 6,
            "bias": w(21),
        },
    )


def words(dtype: np.dtype[Any]) -> onnx.ModelProto:
    """A layer of a transformer over embeddings."""
    w, n = RNG.standard_normal, 64
    split = np.array([2, 9, 4, 16])
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "scale", "shift"], ["n"]),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["n", f"w{name}"], [f"m{name}"]),
            node("Reshape", [f"m{name}", "split"], [f"h{name}"]),
            node(
                "Transpose",
                [f"h{name}"],
                [f"t{name}"],
                perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
            ),
        ]
    nodes += [
        node("MatMul", ["tq", "tk"], ["scores"]),
        node("Mul", ["scores", "quarter"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"]),
        node("MatMul", ["weights", "tv"], ["heads"]),
        node("Transpose", ["heads"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["rows"]),
        node("MatMul", ["rows", "wq"], ["out"]),
        node("Add", ["out", "e"], ["sum"]),
        node("Gelu", ["sum"], ["y"]),
        node("ArgMax", ["sum"], ["best"], axis=-1),
    ]
    constants = {f"w{name}": w((n, n)) / 8 for name in "qkv"}
    constants |= {"table": w((50, n)), "scale": w(n), "shift": w(n)}
    constants |= {"quarter": np.array(0.25), "split": split}
    constants |= {"joined": np.array([2, 9, n])}
    narrow = model(nodes, dtype, {"ids": [2, 9]}, ["y", "best"], constants)
    narrow.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return narrow


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_pictures_are_rounded_once(dtype: np.dtype[Any]) -> None:
    check(pictures(dtype), random(dtype, 2, 3, 40, 40))


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_words_are_rounded_once(dtype: np.dtype[Any]) -> None:
    check(words(dtype), RNG.integers(0, 50, (2, 9)))


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_numbers_of_16_bits_are_parts_of_patterns(dtype: np.dtype[Any]) -> None:
    ids = RNG.integers(0, 50, (2, 9))
    labels = commands(words(dtype), {"ids": ids}, 1, {})
    assert sum(label.startswith("Attention") for label in labels) == 1
    assert not any(label.startswith("Mul") for label in labels)  # its scale


@pytest.mark.parametrize("rows", [1, 3, 7, 40])
@pytest.mark.parametrize("columns", [1, 15, 24, 40, 129])
def test_products_of_any_size(rows: int, columns: int) -> None:
    for dtype in UNIT:
        for turned in (0, 1):
            w = random(F16, 300, columns).T if turned else random(F16, 300, columns)
            nodes = [node("Gemm", ["x", "w"], ["y"], transB=turned, alpha=0.5)]
            given = {"x": [rows, 300]}
            w = w.astype(np.float32)
            check(model(nodes, dtype, given, ["y"], {"w": w}), random(dtype, rows, 300))


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_weights_that_few_and_many_rows_share(dtype: np.dtype[Any]) -> None:
    """They are packed for each as it reads them."""
    nodes = [node("MatMul", [x, "w"], [f"{x}w"]) for x in ("few", "many")]
    sizes = {"few": [40, 48], "many": [200, 48]}
    shared = model(nodes, dtype, sizes, ["feww", "manyw"], {"w": random(F16, 48, 72)})
    check(shared, *(random(dtype, *shape) for shape in sizes.values()))


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_weights_take_two_bytes(dtype: np.dtype[Any]) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    w = RNG.standard_normal((512, 640))
    narrow = model(nodes, dtype, {"x": [40, 512]}, ["y"], {"w": w})
    runner = session(narrow, compiled=True)
    runner.run(None, {"x": random(dtype, 40, 512)})
    counts = runner.explain().partitions[0].counts
    isa = host_isa()
    assert isa is not None
    # without instructions for float16 it is packed as float32
    nbytes = 2 if dtype == BF16 or has_f16(isa) else 4
    verdicts = counts["bytes of packed weights"] - nbytes * w.size
    assert 0 <= verdicts < 1024


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_a_cast_of_the_model_rounds(dtype: np.dtype[Any]) -> None:
    nodes = [
        node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT),
        node("Exp", ["wide"], ["e"]),
        node("Cast", ["e"], ["n"], to=kind(dtype)),
        node("Cast", ["n"], ["w"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["w", "n1"], ["y"]),
        node("Cast", ["n"], ["n1"], to=onnx.TensorProto.FLOAT),
    ]
    nodes[-2:] = nodes[:-3:-1]
    x = random(dtype, 1000)
    runner = session(model(nodes, dtype, {"x": [1000]}, ["y"], {}), compiled=True)
    (found,) = runner.run(None, {"x": x})
    exact = np.exp(x.astype(np.float64)).astype(np.float32).astype(dtype)
    expected = exact.astype(np.float32) ** 2
    # where the exponential is nearly between two numbers, the other one may be taken
    assert (found == expected).mean() > 0.99
    np.testing.assert_allclose(found, expected, rtol=4.1 * UNIT[dtype])


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_what_overflows_between_two_calls_does_not_matter(dtype: np.dtype[Any]) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    x = np.array([largest, -largest, 1, np.inf, np.nan, 0]).astype(dtype)
    nodes = [node("Add", ["x", "x"], ["d"]), node("Mul", ["d", "half"], ["y"])]
    if dtype == BF16:  # whose exponents are those of float32
        x[:2] = 1e30
    constants = {"half": np.array(0.5)}
    narrow = model(nodes, dtype, {"x": [6]}, ["y"], constants)
    (found,) = session(narrow, compiled=True).run(None, {"x": x})
    np.testing.assert_array_equal(found.astype(np.float32), x.astype(np.float32))


def test_a_cache_that_grows_stays_narrow() -> None:
    nodes = [
        node("Relu", ["new"], ["n"]),
        node("Concat", ["past", "n"], ["present"], axis=1),
        node("ReduceSum", ["present"], ["y"], keepdims=0),
    ]
    shapes = {"past": [2, 30, 8], "new": [2, 1, 8]}
    narrow = model(nodes, F16, shapes, ["present", "y"], {})
    past, new = random(F16, 2, 30, 8), random(F16, 2, 1, 8)
    present, _ = check(narrow, past, new)
    assert np.array_equal(present[:, :-1], past)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_on_arrays_gives_the_same(seed: int) -> None:
    for dtype in UNIT:
        narrow, x = pictures(dtype), random(dtype, 2, 3, 40, 40)
        (expected,) = check(narrow, x)
        with refusing(0.4, seed):
            runner = session(narrow, compiled=True)
        (found,) = runner.run(None, {"x": x})
        largest = np.abs(expected.astype(np.float32)).max()
        apart = np.abs(found.astype(np.float32) - expected.astype(np.float32))
        assert apart.max() <= 2.1 * UNIT[dtype] * largest


def test_an_output_of_float32_is_not_rounded() -> None:
    nodes = [
        node("Cast", ["x"], ["n"], to=onnx.TensorProto.FLOAT16),
        node("MatMul", ["n", "w"], ["m"]),
        node("Cast", ["m"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    w = random(F16, 40, 24).astype(np.float32)
    narrow = model(nodes, F16, {"x": [5, 40]}, ["y"], {"w": w})
    narrow.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    x = RNG.standard_normal((5, 40)).astype(np.float32)
    (found,) = session(narrow, compiled=True).run(None, {"x": x})
    exact = x.astype(np.float16).astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_tiles_take_terms_of_narrow_weights(dtype: np.dtype[Any]) -> None:
    w = RNG.standard_normal((72, 300)) / 17
    nodes = [node("Gemm", ["x", "w"], ["m"], transB=1), node("Relu", ["m"], ["y"])]
    narrow = model(nodes, dtype, {"x": [40, 300]}, ["y"], {"w": w})
    x = random(dtype, 40, 300)
    with tiled.host():
        labels = commands(narrow, {"x": x}, 1, {"precision": "float32"})
        assert any(label.endswith("(bf16x3)") for label in labels)
        check(narrow, x)


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_large_constants_of_other_operators(dtype: np.dtype[Any]) -> None:
    """Of more elements than plans look at."""
    w, hidden, size = RNG.standard_normal, 160, 120
    nodes = [
        node("Add", ["x", "table"], ["a"]),
        node("LSTM", ["a", "w", "r"], ["s", "h"], hidden_size=hidden),
        node("Squeeze", ["s", "axis"], ["q"]),
        node("Einsum", ["q", "e"], ["y"], equation="tbh,hk->tbk"),
    ]
    constants = {
        "table": w((600, 1, size)),
        "w": w((1, 4 * hidden, size)) / 11,
        "r": w((1, 4 * hidden, hidden)) / 13,
        "axis": np.array([1]),
        "e": w((hidden, 450)) / 12,
    }
    assert all(a.size > LARGE for a in constants.values() if a.size > 1)
    narrow = model(nodes, dtype, {"x": [600, 1, size]}, ["y", "h"], constants)
    check(narrow, random(dtype, 600, 1, size))


@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("tbh,hk->tbk", (160, 450)),
        ("tbh,hk->kbt", (160, 450)),
        ("kh,tbh->tbk", (450, 160)),
        ("tbh,tbh->bt", (600, 1, 160)),
        ("tbh,th->tbh", (600, 160)),
        ("tbh,hkl->tbk", (160, 45, 10)),
        ("tbh,hh->tb", (160, 160)),
    ],
)
def test_constants_of_sums_of_products_are_widened_once(
    dtype: np.dtype[Any], equation: str, sizes: Sequence[int]
) -> None:
    e = RNG.standard_normal(sizes) / 12
    constant_first = equation.index("h") < 2
    names = ["e", "x"] if constant_first else ["x", "e"]
    nodes = [node("Einsum", names, ["y"], equation=equation)]
    narrow = model(nodes, dtype, {"x": [600, 1, 160]}, ["y"], {"e": e})
    x = random(dtype, 600, 1, 160)
    check(narrow, x)
    labels = commands(narrow, {"x": x}, 1)
    assert sum(label.startswith("Cast") for label in labels) <= 2, labels


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_bodies_round_what_goes_from_turn_to_turn(dtype: np.dtype[Any]) -> None:
    state = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("MatMul", ["s", "w"], ["m"]),
            node("Tanh", ["m"], ["next"]),
            node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [
            state("turn", onnx.TensorProto.INT64, []),
            state("go", onnx.TensorProto.BOOL, []),
            state("s", kind(dtype), [4, 32]),
        ],
        [
            state("on", onnx.TensorProto.BOOL, []),
            state("next", kind(dtype), [4, 32]),
        ],
    )
    nodes = [node("Loop", ["turns", "", "x"], ["y"], body=body)]
    w = RNG.standard_normal((32, 32)) / 4
    constants = {"w": w, "turns": np.array(3)}
    narrow = model(nodes, dtype, {"x": [4, 32]}, ["y"], constants)
    x = random(dtype, 4, 32)
    runner = session(narrow, compiled=True, threads=2)
    (found,) = runner.run(None, {"x": x})
    (partition,) = runner.explain().partitions
    assert set(partition.tiers) == {"compiled"}, runner.explain()
    exact = x.astype(np.float64)
    for _ in range(3):
        exact = np.tanh(exact @ w.astype(dtype).astype(np.float64))
        exact = exact.astype(dtype).astype(np.float64)
    # what lies between two numbers may be rounded to the other one
    np.testing.assert_allclose(found.astype(np.float64), exact, 0, 4 * UNIT[dtype])


def test_bodies_read_casts_of_what_is_wide() -> None:
    value = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph(
            [node(operator, ["c"], [name])],
            name,
            [],
            [value(name, onnx.TensorProto.FLOAT, [4, 8])],
        )
        for name, operator in (("then_branch", "Exp"), ("else_branch", "Neg"))
    }
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("Cast", ["a"], ["c"], to=onnx.TensorProto.FLOAT),
        node("Abs", ["c"], ["d"]),
        node("If", ["yes"], ["y"], **branches),
    ]
    narrow = model(nodes, F16, {"x": [4, 8]}, ["y", "d"], {"yes": np.array(False)})
    (choice,) = [each for each in narrow.graph.initializer if each.name == "yes"]
    narrow.graph.initializer.remove(choice)
    narrow.graph.input.append(value("yes", onnx.TensorProto.BOOL, []))
    x = random(F16, 4, 8)
    runner = session(narrow, compiled=True)
    square = x.astype(np.float64) ** 2
    for yes, expected in ((True, np.exp(square)), (False, -square)):
        found, size = runner.run(None, {"x": x, "yes": np.array(yes)})
        np.testing.assert_allclose(found, expected, 1e-6)
        np.testing.assert_allclose(size, square, 1e-6)
    (partition,) = runner.explain().partitions
    assert set(partition.tiers) == {"compiled"}, runner.explain()


_FIRST, _LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:6").split(":"))


@pytest.mark.parametrize("seed", range(_FIRST, _LAST))
def test_random_graphs_are_rounded_once(seed: int) -> None:
    """Against the array tier in float32, which rounds nothing of them."""
    choose, dtype = Random(seed), list(UNIT)[seed % 2]
    makers = choose.choice([MAKERS, MAKERS, VIEWS])
    case = RandomGraph(seed).make(choose.randint(5, 40), makers)
    graph = narrowed(case, dtype)
    # what lies between two numbers where the model rounds may become the other one
    rounds = any(each.op_type == "Cast" for each in graph.wide.graph.node)
    unit = UNIT[dtype] * (4 if rounds else 1.01)
    exact = session(graph.wide, compiled=False).run(None, graph.wide_feeds)
    with refusing(choose.choice([0, 0, 0.15]), seed):
        runner = session(graph.model, compiled=True, threads=2, precision="float32")
        found = runner.run(None, graph.feeds)
    for expected, array, error in zip(exact, found, case.errors.values(), strict=True):
        if array.dtype == expected.dtype:
            assert difference(expected, array, error) is None
            continue
        assert (array.dtype, array.shape) == (dtype, expected.shape)
        nearest = expected.astype(dtype).astype(np.float64)
        a, b = array.astype(np.float64), expected.astype(np.float64)
        same = (a == nearest) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= 1.01 * error + unit * np.abs(b)
        assert (same | near).all()
