"""Chains of element-wise operators over whole arrays, one pass for all of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.elementwise.operators import chain_cost
from onnxplug_cpu.compiler.kernels.loop_nest import (
    SPLAT,
    STRIDED,
    UNIT,
    Axis,
    Layout,
    Walk,
    chunks,
    chunks_wanted,
    collapse,
    merge,
)
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Module
    from onnxplug_cpu.compiler.machine.isa import Isa

_GATHERED_BLOCK = 256
"""Columns that strided operands are read in, for cache lines to stay until the next
row uses what is left of them."""


def record_chain(
    recorder: Recorder,
    chain: Chain,
    inputs: Sequence[View],
    outputs: Sequence[View],
    *,
    label: str = "",
) -> None:
    """See ``families.Elementwise.record_chain``.

    Consecutive or repeated elements along the outputs' innermost axis are fastest;
    others are gathered one by one or, if they are many and far apart, copied first.

    Raises:
        ValueError: shapes do not fit, or as many views are not given as the chain has.
    """
    _check(chain, inputs, outputs)
    shape = outputs[0].shape
    if 0 in shape:
        return
    copied = [_copied_if_apart(recorder, view, shape, outputs[0]) for view in inputs]
    views = [*outputs, *(view.broadcast_to(shape) for view in copied)]
    sizes = [view.dtype.itemsize for view in views]
    form = form_of(collapse(views), sizes, len(outputs))
    bytes_ = sum(_distinct_bytes(view) for view in views)
    nanoseconds = max(
        bytes_ / _BYTES_PER_NS,
        outputs[0].size * (chain_cost(chain) + 1) * _INSTRUCTION_NS,
        outputs[0].size * _GATHER_NS * form.kinds.count(STRIDED),
    )
    cut = cut_of(recorder, form, nanoseconds)
    kernel = Elementwise(chain, form.kinds, len(cut.axes), cut.is_blocked)
    words = kernel.walk.values(form.addresses, cut.axes, cut.each)
    words |= {"columns": form.columns, "block": cut.block}
    for name, kind, stride in zip(kernel.names, form.kinds, form.strides, strict=True):
        if kind == STRIDED:
            words[f"{name}_column"] = stride
    call(
        recorder,
        Kernel(kernel),
        words,
        chunks=cut.chunks,
        label=label or " + ".join(step.operator for step in chain.steps),
        flops=len(chain.steps) * outputs[0].size,
        nbytes=bytes_,
    )


def _copied_if_apart(
    recorder: Recorder, view: View, shape: tuple[int, ...], output: View
) -> View:
    """A copy of *view* if its elements lie apart along the axis where the output's
    follow each other: transposing whole cache lines is faster than picking from them.
    """
    if not shape or len(view.shape) != len(shape):
        return view
    axis = min(range(len(shape)), key=lambda a: (shape[a] == 1, output.strides[a]))
    apart, itemsize = abs(view.strides[axis]), view.dtype.itemsize
    # elements of fewer than 4 bytes no processor gathers
    is_slow = apart * itemsize >= _CACHE_LINE or (apart > 1 and itemsize < 4)
    if not is_slow or view.shape[axis] < LANES or view.size < _COPIED_SIZE:
        return view
    starts = [0] * len(shape)
    sizes = [
        1 if stride == 0 else size
        for size, stride in zip(view.shape, view.strides, strict=True)
    ]
    distinct = view.slice(starts, sizes)
    if distinct.size < _COPIED_SIZE:
        return view
    from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

    copy = recorder.temporary(view.dtype, sizes)
    record_copy(recorder, distinct, copy)
    return copy.broadcast_to(view.shape)


def _check(chain: Chain, inputs: Sequence[View], outputs: Sequence[View]) -> None:
    if len(inputs) != len(chain.inputs) or len(outputs) != len(chain.outputs):
        raise ValueError(
            f"the chain has {len(chain.inputs)} inputs and {len(chain.outputs)} "
            f"outputs; got {len(inputs)} and {len(outputs)} views"
        )
    if not outputs or any(view.shape != outputs[0].shape for view in outputs):
        raise ValueError(
            f"outputs of one shape are expected; got {[view.shape for view in outputs]}"
        )


class Form(Record):
    """The arrays, outputs first, along the fewest axes.

    Attributes:
        addresses: of the first elements.
        axes: all but the innermost.
        columns: elements along the innermost axis.
        strides: along it, in bytes.
        kinds: how each array lies along it.
    """

    addresses: tuple[Address, ...]
    axes: tuple[Axis, ...]
    columns: int
    strides: tuple[int, ...]
    kinds: tuple[str, ...]


def form_of(layout: Layout, sizes: Sequence[int], outputs: int) -> Form:
    """How arrays lie.

    Args:
        sizes: of their elements, in bytes.
        outputs: how many of them, the first ones, are written.
    """
    axes = _with_columns(layout.axes or (Axis(1, tuple(sizes)),), sizes, outputs)
    inner = axes[-1]
    kinds = tuple(
        UNIT if stride == size else SPLAT if stride == 0 else STRIDED
        for stride, size in zip(inner.strides, sizes, strict=True)
    )
    return Form(layout.addresses, axes[:-1], inner.size, inner.strides, kinds)


def _with_columns(
    axes: tuple[Axis, ...], sizes: Sequence[int], outputs: int
) -> tuple[Axis, ...]:
    """The axes with another one innermost, if that is too short for a vector and along
    the other one all inputs are repeated or have neighbours, as where channels of a
    photograph become the last axis.

    Args:
        sizes: of elements, in bytes.
        outputs: how many of the arrays, the first ones, are written.
    """
    if axes[-1].size >= LANES:
        return axes
    for number in range(len(axes) - 2, -1, -1):
        axis = axes[number]
        steps = zip(axis.strides[outputs:], sizes[outputs:], strict=True)
        if axis.size >= LANES and all(step in (0, size) for step, size in steps):
            others = *axes[:number], *axes[number + 1 :]
            return merge((others[-1], *others[:-1], axis))
    return axes


class Cut(Record):
    """How the work is divided.

    Attributes:
        axes: what a kernel walks; the first one counts blocks if *is_blocked*.
        block: columns of a block.
        each: items of the walk for each chunk.
    """

    axes: tuple[Axis, ...]
    is_blocked: bool
    block: int
    each: int
    chunks: int


def cut_of(recorder: Recorder, form: Form, nanoseconds: float) -> Cut:
    """How to divide what takes one worker about so long."""
    rows = 1
    for axis in form.axes:
        rows *= axis.size
    columns = form.columns
    wanted = chunks_wanted(recorder, nanoseconds)
    block = columns
    if rows < wanted:
        block = -(-columns * rows // wanted)
    if STRIDED in form.kinds and rows > 1:
        block = min(block, _GATHERED_BLOCK)
    block = -(-block // _GRAIN) * _GRAIN
    if form.axes and block >= columns:
        count, each = chunks(recorder, rows, nanoseconds)
        return Cut(form.axes, False, columns, each, count)
    blocks = -(-columns // block)
    first = Axis(blocks, tuple(block * stride for stride in form.strides))
    count, each = chunks(recorder, blocks * rows, nanoseconds)
    return Cut((first, *form.axes), True, block, each, count)


def _distinct_bytes(view: View) -> int:
    size = view.dtype.itemsize
    for length, stride in zip(view.shape, view.strides, strict=True):
        size *= length if stride else 1
    return size


class Elementwise(Generator):
    """A chunk is some items of the walk.

    Attributes:
        kinds: how the arrays, outputs first, lie along the columns.
        axes: of the walk.
        is_blocked: whether the walk's first axis counts blocks of columns.
    """

    chain: Chain
    kinds: tuple[str, ...]
    axes: int
    is_blocked: bool

    @property
    def names(self) -> list[str]:
        """Prefixes of the words of each array, outputs first."""
        return [
            *(f"out{number}_" for number in range(len(self.chain.outputs))),
            *(f"in{number}_" for number in range(len(self.chain.inputs))),
        ]

    @property
    def walk(self) -> Walk:
        """Over the rows of the arrays."""
        return Walk(self.names, self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        walk = self.walk
        return (
            *walk.words,
            "columns",
            "block",
            *(
                f"{name}_column"
                for name, kind in zip(walk.names, self.kinds, strict=True)
                if kind == STRIDED
            ),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        # what writes kernels is not imported for those that are in the cache
        from onnxplug_cpu.compiler.kernels.elementwise.generator import Writer

        Writer(module, name, isa, self).write()


_CACHE_LINE = 64
_COPIED_SIZE = 4096

_GRAIN = 64
"""Blocks are multiples of this, for whole vectors and, mostly, whole cache lines."""

_BYTES_PER_NS = 10.0
_INSTRUCTION_NS = 0.0125  # for one element
_GATHER_NS = 1.0
