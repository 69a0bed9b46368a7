"""Allocators that a library has for each session."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import errors

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"
MEMORY = "example_memory"


@pytest.fixture
def library(register) -> Any:
    def load(*macros: str) -> ctypes.CDLL:
        return ctypes.CDLL(str(register("DEVICE_MEMORY", "SESSIONS=2", *macros)))

    return load


def open_session(
    model: bytes, mode: str = "session", **options: str
) -> onnxplug.InferenceSession:
    providers = [(EXAMPLE, {"mode": mode, **options}), "cpu"]
    return onnxplug.InferenceSession(model, providers=providers)


def with_weight(model: bytes, weight: Any) -> bytes:
    """*model*, of which ``y`` is constant."""
    loaded = onnx.load_from_string(model)
    loaded.graph.initializer.append(onnx.numpy_helper.from_array(weight, "y"))
    del loaded.graph.input[1]
    return bytes(loaded.SerializeToString())


def require_right(found: Any, given: dict[str, Any], power: int = 1) -> None:
    expected = (given["x"] + given["x"]) * given["y"] ** power
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("macros", [[], ["KERNELS"], ["STREAMS"]])
def test_what_a_session_makes_comes_from_its_own_allocator(library, macros) -> None:
    made, given = library(*macros), feeds(2, 3)
    model = with_weight(product(2, 3, nodes=2), given["y"])
    with open_session(model) as session:
        assert made.example_of_weights() > 0
        before = made.example_ever_of_session()
        for _ in range(3):
            require_right(session.run(None, {"x": given["x"]})[0], given, 2)
        assert made.example_ever_of_session() > before
    assert made.example_of_session() == made.example_of_weights() == 0
    assert made.example_live_eps() == made.example_misused() == 0
    onnxplug.unregister_ep_library("example")
    assert made.example_allocated() == 0


def test_without_memory_for_weights_these_are_where_all_is(register) -> None:
    path = register("DEVICE_MEMORY", "SESSIONS=1")
    made, given = ctypes.CDLL(str(path)), feeds(2, 3)
    with open_session(with_weight(product(2, 3), given["y"])) as session:
        assert made.example_of_session() == 1
        require_right(session.run(None, {"x": given["x"]})[0], given)
    assert made.example_of_session() == made.example_of_weights() == 0


def test_without_an_entry_the_factory_allocates(library) -> None:
    made, given = library(), feeds(2, 3)
    with open_session(with_weight(product(2, 3), given["y"]), "other") as session:
        require_right(session.run(None, {"x": given["x"]})[0], given)
        assert made.example_of_session() == made.example_of_weights() == 0


def bound_value(session: onnxplug.InferenceSession, given: Any) -> onnxplug.OrtValue:
    """What the session makes, left in the library's memory."""
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("v1", MEMORY)
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == MEMORY
    return found


@pytest.mark.parametrize("macros", [[], ["KERNELS"], ["STREAMS"]])
def test_an_ep_stays_until_the_last_value_of_its_session_is_freed(
    library, macros
) -> None:
    made, given = library(*macros), feeds(2, 3)
    one, other = (open_session(product(2, 3)) for _ in range(2))
    value = bound_value(one, given)
    one.close()
    require_right(value.numpy(), given)
    require_right(bound_value(other, given).numpy(), given)
    other.close()
    gc.collect()
    assert (made.example_live_eps(), made.example_of_session()) == (1, 1)
    onnxplug.unregister_ep_library("example")
    require_right(value.numpy(), given)
    del value
    gc.collect()
    assert made.example_live_eps() == made.example_misused() == 0
    assert made.example_allocated() == 0


_SCRIPT = """
import sys
import numpy as np, onnxplug
onnxplug.register_ep_library("example", sys.argv[2])
providers = [("ExampleExecutionProvider", {"mode": "session"}), "cpu"]
session = onnxplug.InferenceSession(sys.argv[1], providers=providers)
binding = session.io_binding()
for name in "xy":
    binding.bind_cpu_input(name, np.ones((2, 3), np.float32))
binding.bind_output("v1", "example_memory")
session.run_with_iobinding(binding)
(value,) = binding.get_outputs()
if sys.argv[3] == "closed":
    session.close()
print(value.numpy().sum())
"""


@pytest.mark.parametrize("state", ["closed", "open"])
def test_a_value_that_is_left_at_the_end_says_nothing(
    compile_example, tmp_path, state
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(product(2, 3))
    library = compile_example("DEVICE_MEMORY", "SESSIONS=2")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT, model, library, state],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "12.0\n", "")


def test_values_may_be_freed_in_several_threads_at_once(library) -> None:
    made, given = library(), feeds(2, 3)
    for _ in range(10):
        session = open_session(product(2, 3))
        values = [[bound_value(session, given)] for _ in range(4)]
        session.close()
        gate = threading.Barrier(len(values))

        def free(held: list[Any], gate: threading.Barrier = gate) -> None:
            gate.wait()
            held.clear()

        threads = [threading.Thread(target=free, args=[each]) for each in values]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        assert made.example_live_eps() == made.example_of_session() == 0
    assert made.example_misused() == 0


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("session fails", "CreateAllocator of Example.*no pages"),
        ("session later", "CreateAllocator of Example.*no pages"),
        ("session null", "gave a null for its memory example_memory; expected an all"),
        ("session made up", "gave an OrtAllocator at 0x1238, where nothing is"),
        ("session arena", "of type OrtArenaAllocator, which is ONNX Runtime's own"),
        ("session no info", "whose Info is no OrtMemoryInfo; expected the one that"),
    ],
)
def test_an_ep_is_not_used_where_its_allocator_is_of_no_use(
    library, mode, told
) -> None:
    made, given = library(), feeds(2, 3)
    with pytest.warns(errors.EpWarning, match=told):
        session = open_session(product(2, 3), mode)
    assert made.example_live_eps() == 0
    with session, open_session(product(2, 3)) as other:
        for each in (session, other):
            require_right(each.run(None, given)[0], given)
    onnxplug.unregister_ep_library("example")
    assert made.example_allocated() == 0
