"""Models that the compiled tier runs, and the commands that they became."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx

import onnxplug
from onnxplug_cpu.compiler.partition import ProgramPartition
from onnxplug_cpu.compiler.segment import Segment

from .differential import session

Array = np.ndarray[Any, Any]


class Lowered(NamedTuple):
    """A session on the compiled tier.

    Attributes:
        partitions: what runs its partitions.
        segments: all that were made, those of plans that were given up too.
        expected: a session of the same model on the array tier.
    """

    session: onnxplug.InferenceSession
    partitions: list[ProgramPartition]
    segments: list[Segment]
    expected: onnxplug.InferenceSession

    def labels(self) -> list[str]:
        """The operators of all commands of all plans, without sizes."""
        return [
            re.sub(r" [^+ ]+$", "", command.label.split(":")[0])
            for segment in self.segments
            for plan in segment._plans.values()
            if plan.program is not None
            for command in plan.program.commands
        ]

    def check(self, *arrays: Any, tolerance: float = 1e-5) -> list[Array]:
        """Run on *arrays* and compare with the array tier; the results."""
        names = [value.name for value in self.session.get_inputs()]
        feeds = dict(zip(names, map(np.asarray, arrays), strict=True))
        found = self.session.run(None, feeds)
        expected = self.expected.run(None, feeds)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            if one.dtype.kind in "iub":
                np.testing.assert_array_equal(one, other)
            else:
                np.testing.assert_allclose(one, other, tolerance, tolerance)
        return list(found)


def lowered(model: onnx.ModelProto | str, threads: int = 1) -> Lowered:
    """A model, or its text, as the compiled tier runs it."""
    if isinstance(model, str):
        model = onnx.parser.parse_model(model)
    partitions: list[ProgramPartition] = []
    segments: list[Segment] = []
    make_partition, make_segment = ProgramPartition.__init__, Segment.__init__

    def note_partition(self: ProgramPartition, *rest: Any, **named: Any) -> None:
        partitions.append(self)
        make_partition(self, *rest, **named)

    def note_segment(self: Segment, *rest: Any, **named: Any) -> None:
        segments.append(self)
        make_segment(self, *rest, **named)

    expected = session(model, compiled=False)
    with (
        mock.patch.object(ProgramPartition, "__init__", note_partition),
        mock.patch.object(Segment, "__init__", note_segment),
    ):
        compiled = session(model, compiled=True, threads=threads)
    return Lowered(compiled, partitions, segments, expected)


def graph(
    inputs: str,
    outputs: str,
    body: str,
    constants: str = "",
    opset: int = 20,
) -> str:
    """The text of a model."""
    constants = f"<{constants}>" if constants else ""
    return (
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
        f"tested ({inputs}) => ({outputs}) {constants} {{ {body} }}"
    )


def random(*shapes: Sequence[int], seed: int = 0) -> list[Array]:
    """Normally distributed float32 arrays."""
    numbers = np.random.default_rng(seed)
    return [numbers.standard_normal(shape).astype(np.float32) for shape in shapes]
