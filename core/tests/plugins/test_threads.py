"""Plugins are loaded once whoever asks, and one that is slow holds up no other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from onnxplug.errors import PluginConflict, PluginError
from onnxplug.plugins import PluginRegistry
from onnxplug_testing import toy

ONE, TWO = "XOneExecutionProvider", "XTwoExecutionProvider"
LONG = 20.0

WAIT = (
    "import gates_of_the_test as g\ng.imports += 1; g.entered.set(); g.open.wait(20)\n"
)


@pytest.fixture
def gates() -> Iterator[ModuleType]:
    """What a plugin's code waits at, and where it counts its imports."""
    module = ModuleType("gates_of_the_test")
    module.entered, module.open = threading.Event(), threading.Event()
    module.imports = 0
    sys.modules[module.__name__] = module
    yield module
    module.open.set()
    del sys.modules[module.__name__]


def at_once(work: Callable[[int], object], count: int = 8) -> list[object]:
    """What *work* returns or raises in *count* threads that start together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait(LONG)
        try:
            return work(number)
        except PluginError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_a_plugin_is_loaded_once(site, gates, registry) -> None:
    gates.open.set()
    module = site.install([ONE, TWO], WAIT + site.code(ONE, TWO), distribution="x-both")
    found = at_once(lambda number: registry.factory((ONE, TWO)[number % 2]))
    assert len({id(factory) for factory in found}) == 2
    assert gates.imports == 1
    assert len(sys.modules[module].made) == 1


def test_a_failure_is_the_same_for_all(site, gates, registry) -> None:
    gates.open.set()
    site.install(ONE, WAIT + "1 / 0")
    found = at_once(lambda number: registry.factory(ONE))
    assert len({str(error) for error in found}) == 1
    assert gates.imports == 1


def test_a_slow_plugin_holds_up_no_other(site, gates, registry) -> None:
    site.install(ONE, WAIT + site.code(ONE), distribution="x-slow")
    site.install(TWO, distribution="x-quick")
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(registry.factory, ONE)
        assert gates.entered.wait(LONG)
        assert str(registry.resolve(ONE).state) == "loading"
        assert registry.factory(TWO).name == TWO
        registry.register_ep_library("toy", toy)
        registry.unregister_ep_library("toy")
        second = pool.submit(registry.factory, ONE)  # waits, and is not refused
        assert not slow.done()
        gates.open.set()
        assert slow.result(LONG) is second.result(LONG)


def test_a_slow_library_holds_up_no_other(site, gates, registry, tmp_path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(WAIT + site.code(ONE))
    site.install(TWO)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(registry.register_ep_library, "slow", path)
        assert gates.entered.wait(LONG)
        assert registry.factory(TWO).name == TWO
        registry.register_ep_library("toy", toy)
        same = pool.submit(registry.register_ep_library, "slow", path)
        gates.open.set()
        assert slow.result(LONG) is same.result(LONG)
    assert gates.imports == 1
    registry.unregister_ep_library("slow")


def test_one_of_many_handles_gets_the_ep(registry) -> None:
    found = at_once(lambda number: registry.register_ep_library(f"h{number}", toy))
    lost = [each for each in found if isinstance(each, PluginConflict)]
    assert len(lost) == len(found) - 1
    assert len(registry.libraries()) == 1


def test_the_table_is_made_once(site) -> None:
    site.install(ONE)
    for _ in range(5):
        registry = PluginRegistry({})
        records = at_once(lambda number, r=registry: r.resolve(ONE))
        assert len({id(record) for record in records}) == 1
