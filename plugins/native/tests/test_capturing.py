"""A library that captures runs, and replays them in bound memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import onnxplug
from onnxplug import errors

from .conftest import product

EXAMPLE = "ExampleExecutionProvider"
VERSION = "VERSION=27"
MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x, float[n, 3] y) => (float[n, 3] z) {
      a = Mul(x, y) b = Mul(a, x) c = Mul(b, a) z = Mul(c, y)
    }"""
)


def open_session(model: onnx.ModelProto = MODEL) -> onnxplug.InferenceSession:
    data = model.SerializeToString()
    providers = [(EXAMPLE, {"mode": "captures"}), "cpu"]
    return onnxplug.InferenceSession(data, providers=providers)


def on_device(array: np.ndarray[Any, Any]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "example_memory")


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def expected(x: Any, y: Any, model: onnx.ModelProto = MODEL) -> Any:
    return onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "y": y})[0]


class Bound:
    """What a session is bound to."""

    def __init__(self, session: onnxplug.InferenceSession, size: int = 2) -> None:
        zeros = np.zeros((size, 3), np.float32)
        self.session = session
        self.x, self.y, self.z = (on_device(zeros) for _ in range(3))
        self.binding = session.io_binding()
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_input("y", self.y)
        self.binding.bind_ortvalue_output("z", self.z)

    def run(self, seed: int, graph: int | None = None) -> None:
        """Run on random numbers; the result is right."""
        x, y = (random(*self.x.shape(), seed=2 * seed + n) for n in range(2))
        self.x.update_inplace(x)
        self.y.update_inplace(y)
        options = onnxplug.RunOptions()
        if graph is not None:
            options.add_run_config_entry("gpu_graph_id", str(graph))
        self.session.run_with_iobinding(self.binding, options)
        np.testing.assert_allclose(self.z.numpy(), expected(x, y), rtol=1e-5)


@pytest.fixture
def capturing(register) -> Iterator[Callable[..., ctypes.CDLL]]:
    """Registers a library that captures, of which nothing is left in the end."""
    paths: list[Path] = []

    def register_with(kind: int, *macros: str) -> ctypes.CDLL:
        path = register(VERSION, f"CAPTURES={kind}", "DEVICE_MEMORY", *macros)
        paths.append(path)
        return ctypes.CDLL(str(path))

    yield register_with
    gc.collect()  # what errors refer to
    onnxplug.unregister_ep_library("example")
    for path in paths:
        library = ctypes.CDLL(str(path))
        assert (library.example_captured(), library.example_allocated()) == (0, 0)


@pytest.mark.parametrize("macros", [[], ["KERNELS"]])
@pytest.mark.parametrize(("kind", "warm"), [(1, 2), (2, 0)])
def test_what_is_captured_is_replayed(capturing, macros, kind, warm) -> None:
    """After the first run on what is bound; kernels are not called again for it."""
    library = capturing(kind, *macros)
    with open_session() as session:
        assert {each.ep for each in session.explain().nodes} == {EXAMPLE}
        bound = Bound(session)
        before = library.example_computed()
        bound.run(0)
        each = library.example_computed() - before
        bound.run(1)
        # one to compare with, and those that the library wants before
        computed = before + each * (2 + warm)
        assert library.example_computed() == computed
        replayed, parts = library.example_replayed(), library.example_captured()
        assert parts == (1 if macros else 4)
        for seed in range(2, 12):
            bound.run(seed)
        assert library.example_computed() == computed
        assert library.example_replayed() == replayed + 10 * parts
        del bound


def test_memory_of_what_is_captured_is_nobody_elses(capturing) -> None:
    """Whatever runs between."""
    capturing(2, "KERNELS")
    other = open_session()
    with other, open_session() as session:
        bounds = [Bound(session, size) for size in (2, 7)]
        for seed in range(6):
            for bound in bounds:
                bound.run(seed)
            x, y = random(5, 3, seed=seed), random(5, 3, seed=seed + 1)
            for ordinary in (other, session):
                (found,) = ordinary.run(None, {"x": x, "y": y})
                np.testing.assert_allclose(found, expected(x, y), rtol=1e-5)
        del bounds, bound


