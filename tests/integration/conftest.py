"""Simulated accelerators beside the CPU EP."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory

from .shapes_lab import EP, Factory, Lab


@pytest.fixture
def simulated() -> Iterator[Callable[..., SimulatedFactory]]:
    """Makes simulated EPs known for one test: ``simulated(**knobs)``.

    Afterwards no stream may be open.
    """
    factories: list[SimulatedFactory] = []

    def make(**knobs: Any) -> SimulatedFactory:
        factory = SimulatedFactory(Knobs(**knobs))
        registry.add(factory)
        factories.append(factory)
        return factory

    yield make
    for factory in factories:
        registry.remove(factory.name)
    gc.collect()  # an exception and the frames that it passed refer to each other
    assert [f.open_streams for f in factories] == [[]] * len(factories)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """What an EP that compiles by input shapes does in a test."""
    lab = Lab()
    registry.add(Factory(lab))
    yield lab
    registry.remove(EP)
    for gate in lab.gates.values():
        gate.set()
    gc.collect()
