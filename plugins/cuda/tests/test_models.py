"""Whole models on the stand-in: what they compute, and what they cost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug

from . import networks
from .standin import Machine

EP = "CUDAExecutionProvider"
RNG = np.random.default_rng(7)


def close(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, 1e-4, 1e-5 * np.abs(other).max())


def spent(machine: Machine, run: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """What *run* gives, and the calls that it made."""
    before = machine.counts.copy()
    found = run()
    return found, machine.counts - before


def waits(counts: Counter[str]) -> int:
    return counts["eventSynchronize"] + counts["streamSynchronize"]


def on_gpu(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


FEEDS = {
    "mlp": [RNG.standard_normal((n, 32)).astype(np.float32) for n in (3, 7)],
    "resnet": [RNG.standard_normal((n, 3, 32, 32)).astype(np.float32) for n in (1, 2)],
    "bert": [RNG.integers(0, networks.WORDS, shape) for shape in ((1, 7), (2, 5))],
}


@pytest.mark.parametrize("name", FEEDS)
def test_a_network_is_on_the_device_alone(
    alone: Any, machine: Machine, name: str
) -> None:
    """A run copies in what it is fed and out what it gives, and, where elements are
    looked up, whether there was one; for these it waits."""
    model = getattr(networks, name)()
    session, reference = alone(model, use_tf32=0), ReferenceEvaluator(model)
    for x in FEEDS[name]:
        wanted = reference.run(None, {"x": x})
        for _ in range(2):
            close(session.run(None, {"x": x}), wanted)
        found, counts = spent(machine, lambda x=x: session.run(None, {"x": x}))
        close(found, wanted)
        assert counts["copy to the device"] == 1
        assert counts["copy to the host"] == 1 + (name == "bert")
        assert waits(counts) <= 2
        assert not counts["malloc"]
    assert {node.ep for node in session.explain().nodes} == {EP}


def decode(
    session: onnxplug.InferenceSession, model: onnx.ModelProto, machine: Machine
) -> list[Counter[str]]:
    """Decode some tokens, each right; what each step costs."""
    reference = ReferenceEvaluator(model)
    size = networks.WIDTH // networks.HEADS
    empty = np.zeros((1, networks.HEADS, 0, size), np.float32)
    known, past = [empty, empty], [on_gpu(empty), on_gpu(empty)]
    tokens, costs = np.array([[5, 17, 3, 40]]), []
    for _ in range(5):
        scores, *known = reference.run(
            None, {"x": tokens, "past_k": known[0], "past_v": known[1]}
        )
        binding = session.io_binding()
        binding.bind_cpu_input("x", tokens)
        for name, value in zip(("past_k", "past_v"), past, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name, device in (("y", "cpu"), ("k", "cuda"), ("v", "cuda")):
            binding.bind_output(name, device)
        _, counts = spent(machine, lambda b=binding: session.run_with_iobinding(b))
        costs.append(counts)
        found, *past = binding.get_outputs()
        close([found.numpy()], [scores])
        tokens = scores[:, -1:].argmax(-1)
    close([each.numpy() for each in past], known)
    return costs


def test_a_decoder_has_its_growing_cache_on_the_device(
    alone: Any, machine: Machine
) -> None:
    """A step copies in the token, and out the scores and whether the token is known."""
    model = networks.gpt2()
    session = alone(model, use_tf32=0)
    decode(session, model, machine)
    for counts in decode(session, model, machine):
        assert counts["copy to the device"] == 1
        assert counts["copy to the host"] == 2
        assert waits(counts) <= 2 and not counts["malloc"]
    assert {node.ep for node in session.explain().nodes} == {EP}


BRANCHES = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[3] x, int64 count, bool flag) => (float[3] y, float[N, 3] all) {
  yes = Constant <value = bool {1}> ()
  y0, all = Loop (count, yes, x) <
    body = g (int64 i, bool go, float[3] a) => (bool on, float[3] b, float[3] each) {
      on = Identity (go)
      s = Sin (a)
      b = Add (s, x)
      each = Neg (b)
    }>
  y = If (flag) <
    then_branch = t () => (float[3] z) { z = Exp (y0) },
    else_branch = e () => (float[3] z) { z = Mul (y0, x) }>
}
"""


@pytest.mark.parametrize("flag", [False, True])
def test_bodies_of_control_flow_are_on_the_device(
    factory: Any, machine: Machine, flag: bool
) -> None:
    model = onnx.parser.parse_model(BRANCHES)
    eps = [EP, "CPUExecutionProvider"]
    session = onnxplug.InferenceSession(model, providers=eps)
    x = np.array([0.3, -1, 2], np.float32)
    feeds = {"x": x, "count": np.array(4), "flag": np.array(flag)}
    close(session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds))
    assert machine.counts["launchKernel"] > 8
    on_it = {node.op_type for node in session.explain().nodes if node.ep == EP}
    assert {"Sin", "Add", "Neg"} <= on_it


def test_a_captured_network_is_launched_at_once(alone: Any, machine: Machine) -> None:
    model = networks.mlp()
    session = alone(model, use_tf32=0, enable_cuda_graph="1")
    reference = ReferenceEvaluator(model)
    (name,) = (each.name for each in session.get_outputs())
    x, y = on_gpu(FEEDS["mlp"][0]), on_gpu(np.zeros((3, 10), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output(name, y)
    for factor in (1, 2, -1):
        content = factor * FEEDS["mlp"][0]
        x.update_inplace(content)
        _, counts = spent(machine, lambda: session.run_with_iobinding(binding))
        close([y.numpy()], reference.run(None, {"x": content}))
    assert counts["graphLaunch"] == 1 and not counts["launchKernel"]
    assert not counts["memcpyAsync"] and not counts["malloc"]


def test_threads_share_a_session_and_a_device(alone: Any, machine: Machine) -> None:
    machine.late = 2
    model = networks.mlp()
    session, reference = alone(model, use_tf32=0), ReferenceEvaluator(model)
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(4):
                x = np.full((1 + number % 2, 32), 0.1 * (number - turn), np.float32)
                close(session.run(None, {"x": x}), reference.run(None, {"x": x}))
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, machine.violations
