"""Plans of a segment for new shapes that are like those of plans before them.

Where shapes keep changing, a plan is traced: what comes of that serves all shapes for
which each decision of planning is the same, at the cost of some arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract
from onnxplug_compiler.schedule.planned import Result
from onnxplug_cpu.compiler.runtime.template import ArraySpec, Template

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import PackedConstants
    from onnxplug_compiler.schedule.tracing import TracedPlan
    from onnxplug_cpu.compiler.cpu_target import CpuTarget
    from onnxplug_cpu.compiler.runtime.arena import Arenas
    from onnxplug_cpu.compiler.runtime.jit import Library
    from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
    from onnxplug_cpu.compiler.runtime.parametric import ParametricProgram
    from onnxplug_cpu.compiler.runtime.program import Program

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

FEWEST: Final = 3
"""Sets of shapes after which more are expected."""

MOST: Final = 16
"""Parametric plans that a segment keeps."""

FIRST: Final = 4
"""Parametric plans that are made before it shows whether they are of use."""

WORTH: Final = 4
"""Plans that each of them has to have saved before there are more, as tracing takes
several times as long as planning."""


class _Alike(Record):
    """Which sizes of the inputs are those of a parametric plan.

    Attributes:
        ranks: of the inputs.
        fixed: numbers of sizes, counted through all inputs, and what they are.
        traced: numbers of sizes that are equal in one set of shapes, the first of which
            is traced.
    """

    ranks: tuple[int, ...]
    fixed: tuple[tuple[int, int], ...]
    traced: tuple[tuple[int, ...], ...]

    def sizes(self, shapes: Shapes) -> list[int] | None:
        """The traced sizes of *shapes*, if these are alike."""
        if tuple(map(len, shapes)) != self.ranks:
            return None
        flat = [size for shape in shapes for size in shape]
        for place, size in self.fixed:
            if flat[place] != size:
                return None
        for places in self.traced:
            size = flat[places[0]]
            for place in places[1:]:
                if flat[place] != size:
                    return None
        return [flat[places[0]] for places in self.traced]


class _Traced(Record):
    """A parametric plan.

    Attributes:
        alike: the shapes that it may be for.
        program: makes programs.
        dtypes: of the outputs.
    """

    alike: _Alike
    program: ParametricProgram
    dtypes: tuple[np.dtype[Any], ...]


class _Ended(Exception):
    """Who plans does not want to go on."""


class ParametricPlans:
    """The parametric plans of a segment; safe to use from several threads.

    Args:
        library, target, packed, arenas: of the session's compiler.
        dtypes: of the inputs; ``None`` for one of unknown type.
        tracing: gives what traces a plan of the segment.

    Attributes:
        made: how many were made.
        used: how many plans they gave.
    """

    def __init__(
        self,
        library: Library,
        target: CpuTarget,
        packed: PackedConstants,
        arenas: Arenas,
        dtypes: Sequence[np.dtype[Any] | None],
        tracing: Callable[[], TracedPlan],
    ) -> None:
        self._library = library
        self._target = target
        self._packed = packed
        self._arenas = arenas
        self._dtypes = dtypes
        self._tracing = tracing
        self._met: list[Shapes] = []
        self._plans: list[_Traced] = []
        self._lock = new_lock()
        self._gives_up = False
        self._tried = 0
        self.made = 0
        self.used = 0

    def find(self, shapes: Shapes) -> tuple[LinkedProgram, tuple[Result, ...]] | None:
        """The program for inputs of these shapes, and its results, if a plan is like
        it; runs of it that find an error raise :class:`~.parametric.ErrorFound`."""
        for plan in self._plans:
            sizes = plan.alike.sizes(shapes)
            found = None if sizes is None else plan.program.evaluate(sizes)
            if found is None:
                continue
            with self._lock:
                self.used += 1
                if self._plans and plan is not self._plans[0]:
                    rest = [each for each in self._plans if each is not plan]
                    self._plans = [plan, *rest]
            results = self._results(plan, found)
            return plan.program.program(found, self._specs(shapes, results)), results
        return None

    def close(self) -> None:
        """Give up all."""
        with self._lock:
            self._met, self._plans = [], []

    def note(
        self,
        shapes: Shapes,
        program: Program,
        look: Callable[[], None],
    ) -> None:
        """Take note of a plan that had to be made, and make one like it if that is of
        use.

        Args:
            program: of that plan.
            look: called now and then; it may raise.
        """
        with self._lock:
            if shapes not in self._met:
                self._met = [*self._met[-MOST:], shapes]
            many = self._tried >= FIRST and self.used < WORTH * self._tried
            if self._gives_up or len(self._met) < FEWEST or many:
                return
            met = self._met
        alike = _alike(met, shapes)
        if alike is None:
            return
        plan = self._traced(alike, shapes, program, look)
        with self._lock:
            self._tried += 1
            self.made += plan is not None
            if plan is None:
                self._gives_up = not self._plans
            else:
                self._plans = [plan, *self._plans][:MOST]

    def _traced(
        self,
        alike: _Alike,
        shapes: Shapes,
        program: Program,
        look: Callable[[], None],
    ) -> _Traced | None:
        """The plan of *shapes* traced; ``None`` if that cannot be."""
        from onnxplug_compiler.ir.trace import Trace
        from onnxplug_cpu.compiler.runtime.link import link

        def looked() -> None:
            try:
                look()
            except Exception as error:
                raise _Ended from error

        sizes = alike.sizes(shapes)
        assert sizes is not None
        trace = None
        try:
            trace = Trace(sizes)
            plan = self._recorded(trace, alike, shapes, looked)
        except _Ended as ended:
            assert ended.__cause__ is not None
            raise ended.__cause__ from None
        except Exception as error:  # noqa: BLE001
            # some code takes numbers only, as it may: nothing depends on this plan
            ep.raise_interruption(error)
            return None
        finally:
            if trace is not None:
                trace.close()
        found = plan.program.evaluate(sizes)
        if found is None:
            return None
        specs = self._specs(shapes, self._results(plan, found))
        inputs = len(shapes)
        known = link(program.work, inputs, len(specs) - inputs, specs, program.arenas)
        same = are_same(plan.program.template(found, specs), known)
        return plan if same else None

    def _recorded(
        self,
        trace: Any,
        alike: _Alike,
        shapes: Shapes,
        look: Callable[[], None],
    ) -> _Traced:
        from onnxplug_cpu.compiler.runtime.parametric import ParametricProgram

        numbers: dict[int, Any] = {}
        for places, size in zip(alike.traced, trace.sizes, strict=True):
            numbers |= dict.fromkeys(places, size)
        inputs, first = [], 0
        for shape, dtype in zip(shapes, self._dtypes, strict=True):
            sizes = [numbers.get(first + at, size) for at, size in enumerate(shape)]
            inputs.append(Abstract(dtype or np.dtype(np.uint8), tuple(sizes)))
            first += len(shape)
        target = self._target
        planned = self._tracing().trace(inputs, target, self._packed, look)
        outputs = [result.shape for result in planned.results]
        program = ParametricProgram(
            trace,
            planned.work,
            outputs,
            first + sum(map(len, outputs)),
            library=self._library,
            workers=target.workers,
            arenas=self._arenas,
            n_inputs=len(shapes),
        )
        return _Traced(alike, program, tuple([r.dtype for r in planned.results]))

    def _results(self, plan: _Traced, found: Sequence[Any]) -> tuple[Result, ...]:
        shapes = plan.program.shapes(found)
        pairs = zip(plan.dtypes, shapes, strict=True)
        return tuple([Result(dtype, shape) for dtype, shape in pairs])

    def _specs(self, shapes: Shapes, results: Sequence[Result]) -> list[Any]:
        pairs = zip(self._dtypes, shapes, strict=True)
        return [*[ArraySpec(dtype, shape) for dtype, shape in pairs], *results]


def _alike(met: Sequence[Shapes], shapes: Shapes) -> _Alike | None:
    """What shapes are alike, of those met; ``None`` if ranks differ, or no size
    does."""
    ranks = tuple(map(len, shapes))
    if any(tuple(map(len, each)) != ranks for each in met):
        return None
    columns = list(
        zip(*[[size for shape in each for size in shape] for each in met], strict=True)
    )
    fixed: list[tuple[int, int]] = []
    traced: dict[tuple[int, ...], list[int]] = {}
    flat = [size for shape in shapes for size in shape]
    for place, column in enumerate(columns):
        if len(set(column)) == 1:
            fixed.append((place, flat[place]))
        else:
            traced.setdefault(column, []).append(place)
    if not traced:
        return None
    return _Alike(ranks, tuple(fixed), tuple(map(tuple, traced.values())))


def are_same(one: Template, other: Template) -> bool:
    """Whether two blocks are one, but for where their constants are."""
    if (
        one.arena_nbytes != other.arena_nbytes
        or one.pauses != other.pauses
        or len(one.constants) != len(other.constants)
        or one.words.shape != other.words.shape
        or list(one.flags.values()) != list(other.flags.values())
    ):
        return False
    numbers = [
        (one.arena_words, other.arena_words),
        (one.block_words, other.block_words),
        (one.constant_words, other.constant_words),
        (one.constant_owners, other.constant_owners),
        (one.words, other.words),
    ]
    return all(np.array_equal(*pair) for pair in numbers) and all(
        type(a) is type(b) and a.nbytes == b.nbytes
        for a, b in zip(one.constants, other.constants, strict=True)
    )
