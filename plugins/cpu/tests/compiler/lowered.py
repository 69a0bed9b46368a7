"""Models that the compiled tier runs, and the commands that they became."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx

import onnxplug
from onnxplug import ep
from onnxplug_cpu.provider import CpuProvider

from .differential import session, tier
from .on_numpy import session_on_numpy

Array = np.ndarray[Any, Any]


class Lowered(NamedTuple):
    """A session on the compiled tier.

    Attributes:
        model: what it runs.
        threads: of a run.
        session: the session.
        partitions: what runs its partitions.
        expected: a session of the same model on the array tier.
        oracle: one that runs what is planned on numpy, in float64.
    """

    model: onnx.ModelProto
    threads: int
    session: onnxplug.InferenceSession
    partitions: list[ep.CompiledPartition]
    expected: onnxplug.InferenceSession
    oracle: onnxplug.InferenceSession

    def commands(self) -> list[str]:
        """What a run does, as a profile tells it.

        The model must declare the sizes of its inputs.
        """
        elements = {
            value.name: value.type.tensor_type.elem_type
            for value in self.model.graph.input
        }
        feeds = {
            value.name: np.ones(
                value.shape,
                onnx.helper.tensor_dtype_to_np_dtype(elements[value.name]),
            )
            for value in self.session.get_inputs()
        }
        return commands(self.model, feeds, self.threads)

    def labels(self) -> list[str]:
        """The operators of the commands, without sizes."""
        return [
            re.sub(r" [^+ ]+$", "", command.split(":")[0])
            for command in self.commands()
        ]

    def tiers(self) -> dict[str, int]:
        """How many nodes of its only partition each tier computes."""
        (partition,) = self.session.explain().partitions
        return dict(partition.tiers)

    def notes(self) -> list[str]:
        """Why nodes are not compiled."""
        return [node.note for node in self.session.explain().nodes if node.note]

    def check(self, *arrays: Any, tolerance: float = 1e-5) -> list[Array]:
        """Run on *arrays* and compare with the array tier and the oracle; the
        results."""
        names = [value.name for value in self.session.get_inputs()]
        feeds = dict(zip(names, map(np.asarray, arrays), strict=True))
        found = self.session.run(None, feeds)
        for runner in (self.expected, self.oracle):
            for one, other in zip(found, runner.run(None, feeds), strict=True):
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
    expected = session(model, compiled=False)
    with noted_partitions() as partitions:
        compiled = session(model, compiled=True, threads=threads)
    oracle = session_on_numpy(model)
    return Lowered(model, threads, compiled, partitions, expected, oracle)


@contextmanager
def noted_partitions() -> Iterator[list[ep.CompiledPartition]]:
    """A context in which what the CPU EP makes of partitions is noted."""
    partitions: list[ep.CompiledPartition] = []
    compile_ = CpuProvider.compile

    def noted(provider: CpuProvider, given: ep.Partition) -> ep.CompiledPartition:
        partitions.append(compile_(provider, given))
        return partitions[-1]

    with mock.patch.object(CpuProvider, "compile", noted):
        yield partitions


def commands(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    threads: int = 1,
    given: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """What the compiled tier does in a run, as a profile tells it.

    Args:
        given: options of the CPU EP.
    """
    return [
        event["name"].removesuffix("_kernel_time")
        for event in events(model, [feeds], threads, given)
        if event["cat"] == "Node" and event["args"]["tier"] == "compiled"
    ]


def events(
    model: onnx.ModelProto,
    runs: Sequence[Mapping[str, Array]],
    threads: int = 1,
    given: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The profile of *runs* in a session of their own."""
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder, tier(compiled=True):
        options.profile_file_prefix = f"{folder}/profile"
        profiled = onnxplug.InferenceSession(
            model, options, providers=[("CPUExecutionProvider", dict(given))]
        )
        for feeds in runs:
            profiled.run(None, feeds)
        found = json.loads(Path(profiled.end_profiling()).read_text("utf-8"))
    return sorted(found, key=lambda event: event["ts"])


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
