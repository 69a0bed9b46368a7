"""Twenty mistakes in the EP that compiles partitions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound
from onnxplug.authoring.compilers import SameCompiler

from . import program
from .compile_ep import (
    NHWC,
    GeneratedCosts,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
)
from .mistake import planted
from .operators import OPERATORS, Array, Operator, softmax_along, why_not
from .program import Program

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""


def changed(**operators: Any) -> Mapping[str, Operator]:
    """The operators, of which some are made otherwise."""
    return {
        **GeneratedFactory.operators_taken,
        **{
            name: OPERATORS[name]._replace(make=make)
            for name, make in operators.items()
        },
    }


# operators


def _without_beta(attributes: Mapping[str, Any], version: int) -> Any:
    heeded = {name: value for name, value in attributes.items() if name != "beta"}
    return OPERATORS["Gemm"].make(heeded, version)


@planted(
    "ignores-an-attribute",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Gemm where beta is not 1",
    blames=("Gemm", "beta"),
)
class IgnoresAnAttribute(GeneratedFactory):
    operators_taken = changed(Gemm=_without_beta)


def _in_single(attributes: Mapping[str, Any], version: int) -> Any:
    reduce = OPERATORS["ReduceSum"].make(attributes, version)

    def summed(x: Array, axes: Array | None = None) -> Any:
        if x.dtype != np.float64:
            return reduce(x, axes)
        return reduce(x.astype(np.float32), axes).astype(np.float64)

    return summed


@planted(
    "computes-float64-in-float32",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="sums of float64 with the precision of float32",
    blames=("ReduceSum",),
)
class ComputesFloat64InFloat32(GeneratedFactory):
    operators_taken = changed(ReduceSum=_in_single)


def _newest_softmax(attributes: Mapping[str, Any], version: int) -> Any:
    return softmax_along(attributes.get("axis", -1))


@planted(
    "computes-all-versions-as-the-newest",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Softmax before opset 13",
    blames=("Softmax",),
)
class ComputesAllVersionsAsTheNewest(GeneratedFactory):
    operators_taken = changed(Softmax=_newest_softmax)


class TakesThemAsContiguous(GeneratedPartition):
    """Reads inputs in the order of memory."""

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        return super().values([x.ravel(order="K").reshape(x.shape) for x in inputs])


@planted(
    "takes-inputs-for-contiguous",
    "memory",
    breaks="Those on the host are numpy's, of the graph's element type in the "
    "machine's order of bytes, with any strides",
    source=f"{SPI}compiled.py",
    finding="wrong numbers where an input is not C-contiguous, as of another EP",
    blames=("strides", "contiguous", "input", "layout"),
)
class TakesInputsForContiguous(GeneratedFactory):
    partition = TakesThemAsContiguous


# claims


def _products_in_single(attributes: Mapping[str, Any], version: int) -> Any:
    def multiply(a: Array, b: Array) -> Any:
        product = a.astype(np.float32) @ b.astype(np.float32)
        return product.astype(a.dtype)

    return lambda a, b: multiply(a, b) if a.dtype.kind == "i" else a @ b


@planted(
    "claims-integers-that-it-computes-in-float32",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as `OPERATORS` "
    "does, and no others.",
    source=ENGINE,
    finding="wrong numbers of MatMul of integers beyond 2**24",
    blames=("MatMul",),
)
class ClaimsIntegersThatItComputesInFloat32(GeneratedFactory):
    operators_taken = changed(MatMul=_products_in_single)


class GivesWhereBack(GeneratedExecutionProvider):
    """Has no code for Where yet."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        nodes = [node for node in partition.nodes if node.op_type == "Where"]
        if nodes:
            reason = ep.Reason(ep.RefusalCode.OP, "Where is not generated yet")
            raise ep.Declined(reason, nodes=nodes)
        return super().compile(partition)


