"""Which nodes the EP takes: those that can be lowered for the engine."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.sizes import names_in
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import RULES, Call
from onnxplug_coreml.lowering.folding import FOLDED, SIZES
from onnxplug_coreml.lowering.lower import (
    check_result,
    dtype_of,
    sample_sizes,
    sampled,
    shape_of,
)
from onnxplug_coreml.lowering.program import Shape, Value
from onnxplug_coreml.lowering.target import Target


class Unsettled(Exception):
    """What a node depends on follows from sizes, which are known in runs."""


class Judge:
    """Tells of each node of a graph, alone, whether the engine can run it.

    Sizes that are not known are tried with some numbers: programs are made when they
    are known.
    """

    def __init__(self, graph: ep.Graph, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._follows = _Followers(graph)
        self._names = _size_names(graph)
        self._sizes = sample_sizes(sorted(self._names))

    def __call__(self, node: ep.Node) -> ep.Reason | None:
        """Why *node* is refused; ``None`` if it is not."""
        if node.domain:
            return ep.Reason(
                ep.RefusalCode.OP, f"domain {node.domain}; takes ONNX's own operators"
            )
        if node.subgraphs:
            return ep.Reason(
                ep.RefusalCode.OP, "the host runs control flow, and asks for its bodies"
            )
        if self._is_folded(node):
            return None
        rule = RULES.get(node.op_type)
        if rule is None:
            return ep.Reason(
                ep.RefusalCode.OP, f"{self._target.engine} is given no {node.op_type}"
            )
        build = Builder(self._target)
        around = _Sample(self._graph, build, self._sizes, self._follows)
        try:
            for name in filter(None, (*node.inputs, *node.outputs)):
                around.shape(name)
                build.type_of(around.dtype(name))
            call = Call(node, build, around)
            made = rule(call)
            call.refuse_unread()
            values = [made] if isinstance(made, Value) else made
            for output, value in zip(node.outputs, values, strict=False):
                if output is not None and value is not None:
                    shape = around.shape(output)
                    check_result(value, build, around.dtype(output), shape)
        except Unsettled:
            return None
        except Refused as error:
            return error.reason
        except ValueError as error:  # constants are of other sizes than were tried
            detail = f"its sizes do not go together: {error}"
            return ep.Reason(ep.RefusalCode.DYNAMIC_SHAPE, detail)
        return None

    def _is_folded(self, node: ep.Node) -> bool:
        """Whether no engine sees the node, since its outputs follow from sizes."""
        outputs = [name for name in node.outputs if name]
        return all(name in self._follows for name in outputs) and all(
            self._graph.value(name).shape is not None
            and sampled(self._graph.value(name).shape, self._sizes) is not None
            for name in outputs
        )


class _Followers:
    """The values that are known once the sizes of the inputs are."""

    def __init__(self, graph: ep.Graph) -> None:
        self._graph = graph
        self._found: set[str] = set()
        for node in graph.nodes:
            if node.domain or node.op_type not in FOLDED or not node.inputs:
                continue
            if node.op_type in SIZES or all(
                name is None or name in self for name in node.inputs
            ):
                self._found.update(filter(None, node.outputs))

    def __contains__(self, name: str) -> bool:
        return name in self._found or self._graph.value(name).is_constant


def _size_names(graph: ep.Graph) -> frozenset[str]:
    """The names that sizes of inputs have, here and in the graphs around."""
    found: set[str] = set()
    each: ep.Graph | None = graph
    while each is not None:
        for name in each.inputs:
            for size in each.value(name).shape or ():
                if isinstance(size, str):
                    parsed = ep.Size.parse(size)
                    found |= {size} if parsed is None else names_in(parsed)
        each = each.parent
    return frozenset(found)


class _Sample:
    """What is around a node, where sizes that are not known are some numbers."""

    def __init__(
        self,
        graph: ep.Graph,
        build: Builder,
        sizes: dict[str, int],
        follows: _Followers,
    ) -> None:
        self._graph = graph
        self._build = build
        self._sizes = sizes
        self._follows = follows
        self._values: dict[str, Value] = {}

    def operand(self, name: str) -> Value:
        if name not in self._values:
            array = self._graph.constant(name)
            self._values[name] = (
                self._build.value(
                    self._build.type_of(self.dtype(name)), self.shape(name)
                )
                if array is None
                else self._build.constant(array)
            )
        return self._values[name]

    def content(self, name: str) -> Any | None:
        found = self._graph.constant(name)
        if found is None and name in self._follows:
            raise Unsettled
        return found

    def shape(self, name: str) -> Shape:
        value = self._graph.value(name)
        shape_of(name, value)
        found = sampled(value.shape, self._sizes)
        if found is None:
            unknown = next(s for s in value.shape or () if isinstance(s, str))
            said = "a size that is" if GENERATED in unknown else f"{unknown}, which is"
            raise Refused(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"{name!r} has {said} not known before the model runs",
            )
        return found

    def dtype(self, name: str) -> ep.DataType:
        return dtype_of(name, self._graph.value(name))
