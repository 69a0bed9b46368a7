"""Traces of sessions: what they have, and that sessions without one pay nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import EpError, ModelError, NodeError, OptionError, RunCancelled
from onnxplug.run import profiling
from onnxplug_testing import SimulatedFactory, SimulatedPartition, Stage

MakeSimulated = Callable[..., SimulatedFactory]
Event = dict[str, Any]

ON_ARRAYS = [("CPUExecutionProvider", {"compile": False})]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[n, 2] x) => (float[n, 2] y)
    { [double] d = Add (x, x) [top] h = Hardmax (d) [product] y = Mul (h, d) }
    """
)
LOOP = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (int64 count, float x) => (float y)
    {
        [around] y = Loop (count, , x) <body = steps (int64 i, bool c, float a)
            => (bool d, float b) { d = Identity (c) [wave] b = Sin (a) }>
    }
    """
)
X = np.array([[1, -2], [3, -4]], np.float32)


@pytest.fixture
def options(tmp_path: Path) -> onnxplug.SessionOptions:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    return options


def read(path: str | Path) -> list[Event]:
    """The events of a trace, outer ones before those within; they nest."""
    events = [e for e in json.loads(Path(path).read_text("utf-8")) if e["ph"] == "X"]
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    for tid in {event["tid"] for event in events}:
        ends: list[float] = []
        for event in events:
            if event["tid"] != tid:
                continue
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 1e-3, event  # floats of µs
            ends.append(end)
    return events


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


def within(events: list[Event], outer: Event) -> list[Event]:
    end = outer["ts"] + outer["dur"]
    return [e for e in events if outer["ts"] <= e["ts"] < end and e is not outer]


def test_a_trace_has_what_onnxruntimes_has(options: onnxplug.SessionOptions) -> None:
    session = onnxplug.InferenceSession(MODEL, options, providers=ON_ARRAYS)
    session.run(None, {"x": X})
    session.run(["y"], {"x": X}, onnxplug.RunOptions())
    path = session.end_profiling()
    assert re.fullmatch(r".*/trace_\d{4}(-\d\d){2}_\d\d(-\d\d){2}_\d{3,}\.json", path)
    events = read(path)
    (load,) = named(events, "model_loading_array")
    (initialize,) = named(events, "session_initialization")
    assert load["ts"] + load["dur"] <= initialize["ts"]
    stages = [event["name"] for event in within(events, initialize)]
    assert stages == [
        "create EPs", "prepare", "compile", "assign nodes",
        "compile from Add 'double' on", "plan",
    ]  # fmt: skip
    runs = named(events, "model_run")
    assert len(runs) == 2
    for run in runs:
        execute, partition, *nodes = within(events, run)
        assert execute["name"] == "SequentialExecutor::Execute"
        assert (partition["name"], partition["cat"]) == ("partition 0", "Partition")
        assert [node["name"] for node in nodes] == [
            "double_kernel_time", "top_kernel_time", "product_kernel_time"
        ]  # fmt: skip
        assert {node["cat"] for node in nodes} == {"Node"}
        assert [node["args"]["op_name"] for node in nodes] == ["Add", "Hardmax", "Mul"]
        assert sum(node["dur"] for node in nodes) <= partition["dur"]
        assert nodes[0]["args"] == {
            "provider": "CPUExecutionProvider",
            "op_name": "Add",
            "node_index": 0,
            "tier": "array",
            "input_type_shape": [{"float": [2, 2]}] * 2,
            "output_type_shape": [{"float": [2, 2]}],
        }


def test_the_start_is_told_and_the_end_only_once(
    options: onnxplug.SessionOptions,
) -> None:
    session = onnxplug.InferenceSession(MODEL, options)
    started = session.get_profiling_start_time_ns()
    path = session.end_profiling()
    facts = json.loads(Path(path).read_text())[-1]["args"]
    assert started == facts["start_time_ns"] > 10**18
    assert session.end_profiling() == ""
    assert session.get_profiling_start_time_ns() == started
    plain = onnxplug.InferenceSession(MODEL)
    assert (plain.end_profiling(), plain.get_profiling_start_time_ns()) == ("", 0)


def test_bodies_are_within_their_node(options: onnxplug.SessionOptions) -> None:
    session = onnxplug.InferenceSession(LOOP, options, providers=ON_ARRAYS)
    session.run(None, {"count": np.array(3), "x": np.array(1, np.float32)})
    events = read(session.end_profiling())
    (loop,) = named(events, "around_kernel_time")
    facts = loop["args"]
    assert (facts["op_name"], facts["provider"]) == ("Loop", "CPUExecutionProvider")
    bodies = named(within(events, loop), "Loop 'around'.body")
    assert len(bodies) == 3
    for body in bodies:
        assert len(named(within(events, body), "wave_kernel_time")) == 1


def test_copies_and_waits_are_told(
    options: onnxplug.SessionOptions, simulated: MakeSimulated
) -> None:
    simulated(ops=frozenset({"Mul", "Add"}), streams=True)
    session = onnxplug.InferenceSession(
        MODEL, options, providers=["simulated", *ON_ARRAYS]
    )
    session.run(None, {"x": X})
    events = read(session.end_profiling())
    copies = [event for event in events if event["cat"] == "Copy"]
    assert len(copies) == len(session.explain().copies) > 0
    assert copies[0]["name"] == "copy x"
    assert copies[0]["args"]["source"] == "host"
    assert copies[0]["args"]["input_type_shape"] == [{"float": [2, 2]}]
    assert any(event["cat"] == "Wait" for event in events)
    partitions = [event for event in events if event["cat"] == "Partition"]
    assert {event["args"]["provider"] for event in partitions} == {
        "SimulatedExecutionProvider",
        "CPUExecutionProvider",
    }
    numbers = [part.number for part in session.explain().partitions]
    assert [event["name"] for event in partitions] == [
        f"partition {n}" for n in numbers
    ]


def test_bound_runs_and_other_values_are_in_the_same_trace(
    options: onnxplug.SessionOptions, tmp_path: Path
) -> None:
    session = onnxplug.InferenceSession(MODEL, options, providers=ON_ARRAYS)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    session.run(["h"], {"x": X})
    events = read(session.end_profiling())
    assert len(named(events, "model_run")) == 2
    assert len(named(events, "session_initialization")) == 2
    session.run(["h", "d"], {"x": X})  # which makes another variant
    assert len(list(tmp_path.iterdir())) == 1


def test_failed_and_cancelled_runs_are_in_the_trace(
    options: onnxplug.SessionOptions,
) -> None:
    model = onnx.parser.parse_model(
        '< ir_version: 10, opset_import: ["" : 21] >'
        "agraph (float[n] x, int64[k] s) => (float[m] y) { y = Reshape (x, s) }"
    )
    session = onnxplug.InferenceSession(model, options, providers=ON_ARRAYS)
    feed = {"x": np.zeros(6, np.float32), "s": np.array([4])}
    with pytest.raises(NodeError):
        session.run(None, feed)
    cancelled = onnxplug.RunOptions()
    cancelled.terminate = True
    with pytest.raises(RunCancelled):
        session.run(None, feed, cancelled)
    assert len(named(read(session.end_profiling()), "model_run")) == 2


def test_closing_or_dropping_a_session_writes_its_trace(
    options: onnxplug.SessionOptions, tmp_path: Path
) -> None:
    with onnxplug.InferenceSession(MODEL, options) as session:
        session.run(None, {"x": X})
    (path,) = tmp_path.iterdir()
    assert named(read(path), "model_run")
    assert session.end_profiling() == ""
    session = onnxplug.InferenceSession(MODEL, options)
    session.run(None, {"x": X})
    del session
    assert all(named(read(path), "model_run") for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 2


def test_other_providers_begin_another_trace(
    options: onnxplug.SessionOptions, tmp_path: Path
) -> None:
    session = onnxplug.InferenceSession(MODEL, options)
    session.run(None, {"x": X})
    (first,) = tmp_path.iterdir()
    session.set_providers(ON_ARRAYS)
    assert named(read(first), "model_run")
    session.run(None, {"x": X})
    second = session.end_profiling()
    assert second != str(first)
    assert named(read(second), "top_kernel_time")


def test_a_session_that_fails_leaves_no_file(
    options: onnxplug.SessionOptions, tmp_path: Path
) -> None:
    with pytest.raises(ModelError):
        onnxplug.InferenceSession(tmp_path / "missing.onnx", options)
    assert list(tmp_path.iterdir()) == []
    options.profile_file_prefix = str(tmp_path / "missing" / "trace")
    with pytest.raises(OptionError, match="profile_file_prefix"):
        onnxplug.InferenceSession(MODEL, options)


def test_the_options_are_of_their_types() -> None:
    options = onnxplug.SessionOptions()
    assert options.enable_profiling is False
    assert options.profile_file_prefix == "onnxruntime_profile_"
    with pytest.raises(TypeError, match="expected bool"):
        options.enable_profiling = "yes"  # type: ignore[assignment]


def test_without_a_profile_nothing_is_made_or_called(
    options: onnxplug.SessionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled = onnxplug.InferenceSession(MODEL, options)
    path = profiled.end_profiling()
    content = Path(path).read_text()

    def refuse(*args: Any, **keywords: Any) -> Any:
        raise AssertionError("this is for profiles")

    for name in ("__init__", "record", "stage", "run", "of"):
        monkeypatch.setattr(profiling.Profile, name, refuse)
    monkeypatch.setattr(profiling.EpProfiler, "record", refuse)
    monkeypatch.setattr(profiling, "_Event", refuse)
    plain = onnxplug.InferenceSession(MODEL)
    for session in (plain, profiled):
        # the short way is there, and knows nothing of profiles
        assert session._runner.call({"x": X}) is not None
        session.run(None, {"x": X})
        session.run(None, {"x": X}, onnxplug.RunOptions())
    assert Path(path).read_text() == content


def device_run(
    session: onnxplug.InferenceSession,
) -> tuple[onnxplug.OrtValue, onnxplug.IOBinding]:
    """What a run leaves queued, and what has its stream."""
    binding = session.io_binding()
    value = onnxplug.OrtValue.ortvalue_from_numpy(X, "simulated")
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "simulated")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0], binding


def queued_session(
    simulated: MakeSimulated, options: onnxplug.SessionOptions, **knobs: Any
) -> onnxplug.InferenceSession:
    simulated(ops=frozenset({"Add"}), **knobs)
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2, 2] x) => (float[2, 2] y) { y = Add (x, x) }
        """
    )
    return onnxplug.InferenceSession(model, options, providers=["simulated", "cpu"])


