"""Convolutions: right for all attributes, with what follows them in one command."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ..differential import session
from ..lowered import Lowered, graph, lowered, random
from ..on_numpy import session_on_numpy
from ..random_convolutions import Case, in_float64, random_case
from ..rarely import first
from ..replanning import compared_with_fresh_plans
from ..whole_convolutions import WholeConvolutions

ROOT = Path(__file__).parents[5]
Array = np.ndarray[Any, Any]

AXES = "int64[2] axes = {2, 3}"


def cases(*, transposed: bool, often: int, count: int) -> list[Any]:
    """Seeds of convolutions of a kind, of which so many run each time."""
    seeds = (s for s in itertools.count() if random_case(s).transposed == transposed)
    return first(often, itertools.islice(seeds, count))


def check(case: Case, expected: Array) -> None:
    found = session(case.model, compiled=True, threads=2)
    (partition,) = found.explain().partitions
    assert set(partition.tiers) == {"compiled"}
    (result,) = found.run(None, case.feeds)
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    # of sums of hundreds of products of normal numbers
    np.testing.assert_allclose(result, expected, 1e-5, 1e-4)


def check_whole(case: Case, expected: Array) -> None:
    """The same where the target has convolutions as a whole."""
    before = WholeConvolutions.taken
    whole = session_on_numpy(case.model, WholeConvolutions)
    (result,) = whole.run(None, case.feeds)
    assert WholeConvolutions.taken == before + (0 not in expected.shape)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-4)


@pytest.mark.parametrize("seed", cases(transposed=False, often=40, count=90))
def test_convolutions_are_those_of_the_reference(seed: int) -> None:
    case = random_case(seed)
    model, feeds = in_float64(case)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    check(case, expected)
    if seed % 2:
        check_whole(case, expected)


def scattered(
    x: Array, w: Array, b: Array | None, attributes: Mapping[str, Any]
) -> Array:
    """ConvTranspose by its definition: each input element, times the kernel, is added
    to the elements of the output that it reaches."""
    rank, groups = x.ndim - 2, attributes["group"]
    ones = [1] * rank
    strides = attributes.get("strides", ones)
    dilations = attributes.get("dilations", ones)
    extra = attributes.get("output_padding", [0] * rank)
    kernel = w.shape[2:]
    pads = attributes.get("pads", [0] * (2 * rank))
    natural = [
        stride * (size - 1) + more + (taps - 1) * dilation + 1
        for size, stride, more, taps, dilation in zip(
            x.shape[2:], strides, extra, kernel, dilations, strict=True
        )
    ]
    spans = [size - extra[axis] for axis, size in enumerate(natural)]
    whole = np.zeros((x.shape[0], groups * w.shape[1], *np.maximum(natural, spans)))
    depth, columns = x.shape[1] // groups, w.shape[1]
    for group in range(groups):
        part = x[:, group * depth : (group + 1) * depth]
        factors = w[group * depth : (group + 1) * depth]
        for tap in np.ndindex(*kernel):
            places = tuple(
                slice(t * dilation, t * dilation + (size - 1) * stride + 1, stride)
                for t, dilation, size, stride in zip(
                    tap, dilations, x.shape[2:], strides, strict=True
                )
            )
            target = whole[:, group * columns : (group + 1) * columns]
            target[(..., *places)] += np.einsum(
                "nc...,cm->nm...", part, factors[(..., *tap)]
            )
    auto = attributes.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        begin, size = [], []
        for axis, stride in enumerate(strides):
            size.append(x.shape[2 + axis] * stride)
            over = max(natural[axis] - size[axis], 0)
            begin.append(over // 2 if auto == "SAME_UPPER" else over - over // 2)
        grown = np.zeros((*whole.shape[:2], *np.maximum(whole.shape[2:], size)))
        grown[(..., *map(slice, whole.shape[2:]))] = whole
        whole = grown
    else:
        begin = pads[:rank]
        size = [
            n - first - last
            for n, first, last in zip(natural, begin, pads[rank:], strict=True)
        ]
    y = whole[(..., *(slice(a, a + n) for a, n in zip(begin, size, strict=True)))]
    return y if b is None else y + b.reshape(-1, *ones)


@pytest.mark.parametrize("seed", cases(transposed=True, often=40, count=90))
def test_transposed_convolutions_are_as_defined(seed: int) -> None:
    case = random_case(seed)
    model, feeds = in_float64(case)
    node, *behind = model.graph.node
    values = {
        **feeds,
        **{t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer},
    }
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if "auto_pad" in attributes:
        attributes["auto_pad"] = attributes["auto_pad"].decode()
    y = scattered(values["x"], values["w"], values.get("b"), attributes)
    for after in behind:
        info = helper.make_tensor_value_info
        last = helper.make_model(
            helper.make_graph(
                [after], "after", [info("y", 11, None)], [info("z", 11, None)]
            ),
            opset_imports=[helper.make_opsetid("", 20)],
            ir_version=10,
        )
        (y,) = ReferenceEvaluator(last).run(None, {"y": y})
    check(case, y)
    if seed % 2:
        check_whole(case, y)


@pytest.mark.parametrize("seed", cases(transposed=True, often=20, count=40))
def test_transposed_convolutions_are_those_of_others(seed: int) -> None:
    case = random_case(seed)
    attributes = {a.name: a for a in case.model.graph.node[0].attribute}
    if attributes.get("auto_pad", helper.make_attribute("", "")).s.startswith(b"SAME"):
        pytest.skip("ONNX Runtime gives another shape than ONNX asks for")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        other = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        (expected,) = other.run(None, case.feeds)
    except Exception as error:  # noqa: BLE001 (whatever it does not take)
        pytest.skip(f"ONNX Runtime refuses: {str(error)[:80]}")
    check(case, expected)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e-41, 3e38])
def test_special_numbers_reach_what_they_reach(special: float) -> None:
    """And nothing else: zeros around an input are no numbers that it has."""
    body = "y = Conv <pads = [1, 1, 1, 1]> (x, w)"
    text = graph("float[1, 4, 7, 9] x, float[6, 4, 3, 3] w", "float[] y", body)
    x, w = random((1, 4, 7, 9), (6, 4, 3, 3))
    x[0, 2, 3, 4] = special
    found = lowered(text)
    with np.errstate(all="ignore"):
        (y,) = found.session.run(None, {"x": x, "w": w})
        expected = ReferenceEvaluator(onnx.parser.parse_model(text)).run(
            None, {"x": x, "w": w}
        )[0]
    finite = np.isfinite(expected)
    assert (np.isfinite(y) == finite).all()
    np.testing.assert_allclose(y[finite], expected[finite], 1e-4, 1e-5)


# what becomes one command


def net(
    body: str, inputs: str, constants: str = AXES, outputs: str = "y", **weights: Array
) -> Lowered:
    """A network whose *weights* are constants."""
    given = ", ".join(f"float[] {name}" for name in outputs.split())
    model = onnx.parser.parse_model(graph(inputs, given, body, constants))
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return lowered(model)


X, W, V = random((2, 5, 6, 5), (8, 5, 3, 3), (8, 8, 1, 1))
TYPE = "float[2, 5, 6, 5] x"


@pytest.mark.parametrize(
    ("after", "label"),
    [
        ("r = Relu (a)", "Conv + Relu"),
        ("r = HardSwish (a)", "Conv + HardSwish"),
        ("r = Gelu (a)", "Conv + Gelu"),
        ("s = Sigmoid (a) r = Mul (a, s)", "Conv + Sigmoid + Mul"),
        ("s = Clip (a, zero, six) r = Neg (s)", "Conv + Clip + Neg"),
        ("s = Mul (a, row) r = Add (s, row)", "Conv + Mul + Add"),
    ],
)
def test_a_chain_is_part_of_the_convolution(after: str, label: str) -> None:
    constants = (
        f"{AXES}, float zero = {{0}}, float six = {{6}}, "
        "float[8, 1, 1] row = {1, 2, 3, 4, 5, 6, 7, 8}"
    )
    body = f"a = Conv (x, w, b) {after} y = ReduceMean <keepdims = 0> (r, axes)"
    found = net(body, TYPE, constants, w=W, b=random((8,))[0])
    assert [name for name in found.labels() if "Pad" not in name] == [
        label,
        "ReduceMean",
    ]
    found.check(X)


def test_between_convolutions_nothing_is_copied() -> None:
    body = """
        a = Conv (x, w) r = Relu (a) c = Conv (r, v) d = Conv (c, v) e = Add (d, r)
        f = Relu (e) g = Conv <pads = [1, 1, 1, 1]> (f, u) h = Relu (g)
        y = ReduceMean <keepdims = 0> (h, axes)
    """
    found = net(body, TYPE, w=W, v=V, u=random((4, 8, 3, 3))[0])
    assert found.labels() == [
        "Pad",  # channels last, of what is fed
        "Conv + Relu",
        "Conv",
        "Zeros",  # around what is made for a convolution that wants them
        "Conv + Add + Relu",
        "Conv + Relu",
        "ReduceMean",
    ]
    found.check(X, tolerance=1e-4)


@pytest.mark.parametrize(
    ("readers", "copies"),
    [
        # as many zeros as any of them wants
        (
            "b = Conv <pads = [0, 1, 2, 1]> (a, u)"
            " c = Conv <pads = [1, 0, 0, 1]> (a, u)",
            0,
        ),
        # elements of which are products wanted in one row
        ("b = Conv <pads = [1, 1, 1, 1]> (a, u) c = Conv (a, v)", 1),
        ("b = Conv <pads = [1, 1, 1, 1]> (a, u) c = Neg (a)", 0),
        ("b = Conv <pads = [9, 9, 9, 9]> (a, u) c = Neg (a)", 1),
        ('b = Conv <auto_pad = "SAME_UPPER"> (a, u) c = Neg (a)', 1),
        ("b = Conv <pads = [1, 1, 1, 1], strides = [2, 3]> (a, u) c = Neg (a)", 0),
        ("b = Conv <pads = [3, 2, 3, 2], dilations = [3, 2]> (a, u) c = Neg (a)", 0),
    ],
)
def test_zeros_are_around_values_for_convolutions(readers: str, copies: int) -> None:
    body = f"""
        s = Conv (x, w) a = Relu (s) {readers} y = GlobalMaxPool (b)
        z = GlobalMaxPool (c)
    """
    weights = {"w": W, "v": V, "u": random((4, 8, 3, 3))[0]}
    found = net(body, TYPE, outputs="y z", **weights)
    assert found.labels().count("Pad") == 1 + copies
    for seed in range(3):
        found.check(*random((2, 5, 6, 5), seed=seed), tolerance=1e-4)


def test_values_with_zeros_around_them_are_outputs_and_joined_too() -> None:
    body = """
        a = Conv (x, w) b = Conv <pads = [1, 1, 1, 1]> (a, u) c = Neg (b)
        j = Concat <axis = 1> (b, c) y = Conv <pads = [1, 1, 1, 1]> (j, t)
    """
    u, t = random((8, 8, 3, 3), (8, 16, 3, 3))
    found = net(body, TYPE, outputs="a j y", w=W, u=u, t=t)
    found.check(X, tolerance=1e-3)
    found = net(body, TYPE, w=W, u=u, t=t)
    assert "Concat" not in found.labels()
    found.check(X, tolerance=1e-3)


def test_transpositions_around_convolutions_cost_nothing() -> None:
    body = """
        a = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (a)
        n = LayerNormalization (t, g) m = MatMul (n, p) e = Gelu (m)
        u = Transpose <perm = [0, 3, 1, 2]> (e) s = Add (u, a) c = Conv (s, v)
        y = ReduceMean <keepdims = 0> (c, axes)
    """
    g, p = random((8,), (8, 8))
    found = net(body, TYPE, w=W, v=V, g=g, p=p)
    assert found.labels() == [
        "Pad",
        "Conv",
        "LayerNormalization",
        "MatMul + Gelu",
        "Add",
        "Conv",
        "ReduceMean",
    ]
    found.check(X, tolerance=1e-4)


def test_patches_become_tokens_without_a_copy() -> None:
    body = """
        a = Conv <strides = [2, 2]> (x, w) r = Reshape (a, flat)
        t = Transpose <perm = [0, 2, 1]> (r) y = MatMul (t, p)
    """
    found = net(
        body,
        "float[2, 5, 6, 6] x",
        "int64[3] flat = {0, 8, -1}",
        w=W[:, :, :2, :2],
        p=random((8, 3))[0],
    )
    assert found.labels() == ["Pad", "Conv", "MatMul"]
    found.check(*random((2, 5, 6, 6)), tolerance=1e-4)


@pytest.mark.parametrize("pads", [0, 1])
def test_images_of_few_channels_are_read_as_they_lie(pads: int) -> None:
    body = f"a = Conv <pads = [{pads}, 0, {pads}, 0]> (x, w) y = Relu (a)"
    found = net(body, "float[2, 3, 6, 5] x", w=W[:, :3])
    labels = ["Pad"] * pads + ["Conv + Relu"]
    assert found.labels()[: len(labels)] == labels
    found.check(*random((2, 3, 6, 5)), tolerance=1e-4)


def test_channels_by_themselves_need_no_zeros_around_them() -> None:
    body = """
        a = Conv (x, w) b = Conv <group = 8, pads = [1, 1, 1, 1]> (a, u) c = Clip (b)
        d = Add (c, a) y = Conv (d, v)
    """
    found = net(body, TYPE, w=W, v=V, u=random((8, 1, 3, 3))[0])
    assert found.labels()[1:-1] == ["Conv", "Conv + Clip + Add", "Conv"]
    found.check(X, tolerance=1e-4)


@pytest.mark.parametrize(
    ("joined", "copied"),
    [
        ("j = Concat <axis = 1> (a, b)", 0),
        ("j = Concat <axis = -3> (b, a, c)", 0),
        ("j = Concat <axis = 1> (a, a, b)", 1),  # which has two places
        ("i = Concat <axis = 1> (a, b) j = Concat <axis = 1> (c, i)", 0),
        ("i = Concat <axis = 1> (a, b) j = Concat <axis = 1> (i, c, a)", 1),
        ("s = Split <num_outputs = 2, axis = 1> (a) j = Concat <axis = 1> (s, b)", 1),
        ("s = Softmax (a) j = Concat <axis = 1> (s, b)", 1),
    ],
)
def test_what_is_joined_is_written_there(joined: str, copied: int) -> None:
    joined = joined.replace("s = Split", "s, rest = Split")
    body = f"""
        a = Conv (x, w) r = Relu (a) b = Conv (r, v) p = MaxPool <kernel_shape = [1, 1]>
        (b) c = Add (p, r) {joined} y = GlobalAveragePool (j)
    """
    found = net(body, TYPE, w=W, v=V)
    labels = found.labels()
    assert len([label for label in labels if label == "Concat"]) == copied
    found.check(X, tolerance=1e-4)


def test_what_is_joined_in_one_pixel_is_written_there() -> None:
    """Also where channels first and last are the same."""
    body = """
        a = Conv (x, w) g = GlobalAveragePool (a) b = Conv (g, v) c = Neg (b)
        j = Concat <axis = 1> (b, c) y = Conv (j, t)
    """
    found = net(body, TYPE, w=W, v=V, t=random((8, 16, 1, 1))[0])
    assert "Concat" not in found.labels()
    found.check(X, tolerance=1e-4)


def test_what_is_joined_may_be_joined_again_many_times() -> None:
    """More often than functions may call each other."""
    count = 600
    body = "\n".join(
        [
            "a = Conv (x, w) j0 = Conv (a, s)",
            *[f"j{n + 1} = Concat <axis = 1> (j{n}, b)" for n in range(count)],
            f"r = Relu (j{count}) y = GlobalAveragePool (r)",
        ]
    )
    body = body.replace("j0 =", "b = Conv (a, s) j0 =", 1)
    found = net(body, TYPE, w=W, s=random((1, 8, 1, 1))[0])
    found.check(X, tolerance=1e-4)


def test_channels_by_themselves_may_have_several_filters() -> None:
    body = "a = Conv (x, w) b = Conv <group = 8> (a, u, s) y = Relu (b)"
    u, s = random((24, 1, 3, 3), (24,))
    found = net(body, TYPE, w=W, u=u, s=s)
    assert found.labels()[2:5] == ["Conv + Relu"] * 3
    found.check(X, tolerance=1e-4)


def test_squeeze_and_excitation() -> None:
    body = """
        a = Conv (x, w) r = Relu (a) m = ReduceMean (r, axes) s = Conv (m, v)
        q = Relu (s) e = Conv (q, v) g = Sigmoid (e) h = Mul (r, g) y = Conv (h, v)
    """
    found = net(body, TYPE, w=W, v=V)
    assert found.labels()[1:-1] == [
        "Conv + Relu",
        "ReduceMean",
        "Conv + Relu",
        "Conv + Sigmoid",
        "Mul",
        "Conv",
    ]
    found.check(X, tolerance=1e-4)


def test_a_reshaped_result_takes_its_chain() -> None:
    body = """
        a = Conv (x, w) r = Reshape (a, shape) y = Add (r, z)
    """
    found = net(
        body,
        f"{TYPE}, float[2, 2, 4, 4, 3] z",
        "int64[5] shape = {2, 2, 4, 4, 3}",
        w=W,
    )
    found.check(X, *random((2, 2, 4, 4, 3)), tolerance=1e-4)


def test_weights_may_be_computed() -> None:
    body = "u = Exp (w) y = Conv (x, u) z = Neg (u)"
    found = net(body, f"{TYPE}, float[8, 5, 3, 3] w", outputs="y z")
    found.check(X, W, tolerance=1e-4)


def test_outputs_are_as_their_shapes_say() -> None:
    body = "a = Conv (x, w) y = Relu (a) z = Conv (y, v)"
    found = net(body, TYPE, outputs="a y z", w=W, v=V)
    for result in found.check(X, tolerance=1e-4):
        assert result.flags.c_contiguous


@pytest.mark.parametrize("channels", [1024, 2048])
def test_pixels_of_whole_pages_do_not_evict_each_other(channels: int) -> None:
    body = "a = Conv (x, w) r = Relu (a) y = Conv (r, v)"
    found = net(
        body,
        f"float[1, 8, 3, 3] x, float[{channels}, 8, 1, 1] w, "
        f"float[4, {channels}, 1, 1] v",
    )
    x, w, v = random((1, 8, 3, 3), (channels, 8, 1, 1), (4, channels, 1, 1))
    found.check(x, w, v / math.sqrt(channels), tolerance=1e-4)


# new shapes


def test_images_of_all_sizes_need_few_structures() -> None:
    text = graph(
        "float[N, 3, H, W] x, float[8, 3, 3, 3] w, float[8, 8, 3, 3] v",
        "float[] y",
        """
        a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w) r = Relu (a)
        c = Conv <auto_pad = "SAME_UPPER"> (r, v) s = Add (c, r) t = Relu (s)
        d = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (t, v)
        y = Sigmoid (d)
        """,
    )
    found = lowered(text)
    weights = random((8, 3, 3, 3), (8, 8, 3, 3))
    numbers = np.random.default_rng(0)
    shapes = [(0, 3, 4, 4), (1, 3, 1, 1), (2, 3, 1, 6)] + [
        (int(n), 3, int(h), int(w))
        for n, h, w in numbers.integers([1, 1, 1], [4, 20, 20], (20, 3))
    ]
    with compared_with_fresh_plans():
        for shape in shapes:
            found.check(*random(shape), *weights, tolerance=1e-4)
    (partition,) = found.session.explain().partitions
    assert partition.counts["structures"] <= 4


def test_what_is_joined_has_its_place_for_all_shapes() -> None:
    text = graph(
        "float[N, 3, H, W] x, float[4, 3, 1, 1] w, float[4, 4, 1, 1] v, "
        "float[2, 8, 3, 3] q, float[M] z",
        "float[] y, float[] u",
        """
        a = Conv (x, w) b = Relu (a) t = Add (z, z) c = Conv (b, v) d = Neg (c)
        i = Concat <axis = 1> (b, d) e = Sigmoid (i) f = MaxPool <kernel_shape = [1, 1]>
        (e) j = Concat <axis = 1> (f, b, i) y = ReduceMax (j) s = ReduceMax (t)
        k = Mul (d, s) l = Concat <axis = 1> (k, d)
        u = Conv <pads = [1, 1, 1, 1]> (l, q)
        """,
    )
    found = lowered(text)
    weights = random((4, 3, 1, 1), (4, 4, 1, 1), (2, 8, 3, 3))
    choose = np.random.default_rng(1)
    shape, size = (1, 3, 2, 2), 3
    with compared_with_fresh_plans():
        for _ in range(40):
            change = choose.integers(3)
            if change != 1:
                size = int(choose.integers(1, 9))
            if change:
                n, h, w = choose.integers([0, 1, 1], [4, 6, 6])
                shape = (int(n), 3, int(h), int(w)) if change == 1 or n else shape
            found.check(*random(shape), *weights, *random((size,)), tolerance=1e-4)


# what is left to arrays, or refused


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        # 81 contractions
        ("ConvTranspose", "strides = [9, 9]"),
        # a padded input of which nearly all is zero
        ("Conv", "strides = [1, 99999], pads = [0, 99999, 0, 99999]"),
    ],
)
def test_odd_convolutions_are_left_to_arrays(operator: str, attributes: str) -> None:
    x, w = (1, 2, 4, 4), (2, 2, 3, 3)
    types = ", ".join(
        f"float[{', '.join(map(str, shape))}] {name}"
        for name, shape in (("x", x), ("w", w))
    )
    body = f"y = {operator} <{attributes}> (x, w)"
    found = lowered(graph(types, "float[] y", body))
    assert found.tiers() == {"array": 1}
    found.check(*random(x, w), tolerance=1e-4)


# memory

_GUARDED = """
import os, sys
from plugins.cpu.tests.compiler.guarded import Guarded
from plugins.cpu.tests.compiler.random_convolutions import random_case
from plugins.cpu.tests.compiler.differential import session
import numpy as np

for seed in range(*map(int, sys.argv[1].split(":"))):
    case = random_case(seed)
    print(seed, flush=True)
    (expected,) = session(case.model, compiled=False).run(None, case.feeds)
    for at_end in (True, False):
        found = Guarded(case.model, at_end=at_end, threads=1 + seed % 2)
        (result,) = found.run(None, case.feeds)
        np.testing.assert_allclose(result, expected, 1e-4, 1e-4)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif("sys.platform != 'linux'")
def test_convolutions_stay_within_their_buffers() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _GUARDED, "1000:1040"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
