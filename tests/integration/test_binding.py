"""Inputs and outputs bound on the host and on a simulated accelerator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import (
    ArgumentTypeError,
    InputError,
    InvalidArgument,
    OutputMismatch,
    UnknownOutput,
)
from onnxplug_testing import SimulatedFactory

SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

# the sample of ONNX Runtime's documentation on CUDA graphs
MATMUL_2 = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[3, 2] X) => (float[3, 1] Y)
    <float[2, 1] W = {1, 2}> { Y = MatMul (X, W) }
    """
)
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
Y = np.array([[5], [11], [17]], np.float32)


def test_bind_run_copy_back_and_clear() -> None:
    session = onnxplug.InferenceSession(MATMUL_2)
    binding = session.io_binding()
    array = X.copy()
    binding.bind_cpu_input("X", array)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], Y)
    array *= 10
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 10 * Y)
    binding.clear_binding_outputs()
    with pytest.raises(InvalidArgument, match="At least one output"):
        session.run_with_iobinding(binding)
    binding.bind_output("Y")
    binding.clear_binding_inputs()
    with pytest.raises(InputError, match=r"\(\['X'\]\) are missing"):
        session.run_with_iobinding(binding)


def test_a_bound_output_is_filled() -> None:
    session = onnxplug.InferenceSession(MATMUL_2)
    filled = onnxplug.OrtValue.ortvalue_from_shape_and_type([3, 1], np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_ortvalue_output("Y", filled)
    session.run_with_iobinding(binding)
    assert binding.get_outputs() == [filled]
    np.testing.assert_array_equal(filled.numpy(), Y)


@pytest.mark.parametrize("filled", ["", "y", "z", "yz"])
@pytest.mark.parametrize("in_place", [False, True])
def test_later_runs_of_a_binding_do_what_the_first_does(
    filled: str, in_place: bool
) -> None:
    """And heed what is written to arrays meanwhile, or made of their shapes."""
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        g (float[n] x) => (float[n] y, float[n] z) { z = Neg (x)  y = Abs (x) }
        """
    )
    session = onnxplug.InferenceSession(model)
    array = np.zeros(4, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", array)
    values = {
        name: onnxplug.OrtValue.ortvalue_from_numpy(
            array if in_place and name == filled[0] else np.zeros(4, np.float32)
        )
        for name in filled
    }
    for name in "yz":
        if name in values:
            binding.bind_ortvalue_output(name, values[name])
        else:
            binding.bind_output(name)
    given: list[Any] = []
    for number in range(5):
        array[:] = content = np.arange(4, dtype=np.float32) - number
        session.run_with_iobinding(binding)
        results = [value.numpy() for value in binding.get_outputs()]
        np.testing.assert_array_equal(results[0], np.abs(content))
        np.testing.assert_array_equal(results[1], -content)
        new = [
            each for each, name in zip(results, "yz", strict=True) if name not in filled
        ]
        assert not [1 for each in new for other in given if each is other]
        given += new
    array.shape = (2, 2)
    with pytest.raises(InputError, match="Invalid rank"):
        session.run_with_iobinding(binding)


def test_addresses_of_the_host() -> None:
    session = onnxplug.InferenceSession(MATMUL_2)
    result = np.zeros((3, 1), np.float32)
    binding = session.io_binding()
    binding.bind_input("X", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("Y", "cpu", 0, np.float32, [3, 1], result.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(result, Y)
    with pytest.raises(InvalidArgument, match="bind an OrtValue"):
        binding.bind_input("X", "cuda", 0, np.float32, X.shape, X.ctypes.data)


@pytest.mark.parametrize("checked", ["0", "1"])
def test_a_wrong_output_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch, checked: str
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", checked)
    session = onnxplug.InferenceSession(MATMUL_2)
    for shape, dtype in (([3], np.float32), ([3, 1], np.float64)):
        wrong = np.full(shape, 7, dtype)
        binding = session.io_binding()
        binding.bind_cpu_input("X", X)
        binding.bind_ortvalue_output("Y", onnxplug.OrtValue.ortvalue_from_numpy(wrong))
        with pytest.raises(OutputMismatch, match=r"\[3, 1\]"):
            session.run_with_iobinding(binding)
        assert (wrong == 7).all()


@pytest.mark.parametrize("checked", ["0", "1"])
def test_a_wrong_output_on_a_device_is_left_as_it_was(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch, checked: str
) -> None:
    monkeypatch.setenv("ONNXPLUG_CHECK", checked)
    simulated()
    with onnxplug.InferenceSession(MATMUL_2, providers=[SIMULATED]) as session:
        wrong = onnxplug.OrtValue.ortvalue_from_numpy(
            np.full((4, 1), 7, np.float32), "simulated"
        )
        binding = session.io_binding()
        binding.bind_cpu_input("X", X)
        binding.bind_ortvalue_output("Y", wrong)
        with pytest.raises(OutputMismatch, match=r"\[3, 1\]"):
            session.run_with_iobinding(binding)
        np.testing.assert_array_equal(wrong.numpy(), np.full((4, 1), 7))


def test_names_and_arrays_are_checked_when_they_are_bound() -> None:
    session = onnxplug.InferenceSession(MATMUL_2)
    binding = session.io_binding()
    with pytest.raises(InputError, match="NodeArg with name: Q"):
        binding.bind_cpu_input("Q", X)
    with pytest.raises(UnknownOutput, match="Invalid output name: Q"):
        binding.bind_output("Q")
    with pytest.raises(InvalidArgument, match="not C-contiguous"):
        binding.bind_cpu_input("X", np.asfortranarray(X))
    with pytest.raises(InvalidArgument, match="'tpu'"):
        binding.bind_output("Y", "tpu")
    assert binding.get_outputs() == []
    other = onnxplug.InferenceSession(MATMUL_2)
    with pytest.raises(InvalidArgument, match="another session"):
        other.run_with_iobinding(binding)


def test_the_checks_of_run_hold_for_bound_values() -> None:
    session = onnxplug.InferenceSession(MATMUL_2)
    binding = session.io_binding()
    binding.bind_output("Y")
    binding.bind_cpu_input("X", X.astype(np.float64))
    with pytest.raises(InputError, match=r"Actual: \(tensor\(double\)\)"):
        session.run_with_iobinding(binding)


def test_values_stay_on_the_device(simulated: MakeSimulated) -> None:
    factory = simulated()
    session = onnxplug.InferenceSession(MATMUL_2, providers=[SIMULATED])
    value = onnxplug.OrtValue.ortvalue_from_numpy(X, "simulated")
    assert value.device_name() == "simulated"
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", value)
    binding.bind_output("Y", "simulated")
    before = len(factory.transfer.copies)
    session.run_with_iobinding(binding)
    weights_only = len(factory.transfer.copies) - before
    (result,) = binding.get_outputs()
    assert result.device_name() == "simulated"
    assert weights_only <= 1  # the constant, if the EP copies it at run time
    np.testing.assert_array_equal(result.numpy(), Y)
    value.update_inplace(10 * X)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 10 * Y)


def test_a_device_output_is_filled_where_it_is(simulated: MakeSimulated) -> None:
    simulated()
    session = onnxplug.InferenceSession(MATMUL_2, providers=[SIMULATED])
    filled = onnxplug.OrtValue.ortvalue_from_shape_and_type(
        [3, 1], np.float32, "simulated"
    )
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_ortvalue_output("Y", filled)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(filled.numpy(), Y)


def test_device_values_are_checked_like_others(simulated: MakeSimulated) -> None:
    simulated()
    session = onnxplug.InferenceSession(MATMUL_2, providers=[SIMULATED])
    for wrong in (X.astype(np.float64), X.T.copy()):
        value = onnxplug.OrtValue.ortvalue_from_numpy(wrong, "simulated")
        with pytest.raises(InputError):
            session.run_with_ort_values(None, {"X": value})


def test_run_with_ort_values_from_host_and_device(simulated: MakeSimulated) -> None:
    simulated()
    session = onnxplug.InferenceSession(MATMUL_2, providers=[SIMULATED])
    for device in ("cpu", "simulated"):
        value = onnxplug.OrtValue.ortvalue_from_numpy(X, device)
        (result,) = session.run_with_ort_values(["Y"], {"X": value})
        assert result.device_name() == "cpu"
        np.testing.assert_array_equal(result.numpy(), Y)
    with pytest.raises(InvalidArgument, match="expected an OrtValue"):
        session.run_with_ort_values(None, {"X": X})  # type: ignore[dict-item]


ALIASES = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4] x) => (float[4] a, float[2, 2] b, float[4] x)
    <int64[2] sizes = {2, 2}> { a = Add (x, x) b = Reshape (a, sizes) }
    """
)


