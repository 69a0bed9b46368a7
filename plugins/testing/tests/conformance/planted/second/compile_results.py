"""Mistakes in the EP that compiles: in what it computes, claims and keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep

from .. import program
from ..compile_ep import (
    NHWC,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
)
from ..compile_mistakes import ENGINE, OF_OPERATORS, SPI, changed
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator, axes_of, maximum, mean, why_not
from ..program import Program

# operators


def _cast_by_integers(attributes: Mapping[str, Any], version: int) -> Any:
    cast = OPERATORS["Cast"].make(attributes, version)
    is_bool = attributes["to"] == ep.DataType.BOOL.onnx

    def of(x: Array) -> Any:
        return cast(x.astype(np.int64) if is_bool and x.dtype.kind == "f" else x)

    return of


@planted(
    "casts-fractions-to-false",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Cast of a number between -1 and 1 to bool is false",
    blames=("Cast",),
)
class CastsFractionsToFalse(GeneratedFactory):
    operators_taken = changed(Cast=_cast_by_integers)


def _by_difference(attributes: Mapping[str, Any], version: int) -> Any:
    return lambda a, b: a - b < 0


@planted(
    "compares-by-subtracting",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Less is wrong of integers whose difference overflows",
    blames=("Less",),
)
class ComparesBySubtracting(GeneratedFactory):
    operators_taken = changed(Less=_by_difference)


def _axis_after_axis(attributes: Mapping[str, Any], version: int) -> Any:
    keeps = bool(attributes.get("keepdims", 1))
    at_once = OPERATORS["ReduceSum"].make(attributes, version)

    def reduce(x: Array, axes: Array | None = None) -> Any:
        along = axes_of(attributes, axes)
        if not along:
            return at_once(x, axes)
        for axis in along:
            x = np.sum(x, axis=axis, keepdims=keeps, dtype=x.dtype)
        return x

    return reduce


@planted(
    "reduces-axis-after-axis",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="ReduceSum along several axes, none of which stays, goes along others than "
    "these, or fails",
    blames=("ReduceSum", "ReduceMean"),
)
class ReducesAxisAfterAxis(GeneratedFactory):
    operators_taken = changed(ReduceSum=_axis_after_axis)


def _plus_a_row(attributes: Mapping[str, Any], version: int) -> Any:
    gemm = OPERATORS["Gemm"].make(attributes, version)

    def with_row(a: Array, b: Array, c: Array | None = None) -> Any:
        is_column = c is not None and c.ndim == 2 and c.shape[1] == 1
        return gemm(a, b, c.reshape(1, -1) if c is not None and is_column else c)

    return with_row


@planted(
    "takes-a-column-for-a-row",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Gemm adds its third input, where that is a column, as a row, or fails",
    blames=("Gemm",),
)
class TakesAColumnForARow(GeneratedFactory):
    operators_taken = changed(Gemm=_plus_a_row)


def _all_for_none(attributes: Mapping[str, Any], version: int) -> Any:
    heeded = {"keepdims": attributes.get("keepdims", 1)}
    return OPERATORS["ReduceSum"].make(heeded, version)


@planted(
    "reduces-all-axes-for-none",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="ReduceSum with noop_with_empty_axes and no axes adds up all elements",
    blames=("ReduceSum", "ReduceMean", "noop_with_empty_axes"),
)
class ReducesAllAxesForNone(GeneratedFactory):
    operators_taken = changed(ReduceSum=_all_for_none)


# claims

RANKED: Final = frozenset({"GlobalAveragePool", "GlobalMaxPool", "MatMul"})


class LooksAtRanks(GeneratedExecutionProvider):
    """Counts dimensions, of which nothing need be known."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(
            graph, lambda node: self._why_not(graph, node)
        )

    def _why_not(self, graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
        if not node.domain and node.op_type in RANKED:
            x = graph.value(node.inputs[0])  # type: ignore[arg-type]
            rank = len(x.shape)  # type: ignore[arg-type]
            if rank > 5:
                return ep.Reason(ep.RefusalCode.RANK, f"rank {rank}; takes 5 or less")
        return why_not(graph, node, self.operators)


@planted(
    "fails-where-no-rank-is-known",
    "claims",
    breaks="Raising is a failure of the EP.",
    source=f"{SPI}provider.py",
    finding="get_capability raises where a shape is not known",
    blames=("get_capability", "rank", "shape"),
)
class FailsWhereNoRankIsKnown(GeneratedFactory):
    provider = LooksAtRanks


# memory


class LendsRows(GeneratedPartition):
    """Gives a row of a table as a view of it, which costs nothing."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._constants = [np.array(each) for each in self.program.constants]
        self.kernels = [
            _row_or(kernel) if is_of_rows(step) else kernel
            for kernel, step in zip(self.kernels, self.program.steps, strict=True)
        ]

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        return [*inputs, *self._constants, *([None] * len(self.program.steps))]


def is_of_rows(step: program.Step) -> bool:
    """Whether a step looks rows up."""
    return step.op == "Gather" and step.attributes.get("axis", 0) == 0


def _row_or(gather: Any) -> Any:
    def row(x: Array, indices: Array) -> Any:
        if indices.ndim or x.ndim < 2:
            return gather(x, indices)
        return x[int(indices)]

    return row


@planted(
    "lends-rows-of-its-weights",
    "memory",
    breaks="What `run` returns is the caller's: writing to it changes no weight, no "
    "input and no other output.",
    source="docs/explanation/memory-and-streams.md",
    finding="who writes to the row that Gather gave changes what the next run gives",
    blames=("Gather", "weight", "constant", "view"),
)
class LendsRowsOfItsWeights(GeneratedFactory):
    partition = LendsRows


class RemembersRuns(GeneratedPartition):
    """Gives the results of the last run again if it has the same inputs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._last: tuple[Any, list[Array]] = None, []

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        key = [(id(each), each.shape, each.dtype) for each in inputs]
        last, results = self._last
        if inputs and key == last:
            return self.finish([np.array(each) for each in results], outputs)
        found = super().run(inputs, outputs, context)
        self._last = key, [np.array(each) for each in found]
        return found


@planted(
    "remembers-results-by-the-array",
    "memory",
    breaks="Compute the outputs, in the order of ``Partition.outputs``.",
    source=f"{SPI}compiled.py",
    finding="an array that is filled anew and fed again gives the results of before",
    blames=("again", "stale", "anew", "same array", "in place", "earlier", "first run"),
)
class RemembersResultsByTheArray(GeneratedFactory):
    partition = RemembersRuns


# specialisation


class KeepsBySizes(GeneratedExecutionProvider):
    """Keeps programs by how many elements their inputs have."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._programs: dict[Any, Program] = {}

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        shapes = [partition.value(name).shape for name in partition.inputs]
        outputs = tuple(name for node in partition.nodes for name in node.outputs)
        key = outputs, tuple(map(_elements, shapes))
        made = self._programs.get(key)
        if made is None or None in key[1]:
            made = self._programs[key] = program.program_of(partition)
        return self.make(made)


def _elements(shape: Sequence[Any] | None) -> int | None:
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return int(np.prod(shape, dtype=np.int64))


@planted(
    "keeps-specialisations-by-their-elements",
    "specialisation",
    breaks="A partition whose inputs have sizes that are not known is not compiled "
    "when the session is made, but for each set of shapes in the first run that has "
    "it, specialised to these.",
    source=f"{SPI}specialiser.py",
    finding="wrong means of a second set of shapes that has as many elements",
    blames=("ReduceMean", "shapes", "specialised"),
)
class KeepsSpecialisationsByTheirElements(GeneratedFactory):
    provider = KeepsBySizes


# preferences


def _over_two(reduce: Any) -> Any:
    return lambda attributes, version: lambda x: reduce(x, (1, 2))


def _of_two(op: str, reduce: Any) -> Operator:
    inner = GeneratedFactory.operators_taken[f"{NHWC}.{op}"]
    return inner._replace(make=_over_two(reduce))


@planted(
    "pools-two-axes-of-any-image",
    "preferences",
    breaks="names, attributes and weights are ONNX's, the first input and the output "
    "have channels last.",
    source="docs/how-to/say-what-an-ep-prefers.md",
    finding="wrong results, or ones of a wrong shape, of pools in the layout NHWC of "
    "images that have not two axes",
    blames=("NHWC", "layout", "GlobalAveragePool", "GlobalMaxPool"),
)
class PoolsTwoAxesOfAnyImage(GeneratedFactory):
    operators_taken: Mapping[str, Operator] = {  # type: ignore[misc]
        **GeneratedFactory.operators_taken,
        f"{NHWC}.GlobalAveragePool": _of_two("GlobalAveragePool", mean),
        f"{NHWC}.GlobalMaxPool": _of_two("GlobalMaxPool", maximum),
    }
