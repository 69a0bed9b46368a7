"""Mistakes that are planted into what is generated for aarch64 alone are found.

Tests on other processors cannot meet them: these instructions are not used there.  A
test of the sample that ``make test-arm64`` runs is called as it is, which passes, and
with a mistake, which it must not survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import pytest

from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.machine.isa import Isa, host_isa

from .. import interpreter
from ..kernels import test_coded_instructions
from . import test_integer_products

pytestmark = pytest.mark.skipif(
    not interpreter.ON_ARM, reason="for aarch64: make test-arm64"
)


class Planted(NamedTuple):
    """A mistake, and the test that has to find it.

    Attributes:
        feature: what a processor needs for its code to have *right*.
        right: of the text for LLVM.
        wrong: what takes its place.
        found_by: the test, a function of a processor.
    """

    feature: str
    right: str
    wrong: str
    found_by: Callable[[Isa], None]


PRODUCTS = test_integer_products.test_products_are_exact
PLANTED = {
    "signs of dot products": Planted("dotprod", "neon.sdot", "neon.udot", PRODUCTS),
    "signs of weights": Planted("i8mm", "neon.usdot", "neon.udot", PRODUCTS),
    "signs of squares": Planted(
        "i8mm", "neon.usmmla", "neon.smmla", test_coded_instructions.test_windows
    ),
    # a processor that has instructions for pairs of 16 bits takes none apart
    "signs of pairs": Planted("neon", "ashr", "lshr", PRODUCTS),
}


@contextmanager
def planted(right: str, wrong: str) -> Iterator[None]:
    """While this lasts, what is generated has *wrong* in the place of *right*."""
    text = Module.text

    def changed(self: Module, attributes: str) -> str:
        return text(self, attributes).replace(right, wrong)

    interpreter.libraries.clear()  # what was compiled without the mistake
    with mock.patch.object(Module, "text", changed):
        yield
    interpreter.libraries.clear()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    feature, right, wrong, found_by = PLANTED[name]
    isa = host_isa()
    assert isa is not None
    if not isa.has(feature):
        pytest.skip(f"the processor has no {feature}")
    found_by(isa)
    with (
        planted(right, wrong),
        pytest.raises(AssertionError, match="Mismatched elements"),
    ):
        found_by(isa)
