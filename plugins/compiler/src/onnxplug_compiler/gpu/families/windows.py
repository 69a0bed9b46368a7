"""Convolutions of each channel by itself, or of small groups: one invocation for each
result, as tiles of products would have next to no columns."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import has_too_many_buffers, launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES, record_chain
from onnxplug_compiler.gpu.families.pools import TAP_NUMBERS, enter_tap, numbers_along
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.steps import emit_chain, fitted
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide, slides_of

_MOST_DEPTH: Final = 8
"""Channels of a group, of which a tile of products would leave half its lanes idle."""


class WindowKernel(Parameters):
    """Sums over windows, and a chain for each.

    The sizes are how many results there are, those of their axes in *order*, channels
    of a group, and then of each spatial axis the input's size and the numbers of a
    ``Slide``.

    Attributes:
        elements: of the input and of the weights.
        spatial: how many spatial axes there are.
        order: the axes of the result from the farthest apart in memory to the nearest,
            in which invocations go through them.
        chain: its value 0 is the sum.
        read, written: the chain's other arrays.
    """

    elements: tuple[str, str]
    spatial: int
    order: tuple[int, ...]
    chain: Chain
    read: tuple[Operand, ...]
    written: tuple[Operand, ...]

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        x, weights = (Operand(each, 2 + self.spatial) for each in self.elements)
        return x, weights, *self.read, *self.written

    @property
    def sizes(self) -> int:
        return 4 + self.spatial + TAP_NUMBERS * self.spatial

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            found = body.coordinates(index, range(1, 3 + self.spatial))
            at = [found[self.order.index(axis)] for axis in range(2 + self.spatial)]
            total = self._sum(body, at)
            values = [
                body.load(number, body.place(number, at))
                for number in range(2, 2 + len(self.read))
            ]
            if self.chain.steps:
                total = fitted(body, self.chain.inputs[0], "Mul", total)
            results = emit_chain(body, self.chain, [total, *values])
            for number, result in enumerate(results, 2 + len(self.read)):
                body.store(number, body.place(number, at), result)

    def _sum(self, body: Body, at: Sequence[str]) -> str:
        """The sum over the window of a result."""
        total = body.var("f32", "0.0f")
        depth = body.let("u32", body.size(3 + self.spatial))
        first = body.let("u32", f"{at[1]} / {depth} * {depth}")
        with contextlib.ExitStack() as loops:
            places, taps = [], []
            for axis in range(self.spatial):
                numbers = 4 + self.spatial + TAP_NUMBERS * axis
                tap = enter_tap(body, loops, numbers, at[2 + axis])
                loops.enter_context(body.when(tap.there))
                places.append(tap.place)
                taps.append(tap.number)
            with body.loop(depth) as channel:
                where = [at[0], f"({first} + {channel})", *places]
                value = body.load(0, body.place(0, where))
                by = body.load(1, body.place(1, [at[1], channel, *taps]))
                body.assign(total, f"{total} + {value} * {by}")
        return total


def takes_codes() -> bool:
    """See ``ir.families.Windows``."""
    return False


def takes_groups(
    recorder: Recorder[Any],
    depth: int,
    slides: Sequence[Slide],
    shape: Sequence[int],
    pixels: int,
) -> bool:
    """Whether groups of *depth* channels are taken; see ``ir.families.Windows``."""
    return depth <= _MOST_DEPTH


def record_depthwise(
    recorder: Recorder[Any],
    a: View,
    weights: View,
    out: View,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    zero: View | None = None,
    codes: View | None = None,
    epilogue: Epilogue | None = None,
    label: str = "Conv",
) -> None:
    """Convolve channels; see ``ir.families.Windows``."""
    if not out.size:
        return
    if zero is not None or codes is not None:
        raise ValueError(f"{label} is not computed of codes in windows")
    elements = operand(a).element, operand(weights).element
    if {KINDS.get(element) for element in elements} != {"f32"}:
        raise ValueError(f"{label} is not computed of {a.dtype} and {weights.dtype}")
    if epilogue is None:
        epilogue = Epilogue(Chain((operand(out).element,), (), (), (0,)), (), (out,))
    chain, operands, outputs = epilogue
    views = [a, weights, *operands, *outputs]
    if tuple(outputs) != (out,) and has_too_many_buffers(recorder, views):
        record_depthwise(
            recorder, a, weights, out, strides=strides, dilations=dilations, pads=pads,
            label=label,
        )  # fmt: skip
        record_chain(recorder, chain, [out, *operands], outputs, label=label)
        return
    depth, taps = weights.shape[1], weights.shape[2:]
    along = numbers_along(a, slides_of(taps, strides, dilations, pads), label)
    axes = range(len(out.shape))
    order = sorted(axes, key=lambda axis: (-abs(outputs[0].strides[axis]), axis))
    kernel = WindowKernel(
        elements,
        len(taps),
        tuple(order),
        chain,
        tuple(operand(view) for view in operands),
        tuple(operand(view, written=True) for view in outputs),
    )
    sizes = [out.shape[axis] for axis in order]
    each = depth * math.prod(taps)
    launch(
        recorder,
        kernel,
        views,
        (out.size, *sizes, depth, *along),
        math.ceil(out.size / LANES),
        f"{label} {out.size}×{each}",
        2 * out.size * each,
    )
