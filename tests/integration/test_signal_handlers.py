"""What a signal handler of the program raises comes out as itself, whatever EP ran."""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxplug
from onnxplug import ep
from onnxplug_cpu.compiler.runtime import jit
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.provider import CpuProvider
from onnxplug_testing import SimulatedFactory
from onnxplug_testing.simulated import provider


class Timeout(TimeoutError):
    """A service's own."""


class Late:
    """What is interrupted when it is called, if it is to be."""

    def __init__(self) -> None:
        self.is_on = True

    def __call__(self, *_: Any, **__: Any) -> None:
        if self.is_on:
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def late() -> Iterator[Late]:
    def handle(number: int, frame: Any) -> None:
        raise Timeout("too late")

    before = signal.signal(signal.SIGTERM, handle)
    yield Late()
    signal.signal(signal.SIGTERM, before)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "mine": 1]> g {text}'
    )


X = {"x": np.ones(2, np.float32)}
SINE = model("(float[2] x) => (float[2] y) { y = Sin (x) }")
SLOW = {
    "a single node": "(float[2] x) => (float[2] y) { y = mine.Slow (x) }",
    "one of several": "(float[2] x) => (float[2] y) { z = Sin (x) y = mine.Slow (z) }",
    "in a body": """(float[2] x) => (float[2] y) <int64 n = {3}, bool c = {1}> {
        y = Loop (n, c, x) <body = b (int64 i, bool d, float[2] v)
            => (bool e, float[2] w) { e = Identity (d) w = mine.Slow (v) }> }""",
}


def slow(late: Late) -> onnxplug.SessionOptions:
    """Options of sessions that have an operator ``mine.Slow``."""

    def kernel(graph: ep.Graph, node: ep.Node, xp: Any) -> Callable[..., Any]:
        def compute(x: Any) -> Any:
            late()
            return x + x

        return compute

    operator = ep.Operator(
        op_type="Slow", kernel=kernel, infer_types=lambda graph, node, types: types
    )
    options = onnxplug.SessionOptions()
    options.register_custom_ops_library(
        ep.Domain(name="mine", spi_version=(0, 5), operators=[operator])
    )
    return options


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("with_options", [False, True])
def test_kernels_on_arrays(late: Late, text: str, with_options: bool) -> None:
    late.is_on = False
    session = onnxplug.InferenceSession(model(text), slow(late))
    options = onnxplug.RunOptions() if with_options else None
    (before,) = session.run(None, X, options)
    late.is_on = True
    with pytest.raises(Timeout, match=r"^too late$"):
        session.run(None, X, options)
    late.is_on = False
    np.testing.assert_array_equal(session.run(None, X, options)[0], before)


def test_folding(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    original = CpuProvider.compile

    def compile(self: CpuProvider, partition: ep.Partition) -> Any:
        if not partition.inputs:
            late()
        return original(self, partition)

    monkeypatch.setattr(CpuProvider, "compile", compile)
    text = """(float[2] x) => (float[2] y) <float[2] c = {1, 2}>
        { z = Sin (c) y = Add (x, z) }"""
    with pytest.raises(Timeout, match=r"^too late$"):
        onnxplug.InferenceSession(model(text))


def test_a_run_of_compiled_code(late: Late) -> None:
    session = onnxplug.InferenceSession(SINE)
    with (
        mock.patch.object(Program, "try_run", late),
        pytest.raises(Timeout, match=r"^too late$"),
    ):
        session.run(None, X)
    session.run(None, X)


def test_compiling_code(
    late: Late, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "hosts", {})  # nothing is compiled
    with (
        mock.patch.object(importlib, "import_module", late),
        pytest.raises(Timeout, match=r"^too late$"),
    ):
        onnxplug.InferenceSession(SINE)


NAME = "SimulatedExecutionProvider"


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (SimulatedFactory, "create"),
        (SimulatedFactory, "supported_devices"),
        (provider.SimulatedExecutionProvider, "get_capability"),
        (provider.SimulatedExecutionProvider, "compile"),
    ],
)
def test_no_other_ep_takes_the_place_of_one_that_was_interrupted(
    simulated: Callable[..., SimulatedFactory],
    late: Late,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
) -> None:
    simulated()
    monkeypatch.setattr(owner, method, late)
    with pytest.raises(Timeout, match=r"^too late$"):
        onnxplug.InferenceSession(SINE, providers=[NAME, "CPUExecutionProvider"])


