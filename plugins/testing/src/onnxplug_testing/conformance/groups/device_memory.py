"""Whether a device's memory is what its context says: its arrays, and their copies."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    Unfit,
    asking,
    device_of,
    has_streams,
    is_done,
    record,
    wait_for_all,
)
from onnxplug_testing.conformance.specimens import (
    Specimen,
    chosen,
    single,
)
from onnxplug_testing.conformance.trial import Trial

SHAPES: Final = ((), (0,), (1,), (3,), (2, 0, 3), (5, 7), (1, 1, 1, 1), (3, 5, 2, 4))


KINDS: Final = tuple(
    map(
        ep.DataType,
        (
            "float32", "int64", "bool", "uint8", "float16", "float64", "int32", "int8",
            "int16", "uint16", "uint32", "uint64", "bfloat16", "complex64",
            "float8_e4m3fn", "float8_e5m2",
        ),
    )
)  # fmt: skip
"""Element types of arrays that are tried, those that most models have first."""

_NOWHERE: Final = ep.MemoryLocation("memory-that-nobody-has", 0)
"""Between it and any other nothing can be copied, as no array is there."""

_HEIRS: Final = 24
"""Arrays that are made when one is gone: more than there are blocks of memory that were
free before, so that one gets its memory."""


@contextmanager
def opened(trial: Trial) -> Iterator[tuple[Bench, Specimen] | None]:
    """The device, and a specimen that runs there; ``None`` if there is none."""
    for specimen in chosen(trial, single):
        try:
            with device_of(trial.subject, specimen) as bench:
                yield bench, specimen
                return
        except Unfit as why:
            trial.leave_out(str(why))
    yield None


def case_of(specimen: Specimen, what: str) -> Case:
    """What is done with arrays alone; the model has them made on the device."""
    return Case(specimen.model, {}, what)


def content(numbers: np.random.Generator, shape: Any, dtype: ep.DataType) -> Array:
    """Any bytes that are an array of *dtype*."""
    kind = dtype.numpy
    if kind.kind == "b":
        return np.asarray(numbers.integers(0, 2, shape).astype(kind))
    count = int(np.prod(shape))
    raw = numbers.integers(0, 256, count * kind.itemsize, dtype=np.uint8)
    return raw.view(kind).reshape(shape)


def same(first: Array, second: Array) -> bool:
    """Whether two arrays have the same bytes."""
    return first.shape == second.shape and first.tobytes() == second.tobytes()


@check("memory", share=0.6)
def allocator(trial: Trial) -> None:
    """Arrays are of the shape and element type that is asked for, and what is copied
    to them, on the device and back is the same to the bit."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "arrays that are made and copied")
        if not trial.attempt(case):
            return
        for kind in ep.MemoryKind:
            if bench.context.allocator(kind) is not bench.context.allocator(kind):
                trial.find(said.ALLOCATOR, f"another for {kind} each time", case=case)
        for dtype in KINDS:
            try:
                bench.device.empty((2,), dtype, None)
            except Exception as error:  # noqa: BLE001 (it may have no such type)
                ep.raise_interruption(error)
                if dtype is specimen.dtype:
                    trial.find(said.EMPTY, f"of {dtype}: raised {error!r}", case=case)
                trial.leave_out(f"the device has no arrays of {dtype}")
                continue
            for shape in SHAPES:
                with asking(trial, said.COPY, case):
                    _round_trip(trial, bench, shape, dtype, case)


def _round_trip(
    trial: Trial, bench: Bench, shape: tuple[int, ...], dtype: ep.DataType, case: Case
) -> None:
    source = content(trial.numbers(shape, dtype), shape, dtype)
    trial.count()
    what = f"{dtype}{list(shape)}"
    first = bench.put(source)
    found = bench.data_type(first)
    if found is not dtype:
        trial.find(said.DATA_TYPE, f"{found!r} for {what}", case=case)
        return
    if tuple(first.shape) != shape:
        trial.find(said.EMPTY, f"{list(first.shape)} for {what}", case=case)
        return
    second = bench.empty(shape, dtype)
    bench.copy(first, second, None)
    for array, way in ((first, "there and back"), (second, "by way of a second array")):
        back = np.zeros(shape, dtype.numpy)
        bench.copy(array, back, None)
        if not same(back, source):
            trial.find(
                said.COPY,
                f"{what} has other bytes when it was copied {way}",
                case=case,
                kind=way,
            )
    if not has_streams(bench):
        return
    with bench.stream() as stream:
        there = bench.put(source, stream)
        back = np.zeros(shape, dtype.numpy)
        bench.copy(there, back, stream)
        wait_for_all(stream)
        if not same(back, source):
            trial.find(
                said.COPY_QUEUED, f"{what} has other bytes when its stream is done",
                case=case, kind="queued",
            )  # fmt: skip


