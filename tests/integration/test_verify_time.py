"""The time that the on-device check may take, and what becomes of what it did not
reach: the next processes try again."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import DataType, EpFactory, Probe
from onnxplug.errors import EpWarning, LoadCancelled
from onnxplug.plugins import registry
from onnxplug.verify.check import SECONDS as LIMIT
from onnxplug.verify.check import TIMEOUTS, known_verdicts
from onnxplug.verify.code import code_digest
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated.factory import SimulatedVerification

SIMULATED = "SimulatedExecutionProvider"
X = np.array([[1, -2], [3, 0.5]], np.float32)


def model(op: str) -> bytes:
    text = f"""
        <ir_version: 10, opset_import: ["" : 21]>
        agraph (float[2, 2] x) => (float[2, 2] y) {{ y = {op} (x, x) }}
    """
    return onnx.parser.parse_model(text).SerializeToString()


def probe(op: str) -> Probe:
    return Probe(
        family=op.lower(),
        operators=frozenset({("", op, DataType.FLOAT32)}),
        model=model(op),
        inputs={"x": X},
        tolerance=(1e-5, 1e-6),
    )


PROBES = (probe("Mul"), probe("Add"), probe("MatMul"))


class Hanging:
    """An ``Add`` that hangs in the check."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.count = 0

    def __call__(self, a: Any, b: Any) -> Any:
        if threading.current_thread().name == "onnxplug-verify":
            self.count += 1
            self.wake.wait(60)
        return a + b


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.wake.set()
    for worker in threading.enumerate():
        if worker.name == "onnxplug-verify":
            worker.join(10)
            assert not worker.is_alive()


@pytest.fixture
def new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[SimulatedFactory], SimulatedFactory]]:
    """Registers an EP as a process would that knows only what is kept on disk."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))

    def start(factory: SimulatedFactory) -> SimulatedFactory:
        end()
        registry.add(factory)
        return factory

    def end() -> None:
        if any(record.name == SIMULATED for record in registry.records()):
            registry.remove(SIMULATED)

    yield start
    end()


def open_session(op: str = "Add", **named: Any) -> onnxplug.InferenceSession:
    providers = [SIMULATED, "CPUExecutionProvider"]
    return onnxplug.InferenceSession(model(op), providers=providers, **named)


def found(factory: EpFactory) -> list[tuple[str, int | None]]:
    (device,) = factory.supported_devices([])
    verdicts = known_verdicts(factory, device, registry)  # type: ignore[arg-type]
    return [(each.verdict.value, each.timeouts) for each in verdicts]


def told(factory: EpFactory) -> list[str]:
    (device,) = factory.supported_devices([])
    verdicts = known_verdicts(factory, device, registry)  # type: ignore[arg-type]
    return [each.detail for each in verdicts]


def test_a_probe_that_hangs_costs_two_seconds(
    new_process: Callable[..., SimulatedFactory], hanging: Hanging
) -> None:
    assert LIMIT == 2
    knobs = Knobs(kernels={"Add": hanging}, probes=PROBES)
    factory = new_process(SimulatedFactory(knobs))
    started = time.monotonic()
    with pytest.warns(EpWarning) as warned:
        session = open_session()
    assert 1.9 < time.monotonic() - started < 20
    (warning,) = warned
    assert "no time to check these families" in str(warning.message)
    assert "'add', 'matmul'" in str(warning.message)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_session()  # the process knows
    assert hanging.count == 1
    assert found(factory) == [("passed", None), ("unverified", 1), ("unverified", 0)]
    _, add, matmul = told(factory)
    assert add.startswith("running it took longer than the 2 s that running the probes")
    assert matmul.startswith("not run within the 2 s")
    assert "doctor --verify" in matmul


def test_later_processes_try_again_what_there_was_no_time_for(
    new_process: Callable[..., SimulatedFactory],
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 0.5)
    kernels = {"Add": hanging, "MatMul": lambda a, b: a @ b + 1}
    knobs = Knobs(kernels=kernels, probes=PROBES)
    verdicts = []
    for _ in range(TIMEOUTS + 2):
        factory = new_process(SimulatedFactory(knobs))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            open_session()
        assert bool(warned)  # of "matmul" at least
        verdicts.append(found(factory))
    # what was not reached comes first, so one that hangs hides no other
    assert verdicts == [
        [("passed", None), ("unverified", 1), ("unverified", 0)],
        [("passed", None), ("unverified", 2), ("failed", None)],
        [("passed", None), ("unverified", 3), ("failed", None)],
        [("passed", None), ("unverified", 3), ("failed", None)],
        [("passed", None), ("unverified", 3), ("failed", None)],
    ]
    assert hanging.count == TIMEOUTS


def test_what_is_in_time_later_is_known(
    new_process: Callable[..., SimulatedFactory],
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 0.5)
    knobs = Knobs(kernels={"Add": hanging}, probes=PROBES)
    with pytest.warns(EpWarning):
        new_process(SimulatedFactory(knobs))
        open_session()
    hanging.wake.set()
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)
    factory = new_process(SimulatedFactory(knobs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_session()
    assert found(factory) == [("passed", None)] * 3


class SlowToCreate(SimulatedFactory):
    """Takes half a second to make an EP."""

    def create(self, *arguments: Any) -> Any:
        time.sleep(0.5)
        return super().create(*arguments)


def test_compiling_has_a_limit_of_its_own(
    new_process: Callable[..., SimulatedFactory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 1.2)
    monkeypatch.setattr(SimulatedVerification, "compile_seconds", 60)
    factory = new_process(SlowToCreate(Knobs(probes=PROBES)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_session()
    assert found(factory) == [("passed", None)] * 3


def test_an_ep_states_that_limit(
    new_process: Callable[..., SimulatedFactory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)
    monkeypatch.setattr(SimulatedVerification, "compile_seconds", 0.25)
    factory = new_process(SlowToCreate(Knobs(probes=PROBES)))
    with pytest.warns(EpWarning, match="no time to check"):
        open_session()
    first, *_ = told(factory)
    assert first.startswith("compiling it took longer than the 0.25 s that compiling")


def test_waiting_ends_when_the_session_is_cancelled(
    new_process: Callable[..., SimulatedFactory], hanging: Hanging
) -> None:
    options = onnxplug.SessionOptions()

    def cancel(a: Any, b: Any) -> Any:
        options.set_load_cancellation_flag(True)
        return hanging(a, b)

    new_process(SimulatedFactory(Knobs(kernels={"Add": cancel}, probes=PROBES)))
    started = time.monotonic()
    with pytest.raises(LoadCancelled):
        open_session(sess_options=options)
    assert time.monotonic() - started < 30


PLUGIN = """
from onnxplug_testing import Knobs, SimulatedFactory
from edited_ep.kernels import add

