"""Commands that are functions of numpy arrays, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxplug_compiler.ir.buffers import (
    Buffer,
    Check,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
)
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.views import View

Array = np.ndarray[Any, Any]
Compute = Callable[..., Sequence[Array]]


class Command(NamedTuple):
    """A function of the arrays that views show, and where its results go."""

    compute: Compute
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    label: str
    flag: Flag | None = None
    flops: int = 0
    nbytes: int = 0
    nodes: tuple[int, ...] = ()
    note: str = ""

    def of_nodes(self, nodes: tuple[int, ...]) -> Command:
        return self._replace(nodes=nodes)

    @property
    def buffers(self) -> list[Buffer]:
        named = [view.buffer for view in (*self.reads, *self.writes)]
        return [*named, *([self.flag] if self.flag else [])]

    def run(self, memory: Memory) -> None:
        arrays = [memory.array(view) for view in self.reads]
        try:
            with np.errstate(all="ignore"):
                results = self.compute(*arrays)
        except IndexError:
            assert self.flag is not None
            memory.flags.add(memory.real(self.flag)[0])
            return
        for view, result in zip(self.writes, results, strict=True):
            target = memory.array(view)
            with np.errstate(all="ignore"):
                target[...] = np.asarray(result).reshape(target.shape)


class Assembly(NamedTuple):
    buffers: list[Buffer]


class Memory:
    """The bytes of buffers during a run; *real* tells those of stand-ins."""

    def __init__(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.bytes: dict[Buffer, Array] = {}
        self.flags: set[Buffer] = set()
        self.places: Mapping[Buffer, tuple[Buffer, int]] = {}

    def real(self, buffer: Buffer) -> tuple[Buffer, int]:
        return self.places.get(buffer, (buffer, 0))

    def array(self, view: View) -> Array:
        buffer, offset = self.real(view.buffer)
        start, size = offset + view.offset, view.dtype.itemsize
        if not view.size:
            return np.empty(view.shape, view.dtype)
        low = sum(
            min(0, (n - 1) * s) for n, s in zip(view.shape, view.strides, strict=True)
        )
        high = sum(
            max(0, (n - 1) * s) for n, s in zip(view.shape, view.strides, strict=True)
        )
        flat = self.of(buffer)[start + low * size : start + (high + 1) * size]
        return np.lib.stride_tricks.as_strided(
            flat.view(view.dtype)[-low:],
            view.shape,
            [stride * size for stride in view.strides],
        )

    def of(self, buffer: Buffer) -> Array:
        if isinstance(buffer, Input):
            return flat(self.inputs[buffer.position])
        if isinstance(buffer, Output):
            return flat(self.outputs[buffer.position])
        if isinstance(buffer, Constant):
            return flat(buffer.array)
        if buffer not in self.bytes:
            if isinstance(buffer, Packed) and buffer.memory is not None:
                return np.asarray(buffer.memory)
            self.bytes[buffer] = np.full(buffer.nbytes, 0xFF, np.uint8)
            if isinstance(buffer, Packed):
                places, self.places = self.places, {}
                for command in buffer.fill:
                    command.run(self)
                self.places = places
                # not before it is filled, as other threads read it
                buffer.memory = self.bytes[buffer]
        return self.bytes[buffer]


def flat(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Division(NamedTuple):
    chunks: tuple[int, ...] = ()


class NumpyProgram:
    """Runs the pieces of a plan in order."""

    division = Division()
    looks = False

    def __init__(
        self, work: Work, shapes: Sequence[tuple[int, ...]], checks: Sequence[Check]
    ) -> None:
        self.work, self.shapes, self.checks = work, shapes, checks

    @property
    def commands(self) -> Sequence[Command]:
        return self.work.commands

    def try_run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
        if [np.shape(array) for array in (*inputs, *outputs)] != self.shapes:
            return False
        self.run(inputs, outputs)
        return True

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        # which are as they are declared, and in C order
        memory = Memory([np.asarray(array) for array in inputs], outputs)
        for piece, buffers, offsets, _ in self.work.placed:
            pairs = zip(buffers, offsets, strict=True)
            memory.places = dict(zip(piece.assembly.buffers, pairs, strict=True))
            for command in piece.commands:
                command.run(memory)
        for check in self.checks:
            if check.flag in memory.flags:
                raise check.error(1)
