"""Runs that are captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import InvalidArgument, OptionError, SessionRefused
from onnxplug_testing import SimulatedFactory

SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

DOUBLE = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    double (float[4] x) => (float[4] y) { y = Add (x, x) }
    """
)
BRANCHES = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    choose (bool grow, float[4] x) => (float[4] y)
    {
        start = Neg (x)
        chosen = If (grow) <
            then_branch = more () => (float[4] t) { t = Add (start, start) },
            else_branch = same () => (float[4] e) { e = Tanh (start) }
        >
        y = Neg (chosen)
    }
    """
)


X = np.arange(4, dtype=np.float32)


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "simulated")


def room(shape: list[int]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_shape_and_type(
        shape, np.float32, "simulated"
    )


def bound(
    session: onnxplug.InferenceSession,
    inputs: dict[str, onnxplug.OrtValue],
    outputs: dict[str, onnxplug.OrtValue | None],
) -> onnxplug.IOBinding:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, wanted in outputs.items():
        if wanted is None:
            binding.bind_output(name, "simulated")
        else:
            binding.bind_ortvalue_output(name, wanted)
    return binding


def open_capturing(model: onnx.ModelProto = DOUBLE) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(
        model, providers=[(SIMULATED, {"enable_graph_capture": True})]
    )


def test_a_captured_run_is_replayed(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated(captures=True)
    session = open_capturing()
    (provider,) = (each for each in factory.created)
    (partition,) = provider.partitions
    calls = 0
    run = partition._run

    def count(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        return run(*arguments)

    monkeypatch.setattr(partition, "_run", count)
    fed, filled = on_device(X), room([4])
    binding = bound(session, {"x": fed}, {"y": filled})
    for step in range(6):
        fed.update_inplace(X + step)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(filled.numpy(), 2 * (X + step))
    assert calls == 2  # the warm-up and the capture


def test_several_captured_graphs_of_one_binding(simulated: MakeSimulated) -> None:
    simulated(captures=True)
    session = open_capturing()
    pairs = [(on_device(X + n), room([4])) for n in range(3)]
    binding = session.io_binding()
    for _ in range(4):
        for number, (fed, filled) in enumerate(pairs):
            binding.bind_ortvalue_input("x", fed)
            binding.bind_ortvalue_output("y", filled)
            options = onnxplug.RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(number))
            session.run_with_iobinding(binding, options)
    for number, (_, filled) in enumerate(pairs):
        np.testing.assert_array_equal(filled.numpy(), 2 * (X + number))


def test_other_values_are_captured_anew(simulated: MakeSimulated) -> None:
    simulated(captures=True)
    session = open_capturing()
    binding = bound(session, {"x": on_device(X)}, {"y": room([4])})
    for _ in range(3):
        session.run_with_iobinding(binding)
    other = room([4])
    binding.bind_ortvalue_input("x", on_device(-X))
    binding.bind_ortvalue_output("y", other)
    for _ in range(3):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(other.numpy(), -2 * X)
    binding.release_captured_graph()
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(other.numpy(), -2 * X)


def test_a_captured_run_needs_values_that_stay(simulated: MakeSimulated) -> None:
    simulated(captures=True)
    session = open_capturing()
    binding = bound(session, {"x": on_device(X)}, {"y": None})
    with pytest.raises(InvalidArgument, match="output 'y' is not bound to a value in"):
        session.run_with_iobinding(binding)
    options = onnxplug.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    session.run_with_iobinding(binding, options)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 2 * X)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    with pytest.raises(OptionError, match="'one'"):
        options.add_run_config_entry("gpu_graph_id", "one")


def test_a_model_that_cannot_be_captured_is_refused(simulated: MakeSimulated) -> None:
    simulated(captures=True, ops=frozenset({"Neg", "Tanh"}))
    with pytest.raises(SessionRefused, match="is run by the host"):
        open_capturing(BRANCHES)
    with pytest.raises(SessionRefused, match=r"Add.* is run by CPU"):
        open_capturing(
            onnx.parser.parse_model(
                """
                < ir_version: 10, opset_import: ["" : 21] >
                g (float[4] x) => (float[4] y) { z = Neg (x) y = Add (z, z) }
                """
            )
        )