def test_outputs_share_no_memory_with_each_other_or_an_input() -> None:
    session = onnxplug.InferenceSession(ALIASES)
    x = np.ones(4, np.float32)
    filled = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32))
    for bound in (None, filled):
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        for name in ("a", "b", "x"):
            binding.bind_output(name)
        if bound is not None:
            binding.bind_ortvalue_output("a", bound)
        session.run_with_iobinding(binding)
        a, b, same = (value.numpy() for value in binding.get_outputs())
        a[:] = -1
        np.testing.assert_array_equal(b, [[2, 2], [2, 2]])
        same[:] = -1
        np.testing.assert_array_equal(x, [1, 1, 1, 1])


def test_a_device_output_that_is_an_input_is_a_copy(simulated: MakeSimulated) -> None:
    simulated(ops=frozenset({"Add"}))
    session = onnxplug.InferenceSession(ALIASES, providers=[SIMULATED])
    value = onnxplug.OrtValue.ortvalue_from_numpy(np.ones(4, np.float32), "simulated")
    filled = onnxplug.OrtValue.ortvalue_from_shape_and_type(
        [4], np.float32, "simulated"
    )
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("x", "simulated")
    session.run_with_iobinding(binding)
    (result,) = binding.get_outputs()
    binding.bind_ortvalue_output("x", filled)
    session.run_with_iobinding(binding)
    value.update_inplace(np.zeros(4, np.float32))
    for copy in (result, filled):
        assert copy.device_name() == "simulated"
        np.testing.assert_array_equal(copy.numpy(), [1, 1, 1, 1])


