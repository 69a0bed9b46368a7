"""Kernels in CUDA C++: what they compute, on a processor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import (
    contractions,
    elementwise,
    indexing,
    movement,
    reductions,
    rows,
    sums,
)
from onnxplug_compiler.gpu.render.cuda import CUDA
from onnxplug_compiler.gpu.render.steps import supports
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Step
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_testing.cuda_on_cpu import KernelFault

from .attention_samples import attended, cached
from .cuda_on_cpu import Processor, Rendered
from .operator_samples import OPERATOR_SAMPLES
from .tensor_samples import TENSOR_SAMPLES, Making, elsewhere, tensor_product, vectored

F32 = np.dtype(np.float32)
RNG = np.random.default_rng(0)


class Sample(NamedTuple):
    """What was recorded, and what it has to give."""

    recorder: Recorder[Any]
    found: list[View]
    expected: list[np.ndarray[Any, Any]]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


# chains

EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -3e4, 88.0], np.float32)
FLOATS = np.concatenate([normal(40) * 3, EDGES])
LONG = (2**40 + 5, -(2**60) - 3, 2**63 - 1, -(2**63), 2**32, -(2**32) - 1)
INTEGERS = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 123456789], np.int32)

UNARY = (
    "Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Relu LeakyRelu ThresholdedRelu "
    "Shrink HardSigmoid HardSwish Softsign Elu Selu Celu Mish Softplus Gelu Exp Log "
    "Erf Tanh Sigmoid Sin Cos IsNaN IsInf"
).split()
OF_FLOATS = [(name, 1) for name in UNARY] + [
    (name, 2) for name in "Add Sub Mul Div Pow Max Min PRelu Less Equal".split()
]
OF_DOUBLES = [
    *(each for each in OF_FLOATS if each != ("Mod", 2)),
    *((name, 1) for name in "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh".split()),
]
OF_INTEGERS = [(name, 1) for name in "Neg Abs Sign BitwiseNot".split()] + [
    (name, 2) for name in "Add Sub Mul Max Min Mod BitwiseAnd BitwiseOr Greater".split()
]


def reference(operator: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """As ONNX's evaluator has it, in float64 where that is given floats."""
    names = [f"x{n}" for n in range(len(arrays))]
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    node = onnx.helper.make_node(operator, names, ["y"])
    if operator == "IsInf":  # the evaluator asks for attributes
        return np.isinf(arrays[0])
    if operator in ("Erf", "Gelu"):  # which it computes in float32
        erf = np.vectorize(math.erf)
        of = wide[0]
        with np.errstate(all="ignore"):
            if operator == "Erf":
                return erf(of)
            return 0.5 * of * (1 + erf(of * math.sqrt(0.5)))
    if operator == "PRelu":  # it multiplies 0 by the slope, too
        with np.errstate(all="ignore"):
            return np.where(wide[0] < 0, wide[0] * wide[1], wide[0])
    with np.errstate(all="ignore"):
        graph = onnx.helper.make_graph(
            [node],
            "g",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
                )
                for name, a in zip(names, wide, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info("y")],
        )
        opset = [onnx.helper.make_opsetid("", 22)]
        model = onnx.helper.make_model(graph, opset_imports=opset)
        feeds = dict(zip(names, wide, strict=True))
        return ReferenceEvaluator(model).run(None, feeds)[0]


