"""Ten mistakes of the EP that compiles: in runs, options, costs and what is kept."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep

from ..compile_ep import (
    GeneratedCosts,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
    check,
)
from ..mistake import planted
from ..operators import Array, Operator
from ..program import Program, program_of, write
from .compile_results import SPI, changed

ROBUST: Final = "docs/explanation/robustness.md"


# time


class SlotsPartition(GeneratedPartition):
    """Has the list of its values made once, not in each run."""

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._slots = super().values([None] * made.inputs)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        self._slots[: len(inputs)] = inputs
        return self._slots


@planted(
    "keeps-values-of-runs-in-the-partition",
    "time",
    breaks="``None``: ``run`` may be called from any number of threads at once; "
    "otherwise by this many",
    source=SPI + "compiled.py",
    finding="runs at once get each other's values",
    blames=("threads", "concurrent", "at once", "overlap", "max_concurrent_runs"),
)
class KeepsValuesOfRunsInThePartition(GeneratedFactory):
    partition = SlotsPartition


# failure


class EngineError(RuntimeError):
    """The engine has failed."""


class WrappingPartition(GeneratedPartition):
    """Says of whatever is raised that it is the engine's."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        try:
            return super().run(inputs, outputs, context)
        except ep.OutputMismatch:
            raise
        except Exception as error:
            raise EngineError(f"the engine failed: {error}") from error


@planted(
    "says-that-cancelled-runs-failed",
    "failure",
    breaks="The run was cancelled; an EP that looks raises ``RunCancelled``.",
    source=SPI + "compiled.py",
    finding="a cancelled run raises an error of the engine's, not RunCancelled",
    blames=("RunCancelled", "cancelled", "EngineError"),
)
class SaysThatCancelledRunsFailed(GeneratedFactory):
    partition = WrappingPartition


def _gathering(attributes: Any, version: int) -> Any:
    axis = attributes.get("axis", 0)

    def gather(x: Array, indices: Array) -> Any:
        # negative ones count from the end
        return np.take(x, indices, axis=axis, mode="wrap")

    return gather


@planted(
    "gathers-beyond-the-end",
    "failure",
    breaks="one that is out of range at run time is an error, also in compiled code",
    source=ROBUST,
    finding="Gather with an index that is out of range gives a result, and no error",
    blames=("Gather", "index", "indices", "out of range"),
)
class GathersBeyondTheEnd(GeneratedFactory):
    operators_taken = changed(Gather=_gathering)


class FillingPartition(GeneratedPartition):
    """Looks at each bound array when its turn has come."""

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        returned = []
        for result, bound in zip(results, outputs, strict=True):
            array = np.asarray(result)
            if bound is None:
                returned.append(array)
                continue
            if bound.shape != array.shape or bound.dtype != array.dtype:
                raise ep.OutputMismatch(
                    f"an array of {bound.dtype}{list(bound.shape)} is bound to a "
                    f"result of {array.dtype}{list(array.shape)}; bind one like it"
                )
            np.copyto(bound, array)
            returned.append(bound)
        return returned


@planted(
    "again-fills-one-output-before-it-looks-at-the-next",
    "failure",
    breaks="a bound array has not the output's shape or dtype; raised before anything "
    "is written.",
    source=SPI + "compiled.py",
    finding="the first bound array is filled before the second is found not to fit",
    blames=("OutputMismatch", "bound", "written"),
)
class FillsOneOutputBeforeItLooksAtTheNext(GeneratedFactory):
    partition = FillingPartition


# options


class LastOptionsProvider(GeneratedExecutionProvider):
    """Asks the factory for the options, as there is one place for them."""

    def make(self, made: Program) -> GeneratedPartition:
        assert isinstance(self.factory, KeepsOptionsInTheFactory)
        self.options = self.factory.current
        return super().make(made)


@planted(
    "keeps-options-in-the-factory",
    "options",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=SPI + "factory.py",
    finding="what a session compiles later has the options of the session made last",
    blames=("accumulate", "steps_per_function", "another session", "other session"),
)
class KeepsOptionsInTheFactory(GeneratedFactory):
    provider = LastOptionsProvider

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        self.current = options
        return super().create(devices, options, session)


# EPContext


