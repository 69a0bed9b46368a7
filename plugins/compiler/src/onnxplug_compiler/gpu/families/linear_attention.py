"""Linear attention: columns of a state do not know of each other, so each is one
invocation's, which goes from time to time with it in memory of the workgroup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.ir.linear_attention import LinearAttention
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_SHARED: Final = 16384
"""Bytes that a workgroup shares, at most: as many as WebGPU has everywhere."""

_MOST_LANES: Final = 64

_RANKS: Final = {
    "query": 5,
    "key": 4,
    "value": 4,
    "decay": 4,
    "rate": 3,
    "past": 4,
    "out": 5,
    "state": 4,
}
"""The arrays of :class:`~onnxplug_compiler.ir.linear_attention.LinearAttention`."""


class LinearAttentionKernel(Parameters):
    """All times of some columns of a state; the sizes are batches, heads, blocks of
    columns, queries of a head, times and columns.

    Attributes:
        names: of the arrays.
        elements: theirs.
        depth: the size of keys.
        lanes: columns of a block.
        scale: a factor of what is read.
    """

    names: tuple[str, ...]
    elements: tuple[str, ...]
    depth: int
    lanes: int
    scale: float

    sizes = 6

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(
            Operand(element, _RANKS[name], name in ("out", "state"))
            for name, element in zip(self.names, self.elements, strict=True)
        )

    def write(self, body: Body) -> None:
        heads, blocks = body.size(1), body.size(2)
        with body.when(f"block < {body.size(0)} * {heads} * {blocks}"):
            column = body.let("u32", f"block % {blocks} * {self.lanes}u + lane")
            head = body.let("u32", f"block / {blocks} % {heads}")
            batch = body.let("u32", f"block / {blocks} / {heads}")
            with body.when(f"{column} < {body.size(5)}"):
                _Column(body, self, [batch, head], column).write()


class _Column:
    """Writes the times of one column.

    Attributes:
        of: batch and head.
    """

    def __init__(
        self, body: Body, kernel: LinearAttentionKernel, of: list[str], column: str
    ) -> None:
        self.body, self.kernel = body, kernel
        self.of, self.column = of, column
        self.numbers = {name: number for number, name in enumerate(kernel.names)}
        self.memory = body.array("f32", kernel.depth * kernel.lanes)

    def write(self) -> None:
        """The state before, all times, and the state after."""
        body = self.body
        with self.rows() as row:
            before = "0.0f"
            if "past" in self.numbers:
                before = self.read("past", [row, self.column])
            body.assign(self.place(row), before)
        with body.loop(body.size(4)) as time:
            self.learn(time)
            with body.loop(body.size(3)) as query:
                found = body.var("f32", "0.0f")
                with self.rows() as row:
                    factor = self.read("query", [query, time, row])
                    body.assign(found, f"{found} + {factor} * {self.place(row)}")
                scale = body.number("f32", self.kernel.scale)
                self.keep("out", [query, time, self.column], f"{found} * {scale}")
        with self.rows() as row:
            self.keep("state", [row, self.column], self.place(row))

    def rows(self) -> Any:
        """A loop over the elements of a column."""
        return self.body.loop(f"{self.kernel.depth}u")

    def place(self, row: str) -> str:
        """An element of the column."""
        return f"{self.memory}[{row} * {self.kernel.lanes}u + lane]"

    def read(self, name: str, at: Sequence[str]) -> str:
        """An element of an array."""
        number = self.numbers[name]
        found: str = self.body.load(number, self.body.place(number, [*self.of, *at]))
        return found

    def keep(self, name: str, at: Sequence[str], value: str) -> None:
        """Write an element of an array."""
        number = self.numbers[name]
        value = self.body.let("f32", value)
        self.body.store(number, self.body.place(number, [*self.of, *at]), value)

    def learn(self, time: str) -> None:
        """Let the column decay, and take in a value."""
        body = self.body
        value = self.read("value", [time, self.column])
        if "rate" in self.numbers:
            given = body.var("f32", "0.0f")
            with self.rows() as row:
                factor = self.decayed(self.read("key", [time, row]), time, row)
                body.assign(given, f"{given} + {factor} * {self.place(row)}")
            rate = self.read("rate", [time])
            value = body.let("f32", f"{rate} * ({value} - {given})")
        with self.rows() as row:
            left = self.decayed(self.place(row), time, row)
            key = self.read("key", [time, row])
            body.assign(self.place(row), f"{left} + {key} * {value}")

    def decayed(self, element: str, time: str, row: str) -> str:
        """What a time leaves of an element of a row."""
        if "decay" not in self.numbers:
            return element
        return f"{element} * {self.read('decay', [time, row])}"


def record_linear_attention(
    recorder: Recorder[Any], work: LinearAttention, label: str
) -> None:
    """All times; see ``ir.linear_attention.LinearAttentions``."""
    batch, heads, depth, columns = work.state.shape
    if not depth:
        raise ValueError(f"{label} with keys of no elements")
    if not batch * columns:
        return
    group, times = work.out.shape[2:4]
    lanes = _MOST_LANES
    while lanes > 1 and (lanes >= 2 * columns or 4 * depth * lanes > _SHARED):
        lanes //= 2
    if 4 * depth * lanes > _SHARED:
        raise ValueError(f"{label} with keys of {depth} elements")
    views: dict[str, View] = {
        name: view for name in _RANKS if (view := getattr(work, name)) is not None
    }
    elements = tuple(operand(view).element for view in views.values())
    if {KINDS.get(element) for element in elements} != {"f32"}:
        raise ValueError(f"{label} of {', '.join(elements)}")
    blocks = math.ceil(columns / lanes)
    kernel = LinearAttentionKernel(tuple(views), elements, depth, lanes, work.scale)
    launch(
        recorder,
        kernel,
        list(views.values()),
        (batch, heads, blocks, group, times, columns),
        batch * heads * blocks,
        f"{label} {times}×{depth}×{columns}",
        2 * work.state.size * times * (2 + group),
    )
