"""Each element-wise operator on each type against the array kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import ChainBuilder, Scalar
from onnxplug_cpu.compiler.kernels.elementwise.codes import CODES, with_codes
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.kernels.elementwise.emitters import EMITTERS
from onnxplug_cpu.compiler.kernels.elementwise.operators import OPERATORS, supports
from onnxplug_cpu.compiler.machine.isa import Isa
from onnxplug_kernels import find_kernel
from onnxplug_kernels.namespaces import namespace_of

from ..interpreter import ISAS, Interpreter

DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i1": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
ONNX = {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "i1": 9}
ONNX |= {"f16": 10, "f64": 11, "u32": 12, "u64": 13, "bf16": 16}
SIZE = 181
OPSET = 28


def test_what_a_plan_takes_is_what_is_emitted() -> None:
    assert EMITTERS.keys() == OPERATORS.keys()


def data(element: str, rng: np.random.Generator, *, wild: bool = True) -> Any:
    """Numbers of all magnitudes, and special ones."""
    dtype = DTYPES[element]
    if element == "i1":
        return rng.integers(0, 2, SIZE).astype(np.bool_)
    if element[0] in "iu":
        info = np.iinfo(dtype)
        any_ = rng.integers(info.min, info.max, SIZE, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -9), 9, SIZE).astype(dtype)
        numbers = np.where(rng.random(SIZE) < 0.5, any_, small)
        numbers[:5] = [0, 1, info.min, info.max, info.max - 1]
        rng.shuffle(numbers)
        return numbers
    numbers = rng.standard_normal(SIZE) * np.exp(rng.uniform(-6, 4, SIZE))
    special = [0.0, -0.0, 1, -1, 0.5, 2.5, -1.5, 3.5, 1e-41, -1e-41, 6e-8, 88, -88]
    if wild:
        special += [np.inf, -np.inf, np.nan, 65504, 70000, 1e38, 3.4e38, -3.4e38]
    numbers[: len(special)] = special
    rng.shuffle(numbers)
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def computed(
    isa: Isa,
    inputs: Sequence[Any],
    elements: Sequence[str],
    steps: Sequence[tuple[str, Sequence[Scalar | int | None], str, Mapping[str, Any]]],
) -> list[Any]:
    """The results of operators on inputs, by number, and constants: one chain's."""
    builder = ChainBuilder()
    numbers = [builder.input(element) for element in elements]
    outputs = []
    for operator, operands, result, attributes in steps:
        values = [
            builder.constant(*operand)
            if isinstance(operand, Scalar)
            else None
            if operand is None
            else numbers[operand]
            for operand in operands
        ]
        outputs.append(builder.step(operator, values, result, attributes))
    chain = builder.build(outputs)
    interpreter = Interpreter(isa)
    views = [interpreter.input(array) for array in inputs]
    arrays = [interpreter.output(DTYPES[result], (SIZE,)) for _, _, result, _ in steps]
    record_chain(interpreter.recorder, chain, views, arrays)
    interpreter.run()
    return [interpreter.read(array) for array in arrays]