def test_what_a_device_did_after_its_run_is_in_the_trace(
    simulated: MakeSimulated, options: onnxplug.SessionOptions
) -> None:
    session = queued_session(simulated, options)
    left, _binding = device_run(session)
    assert not left.ready
    events = read(session.end_profiling())  # which waits for the work
    assert left.ready
    (work,) = named(events, "a partition of Add_kernel_time")
    assert work["tid"] >= profiling.FIRST_ROW
    assert work["args"]["provider"] == "SimulatedExecutionProvider"
    run = next(event for event in events if event["name"] == "model_run")
    assert work["ts"] >= run["ts"] + run["dur"]
    session.close()


def test_work_that_failed_is_told_to_who_waits_for_it_and_not_in_the_trace(
    simulated: MakeSimulated, options: onnxplug.SessionOptions
) -> None:
    session = queued_session(simulated, options, fail_at=Stage.WORK)
    left, _binding = device_run(session)
    assert not named(read(session.end_profiling()), "a partition of Add_kernel_time")
    with pytest.raises(EpError, match="told to fail at work"):
        left.wait()
    session.close()


@pytest.mark.parametrize("ends", ["end_profiling", "close"])
def test_an_ep_that_fails_to_tell_is_named_when_the_trace_ends(
    simulated: MakeSimulated,
    options: onnxplug.SessionOptions,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    def fail(*args: Any) -> None:
        raise KeyError("no clock")

    monkeypatch.setattr(SimulatedPartition, "_tell", fail)
    session = queued_session(simulated, options)
    left, _binding = device_run(session)
    left.wait()
    with pytest.raises(EpError, match=r"failed in Profiler\.when_done.*no clock"):
        getattr(session, ends)()
    session.close()