def chain_of(steps: Sequence[tuple[str, int]], dtype: Any) -> Making:
    """Several steps of equal inputs as one chain."""

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        of_floats = np.issubdtype(dtype, np.floating)
        values = FLOATS if of_floats else INTEGERS
        if dtype == np.int64:
            values = np.concatenate([values, np.array(LONG, np.int64)])
        x = np.repeat(values, len(values)).astype(dtype)
        y = np.tile(values, len(values)).astype(dtype)
        if not of_floats:
            y = np.where(y == 0, 3, y)  # without a quotient there is no answer
        element = element_of(np.dtype(dtype))
        assert element is not None
        results, found, expected = [], [], []
        for operator, count in steps:
            wide = reference(operator, [x, y][:count])
            kind = "i1" if wide.dtype == np.bool_ else element
            assert supports(operator, [element] * count, kind, {}, wide=True), operator
            results.append(Step(operator, tuple(range(count)), kind))
            expected.append(wide)
            found.append(
                recorder.temporary(np.dtype(bool if kind == "i1" else dtype), x.shape)
            )
        chain = Chain(
            (element, element), (), tuple(results), tuple(range(2, 2 + len(results)))
        )
        views = [processor.array(x), processor.array(y)]
        elementwise.record_chain(recorder, chain, views, found)
        return found, expected

    return make


def casts(recorder: Recorder[Any], processor: Processor) -> Any:
    x = np.array([0, 1.5, -1.5, 300.25, -2e9, 2**24 + 2], np.float32)
    wide = np.array([0, -1, 2**40 + 5, -(2**60) - 3, 2**63 - 1, 7], np.int64)
    builder = ChainBuilder()
    a, b = builder.input("f32"), builder.input("i64")
    total = builder.step("Add", [b, b], "i64")
    values = [
        builder.step("Cast", [a], "i32"),
        builder.step("Cast", [total], "f32"),
        builder.step("Mul", [b, b], "i64"),
        builder.step("Less", [b, total], "i1"),
    ]
    with np.errstate(over="ignore"):
        expected = [x.astype(np.int32), (wide + wide).astype(np.float32), wide * wide]
        expected.append(wide < wide + wide)
    found = [recorder.temporary(each.dtype, x.shape) for each in expected]
    views = [processor.array(x), processor.array(wide)]
    elementwise.record_chain(recorder, builder.build(values), views, found)
    return found, expected


def doubles_cast(recorder: Recorder[Any], processor: Processor) -> Any:
    # halfway between float16s, beyond them, and what float32 would round to halfway
    near = 1 + 2.0**-11 + 2.0**-40
    x = np.array(
        [
            0.0,
            -0.0,
            1.5,
            near,
            -near,
            65519.99,
            65520.0,
            1e-7,
            -3.7,
            2**31 + 0.5,
            1e300,
        ],
        np.float64,
    )
    whole = np.array([0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 7, *range(5)], np.int64)
    builder = ChainBuilder()
    a, b = builder.input("f64"), builder.input("i64")
    kinds = {"f32": np.float32, "f16": np.float16, "i1": np.bool_}
    values = [builder.step("Cast", [a], kind) for kind in kinds]
    values.append(builder.step("Cast", [b], "f64"))
    with np.errstate(over="ignore"):
        expected = [x.astype(dtype) for dtype in kinds.values()]
    expected.append(whole.astype(np.float64))
    found = [recorder.temporary(each.dtype, x.shape) for each in expected]
    views = [processor.array(x), processor.array(whole)]
    elementwise.record_chain(recorder, builder.build(values), views, found)
    return found, expected


def doubles_truncated(recorder: Recorder[Any], processor: Processor) -> Any:
    x = np.array([0.0, -1.9, 2.0**62 + 1024, 1e19, -(2.0**63), 254.7], np.float64)
    builder = ChainBuilder()
    a = builder.input("f64")
    kinds = {"i64": np.int64, "u64": np.uint64, "i32": np.int32, "u8": np.uint8}
    values = [builder.step("Cast", [a], kind) for kind in kinds]
    least = -(2**63)
    expected: list[Any] = [
        np.array([0, -1, 2**62 + 1024, least, least, 254], np.int64),
        np.array([0, 2**64 - 1, 2**62 + 1024, 10**19, 2**63, 254], np.uint64),
    ]
    expected += [expected[0].astype(dtype) for dtype in (np.int32, np.uint8)]
    found = [recorder.temporary(each.dtype, x.shape) for each in expected]
    elementwise.record_chain(
        recorder, builder.build(values), [processor.array(x)], found
    )
    return found, expected