@planted(
    "gives-back-what-it-claimed",
    "claims",
    breaks="**`Declined`** gives a partition back where only compiling shows that it "
    "cannot be done.",
    source=ENGINE,
    finding="every Where is claimed, and declined when it is compiled",
    blames=("Where",),
)
class GivesBackWhatItClaimed(GeneratedFactory):
    provider = GivesWhereBack


class SaysNothing(GeneratedExecutionProvider):
    """Refuses without a word."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        nothing = ep.Reason(ep.RefusalCode.OTHER)
        return ep.CapabilityReport.per_node(
            graph, lambda node: why_not(graph, node, self.operators) and nothing
        )


@planted(
    "refuses-without-words",
    "claims",
    breaks="A code for programs and a detail for people: what was found, what is "
    "needed.",
    source=f"{SPI}capability.py",
    finding="reasons of refusals are empty",
    blames=("reason", "refus"),
)
class RefusesWithoutWords(GeneratedFactory):
    provider = SaysNothing


# memory


class ReusesResults(GeneratedPartition):
    """Returns the arrays of the run before, filled anew."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._results: list[Array] = []

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        found = super().finish(results, outputs)
        if [each.shape for each in self._results] != [each.shape for each in found]:
            self._results = [np.array(each) for each in found]
        for kept, result in zip(self._results, found, strict=True):
            np.copyto(kept, result)
        return [
            kept if bound is None else bound
            for kept, bound in zip(self._results, outputs, strict=True)
        ]


@planted(
    "writes-to-what-it-returned",
    "memory",
    breaks="allocate it; the array then belongs to the host, and the EP never writes "
    "to it again",
    source=f"{SPI}compiled.py",
    finding="the next run changes results of the one before",
    blames=("result", "output", "returned"),
)
class WritesToWhatItReturned(GeneratedFactory):
    partition = ReusesResults


class FillsOneByOne(GeneratedPartition):
    """Checks each bound array when the ones before are filled."""

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        filled = []
        for position, (result, bound) in enumerate(zip(results, outputs, strict=True)):
            if bound is None:
                filled.append(np.asarray(result))
                continue
            check_bound(f"output {position}", np.asarray(result), bound)
            np.copyto(bound, result)
            filled.append(bound)
        return filled


@planted(
    "fills-before-it-checks-all-that-is-bound",
    "memory",
    breaks="a bound array has not the output's shape or dtype; raised before anything "
    "is written.",
    source=f"{SPI}compiled.py",
    finding="the first bound array is filled though the second does not fit",
    blames=("bound", "OutputMismatch"),
)
class FillsBeforeItChecksAllThatIsBound(GeneratedFactory):
    partition = FillsOneByOne


# time


