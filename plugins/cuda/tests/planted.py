"""NVIDIA's libraries as the stand-in's machine has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug_cuda.libraries import Found, Library, Missing

from . import library_of_graphs, library_of_products
from .standin import Machine
from .standin.machine import Work

Array = np.ndarray[Any, Any]


class Queued:
    """What has a library's work done in the order of the machine's streams."""

    machine: Machine

    def submit(
        self,
        stream: int,
        do: Callable[[], None],
        ranges: Sequence[tuple[int, int, bool]],
    ) -> None:
        queue = self.machine.streams[stream]
        self.machine.queue(queue, Work("a library's call", do, ranges))

    def bytes(self, address: int, nbytes: int) -> Array:
        return self.machine.bytes(address, nbytes, "a library's call")


class Products(Queued, library_of_products.CublasLt):
    """cuBLASLt on the machine."""


class Graphs(Queued, library_of_graphs.Frontend):
    """cuDNN on the machine."""


class Planted:
    """The libraries that a test has, and which are found.

    Attributes:
        found: names of those that are there.
    """

    def __init__(self, machine: Machine) -> None:
        self.products, self.graphs = Products(), Graphs()
        self.products.machine = self.graphs.machine = machine
        self.graphs.plans = {"eng1": 0, "eng2": 4096}
        self.found = {"cublasLt", "cudnn"}

    def look(self, library: Library) -> Found | Missing:
        if library.name not in self.found:
            return Missing("no such file")
        return Found("/opt/lib", (13, 1, 0), self.products)  # type: ignore[arg-type]
