"""Tells what goes wrong in a compiled partition as a failure of its EP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onnxplug.ep import RunContext
from onnxplug.errors import EpError, OnnxplugError


class RunFunction(Protocol):
    """``CompiledPartition.run``, or a function like it."""

    def __call__(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
        /,
    ) -> Sequence[Any]: ...


class GuardedRun(Protocol):
    """A function like that, which may be given inputs only."""

    def __call__(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None] = ...,
        context: RunContext | None = ...,
        /,
    ) -> Sequence[Any]: ...


def guarded(ep: str, run: RunFunction, count: int) -> GuardedRun:
    """*run*, whose failures are told as those of *ep*.

    Args:
        count: how many results it has to give.
    """

    def run_guarded(
        inputs: Sequence[Any],
        outputs: Sequence[Any | None] = (None,) * count,
        context: RunContext | None = None,
        /,
    ) -> Sequence[Any]:
        try:
            results = run(inputs, outputs, context)
            found = len(results)
        except OnnxplugError:
            raise
        # an EP may raise anything
        except Exception as error:
            raise EpError(
                f"{ep} failed in run: {type(error).__name__}: {error}",
                ep=ep,
                stage="run",
            ) from error
        if found != count:
            raise EpError(
                f"{ep} failed in run: it returned {found} arrays for a partition of "
                f"{count} outputs",
                ep=ep,
                stage="run",
            )
        return results

    return run_guarded
