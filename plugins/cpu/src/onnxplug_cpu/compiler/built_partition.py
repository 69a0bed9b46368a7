"""A partition as it can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.segmentation import Analysis, Unit
from onnxplug_cpu.compiler.bound_in_place import run_apart
from onnxplug_cpu.compiler.segment import Segment
from onnxplug_cpu.compiler.steps import StepSequence

_NONE: Final[Mapping[int, int]] = MappingProxyType({})


class Built(Record):
    """A partition as it can run.

    Attributes:
        runner: runs it.
        refused: nodes, by index, that are not to be compiled, and why.
        units: its parts.
        analysis: what is known of its calls.
        segments: the parts that are compiled.
    """

    runner: Segment | StepSequence
    refused: Mapping[int, str]
    units: Sequence[Unit]
    analysis: Analysis
    segments: Sequence[Segment]

    def refuses(self, nodes: Iterable[int]) -> bool:
        """Whether it refuses all these nodes."""
        return self.refused.keys() >= set(nodes)

    @property
    def in_place(self) -> Mapping[int, int]:
        """Outputs that may be in the memory of an input, by their positions."""
        return self.runner.in_place if isinstance(self.runner, Segment) else _NONE

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Run the units in order."""

        def run(bound: Sequence[Any | None]) -> Sequence[Any]:
            return self.runner.run(inputs, bound, context)

        return run_apart(run, inputs, outputs, self.in_place)
