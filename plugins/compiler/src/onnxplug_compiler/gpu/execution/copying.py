"""Arrays that are put together from others, or taken apart, on the device."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.device import Device, Memory, on_stream
from onnxplug_compiler.gpu.execution.linking import link, work_of
from onnxplug_compiler.gpu.execution.program import Program, Weights
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import movement
from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_MOST: Final = 256
"""Programs that are kept."""

_Key = tuple[Any, ...]


class Copier:
    """Copies parts of arrays, by programs of one launch."""

    def __init__(self, device: Device, backend: Backend) -> None:
        self._device = device
        self._target = backend.target
        self._weights = Weights(device, None, backend.distribution)
        self._programs: OrderedDict[_Key, Program] = OrderedDict()
        self._generation = device.generation
        self._lock = new_rlock()

    def stack(
        self,
        parts: Sequence[Memory],
        whole: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        axis: int,
        stream: ep.Stream | None,
    ) -> None:
        """Put *parts* next to each other along *axis* of an array of *shape*."""
        for index, part in enumerate(parts):
            program = self._program(True, shape, dtype, axis, index)
            if program is not None:
                with on_stream(self._device, stream) as queue:
                    program.run([part], [whole], queue)

    def take(
        self,
        whole: Memory,
        part: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        place: tuple[int, int],
        stream: ep.Stream | None,
    ) -> None:
        """Copy what is at an index of an axis, *place*, of an array of *shape*."""
        program = self._program(False, shape, dtype, *place)
        if program is not None:
            with on_stream(self._device, stream) as queue:
                program.run([whole], [part], queue)

    def _program(
        self,
        into: bool,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        axis: int,
        index: int,
    ) -> Program | None:
        """The program for one part; ``None`` if it has no elements."""
        self._device.ensure()
        key = into, shape, dtype, axis, index
        with self._lock:
            if self._generation != self._device.generation:
                self._generation = self._device.generation
                self._programs.clear()
            found = self._programs.get(key)
            if found is None:
                work = _work(into, shape, dtype, axis, index, self._target)
                if work is None:
                    return None
                linked = link(work, (), lambda: None, self._device)
                found = Program(linked, self._device, self._weights)
                self._programs[key] = found
                if len(self._programs) > _MOST:
                    self._programs.popitem(last=False)
            else:
                self._programs.move_to_end(key)
            return found

    def close(self) -> None:
        """Give up the programs."""
        with self._lock:
            self._programs.clear()


def _work(
    into: bool,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axis: int,
    index: int,
    target: GpuTarget,
) -> Work | None:
    """The copy of a part into an array, or out of it."""
    part_shape = (*shape[:axis], *shape[axis + 1 :])
    whole_bytes = math.prod(shape) * dtype.itemsize
    part_bytes = math.prod(part_shape) * dtype.itemsize
    if not part_bytes:
        return None
    whole = Output(0, whole_bytes) if into else Input(0, whole_bytes)
    part = Input(0, part_bytes) if into else Output(0, part_bytes)
    seen = View.contiguous(whole, dtype, shape)
    offset = seen.offset + index * seen.strides[axis] * dtype.itemsize
    strides = (*seen.strides[:axis], *seen.strides[axis + 1 :])
    within = View(whole, offset, dtype, part_shape, strides)
    alone = View.contiguous(part, dtype, part_shape)
    recorder = Recorder(target)
    source, copy = (alone, within) if into else (within, alone)
    movement.record_copy(recorder, source, copy)
    return work_of(recorder)
