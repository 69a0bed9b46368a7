"""The CPU EP in one session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_cpu.capability import find
from onnxplug_cpu.threads import limited_to


class CpuProvider(ep.KernelExecutionProvider):
    """Runs nodes one by one, each by a function on numpy arrays.

    *threads* limits those of a matrix product; 0 leaves them to numpy.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        """The function of *node*, whichever tier it is of."""
        found = find(graph, node)
        return found if isinstance(found, ep.Reason) else found.function

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The calls of the partition's functions, and how many of each tier."""
        return ArrayPartition(partition, self.threads)


class ArrayPartition(ep.KernelSequence):
    """A list of calls on arrays.

    Overflow, division by zero and invalid values are ordinary results in ONNX, not
    worth a warning.
    """

    def __init__(self, partition: ep.Partition, threads: int) -> None:
        tiers: Counter[str] = Counter()

        def find_kernel(
            graph: ep.Graph, node: ep.Node
        ) -> Callable[..., Any] | ep.Reason:
            found = find(graph, node)
            if isinstance(found, ep.Reason):
                return found
            tiers[str(found.tier)] += 1
            return found.function

        super().__init__(partition, find_kernel)
        self._threads = threads
        self.tiers = dict(tiers)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call the functions in order."""
        with np.errstate(all="ignore"):
            if not self._threads:
                return super().run(inputs, outputs, context)
            with limited_to(self._threads):
                return super().run(inputs, outputs, context)
