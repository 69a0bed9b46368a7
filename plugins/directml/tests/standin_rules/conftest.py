"""Machines and programs for tests of the stand-in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..standin import Windows, decoding
from ..standin.driving import Program
from ..standin.operators import OPERATORS, Meaning
from .product import Add, Gemm, Join, Relu


@pytest.fixture(autouse=True)
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of these tests, whatever those of the package are."""
    decoding.load()
    for name, meaning in {
        "ELEMENT_WISE_ADD": Add,
        "ACTIVATION_RELU": Relu,
        "GEMM": Gemm,
        "JOIN": Join,
    }.items():
        monkeypatch.setitem(OPERATORS, name, Meaning(name, meaning))


@pytest.fixture
def windows() -> Iterator[Windows]:
    """A machine, on which nothing must have gone wrong, and nothing be left."""
    with Windows() as found:
        yield found


@pytest.fixture
def program(windows: Windows) -> Iterator[Program]:
    """A program on it."""
    found = Program(windows)
    yield found
    found.close()