def halves(recorder: Recorder[Any], processor: Processor) -> Any:
    """All of them, as they are and halved, in memory that lanes write side by side."""
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    builder = ChainBuilder()
    a = builder.input("f16")
    half = builder.step("Mul", [a, builder.constant("f16", 0.5)], "f16")
    values = [half, builder.step("Cast", [a], "f32")]
    with np.errstate(all="ignore"):
        expected = [x * np.float16(0.5), x.astype(np.float32)]
    expected = [np.where(np.isnan(x), np.nan, each) for each in expected]
    expected[0] = expected[0].astype(np.float16)
    found = [recorder.temporary(each.dtype, x.shape) for each in expected]
    elementwise.record_chain(
        recorder, builder.build(values), [processor.array(x)], found
    )
    return found, expected


# families


def product(m: int, k: int, n: int, batch: int = 2, element: str = "f32") -> Making:
    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        dtype = np.float32 if element == "f32" else np.float64
        a, b, c = (
            normal(*shape).astype(dtype) for shape in ((batch, m, k), (k, n), (n,))
        )
        out = recorder.temporary(a.dtype, (batch, m, n))
        builder = ChainBuilder()
        both = [builder.input(element), builder.input(element)]
        total = builder.step("Add", both, element)
        chain = builder.build([builder.step("Relu", [total], element)])
        bias = processor.array(c).broadcast_to(out.shape)
        contractions.record_matmul(
            recorder,
            processor.array(a),
            processor.array(b),
            out,
            epilogue=Epilogue(chain, (bias,), (out,)),
        )
        wide = a.astype(np.float64) @ b.astype(np.float64) + c
        return [out], [np.maximum(wide, 0)]

    return make


def codes(recorder: Recorder[Any], processor: Processor) -> Any:
    """Of few rows, by words: signed bytes with zero points, and halves of bytes."""
    x, scale = (  # of few bits, so that sums are exact
        (RNG.integers(least, 9, shape) / 8).astype(np.float32)
        for least, shape in ((-8, (3, 40)), (1, (5, 7)))
    )
    signed = RNG.integers(-128, 128, (7, 40)).astype(np.int8)
    zero = RNG.integers(-9, 9, 7).astype(np.int8)
    halves = RNG.integers(0, 256, (7, 5, 4)).astype(np.uint8)
    left = processor.array(x)
    turned = processor.array(signed).transpose((1, 0)).reshape((1, 1, 40, 7))
    zeros = processor.array(zero).broadcast_to((1, 1, 40, 7))
    blocks = processor.array(halves).transpose((1, 2, 0)).reshape((1, 1, 5, 4, 7))
    scales = processor.array(scale).reshape((1, 1, 5, 1, 7))
    lines, parts = left.reshape((1, 1, 3, 40)), left.reshape((1, 1, 3, 5, 8))
    assert turned and blocks and scales and lines and parts
    scales = scales.broadcast_to((1, 1, 5, 8, 7))
    found = [recorder.temporary(x.dtype, (1, 1, 3, 7)) for _ in range(2)]
    for a, b, out in (
        (lines, Factor(Codes(turned), zero=Codes(zeros)), found[0]),
        (parts, Factor(Codes(blocks, 4, 3), offset=8, scale=scales), found[1]),
    ):
        contractions.record_coded(recorder, Factor(Codes(a)), b, out)
    wide = np.stack([halves & 15, halves >> 4], -1).reshape(7, 5, 8) - 8.0
    wide = (wide * scale.T[:, :, None]).reshape(7, 40)
    apart = signed.astype(np.float64) - zero[:, None]
    return found, [(x @ each.T)[None, None] for each in (apart, wide)]