def expected(
    operator: str, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> Any:
    kernel = find_kernel("", operator, OPSET)
    assert kernel is not None
    with np.errstate(all="ignore"):
        return kernel.function(namespace_of(np), *inputs, **attributes)


def assert_equal(result: Any, wanted: Any, of: object) -> None:
    assert result.dtype == wanted.dtype, of
    if result.dtype.kind not in "iub":
        result, wanted = result.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(result, wanted, err_msg=str(of))


EXACT: list[tuple[str, int, str, dict[str, Any]]] = [
    *((name, 2, "", {}) for name in ("Add", "Sub", "Mul", "Div")),
    ("Mod", 2, "", {}),
    ("Mod", 2, "", {"fmod": 1}),
    *((name, 1, "", {}) for name in ("Neg", "Abs", "Sign", "Sqrt", "Reciprocal")),
    *((name, 1, "", {}) for name in ("Floor", "Ceil", "Round", "Relu", "Identity")),
    *((name, 3, "", {}) for name in ("Max", "Min", "Sum", "Clip")),
    ("Mean", 4, "", {}),
    ("Mean", 3, "", {}),
    *((name, 2, "i1", {}) for name in ("Equal", "Less", "LessOrEqual")),
    *((name, 2, "i1", {}) for name in ("Greater", "GreaterOrEqual")),
    *((name, 2, "i1", {}) for name in ("And", "Or", "Xor")),
    ("Not", 1, "i1", {}),
    *((f"Bitwise{name}", 2, "", {}) for name in ("And", "Or", "Xor")),
    ("BitwiseNot", 1, "", {}),
    ("BitShift", 2, "", {"direction": "LEFT"}),
    ("BitShift", 2, "", {"direction": "RIGHT"}),
    ("IsNaN", 1, "i1", {}),
    ("IsInf", 1, "i1", {}),
    ("IsInf", 1, "i1", {"detect_negative": 0}),
    ("IsInf", 1, "i1", {"detect_positive": 0}),
    ("LeakyRelu", 1, "", {"alpha": 0.1}),
    ("LeakyRelu", 1, "", {"alpha": -2.0}),
    ("ThresholdedRelu", 1, "", {"alpha": 0.7}),
    ("Shrink", 1, "", {"lambd": 0.4, "bias": 0.3}),
    ("HardSigmoid", 1, "", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", 1, "", {}),
    ("Softsign", 1, "", {}),
]


each_isa = functools.partial(
    pytest.mark.parametrize, "isa", ISAS, ids=lambda isa: isa.name
)


@each_isa()
@pytest.mark.parametrize("element", DTYPES)
def test_exact(isa: Isa, element: str) -> None:
    rng = np.random.default_rng(3)
    inputs = [data(element, rng) for _ in range(4)]
    with np.errstate(invalid="ignore"):
        inputs[2:] = [np.minimum(*inputs[2:]), np.maximum(*inputs[2:])]
    steps = []
    for operator, count, result, attributes in EXACT:
        out = result or element
        # Clip takes the last two inputs as its limits
        operands = (0, 2, 3) if operator == "Clip" else tuple(range(count))
        if supports(operator, (element,) * count, out, attributes):
            steps.append((operator, operands, out, attributes))
    assert len(steps) > 3
    found = computed(isa, inputs, [element] * 4, steps)
    for (operator, operands, _, attributes), array in zip(steps, found, strict=True):
        given = [inputs[o] for o in operands]
        if operator == "Clip":  # whose limits are scalars, but for a kernel
            each = zip(*(np.split(value, value.size) for value in given), strict=True)
            wanted = np.concatenate([expected(operator, [*one], {}) for one in each])
        else:
            wanted = expected(operator, given, attributes)
        assert_equal(array, wanted, (operator, attributes))


@each_isa()
@pytest.mark.parametrize("source", DTYPES)
def test_cast(isa: Isa, source: str) -> None:
    rng = np.random.default_rng(4)
    wild = data(source, rng)
    # what C leaves undefined differs between processors: only numbers in range
    tame = data(source, rng, wild=False)
    if source in ("f16", "bf16", "f32", "f64"):
        tame = np.abs(np.clip(tame.astype(np.float64), -1e9, 1e9) % 100)
        tame = tame.astype(DTYPES[source])
    to_integer = [
        target[0] in "iu" and target != "i1" and source in ("f16", "bf16", "f32", "f64")
        for target in DTYPES
    ]
    steps = [
        ("Cast", (int(tamed),), target, {})
        for target, tamed in zip(DTYPES, to_integer, strict=True)
    ]
    found = computed(isa, [wild, tame], [source] * 2, steps)
    for target, tamed, array in zip(DTYPES, to_integer, found, strict=True):
        wanted = expected("Cast", [tame if tamed else wild], {"to": ONNX[target]})
        assert_equal(array, wanted, (source, target))


@each_isa()
def test_cast_of_negative_numbers_and_to_unsigned(isa: Isa) -> None:
    x = np.resize(np.float32([-1, -127.9, -3e4, 2.9, 100, 2**31, 4e9, 255, -0.5]), SIZE)
    for target in ("i32", "i64", "u32", "u64"):
        array = np.abs(x) if target[0] == "u" else np.clip(x, None, 1e9)
        (found,) = computed(isa, [array], ["f32"], [("Cast", (0,), target, {})])
        assert_equal(found, array.astype(DTYPES[target]), target)


@each_isa()
def test_where(isa: Isa) -> None:
    rng = np.random.default_rng(5)
    condition = data("i1", rng)
    inputs, elements, steps = [condition], ["i1"], []
    for element in DTYPES:
        first = len(inputs)
        inputs += [data(element, rng), data(element, rng)]
        elements += [element] * 2
        steps.append(("Where", (0, first, first + 1), element, {}))
    found = computed(isa, inputs, elements, steps)
    for (_, (_, x, y), element, _), array in zip(steps, found, strict=True):
        assert_equal(array, np.where(condition, inputs[x], inputs[y]), element)


@each_isa()
@pytest.mark.parametrize(
    "base, exponent", [("i32", "i64"), ("i64", "i8"), ("u8", "u8")]
)
def test_power_of_integers(isa: Isa, base: str, exponent: str) -> None:
    rng = np.random.default_rng(6)
    x = data(base, rng)
    y = rng.integers(0 if exponent[0] == "u" else -4, 20, SIZE).astype(DTYPES[exponent])
    steps = [("Pow", (0, 1), base, {}), ("Pow", (0, Scalar(exponent, 5)), base, {})]
    found, constant = computed(isa, [x, y], [base, exponent], steps)
    with np.errstate(all="ignore"):
        size = np.abs(y.astype(np.int64))
        power = np.power(x.astype(np.int64), size).astype(x.dtype)
        fifth = np.power(x.astype(np.int64), 5).astype(x.dtype)
    unit = (x == 1) | (x.astype(np.int64) == -1)
    np.testing.assert_array_equal(found, np.where((y < 0) & ~unit, 0, power))
    np.testing.assert_array_equal(constant, fifth)


@each_isa()
def test_power_by_a_constant(isa: Isa) -> None:
    x = data("f32", np.random.default_rng(7))
    exponents = (1.0, 2.0, 3.0, -1.0, 0.5, 0.25, 0.0, -3.0)
    steps = [("Pow", (0, Scalar("f32", e)), "f32", {}) for e in exponents]
    for exponent, found in zip(
        exponents, computed(isa, [x], ["f32"], steps), strict=True
    ):
        # a float64 array as exponent: numpy takes short cuts for scalars
        with np.errstate(all="ignore"):
            wanted = np.power(x.astype(np.float64), np.full(SIZE, exponent))
            wanted = wanted.astype(np.float32)
        np.testing.assert_allclose(found, wanted, rtol=2e-7, atol=3e-45)


@each_isa()
def test_division_by_a_constant(isa: Isa) -> None:
    x = data("f32", np.random.default_rng(8))
    divisors = (4.0, 0.125, 3.0, -2.0, 2.0**-120, 0.0)
    steps = [("Div", (0, Scalar("f32", d)), "f32", {}) for d in divisors]
    for divisor, found in zip(
        divisors, computed(isa, [x], ["f32"], steps), strict=True
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, x / np.float32(divisor))


@each_isa()
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "i32"])
def test_clip_by_constants_and_by_none(isa: Isa, element: str) -> None:
    x = data(element, np.random.default_rng(9))
    limits = ((-1, 2), (None, 2), (-1, None), (None, None))
    constants = [
        [None if limit is None else Scalar(element, limit) for limit in pair]
        for pair in limits
    ]
    steps = [("Clip", (0, *pair), element, {}) for pair in constants]
    for pair, found in zip(limits, computed(isa, [x], [element], steps), strict=True):
        arrays = [None if v is None else np.array(v).astype(x.dtype) for v in pair]
        assert_equal(found, expected("Clip", [x, *arrays], {}), pair)


