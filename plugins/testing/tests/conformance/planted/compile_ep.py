"""An EP that generates a function of each partition, in Python; without mistakes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound
from onnxplug.authoring.compilers import SameCompiler

from . import program
from .images import average_pool, max_pool
from .operators import FLOATS, OPERATORS, Operator, maximum, mean, why_not
from .program import Program

NHWC: Final = "com.ms.internal.nhwc"


def _last(reduce: Any) -> Any:
    return lambda attributes, version: lambda x: reduce(x, tuple(range(1, x.ndim - 1)))


CHANNELS_LAST: Final[Mapping[str, Operator]] = {
    f"{NHWC}.AveragePool": OPERATORS["AveragePool"]._replace(
        make=average_pool(1), versions=(0, 22)
    ),
    f"{NHWC}.MaxPool": OPERATORS["MaxPool"]._replace(
        make=max_pool(1), versions=(0, 22)
    ),
    f"{NHWC}.GlobalAveragePool": Operator(_last(mean), (0, 22), (FLOATS,)),
    f"{NHWC}.GlobalMaxPool": Operator(_last(maximum), (0, 22), (FLOATS,)),
}
"""Images whose channels come last."""


class GeneratedPartition(ep.CompiledPartition):
    """Generated functions over values in slots."""

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        self.program = made
        self.kernels = program.kernels_of(made, operators, double)
        self.functions = program.generate(program.source_of(made, limit))
        self.report = ep.PartitionReport(
            tiers=dict.fromkeys(range(len(made.steps)), "generated"),
            counts={"functions": len(self.functions)},
        )

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        values = self.values(inputs)
        with np.errstate(all="ignore"):  # infinities and NaNs are results like others
            if context is None or context.profiler is None:
                self.compute(values, lambda: check(context))
            else:
                self._profiled(values, context, context.profiler)
        return self.finish([values[slot] for slot in self.program.outputs], outputs)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """The slots, of which inputs and constants are filled."""
        left = [None] * len(self.program.steps)
        return [*inputs, *self.program.constants, *left]

    def compute(self, values: list[Any], check: Any) -> None:
        """Fill the other slots."""
        for function in self.functions:
            function(values, self.kernels, check)

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        """What a run returns."""
        return fill_bound([np.asarray(result) for result in results], outputs)

    def _profiled(
        self, values: list[Any], context: ep.RunContext, profiler: ep.Profiler
    ) -> None:
        for step, kernel in zip(self.program.steps, self.kernels, strict=True):
            check(context)
            given = [None if slot is None else values[slot] for slot in step.inputs]
            start = time.perf_counter_ns()
            values[step.output] = kernel(*given)
            profiler.record(
                f"{step.op}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=time.perf_counter_ns() - start,
                details={"op_name": step.op, "tier": "generated"},
            )


def check(context: ep.RunContext | None) -> None:
    """Raises ``RunCancelled`` if nobody wants the result any more."""
    if context is not None and context.cancelled:
        raise ep.RunCancelled("the run was cancelled between two operators")


class GeneratedCosts(ep.CostModel):
    """Costs by elements."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = 0.0
        for node in nodes:
            for name in filter(None, node.outputs):
                shape = graph.value(name).shape
                if shape is None:
                    return None
                count = 1
                for size in shape:
                    if not isinstance(size, int):
                        return None
                    count *= size
                seconds += 2e-6 + 1e-9 * count
        return seconds


class GeneratedSerialiser(ep.Serialiser):
    """Programs as bytes."""

    def __init__(self, provider: GeneratedExecutionProvider) -> None:
        self._provider = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, GeneratedPartition)
        return program.write(compiled.program)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        try:
            made = program.read(data, self._provider.operators)
        except ValueError as error:
            reason = ep.Reason(ep.RefusalCode.OTHER, f"what was compiled: {error}")
            raise ep.Declined(reason) from error
        found = made.inputs, len(made.outputs)
        wanted = len(partition.inputs), len(partition.outputs)
        if found != wanted:
            detail = f"it has {found} inputs and outputs, and the node {wanted}"
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))
        return self._provider.make(made)


class GeneratedExecutionProvider(ep.ExecutionProvider):
    """Generates functions, in one session."""

    specialiser = ep.Specialiser()
    preferences = ep.Preferences(layout="NHWC")
    cost_model: ep.CostModel = GeneratedCosts()

    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        self.factory = factory
        self.options = options
        self.operators = factory.operators_taken

    @property
    def serialiser(self) -> ep.Serialiser:  # type: ignore[override]
        return self.factory.make_serialiser(self)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(
            graph, lambda node: why_not(graph, node, self.operators)
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        return self.make(program.program_of(partition))

    def make(self, made: Program) -> GeneratedPartition:
        """What runs a program."""
        limit = self.options["steps_per_function"]
        assert isinstance(limit, int)
        double = self.options["accumulate"] == "double"
        return self.factory.partition(made, self.operators, double, limit)


class GeneratedFactory(ep.EpFactory):
    """Offers the EP on processors; what it is made of is there to be replaced."""

    spi_version = (1, 0)
    name = "GeneratedExecutionProvider"
    version = "0.1.0"
    options: ClassVar[Mapping[str, ep.Option]] = {
        "accumulate": ep.Option(
            default="single",
            choices=("single", "double"),
            doc="In which precision sums and products of float32 are added up.",
        ),
        "steps_per_function": ep.Option(
            default=32,
            minimum=1,
            maximum=1024,
            doc="How many operators a generated function has at most.",
            compiled_in=False,
        ),
    }

    operators_taken: ClassVar[Mapping[str, Operator]] = {**OPERATORS, **CHANNELS_LAST}
    provider: ClassVar[type[GeneratedExecutionProvider]] = GeneratedExecutionProvider
    partition: ClassVar[type[GeneratedPartition]] = GeneratedPartition
    make_serialiser: ClassVar[type[GeneratedSerialiser]] = GeneratedSerialiser

    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        return SameCompiler(self)

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                yield ep.EpDevice(
                    ep_name=self.name,
                    device=device,
                    metadata={"version": self.version},
                    by_name_only=True,
                )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return self.provider(self, options)

    def operators(self) -> Iterable[ep.OperatorSupport]:
        for op_type, operator in self.operators_taken.items():
            domain, _, name = op_type.rpartition(".")
            first, last = operator.versions
            yield ep.OperatorSupport(
                op_type=name, domain=domain, since=first, until=last
            )