def softmax_and_norm(recorder: Recorder[Any], processor: Processor) -> Any:
    x, scale = normal(3, 5, 70), normal(70)
    soft, norm = (recorder.temporary(x.dtype, x.shape) for _ in range(2))
    wide_soft = recorder.temporary(np.dtype(np.float64), x.shape)
    rows.record_softmax(recorder, processor.array(x), soft)
    rows.record_softmax(recorder, processor.array(x.astype(np.float64)), wide_soft)
    rows.record_norm(
        recorder, processor.array(x), norm, epsilon=1e-5, scale=processor.array(scale)
    )
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    apart = wide - wide.mean(-1, keepdims=True)
    root = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    shares = powers / powers.sum(-1, keepdims=True)
    return [soft, norm, wide_soft], [shares, apart / root * scale, shares]


def reduced(recorder: Recorder[Any], processor: Processor) -> Any:
    found, expected = [], []
    for kind, function in (
        ("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMean", np.mean),
        ("ReduceProd", np.prod),
    ):  # fmt: skip
        for axes, dtype in itertools.product(
            ((1,), (2,), (0, 2)), (np.float32, np.float64)
        ):
            x = normal(4, 50, 3).astype(dtype)
            wide = function(x.astype(np.float64), axes, keepdims=True)
            out = recorder.temporary(x.dtype, wide.shape)
            reductions.record_reduce(recorder, kind, processor.array(x), out, axes)
            found.append(out)
            expected.append(wide)
    return found, expected


def summed(recorder: Recorder[Any], processor: Processor) -> Any:
    """The sums before each of more words than a workgroup has at once."""
    x = RNG.integers(0, 9, 2500).astype(np.uint32)
    total = recorder.temporary(np.dtype(np.int64), (1,))
    before = sums.record_sums(recorder, processor.array(x), total, "Sum")
    return [before, total], [x.cumsum() - x, np.array([x.sum()])]


def rows_and_columns(recorder: Recorder[Any], processor: Processor) -> Any:
    """A number for each row and one for each column, in part of an array; copies of
    parts that are aligned, and that are not."""
    x, row, column = normal(6, 24).astype(np.float16), normal(24), normal(6, 1)
    builder = ChainBuilder()
    a = builder.step("Cast", [builder.input("f16")], "f32")
    total = builder.step("Add", [a, builder.input("f32")], "f32")
    total = builder.step("Mul", [total, builder.input("f32")], "f32")
    chain = builder.build([total, builder.step("Less", [total, a], "i1")])
    view = processor.array(x)
    part = View(view.buffer, 16, view.dtype, (6, 16), (24, 1))
    wide = (x[:, 8:].astype(np.float32) + row[8:]) * column
    found = [recorder.temporary(each, wide.shape) for each in (F32, np.dtype(bool))]
    tail = View(processor.array(row).buffer, 32, F32, (16,), (1,))
    elementwise.record_chain(
        recorder, chain, [part, tail, processor.array(column)], found
    )
    copies = []
    for first in (8, 9):
        source = View(view.buffer, 2 * first, view.dtype, (6, 8), (24, 1))
        copies.append(recorder.temporary(x.dtype, (6, 8)))
        movement.record_copy(recorder, source, copies[-1])
    expected = [wide, wide < x[:, 8:], x[:, 8:16], x[:, 9:17]]
    return [*found, *copies], expected


def cumulative(recorder: Recorder[Any], processor: Processor) -> Any:
    x = RNG.integers(-9, 9, (3, 7)).astype(np.int32)
    out = recorder.temporary(x.dtype, x.shape)
    reductions.record_cumulative(recorder, processor.array(x), out, 1, reverse=True)
    return [out], [x[:, ::-1].cumsum(1)[:, ::-1]]


def moved(recorder: Recorder[Any], processor: Processor) -> Any:
    found, expected = [], []
    for dtype in (np.bool_, np.int8, np.uint16, np.float32, np.int64):
        x = RNG.integers(0, 2 if dtype is np.bool_ else 99, (3, 5, 7)).astype(dtype)
        out = recorder.temporary(x.dtype, (7, 3, 5))
        movement.record_copy(
            recorder, processor.array(x).transpose((2, 0, 1)), out
        )  # fmt: skip
        found.append(out)
        expected.append(x.transpose(2, 0, 1))
    return found, expected


