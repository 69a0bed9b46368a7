"""Ten mistakes of the EP that compiles: in what it takes, computes and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from ..compile_ep import (
    CHANNELS_LAST,
    NHWC,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
)
from ..images import _of_image, windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator, maximum, mean
from ..program import Program, program_of

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"
DEVICE: Final = "docs/tutorials/write-a-device-ep.md"

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


def _dividing(attributes: Any, version: int) -> Any:
    def divide(a: Array, b: Array) -> Any:
        return a / b if a.dtype.kind == "f" else a // b

    return divide


@planted(
    "divides-integers-as-python-does",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Div of integers, one of them negative",
    blames=("Div", "int32", "int64", "integers"),
)
class DividesIntegersAsPythonDoes(GeneratedFactory):
    operators_taken = changed(Div=_dividing)


def _padding_with_zero(first: int) -> Any:
    def make(attributes: Any, version: int) -> Any:
        windows = windows_of(attributes, attributes["kernel_shape"])

        def pool(x: Array) -> Any:
            along = tuple(range(x.ndim, x.ndim + len(windows.sizes)))
            return _of_image(windows, x, first, 0).max(axis=along)

        return pool

    return make


@planted(
    "pads-maxima-with-zero",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of MaxPool where it pads and elements are negative",
    blames=("MaxPool", "pads", "padding"),
)
class PadsMaximaWithZero(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **changed(MaxPool=_padding_with_zero(2)),
        f"{NHWC}.MaxPool": CHANNELS_LAST[f"{NHWC}.MaxPool"]._replace(
            make=_padding_with_zero(1)
        ),
    }


def _expanding(attributes: Any, version: int) -> Any:
    def expand(x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, tuple(int(size) for size in shape))

    return expand


@planted(
    "expands-to-the-shape-as-written",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Expand fails where its shape has 1, or fewer sizes than the input, as "
    "both sides are broadcast",
    blames=("Expand",),
)
class ExpandsToTheShapeAsWritten(GeneratedFactory):
    operators_taken = changed(Expand=_expanding)


def _casting(attributes: Any, version: int) -> Any:
    dtype = ep.DataType.from_onnx(attributes["to"]).numpy

    def cast(x: Array) -> Array:
        if x.dtype.kind == "f" and dtype.kind == "i":
            x = np.rint(x)
        return x.astype(dtype)

    return cast


@planted(
    "rounds-in-casts",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Cast from floats to integers, which drops the fraction",
    blames=("Cast",),
)
class RoundsInCasts(GeneratedFactory):
    operators_taken = changed(Cast=_casting)


# claims


def _with_ceil_mode(operator: Operator) -> Operator:
    return operator._replace(attributes={**operator.attributes, "ceil_mode": False})


@planted(
    "takes-pools-with-ceil-mode",
    "claims",
    breaks="An operator is an entry of a table, with the versions that it is right for "
    "and what it heeds; whatever else a node has is refused, in words:",
    source=DEVICE,
    finding="MaxPool and AveragePool with ceil_mode are claimed, and computed without",
    blames=("ceil_mode", "MaxPool", "AveragePool"),
)
class TakesPoolsWithCeilMode(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        name: _with_ceil_mode(operator)
        if name.rpartition(".")[2] in ("AveragePool", "MaxPool")
        else operator
        for name, operator in GeneratedFactory.operators_taken.items()
    }


# memory


class InPlacePartition(GeneratedPartition):
    """An activation writes to the array that it reads, which saves one."""

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        for at, step in enumerate(made.steps):
            if step.op == "LeakyRelu":
                self.kernels[at] = _in_place(step.attributes.get("alpha", 0.01))


def _in_place(alpha: float) -> Any:
    def leaky_relu(x: Array) -> Array:
        if not x.flags.writeable:
            x = x.copy()
        np.multiply(x, x.dtype.type(alpha), out=x, where=x < 0)
        return x

    return leaky_relu


@planted(
    "activates-in-place",
    "memory",
    breaks="Never written to; may be read-only.",
    source=SPI + "compiled.py",
    finding="a run writes to its input, of LeakyRelu",
    blames=("LeakyRelu", "writes to", "wrote to", "written to", "its input"),
)
class ActivatesInPlace(GeneratedFactory):
    partition = InPlacePartition


class BufferedPartition(GeneratedPartition):
    """Has an array for each output, which the engine fills again in the next run."""

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        arrays = [np.asarray(result) for result in results]
        alike = [(each.shape, each.dtype) for each in arrays]
        if getattr(self, "_alike", None) != alike:
            self._alike = alike
            self._buffers = [np.empty_like(each, order="C") for each in arrays]
        for buffer, array in zip(self._buffers, arrays, strict=True):
            np.copyto(buffer, array)
        return super().finish(self._buffers, outputs)


@planted(
    "returns-the-buffer-of-the-run-before",
    "memory",
    breaks="allocate it; the array then belongs to the host, and the EP never writes "
    "to it again",
    source=SPI + "compiled.py",
    finding="what a run returned changes in the next run",
    blames=("earlier", "next run", "later run", "second run", "belongs", "buffer"),
)
class ReturnsTheBufferOfTheRunBefore(GeneratedFactory):
    partition = BufferedPartition


# preferences


def _of_planes(reduce: Any) -> Any:
    return lambda attributes, version: lambda x: reduce(x, (1, 2))


@planted(
    "pools-planes-whatever-the-rank",
    "preferences",
    breaks="``NHWC``: the channels of images come last.",
    source=SPI + "preferences.py",
    finding="GlobalAveragePool and GlobalMaxPool are wrong of images that have not two "
    "axes, once channels come last",
    blames=("GlobalAveragePool", "GlobalMaxPool", "NHWC", "nhwc"),
)
class PoolsPlanesWhateverTheRank(GeneratedFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **GeneratedFactory.operators_taken,
        **{
            name: CHANNELS_LAST[name]._replace(make=_of_planes(reduce))
            for name, reduce in (
                (f"{NHWC}.GlobalAveragePool", mean),
                (f"{NHWC}.GlobalMaxPool", maximum),
            )
        },
    }


def _without_pairs(editor: Any, nodes: Sequence[ep.Node]) -> Sequence[str]:
    """Negations of negations are taken out."""
    makers = {node.outputs[0]: node for node in nodes if node.op_type == "Neg"}
    left = {node.index: node for node in editor.graph.nodes}
    told: list[str] = []
    made: set[int] = set()
    for second in nodes:
        first = makers.get(second.inputs[0]) if second.op_type == "Neg" else None
        if first is None or {first.index, second.index} & made:
            continue
        if first.index not in left:
            continue
        del left[first.index]
        made.add(second.index)
        left[second.index] = editor.make_node(
            "Identity", list(first.inputs), list(second.outputs)
        )
        told.append(f"Neg of {first.outputs[0]} undoes the other one")
    if told:
        editor.replace_nodes(left.values())
    return told


class RewritingProvider(GeneratedExecutionProvider):
    preferences = ep.Preferences(layout="NHWC", rewrite=_without_pairs)


@planted(
    "rewrites-away-what-others-read",
    "preferences",
    breaks="What is not among the nodes has to stay as it is, and so do the types of "
    "what others read.",
    source=SPI + "preferences.py",
    finding="the rewrite takes out a Neg whose result is read by another node, or is "
    "an output of the model",
    blames=("rewrite", "Neg"),
)
class RewritesAwayWhatOthersRead(GeneratedFactory):
    provider = RewritingProvider


# specialisation


class RememberingProvider(GeneratedExecutionProvider):
    """Keeps programs, as the same partition is compiled for each set of shapes."""

    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        super().__init__(factory, options)
        self._programs: dict[Any, Program] = {}

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        key = (
            partition.graph.name,
            tuple(partition.inputs),
            tuple(partition.outputs),
        )
        if key not in self._programs:
            self._programs[key] = program_of(partition)
        return self.make(self._programs[key])


@planted(
    "again-keeps-programs-without-their-shapes",
    "specialisation",
    breaks="A partition whose inputs have sizes that are not known is not compiled "
    "when the session is made, but for each set of shapes in the first run that has "
    "it, specialised to these.",
    source=SPI + "specialiser.py",
    finding="wrong numbers of ReduceMean for the second set of shapes, of which what "
    "was compiled for the first is used",
    blames=("ReduceMean", "specialised", "specialise", "set of shapes", "other shapes"),
)
class KeepsProgramsWithoutTheirShapes(GeneratedFactory):
    provider = RememberingProvider
