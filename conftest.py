"""Simulated accelerators; compiled kernels of tests kept out of the user's cache."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxplug_testing import SimulatedFactory


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for the cache, which subprocesses and parallel workers share."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXPLUG_CACHE_DIR", str(root / "cache"))
        # what plans is to be tested, not what an earlier test has left
        patch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "0")
        yield


@pytest.fixture
def simulated() -> Iterator[Callable[..., SimulatedFactory]]:
    """Makes simulated EPs known for one test: ``simulated(**knobs)``.

    Afterwards no stream may be open.
    """
    # not all environments of tests have it
    from onnxplug.plugins import registry
    from onnxplug_testing import Knobs, SimulatedFactory

    factories: list[SimulatedFactory] = []

    def make(**knobs: Any) -> SimulatedFactory:
        factory = SimulatedFactory(Knobs(**knobs))
        registry.add(factory)
        factories.append(factory)
        return factory

    yield make
    for factory in factories:
        registry.remove(factory.name)
    if any(factory.open_streams for factory in factories):
        # an exception and the frames that it passed refer to each other
        gc.collect()
    assert [f.open_streams for f in factories] == [[]] * len(factories)


def pytest_collection_finish() -> None:
    """Let garbage be looked for among what tests make only.

    The tests themselves, some twenty thousand, took 0.3 s each time.
    """
    gc.collect()
    gc.freeze()
