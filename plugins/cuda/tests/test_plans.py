"""Plans of cuDNN's: asked for, walked, measured, and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.gpu.execution.device import DeviceLost, KernelRefused
from onnxplug_cuda.engines import cudnn
from onnxplug_cuda.engines.choices import Choices
from onnxplug_cuda.engines.cudnn import Cudnn, CudnnError
from onnxplug_cuda.options import SEARCH, SMALL_WORKSPACE

from .library_of_graphs import Frontend, heur_mode, numerical_note
from .on_graphs import CALL, Memory


def queued(memory: Memory, call: Any = CALL, most: int = 1 << 30) -> str:
    """The plan that ran."""
    arrays = [np.zeros(each, np.uint8) for each in call.needed]
    workspace = np.zeros(min(most, memory.cudnn.workspace(call)), np.uint8)
    memory.frontend.memory += [*arrays, workspace]
    addresses = [array.ctypes.data for array in arrays]
    prepared = memory.cudnn.prepare(call, [0] * len(addresses), workspace.nbytes)
    prepared.bind(addresses, workspace.ctypes.data).queue(5)
    return memory.frontend.ran[-1][0]


@pytest.mark.parametrize(
    ("search", "modes"),
    [
        ("EXHAUSTIVE", [heur_mode.A, heur_mode.B, heur_mode.FALLBACK]),
        ("HEURISTIC", [heur_mode.A, heur_mode.FALLBACK]),
        ("DEFAULT", [heur_mode.FALLBACK, heur_mode.A]),
    ],
)
def test_plans_are_asked_for_as_the_option_says(search: str, modes: list[Any]) -> None:
    memory, call = Memory(), CALL._replace(search=search)
    assert queued(memory, call) == "eng1"
    (graph,) = memory.frontend.graphs
    assert graph.modes == modes
    queued(memory, call)
    assert len(memory.frontend.graphs) == 1  # plans are made once


def test_plans_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "MOST_PLANS", 2)
    memory = Memory()
    calls = [CALL._replace(search=search) for search in SEARCH]
    for call in (*calls[:2], calls[0], calls[2], calls[0]):
        assert queued(memory, call) == "eng1"
    assert len(memory.frontend.graphs) == 3
    queued(memory, calls[1])  # which was asked for longest ago
    assert len(memory.frontend.graphs) == 4


def test_a_device_that_is_lost_is_no_want_of_plans() -> None:
    memory = Memory()

    def fail(*given: Any, **named: Any) -> Any:
        raise DeviceLost("gone")

    memory.frontend.pygraph, made = fail, memory.frontend.pygraph
    with pytest.raises(DeviceLost):
        memory.cudnn.workspace(CALL)
    memory.frontend.pygraph = made
    assert queued(memory) == "eng1"


def test_tensor_cores_are_left_out_where_float32_may_not_be_rounded() -> None:
    memory = Memory()
    queued(memory)
    queued(memory, CALL._replace(tf32=True))
    queued(memory, CALL._replace(element="f16"))
    exact, rounded, half = memory.frontend.graphs
    narrow = numerical_note.DOWN_CONVERT_INPUTS
    assert exact.notes == [narrow, numerical_note.TENSOR_CORE]
    assert rounded.notes == [narrow] and half.notes == []


def test_plans_that_are_not_built_give_way_to_the_next() -> None:
    memory = Memory()
    memory.frontend.broken = {"eng1"}
    assert queued(memory) == "eng2"
    memory = Memory()
    memory.frontend.broken = set(memory.frontend.plans)
    with pytest.raises(KernelRefused, match="none of 3 plans is built; the first: "):
        memory.cudnn.workspace(CALL)
    with pytest.raises(KernelRefused):
        memory.cudnn.workspace(CALL)
    assert len(memory.frontend.graphs) == 1  # and nobody looks again


def test_workspace_is_limited_as_the_option_says() -> None:
    memory = Memory()
    memory.frontend.plans = {"large": SMALL_WORKSPACE + 4, "small": SMALL_WORKSPACE}
    limited = CALL._replace(most=SMALL_WORKSPACE)
    assert memory.cudnn.workspace(limited) == SMALL_WORKSPACE
    (graph,) = memory.frontend.graphs
    assert graph.most == SMALL_WORKSPACE
    memory = Memory()
    memory.frontend.plans = {"large": SMALL_WORKSPACE + 4}
    assert memory.cudnn.workspace(CALL) == SMALL_WORKSPACE + 4


def test_a_plan_that_takes_more_than_there_is_is_refused() -> None:
    memory = Memory()
    memory.frontend.plans = {"eng2": 4096}
    with pytest.raises(KernelRefused, match="takes 4096 bytes of workspace; there are"):
        queued(memory, most=16)


def test_a_library_that_does_not_begin_says_so() -> None:
    frontend = Frontend()
    frontend.without = "Unable to find symbol cudnnCreate"
    with pytest.raises(CudnnError, match="does not begin: Unable to find symbol"):
        Cudnn(frontend)


def test_a_plan_that_fails_names_what_it_computed() -> None:
    memory = Memory()
    memory.frontend.failing = {"eng1"}
    with pytest.raises(CudnnError, match=r"fails at Convolution .*EXECUTION_FAILED"):
        queued(memory)


def test_handles_are_given_back() -> None:
    memory = Memory()
    queued(memory)
    memory.cudnn.close()
    memory.cudnn.close()
    assert not memory.frontend.handles


class Bench:
    """Measures by the names of plans."""

    def __init__(self, frontend: Frontend, times: dict[str, float]) -> None:
        self.frontend, self.times = frontend, times
        self.measured: list[str] = []

    def memory(self, nbytes: int) -> Any:
        array = np.zeros(max(nbytes, 1), np.uint8)
        self.frontend.memory.append(array)
        return SimpleNamespace(address=array.ctypes.data, array=array)

    def seconds(self, queue: Callable[[int], None]) -> float:
        queue(0)
        name = self.frontend.ran[-1][0]
        self.measured.append(name)
        return self.times[name]


TIMES = {"eng1": 3e-5, "eng2": 1e-5, "eng3": 2e-5}


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def exhaustive(times: dict[str, float], **plants: Any) -> tuple[list[str], str]:
    memory = Memory()
    for name, value in plants.items():
        setattr(memory.frontend, name, value)
    bench = Bench(memory.frontend, times)
    choices = Choices("convolutions", {"gpu": "H100"}, logging.getLogger("test"))
    memory.cudnn = Cudnn(memory.frontend, choices=choices, bench=bench)
    ran = queued(memory)
    return sorted(set(bench.measured)), ran


def test_the_fastest_plan_is_found_once_and_kept(cached: Path) -> None:
    assert exhaustive(TIMES) == (["eng1", "eng2", "eng3"], "eng2")
    assert exhaustive({}) == ([], "eng2")


def test_plans_that_fail_when_they_are_measured_are_out(cached: Path) -> None:
    found = exhaustive(TIMES, broken={"eng2"}, failing={"eng1"})
    assert found == (["eng3"], "eng3")


def test_a_kept_plan_that_is_not_built_any_more_gives_way(cached: Path) -> None:
    assert exhaustive(TIMES)[1] == "eng2"
    assert exhaustive({}, broken={"eng2"}) == ([], "eng1")


def test_other_plans_are_measured_anew(cached: Path) -> None:
    assert exhaustive(TIMES)[1] == "eng2"
    others = {"eng4": 0, "eng5": 0}
    times = {"eng4": 2e-5, "eng5": 1e-5}
    assert exhaustive(times, plans=others) == (["eng4", "eng5"], "eng5")


def test_a_damaged_entry_is_measured_anew(cached: Path) -> None:
    assert exhaustive(TIMES)[1] == "eng2"
    (entry,) = cached.rglob("convolutions-*")
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert exhaustive(TIMES) == (["eng1", "eng2", "eng3"], "eng2")
