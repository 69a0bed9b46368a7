"""Reports what goes wrong in an EP as a failure of that EP.

Whatever is an ``Exception`` counts, and ``SystemExit`` too: a plugin does not end the
user's program.  ``KeyboardInterrupt`` is the user's, and what else is none of these,
such as ``asyncio.CancelledError``, is somebody's who knows what it means: they pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

from onnxplug.ep import RunContext
from onnxplug.errors import EpError, NodeError, OnnxplugError, OutOfMemory

FAILURES: Final = (Exception, SystemExit)
"""What an EP may raise that is its own failure."""

Closer: TypeAlias = tuple[str, Callable[[], object]]
"""The name of an EP, and what closes something of it."""


def ep_failure(ep: str, stage: str, error: BaseException) -> EpError:
    """The error for whatever an EP raised at *stage*."""
    return EpError(
        f"{ep} failed in {stage}: {type(error).__name__}: {error}", ep=ep, stage=stage
    )


class blaming(AbstractContextManager[None]):
    """A context in which what goes wrong is a failure of *ep* at *stage*.

    Errors of onnxplug are let through: they say already whose they are.

    Raises:
        OutOfMemory: for a MemoryError.
        EpError: for whatever else was raised.
    """

    __slots__ = ("ep", "stage")

    def __init__(self, ep: str, stage: str) -> None:
        self.ep = ep
        self.stage = stage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, MemoryError):
            raise OutOfMemory.of(
                error, f"{self.ep}, in {self.stage},", ep=self.ep
            ) from (error)
        if isinstance(error, FAILURES) and not isinstance(error, OnnxplugError):
            raise ep_failure(self.ep, self.stage, error) from error


def close_all(closers: Iterable[Closer]) -> None:
    """Call every one of *closers*, whatever those before it raise.

    Raises:
        EpError: one failed; what others raised is in its notes.
        BaseException: the user interrupted one, and the others were called then.
    """
    failed: EpError | None = None
    interrupt: BaseException | None = None
    for ep, close in closers:
        try:
            close()
        except FAILURES as error:
            failure = error if isinstance(error, EpError) else None
            if failure is None:
                failure = ep_failure(ep, "close", error)
                failure.__cause__ = error
            if failed is None:
                failed = failure
            else:
                failed.add_note(str(failure))
        # an interrupt leaves nothing open either
        except BaseException as error:  # noqa: BLE001
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if failed is not None:
        raise failed


def close_after(error: BaseException, close: Callable[[], object]) -> None:
    """Call *close* because of *error*, which has its failure in the notes then."""
    try:
        close()
    except EpError as failure:
        error.add_note(str(failure))


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


Check: TypeAlias = Callable[[Sequence[Any], Sequence[Any | None], Sequence[Any]], None]
"""Looks at inputs, bound outputs and results, and raises what is wrong with these."""


def guarded(
    ep: str, run: RunFunction, count: int, check: Check, place: object
) -> GuardedRun:
    """*run*, whose failures are reported as those of *ep*.

    Args:
        count: how many results it has to give.
        check: what they have to pass.
        place: what is run, in words.
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
        except NodeError as error:
            error.locate(ep, place)
            raise
        except MemoryError as error:
            raise OutOfMemory.of(error, f"{ep}, in run,", ep=ep) from error
        except OnnxplugError:
            raise
        except FAILURES as error:  # not by blaming(), which takes a short run longer
            raise ep_failure(ep, "run", error) from error
        if found != count:
            raise EpError(
                f"{ep} failed in run: it returned {found} arrays for {place}, which "
                f"has {count} outputs",
                ep=ep,
                stage="run",
            )
        check(inputs, outputs, results)
        return results

    return run_guarded
