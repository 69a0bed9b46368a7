"""Commands: launches of kernels and calls of libraries, before buffers are anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.packing import packed_element
from onnxplug_compiler.gpu.render.body import BYTES, Body, Operand
from onnxplug_compiler.gpu.render.dialect import Dialect
from onnxplug_compiler.ir.buffers import Buffer
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

MOST_BUFFERS: Final = 8
"""Buffers of a kernel: as many as all GPUs have."""

MOST_GROUPS: Final = 65535
"""Workgroups along an axis of a launch: as many as all GPUs have."""


class Kernel(Protocol):
    """What a launch runs, told from others by its text; see ``ir.parameters``."""

    @property
    def operands(self) -> Sequence[Operand]:
        """Its arrays."""

    @property
    def sizes(self) -> int:
        """How many numbers a launch has before those of the arrays."""

    @property
    def lanes(self) -> int:
        """Invocations of a workgroup, at most 256."""

    def write(self, body: Body) -> None:
        """Write its statements."""


def render(kernel: Kernel, bindings: Sequence[int], dialect: Dialect) -> Body:
    """The statements of *kernel*, of whose operands some are in one buffer.

    Args:
        bindings: the number of each operand's buffer.
    """
    body = Body(dialect, kernel.operands, bindings, kernel.sizes)
    kernel.write(body)
    return body


class Launch(Record):
    """A command of this target; see :class:`onnxplug_compiler.ir.pieces.Command`.

    Attributes:
        kernel: what runs.
        views: the arrays, in the order of the kernel's operands.
        sizes: the kernel's numbers.
        groups: workgroups.
        in_place: it copies what it reads first to what it writes, and is needless where
            these are the same memory.
    """

    kernel: Any
    views: tuple[View, ...]
    sizes: tuple[int, ...]
    groups: int
    label: str
    flops: int = 0
    nbytes: int = 0
    nodes: tuple[int, ...] = ()
    note: str = ""
    in_place: bool = False

    def of_nodes(self, nodes: tuple[int, ...]) -> Launch:
        """The same as one that computes other nodes."""
        return self._replace(nodes=nodes)


class EngineCall(Record):
    """A command that a library of the EP's does, such as one of linear algebra.

    Attributes:
        call: what the device's ``engine_call`` is given; a record of plain data,
            equal for equal calls.
        views: the arrays.
        written: which of them it writes to.
        workspace: bytes that it needs besides.
    """

    call: Any
    views: tuple[View, ...]
    written: tuple[bool, ...]
    workspace: int
    label: str
    flops: int = 0
    nbytes: int = 0
    nodes: tuple[int, ...] = ()
    note: str = ""
    in_place: bool = False

    def of_nodes(self, nodes: tuple[int, ...]) -> EngineCall:
        """The same as one that computes other nodes."""
        return self._replace(nodes=nodes)


GpuCommand: TypeAlias = Launch | EngineCall


class Assembly(Record):
    """What is kept of the commands of a piece.

    Attributes:
        buffers: all that they read and write.
        launches: the commands.
        numbers: of each command the numbers of its views' buffers among those.
    """

    buffers: list[Buffer]
    launches: tuple[GpuCommand, ...]
    numbers: tuple[tuple[int, ...], ...]


def assemble(launches: Sequence[GpuCommand]) -> Assembly:
    """The launches of a piece, with the buffers that they name."""
    buffers: dict[Buffer, int] = {}
    numbers = tuple(
        tuple(buffers.setdefault(view.buffer, len(buffers)) for view in launch.views)
        for launch in launches
    )
    return Assembly(list(buffers), tuple(launches), numbers)


def launch(
    recorder: Recorder[Any],
    kernel: Kernel,
    views: Sequence[View],
    sizes: Sequence[int],
    groups: int,
    label: str,
    flops: int = 0,
    *,
    in_place: bool = False,
) -> None:
    """Record a launch.

    Args:
        in_place: see :class:`Launch`.

    Raises:
        ValueError: it is beyond the target's limits.
    """
    target = recorder.target
    if groups > math.prod(target.most_groups):
        raise ValueError(f"{label} has {groups} workgroups, more than are launched")
    if has_too_many_buffers(recorder, views):
        raise ValueError(
            f"{label} has arrays in {len({view.buffer for view in views})} buffers; "
            f"a kernel has at most {target.most_buffers}"
        )
    nbytes = sum(map(_distinct_bytes, views))
    recorder.commands.append(
        Launch(
            kernel,
            tuple(views),
            tuple(sizes),
            groups,
            label,
            flops,
            nbytes,
            recorder.nodes,
            in_place=in_place,
        )
    )


def lies_alike(source: View, target: View) -> bool:
    """Whether arrays have their elements at the same places of their buffers."""
    return (
        source.shape == target.shape
        and source.strides == target.strides
        and source.offset == target.offset
    )


def _distinct_bytes(view: View) -> int:
    """Bytes of an array, without what is repeated."""
    sizes = (n for n, step in zip(view.shape, view.strides, strict=True) if step)
    nbytes = math.prod(sizes) * view.dtype.itemsize if view.size else 0
    return min(nbytes, view.buffer.nbytes)


def has_too_many_buffers(recorder: Recorder[Any], views: Iterable[View]) -> bool:
    """Whether views are in more buffers than a kernel of the target has."""
    most: int = recorder.target.most_buffers
    return len({view.buffer for view in views}) > most


def operand(view: View, *, written: bool = False) -> Operand:
    """How a kernel that computes with the elements of *view* sees it.

    Raises:
        ValueError: it has no such elements.
    """
    element = packed_element(view.buffer, view.dtype) or element_of(view.dtype)
    if element not in BYTES:
        raise ValueError(f"kernels do not compute with {view.dtype}")
    return Operand(element, len(view.shape), written)


_BITS: Final[Mapping[int, np.dtype[Any]]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}


def as_bits(view: View) -> View:
    """The same memory as elements of at most 32 bits, which only move.

    Elements of more bits get another axis, the last one.

    Raises:
        ValueError: bytes hold several elements.
    """
    if packed_element(view.buffer, view.dtype):
        raise ValueError(f"constants of {view.dtype} are packed, and do not move")
    nbytes = view.dtype.itemsize
    if nbytes in _BITS:
        dtype = _BITS[nbytes]
        return View(view.buffer, view.offset, dtype, view.shape, view.strides)
    many = nbytes // 4
    return View(
        view.buffer,
        view.offset,
        _BITS[4],
        (*view.shape, many),
        (*(stride * many for stride in view.strides), 1),
    )


def merged(views: Sequence[View]) -> list[View]:
    """The same elements in as few axes as all views allow, all of one shape."""
    shape = views[0].shape
    kept: list[int] = [axis for axis, size in enumerate(shape) if size != 1]
    groups: list[list[int]] = []
    for axis in kept:
        if groups and all(
            view.strides[groups[-1][-1]] == view.strides[axis] * shape[axis]
            for view in views
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = tuple(math.prod(shape[axis] for axis in group) for group in groups)
    return [
        View(
            view.buffer,
            view.offset,
            view.dtype,
            sizes,
            tuple(view.strides[group[-1]] for group in groups),
        )
        for view in views
    ]
