"""An EP that compiles by input shapes, held up and made to fail as tests ask."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxplug import ep

EP = "ShapesExecutionProvider"
REFUSED = {"Erf", "Loop"}
WAIT = 30.0
"""Seconds after which a test that waits for another thread has failed."""


class Lab:
    """What an EP does in a test, and what it was asked.

    Attributes:
        compiled: the shapes of each partition that was compiled, in order.
        partitions: these.
        gates: by the first size, what a compilation waits for.
        pads: it allows padding.
        fails: by the first size, what a compilation raises.
        closed: the first sizes of what was closed.
    """

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.partitions: list[ep.Partition] = []
        self.began: dict[int, threading.Event] = {}
        self.gates: dict[int, threading.Event] = {}
        self.fails: dict[int, BaseException] = {}
        self.closed: list[int] = []
        self.runs: Counter[int] = Counter()
        self.in_run: dict[int, threading.Event] = {}
        self.limit: int | None = None
        self.specialises = 8
        self.declines = ""
        self.asks = False
        self.pads = True

    def gate(self, size: int) -> threading.Event:
        self.began[size] = threading.Event()
        self.gates[size] = threading.Event()
        return self.gates[size]


class Compiled(ep.CompiledPartition):
    def __init__(self, lab: Lab, partition: ep.Partition) -> None:
        self.lab = lab
        shapes = [partition.value(name).shape for name in partition.inputs]
        self.shapes = shapes
        self.size = shapes[0][0] if shapes and shapes[0] else -1
        self.max_concurrent_runs = lab.limit
        self.inputs, self.outputs = partition.inputs, partition.outputs
        self.evaluator = ReferenceEvaluator(partition.to_model().model)
        self.is_open = True
        size = f"size {self.size}"
        tiers = dict.fromkeys(range(len(partition.nodes)), size)
        self.report = ep.PartitionReport(tiers=tiers)

    def run(self, inputs, outputs, context):
        assert self.is_open, "run after close"
        for array, shape in zip(inputs, self.shapes, strict=True):
            assert array.shape == shape
        self.lab.runs[self.size] += 1
        if self.size in self.lab.in_run:
            assert self.lab.in_run[self.size].wait(WAIT)
            assert self.is_open, "closed in a run"
        feed = dict(zip(self.inputs, inputs, strict=True))
        return [np.asarray(y) for y in self.evaluator.run(list(self.outputs), feed)]

    def close(self) -> None:
        self.is_open = False
        self.lab.closed.append(self.size)


class Specialiser(ep.Specialiser):
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.limit = lab.specialises
        self.pads = lab.pads

    def examine(self, partition):
        if self.lab.declines:
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, self.lab.declines))


class Provider(ep.ExecutionProvider):
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        if lab.specialises:
            self.specialiser = Specialiser(lab)

    def get_capability(self, graph):
        claims = [
            ep.ComputeCapability(nodes=(node.index,))
            for node in graph.nodes
            if node.op_type not in REFUSED
        ]
        refused = [node.index for node in graph.nodes if node.op_type in REFUSED]
        reason = ep.Reason(ep.RefusalCode.OP, "refused")
        refusals = [ep.Refusal(node=node, reason=reason) for node in refused]
        return ep.CapabilityReport(claims=claims, refusals=refusals)

    def compile(self, partition):
        lab = self.lab
        shapes = tuple(partition.value(name).shape for name in partition.inputs)
        lab.compiled.append(shapes)
        lab.partitions.append(partition)
        size = shapes[0][0] if shapes and shapes[0] else -1
        if size in lab.gates:
            lab.began[size].set()
            while not lab.gates[size].wait(0.01):
                if lab.asks and partition.cancelled:
                    raise ep.LoadCancelled("cancelled")
        if size in lab.fails:
            raise lab.fails[size]
        return Compiled(lab, partition)


class Factory(ep.EpFactory):
    spi_version = (0, 6)
    name = EP

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def supported_devices(self, devices):
        cpus = (device for device in devices if device.type is ep.DeviceType.CPU)
        return [ep.EpDevice(ep_name=self.name, device=device) for device in cpus]

    def create(self, devices, options, session):
        return Provider(self.lab)


def model(text: str) -> bytes:
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    return onnx.parser.parse_model(header + text).SerializeToString()


DOUBLE = model("g (float[N,3] x) => (float[N,3] y) { y = Add (x, x) }")


def fed(size: int) -> dict[str, np.ndarray]:
    return {"x": np.full((size, 3), size, np.float32)}


def run(session: Any, size: int, options: Any = None) -> None:
    (found,) = session.run(None, fed(size), options)
    np.testing.assert_array_equal(found, np.full((size, 3), 2 * size, np.float32))


def counted(session: Any) -> Any:
    (part,) = session.explain().partitions
    return part.specialisations


def started(work: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def caught() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001
            outcome.append(error)

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    return thread, outcome


def ended(thread: threading.Thread) -> None:
    thread.join(WAIT)
    assert not thread.is_alive()
