"""Mistakes in the EP that compiles: in what it computes, claims and prefers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

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
from ..images import Windows, average_pool, convolution, max_pool, windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator

# operators


def _of_powers(attributes: Mapping[str, Any], version: int) -> Any:
    if version < 13:
        return OPERATORS["Softmax"].make(attributes, version)
    axis = attributes.get("axis", -1)

    def along(x: Array) -> Any:
        powers = np.exp(x)
        return powers / powers.sum(axis=axis, keepdims=True)

    return along


@planted(
    "overflows-in-softmax",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Softmax of large numbers, such as 100, is NaN",
    blames=("Softmax",),
)
class OverflowsInSoftmax(GeneratedFactory):
    operators_taken = changed(Softmax=_of_powers)


def _behind(attributes: Any, sizes: Sequence[int]) -> Windows:
    windows = windows_of(attributes, sizes)
    is_same = windows.auto_pad.startswith("SAME")
    return windows._replace(auto_pad="SAME_UPPER") if is_same else windows


@planted(
    "pads-behind-for-same-lower",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Conv and pools with auto_pad SAME_LOWER are padded as with SAME_UPPER",
    blames=("Conv", "MaxPool", "AveragePool", "auto_pad", "SAME_LOWER"),
)
class PadsBehindForSameLower(GeneratedFactory):
    operators_taken: Mapping[str, Operator] = {  # type: ignore[misc]
        **changed(
            AveragePool=average_pool(2, _behind),
            Conv=convolution(_behind),
            MaxPool=max_pool(2, _behind),
        ),
        f"{NHWC}.AveragePool": GeneratedFactory.operators_taken[
            f"{NHWC}.AveragePool"
        ]._replace(make=average_pool(1, _behind)),
        f"{NHWC}.MaxPool": GeneratedFactory.operators_taken[f"{NHWC}.MaxPool"]._replace(
            make=max_pool(1, _behind)
        ),
    }


def _channel_by_channel(attributes: Mapping[str, Any], version: int) -> Any:
    convolve = OPERATORS["Conv"].make(attributes, version)

    def of(x: Array, w: Array, b: Array | None = None) -> Any:
        channels = x.shape[1]
        if w.shape[1] != 1 or channels != attributes.get("group", 1):
            return convolve(x, w, b)
        found = convolve(x, w)
        several = len(w) // channels
        parts = found.reshape(len(x), channels, several, *found.shape[2:])
        turned = parts.swapaxes(1, 2).reshape(found.shape)
        return turned if b is None else turned + b.reshape(-1, *(1,) * (x.ndim - 2))

    return of


@planted(
    "interleaves-channels-of-depthwise-convolutions",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Conv with as many groups as channels, and several results for each, has "
    "its channels in another order",
    blames=("Conv", "group"),
)
class InterleavesChannelsOfDepthwiseConvolutions(GeneratedFactory):
    operators_taken = changed(Conv=_channel_by_channel)


class PacksWeights(GeneratedPartition):
    """Turns the weights of Gemm once, whoever reads them."""

    def __init__(self, made: program.Program, *arguments: Any) -> None:
        super().__init__(made, *arguments)
        operators, double, _limit = arguments
        packed: dict[int, Array] = {}
        plain = [
            step._replace(attributes={**step.attributes, "transB": 0})
            if step.op == "Gemm"
            else step
            for step in made.steps
        ]
        kernels = program.kernels_of(made._replace(steps=plain), operators, double)
        for at, step in enumerate(made.steps):
            slot = step.inputs[1] if step.op == "Gemm" else None
            constant = -1 if slot is None else slot - made.inputs
            if slot is None or not 0 <= constant < len(made.constants):
                continue
            weight = made.constants[constant]
            is_turned = step.attributes.get("transB", 0)
            turned = packed.setdefault(slot, weight.T if is_turned else weight)
            self.kernels[at] = _with(kernels[at], turned)


def _with(gemm: Any, packed: Array) -> Any:
    return lambda a, b, c=None: gemm(a, packed, c)


@planted(
    "packs-weights-for-the-first-reader",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="of two Gemm that read one constant, one with transB and one without, the "
    "second is wrong",
    blames=("Gemm", "transB", "constant", "weight"),
)
class PacksWeightsForTheFirstReader(GeneratedFactory):
    partition = PacksWeights


# claims


class TakesNoAxes(GeneratedExecutionProvider):
    """Goes along the axes that it knows when it compiles, and else along all."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        made = program.program_of(partition)
        known = range(made.inputs, made.inputs + len(made.constants))
        steps = [
            step._replace(inputs=step.inputs[:1])
            if step.op == "ReduceSum" and not {*step.inputs[1:]} <= {None, *known}
            else step
            for step in made.steps
        ]
        return self.make(made._replace(steps=steps))


@planted(
    "takes-axes-that-it-does-not-know-for-all",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as `OPERATORS` "
    "does, and no others.",
    source=ENGINE,
    finding="ReduceSum along axes that are no constant goes along all",
    blames=("ReduceSum",),
)
class TakesAxesThatItDoesNotKnowForAll(GeneratedFactory):
    provider = TakesNoAxes
    operators_taken: Mapping[str, Operator] = {  # type: ignore[misc]
        **GeneratedFactory.operators_taken,
        "ReduceSum": OPERATORS["ReduceSum"]._replace(constants=frozenset()),
    }


@planted(
    "claims-means-of-old-opsets",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as `OPERATORS` "
    "does, and no others.",
    source=ENGINE,
    finding="ReduceMean before version 18, whose axes are an attribute, goes along all",
    blames=("ReduceMean",),
)
class ClaimsMeansOfOldOpsets(GeneratedFactory):
    operators_taken: Mapping[str, Operator] = {  # type: ignore[misc]
        **GeneratedFactory.operators_taken,
        "ReduceMean": OPERATORS["ReduceMean"]._replace(
            versions=(1, 18),
            attributes={**OPERATORS["ReduceMean"].attributes, "axes": False},
        ),
    }


