"""What an EP compiles of one partition by input shapes: kept, and compiled on a miss.

A run finds what is compiled for its shapes without a lock.  On a miss one thread
compiles, and others wait for it only if they want the same shapes.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.nodes import describe
from onnxplug.entries import PAD, SERVE, buckets
from onnxplug.ep import (
    CompiledPartition,
    Declined,
    MemoryLocation,
    Partition,
    Prewarmer,
    SessionRefused,
    TensorType,
    ValueLocations,
)
from onnxplug.errors import (
    EpError,
    LoadCancelled,
    ModelError,
    OutOfMemory,
    RunCancelled,
    RunError,
)
from onnxplug.guard import FAILURES, close_after, close_all, ep_failure, in_words
from onnxplug.interruption import raise_interruption
from onnxplug.partition import Candidate, GraphPartition
from onnxplug.partition.compile_partition import compile_partition
from onnxplug.partition.specialisations import Specialisations
from onnxplug.run.profiling import Profile, stage
from onnxplug.run.streams import PATIENCE
from onnxplug.specialise.background import Background
from onnxplug.specialise.cache_entry import CacheEntry, Cancellable, Compilation, check

if TYPE_CHECKING:
    from onnxplug.ep import PartitionReport, RunContext, Specialiser
    from onnxplug.specialise.fallback import Fallback

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""The shapes of a partition's inputs of which sizes are not known, in order."""


_REMEDY: Final = (
    f"feed other shapes, let another EP serve ({SERVE}), or leave the EP out of the "
    "session's providers"
)


def open_inputs(partition: GraphPartition) -> tuple[int, ...]:
    """The positions of inputs that are dense tensors with sizes that are not known."""
    types = [partition.value(name).type for name in partition.inputs]
    return tuple(
        position
        for position, type in enumerate(types)
        if isinstance(type, TensorType)
        and (type.shape is None or not all(isinstance(n, int) for n in type.shape))
    )


def specialised(
    candidate: Candidate,
    partition: GraphPartition,
    others: Sequence[Candidate],
    config: Mapping[str, str],
    profile: Profile | None,
) -> CompiledPartition:
    """What stands for *partition* of an EP that compiles by input shapes.

    Args:
        others: the EPs that may run the partition's nodes instead, best first.
        config: the session's config entries.

    Raises:
        Declined, SessionRefused, LoadCancelled: the EP says so.
        EpError, OutOfMemory: it failed, or what it says is malformed.
    """
    specialiser = candidate.provider.specialiser
    assert specialiser is not None
    limit: object = specialiser.limit
    if not isinstance(limit, int) or limit < 1:
        raise EpError(
            f"specialiser.limit of {candidate.name} is {limit!r}; expected how many "
            "sets of shapes to keep, from 1",
            ep=candidate.name,
            stage="compile",
        )
    positions = open_inputs(partition)
    if not positions:
        return compile_partition(candidate, partition)
    made = SpecialisedPartition(
        candidate,
        partition,
        positions,
        limit,
        _examined(candidate, specialiser, partition),
        profile,
    )
    if config[SERVE] == "1":
        made.serve_by(others)
    named = buckets(config[PAD])
    return made.padded_to(named, pads=specialiser.pads) if named else made


def _examined(
    candidate: Candidate, specialiser: Specialiser, partition: GraphPartition
) -> ValueLocations:
    try:
        found = specialiser.examine(partition)
        if not isinstance(found, ValueLocations | None):
            raise TypeError(
                f"it returned a {type(found).__name__}; expected ValueLocations or None"
            )
        for kind, locations, names in (
            ("inputs", found and found.inputs, partition.inputs),
            ("outputs", found and found.outputs, partition.outputs),
        ):
            if locations is not None and len(locations) != len(names):
                raise ValueError(
                    f"it placed {len(locations)} {kind}; expected all {len(names)}"
                )
        return found or ValueLocations()
    except (Declined, SessionRefused, LoadCancelled):
        raise
    except MemoryError as error:
        what = f"{candidate.name}, in examine,"
        raise OutOfMemory.of(error, what, ep=candidate.name) from error
    except FAILURES as error:
        raise ep_failure(candidate.name, "examine", error) from error


