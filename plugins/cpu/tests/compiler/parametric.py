"""Compares plans that others like them gave with fresh ones."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_cpu.compiler import parametric_plans
from onnxplug_cpu.compiler.linked_plan import LinkedPlan
from onnxplug_cpu.compiler.parametric_plans import ParametricPlans, are_same
from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
from onnxplug_cpu.compiler.runtime.template import Template
from onnxplug_cpu.compiler.segment import Segment

NEVER = 1 << 30


class Compared:
    """The plans of a context.

    Attributes:
        plans: those of its segments.
    """

    def __init__(self) -> None:
        self.plans: list[ParametricPlans] = []

    @property
    def traced(self) -> int:
        """How many were traced."""
        return sum(plans.made for plans in self.plans)

    @property
    def given(self) -> int:
        """How many others these gave."""
        return sum(plans.used for plans in self.plans)


@contextmanager
def compared_with_fresh_programs(fewest: int = 2) -> Iterator[Compared]:
    """A context in which plans are traced as often as they can be, and every plan that
    comes of that has to be, word for word, what planning gives.

    Args:
        fewest: sets of shapes after which plans are traced.
    """
    compared = Compared()
    anew: dict[int, Callable[[], Segment]] = {}
    blocks: weakref.WeakKeyDictionary[Any, Template] = weakref.WeakKeyDictionary()
    begin, link, plan = Segment.__init__, LinkedProgram.__init__, Segment.plan
    collect = ParametricPlans.__init__

    def begun(segment: Segment, *given: Any, **named: Any) -> None:
        anew[id(segment)] = lambda: type(segment)(*given, **named)
        begin(segment, *given, **named)

    def linked(program: Any, template: Template, *given: Any, **named: Any) -> None:
        # before the addresses of constants are added
        blocks[program] = template._replace(words=template.words.copy())
        link(program, template, *given, **named)

    def collected(plans: ParametricPlans, *given: Any) -> None:
        compared.plans.append(plans)
        collect(plans, *given)

    def planned(segment: Segment, shapes: Any, *given: Any) -> LinkedPlan:
        found = plan(segment, shapes, *given)
        if found.is_bare:
            with mock.patch.object(parametric_plans, "FEWEST", NEVER):
                fresh = plan(anew[id(segment)](), shapes)
            assert found.results == fresh.results
            _compare(blocks[found.program], blocks[fresh.program])
        return found

    with (
        mock.patch.object(Segment, "__init__", begun),
        mock.patch.object(Segment, "plan", planned),
        mock.patch.object(LinkedProgram, "__init__", linked),
        mock.patch.object(ParametricPlans, "__init__", collected),
        mock.patch.object(parametric_plans, "FEWEST", fewest),
        mock.patch.object(parametric_plans, "FIRST", NEVER),
    ):
        yield compared


def _compare(given: Template, fresh: Template) -> None:
    assert are_same(given, fresh)
    for one, other in zip(given.constants, fresh.constants, strict=True):
        if isinstance(one, Constant) and isinstance(other, Constant):
            assert one.key == other.key
            if one.key is None:
                np.testing.assert_array_equal(one.array, other.array)
        else:
            assert one is other  # packed for both