# memory


class FillsByBroadcasting(GeneratedPartition):
    """Has numpy fill what is bound, which does what it can."""

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        filled = []
        for result, bound in zip(results, outputs, strict=True):
            if bound is None:
                filled.append(np.asarray(result))
                continue
            np.copyto(bound, result, casting="unsafe")
            filled.append(bound)
        return filled


@planted(
    "converts-into-what-is-bound",
    "memory",
    breaks="a bound array has not the output's shape or dtype; raised before anything "
    "is written.",
    source=f"{SPI}compiled.py",
    finding="a bound array of another dtype, or of more elements, is filled, and no "
    "OutputMismatch raised",
    blames=("bound", "OutputMismatch"),
)
class ConvertsIntoWhatIsBound(GeneratedFactory):
    partition = FillsByBroadcasting


# specialisation


class WorksInFields(GeneratedExecutionProvider):
    """Has the program that it is at in a field of its own."""

    made: program.Program

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        self.made = program.program_of(partition)
        # for those who look for faults in it
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "generated.py")
            path.write_text(program.source_of(self.made, 32), "utf-8")
            program.generate(path.read_text("utf-8"))
        return self.make(self.made)


@planted(
    "compiles-one-partition-at-a-time",
    "specialisation",
    breaks="``compile`` and the serialiser are called from any thread, several times "
    "at once, and never under a lock of the host's.",
    source=f"{SPI}specialiser.py",
    finding="of shapes that are first run in two threads, one is computed by what was "
    "compiled for the other",
    blames=("thread", "compile", "at once", "ReduceMean", "shapes", "speciali"),
)
class CompilesOnePartitionAtATime(GeneratedFactory):
    provider = WorksInFields


class DeclinesInRuns(GeneratedExecutionProvider):
    """Finds out when it compiles that its library has no tanh of float64."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        for node in partition.nodes:
            dtype = partition.value(node.outputs[0] or "").dtype
            if node.op_type == "Tanh" and dtype is ep.DataType.FLOAT64:
                reason = ep.Reason(ep.RefusalCode.DTYPE, "no tanh of float64")
                raise ep.Declined(reason, nodes=[node])
        return super().compile(partition)


@planted(
    "declines-in-runs-what-no-shapes-change",
    "specialisation",
    breaks="What no shapes would change is declined here, where other EPs can still "
    "take it: when a specialised partition is declined in a run, the run fails.",
    source=f"{SPI}specialiser.py",
    finding="a run of Tanh of float64 fails where sizes are not known before, as the "
    "EP declines it then, and not in examine",
    blames=("Tanh", "examine", "declined", "Declined"),
)
class DeclinesInRunsWhatNoShapesChange(GeneratedFactory):
    provider = DeclinesInRuns


# preferences


def _cancel(editor: Any, nodes: Sequence[ep.Node]) -> Sequence[str]:
    graph = editor.graph
    makers = {node.outputs[0]: node for node in nodes if _is_turn(node)}
    replaced, gone = {}, set()
    for second in nodes:
        first = makers.get(second.inputs[0]) if _is_turn(second) else None
        if first is None or first.index in gone or first.index in replaced:
            continue
        read = [name for node in graph.nodes for name in (*node.inputs, *node.captures)]
        if [*read, *graph.outputs].count(first.outputs[0]) != 1:
            continue
        replaced[second.index] = editor.make_node(
            "Identity", [first.inputs[0]], second.outputs
        )
        gone.add(first.index)
    if not replaced:
        return []
    editor.replace_nodes(
        replaced.get(node.index, node) for node in graph.nodes if node.index not in gone
    )
    return [f"{len(replaced)} pairs of Transpose"]


def _is_turn(node: ep.Node) -> bool:
    return not node.domain and node.op_type == "Transpose"


@planted(
    "takes-two-transposes-for-none",
    "preferences",
    breaks="replaces some of the nodes, which the EP gets, by others that it takes",
    source=f"{SPI}preferences.py",
    finding="two Transpose in a row become Identity though the second does not undo "
    "the first",
    blames=("Transpose", "rewrite", "rewritten", "Identity"),
)
class TakesTwoTransposesForNone(GeneratedFactory):
    class provider(GeneratedExecutionProvider):
        preferences: ClassVar[ep.Preferences] = ep.Preferences(  # type: ignore[misc]
            layout="NHWC", rewrite=_cancel
        )


# factory

CODE: Final[dict[str, Any]] = {}
"""Generated functions by their source, for all sessions."""


class SharesCode(GeneratedPartition):
    """Has its functions from where all sessions have them."""

    def __init__(self, made: program.Program, *arguments: Any) -> None:
        super().__init__(made, *arguments)
        self._source = program.source_of(made, arguments[-1])
        CODE.setdefault(self._source, self.functions)

    def compute(self, values: list[Any], check: Any) -> None:
        for function in CODE[self._source]:
            function(values, self.kernels, check)


class ClearsCode(GeneratedExecutionProvider):
    """Clears up when its session is closed."""

    def close(self) -> None:
        super().close()
        CODE.clear()


@planted(
    "releases-with-a-session-what-all-share",
    "factory",
    breaks="(optional) Release what sessions shared. Idempotent; after all EPs.",
    source=f"{SPI}factory.py",
    finding="when one session is closed, runs of another fail",
    blames=("close", "session", "another", "shared"),
)
class ReleasesWithASessionWhatAllShare(GeneratedFactory):
    provider = ClearsCode
    partition = SharesCode
