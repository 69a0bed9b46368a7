"""What looks like a mistake of an EP's and is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.conformance import Finding, Settings, Subject, examine
from onnxplug_testing.conformance.groups import profiling
from onnxplug_testing.conformance.laboratory import device_of
from onnxplug_testing.conformance.specimens import Node, make
from onnxplug_testing.conformance.subject import find_subject
from onnxplug_testing.conformance.trial import Trial
from onnxplug_testing.simulated import SimulatedDataTransfer


class Provider(KernelExecutionProvider):
    """Has `Relu` and `Add` of float32."""

    def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
        if graph.value(str(node.inputs[0])).dtype is ep.DataType.FLOAT32:
            match node.op_type:
                case "Relu":
                    return lambda x: np.maximum(x, np.float32(0))
                case "Add":
                    return np.add
        return ep.Reason(ep.RefusalCode.OP, "it has Relu and Add of float32")


class Factory(ep.EpFactory):
    """An EP on the host."""

    spi_version = (1, 0)
    name = "AcmeExecutionProvider"

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Sequence[ep.EpDevice]:
        return [ep.EpDevice(ep_name=self.name, device=devices[0])]

    def create(
        self, devices: Any, options: Any, session: ep.SessionContext
    ) -> ep.ExecutionProvider:
        return Provider()


class SwitchedFactory(Factory):
    """Looks at a level where it is switched on, and never at a pace."""

    options: ClassVar = {
        "tune": ep.Option(default=False, doc="Whether to tune."),
        "level": ep.Option(default=1, doc="How hard to tune."),
        "pace": ep.Option(default=1, doc="How fast to tune."),
    }

    def create(self, devices: Any, options: Any, session: Any) -> ep.ExecutionProvider:
        if options["tune"]:
            assert options["level"] >= 0
        return Provider()


class TightFactory(Factory):
    """May be told to do with a byte of memory."""

    options: ClassVar = {
        "limit": ep.Option(default=64, minimum=1, doc="How many bytes it has.")
    }

    def create(self, devices: Any, options: Any, session: Any) -> ep.ExecutionProvider:
        if options["limit"] < 64:
            raise MemoryError("there are fewer than 64 bytes")
        return Provider()


class AddedFactory(Factory):
    """Says that it has what ONNX Runtime adds to ONNX's operators."""

    def operators(self) -> Sequence[ep.OperatorSupport]:
        return [
            ep.OperatorSupport(op_type=each, since=1)
            for each in ("Relu", "SimplifiedLayerNormalization", "FancyNormalization")
        ]


class SmallProvider(Provider):
    """Takes no large results, which it knows when it compiles by shapes."""

    specialiser = ep.Specialiser()

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        sizes = [partition.value(name).shape or () for name in partition.outputs]
        if any(int(size or 0) > 1 << 20 for shape in sizes for size in shape):
            raise ep.Declined(ep.Reason(ep.RefusalCode.RANK, "more than 2²⁰ rows"))
        return super().compile(partition)


class SmallFactory(Factory):
    def create(self, devices: Any, options: Any, session: Any) -> ep.ExecutionProvider:
        return SmallProvider()


@pytest.fixture
def found() -> Iterator[Callable[[ep.EpFactory, str], list[Finding]]]:
    """What a check finds in an EP."""
    known: list[str] = []

    def look(factory: ep.EpFactory, check: str) -> list[Finding]:
        registry.add(factory)
        known.append(factory.name)
        settings = Settings(quick=True, isolated=False)
        return examine(factory.name, only=[check], settings=settings).findings

    yield look
    for name in known:
        registry.remove(name)


def test_an_option_about_what_another_switches_on_is_read(found: Any) -> None:
    (unread,) = found(SwitchedFactory(), "options/values")
    assert "'pace'" in unread.what


def test_an_option_may_leave_too_little_memory(found: Any) -> None:
    assert found(TightFactory(), "options/values") == []


@pytest.mark.parametrize(("rows", "count"), [(64, 0), (profiling._MANY, 1)])
def test_nodes_are_short_in_a_run_of_many_rows_only(rows: int, count: int) -> None:
    """One of few rows may wait for the processor a thousand times as long."""
    relu = make(
        "one Relu", ep.DataType.FLOAT32, [Node("Relu", ["x"], "y")], {"x": (4, 6)}
    )
    factory = Factory()
    pair = factory.supported_devices(onnxplug.get_hardware_devices())[0]
    trial = Trial(
        "profiling", "node-times", Subject(factory.name, factory, pair, [pair])
    )
    events = [
        {"name": "model_run", "cat": "Session", "ts": 0.0, "dur": 20_000.0},
        {
            "name": "relu_kernel_time", "cat": "Node", "ts": 100.0, "dur": 20.0,
            "tid": 1, "args": {"op_name": "Relu", "provider": factory.name},
        },
    ]  # fmt: skip
    profiling._look_at(trial, relu.case({}), events, 1, 20_100.0, rows)
    assert len(trial.findings) == count


def test_operators_that_a_distribution_adds_are_operators(found: Any) -> None:
    pytest.importorskip("onnxplug_microsoft")
    (unknown,) = found(AddedFactory(), "factory/operators")
    assert "FancyNormalization" in unknown.what


def test_sizes_that_an_ep_declines_need_no_memory(found: Any) -> None:
    assert found(SmallFactory(), "failure/out-of-memory") == []


def test_nothing_that_keeps_streams_busy_is_written_to_by_two_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: dict[Any, set[int]] = {}
    copy = SimulatedDataTransfer.copy

    def watched(self: Any, pairs: Any, stream: Any = None) -> None:
        for _, target in pairs:
            if stream is not None:
                written.setdefault(target, set()).add(id(stream))
        copy(self, pairs, stream)

    monkeypatch.setattr(SimulatedDataTransfer, "copy", watched)
    factory = SimulatedFactory(Knobs())
    registry.add(factory)
    try:
        subject: Subject = find_subject(factory.name)
        relu = make(
            "one Relu", ep.DataType.FLOAT32, [Node("Relu", ["x"], "y")], {"x": (4, 6)}
        )
        with device_of(subject, relu) as bench, bench.streams(3) as streams:
            for stream in streams:
                bench.burden(stream)
        assert len(written) >= 3
        assert all(len(streams) == 1 for streams in written.values())
        written.clear()
    finally:
        registry.remove(factory.name)