def test_each_number_is_captured_for_itself(capturing) -> None:
    library = capturing(1, "KERNELS")
    with open_session() as session:
        bound = Bound(session)
        for seed in range(12):
            bound.run(seed, graph=seed % 3)
        assert library.example_captured() == 3
        for seed in range(2):
            bound.run(seed, graph=-1)
        bound.binding.release_captured_graph(1)
        assert library.example_captured() == 2
        bound.run(5, graph=1)
        other = on_device(np.zeros((2, 3), np.float32))
        bound.binding.bind_ortvalue_output("z", other)
        bound.z = other
        for seed in range(4):
            bound.run(seed, graph=2)
        del bound


def test_a_binding_that_outlives_its_session(capturing) -> None:
    library = capturing(1, "KERNELS")
    session = open_session()
    bound = Bound(session)
    for seed in range(3):
        bound.run(seed)
    session.close()
    assert library.example_captured() == 0
    with pytest.raises(errors.OnnxplugError):
        bound.run(0)
    del bound, session


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (3, "has captured nothing in 8 runs; leave out its option .*gpu_graph_id=-1"),
        (5, "computes something else than the run did"),
        (6, r"ReplayGraph of .*\(FAIL\): it is gone"),
        (8, "computes something else than the run did"),
    ],
)
@pytest.mark.parametrize("macros", [[], ["KERNELS"]])
def test_what_is_not_captured_right_is_not_replayed(
    capturing, kind, told, macros
) -> None:
    capturing(kind, *macros)
    with open_session() as session:
        bound = Bound(session)
        bound.run(0)
        for _ in range(2):
            with pytest.raises(errors.OnnxplugError, match=told):
                bound.run(1)
        bound.run(2, graph=-1)
        del bound


def test_a_library_that_keeps_one_graph_for_all_numbers(capturing) -> None:
    capturing(4, "KERNELS")
    with open_session() as session:
        first, second = Bound(session), Bound(session)
        for seed in range(3):
            first.run(seed)
        second.run(0)
        with pytest.raises(errors.OnnxplugError, match="it keeps one for all numbers"):
            second.run(1)
        first.run(4)
        del first, second


def test_an_output_in_place_of_an_input_is_not_captured(capturing) -> None:
    capturing(1, "KERNELS")
    with open_session() as session:
        bound = Bound(session)
        bound.binding.bind_ortvalue_output("z", bound.x)
        session.run_with_iobinding(bound.binding)
        with pytest.raises(errors.OnnxplugError, match="'z' is bound to the array of"):
            session.run_with_iobinding(bound.binding)
        del bound


def test_what_is_copied_between_memories_is_not_captured(capturing) -> None:
    """The output of one kernel is the other's input on the host."""
    capturing(1, "KERNELS", "HOST_INPUT")
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) {
          k = Constant<value = float {2}>() a = Mul(x, k) z = Mul(y, a)
        }"""
    )
    with open_session(model) as session:
        bound = Bound(session)
        session.run_with_iobinding(bound.binding)
        with pytest.raises(errors.OnnxplugError, match="'a' is copied between the mem"):
            session.run_with_iobinding(bound.binding)
        del bound


def test_all_of_a_captured_model_is_the_librarys(capturing) -> None:
    capturing(1, "KERNELS")
    providers = [(EXAMPLE, {"mode": "captures"}), "cpu"]
    with pytest.raises(errors.SessionRefused, match=r"Add .* is run by CPUExecution"):
        onnxplug.InferenceSession(product(2, 3), providers=providers)


@pytest.mark.parametrize(
    ("macros", "told"),
    [
        (["CAPTURES=7", "DEVICE_MEMORY"], "does not implement OrtEp.ReplayGraph"),
        (["CAPTURES=1", "DEVICE_MEMORY", "STREAMS"], "on streams of its own, which"),
    ],
)
def test_a_library_that_captures_otherwise_is_refused(register, macros, told) -> None:
    path = register(VERSION, *macros)
    with pytest.raises(errors.OptionError, match=told):
        open_session()
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0


def test_a_library_in_the_hosts_memory_captures_nothing(register) -> None:
    register(VERSION, "CAPTURES=1")
    with pytest.raises(errors.SessionRefused, match="has no streams; turn the option"):
        open_session()
