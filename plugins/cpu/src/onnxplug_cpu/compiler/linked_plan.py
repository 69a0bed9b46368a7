"""A plan of a segment that can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound
from onnxplug_compiler.schedule.planned import Result

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.runtime.instrumented import WatchedProgram
    from onnxplug_cpu.compiler.runtime.linked import LinkedProgram

Array: TypeAlias = "np.ndarray[Any, Any]"


class LinkedPlan:
    """A plan that can run.

    Args:
        program: ``None`` when nothing has to be computed.
        results: what is returned.
        watched: the program for runs that have a context.

    Attributes:
        program: as given.
        results: as given.
        is_long: whether a run may be ended on its way.
        was_run: whether it was used again since who gives up plans last looked.
    """

    __slots__ = (
        "_contents",
        "_forms",
        "_watched",
        "is_long",
        "program",
        "results",
        "was_run",
    )

    def __init__(
        self,
        program: LinkedProgram | None,
        results: tuple[Result, ...],
        watched: WatchedProgram | None,
    ) -> None:
        self.program = program
        self.results = results
        self.was_run = False
        self.is_long = program is not None and program.looks
        self._watched = watched
        self._forms = [(shape, dtype) for dtype, shape, _ in results]
        # the results that do not depend on what is fed
        self._contents = tuple(
            (position, result.content)
            for position, result in enumerate(results)
            if result.content is not None
        )

    @property
    def is_bare(self) -> bool:
        """Whether nothing is known of the commands of its program."""
        return self.program is not None and not self.program.commands

    @property
    def commands(self) -> int:
        """How many its program has."""
        return 0 if self.program is None else len(self.program.division.chunks)

    def try_run(
        self, arrays: Sequence[Array], bound: Sequence[Array | None]
    ) -> Sequence[Array] | None:
        """The results if the plan is one for *arrays* just as they are, in the arrays
        of *bound* where there are some; else ``None``, and nothing is done.

        Raises:
            MemoryError: there is no memory for what is computed.
        """
        if self.program is None or self._contents:
            return None
        outputs: Sequence[Array] = bound  # type: ignore[assignment]
        for array in bound:
            if array is None:
                outputs = self._new_outputs(bound)
                break
        self.was_run = True
        return outputs if self.program.try_run(arrays, outputs) else None

    def _new_outputs(self, bound: Sequence[Array | None]) -> list[Array]:
        """Those of *bound*, and new ones where there is none."""
        for array in bound:
            if array is not None:
                return [
                    np.empty(shape, dtype) if array is None else array
                    for (shape, dtype), array in zip(self._forms, bound, strict=True)
                ]
        # as most runs have nothing bound
        return [np.empty(shape, dtype) for shape, dtype in self._forms]

    def run(
        self,
        arrays: Sequence[Array],
        outputs: Sequence[Array],
        context: ep.RunContext | None,
    ) -> None:
        """Write the results for *arrays* to *outputs*.

        Raises:
            RunCancelled: the run was cancelled.
        """
        if context is not None and self._watched is not None:
            self._watched.run(arrays, outputs, context)
        elif self.program is not None:
            self.program.run(arrays, outputs)
        for position, content in self._contents:
            outputs[position][...] = content


def run_bound(
    plan: LinkedPlan,
    arrays: Sequence[Array],
    bound: Sequence[Array | None],
    context: ep.RunContext | None,
) -> Sequence[Array]:
    """Run into the arrays of *bound* that a program can write to.

    Those are aligned, writeable and in C order, and may be of another dtype object or
    class.
    """
    _check(bound, plan.results)
    outputs = [
        array
        if array is not None and array.flags.carray
        else np.empty(result.shape, result.dtype)
        for array, result in zip(bound, plan.results, strict=True)
    ]
    plan.run(arrays, outputs, context)
    return fill_bound(outputs, bound)


def _check(bound: Sequence[Array | None], results: Sequence[Result]) -> None:
    for position, (array, result) in enumerate(zip(bound, results, strict=True)):
        if array is not None and (
            array.shape != result.shape or array.dtype != result.dtype
        ):
            raise ep.OutputMismatch(
                f"output {position} is {result.dtype}{list(result.shape)}, but the "
                f"array bound to it is {array.dtype}{list(array.shape)}; "
                "bind an array of the same dtype and shape"
            )