class SharesScratch(GeneratedPartition):
    """Has one list of values, as if there were one run at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._values: list[Any] = super().values([None] * self.program.inputs)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        self._values[: len(inputs)] = inputs
        return self._values


@planted(
    "shares-scratch-between-runs",
    "time",
    breaks="``None``: ``run`` may be called from any number of threads at once",
    source=f"{SPI}compiled.py",
    finding="runs in several threads give each other's numbers",
    blames=("thread", "concurrent", "max_concurrent_runs"),
)
class SharesScratchBetweenRuns(GeneratedFactory):
    partition = SharesScratch


# failure


class ReturnsWhatThereIs(GeneratedPartition):
    """Ends early when it is cancelled, with zeros for what is not computed."""

    def compute(self, values: list[Any], check: Any) -> None:
        try:
            super().compute(values, check)
        except ep.RunCancelled:
            like = values[0]
            for slot, value in enumerate(values):
                if value is None:
                    values[slot] = np.zeros_like(like)


@planted(
    "returns-zeros-when-cancelled",
    "failure",
    breaks="The run was cancelled; an EP that looks raises ``RunCancelled``.",
    source=f"{SPI}compiled.py",
    finding="a run that was cancelled returns, with wrong numbers",
    blames=("cancel",),
)
class ReturnsZerosWhenCancelled(GeneratedFactory):
    partition = ReturnsWhatThereIs


class ComputesInAPool(GeneratedPartition):
    """Has a thread of the module compute; in the child of a fork there is none."""

    pool: ClassVar[ThreadPoolExecutor | None] = None
    lock: ClassVar[threading.Lock] = threading.Lock()

    def compute(self, values: list[Any], check: Any) -> None:
        with self.lock:
            if ComputesInAPool.pool is None:
                ComputesInAPool.pool = ThreadPoolExecutor(1, "generated")
        pool = ComputesInAPool.pool
        pool.submit(super().compute, values, check).result()


@planted(
    "hangs-after-a-fork",
    "failure",
    breaks="a child can make and run sessions, whatever other threads were doing",
    source="docs/explanation/robustness.md",
    finding="a run in the child of a fork does not end",
    blames=("fork",),
)
class HangsAfterAFork(GeneratedFactory):
    partition = ComputesInAPool


# options


class SplitsBetween(GeneratedExecutionProvider):
    """Leaves room for a jump at the end of each function."""

    def make(self, made: Program) -> GeneratedPartition:
        limit = self.options["steps_per_function"]
        assert isinstance(limit, int)
        double = self.options["accumulate"] == "double"
        return self.factory.partition(made, self.operators, double, limit - 1)


@planted(
    "fails-at-a-bound-of-an-option",
    "options",
    breaks="*options* has every option of :attr:`options`, typed and validated. "
    "Raising anything but ``OptionError`` is a failure of the EP",
    source=f"{SPI}factory.py",
    finding="steps_per_function=1, which is declared to be allowed, fails",
    blames=("steps_per_function",),
)
class FailsAtABoundOfAnOption(GeneratedFactory):
    provider = SplitsBetween


class BakesIn(GeneratedSerialiser):
    """Has the option's value at compiling in the bytes, and heeds that."""

    def __init__(self, provider: GeneratedExecutionProvider) -> None:
        super().__init__(provider)
        self._of = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        double = self._of.options["accumulate"] == "double"
        return bytes([double]) + super().serialise(compiled)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        restored = super().restore(partition, data[1:])
        assert isinstance(restored, GeneratedPartition)
        return GeneratedPartition(
            restored.program, self._of.operators, bool(data[0]), 32
        )


@planted(
    "ignores-an-option-where-it-restores",
    "options",
    breaks="what is compiled depends on it: what was serialised with another value is "
    "not restored.",
    source=f"{SPI}option.py",
    finding="what was compiled with accumulate=single is restored with double, and "
    "computes as before",
    blames=("accumulate", "compiled_in"),
)
class IgnoresAnOptionWhereItRestores(GeneratedFactory):
    make_serialiser = BakesIn
    options: ClassVar[Mapping[str, ep.Option]] = {
        **GeneratedFactory.options,
        "accumulate": ep.Option(
            default="single",
            choices=("single", "double"),
            doc="In which precision sums and products of float32 are added up.",
            compiled_in=False,
        ),
    }


# EPContext


class BelievesAll(SameCompiler):
    """Takes whatever was compiled anywhere."""

    def check(self, device: ep.EpDevice, info: str) -> tuple[ep.Compatibility, str]:
        return ep.Compatibility.OPTIMAL, ""


@planted(
    "restores-what-any-version-compiled",
    "EPContext",
    breaks="of :meth:`compatibility_info`, perhaps in another version; it may also be "
    "damaged, or ONNX Runtime's.",
    source=f"{SPI}compatibility.py",
    finding="CompatibilityCheck.check finds good what another version compiled, or "
    "what is damaged",
    blames=("check", "compatib", "version"),
)
class RestoresWhatAnyVersionCompiled(GeneratedFactory):
    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        return BelievesAll(self)


class Pickles(GeneratedSerialiser):
    """Serialises by pickle, which runs what the data say."""

    def __init__(self, provider: GeneratedExecutionProvider) -> None:
        super().__init__(provider)
        self._of = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, GeneratedPartition)
        made = compiled.program
        return pickle.dumps((made.inputs, made.constants, made.steps, made.outputs))

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        return self._of.make(Program(*pickle.loads(data)))


