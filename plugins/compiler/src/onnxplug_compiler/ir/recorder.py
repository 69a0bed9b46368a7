"""Collects what a plan does: commands, checks, and the constants that it packs.

Operations let a target record commands over buffers; where these are in memory, and
what becomes of commands, is the target's affair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from onnxplug_compiler.ir.buffers import (
    Acceptance,
    Address,
    Check,
    Constant,
    Flag,
    Packed,
    Temporary,
)
from onnxplug_compiler.ir.views import View

PackedConstants: TypeAlias = dict[tuple[Hashable, str], tuple[Any, Packed]]
"""Constants that some plan packed, by the constant's key and the layout's name.

Where the key is the identity of an array, the array is there too, which keeps its
identity from being used again.
"""

Filling: TypeAlias = "Callable[[Recorder[Any], View, Address], None]"
"""Records the commands that write the packed form of a constant."""

TargetT = TypeVar("TargetT", covariant=True)


class Recorder(Generic[TargetT]):
    """Collects the commands of one plan.

    Attributes:
        target: what they are for, which records them.
        commands: what was recorded, of the target's own kind.
        checks: what to look at after a run.
        nodes: indices of the nodes that are being recorded.
        narrows: products may round their factors to fewer bits, if options let them.
    """

    def __init__(self, target: TargetT, packed: PackedConstants | None = None) -> None:
        self.target = target
        self.commands: list[Any] = []
        self.checks: list[Check] = []
        self.nodes: tuple[int, ...] = ()
        self.narrows = True
        self._packed = {} if packed is None else packed

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Let what is recorded meanwhile round no factors: transforms and predictors
        are products here alone, and no option for products means them."""
        narrowed, self.narrows = self.narrows, False
        try:
            yield
        finally:
            self.narrows = narrowed

    def temporary(self, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
        """A new array, its content undefined."""
        nbytes = math.prod(shape) * dtype.itemsize
        return View.contiguous(Temporary(nbytes), dtype, shape)

    def channels_last(self, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
        """A new array of *shape* whose second axis is the last one in memory."""
        batch, channels, *spatial = shape
        whole = self.temporary(dtype, (batch, *spatial, channels))
        rank = len(spatial)
        return whole.transpose((0, rank + 1, *range(1, rank + 1)))

    def ordered_like(
        self, view: View, shape: Sequence[int], dtype: np.dtype[Any] | None = None
    ) -> View:
        """A new array of *shape*, its axes in the order of those of *view*.

        Args:
            dtype: if not that of *view*.
        """
        rank = len(shape)
        order = sorted(range(rank), key=lambda axis: (-abs(view.strides[axis]), axis))
        whole = self.temporary(dtype or view.dtype, [shape[axis] for axis in order])
        return whole.transpose([order.index(axis) for axis in range(rank)])

    def constant(self, array: np.ndarray[Any, Any]) -> View:
        """A constant array."""
        # a scalar of numpy's has no memory that stays
        kept = np.asarray(array, order="C")
        buffer = Constant(kept.nbytes, lambda: kept)
        return View.contiguous(buffer, kept.dtype, kept.shape)

    def packed(
        self,
        source: View,
        layout: str,
        nbytes: int,
        record: Filling,
        accepts: Acceptance | None = None,
    ) -> Address:
        """A constant in another layout, packed once for all plans of a session.

        Args:
            source: a view of a constant; how it is strided is part of *layout*.
            layout: names the layout, with all its parameters, among those of a
                session.
            nbytes: the size of the packed form.
            record: records the commands that write it, given a recorder, the source
                and its address; it depends on nothing of the source but its layout.
            accepts: whether the packed form may be used; where it may not, the plan
                is made anew, and :meth:`is_refused` says so then.
        """
        key, array = self._packed_key(source, layout)
        if key not in self._packed:
            buffer = Packed(nbytes, accepts)
            filling = Recorder(self.target, self._packed)
            record(filling, source, Address(buffer))
            buffer.fill = tuple(filling.commands)
            assert isinstance(source.buffer, Constant)
            buffer.source = source.buffer
            # another thread may have been first
            return Address(self._packed.setdefault(key, (array, buffer))[1])
        return Address(self._packed[key][1])

    def is_refused(self, source: View, layout: str) -> bool:
        """Whether that form of a constant was packed, and not accepted."""
        key, _ = self._packed_key(source, layout)
        return key in self._packed and self._packed[key][1].refused

    def _packed_key(
        self, source: View, layout: str
    ) -> tuple[tuple[Hashable, str], np.ndarray[Any, Any] | None]:
        """The key of a packed constant, and the array if the key is its identity."""
        constant = source.buffer
        if not isinstance(constant, Constant):
            raise TypeError("only constants are packed")
        if constant.key is not None:
            return (constant.key, layout), None
        return (id(constant.array), layout), constant.array

    def check(self, error: Callable[[int], Exception]) -> Address:
        """The address of a new :class:`Flag`, for a kernel that may find an error.

        Any chunk may write it at any time, so one that was found, not always the
        first, is reported; results of a run that fails are not used.

        Args:
            error: makes the exception from what the kernel wrote, never 0.
        """
        flag = Flag()
        self.checks.append(Check(flag, error, self.nodes))
        return Address(flag)

    def part(self) -> Recorder[TargetT]:
        """A recorder of commands that are to be made into one of this recorder's."""
        part = Recorder(self.target, self._packed)
        part.nodes, part.checks = self.nodes, self.checks
        return part