@check("memory", share=0.4)
def strides(trial: Trial) -> None:
    """Arrays of the host with any strides are copied from and to."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "arrays of the host with strides")
        if not trial.attempt(case):
            return
        dtype = specimen.dtype
        plain = content(trial.numbers(), (6, 8), dtype)
        sources = {
            "transposed": plain.T,
            "reversed": plain[::-1, ::-1],
            "every second": plain[:, ::2],
            "repeated by a stride of 0": np.broadcast_to(plain[:1], (6, 8)),
            "read-only": plain.copy(),
        }
        sources["read-only"].flags.writeable = False
        for (name, source), queued in itertools.product(
            sources.items(), (False, True) if has_streams(bench) else (False,)
        ):
            trial.count()
            with asking(trial, said.COPY, case):
                _copy_strided(trial, bench, source, f"{name}", queued, case)


def _copy_strided(
    trial: Trial, bench: Bench, source: Array, name: str, queued: bool, case: Case
) -> None:
    dtype = ep.DataType.from_numpy(source.dtype)
    room = np.zeros((2 * source.shape[1], source.shape[0] + 2), source.dtype)
    target = room[::2, 1:-1].T
    if queued:
        with bench.stream() as stream:
            there = bench.empty(source.shape, dtype, stream)
            bench.copy(source, there, stream)
            bench.copy(there, target, stream)
            wait_for_all(stream)
    else:
        there = bench.put(source)
        bench.copy(there, target, None)
    kind = f"{name}, {'queued' if queued else 'at once'}"
    if not same(np.array(target), np.array(source)):
        trial.find(said.COPY, f"other bytes of an array that is {kind}", case=case)
    room[::2, 1:-1] = 0
    if room.tobytes().strip(b"\0"):
        trial.find(
            said.COPY, f"wrote beside a target with strides, of {kind}", case=case
        )


@check("memory", share=0.4)
def places(trial: Trial) -> None:
    """Arrays that are alive share no memory, also with what was let go before."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "many arrays that are alive at once")
        if not trial.attempt(case):
            return
        draw = trial.draw()
        alive: dict[int, tuple[Any, Array]] = {}
        dtypes = [specimen.dtype, *filter(functools.partial(_has, bench), _SMALL)]
        with asking(trial, said.EMPTY, case):
            for number in range(160):
                if alive and draw.random() < 0.4:
                    del alive[draw.choice(list(alive))]
                shape = (draw.choice([1, 3, 64, 65, 1000]),)
                dtype = draw.choice(dtypes)
                source = np.full(shape, number % 100, dtype.numpy)
                alive[number] = bench.put(source), source
            trial.count(len(alive))
            for array, source in alive.values():
                if not same(bench.get(array), source):
                    trial.find(
                        said.EMPTY,
                        f"{array.shape[0]} numbers were overwritten while only other "
                        "arrays were filled",
                        case=case,
                        kind="overwritten",
                    )


_SMALL: Final = tuple(map(ep.DataType, ("int8", "int64", "float16")))
"""Element types of other sizes than most arrays that are tried."""


def _has(bench: Bench, dtype: ep.DataType) -> bool:
    """Whether the device makes arrays of *dtype*."""
    try:
        bench.device.empty((2,), dtype, None)
    except Exception as error:  # noqa: BLE001 (it may have no such type)
        ep.raise_interruption(error)
        return False
    return True


@check("memory", share=0.4)
def at_once(trial: Trial) -> None:
    """A copy without a stream is done when the call returns."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "copies without a stream")
        if not trial.attempt(case):
            return
        for size in (5, 1027, (1 << 20) + 13, (1 << 22) + 1):
            trial.count()
            with asking(trial, said.COPY_NOW, case):
                source = (np.arange(size) % 97).astype(specimen.dtype.numpy)
                right = source.copy()
                there = bench.empty((size,), specimen.dtype)
                bench.copy(source, there, None)
                source[...] = 98
                again = bench.empty((size,), specimen.dtype)
                bench.copy(there, again, None)
                found_there = np.zeros_like(source)
                bench.copy(again, found_there, None)
                if not same(found_there, right):
                    trial.find(
                        said.COPY_NOW,
                        f"of {size} numbers some are those that the source had "
                        "afterwards, or none",
                        case=case,
                        kind="late",
                    )


@check("memory", share=0.3)
def pairs(trial: Trial) -> None:
    """Several pairs are copied by one call, and each way that can_copy tells works."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "several pairs in a call")
        if not trial.attempt(case):
            return
        here, transfer = bench.location, bench.context.transfer
        for source_at, target_at in ((ep.HOST, here), (here, ep.HOST), (here, here)):
            trial.count()
            if transfer.can_copy(source_at, target_at) is not True:
                trial.find(
                    said.CAN_COPY, f"not from {source_at} to {target_at}", case=case
                )
        for ends in ((here, _NOWHERE), (_NOWHERE, here)):
            trial.count()
            if transfer.can_copy(*ends) is not False:
                text = f"True from {ends[0]} to {ends[1]}, a memory that nobody has"
                trial.find(said.CAN_COPY, text, case=case, kind="nowhere")
        with asking(trial, said.COPY, case):
            sources = [
                content(trial.numbers(size), (size,), specimen.dtype)
                for size in (3, 0, 64, 7)
            ]
            there = [bench.empty(each.shape, specimen.dtype) for each in sources]
            transfer.copy(list(zip(sources, there, strict=True)), None)
            back = [np.zeros_like(each) for each in sources]
            transfer.copy(list(zip(there, back, strict=True)), None)
            transfer.copy([], None)
            for source, found_there in zip(sources, back, strict=True):
                if not same(source, found_there):
                    trial.find(said.COPY, "of four pairs one was not copied", case=case)