def gathered(recorder: Recorder[Any], processor: Processor) -> Any:
    x, index = normal(6, 5), np.array([3, -1, 0], np.int64)
    out = recorder.temporary(x.dtype, (3, 5))
    views = processor.array(x), processor.array(index)
    indexing.record_gather(recorder, *views, out, 0)
    return [out], [x[index]]


def batched(steps: Sequence[tuple[str, int]], dtype: Any) -> dict[str, Making]:
    """Steps, as many together as a kernel may write arrays."""
    groups = [steps[n : n + 5] for n in range(0, len(steps), 5)]
    kind = np.dtype(dtype).name
    return {
        f"{kind}: {' '.join(name for name, _ in group)}": chain_of(group, dtype)
        for group in groups
    }


SHAPES = ((1, 1, 1), (5, 40, 7), (33, 17, 65))
SAMPLES: dict[str, Making] = {
    **batched(OF_FLOATS, np.float32),
    **batched(OF_INTEGERS, np.int32),
    **batched(OF_DOUBLES, np.float64),
    **batched([*OF_INTEGERS, ("Div", 2), ("Equal", 2)], np.int64),
    "casts": casts,
    "codes": codes,
    "codes elsewhere": elsewhere(codes),
    "doubles cast": doubles_cast,
    "doubles truncated": doubles_truncated,
    "halves": halves,
    "product of doubles": product(33, 17, 65, element="f64"),
    "summed": summed,
    "vectors": vectored(rows_and_columns),
    "vectors of halves": vectored(halves),
    "vectors elsewhere": elsewhere(vectored(rows_and_columns)),
    "vectors of casts": vectored(casts),
    "vectors of int64": vectored(chain_of([("Add", 2), ("Mul", 2)], np.int64)),
    "vectors of doubles": vectored(chain_of([("Add", 2), ("Less", 2)], np.float64)),
    **TENSOR_SAMPLES,
    **OPERATOR_SAMPLES,
    **{f"product {m}x{k}x{n}": product(m, k, n) for m, k, n in SHAPES},
    "softmax and norm": softmax_and_norm,
    "reduced": reduced,
    "cumulative": cumulative,
    "moved": moved,
    "gathered": gathered,
    "attended": attended,
    "cached": cached,
}


@pytest.fixture(scope="module")
def samples(processor: Processor) -> dict[str, Sample]:
    """All of them, compiled together and run."""
    made = {}
    for name, make in SAMPLES.items():
        recorder: Recorder[Any] = Recorder(GpuTarget())
        made[name] = Sample(recorder, *make(recorder, processor))
    processor.run(
        [launch for each in made.values() for launch in each.recorder.commands]
    )
    return made


@pytest.mark.parametrize("name", SAMPLES)
def test_kernels_compute_what_numpy_does(
    name: str, samples: dict[str, Sample], processor: Processor
) -> None:
    _, found, expected = samples[name]
    for view, wide in zip(found, expected, strict=True):
        array = processor.read(view)
        if array.dtype == np.float32:
            wide = np.asarray(wide).astype(np.float64)
            least = np.abs(wide) < 1e-37  # of which float32 keeps less
            wide = np.where(
                np.abs(wide) > 3.4028234e38, np.copysign(np.inf, wide), wide
            )
            # sums of more terms; of 2048, a rounding of their magnitudes is 8e-5
            absolute = 5e-5 if "split" in name else 2e-5 if "tf32" in name else 2e-6
            np.testing.assert_allclose(array[~least], wide[~least], 3e-6, absolute)
        elif array.dtype == np.float64:
            np.testing.assert_allclose(array, wide, 1e-14, 1e-15)
        elif "product of" in name or "tensor" in name:
            # sums in float32, rounded twice
            limit = 2e-3 if array.dtype == np.float16 else 2e-2
            array, wide = (each.astype(np.float64) for each in (array, wide))
            np.testing.assert_allclose(array, wide, limit, limit)
        elif name == "neighbours, norm":
            # a bias that cancels most leaves what float32 rounds before float16 does
            array, wide = (each.astype(np.float64) for each in (array, wide))
            np.testing.assert_allclose(array, wide, 1e-3, 5e-7)
        else:
            np.testing.assert_array_equal(array, wide)


