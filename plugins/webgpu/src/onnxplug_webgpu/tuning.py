"""Shapes of workgroups for an adapter: by its vendor, or measured on it.

Results do not depend on them but for the order of sums.  What was measured is kept on
disk for the adapter, its driver and these versions.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import DeviceLost, Launches
from onnxplug_compiler.gpu.execution.linking import link, work_of
from onnxplug_compiler.gpu.execution.program import Program, Weights
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import contractions, reductions, rows
from onnxplug_compiler.gpu.shapes import DEFAULT, Shapes
from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_webgpu.backend import BACKEND
from onnxplug_webgpu.device import Device
from onnxplug_webgpu.pool import Memory
from onnxplug_webgpu.readback import wait_until_done

BY_VENDOR: Final[Mapping[int, Shapes]] = {
    0x10005: Shapes(side=16, few_lanes=16, per_lane=8, row_lanes=16, worth_a_group=128),
}
"""By the number of the vendor, what :data:`BENCHMARKS` found: of Mesa's drivers for
software.  No hardware was measured: AMD's, Apple's, Intel's and NVIDIA's GPUs run 8 to
64 lanes at once, of which the default's workgroups are multiples, and nothing that is
documented of them says more."""

SECONDS: Final = 5.0
"""After which no other shape is tried, though what is being compiled takes longer."""

_FORMAT: Final = 1

_ENOUGH: Final = 0.9
"""Of the time of the best before: what is closer may be chance."""

_ROUNDS: Final = 3
_LONG_ENOUGH: Final = 0.003
"""Seconds that launches take together, for the way to the device not to count."""

_MOST_LAUNCHES: Final = 256

_TOLERANCE: Final = 1e-4
"""Of the largest result: what another order of sums may change."""

_F32: Final = np.dtype(np.float32)
_LOCK: Final = new_rlock()

Recording: TypeAlias = Callable[[Recorder[Any], Sequence[View], View], None]


class Benchmark(Record):
    """What shapes are measured by.

    Attributes:
        names: of the shapes' numbers.
        candidates: these numbers, without the default's.
        inputs, output: shapes of arrays.
        record: records the launch.
    """

    names: tuple[str, ...]
    candidates: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    record: Recording


def _product(recorder: Recorder[Any], views: Sequence[View], out: View) -> None:
    a, b = views
    contractions.record_matmul(recorder, a, b, out)


def _softmax(recorder: Recorder[Any], views: Sequence[View], out: View) -> None:
    (x,) = views
    rows.record_softmax(recorder, x, out)


def _sum(recorder: Recorder[Any], views: Sequence[View], out: View) -> None:
    (x,) = views
    reductions.record_reduce(recorder, "ReduceSum", x, out, (1,))


BENCHMARKS: Final = (
    Benchmark(
        ("few_lanes",),
        ((32,), (16,)),
        ((1, 1024), (1024, 1024)),
        (1, 1024),
        _product,
    ),
    Benchmark(
        ("row_lanes",), ((32,), (16,), (128,)), ((64, 1024),), (64, 1024), _softmax
    ),
    Benchmark(("worth_a_group",), ((128,),), ((2048, 64),), (2048,), _sum),
    Benchmark(
        ("side", "per_lane"),
        ((16, 8), (16, 2), (8, 4), (8, 8)),
        ((256, 256), (256, 256)),
        (256, 256),
        _product,
    ),
)


def chosen_shapes(autotune: str, device: Device, logger: logging.Logger) -> Shapes:
    """The shapes of workgroups that the option ``autotune`` stands for on *device*.

    Where they cannot be measured, they are the default's, which *logger* is told.
    """
    if autotune == "vendor":
        return BY_VENDOR.get(device.adapter.vendor_id, DEFAULT)
    if autotune == "device":
        with _LOCK:
            return tuned_shapes(device, logger)
    return DEFAULT


def tuned_shapes(
    device: Device, logger: logging.Logger, seconds: float = SECONDS
) -> Shapes:
    """The shapes that take least time of those that were measured, here or before.

    Args:
        seconds: after which nothing else is tried; what was not begun then, another
            session measures.
    """
    cache, name = Cache(BACKEND.distribution), entry_name(device)
    found = dict(device.tuned or _kept(cache.load(name)))
    known = len(found)
    end = time.monotonic() + seconds
    try:
        for benchmark in BENCHMARKS:
            if time.monotonic() >= end:
                break
            if not found.keys() >= set(benchmark.names):
                best = _best(benchmark, DEFAULT._replace(**found), device, end)
                found |= zip(benchmark.names, best, strict=True)
    except (DeviceLost, MemoryError, ValueError) as error:
        ep.raise_interruption(error)
        logger.warning("shapes of workgroups are not measured to the end: %s", error)
    device.tuned = found
    if len(found) > known:
        logger.info("shapes of workgroups for %s: %s", device.adapter, found)
        cache.store(name, json.dumps(found).encode())
        cache.prune_if_due()
    return DEFAULT._replace(**found)


def entry_name(device: Device) -> str:
    """The name of the entry on disk."""
    facts = {
        "format": _FORMAT,
        **device.identity(),
        "benchmarks": [repr(each[:-1]) for each in BENCHMARKS],
    }
    return f"shapes-{fingerprint(json.dumps(facts, sort_keys=True)).hex()}"


def _kept(content: bytes | None) -> dict[str, int]:
    """The numbers of an entry; none if it is damaged."""
    # what is nested is not even read: where the stack ends, what is run as garbage is
    # collected would fail
    if content is None or b"[" in content or content.count(b"{") > 1:
        return {}
    try:
        found: dict[str, int] = dict(json.loads(content))
        DEFAULT._replace(**found).check()
    except (ValueError, TypeError):
        return {}
    return found


def _best(
    benchmark: Benchmark, shapes: Shapes, device: Device, end: float
) -> tuple[int, ...]:
    """The numbers that take least time, of those that there is time to try.

    Raises:
        ValueError, MemoryError: not even the default's can be measured.
        DeviceLost: the device was lost.
    """
    numbers = tuple(getattr(DEFAULT, name) for name in benchmark.names)
    default = _Trial(benchmark, shapes, device)
    expected, count = default.result(), default.launches()
    least = default.seconds(count)
    for candidate in benchmark.candidates:
        if time.monotonic() >= end:
            break
        changed = shapes._replace(**dict(zip(benchmark.names, candidate, strict=True)))
        try:
            changed.check()
            trial = _Trial(benchmark, changed, device)
            if not _is_same(trial.result(), expected):
                continue
            took = trial.seconds(count)
        except (ValueError, MemoryError) as error:
            # a driver may not compile what it has no registers for
            ep.raise_interruption(error)
            continue
        if took < _ENOUGH * least:
            numbers, least = candidate, took
    return numbers


def _is_same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    most = _TOLERANCE * float(np.abs(expected).max())
    return bool(np.allclose(found, expected, rtol=0, atol=most))


class _Trial:
    """A benchmark's launch with some shapes, on memory of its own.

    Raises:
        ValueError: the driver does not compile it.
        MemoryError: there is no memory for it.
        DeviceLost: the device was lost.
    """

    def __init__(self, benchmark: Benchmark, shapes: Shapes, device: Device) -> None:
        self._device = device
        recorder = Recorder(GpuTarget(shapes=shapes))
        nbytes = [_F32.itemsize * math.prod(shape) for shape in benchmark.inputs]
        views = [
            View.contiguous(Input(number, size), _F32, shape)
            for number, (shape, size) in enumerate(
                zip(benchmark.inputs, nbytes, strict=True)
            )
        ]
        self._shape = benchmark.output
        room = _F32.itemsize * math.prod(self._shape)
        out = View.contiguous(Output(0, room), _F32, self._shape)
        benchmark.record(recorder, views, out)
        linked = link(work_of(recorder), (), lambda: None, device)
        program = Program(linked, device, Weights(device, None, BACKEND.distribution))
        inputs = [self._filled(size) for size in nbytes]
        self._out = device.memory(room)
        with device.lock:
            self._work = program.bound(inputs, [self._out], None)

    def _filled(self, nbytes: int) -> Memory:
        memory = self._device.memory(nbytes)
        numbers = np.arange(nbytes // _F32.itemsize, dtype=_F32)
        self._device.upload(memory, np.sin(numbers))
        return memory

    def result(self) -> np.ndarray[Any, Any]:
        """What one launch gives; it also has the driver compile it to the end."""
        stream = self._device.new_stream()
        stream.queue(self._work)
        found = np.empty(self._shape, _F32)
        stream.fetch(self._out, found)
        return found

    def launches(self) -> int:
        """How many, one after the other, take long enough."""
        count = 1
        while count < _MOST_LAUNCHES and self._once(count) < _LONG_ENOUGH:
            count *= 4
        return count

    def seconds(self, count: int) -> float:
        """The time of so many launches: the least of a few, as others use the device,
        too."""
        return min(self._once(count) for _ in range(_ROUNDS))

    def _once(self, count: int) -> float:
        work = self._work
        many = Launches(work.steps * count, None, work.memories)
        started = time.perf_counter()
        wait_until_done(self._device, self._device.submit([many]))
        return time.perf_counter() - started
