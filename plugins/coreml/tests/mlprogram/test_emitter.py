"""Programs in MIL: validated, read back, and interpreted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_interpreter import Interpreter
from mlprogram.primitive_cases import CASES, F32, I32, Case, floats

from onnxplug.authoring.sizes import named
from onnxplug_coreml.lowering.primitives import PRIMITIVES
from onnxplug_coreml.lowering.program import Operation, Port, Program, Range, Value
from onnxplug_coreml.mlprogram.signature import Signature

pytest.importorskip("coremltools", reason="make test-coreml installs it")

from onnxplug_coreml.mlprogram.emitter import Refused, emit
from onnxplug_coreml.mlprogram.installation import building
from onnxplug_coreml.mlprogram.package import build_package

Array = np.ndarray[Any, Any]


def run(
    program: Program, feeds: Mapping[str, Array], folder: Path, *, narrow: bool = False
) -> tuple[Interpreter, list[Array]]:
    """The package of *program*, and its results as the program has them."""
    interpreter = Interpreter(build_package(program, folder, narrow=narrow))
    border = Signature.of(program)
    found = border.leave(interpreter(border.enter(feeds)))
    return interpreter, [found[value.name] for value in program.results]


def check(case: Case, found: Sequence[Any], tolerance: float) -> None:
    expected = case.expected()
    expected = expected if isinstance(expected, tuple) else (expected,)
    for array, wanted in zip(found, expected, strict=True):
        assert np.shape(array) == np.shape(wanted)
        np.testing.assert_allclose(array, wanted, tolerance, tolerance)


def test_every_primitive_has_a_case() -> None:
    assert {case.primitive for case in CASES.values()} == set(PRIMITIVES)


@pytest.mark.parametrize("name", CASES)
def test_a_primitive_is_what_numpy_has(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    program = case.program()
    _, found = run(program, case.feeds(), tmp_path)
    assert [each.dtype for each in found] == [
        value.dtype.numpy for value in program.results
    ]
    check(case, found, 3e-6)


NOT_INFERRED = {
    "avg_pool", "conv", "conv_transpose", "gather_nd", "max_pool", "resize",
    "scatter_nd", "silu",
}  # fmt: skip
"""Primitives of which MIL does not find the values of constants."""

DEFECTS = {
    "cumsum_exclusive_backward": "coremltools 9.0 calls numpy.zeros wrongly",
    "reshape_to_scalar": "coremltools 9.0 squeezes constants to rank 1 at least",
}
"""Of coremltools' inference of values; lowering computes of constants itself."""

INFERRED = [
    pytest.param(
        name,
        marks=pytest.mark.xfail(raises=Refused, reason=DEFECTS[name])
        if name in DEFECTS
        else (),
    )
    for name, case in CASES.items()
    if case.primitive not in NOT_INFERRED
]


@pytest.mark.parametrize("name", INFERRED)
def test_mil_finds_the_same_values_of_constants(name: str) -> None:
    case = CASES[name]
    every = case._replace(constant=tuple(range(len(case.operands)))).program()
    with building() as tools:
        outputs = emit(tools, every).functions["main"].outputs
    check(
        case,
        [
            np.reshape(output.val, value.numbers)
            for output, value in zip(outputs, every.results, strict=True)
        ],
        3e-6,
    )


# --- sizes that are known in runs only ---------------------------------------------

N, M = named("batch"), named("length")


def program_of(
    inputs: Mapping[str, Any], *steps: Any, ranges: Mapping[str, Range]
) -> Program:
    """A program of (primitive, operands, attributes), which gives what is made last."""
    known = {name: Value(name, dtype, shape) for name, (dtype, shape) in inputs.items()}
    made = []
    for at, (primitive, operands, attributes) in enumerate(steps):
        results = PRIMITIVES[primitive].results(
            [known[name] for name in operands], attributes
        )
        (dtype, shape), name = results[0], f"made{at}"
        known[name] = Value(name, dtype, shape)
        made.append(Operation(primitive, operands, attributes, (known[name],), at))
    last = made[-1].outputs[0]
    return Program(
        [Port(name, known[name].dtype, known[name]) for name in inputs],
        {},
        made,
        [Port("result", last.dtype, last)],
        ranges=ranges,
    )


def test_ranges_of_sizes_are_in_the_specification(tmp_path: Path) -> None:
    program = program_of(
        {"x": (F32, (N, 3, M)), "y": (F32, (N, M))},
        ("reshape", ("y",), {"shape": (N, 1, M)}),
        ("add", ("x", "made0"), {}),
        ranges={"batch": Range(1, 8), "length": Range(2, 300)},
    )
    x, y = floats(3, 3, 70), floats(3, 70)
    interpreter, (found,) = run(program, {"x": x, "y": y}, tmp_path)
    np.testing.assert_allclose(found, x + y[:, None], 1e-6)
    inputs = interpreter.package.inputs
    assert inputs["x"].ranges == ((1, 8), (3, 3), (2, 300))
    assert inputs["y"].ranges == ((1, 8), (2, 300))
    (declared, _) = interpreter.package.function.inputs
    kinds = [d.WhichOneof("dimension") for d in declared.type.tensorType.dimensions]
    assert kinds == ["unknown", "constant", "unknown"]
    with pytest.raises(ValueError, match=r"'x' is of shape \[9, 3, 70\].*\[1 to 8, 3"):
        Signature.of(program).enter({"x": floats(9, 3, 70), "y": floats(9, 70)})


