"""Models on an adapter, as those who run them see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x: Any) -> Any:
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def places(session: onnxplug.InferenceSession) -> dict[str, str]:
    return {node.op_type: node.ep for node in session.explain().nodes}


def test_a_classifier_runs_wholly_on_the_device(alone: Any, parse: Any) -> None:
    w, b = normal(40, 7), normal(7)
    model = parse(
        "h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = Softmax(r)",
        "float[5, 40] x",
        "float[5, 7] y",
    )
    for name, array in (("w", w), ("b", b)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = alone(model)
    x = normal(5, 40)
    (found,) = session.run(None, {"x": x})
    wide = x.astype(np.float64) @ w + b
    np.testing.assert_allclose(found, softmax(np.maximum(wide, 0)), 1e-5, 1e-6)
    report = str(session.explain())
    assert "4 nodes: 4 on WebGpuExecutionProvider" in report
    assert "copy x: host → webgpu:0, 800 bytes" in report
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_what_it_does_not_compute_is_for_the_next_ep(beside: Any, parse: Any) -> None:
    session = beside(
        parse(
            "s = Det(x) y = Relu(s) d = Cast<to=11>(x) z = Add(d, d)",
            "float[3, 3] x",
            "float y, double[3, 3] z",
        )
    )
    assert places(session) == {
        "Det": "CPUExecutionProvider",
        "Relu": EP,
        "Cast": "CPUExecutionProvider",
        "Add": "CPUExecutionProvider",
    }
    x = normal(3, 3)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(
        y, np.maximum(np.linalg.det(x.astype(np.float64)), 0), 1e-5
    )
    np.testing.assert_array_equal(z, 2 * x.astype(np.float64))
    assert "Det×1 (op: " in str(session.explain())


def test_nodes_that_an_option_names_are_for_the_next_ep(
    beside: Any, parse: Any
) -> None:
    model = parse("r = Relu(x) y = Neg(r)")
    model.graph.node[1].name = "left"
    session = beside(model, forceCpuNodeNames="other\nleft")
    assert places(session) == {"Relu": EP, "Neg": "CPUExecutionProvider"}
    assert "forceCpuNodeNames" in str(session.explain())


def test_an_adapter_that_is_not_there_is_an_error(alone: Any, parse: Any) -> None:
    with pytest.raises(onnxplug.errors.OptionError, match=r"'deviceId' is 99.*found 0"):
        alone(parse("y = Relu(x)"), deviceId=99)


def test_sizes_that_change_have_plans_of_their_own(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "a = Relu(x) r = Reshape(a, t) q = Transpose<perm=[1, 0]>(r) "
            "y = Add(q, one) m = ReduceMean<keepdims=0>(y, axes)",
            "float[N, 6] x",
            "float[6, N] y, float[N] m",
            weights="int64[2] t = {-1, 6}, float one = {1}, int64[1] axes = {0}",
        )
    )
    for n in (3, 70, 1, 0, 3):
        x = normal(n, 6)
        y, m = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.maximum(x, 0).T + 1, 1e-6)
        np.testing.assert_allclose(m, (np.maximum(x, 0).T + 1).mean(0), 1e-5)
    (partition,) = session.explain().partitions
    assert partition.counts["plans"] == 4


def test_contents_that_a_run_brings_have_plans_of_their_own(
    alone: Any, parse: Any
) -> None:
    """Also where all sizes are as before."""
    session = alone(
        parse(
            "e = Identity(x) s = Slice(e, begin, end) p = Pad(s, pads) "
            "r = ReduceSum<keepdims = 0>(x, axis) y = Sub(p, r)",
            "float[5, 5] x, int64[2] begin, int64[2] end, int64[4] pads, int64[1] axis",
            "float[A, 5] y",
        )
    )
    x = normal(5, 5)
    for (row, column), before, axis in [
        ((0, 0), 0, 0),
        ((1, 2), 1, 1),
        ((2, 1), 2, 0),
        ((0, 0), 0, 0),
    ]:
        part = x[row : row + 3, column : column + 3]
        wanted = np.pad(part, ((0, 0), (before, 2 - before))) - x.sum(axis)
        feeds = {
            "x": x,
            "begin": np.array([row, column]),
            "end": np.array([row + 3, column + 3]),
            "pads": np.array([0, before, 0, 2 - before]),
            "axis": np.array([axis]),
        }
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted, 0, 4e-6)


def test_what_is_not_computed_for_some_sizes_is_on_the_host_then(
    alone: Any, parse: Any
) -> None:
    model = parse(
        "a = Relu(x) m = ReduceMean<keepdims=0>(a, axes) y = Neg(m)",
        "float[N, 3] x",
        "float[3] y",
        weights="int64[1] axes = {0}",
    )
    session = alone(model)
    on_cpu = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = normal(4, 3)
    expected = -np.maximum(x, 0).mean(0)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, 1e-5)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}
    empty = session.run(None, {"x": x[:0]})[0]
    np.testing.assert_array_equal(empty, on_cpu.run(None, {"x": x[:0]})[0])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, 1e-5)
    (node,) = (n for n in session.explain().nodes if n.tier == "host")
    assert node.op_type == "ReduceMean" and "no elements" in node.note


def test_arithmetic_of_shapes_is_on_the_host(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "s = Shape(x) n = Gather(s, first) r = Relu(x)",
            "float[N, 3] x",
            "float[N, 3] r, int64[1] n",
            weights="int64[1] first = {0}",
        )
    )
    x = normal(4, 3)
    r, n = session.run(None, {"x": x})
    np.testing.assert_array_equal(r, np.maximum(x, 0))
    np.testing.assert_array_equal(n, [4])
    nodes = {node.op_type: node for node in session.explain().nodes}
    assert nodes["Shape"].tier == nodes["Gather"].tier == "host"
    assert "shapes" in nodes["Gather"].note
    assert nodes["Relu"].tier == "compiled"


def test_an_index_out_of_range_names_the_node(alone: Any, parse: Any) -> None:
    model = parse("y = Gather(x, i)", "float[4, 3] x, int64[K] i", "float[K, 3] y")
    model.graph.node[0].name = "lookup"
    session = alone(model)
    x = normal(4, 3)
    for index in ([0, -1, 3, -4], []):
        i = np.array(index, np.int64)
        np.testing.assert_array_equal(session.run(None, {"x": x, "i": i})[0], x[i])
    for wrong in (4, -5, 2**32, -(2**40), 2**31):
        with pytest.raises(onnxplug.errors.NodeError, match=r"lookup.*out of range"):
            session.run(None, {"x": x, "i": np.array([0, wrong])})
    # and the session is as it was
    np.testing.assert_array_equal(
        session.run(None, {"x": x, "i": np.array([2])})[0], x[2:3]
    )


@pytest.mark.parametrize("dtype", "bool int8 uint16 float16 int64 double".split())
def test_elements_of_all_sizes_move(alone: Any, parse: Any, dtype: str) -> None:
    """Also those that share a word with others."""
    session = alone(
        parse(
            "t = Transpose<perm=[2, 0, 1]>(x) s = Slice(t, one, end, axis) "
            "c = Concat<axis=0>(s, s, t) y = Tile(c, repeats)",
            f"{dtype}[3, 5, 4] x",
            f"{dtype}[10, 6, 5] y",
            weights="int64[1] one = {1}, int64[1] end = {9}, int64[1] axis = {0}, "
            "int64[3] repeats = {1, 2, 1}",
        )
    )
    kind = "float64" if dtype == "double" else dtype
    x = RNG.integers(0, 100, (3, 5, 4)).astype(kind)
    t = x.transpose(2, 0, 1)
    expected = np.tile(np.concatenate([t[1:], t[1:], t]), (1, 2, 1))
    found = session.run(None, {"x": x})[0]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (5, 40, 7), (33, 17, 65), (130, 96, 40), (3, 0, 4)]
)
def test_products_of_all_tiles(alone: Any, parse: Any, m: int, k: int, n: int) -> None:
    session = alone(
        parse(
            "h = MatMul(a, b) s = Add(h, c) y = Sigmoid(s)",
            f"float[2, {m}, {k}] a, float[2, {k}, {n}] b, float[{n}] c",
            f"float[2, {m}, {n}] y",
        )
    )
    a, b, c = normal(2, m, k), normal(2, k, n), normal(n)
    wide = a.astype(np.float64) @ b.astype(np.float64) + c
    found = session.run(None, {"a": a, "b": b, "c": c})[0]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-wide)), 1e-5, 1e-6)


def test_a_long_sum_of_products_keeps_its_precision(alone: Any, parse: Any) -> None:
    """In one chain of additions it would be off by 8e-7."""
    session = alone(
        parse(
            "y = MatMul(a, b)",
            "float[40, 2048] a, float[2048, 40] b",
            "float[40, 40] y",
        )
    )
    a, b = normal(40, 2048), normal(2048, 40)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    error = session.run(None, {"a": a, "b": b})[0] - wide
    assert np.sqrt(np.square(error).mean()) < 3e-7 * np.sqrt(np.square(wide).mean())


@pytest.mark.parametrize("length", [1, 5, 64, 200])
def test_rows_of_all_lengths(alone: Any, parse: Any, length: int) -> None:
    session = alone(
        parse(
            "s = Softmax(x) l = LogSoftmax<axis=1>(x) n = LayerNormalization(x, w, b) "
            "m = ReduceMax(x, axes)",
            f"float[2, 3, {length}] x, float[{length}] w, float[{length}] b",
            f"float[2, 3, {length}] s, float[2, 3, {length}] l, "
            f"float[2, 3, {length}] n, float[1, 3, 1] m",
            weights="int64[2] axes = {0, 2}",
        )
    )
    x, w, b = normal(2, 3, length), normal(length), normal(length)
    x[0, 0, 0] = 80
    s, logarithm, n, m = session.run(None, {"x": x, "w": w, "b": b})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(s, softmax(wide), 1e-5, 1e-7)
    turned = np.log(softmax(wide.transpose(0, 2, 1))).transpose(0, 2, 1)
    np.testing.assert_allclose(logarithm, turned, 1e-5, 1e-5)
    middle, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    expected = (wide - middle) / np.sqrt(variance + 1e-5) * w + b
    np.testing.assert_allclose(n, expected, 1e-4, 1e-4)
    np.testing.assert_array_equal(m, x.max((0, 2), keepdims=True))


def test_values_stay_on_the_device(alone: Any, parse: Any) -> None:
    session = alone(parse("y = Add(x, x)", "float[N, 3] x", "float[N, 3] y"))
    x = normal(4, 3)
    value = onnxplug.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
    assert value.device_name() == "webgpu"
    np.testing.assert_array_equal(value.numpy(), x)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "webgpu")
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == "webgpu"
    np.testing.assert_array_equal(found.numpy(), 2 * x)
    room = onnxplug.OrtValue.ortvalue_from_shape_and_type([4, 3], np.float32, "webgpu")
    binding.bind_ortvalue_output("y", room)
    binding.bind_ortvalue_input("x", found)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(room.numpy(), 4 * x)
    # an array that is read and written
    binding.bind_ortvalue_input("x", room)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(room.numpy(), 8 * x)


def test_threads_do_not_see_each_others_values(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "a = Relu(x) h = MatMul(a, w) y = Softmax(h)",
            "float[N, 6] x",
            "float[N, 6] y",
            weights="float[6, 6] w = {"
            + ", ".join(str(n % 7) for n in range(36))
            + "}",
        )
    )
    w = np.array([n % 7 for n in range(36)], np.float32).reshape(6, 6)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        try:
            for _ in range(10):
                x = numbers.standard_normal((int(numbers.integers(1, 9)), 6))
                x = x.astype(np.float32)
                expected = softmax(np.maximum(x, 0) @ w)
                found = session.run(None, {"x": x})[0]
                np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_every_step_is_what_the_cpu_ep_computes(
    alone: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    """Also of what is infinite, or no number."""
    one = (
        "Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Relu LeakyRelu Shrink "
        "ThresholdedRelu HardSigmoid HardSwish Softsign Elu Selu Celu Mish Softplus "
        "Gelu Exp Log Erf Tanh Sigmoid"
    ).split()
    two = "Add Sub Mul Div Pow Max Min PRelu".split()
    body = [f"o{n} = {name}(x)" for n, name in enumerate(one)]
    body += [f"p{n} = {name}(x, z)" for n, name in enumerate(two)]
    names = [f"o{n}" for n in range(len(one))] + [f"p{n}" for n in range(len(two))]
    model = parse(
        " ".join(body),
        "float[400] x, float[400] z",
        ", ".join(f"float[400] {name}" for name in names),
    )
    x = (normal(400) * 10 ** RNG.uniform(-3, 2, 400)).astype(np.float32)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 88, -88, 1, -1, 3, -2, 0.5, 1e-30]
    # every one of them with every other
    x[: len(special) ** 2] = np.repeat(special, len(special))
    z = RNG.permutation(x)
    z[: len(special) ** 2] = np.tile(special, len(special))
    feeds = {"x": x, "z": z}
    expected = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    found = alone(model).run(None, feeds)
    for name, ours, theirs in zip([*one, *two], found, expected, strict=True):
        np.testing.assert_allclose(
            ours, theirs, 2e-5 if name != "Pow" else 2e-4, 2e-6, err_msg=name
        )


def test_tangents_arcs_and_hyperbolic_functions(alone: Any, parse: Any) -> None:
    functions = {
        "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan,
        "Sinh": np.sinh, "Cosh": np.cosh, "Asinh": np.arcsinh, "Acosh": np.arccosh,
        "Atanh": np.arctanh,
    }  # fmt: skip
    session = alone(
        parse(
            " ".join(f"o{name} = {name}(x)" for name in functions),
            "float[N] x",
            ", ".join(f"float[N] o{name}" for name in functions),
        )
    )
    x = np.concatenate(
        [
            10 ** RNG.uniform(-30, 38, 500) * RNG.choice([-1, 1], 500),
            RNG.uniform(-1, 1, 500),
            RNG.uniform(-89, 89, 500),
            1 + RNG.uniform(-1, 1, 500) ** 5,
            [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 1e9, 3.4e38],
        ]
    ).astype(np.float32)
    for found, name in zip(session.run(None, {"x": x}), functions, strict=True):
        with np.errstate(all="ignore"):
            wanted = functions[name](x.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-37, err_msg=name)


def test_rests_of_floats_are_exact(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "c = Mod<fmod=1>(x, z) p = Mod(x, z)",
            "float[N] x, float[N] z",
            "float[N] c, float[N] p",
            opset=26,
        )
    )
    special = [0, -0.0, 1, -1, 0.5, 3, -7, np.inf, -np.inf, np.nan, 1e30, -3e38, 1e-38]
    count = len(special)
    signs, powers = RNG.choice([-1, 1], (2, 1000)), RNG.uniform(-37, 38, (2, 1000))
    x, z = (signs * 10**powers).astype(np.float32)
    x = np.concatenate([np.repeat(special, count), x]).astype(np.float32)
    z = np.concatenate([np.tile(special, count), z]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, z), np.mod(x, z)
    for found, wanted in zip(
        session.run(None, {"x": x, "z": z}), expected, strict=True
    ):
        normal = (np.abs(wanted) >= 1.2e-38) | (wanted == 0) | np.isnan(wanted)
        np.testing.assert_array_equal(found[normal], wanted[normal])


def test_hardmax_and_dropout(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "y = Hardmax<axis=1>(x) d, m = Dropout(x)",
            "float[A, B] x",
            "float[A, B] y, float[A, B] d, bool[A, B] m",
        )
    )
    for shape in ((3, 5), (1, 1), (2, 100), (0, 3)):
        x = RNG.integers(0, 4, shape).astype(np.float32)
        y, d, m = session.run(None, {"x": x})
        places = np.arange(shape[1]) == (x.argmax(1) if x.size else x[:, 0])[:, None]
        np.testing.assert_array_equal(y, places.astype(np.float32))
        np.testing.assert_array_equal(d, x)
        assert m.all() and m.shape == shape


def test_bits_are_shifted(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            'l = BitShift<direction="LEFT">(x, n) '
            'r = BitShift<direction="RIGHT">(x, n)',
            "uint32[7] x, uint32[7] n",
            "uint32[7] l, uint32[7] r",
        )
    )
    x, n = np.full(7, 0x80000005, np.uint32), [0, 1, 5, 31, 32, 33, 2**32 - 1]
    left, right = session.run(None, {"x": x, "n": np.array(n, np.uint32)})
    value = int(x[0])
    wanted = [value << k & 0xFFFFFFFF if k < 32 else 0 for k in n]
    np.testing.assert_array_equal(left, wanted)
    np.testing.assert_array_equal(right, [value >> min(k, 32) for k in n])


def test_integers_of_64_bits_are_exact(alone: Any, parse: Any) -> None:
    session = alone(
        parse(
            "a = Add(x, z) s = Sub(x, z) m = Mul(x, z) n = Neg(x) h = Max(x, z) "
            "l = Min(x, z) e = Equal(x, z) o = Less(x, z) g = GreaterOrEqual(x, z) "
            "w = Where(o, x, z) f = Cast<to=1>(x) i = Cast<to=6>(x) b = Cast<to=9>(x) "
            "t = Cast<to=7>(i) u = Cast<to=7>(b) p = Add(x, one)",
            "int64[K] x, int64[K] z",
            "int64[K] a, int64[K] s, int64[K] m, int64[K] n, int64[K] h, int64[K] l, "
            "bool[K] e, bool[K] o, bool[K] g, int64[K] w, float[K] f, int32[K] i, "
            "bool[K] b, int64[K] t, int64[K] u, int64[K] p",
            weights="int64 one = {-5000000000}",
        )
    )
    special = [0, 1, -1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
    special += [2**24 + 1, 2**24 + 3, (2**24 + 1) << 20, ((2**24 + 1) << 20) + 1]
    count = len(special)
    x = np.concatenate(
        [np.repeat(special, count), RNG.integers(-(2**63), 2**63 - 1, 500)]
    ).astype(np.int64)
    z = np.concatenate([np.tile(special, count), x[count**2 :] >> 11]).astype(np.int64)
    with np.errstate(over="ignore"):
        expected = [
            x + z, x - z, x * z, -x, np.maximum(x, z), np.minimum(x, z), x == z, x < z,
            x >= z, np.where(x < z, x, z), x.astype(np.float32), x.astype(np.int32),
            x != 0, x.astype(np.int32).astype(np.int64), (x != 0).astype(np.int64),
            x - 5000000000,
        ]  # fmt: skip
    for ours, theirs in zip(session.run(None, {"x": x, "z": z}), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_sines_of_any_angle(alone: Any, parse: Any) -> None:
    session = alone(
        parse("s = Sin(x) c = Cos(x)", "float[N] x", "float[N] s, float[N] c")
    )
    x = 10 ** RNG.uniform(-6, 38, 4000) * RNG.choice([-1, 1], 4000)
    x = x.astype(np.float32)
    # the nearest one to a multiple of a quarter turn, the largest, and both branches
    x[:6] = [16367173 * 2.0**72, np.finfo(np.float32).max, 0, 1023.9999, 1024, -1024]
    s, c = session.run(None, {"x": x})
    np.testing.assert_allclose(s, np.sin(x.astype(np.float64)), 0, 2e-7)
    np.testing.assert_allclose(c, np.cos(x.astype(np.float64)), 0, 2e-7)
    none = session.run(None, {"x": np.array([np.inf, -np.inf, np.nan], np.float32)})
    assert np.isnan(none).all()