class SpecialisedPartition(CompiledPartition, Prewarmer):
    """A partition compiled for each set of input shapes, the last few kept.

    Args:
        positions: of the inputs whose shapes tell what is to be run.
        limit: how many are kept.
        locations: where values are, whatever the shapes.
    """

    def __init__(
        self,
        candidate: Candidate,
        partition: GraphPartition,
        positions: Sequence[int],
        limit: int,
        locations: ValueLocations,
        profile: Profile | None,
    ) -> None:
        self.input_locations = locations.inputs
        self.output_locations = locations.outputs
        self._candidate = candidate
        self._partition = partition
        self._positions = tuple(positions)
        self._names = tuple(partition.inputs[position] for position in positions)
        self._limit = limit
        self._profile = profile
        self._kept: dict[Shapes, CacheEntry] = {}
        self._compiling: dict[Shapes, Compilation] = {}
        self._changed = threading.Condition(new_rlock())
        self._clock = itertools.count(1)
        self._is_closed = False
        self._compilations = {"run": 0, "prepare": 0, "background": 0}
        self._evicted = self._failed = self._waits = self._elsewhere = 0
        self._last_failure = ""
        self._cached: Counter[str] = Counter()
        self._notes: list[str] = []
        self._fallback: Fallback | None = None
        self._background: Background[Shapes] = Background(self._compile_late, limit)

    def serve_by(self, others: Sequence[Candidate]) -> None:
        """Let the first of *others* that can run what is not compiled yet.

        Raises:
            SessionRefused, LoadCancelled, EpError, OutOfMemory: as of ``compile``.
        """
        from onnxplug.specialise.fallback import find_fallback

        home, partition = self._candidate.provider.location, self._partition
        self._fallback, why_not = find_fallback(
            partition,
            others,
            self.input_locations or [home] * len(partition.inputs),
            self.output_locations or [home] * len(partition.outputs),
        )
        if self._fallback is None:
            self._notes.append(why_not)

    def padded_to(
        self, buckets: Mapping[str, tuple[int, ...]], *, pads: bool
    ) -> CompiledPartition:
        """What pads inputs to *buckets*, dimension to sizes, where it can be done.

        Args:
            pads: the EP allows it.
        """
        from onnxplug.specialise.padding import PaddedPartition, paddings

        partition, name = self._partition, self._candidate.name
        home = self._candidate.provider.location
        if not pads:
            self._notes.append(f"nothing is padded, as {name} does not allow it")
            return self
        found, reasons = paddings(
            partition,
            buckets,
            self.input_locations or [home] * len(partition.inputs),
            self.output_locations or [home] * len(partition.outputs),
        )
        self._notes += reasons
        if not found:
            return self
        return PaddedPartition(
            name, partition, self, found, lambda: self.specialisations
        )

    # running

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Run what is compiled for the inputs' shapes, compiled if it is not there."""
        shapes = tuple([tuple(inputs[at].shape) for at in self._positions])
        while True:
            found = self._kept.get(shapes)
            if found is None:
                fallback = self._fallback
                # what is captured is what is replayed
                if fallback is not None and (
                    context is None or context.capture is None
                ):
                    self._background.want(shapes)
                    with self._changed:
                        self._elsewhere += 1
                    return fallback.run(inputs, outputs, context)
                found = self._compiled(shapes, context, "run")
                check(context)  # which may have taken long
            try:
                # appending and popping are atomic: whoever comes second of a run and
                # of retiring sees what the other has done
                found.runs.append(None)
                if not found.is_retired:
                    found.last_use = next(self._clock)
                    return found.run(inputs, outputs, context)
            finally:
                found.runs.pop()
                if found.is_retired and not found.runs:
                    self._close_late(found)

    @property
    def prewarmer(self) -> Prewarmer:  # type: ignore[override]
        """Itself: it compiles."""
        return self

    def prewarm(self, partition: Partition) -> bool:
        """Compile for the shapes that *partition* states, unless it is compiled."""
        shapes = []
        for name in self._names:
            shape = partition.value(name).shape
            if shape is None or not all(isinstance(size, int) for size in shape):
                return False
            shapes.append(shape)
        self._compiled(tuple(shapes), None, "prepare")  # type: ignore[arg-type]
        return True

    def _compile_late(self, shapes: Shapes) -> bool | None:
        """Compile in the background; if it fails, whether it may not the next time."""
        try:
            self._compiled(shapes, _Unhurried(self._background), "background")
        except RunCancelled:
            return True  # the session is being closed
        # whatever it is, it is nobody's run that fails
        except Exception as error:  # noqa: BLE001
            raise_interruption(error)
            import logging

            logging.getLogger("onnxplug.session").warning(
                "in the background: %s", error
            )
            return not isinstance(error.__cause__, Declined)
        return None

    def _compiled(
        self, shapes: Shapes, context: Cancellable | None, by: str
    ) -> CacheEntry:
        """What is compiled for *shapes*, here or by another thread that began before.

        Raises:
            EpError, RunError, OutOfMemory: it cannot be.
            RunCancelled: the run of *context* is.
        """
        has_waited = False
        while True:
            with self._changed:
                found = self._kept.get(shapes)
                if found is not None:
                    return found
                if self._is_closed:
                    raise RunError("the session is closed")
                compilation = self._compiling.get(shapes)
                leads = compilation is None or compilation.process != os.getpid()
                if compilation is None or leads:
                    compilation = self._compiling[shapes] = Compilation(context)
                else:
                    compilation.contexts.append(context)
                    self._waits += not has_waited
                    has_waited = True
            if leads:
                return self._lead(shapes, compilation, by)
            self._wait(shapes, compilation, context)
            if compilation.error is not None:
                raise _again(compilation.error) from compilation.error

    def _wait(
        self, shapes: Shapes, compilation: Compilation, context: Cancellable | None
    ) -> None:
        words = f"wait until compiled for {self._in_words(shapes)}"
        with stage(self._profile, words, {"provider": self._candidate.name}, "Wait"):
            while not compilation.is_done:
                check(context)
                with self._changed:
                    if not compilation.is_done:
                        self._changed.wait(PATIENCE)

    def _lead(self, shapes: Shapes, compilation: Compilation, by: str) -> CacheEntry:
        """Compile for *shapes*, for all who want it."""
        retired: list[CacheEntry] = []
        made: CacheEntry | None = None
        try:
            compiled = self._compile(shapes, lambda: compilation.is_unwanted)
            made = CacheEntry(compiled, self._candidate.name)
            return made
        except FAILURES as error:
            raise_interruption(error)
            if isinstance(error, LoadCancelled) and compilation.is_unwanted:
                # if a run has come meanwhile, it compiles itself
                raise RunCancelled("the run was cancelled while it compiled") from None
            failure = self._failure(shapes, error)
            compilation.error = failure
            raise failure from error
        finally:
            with self._changed:
                if made is not None:
                    retired = self._keep(shapes, made)
                    self._compilations[by] += 1
                elif compilation.error is not None:
                    self._failed += 1
                    self._last_failure = str(compilation.error)
                if self._compiling.get(shapes) is compilation:
                    del self._compiling[shapes]
                compilation.end()
                self._changed.notify_all()
            for each in retired:
                self._retire(each)

    def _compile(
        self, shapes: Shapes, is_cancelled: Callable[[], bool]
    ) -> CompiledPartition:
        """What the EP makes of the partition with these input *shapes*."""
        candidate = self._candidate
        details = {
            "provider": candidate.name,
            "nodes": len(self._partition.nodes),
            "shapes": dict(zip(self._names, map(list, shapes), strict=True)),
        }
        with stage(self._profile, f"compile for {self._in_words(shapes)}", details):
            static = self._partition.for_shapes(
                dict(zip(self._names, shapes, strict=True))
            )
            compiled = compile_partition(
                candidate, static.cancelled_by(is_cancelled), self._note_cached
            )
        try:
            self._check_locations(compiled)
        except EpError as error:
            close_after(error, compiled.close)
            raise
        return compiled

    def _note_cached(self, outcome: str) -> None:
        with self._changed:
            self._cached[outcome] += 1

    def _check_locations(self, compiled: CompiledPartition) -> None:
        name, home = self._candidate.name, self._candidate.provider.location
        for found, expected, values in (
            (compiled.input_locations, self.input_locations, self._partition.inputs),
            (compiled.output_locations, self.output_locations, self._partition.outputs),
        ):
            there = list(found or [home] * len(values))
            if there != list(expected or [home] * len(values)):
                raise EpError(
                    f"{name} wants {', '.join(values)} at {_listed(there)}, which it "
                    "did not say in examine(); they have to be there for all shapes",
                    ep=name,
                    stage="compile",
                )

    # what is kept

    def _keep(self, shapes: Shapes, made: CacheEntry) -> list[CacheEntry]:
        """Keep *made*; what is not kept any more, in which runs may still be."""
        made.last_use = next(self._clock)
        self._kept[shapes] = made
        retired = []
        while len(self._kept) > self._limit:
            others = [key for key, each in self._kept.items() if not each.stays]
            others = [key for key in others if key != shapes]
            if not others:
                break
            oldest = min(others, key=lambda key: self._kept[key].last_use)
            retired.append(self._kept.pop(oldest))
            self._evicted += 1
        return retired

    def _retire(self, each: CacheEntry) -> None:
        each.is_retired = True
        if not each.runs:
            self._close_late(each)

    def _close_late(self, each: CacheEntry) -> None:
        """Close it, in a run that is not to fail for that."""
        try:
            each.close_once()
        except FAILURES as error:
            import logging

            logging.getLogger("onnxplug.session").warning(
                "%s", ep_failure(self._candidate.name, "close", error)
            )

    def close(self) -> None:
        """Close what is kept.

        Raises:
            EpError: something failed to close; all else is closed nonetheless.
        """
        self._background.close()
        with self._changed:
            self._is_closed = True
            kept, self._kept = self._kept, {}
        closers = [(self._candidate.name, each.close_once) for each in kept.values()]
        if self._fallback is not None:
            closers.append((self._fallback.ep, self._fallback.close))
        close_all(closers)

    # saying what happened

    def _failure(self, shapes: Shapes, error: BaseException) -> Exception:
        """What a run raises when *error* was raised for its *shapes*."""
        name, words = self._candidate.name, self._in_words(shapes)
        if isinstance(error, OutOfMemory):
            return OutOfMemory(str(error), ep=name, nbytes=error.nbytes)
        if isinstance(error, ModelError):
            return RunError(f"for {words}: {error}")
        if isinstance(error, Declined | SessionRefused):
            detail = f"declined: {error}"
        else:
            detail = in_words(error)
        first = describe(self._partition.nodes[0])
        return EpError(
            f"{name} did not compile its partition from {first} on for {words}: "
            f"{detail}; {_REMEDY}",
            ep=name,
            stage="compile",
        )

    def _in_words(self, shapes: Shapes) -> str:
        return ", ".join(
            f"{name}{list(shape)}"
            for name, shape in zip(self._names, shapes, strict=True)
        )

    @property
    def specialisations(self) -> Specialisations:
        """What was compiled, for reports."""
        with self._changed:
            kept = sorted(self._kept, key=lambda key: self._kept[key].last_use)
            return Specialisations(
                limit=self._limit,
                kept=tuple(map(self._in_words, kept)),
                compiled=dict(self._compilations),
                evicted=self._evicted,
                failed=self._failed,
                waits=self._waits,
                elsewhere={self._fallback.ep: self._elsewhere}
                if self._fallback
                else {},
                last_failure=self._last_failure,
                cached=dict(self._cached),
                notes=tuple(self._notes),
                serialised=any(
                    each.compiled.max_concurrent_runs is not None
                    for each in self._kept.values()
                ),
            )

    @property
    def report(self) -> PartitionReport | None:  # type: ignore[override]
        """That of what was used last."""
        with self._changed:
            latest = max(
                self._kept.values(), key=lambda each: each.last_use, default=None
            )
        return None if latest is None else latest.compiled.report


class _Unhurried:
    """What stands for a run where none waits."""

    def __init__(self, background: Background[Shapes]) -> None:
        self._background = background

    @property
    def cancelled(self) -> bool:
        return self._background.is_closed


def _again(error: Exception) -> Exception:
    """An error like *error*, for another thread."""
    match error:
        case OutOfMemory():
            return OutOfMemory(error.args[0], ep=error.ep, nbytes=error.nbytes)
        case EpError():
            return EpError(error.args[0], ep=error.ep, stage=error.stage)
    return RunError(error.args[0])


def _listed(locations: Sequence[MemoryLocation]) -> str:
    return ", ".join(map(str, locations))