def test_an_index_out_of_range_raises_a_flag(processor: Processor) -> None:
    recorder: Recorder[Any] = Recorder(GpuTarget())
    views = [processor.array(normal(4, 2)), processor.array(np.array([0, 4], np.int64))]
    indexing.record_gather(
        recorder, *views, recorder.temporary(np.dtype("f4"), (2, 2)), 0
    )
    (check,) = recorder.checks
    flag = View.contiguous(check.flag, np.dtype("u4"), (1,))
    processor.run(recorder.commands)
    assert processor.read(flag)[0] == 1
    with pytest.raises(IndexError, match="out of range"):
        raise check.error(1)


def test_a_wide_target_computes_with_float64() -> None:
    wide, narrow = GpuTarget(dialect=CUDA), GpuTarget()
    for target, takes in ((wide, True), (narrow, False)):
        assert target.supports_step("Exp", ["f64"], "f64", {}) is takes
        assert target.supports_step("Cast", ["f64"], "f32", {}) is takes
        assert ("f64" in target.elements("ReduceMean")) is takes


def test_copies_that_nobody_waits_for_are_caught(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CUDA.fragments is not None
    monkeypatch.setattr(CUDA.fragments, "arrive", lambda: "if (false) end_copies();")
    recorder: Recorder[Any] = Recorder(GpuTarget())
    tensor_product("f16", 16, 16, 8)(recorder, processor)
    with pytest.raises(KernelFault, match="which nobody wrote to"):
        processor.run(recorder.commands)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_bytes_of_floats_are_the_same_with_instructions_for_them_and_without(
    name: str, processor: Processor
) -> None:
    """All float32 of 16 bits, what lies beside these, and where codes change."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(np.abs(codes[np.isfinite(codes)]))
    middles = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1] + (finite[-1] - finite[-2]) / 2
    edges = np.concatenate([finite, middles, [largest]]).astype(np.float32)
    bits = (np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] + np.array(
        [0, 1, 0x8001]
    )
    near = [np.nextafter(edges, np.float32(each)) for each in (-np.inf, np.inf)]
    x = bits.astype(np.uint32).reshape(-1).view(np.float32)
    x = np.concatenate([x, edges, *near, -edges, *(-each for each in near)])
    recorder: Recorder[Any] = Recorder(GpuTarget())
    builder, element = ChainBuilder(), str(element_of(dtype))
    read = builder.input("f32")
    values = [
        builder.step("Cast", [read], element, {"saturate": each}) for each in (0, 1)
    ]
    values += [builder.step("Cast", [each], "f32") for each in values]
    kinds = dtype, dtype, F32, F32
    found = [recorder.temporary(np.dtype(each), x.shape) for each in kinds]
    views = [processor.array(x)]
    elementwise.record_chain(recorder, builder.build(values), views, found)
    (launch,) = (Rendered(each) for each in recorder.commands)
    texts = [launch.text, launch.text.replace("CONVERTS_BYTES 1", "CONVERTS_BYTES 0")]
    assert texts[0] != texts[1]
    processor.compile(texts)
    both = []
    for text in texts:
        processor.run_text(launch, text)
        both.append([processor.read(view).view(np.uint8) for view in found])
    for ours, others in zip(*both, strict=True):
        np.testing.assert_array_equal(ours, others)
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype)
    same = (both[0][0] == wanted.view(np.uint8)) | np.isnan(wanted)
    assert same.all() and np.isnan(both[0][0].view(dtype)[np.isnan(wanted)]).all()