class SourcesProvider(GeneratedExecutionProvider):
    """Keeps the programs of what it compiled, for the serialiser."""

    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        super().__init__(factory, options)
        self.programs: weakref.WeakKeyDictionary[Any, Program] = (
            weakref.WeakKeyDictionary()
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        made = program_of(partition)
        compiled = self.make(made)
        self.programs[compiled] = made
        return compiled


class SourcesSerialiser(GeneratedSerialiser):
    """Writes the programs that the provider has kept."""

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(self._provider, SourcesProvider)
        return write(self._provider.programs[compiled])


@planted(
    "cannot-serialise-what-it-restored",
    "EPContext",
    breaks="What the EP compiled or restored, as bytes for :meth:`restore`.",
    source=SPI + "serialiser.py",
    finding="serialise raises a KeyError for a partition that was restored",
    blames=("serialise", "restored", "KeyError"),
)
class CannotSerialiseWhatItRestored(GeneratedFactory):
    provider = SourcesProvider
    make_serialiser = SourcesSerialiser


class VersionCheck(ep.CompatibilityCheck):
    """Compares versions."""

    def __init__(self, version: str) -> None:
        self._version = version

    def compatibility_info(self, device: ep.EpDevice) -> str:
        facts = {"version": self._version, "type": str(device.device.type)}
        return json.dumps(facts, sort_keys=True)

    def check(self, device: ep.EpDevice, info: str) -> tuple[ep.Compatibility, str]:
        found, wanted = json.loads(info), json.loads(self.compatibility_info(device))
        for name, value in wanted.items():
            if found[name] != value:
                reason = f"{name} is {found[name]}, here {value}"
                return ep.Compatibility.UNSUPPORTED, reason
        return ep.Compatibility.OPTIMAL, ""


@planted(
    "parses-whatever-info-there-is",
    "EPContext",
    breaks="of :meth:`compatibility_info`, perhaps in another version; it may also be "
    "damaged, or ONNX Runtime's.",
    source=SPI + "compatibility.py",
    finding="check raises where the text is damaged, or another's",
    blames=("CompatibilityCheck", "compatibility", "JSONDecodeError", "damaged"),
)
class ParsesWhateverInfoThereIs(GeneratedFactory):
    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        return VersionCheck(self.version)


# specialisation


class ChoosyProvider(GeneratedExecutionProvider):
    """Gives back what its engine has no code for."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        for name in (*partition.inputs, *partition.outputs):
            if partition.value(name).dtype is ep.DataType.FLOAT64:
                detail = f"{name!r} is float64; the engine has code for float32"
                raise ep.Declined(ep.Reason(ep.RefusalCode.DTYPE, detail))
        return super().compile(partition)


@planted(
    "declines-in-runs-what-it-could-have-before",
    "specialisation",
    breaks="What no shapes would change is declined here, where other EPs can still "
    "take it: when a specialised partition is declined in a run, the run fails.",
    source=SPI + "specialiser.py",
    finding="runs fail on partitions of float64 with open sizes, which are declined "
    "when they are compiled for shapes, whatever these are, and not by examine",
    blames=("examine", "Declined", "declined", "declines", "float64"),
)
class DeclinesInRunsWhatItCouldHaveBefore(GeneratedFactory):
    provider = ChoosyProvider


# costs


class ElementCosts(GeneratedCosts):
    """Costs by elements, of whatever shape."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = 0.0
        for node in nodes:
            for name in filter(None, node.outputs):
                elements: Any = 1
                for size in graph.value(name).shape or ():
                    elements *= size
                seconds += 2e-6 + 1e-9 * elements
        return seconds


class ElementCostsProvider(GeneratedExecutionProvider):
    cost_model: ep.CostModel = ElementCosts()


@planted(
    "multiplies-names-of-sizes",
    "costs",
    breaks="finite and not less than 0; ``None`` if that is not known, such as without "
    "the shapes.",
    source=SPI + "costs.py",
    finding="estimate raises where a size has a name and no number",
    blames=("estimate", "cost_model", "CostModel", "TypeError"),
)
class MultipliesNamesOfSizes(GeneratedFactory):
    provider = ElementCostsProvider


# profiling


class TypesPartition(GeneratedPartition):
    """Records the element type of what it computed, too."""

    def _profiled(
        self, values: list[Any], context: ep.RunContext, profiler: ep.Profiler
    ) -> None:
        for step, kernel in zip(self.program.steps, self.kernels, strict=True):
            check(context)
            given = [None if slot is None else values[slot] for slot in step.inputs]
            start = time.perf_counter_ns()
            result = values[step.output] = np.asarray(kernel(*given))
            profiler.record(
                f"{step.op}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=time.perf_counter_ns() - start,
                details={"op_name": step.op, "output_type": result.dtype},
            )


@planted(
    "records-dtypes-of-numpy",
    "profiling",
    breaks="details: facts that JSON can hold, never changed afterwards.",
    source=SPI + "profiler.py",
    finding="details of an event have a dtype of numpy's, which JSON cannot hold",
    blames=("details", "JSON", "json", "output_type"),
)
class RecordsDtypesOfNumpy(GeneratedFactory):
    partition = TypesPartition
