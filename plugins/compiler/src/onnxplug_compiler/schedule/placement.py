"""Where values are written: as they will be read, where that is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.ir.buffers import Output
from onnxplug_compiler.ir.pieces import Halo
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.layout.orders import Order
from onnxplug_compiler.schedule.structure import MOST_VIEWS


class Placement:
    """Finds places for the values of one plan.

    Args:
        known: what is known of a value.
        readers: the calls that read a value.
        positions: of the values that are outputs.
        orders: of axes in memory, of values that do not lie as their shapes say.
        halos: of values that are to have zeros around them.
        recorder: gives memory.

    Attributes:
        written: outputs that have their place.
    """

    def __init__(
        self,
        known: Callable[[str], Abstract],
        readers: defaultdict[str, list[Call]],
        positions: Mapping[str, int],
        orders: Mapping[str, Order],
        halos: Mapping[str, Halo],
        recorder: Recorder[Target],
    ) -> None:
        self.known = known
        self.readers = readers
        self.positions = positions
        self.orders = orders
        self.halos = halos
        self.recorder = recorder
        self.written: set[str] = set()

    def place(self, name: str, *, padded_rows: bool = False) -> View:
        """A new place for a value.

        With *padded_rows* there may be gaps between rows, for products that want them.
        """
        return self._place(name, self.known(name), padded_rows, MOST_VIEWS)

    def _place(self, name: str, value: Abstract, padded_rows: bool, views: int) -> View:
        order = self.orders.get(name)
        if order is not None and not _is_in_order(order, value.shape):
            return self._in_order(order, value, self.halos.get(name))
        if name in self.positions and name not in self.written:
            self.written.add(name)
            nbytes = value.size * value.dtype.itemsize
            buffer = Output(self.positions[name], nbytes)
            return View.contiguous(buffer, value.dtype, value.shape)
        readers = self.readers[name]
        if len(readers) == 1 and name not in self.positions and views:
            reader = readers[0]
            follower = reader.outputs[0]
            if follower is not None:
                through = self._place_through(
                    reader, follower, value, padded_rows, views - 1
                )
                if through is not None:
                    return through
        if padded_rows and self._multiplies(name):
            return self._padded(value.dtype, value.shape)
        return self.recorder.temporary(value.dtype, value.shape)

    def halo(self, name: str) -> Halo | None:
        """The zeros around the place of a value."""
        halo = self.halos.get(name)
        if halo is None or _is_in_order(self.orders[name], self.known(name).shape):
            return None
        return halo

    def _in_order(self, order: Order, value: Abstract, halo: Halo | None) -> View:
        """A new place for a value whose axes are in that order in memory."""
        around = halo or ((0, 0),) * len(order)
        first = [around[axis][0] for axis in order]
        size = [value.shape[axis] for axis in order]
        shape = [sum(around[axis]) + value.shape[axis] for axis in order]
        inverse = sorted(range(len(order)), key=order.__getitem__)
        whole = self._padded(value.dtype, shape)
        return whole.slice(first, size).transpose(inverse)

    def _padded(self, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
        """New memory, its rows as far apart as the target wants them."""
        padding = self.recorder.target.row_padding(shape[-1] * dtype.itemsize)
        width = shape[-1] + padding // dtype.itemsize
        whole = self.recorder.temporary(dtype, (*shape[:-1], width))
        return whole.slice([0] * len(shape), shape)

    def _place_through(
        self, reader: Call, name: str, value: Abstract, padded_rows: bool, views: int
    ) -> View | None:
        """The place of what only *reader*, a view, reads; in the order it gives."""
        follower = self.known(name)
        if name in self.orders:
            return None
        if reader.traits.reshapes:
            if self._ends_in_output(name) or (padded_rows and self._multiplies(name)):
                place = self._place(name, follower, padded_rows, views).reshape(
                    value.shape
                )
                # behind it a last axis of size 1 may have been moved
                return place if place and _has_rows(place) else None
            return None
        if reader.traits.permutes and self._wants_order(name):
            from onnxplug_compiler.schedule.operations.views import permutation

            perm = permutation(reader, len(value.shape))
            if perm and perm[-1] == len(perm) - 1:
                inverse = tuple(sorted(range(len(perm)), key=perm.__getitem__))
                return self._place(name, follower, padded_rows, views).transpose(
                    inverse
                )
        return None

    def _multiplies(self, name: str) -> bool:
        """Whether *name* is read by products, as their left factor, and nothing else,
        and its rows would evict each other."""
        readers = self.readers[name]
        value = self.known(name)
        if name in self.positions or not readers or not value.shape:
            return False
        nbytes = value.shape[-1] * value.dtype.itemsize
        return self.recorder.target.row_padding(nbytes) > 0 and all(
            reader.traits.multiplies
            and reader.inputs[0] == name
            and name not in reader.inputs[1:]
            and not reader.attributes.get("transA")
            for reader in readers
        )

    def _ends_in_output(self, name: str) -> bool:
        """Whether *name* is an output, or becomes one by nothing but views."""
        for _ in range(MOST_VIEWS):
            if name in self.positions:
                return name not in self.written
            readers = self.readers[name]
            if len(readers) != 1 or not readers[0].traits.keeps_elements:
                return False
            follower = readers[0].outputs[0]
            if follower is None:
                return False
            name = follower
        return False

    def _wants_order(self, name: str) -> bool:
        """Whether *name* is wanted in C order: an output, or read by a reshape."""
        return name in self.positions or any(
            reader.traits.reshapes for reader in self.readers[name]
        )


def _is_in_order(order: Order, shape: Sequence[int]) -> bool:
    """Whether a value that lies as its shape says also lies in *order*."""
    axes = [axis for axis in order if shape[axis] != 1]
    return 0 in shape or axes == sorted(axes)


def _has_rows(view: View) -> bool:
    """Whether the elements of the last axis are consecutive."""
    return view.shape[-1:] in ((), (1,)) or view.strides[-1] == 1
