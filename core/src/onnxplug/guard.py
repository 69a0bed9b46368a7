"""Reports what goes wrong in an EP as a failure of that EP.

Whatever is an ``Exception`` counts, and ``SystemExit`` too: a plugin does not end the
user's program.  ``KeyboardInterrupt`` is the user's, and what else is none of these,
such as ``asyncio.CancelledError``, is somebody's who knows what it means: they pass.
So does what a signal handler of the program raised, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

from onnxplug.errors import EpError, NodeError, OnnxplugError, OutOfMemory
from onnxplug.interruption import interruption, raise_interruption

if TYPE_CHECKING:
    from onnxplug.ep import RunContext

FAILURES: Final = (Exception, SystemExit)
"""What an EP may raise that is its own failure, unless a signal handler raised it:
where they are caught, :func:`ep_failure` or ``raise_interruption`` comes first."""

Closer: TypeAlias = tuple[str, Callable[[], object]]
"""The name of an EP, and what closes something of it."""


def ep_failure(ep: str, stage: str, error: BaseException, method: str = "") -> EpError:
    """The error for whatever an EP raised at *stage*.

    If that tells of an EP's failure already, of its own or of the one whose memory it
    works in, its text is not told again as the cause of another.

    Args:
        method: what failed, where the stage has another name.

    Raises:
        BaseException: a signal handler raised it, in the code of the EP.
    """
    raise_interruption(error)
    where = f"{ep} failed in {method or stage}"
    if not isinstance(error, EpError):
        text = f"{where}: {in_words(error)}"
    elif error.ep == ep:
        text = str(error)
    else:
        text = f"{where}: {error}"
    return EpError(text, ep=ep, stage=stage)


def in_words(found: object) -> str:
    """What was raised or returned, which may be anything, for an error.

    Errors of EPs say what they are by themselves, and short values are shown.
    """
    if isinstance(found, BaseException):
        text = str(found)
        if isinstance(found, EpError) and text:
            return text
        return f"{type(found).__name__}{': ' if text else ''}{text}"
    if found is None or isinstance(found, bool | int | float):
        return repr(found)
    if isinstance(found, str):
        return repr(found if len(found) <= _LONGEST else f"{found[:_LONGEST]}…")
    kind = type_in_words(type(found))
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def type_in_words(kind: type) -> str:
    """A class by its name, and its module unless it is one of Python's own."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def blame(ep: str, stage: str, error: BaseException, method: str = "") -> NoReturn:
    """Raise what was caught of :data:`FAILURES` as the failure of *ep* at *stage*.

    Args:
        method: see :func:`ep_failure`.

    Raises:
        OnnxplugError: *error*, if it is one, as it is.
        OutOfMemory: for a MemoryError.
        EpError: for whatever else was raised.
        BaseException: what a signal handler raised meanwhile.
    """
    raise_interruption(error)
    if isinstance(error, OnnxplugError):
        raise error
    if isinstance(error, MemoryError):
        raise OutOfMemory.of(error, f"{ep}, in {method or stage},", ep=ep) from error
    raise ep_failure(ep, stage, error, method) from error


def malformed(ep: str, stage: str, method: str, found: object, due: str) -> EpError:
    """The error for what *method* of an object of *ep*'s returned in place of *due*."""
    return EpError(
        f"{ep} failed in {method}: it returned {in_words(found)}; expected {due}",
        ep=ep,
        stage=stage,
    )


_LONGEST: Final = 40
"""Characters of a text that an error shows."""


class blaming(AbstractContextManager[None]):
    """A context in which what goes wrong is a failure of *ep* at *stage*.

    Errors of onnxplug are let through: they say already whose they are.

    Args:
        method: what is called, where the stage has another name.

    Raises:
        OutOfMemory: for a MemoryError.
        EpError: for whatever else was raised.
        BaseException: what a signal handler raised meanwhile.
    """

    __slots__ = ("ep", "method", "stage")

    def __init__(self, ep: str, stage: str, method: str = "") -> None:
        self.ep = ep
        self.stage = stage
        self.method = method

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, FAILURES):
            return
        raise_interruption(error)
        if not isinstance(error, OnnxplugError):
            blame(self.ep, self.stage, error, self.method)


class ignoring_failures(AbstractContextManager[None]):
    """A context out of which no failure of an EP comes.

    Raises:
        BaseException: what a signal handler raised meanwhile.
    """

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, FAILURES):
            return False
        raise_interruption(error)
        return True


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
        # an interrupt leaves nothing open either
        except BaseException as error:  # noqa: BLE001
            passing = interruption(error)
            if passing is not None or not isinstance(error, FAILURES):
                interrupt = passing or error
                continue
            failure = error if isinstance(error, EpError) else None
            if failure is None:
                failure = ep_failure(ep, "close", error)
                failure.__cause__ = error
            if failed is None:
                failed = failure
            else:
                failed.add_note(str(failure))
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
            raise_interruption(error)
            error.locate(ep, place)
            raise
        except MemoryError as error:
            raise_interruption(error)
            raise OutOfMemory.of(error, f"{ep}, in run,", ep=ep) from error
        except OnnxplugError as error:
            raise_interruption(error)
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