TRIGONOMETRIC = "Sin Cos Tan Asin Acos Atan".split()
APPROXIMATE: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in "Exp Log Erf Tanh Sigmoid Sinh Cosh Asinh Acosh".split()),
    *((name, {}) for name in ["Atanh", "Softplus", *TRIGONOMETRIC]),
    ("Mish", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Elu", {"alpha": 1.5}),
    ("Selu", {}),
    ("Celu", {"alpha": 0.7}),
    ("Celu", {"alpha": -0.7}),
    ("Swish", {"alpha": 1.3}),
    ("SwiGLU", {}),
]


@each_isa()
@pytest.mark.parametrize(
    "element, relative, absolute",
    [
        ("f64", 2e-15, 4e-16),
        ("f32", 1e-6, 4e-7),
        ("f16", 1e-3, 1e-5),
        ("bf16", 8e-3, 1e-6),
    ],
)
def test_approximate(isa: Isa, element: str, relative: float, absolute: float) -> None:
    rng = np.random.default_rng(10)
    inputs = [data(element, rng), data(element, rng)]
    steps = []
    for operator, attributes in APPROXIMATE:
        operands = (0, 1) if operator == "SwiGLU" else (0,)
        if element == "f64" and operator in TRIGONOMETRIC:
            continue
        assert supports(operator, (element,) * len(operands), element, attributes)
        steps.append((operator, operands, element, attributes))
    found = computed(isa, inputs, [element] * 2, steps)
    for (operator, operands, _, attributes), array in zip(steps, found, strict=True):
        wanted = expected(operator, [inputs[o] for o in operands], attributes)
        np.testing.assert_allclose(
            array.astype(np.float64),
            wanted.astype(np.float64),
            rtol=relative,
            atol=absolute,
            err_msg=f"{operator} {attributes}",
        )


