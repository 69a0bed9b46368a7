"""Ten mistakes in the EP that compiles: what it takes, computes and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from onnxplug import ep

from ..compile_ep import (
    NHWC,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
)
from ..images import max_pool, windows_of
from ..mistake import planted
from ..operators import Array, Operator, softmax_along, why_not
from ..program import write

SPI: Final = "core/src/onnxplug/ep/"
LAST: Final = f"{NHWC}.MaxPool"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""


def changed(**operators: Any) -> Mapping[str, Operator]:
    """The operators, of which some are made otherwise."""
    taken = GeneratedFactory.operators_taken
    return {
        **taken,
        **{name: taken[name]._replace(make=make) for name, make in operators.items()},
    }


# operators


def _floored(attributes: Mapping[str, Any], version: int) -> Any:
    return lambda a, b: a / b if a.dtype.kind == "f" else a // b


@planted(
    "floors-quotients-of-integers",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Div of integers of which one is negative",
    blames=("Div", "rounds"),
)
class FloorsQuotients(GeneratedFactory):
    operators_taken = changed(Div=_floored)


def _without_default(attributes: Mapping[str, Any], version: int) -> Any:
    alpha = attributes.get("alpha", 0.0)
    return lambda x: np.where(x < 0, x.dtype.type(alpha) * x, x)


@planted(
    "takes-0-for-an-attribute-that-is-not-set",
    "operators",
    breaks="The attributes that the node sets; ONNX's defaults are not filled in.",
    source=SPI + "graph.py",
    finding="wrong numbers of LeakyRelu without alpha, which is 0.01 then",
    blames=("LeakyRelu", "alpha"),
)
class TakesZeroForADefault(GeneratedFactory):
    operators_taken = changed(LeakyRelu=_without_default)


def _padded_with_zeros(first: int) -> Any:
    def of(attributes: Mapping[str, Any], version: int) -> Any:
        windows = windows_of(attributes, attributes["kernel_shape"])

        def pool(x: Array) -> Any:
            along = tuple(range(x.ndim, x.ndim + len(windows.sizes)))
            return windows.of(x, first, 0).max(axis=along)

        return pool

    return of


@planted(
    "pads-the-maximum-with-zeros",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of MaxPool at borders that are padded, of negative numbers",
    blames=("MaxPool", "pads"),
)
class PadsTheMaximumWithZeros(GeneratedFactory):
    operators_taken = changed(
        **{"MaxPool": _padded_with_zeros(2), LAST: _padded_with_zeros(1)}
    )


# claims


class JudgingByName(GeneratedExecutionProvider):
    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        reasons = {
            node.name: why_not(graph, node, self.operators) for node in graph.nodes
        }
        return ep.CapabilityReport.per_node(graph, lambda node: reasons[node.name])


@planted(
    "gives-nodes-of-one-name-one-verdict",
    "claims",
    breaks="The node's name; may be empty, need not be unique.",
    source=SPI + "graph.py",
    finding="of nodes that have one name, or none, all are claimed or none: also those "
    "that the EP cannot compile",
    blames=(
        "unnamed",
        "same name",
        "get_capability",
        "KeyError",
        "claim",
        "in compile",
    ),
)
class JudgesByName(GeneratedFactory):
    provider = JudgingByName


def _as_of_13(attributes: Mapping[str, Any], version: int) -> Any:
    return softmax_along(attributes.get("axis", -1))


@planted(
    "takes-old-versions-for-new-ones",
    "claims",
    breaks="The opset version at which the operator last changed, up to the model's.",
    source=SPI + "graph.py",
    finding="wrong numbers of Softmax before opset 13, which it claims as if it were "
    "that of 13",
    blames=("Softmax", "since_version"),
)
class TakesOldVersionsForNewOnes(GeneratedFactory):
    operators_taken = changed(Softmax=_as_of_13)


# preferences


@planted(
    "pools-channels-last-as-if-first",
    "preferences",
    breaks="``NHWC``: the channels of images come last.",
    source=SPI + "preferences.py",
    finding="MaxPool that was offered with channels last goes over the wrong axes",
    blames=("MaxPool", "NHWC", "layout", "channels last"),
)
class PoolsChannelsLastAsIfFirst(GeneratedFactory):
    operators_taken = changed(**{LAST: max_pool(2)})


# EPContext


class WithoutGaps(GeneratedSerialiser):
    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, GeneratedPartition)
        made = compiled.program
        steps = [
            step._replace(inputs=[slot for slot in step.inputs if slot is not None])
            for step in made.steps
        ]
        return write(made._replace(steps=steps))


@planted(
    "writes-no-inputs-that-are-left-out",
    "EPContext",
    breaks="What :meth:`serialise` gave, ready to run.",
    source=SPI + "serialiser.py",
    finding="a restored partition computes something else, where an input in the "
    "middle is left out, as the least of Clip",
    blames=("Clip", "restored", "left out", "optional input"),
)
class WritesNoGaps(GeneratedFactory):
    make_serialiser = WithoutGaps


class Believing(ep.CompatibilityCheck):
    def compatibility_info(self, device: ep.EpDevice) -> str:
        return f"{GeneratedFactory.name} {GeneratedFactory.version}"

    def check(self, device: ep.EpDevice, info: str) -> tuple[ep.Compatibility, str]:
        # programs are as good on one processor as on another
        return ep.Compatibility.OPTIMAL, ""


@planted(
    "finds-everything-compatible",
    "EPContext",
    breaks="it may also be damaged, or ONNX Runtime's.",
    source=SPI + "compatibility.py",
    finding="what another EP or another version compiled, and words that are damaged, "
    "are optimal by its compatibility check",
    blames=("compatib", "check()", "CompatibilityCheck", "optimal", "OPTIMAL"),
)
class FindsEverythingCompatible(GeneratedFactory):
    compatibility = Believing()


# specialisation


class KeepingPrograms(GeneratedExecutionProvider):
    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        super().__init__(factory, options)
        self._compiled: dict[Any, ep.CompiledPartition] = {}

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        key = tuple(partition.inputs), tuple(partition.outputs)
        if key not in self._compiled:
            self._compiled[key] = super().compile(partition)
        return self._compiled[key]


@planted(
    "keeps-programs-without-their-shapes",
    "specialisation",
    breaks="but for each set of shapes in the first run that has it, specialised to "
    "these.",
    source=SPI + "specialiser.py",
    finding="a second set of input shapes is computed by what was compiled for the "
    "first: wrong numbers of ReduceMean",
    blames=("ReduceMean", "specialis", "set of shapes", "other shapes", "new shapes"),
)
class KeepsProgramsWithoutShapes(GeneratedFactory):
    provider = KeepingPrograms


# memory


def _in_place(attributes: Mapping[str, Any], version: int) -> Any:
    def relu(x: Array) -> Any:
        # no memory is needed for a result that takes the place of its input
        return np.maximum(x, 0, out=x if x.flags.writeable else None)

    return relu


@planted(
    "rectifies-in-place",
    "memory",
    breaks="Never written to; may be read-only.",
    source=SPI + "compiled.py",
    finding="Relu writes to its input: to what the caller feeds",
    blames=("Relu", "wrote to", "writes to", "input was changed"),
)
class RectifiesInPlace(GeneratedFactory):
    operators_taken = changed(Relu=_in_place)