@pytest.mark.parametrize("place", ["cpu", "simulated"])
def test_an_output_bound_to_an_input_is_filled_when_the_input_is_read(
    simulated: MakeSimulated, place: str
) -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[4] x) => (float[4] y, float[4] w)
        { y = Add (x, x) b = Sin (y) w = Mul (b, x) }
        """
    )
    simulated(ops=frozenset({"Add", "Mul"}))
    session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    x = np.arange(4, dtype=np.float32)
    expected = session.run(None, {"x": x})
    value = onnxplug.OrtValue.ortvalue_from_numpy(x.copy(), place)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    binding.bind_output("w")
    session.run_with_iobinding(binding)
    for found, wanted in zip(binding.copy_outputs_to_cpu(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(value.numpy(), expected[0])


OVERLAPS = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4] x, seq(float[4]) s) => (float[4] same, float[4] twice, float[4] t)
    {
        same = Identity (x)
        twice = Add (x, x)
        zero = Constant <value_int = 0> ()
        first = SequenceAt (s, zero)
        t = Mul (first, x)
    }
    """
)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("order", [["same", "twice", "t"], ["t", "twice", "same"]])
@pytest.mark.parametrize("given", ["x", "s"])
def test_outputs_that_overlap_an_input_are_written_when_all_is_computed(
    given: str, order: list[str], compiled: bool
) -> None:
    """Also when what is asked for besides is a view of that input."""
    session = onnxplug.InferenceSession(
        OVERLAPS, providers=[("CPUExecutionProvider", {"compile": compiled})]
    )
    names = [output.name for output in session.get_outputs()]
    for start, bound in itertools.product(range(3), ["twice", "t", "same"]):
        memory = np.arange(7, dtype=np.float32)
        arrays = {"x": np.full(4, 3, np.float32), "s": np.full(4, 5, np.float32)}
        arrays[given] = memory[:4]
        feed = {"x": arrays["x"], "s": [arrays["s"]]}
        expected = dict(zip(names, session.run(None, feed), strict=True))
        binding = session.io_binding()
        for name, value in feed.items():
            binding.bind_ortvalue_input(name, onnxplug.OrtValue(value))
        for name in order:
            if name == bound:
                target = memory[start : start + 4]
                binding.bind_ortvalue_output(name, onnxplug.OrtValue(target))
            else:
                binding.bind_output(name)
        session.run_with_iobinding(binding)
        for name, found in zip(order, binding.copy_outputs_to_cpu(), strict=True):
            np.testing.assert_array_equal(found, expected[name], f"{name} {start}")


def test_two_outputs_may_be_bound_to_memory_of_the_input_that_they_are() -> None:
    session = onnxplug.InferenceSession(OVERLAPS)
    memory = np.arange(8, dtype=np.float32)
    feed = {"x": memory[2:6], "s": [memory[4:]]}
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feed), strict=True))
    for names in (["same", "twice"], ["twice", "same"]):
        memory[:] = np.arange(8)
        binding = session.io_binding()
        for name, value in feed.items():
            binding.bind_ortvalue_input(name, onnxplug.OrtValue(value))
        for name, target in zip(names, (memory[:4], memory[4:]), strict=True):
            binding.bind_ortvalue_output(name, onnxplug.OrtValue(target))
        session.run_with_iobinding(binding)
        for name, found in zip(names, (memory[:4], memory[4:]), strict=True):
            np.testing.assert_array_equal(found, expected[name])