@planted(
    "unpickles-what-it-restores",
    "EPContext",
    breaks="Who wrote the model wrote the data, which may be hostile with a checksum "
    "that is right.",
    source=f"{SPI}serialiser.py",
    finding="data that are damaged or hostile are not declined by restore",
    blames=("restore", "Declined"),
)
class UnpicklesWhatItRestores(GeneratedFactory):
    make_serialiser = Pickles


# specialisation


class KeepsCounts(GeneratedExecutionProvider):
    """Keeps what it knows of means by the nodes' outputs, whatever the shapes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._counts: dict[str, int | None] = {}

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        made = program.program_of(partition)
        steps = []
        for node, step in zip(partition.nodes, made.steps, strict=True):
            count = self._counts.setdefault(str(node.outputs[0]), step.count)
            steps.append(step._replace(count=count))
        return self.make(made._replace(steps=steps))


@planted(
    "computes-with-the-shapes-of-another-specialisation",
    "specialisation",
    breaks="A partition whose inputs have sizes that are not known is not compiled "
    "when the session is made, but for each set of shapes in the first run that has "
    "it, specialised to these.",
    source=f"{SPI}specialiser.py",
    finding="wrong means of the second set of shapes",
    blames=("ReduceMean", "shapes", "speciali"),
)
class ComputesWithTheShapesOfAnotherSpecialisation(GeneratedFactory):
    provider = KeepsCounts


# preferences


def _turned_again(op: str) -> Any:
    inner = GeneratedFactory.operators_taken[f"{NHWC}.{op}"]

    def make(attributes: Mapping[str, Any], version: int) -> Any:
        kernel = inner.make(attributes, version)

        def of_turned(x: Array) -> Any:
            there, back = [0, *range(2, x.ndim), 1], [0, x.ndim - 1]
            back += range(1, x.ndim - 1)
            return np.transpose(kernel(np.transpose(x, there)), back)

        return of_turned

    return inner._replace(make=make)


@planted(
    "turns-images-a-second-time",
    "preferences",
    breaks="names, attributes and weights are ONNX's, the first input and the output "
    "have channels last.",
    source="docs/how-to/say-what-an-ep-prefers.md",
    finding="wrong results of pools in the layout NHWC",
    blames=("NHWC", "layout", "GlobalAveragePool", "GlobalMaxPool"),
)
class TurnsImagesASecondTime(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **GeneratedFactory.operators_taken,
        **{
            f"{NHWC}.{op}": _turned_again(op)
            for op in ("GlobalAveragePool", "GlobalMaxPool")
        },
    }


# costs


class Fitted(GeneratedCosts):
    """A line through measurements of large tensors, which small ones are below."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = super().estimate(graph, nodes)
        return None if seconds is None else 1.02 * seconds - 5e-6


@planted(
    "estimates-less-than-no-time",
    "costs",
    breaks="finite and not less than 0; ``None`` if that is not known, such as without "
    "the shapes.",
    source=f"{SPI}costs.py",
    finding="CostModel.estimate of small tensors is negative",
    blames=("estimate", "cost"),
)
class EstimatesLessThanNoTime(GeneratedFactory):
    class provider(GeneratedExecutionProvider):
        cost_model = Fitted()


# speed


class GeneratesInRuns(GeneratedPartition):
    """Generates its functions anew in each run."""

    def compute(self, values: list[Any], check: Any) -> None:
        self.functions = program.generate(program.source_of(self.program, 32))
        super().compute(values, check)


@planted(
    "compiles-in-each-run",
    "speed",
    breaks="Make *partition* ready to run. The partition may be kept.",
    source=f"{SPI}provider.py",
    finding="the fixed cost of a node is many times what its kernel takes",
    blames=("cost", "run", "node", "µs"),
)
class CompilesInEachRun(GeneratedFactory):
    partition = GeneratesInRuns
