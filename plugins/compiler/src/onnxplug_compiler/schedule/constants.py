"""A partition's constants; large ones are loaded only while they are packed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

from onnxplug import ep
from onnxplug_compiler.frontend.call import Abstract
from onnxplug_compiler.ir.buffers import constant_named, content_of
from onnxplug_compiler.ir.views import View

LARGE: Final = 1 << 16
"""Elements above which a constant's content is looked at when planning only where a
pattern asks."""


class Constants:
    """Those of *names* that are constants of *partition*."""

    def __init__(self, partition: ep.Partition, names: Iterable[str]) -> None:
        self._partition = partition
        self._known: dict[str, Abstract] = {}
        for name in names:
            value = partition.value(name)
            if value.is_constant:
                self._known[name] = self._look_at(name, value)

    def _look_at(self, name: str, value: ep.ValueInfo) -> Abstract:
        dtype, shape = value.dtype, value.shape
        if dtype is not None and shape is not None:
            sizes = tuple(size for size in shape if isinstance(size, int))
            load = functools.partial(content_of, self._partition, name)
            large = Abstract(dtype.numpy, sizes, load=load)
            if len(sizes) == len(shape) and large.size > LARGE:
                return large
        return Abstract.known(content_of(self._partition, name))

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def known(self, name: str) -> Abstract:
        """What is known of a constant: of a large one its dtype and shape."""
        return self._known[name]

    def view(self, name: str) -> View:
        """The whole constant, loaded when its address is asked for."""
        value = self._known[name]
        nbytes = value.size * value.dtype.itemsize
        buffer = constant_named(self._partition, name, nbytes)
        return View.contiguous(buffer, value.dtype, value.shape)