def test_outputs_are_bound_to_memory_that_can_be_filled() -> None:
    session = onnxplug.InferenceSession(OVERLAPS)
    binding = session.io_binding()
    memory = np.zeros(8, np.float32)
    read_only = memory[:4].copy()
    read_only.flags.writeable = False
    repeated = np.lib.stride_tricks.as_strided(memory, (4,), (0,))
    for array, message in ((read_only, "is read-only"), (repeated, "several elements")):
        with pytest.raises(InvalidArgument, match=f"'same' is .* {message}"):
            binding.bind_ortvalue_output("same", onnxplug.OrtValue(array))
    with pytest.raises(InvalidArgument, match="is bound to a ndarray"):
        binding.bind_ortvalue_output("same", memory[:4])  # type: ignore[arg-type]


@pytest.mark.parametrize("by_address", [True, False])
def test_two_outputs_are_not_bound_to_the_same_memory_in_a_run(
    by_address: bool,
) -> None:
    """Between runs they may be: memory that was freed, or that changes its output."""
    session = onnxplug.InferenceSession(OVERLAPS)
    x = np.float32([1, 2, 3, 4])
    memory = np.zeros(9, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("s", onnxplug.OrtValue([x]))
    binding.bind_output("t")

    def bind(name: str, start: int) -> None:
        if by_address:
            place = memory.ctypes.data + 4 * start
            binding.bind_output(name, "cpu", 0, np.float32, [4], place)
        else:
            value = onnxplug.OrtValue(memory[start : start + 4])
            binding.bind_ortvalue_output(name, value)

    for same, twice in ((0, 4), (4, 0), (5, 1)):
        memory[:] = 0
        bind("same", same)
        bind("twice", twice)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(memory[same : same + 4], x)
        np.testing.assert_array_equal(memory[twice : twice + 4], 2 * x)
    memory[:] = 0
    bind("twice", 2)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=r"'twice' .* output 'same'"):
            session.run_with_iobinding(binding)
    assert not memory.any()
    bind("twice", 0)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory[:4], 2 * x)


def test_addresses_are_bound_with_shapes_that_there_are() -> None:
    binding = onnxplug.InferenceSession(MATMUL_2).io_binding()
    address = X.ctypes.data
    for shape, place in (([-3, -2], address), ([3, -2], address), ([3, 2], 0)):
        with pytest.raises(InvalidArgument, match=r"negative size|address 0"):
            binding.bind_input("X", "cpu", 0, np.float32, shape, place)
    binding.bind_input("X", "cpu", 0, np.float32, [0, 2], 0)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (-8, "-0x8; expected one of this process's memory"),
        (1 << 63, "0x8000000000000000; expected one"),
        (1 << 64, "0x10000000000000000; expected one"),
        ((1 << 63) - 8, "0x7ffffffffffffff8, and has 24 bytes"),
        (8, "address 0x8, and has 24 bytes there; no process has memory there"),
        ("here", "'here', a str; expected a whole number"),
        (1.5, "1.5, a float; expected a whole number"),
        (True, "True, a bool; expected a whole number"),
    ],
)
def test_addresses_that_no_process_has_are_refused(address: Any, words: str) -> None:
    binding = onnxplug.InferenceSession(MATMUL_2).io_binding()
    for bind, name in ((binding.bind_input, "X"), (binding.bind_output, "Y")):
        with pytest.raises(InvalidArgument, match=words):
            bind(name, "cpu", 0, np.float32, [3, 2], address)


def test_an_address_needs_an_element_type_and_a_shape() -> None:
    binding = onnxplug.InferenceSession(MATMUL_2).io_binding()
    address = X.ctypes.data
    for element_type, shape in ((None, [3, 2]), (np.float32, None), ("no", [3, 2])):
        with pytest.raises(ArgumentTypeError, match=r"an? (shape|element type) is"):
            binding.bind_output("Y", "cpu", 0, element_type, shape, address)
    with pytest.raises(ArgumentTypeError, match="a device is 0; expected the name"):
        binding.bind_output("Y", 0)  # type: ignore[arg-type]


def test_a_bound_input_must_be_a_value() -> None:
    binding = onnxplug.InferenceSession(MATMUL_2).io_binding()
    with pytest.raises(InvalidArgument, match="'X' is a ndarray; expected an OrtValue"):
        binding.bind_ortvalue_input("X", X)  # type: ignore[arg-type]
