"""The EP in one session: it takes partitions whole, and compiles each as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring import arrays

from .operators import why_not
from .program import Program, compile_program


class AcmeExecutionProvider(ep.ExecutionProvider):
    """Compiles partitions of nodes of float32."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take each node that can be written; neighbours are compiled together."""
        return ep.CapabilityReport.per_node(graph, partial(why_not, graph))

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The partition as one function."""
        return AcmePartition(compile_program(partition))


class AcmePartition(ep.CompiledPartition):
    """A partition that was compiled.

    Attributes:
        program: what to.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call the function, and fill what the caller bound."""
        # infinities and NaNs are results like others
        with np.errstate(all="ignore"):
            results = self.program.function(*inputs)
        return arrays.fill_bound(results, outputs)
