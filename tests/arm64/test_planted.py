"""Mistakes that are planted into what is generated for aarch64 alone are found.

Each is a mistake that no other processor's tests can meet: there these instructions are
not used.  A test of the sample that ``make test-arm64`` runs is called as it is, which
passes, and with the mistake, which it must not survive.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from onnxplug_cpu.compiler.codegen import emit, integer_products
from onnxplug_cpu.compiler.codegen.emit import Function
from onnxplug_cpu.compiler.machine.isa import host_isa

if platform.machine() != "aarch64":
    pytest.skip("for aarch64: make test-arm64", allow_module_level=True)

ISA = host_isa()
assert ISA is not None
TESTS = "plugins.cpu.tests.compiler"


def other_instruction(name: str, instead: str) -> Any:
    """Another instruction wherever kernels ask for one."""
    intrinsic = Function.intrinsic

    def planted(self: Function, type_: Any, called: str, *values: Any) -> Any:
        return intrinsic(self, type_, called.replace(name, instead), *values)

    return mock.patch.object(emit.Function, "intrinsic", planted)


def factors_of_pairs_without_sign() -> Any:
    """What processors without an instruction for pairs of 16 bits take apart."""
    return mock.patch.object(integer_products, "_low", lambda value: value & 0xFFFF)


PLANTED = {
    "sdot": (
        "codegen.test_integer_products",
        "test_products_are_exact",
        "dotprod",
        lambda: other_instruction("neon.sdot.", "neon.udot."),
    ),
    "usdot": (
        "codegen.test_integer_products",
        "test_products_are_exact",
        "i8mm",
        lambda: other_instruction("neon.usdot.", "neon.udot."),
    ),
    "usmmla": (
        "kernels.test_coded_instructions",
        "test_windows",
        "i8mm",
        lambda: other_instruction("neon.usmmla.", "neon.smmla."),
    ),
    "pairs": (
        "codegen.test_integer_products",
        "test_products_are_exact",
        "neon",
        factors_of_pairs_without_sign,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, test, feature, plant = PLANTED[name]
    if not ISA.has(feature):
        pytest.skip(f"the processor has no {feature}")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    called: Callable[[Any], None] = getattr(
        importlib.import_module(f"{TESTS}.{module}"), test
    )
    libraries = importlib.import_module(f"{TESTS}.interpreter").libraries
    called(ISA)
    libraries.clear()  # what was compiled without the mistake
    with plant(), pytest.raises(AssertionError, match="Mismatched elements"):
        called(ISA)
    libraries.clear()