class EditedFactory(SimulatedFactory):
    def __init__(self, probes):
        super().__init__(Knobs(kernels={"Add": add}, probes=probes))
"""


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that is worked on, as it is installed."""
    folder = tmp_path / "edited_ep"
    folder.mkdir()
    (folder / "__init__.py").write_text("", "utf-8")
    (folder / "plugin.py").write_text(PLUGIN, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)
    yield folder
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "edited_ep"]:
        del sys.modules[name]


def kernels(body: str) -> str:
    return f"def add(a, b):\n    return {body}\n"


def test_code_that_changed_is_checked_again(
    new_process: Callable[..., SimulatedFactory], edited: Path
) -> None:
    def verdicts(probes: Sequence[Probe], body: str | None = None) -> Any:
        if body is not None:
            (edited / "kernels.py").write_text(kernels(body), "utf-8")
        forget()
        from edited_ep.plugin import EditedFactory  # type: ignore[import-not-found]

        factory = new_process(EditedFactory(probes))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            open_session()
        return found(factory)

    assert verdicts(PROBES[1:2], "a + b + 1") == [("failed", None)]
    assert verdicts(PROBES[1:2], "a + b") == [("passed", None)]
    assert verdicts(PROBES[1:2]) == [("passed", None)]
    assert verdicts(PROBES[1:2], "a - b + 1") == [("failed", None)]


def test_the_code_is_every_file_of_the_package_links_included(
    edited: Path, tmp_path: Path
) -> None:
    def digest() -> str | None:
        from edited_ep.plugin import EditedFactory  # type: ignore[import-not-found]

        return code_digest(EditedFactory(()))

    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "table.json").write_text("1", "utf-8")
    (edited / "kernels.py").write_text(kernels("a + b"), "utf-8")
    (edited / "tables").symlink_to(linked)
    (edited / "around").symlink_to(edited)
    (edited / ".#lock").symlink_to("nobody@nowhere")
    first = digest()
    assert first is not None and digest() == first
    (linked / "table.json").write_text("12", "utf-8")
    assert digest() != first


def test_a_module_in_a_namespace_has_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "edited_ep" / "inner"
    folder.mkdir(parents=True)
    (folder / "plugin.py").write_text("class Factory: pass", "utf-8")
    (folder / "beside.py").write_text("", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    from edited_ep.inner.plugin import Factory  # type: ignore[import-not-found]

    first = code_digest(Factory())
    (folder / "beside.py").write_text("x = 1", "utf-8")
    assert first != code_digest(Factory())
    Factory.__module__ = None
    assert code_digest(Factory()) is None
    forget()


def test_of_code_without_a_file_nothing_is_kept(
    new_process: Callable[..., SimulatedFactory], tmp_path: Path
) -> None:
    typed: dict[str, Any] = {"__name__": "typed_into_an_interpreter"}
    exec("from onnxplug_testing import SimulatedFactory as Base", typed)
    exec("class Typed(Base): pass", typed)
    factory = new_process(typed["Typed"](Knobs(probes=PROBES)))
    open_session()
    assert found(factory) == [("passed", None)] * 3
    assert not list(tmp_path.glob("cache/onnxplug/verify-*"))