@check("memory", share=0.2)
def pinned(trial: Trial) -> None:
    """Pinned memory of the host is numpy's, and copied from and to."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        made = bench.context.allocator(ep.MemoryKind.PINNED)
        if made is None:
            trial.leave_out("there is no pinned memory")
            return
        case = case_of(specimen, "pinned arrays")
        if not trial.attempt(case):
            return
        for shape in SHAPES:
            trial.count()
            with asking(trial, said.PINNED, case):
                array = made.empty(shape, specimen.dtype, None)
                if (
                    not isinstance(array, np.ndarray)
                    or array.shape != shape
                    or array.dtype != specimen.dtype.numpy
                ):
                    trial.find(
                        said.PINNED, f"a {type(array).__name__} for {list(shape)}",
                        case=case,
                    )  # fmt: skip
                    continue
                source = content(trial.numbers(shape), shape, specimen.dtype)
                array[...] = source
                there = bench.put(array)
                array[...] = 0
                bench.copy(there, array, None)
                if not same(array, source):
                    trial.find(said.COPY, "of pinned memory: other bytes", case=case)


@check("memory", share=0.3)
def parts(trial: Trial) -> None:
    """What stacks arrays and takes parts of them does so along every axis."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "stack and take")
        if not trial.attempt(case):
            return
        with_streams = has_streams(bench)
        for shape in ((3,), (2, 3), (2, 3, 4), ()):
            sources = [
                content(trial.numbers(shape, number), shape, specimen.dtype)
                for number in range(3)
            ]
            for axis in range(len(shape) + 1):
                with asking(trial, said.STACK, case):
                    _stack(trial, bench, sources, axis, with_streams, case)
            for axis in range(len(shape)):
                with asking(trial, said.TAKE, case):
                    _take(trial, bench, sources[0], axis, with_streams, case)


@contextmanager
def _maybe(bench: Bench, with_streams: bool) -> Iterator[ep.Stream | None]:
    if not with_streams:
        yield None
        return
    with bench.stream() as stream:
        bench.burden(stream)
        yield stream


def _stack(
    trial: Trial, bench: Bench, sources: Any, axis: int, queued: bool, case: Case
) -> None:
    for way in {queued, False}:
        with _maybe(bench, way) as stream:
            arrays = [bench.put(each, stream) for each in sources]
            made = bench.context.stack(arrays, axis, stream)
            del arrays
            if stream is not None:
                wait_for_all(stream)
        if made is NotImplemented:
            trial.leave_out("stack is left to the host")
            return
        trial.count()
        expected = np.stack(sources, axis)
        _compare(trial, bench, made, expected, said.STACK, f"axis {axis}", case)


def _take(
    trial: Trial, bench: Bench, source: Array, axis: int, queued: bool, case: Case
) -> None:
    dtype = ep.DataType.from_numpy(source.dtype)
    for way in {queued, False}:
        for index in range(source.shape[axis]):
            with _maybe(bench, way and index == 1) as stream:
                array = bench.put(source, stream)
                made = bench.context.take(array, axis, index, stream)
                if stream is not None:
                    wait_for_all(stream)
            if made is NotImplemented:
                trial.leave_out("take is left to the host")
                return
            trial.count()
            what = f"axis {axis}, index {index}"
            expected = np.asarray(source.take(index, axis))
            _compare(trial, bench, made, expected, said.TAKE, what, case)
            if index == 0:
                del array
                other = content(trial.numbers("heirs"), source.shape, dtype)
                heirs = [bench.put(other) for _ in range(_HEIRS)]
                what = f"{what}, when the array is gone and {_HEIRS} others were filled"
                _compare(trial, bench, made, expected, said.TAKE, what, case)
                del heirs


