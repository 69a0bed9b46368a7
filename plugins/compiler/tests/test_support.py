"""What is compiled is what a target says it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.elements import COMPUTED, ELEMENTS, STORED, element_of
from onnxplug_compiler.ir.target import ChainLimits
from onnxplug_compiler.segmentation import analyse


class Target(NamedTuple):
    """Computes what it is given of elements, whatever the operator."""

    taken: frozenset[str]
    chain_limits: ChainLimits = ChainLimits(steps=48, operands=12, inputs=2)
    has_narrow_factors: bool = False
    bits_of_caches: tuple[int, ...] = ()

    def supports_step(
        self,
        operator: str,
        operands: Sequence[str],
        result: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        return {*operands, result} <= self.taken

    def elements(self, operator: str) -> frozenset[str]:
        return self.taken


def reasons(operator: str, dtype: Any, count: int, *elements: str) -> list[str]:
    """Why a call with inputs of one type is not compiled for these elements."""
    names = tuple(f"x{n}" for n in range(count))
    dtypes = dict.fromkeys((*names, "y"), np.dtype(dtype))
    call = Call(operator, "", 20, names, ("y",), {}, (0,), (np.dtype(dtype),))
    return [
        *analyse([call], dtypes, (), {}, Target(frozenset(elements))).reasons.values()
    ]


@pytest.mark.parametrize("operator", ["Add", "MatMul", "Concat"])
@pytest.mark.parametrize("element", ["f16", "f32", "f64", "i8"])
def test_a_target_names_the_elements_that_it_takes(operator: str, element: str) -> None:
    (dtype,) = [name for name, each in ELEMENTS.items() if each == element]
    assert not reasons(operator, dtype, 2, element)
    (reason,) = reasons(operator, dtype, 2, "u8")
    assert "compiled" in reason


def test_what_is_taken_of_nothing_is_not_compiled() -> None:
    assert reasons("MatMul", np.float32, 2) == ["MatMul is not compiled"]


def test_an_operator_of_more_inputs_than_chains_have_is_no_step() -> None:
    assert not reasons("Sum", np.float32, 2, "f32")
    assert reasons("Sum", np.float32, 3, "f32")


def test_elements_are_computed_or_stored() -> None:
    assert {*ELEMENTS.values()} == COMPUTED | STORED and not COMPUTED & STORED
    assert element_of(np.dtype(object)) is None