DYNAMIC: dict[str, tuple[Any, Any]] = {
    "flatten": (
        [("reshape", ("x",), {"shape": (N, 3 * M)})],
        lambda x, y: x.reshape(len(x), -1),
    ),
    "broadcast": (
        [("broadcast_to", ("y",), {"shape": (N, 3, M)})],
        lambda x, y: np.broadcast_to(y, x.shape),
    ),
    "matmul": (
        [
            ("transpose", ("x",), {"permutation": (0, 2, 1)}),
            ("matmul", ("made0", "x"), {}),
            ("softmax", ("made1",), {"axis": 2}),
        ],
        lambda x, y: _softmax(x.transpose(0, 2, 1) @ x),
    ),
    "concat_and_slice": (
        [
            ("concat", ("x", "x"), {"axis": 2}),
            (
                "slice",
                ("made0",),
                {"starts": (0, 1, 2), "stops": (None, None, None), "steps": (1, 1, 3)},
            ),
        ],
        lambda x, y: np.concatenate([x, x], 2)[:, 1:, 2::3],
    ),
    "pad_and_pool": (
        [
            (
                "max_pool",
                ("x",),
                {"kernel": (3,), "strides": (2,), "dilations": (1,), "pads": ((1, 1),)},
            ),
            ("reduce_mean", ("made0",), {"axes": (1,), "keep": False}),
        ],
        lambda x, y: _pooled(x).mean(1),
    ),
}


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _pooled(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=2)
    return windows[:, :, ::2].max(-1)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_model_takes_all_sizes_in_its_ranges(name: str, tmp_path: Path) -> None:
    steps, expected = DYNAMIC[name]
    inputs = {"x": (F32, (N, 3, M)), "y": (F32, (1, 1, M))}
    program = program_of(inputs, *steps, ranges={"batch": Range(1, 64)})
    interpreter = Interpreter(build_package(program, tmp_path, narrow=False))
    border = Signature.of(program)
    for batch, length in ((1, 7), (5, 12)):
        feeds = {"x": floats(batch, 3, length), "y": floats(1, 1, length)}
        found = border.leave(interpreter(border.enter(feeds)))
        (result,) = found.values()
        np.testing.assert_allclose(result, expected(**feeds), 1e-5, 1e-6)


# --- precision, weights, refusals --------------------------------------------------


def test_narrow_programs_compute_in_float16(tmp_path: Path) -> None:
    case = CASES["conv_2d"]
    interpreter, found = run(case.program(), case.feeds(), tmp_path, narrow=True)
    check(case, found, 2e-2)
    assert interpreter.operations == ["cast", "conv", "cast"]
    (conv,) = (e for e in interpreter.package.block.operations if e.type == "conv")
    assert conv.outputs[0].type.tensorType.dataType == 10  # FLOAT16
    assert {feature.dtype for feature in interpreter.package.inputs.values()} == {
        np.dtype(np.float32)
    }


def test_weights_are_in_the_file_of_weights(tmp_path: Path) -> None:
    case = CASES["matmul_by_weights"]
    path = build_package(case.program(), tmp_path, narrow=False)
    (weights,) = path.rglob("weight.bin")
    held = weights.read_bytes()
    assert np.ascontiguousarray(case.operands[1]).tobytes() in held or (
        np.ascontiguousarray(case.operands[1].T).tobytes() in held
    )
    (model,) = path.rglob("*.mlmodel")
    assert case.operands[1].tobytes() not in model.read_bytes()


def test_a_package_is_read_by_coremltools(tmp_path: Path) -> None:
    path = build_package(CASES["conv_2d"].program(), tmp_path, narrow=False)
    with building() as tools:
        model = tools.models.MLModel(str(path), skip_model_load=True)
        assert model.get_spec().specificationVersion == tools.target.iOS17.value


def test_what_mil_lacks_is_refused_with_the_node(tmp_path: Path) -> None:
    program = program_of(
        {"x": (I32, (2, 3))},
        ("neg", ("x",), {}),
        ("pad", ("made0",), {"mode": "edge", "pads": ((1, 0), (0, 0)), "value": 0}),
        ranges={},
    )
    with pytest.raises(Refused, match="coremltools does not take pad: int32") as info:
        build_package(program, tmp_path, narrow=False)
    assert info.value.node == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build_package(CASES["conv_2d"].program(), tmp_path, narrow=True)
    assert capfd.readouterr() == ("", "")
