"""Partitions on torch's CPU: options, errors, and the arrays at their border."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import NodeError, OptionError

Parse = Callable[..., onnx.ModelProto]
Alone = Callable[..., onnxplug.InferenceSession]

NET = """
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[n, 3, h, w] x) => (float[n, 4] y)
    <float[4, 3, 3, 3] f, float[4] b, float[4, 4] m, float[4] c>
    {
        image = Conv <pads = [1, 1, 0, 0], strides = [2, 1]> (x, f, b)
        positive = Relu (image)
        mean = GlobalAveragePool (positive)
        rows = Flatten (mean)
        product = MatMul (rows, m)
        y = Add (product, c)
    }
"""


def net() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NET)
    draw = np.random.default_rng(0)
    shapes = {"f": (4, 3, 3, 3), "b": (4,), "m": (4, 4), "c": (4,)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    )
    return model


def image(height: int = 9, width: int = 7) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(1)
    return draw.normal(size=(2, 3, height, width)).astype(np.float32)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-5),
        ({"channels_last": True}, 1e-5),
        ({"num_threads": 1}, 1e-5),
        ({"dtype": "float16"}, 1e-2),
        ({"dtype": "bfloat16"}, 5e-2),
    ],
    ids=str,
)
def test_a_network_under_options(
    alone: Alone, options: dict[str, Any], tolerance: float
) -> None:
    session = alone(net(), **options)
    for height, width in ((9, 7), (4, 4)):
        x = image(height, width)
        (wanted,) = ReferenceEvaluator(net()).run(None, {"x": x})
        (found,) = session.run(None, {"x": x})
        assert found.dtype == np.float32
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=tolerance * abs(wanted).max()
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("last", [True, False])
def test_dtype_and_layout_are_those_that_torch_computes_in(
    torch: Any, alone: Alone, dtype: str, last: bool
) -> None:
    seen = []
    function = torch.nn.functional.conv2d

    def convolve(*arguments: Any, **named: Any) -> Any:
        seen.extend(arguments[:2])
        return function(*arguments, **named)

    session = alone(net(), dtype=dtype, channels_last=last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "conv2d", convolve)
        session.run(None, {"x": image()})
    assert [each.dtype for each in seen] == [getattr(torch, dtype)] * 2
    for each in seen:
        assert each.is_contiguous(memory_format=torch.channels_last) == last


def test_threads_are_those_of_the_option_or_of_the_session(torch: Any) -> None:
    before = torch.get_num_threads()
    try:
        for options, of_session, wanted in (
            ({"num_threads": 1}, 2, 1),
            ({}, 2, 2),
            ({}, 0, 2),
        ):
            settings = onnxplug.SessionOptions()
            settings.intra_op_num_threads = of_session
            onnxplug.InferenceSession(net(), settings, providers=[("torch", options)])
            assert torch.get_num_threads() == wanted
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, of its own parts
def test_a_network_by_torch_compile(alone: Alone) -> None:
    session = alone(net(), compile=True)
    for height, width in ((9, 7), (9, 7), (4, 4)):
        x = image(height, width)
        (wanted,) = ReferenceEvaluator(net()).run(None, {"x": x})
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * abs(wanted).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, of its own parts
@pytest.mark.parametrize("compiled", [False, True])
def test_what_torch_lacks_is_computed_by_kernels(
    alone: Alone, parse: Parse, compiled: bool
) -> None:
    model = parse(
        """
        shape = Shape (x)
        positive = Relu (x)
        u, first = Unique <sorted = 1> (positive)
        y = Neg (u)
        z = CenterCropPad <axes = [1]> (positive, wide)
        """,
        "float[n, 3] x",
        "float[m] y, int64[m] first, int64[2] shape, float[n, 5] z",
        weights="int64[1] wide = {5}",
    )
    session = alone(model, compile=compiled)
    for rows in (2, 4):
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        wanted = ReferenceEvaluator(model).run(None, {"x": x})
        for found, right in zip(session.run(None, {"x": x}), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


def test_what_fails_under_compile_names_its_node(alone: Alone, parse: Parse) -> None:
    session = alone(
        parse("i = Identity (x)\n y = Reshape (i, s)", "float[6] x, int64[2] s",
              "float[a, b] y"),
        compile=True,
    )  # fmt: skip
    feed = {"x": np.arange(6, dtype=np.float32), "s": np.array([4, 4])}
    with pytest.raises(NodeError, match="Reshape"):
        session.run(None, feed)


def test_compile_without_a_compiler_is_refused_with_the_remedy(
    torch: Any, alone: Alone
) -> None:
    inductor = pytest.importorskip("torch._inductor.config")
    with (
        inductor.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(OptionError, match=r"C\+\+ compiler.*install g\+\+"),
    ):
        alone(net(), compile=True)


def test_options_that_contradict_each_other(alone: Alone) -> None:
    with pytest.raises(OptionError, match="compile_mode"):
        alone(net(), compile_mode="max-autotune")
    with pytest.raises(OptionError, match="exclude"):
        alone(net(), compile=True, cuda_graphs=True)
    with pytest.raises(OptionError, match="CUDA and ROCm"):
        alone(net(), cuda_graphs=True)


ATTENTION = """
    <ir_version: 10, opset_import: ["" : 21]>
    attend (float[b, 2, q, 8] q, float[b, 2, 8, k] k, float[b, 2, k, 8] v,
            float[b, 1, 1, k] mask) => (float[b, 2, q, 8] y)
    <float scale = {0.25}>
    {
        scores = MatMul (q, k)
        scaled = Mul (scores, scale)
        masked = Add (scaled, mask)
        weights = Softmax <axis = -1> (masked)
        y = MatMul (weights, v)
    }