def test_unsupported() -> None:
    assert not supports("Sin", ("f64",), "f64", {})
    assert not supports("Mod", ("f32", "f32"), "f32", {"fmod": 1})
    assert not supports("Add", ("f32", "f64"), "f32", {})
    assert not supports("Add", ("i1", "i1"), "i1", {})
    assert not supports("Add", ("f32",), "f32", {})
    assert not supports("MatMul", ("f32", "f32"), "f32", {})
    assert not supports("BitShift", ("i32", "i32"), "i32", {"direction": "UP"})
    assert not supports("Gelu", ("f32",), "f32", {"approximate": "fast"})
    assert not supports("Cast", ("f8e4m3",), "f32", {})


def test_codes_are_rounded_by_what_converts_them() -> None:
    """All that QuantizeLinear does behind its quotient is one operator; other roundings
    stay."""
    builder = ChainBuilder()
    x, zero = builder.input("f32"), builder.input("u8")
    shift = builder.step("Cast", [zero], "f32")
    value = builder.step("Add", [builder.step("Round", [x], "f32"), shift], "f32")
    for operator, limit in (("Max", 0.0), ("Min", 255.0)):
        value = builder.step(operator, [value, builder.constant("f32", limit)], "f32")
    chain = builder.build([builder.step("Cast", [value], "u8")])
    assert [step.operator for step in with_codes(chain).steps].count(CODES) == 1
    assert "Round" not in [step.operator for step in with_codes(chain).steps]
    both = builder.build([value, builder.step("Cast", [value], "u8")])
    assert {"Round", CODES} <= {step.operator for step in with_codes(both).steps}
    far = builder.step("Cast", [builder.step("Round", [x], "f32")], "i32")
    assert with_codes(builder.build([far])) == builder.build([far])
