"""Builds: in the background, seen, and given up."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import errors
from onnxplug_tensorrt import callbacks

from .conftest import EP
from .standin import TensorRT

OPEN = {"inputs": "float[batch, 3] x", "outputs": "float[batch, 3] y"}


def fed(batch: int) -> dict[str, Any]:
    return {"x": np.linspace(-1, 1, 3 * batch, dtype=np.float32).reshape(batch, 3)}


def wait_until(holds: Any) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_another_ep_serves_while_one_is_built(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse("a = Exp(x) y = Sin(a)", **OPEN)
    session = make(model, {"session.serve_while_compiling": "1"})
    tensorrt.gate.clear()
    (wanted,) = ReferenceEvaluator(model).run(None, fed(2))
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, fed(2))[0], wanted, 1e-5)
    assert not tensorrt.counts["deserialised"]
    tensorrt.gate.set()

    def is_built() -> bool:
        np.testing.assert_allclose(session.run(None, fed(2))[0], wanted, 1e-5)
        return bool(tensorrt.machine.counts["execute_async_v3"])

    wait_until(is_built)
    assert tensorrt.counts["builds"] == 1


def test_a_session_is_given_up_while_it_builds(
    factory: Any, parse: Any, tensorrt: TensorRT
) -> None:
    options = onnxplug.SessionOptions()
    tensorrt.gate.clear()

    def cancel() -> None:
        tensorrt.building.wait(60)
        options.set_load_cancellation_flag(True)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(errors.LoadCancelled):
        onnxplug.InferenceSession(parse("y = Exp(x)"), options, [EP])
    thread.join()
    assert not tensorrt.building.is_set()


def test_a_run_is_given_up_while_it_builds(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    session = alone(parse("y = Exp(x)", **OPEN))
    options = onnxplug.RunOptions()
    tensorrt.gate.clear()

    def cancel() -> None:
        tensorrt.building.wait(60)
        options.terminate = True

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(errors.RunCancelled):
        session.run(None, fed(2), options)
    thread.join()
    tensorrt.gate.set()
    np.testing.assert_allclose(session.run(None, fed(2))[0], np.exp(fed(2)["x"]), 1e-5)


def test_an_interrupt_ends_a_build(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    tensorrt.gate.clear()

    def interrupt() -> None:
        tensorrt.building.wait(60)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        alone(parse("y = Exp(x)"))
    thread.join()
    assert not tensorrt.building.is_set()


def test_a_build_that_fails_is_told(make: Any, parse: Any, tensorrt: TensorRT) -> None:
    """As where a range says of a static size what it is not."""
    model = parse("y = Exp(x)")
    tensorrt.fails = "no kernel for this"
    with pytest.warns(errors.EpWarning, match="does not build.*no kernel for this"):
        session = make(model)
    np.testing.assert_allclose(session.run(None, fed(2))[0], np.exp(fed(2)["x"]), 1e-5)


def test_how_far_a_build_is(
    alone: Any, parse: Any, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(callbacks, "_SECONDS", 0.0)
    with caplog.at_level(logging.INFO):
        alone(parse("a = Exp(x) y = Sin(a)"))
    said = [record.getMessage() for record in caplog.records]
    assert any("TensorRT builds 2 nodes from" in text for text in said), said
    assert any("Building, 2 of 2" in text for text in said), said


def test_sessions_build_one_after_the_other(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse("y = Exp(x)", **OPEN)
    given = {"trt_force_sequential_engine_build": 1}
    sessions = [alone(model, **given) for _ in range(3)]
    most = []

    def work(session: Any) -> None:
        session.run(None, fed(2))
        most.append(tensorrt.most_builds)

    threads = [threading.Thread(target=work, args=(each,)) for each in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tensorrt.counts["builds"] == 3 and max(most) == 1


def test_a_partition_is_written_for_debugging(
    alone: Any, parse: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.chdir(tmp_path)
    alone(parse("a = Exp(x) y = Sin(a)"), trt_dump_subgraphs=1)
    (written,) = tmp_path.glob("tensorrt_*.onnx")
    assert [node.op_type for node in onnx.load(written).graph.node] == ["Exp", "Sin"]