"""


def test_attention_is_one_step_and_right(torch: Any, alone: Alone) -> None:
    model = onnx.parser.parse_model(ATTENTION)
    draw = np.random.default_rng(2)
    feed = {
        "q": draw.normal(size=(3, 2, 5, 8)),
        "k": draw.normal(size=(3, 2, 8, 6)),
        "v": draw.normal(size=(3, 2, 6, 8)),
        "mask": np.where(draw.random((3, 1, 1, 6)) < 0.3, -1e4, 0.0),
    }
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    called = []
    function = torch.nn.functional.scaled_dot_product_attention

    def attend(*arguments: Any, **named: Any) -> Any:
        called.append(named)
        return function(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        (found,) = alone(model).run(None, feed)
    assert called == [{"scale": 0.25}]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_read_elsewhere_is_not_fused(alone: Alone) -> None:
    model = onnx.parser.parse_model(ATTENTION)
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("weights", 1, ["b", 2, "q", "k"])
    )
    draw = np.random.default_rng(2)
    feed = {
        "q": draw.normal(size=(1, 2, 5, 8)).astype(np.float32),
        "k": draw.normal(size=(1, 2, 8, 6)).astype(np.float32),
        "v": draw.normal(size=(1, 2, 6, 8)).astype(np.float32),
        "mask": np.zeros((1, 1, 1, 6), np.float32),
    }
    wanted = ReferenceEvaluator(model).run(None, feed)
    for found, right in zip(alone(model).run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_quotients_that_trap_on_processors(
    alone: Alone, parse: Parse, dtype: str
) -> None:
    model = parse(
        "q = Div (x, y)\n m = Mod (x, y)",
        f"{dtype}[n] x, {dtype}[n] y",
        f"{dtype}[n] q, {dtype}[n] m",
    )
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.min, limits.max, -7, -7, 7], dtype)
    y = np.array([-1, 2, -1, 2, -2, 1], dtype)
    quotient, rest = alone(model).run(None, {"x": x, "y": y})
    whole = [int(a) for a in x], [int(b) for b in y]
    wanted = [
        int(abs(a) // abs(b) * (1 if a * b > 0 else -1))
        for a, b in zip(*whole, strict=True)
    ]
    least, size = limits.min, limits.max - limits.min + 1
    wrapped = [(each - least) % size + least for each in wanted]
    np.testing.assert_array_equal(quotient, np.array(wrapped, dtype))
    np.testing.assert_array_equal(rest, [a % b for a, b in zip(*whole, strict=True)])


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_of_more_than_a_byte(
    alone: Alone, parse: Parse, dtype: str
) -> None:
    operators = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Less", "Greater")
    names = [op.lower() for op in operators]
    body = "\n".join(
        f"{n} = {op} (x, y)" for n, op in zip(names, operators, strict=True)
    )
    outputs = ", ".join(
        f"{'bool' if n in ('less', 'greater') else dtype}[n] {n}" for n in names
    )
    model = parse(body, f"{dtype}[n] x, {dtype}[n] y", outputs)
    draw = np.random.default_rng(3)
    top = np.iinfo(dtype).max
    x, y = (draw.integers(1, top, 50, dtype, endpoint=True) for _ in range(2))
    x[:2], y[:2] = (top, 0), (1, top)
    wanted = [
        x + y, x - y, x * y, x // y, x % y, np.maximum(x, y), np.minimum(x, y), x < y,
        x > y,
    ]  # fmt: skip
    for name, found, right in zip(
        names, alone(model).run(None, {"x": x, "y": y}), wanted, strict=True
    ):
        np.testing.assert_array_equal(found, right, err_msg=name)


def test_an_index_outside_is_an_error_of_the_node(alone: Alone, parse: Parse) -> None:
    model = parse("y = Gather (x, i)", "float[4] x, int64[n] i", "float[n] y")
    session = alone(model)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(
        session.run(None, {"x": x, "i": np.array([-1, 0])})[0], [3, 0]
    )
    for index in (4, -5, 2**40):
        with pytest.raises(NodeError, match="Gather"):
            session.run(None, {"x": x, "i": np.array([index])})


def test_feeds_of_any_strides_and_read_only_ones(alone: Alone, parse: Parse) -> None:
    session = alone(parse("y = Neg (x)", "float[n, m] x", "float[n, m] y"))
    whole = np.arange(48, dtype=np.float32).reshape(6, 8)
    read_only = whole.copy()
    read_only.flags.writeable = False
    for x in (whole, whole[::2, ::3], whole.T, whole[::-1, ::-1], read_only, whole[:0]):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)


def test_shapes_of_several_orders_are_computed_as_the_reference_does(
    alone: Alone, parse: Parse
) -> None:
    model = parse(
        """
        shape = Shape (x)
        parts, tail = Split <axis = 0> (shape, twos)
        first = Slice (shape, zero, one, zero)
        backwards = Slice (shape, last, low, zero, minus)
        whole = ReduceProd <keepdims = 0> (parts)
        size = Size (x)
        rest = Div (size, whole)
        is_one = Equal (first, one)
        chosen = Where (is_one, one, minus)
        ends = Concat <axis = 0> (chosen, tail)
        y = Reshape (x, ends)
        z = ConstantOfShape (backwards)
        r = Cast <to = 7> (rest)
        """,
        "float[a, b, c, d] x",
        "float[e, f, g] y, float[d1, c1, b1, a1] z, int64 r",
        weights="int64[2] twos = {2, 2}, int64[1] zero = {0}, int64[1] one = {1}, "
        "int64[1] last = {-1}, int64[1] low = {-99}, int64[1] minus = {-1}",
    )
    session = alone(model)
    for shape in ((2, 3, 4, 5), (1, 1, 2, 2)):
        feed = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
        wanted = ReferenceEvaluator(model).run(None, feed)
        for found, right in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_array_equal(found, right)