def _compare(
    trial: Trial,
    bench: Bench,
    made: Any,
    expected: Array,
    sentence: Sentence,
    what: str,
    case: Case,
) -> None:
    if tuple(made.shape) != expected.shape:
        found = f"shape {list(made.shape)}, expected {list(expected.shape)}"
        trial.find(sentence, f"{what}: {found}", case=case)
    elif not same(bench.get(made), expected):
        trial.find(sentence, f"{what}: other numbers than numpy's", case=case)


@check("memory", share=0.3)
def handed_out_again(trial: Trial) -> None:
    """Memory of an array that is let go while its stream is busy is handed out again in
    the order of that stream."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "arrays that are let go while their stream is busy")
        if not trial.attempt(case):
            return
        for size, other in itertools.product((1000, 1 << 18), (False, True)):
            trial.count()
            with asking(trial, said.HANDED_OUT, case):
                for burdens in (1, 3, 9):
                    if _hand_out(
                        trial, bench, specimen.dtype, size, other, case, burdens
                    ):
                        break


def _hand_out(
    trial: Trial,
    bench: Bench,
    dtype: ep.DataType,
    size: int,
    other: bool,
    case: Case,
    burdens: int,
) -> bool:
    """Whether the stream was late, so that something could be seen."""
    late = np.full((size,), 3, dtype.numpy)
    sources = [np.full((size,), 5 + number, dtype.numpy) for number in range(4)]
    with bench.streams(2) as (first, second):
        old = bench.empty((size,), dtype, first)
        for _ in range(burdens):
            bench.burden(first)
        bench.copy(late, old, first)
        behind = record(first)
        del (
            old
        )  # not by collecting garbage, for which the stream may not be late enough
        stream = second if other else None
        new = [bench.put(source, stream) for source in sources]
        was_late = not is_done(behind)
        if stream is not None:
            wait_for_all(stream)
        wait_for_all(first)
        for array, source in zip(new, sources, strict=True):
            if not same(bench.get(array), source):
                trial.find(
                    said.HANDED_OUT,
                    "an array for another stream was overwritten by work of the stream "
                    "of one that was let go before"
                    if other
                    else "an array for use at once was overwritten by work that was "
                    "queued for one that was let go before",
                    case=case,
                )
    return was_late


@check("memory", share=0.2)
def exhausted(trial: Trial) -> None:
    """More memory than there is raises MemoryError, and leaves all as it was."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "an array of 2**50 bytes")
        if not trial.attempt(case):
            return
        shape = (1 << 50 - 2, max(4 // specimen.dtype.numpy.itemsize, 1))
        trial.count()
        kept = bench.put(np.full((9,), 3, specimen.dtype.numpy))
        before = bench.live_bytes
        try:
            bench.device.empty(shape, specimen.dtype, None)
        except MemoryError:
            pass
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            trial.find(
                said.NO_MEMORY, f"{case.name}: raised {error!r} instead", case=case
            )
        else:
            trial.leave_out("the device takes requests of 2**50 bytes")
            return
        with asking(trial, said.EMPTY, case):
            source = np.full((9,), 5, specimen.dtype.numpy)
            if not same(bench.get(bench.put(source)), source):
                trial.find(said.EMPTY, "wrong when there was no memory before")
            if not (bench.get(kept) == 3).all():
                trial.find(said.EMPTY, "another array was changed", case=case)
            after = bench.live_bytes
            if before is not None and after is not None and after > before + (1 << 30):
                trial.find(said.LIVE, "counts what was refused", case=case)


@check("memory", share=0.2)
def dlpack(trial: Trial) -> None:
    """What is imported by DLPack shares the memory of what was exported."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        if bench.context.dlpack_device is None:
            trial.leave_out("the device's arrays have no DLPack")
            return
        case = case_of(specimen, "an array that is exported and imported")
        if not trial.attempt(case):
            return
        for shape in ((3, 4), (5,), (1, 1)):
            trial.count()
            with asking(trial, said.IMPORTED, case):
                source = content(trial.numbers(shape), shape, specimen.dtype)
                array = bench.put(source)
                twin = bench.context.from_dlpack(array.__dlpack__(stream=-1))
                if bench.data_type(twin) is not specimen.dtype:
                    trial.find(said.DATA_TYPE, "of what was imported", case=case)
                    continue
                _compare(trial, bench, twin, source, said.IMPORTED, "imported", case)
                other = np.zeros(shape, specimen.dtype.numpy)
                bench.copy(other, array, None)
                _compare(trial, bench, twin, other, said.IMPORTED, "shared", case)
                del array
                gc.collect()
                _compare(trial, bench, twin, other, said.IMPORTED, "kept alive", case)
