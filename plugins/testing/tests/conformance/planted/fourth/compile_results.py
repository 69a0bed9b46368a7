"""Mistakes in what the EP that compiles computes and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from .. import program
from ..compile_ep import (
    NHWC,
    GeneratedCosts,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
)
from ..mistake import planted
from ..operators import OPERATORS, Operator, why_not
from ..program import Program

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""

TAKEN: Final = GeneratedFactory.operators_taken


# operators


def _with_padding(name: str) -> Operator:
    make = TAKEN[name].make
    # what is padded counts, unless a node says otherwise, as in PyTorch
    return TAKEN[name]._replace(
        make=lambda attributes, version: make(
            {"count_include_pad": 1, **attributes}, version
        )
    )


@planted(
    "padding-counts-unless-said-otherwise",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of AveragePool with pads and no count_include_pad",
    blames=("AveragePool", "count_include_pad"),
)
class PaddingCounts(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **TAKEN,
        **{
            name: _with_padding(name) for name in ("AveragePool", f"{NHWC}.AveragePool")
        },
    }


class _ClosingUp(GeneratedExecutionProvider):
    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        made = program.program_of(partition)
        steps = [
            step._replace(inputs=[slot for slot in step.inputs if slot is not None])
            for step in made.steps
        ]
        return self.make(made._replace(steps=steps))


@planted(
    "inputs-close-up-where-one-is-left-out",
    "operators",
    breaks="Names of the inputs; ``None`` for one that is left out.",
    source=SPI + "graph.py",
    finding="Clip takes the greatest for the least where the least is left out",
    blames=("Clip", "left out", "omitted", "optional"),
)
class InputsCloseUp(GeneratedFactory):
    provider = _ClosingUp


# claims


def _heeding(name: str, attribute: str) -> Operator:
    operator = TAKEN[name]
    return operator._replace(attributes={**operator.attributes, attribute: False})


@planted(
    "takes-pools-that-round-up",
    "claims",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="pools with ceil_mode are claimed, and their results are too small",
    blames=("ceil_mode", "MaxPool", "AveragePool"),
)
class TakesPoolsThatRoundUp(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **TAKEN,
        **{
            name: _heeding(name, "ceil_mode")
            for name in (
                "AveragePool",
                "MaxPool",
                f"{NHWC}.AveragePool",
                f"{NHWC}.MaxPool",
            )
        },
    }


class _JudgingByName(GeneratedExecutionProvider):
    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        judged: dict[str, ep.Reason | None] = {}

        def check(node: ep.Node) -> ep.Reason | None:
            if node.name not in judged:
                judged[node.name] = why_not(graph, node, self.operators)
            return judged[node.name]

        return ep.CapabilityReport.per_node(graph, check)


@planted(
    "judges-nodes-by-their-names",
    "claims",
    breaks="The node's name; may be empty, need not be unique.",
    source=SPI + "graph.py",
    finding="a node that it does not run is claimed, or one that it runs refused, "
    "where another of the same name, or none, comes before",
    blames=("get_capability", "compile", "names", "same name", "claims", "claimed"),
)
class JudgesNodesByTheirNames(GeneratedFactory):
    provider = _JudgingByName


# preferences


def _fuse(editor: ep.GraphEditor, nodes: Sequence[ep.Node]) -> Sequence[str]:
    """Make ``Gemm`` of each ``MatMul`` and the ``Add`` that alone reads it."""
    graph = editor.graph
    replaced: dict[int, ep.Node] = {}
    gone: set[int] = set()
    for product in nodes:
        (name, *_) = product.outputs
        if product.op_type != "MatMul" or product.domain or name in graph.outputs:
            continue
        readers = [
            node for node in graph.nodes if name in (*node.inputs, *node.captures)
        ]
        added = [node for node in nodes if node.index in {n.index for n in readers}]
        if [n.op_type for n in readers] != ["Add"] or len(added) != 1:
            continue
        (add,) = added
        others = [each for each in add.inputs if each != name]
        if len(others) != 1:
            continue
        replaced[add.index] = editor.make_node(
            "Gemm", [*product.inputs, *others], add.outputs
        )
        gone.add(product.index)
    if not replaced:
        return []
    editor.replace_nodes(
        replaced.get(node.index, node) for node in graph.nodes if node.index not in gone
    )
    return [f"{len(replaced)} of MatMul and Add"]


class _Fusing(GeneratedExecutionProvider):
    preferences = ep.Preferences(layout="NHWC", rewrite=_fuse)


@planted(
    "fuses-stacks-of-products-into-gemm",
    "preferences",
    breaks="What is not among the nodes has to stay as it is, and so do the types of "
    "what others read.",
    source=SPI + "preferences.py",
    finding="MatMul and Add become Gemm whatever their ranks and shapes, which it "
    "is not for",
    blames=("Gemm", "MatMul", "rewrite", "preferences"),
)
class FusesStacks(GeneratedFactory):
    provider = _Fusing


def _of_two_dimensions(attributes: Mapping[str, Any], version: int) -> Any:
    convolve = OPERATORS["Conv"].make(attributes, version)

    def of(x: Any, w: Any, b: Any = None) -> Any:
        result = convolve(np.transpose(x, (0, 3, 1, 2)), w, b)
        return np.transpose(result, (0, 2, 3, 1))

    return of


@planted(
    "takes-all-images-with-channels-last-for-two-dimensional",
    "preferences",
    breaks="What it claims in this form it gets; what it does not is as it was.",
    source="docs/how-to/say-what-an-ep-prefers.md",
    finding="Conv with channels last is claimed of any rank, and fails but for 4",
    blames=("Conv", "NHWC", "com.ms.internal.nhwc"),
)
class TakesAllForTwoDimensional(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **TAKEN,
        f"{NHWC}.Conv": OPERATORS["Conv"]._replace(
            make=_of_two_dimensions, versions=(0, 22)
        ),
    }


# specialisation


class _KeepingByOutputs(GeneratedExecutionProvider):
    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        super().__init__(factory, options)
        self._programs: dict[tuple[str, ...], Program] = {}

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        key = tuple(partition.outputs)
        if key not in self._programs:
            self._programs[key] = program.program_of(partition)
        return self.make(self._programs[key])


@planted(
    "what-is-compiled-is-kept-without-shapes",
    "specialisation",
    breaks="A partition whose inputs have sizes that are not known is not compiled "
    "when the session is made, but for each set of shapes in the first run that has "
    "it, specialised to these.",
    source=SPI + "specialiser.py",
    finding="wrong numbers of ReduceMean for every set of shapes but the first",
    blames=("ReduceMean", "specialise", "specialised", "specialisation"),
)
class KeptWithoutShapes(GeneratedFactory):
    provider = _KeepingByOutputs


class _WithoutDoubles(GeneratedExecutionProvider):
    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        names = [*partition.inputs, *partition.outputs]
        if any(partition.value(x).dtype is ep.DataType.FLOAT64 for x in names):
            reason = ep.Reason(ep.RefusalCode.DTYPE, "the engine has no float64")
            raise ep.Declined(reason)
        return super().compile(partition)


@planted(
    "declines-a-type-when-a-run-waits-for-it",
    "specialisation",
    breaks="What no shapes would change is declined here, where other EPs can still "
    "take it: when a specialised partition is declined in a run, the run fails.",
    source=SPI + "specialiser.py",
    finding="a partition of float64 with open sizes is declined in a run, not before",
    blames=("declined", "declines", "Declined", "examine", "float64"),
)
class DeclinesInARun(GeneratedFactory):
    provider = _WithoutDoubles


# costs


class _MinusOne(GeneratedCosts):
    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = super().estimate(graph, nodes)
        return -1.0 if seconds is None else seconds


class _CostingMinusOne(GeneratedExecutionProvider):
    cost_model = _MinusOne()


@planted(
    "costs-that-are-not-known-are-minus-one",
    "costs",
    breaks="finite and not less than 0; ``None`` if that is not known, such as without "
    "the shapes.",
    source=SPI + "costs.py",
    finding="estimate gives -1 where sizes are open",
    blames=("estimate", "cost_model", "CostModel", "-1"),
)
class CostsMinusOne(GeneratedFactory):
    provider = _CostingMinusOne


# options


class _PrecisePartition(GeneratedPartition):
    """One that knows how it adds up.

    Attributes:
        double: in float64.
    """

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self.double = double


class _PreciseSerialiser(GeneratedSerialiser):
    """The precision is a part of the bytes."""

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, _PrecisePartition)
        return bytes([compiled.double]) + super().serialise(compiled)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        found = super().restore(partition, data[1:])
        assert isinstance(found, _PrecisePartition)
        limit = self._provider.options["steps_per_function"]
        assert isinstance(limit, int)
        operators, double = self._provider.operators, bool(data[0])
        return _PrecisePartition(found.program, operators, double, limit)


@planted(
    "keeps-an-option-in-its-bytes-and-does-not-say",
    "options",
    breaks="what is compiled depends on it: what was serialised with another value is "
    "not restored.",
    source=SPI + "option.py",
    finding="what was compiled with another value of accumulate is restored, and adds "
    "up as it was compiled",
    blames=("accumulate", "compiled_in"),
)
class KeepsAnOptionInItsBytes(GeneratedFactory):
    partition = _PrecisePartition
    make_serialiser = _PreciseSerialiser
    options: ClassVar[Mapping[str, ep.Option]] = {
        **GeneratedFactory.options,
        "accumulate": ep.Option(
            default="single",
            choices=("single", "double"),
            doc="In which precision sums and products of float32 are added up.",
            compiled_in=False,
        ),
    }