def test_what_an_ep_makes_of_it_does_not_count(
    simulated: Callable[..., SimulatedFactory],
    late: Late,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decline(self: Any, partition: ep.Partition) -> Any:
        try:
            late()
        except Exception as error:
            raise ep.Declined("it does not compile") from error

    simulated()
    monkeypatch.setattr(provider.SimulatedExecutionProvider, "compile", decline)
    with pytest.raises(Timeout, match=r"^too late$"):
        onnxplug.InferenceSession(SINE, providers=[NAME, "CPUExecutionProvider"])
    late.is_on = False


ANYWHERE = """
import random, signal, sys, time
import numpy as np, onnx, onnxplug

KINDS = [Exception, TimeoutError, RuntimeError, ValueError, SystemExit]
PROVIDERS = {
    "compiled": ["CPUExecutionProvider"],
    "arrays": [("CPUExecutionProvider", {"compile": "0"})],
    "OpenVINO": ["OpenVINOExecutionProvider"],
}
model = onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]>
    g (float[a, 30] x, bool c) => (float[a, 30] y) <int64[1] one = {1}>
    { s = Shape (x) k = Sin (w) t = MatMul (x, k) e = Erf (t) r = Reshape (e, s)
      q = ReduceSum (r, one) p = Mul (r, q)
      y = If (c) <then_branch = a () => (float[a, 30] ya) { ya = Softmax (p) },
                  else_branch = b () => (float[a, 30] yb) { yb = Sin (p) }> }
''')
weight = onnx.numpy_helper.from_array(np.ones((30, 30), np.float32), "w")
model.graph.initializer.append(weight)
content = model.SerializeToString()
lost = []  # what Python drops, in the end of an object
sys.unraisablehook = lambda unraisable: lost.append(unraisable.exc_value)
chance = random.Random(0)
raised = None


def handle(number, frame):
    global raised
    raised = type("Late", (chance.choice(KINDS),), {})("too late")
    raise raised


def work(turn):
    session = onnxplug.InferenceSession(content, providers=PROVIDERS[sys.argv[1]])
    for number in range(3):
        x = np.ones((number + turn % 7 + 1, 30), np.float32)
        session.run(None, {"x": x, "c": np.array(number % 2 == 0)})


signal.signal(signal.SIGALRM, handle)
work(0)
began = time.perf_counter()
work(1)
usual = time.perf_counter() - began
turns, ends = 0, time.monotonic() + 3
while turns < 20 or time.monotonic() < ends:
    raised, came = None, None
    lost.clear()
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.random() * usual + 1e-5)
        while raised is None:
            work(turns)
            turns += 1
    except BaseException as error:
        came = error
    if came is not raised and raised not in lost:
        raise came or AssertionError("it was lost") from raised
    turns += 1
work(0)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no setitimer")
@pytest.mark.parametrize("tier", ["compiled", "arrays", "OpenVINO"])
def test_anywhere(tier: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ANYWHERE, tier],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


ON_A_DEVICE = """
import random, signal, sys, time
import numpy as np, onnx, onnxplug
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory

registry.add(SimulatedFactory(Knobs(schedule=sys.argv[1])))
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) { a = Relu (x) y = Add (a, x) }
''').SerializeToString()
sys.unraisablehook = lambda unraisable: None  # what is raised in a finalizer
chance, x = random.Random(0), np.arange(-2, 2).astype(np.float32)


class Late(Exception):
    pass


def handle(number, frame):
    raise Late


def run():
    (y,) = session.run(None, {"x": x})
    assert (y == np.maximum(x, 0) + x).all(), y


session = onnxplug.InferenceSession(model, providers=["SimulatedExecutionProvider"])
run()
began = time.perf_counter()
run()
usual = time.perf_counter() - began
signal.signal(signal.SIGALRM, handle)
interrupted, kept, end = 0, None, time.monotonic() + 2
while interrupted < 20 or time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.random() * usual + 1e-5)
        run()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Late as error:
        interrupted, kept = interrupted + 1, error  # with its frames, as shells do
    run()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no setitimer")
@pytest.mark.parametrize("schedule", ["late", "threaded"])
def test_a_run_on_a_device_that_is_interrupted_anywhere_is_none_of_the_next(
    schedule: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_A_DEVICE, schedule],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # what is raised between the making of a stream and its entry leaves nobody to close
    # it, which is told at the end, and nothing else is
    for line in done.stderr.splitlines():
        assert re.search(r"was closed before \d+ of its streams", line), done.stderr
