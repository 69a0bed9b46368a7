"""Chains over whole arrays: one invocation for each element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import launch, merged, operand
from onnxplug_compiler.gpu.families.vectors import vectored
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.gpu.render.steps import emit_chain
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

LANES: Final = 64
"""Invocations of a workgroup where elements have nothing to do with each other."""


class ChainKernel(Parameters):
    """Applies a chain; its sizes are how many elements there are, and of the axes."""

    chain: Chain
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.inputs + self.outputs

    @property
    def sizes(self) -> int:
        return 1 + self.outputs[0].rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            coordinates = body.coordinates(index, range(1, self.sizes))
            values = [
                body.load(number, body.place(number, coordinates))
                for number in range(len(self.inputs))
            ]
            results = emit_chain(body, self.chain, values)
            for number, result in enumerate(results, len(self.inputs)):
                body.store(number, body.place(number, coordinates), result)


def record_chain(
    recorder: Recorder[Any],
    chain: Chain,
    inputs: Sequence[View],
    outputs: Sequence[View],
    *,
    label: str = "",
) -> None:
    """Apply *chain* to every element; see ``ir.families.Elementwise``."""
    size = outputs[0].size
    if not size:
        return
    shape = outputs[0].shape
    views = [view.broadcast_to(shape) for view in inputs]
    label = label or " + ".join(step.operator for step in chain.steps)
    most = recorder.target.most_buffers
    for part, read, written in _parts(chain, views, outputs, most):
        arrays = merged([*read, *written])
        steps = size * len(part.steps)
        vectors = vectored(recorder, part, arrays, len(read))
        if vectors is not None:
            groups = math.ceil(vectors[1][0] / vectors[0].lanes)
            launch(recorder, vectors[0], arrays, vectors[1], groups, label, steps)
            continue
        kernel = ChainKernel(
            part,
            tuple(operand(view) for view in arrays[: len(read)]),
            tuple(operand(view, written=True) for view in arrays[len(read) :]),
        )
        sizes = (size, *arrays[0].shape)
        groups = math.ceil(size / LANES)
        launch(recorder, kernel, arrays, sizes, groups, label, steps)


def _parts(
    chain: Chain, inputs: Sequence[View], outputs: Sequence[View], most: int
) -> list[tuple[Chain, Sequence[View], Sequence[View]]]:
    """The chain, or several that each write some of its outputs, where it has arrays in
    more than *most* buffers.

    Raises:
        ValueError: one of these would write what the next one reads.
    """
    buffers = {view.buffer for view in (*inputs, *outputs)}
    if len(buffers) <= most:
        return [(chain, inputs, outputs)]
    read = {view.buffer for view in inputs}
    each = most - len(read)
    if each < 1 or read & {view.buffer for view in outputs}:
        raise ValueError(
            f"a chain has arrays in {len(buffers)} buffers; a kernel has at most {most}"
        )
    parts = []
    for first in range(0, len(outputs), each):
        builder = ChainBuilder()
        values = [builder.input(element) for element in chain.inputs]
        found = builder.append(chain, values)[first : first + each]
        parts.append((builder.build(found), inputs, outputs[first : first + each]))
    return parts
