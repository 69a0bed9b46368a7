"""Which nodes the EP takes: those that can be lowered for the device."""

from __future__ import annotations

from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.sizes import names_in
from onnxplug_directml.lowering.builder import Builder, Refused, Shape, Value
from onnxplug_directml.lowering.call import RULES, Call
from onnxplug_directml.lowering.lower import (
    MISMATCHES,
    check_result,
    dtype_of,
    mismatched,
    sample_sizes,
    sampled,
)
from onnxplug_directml.lowering.target import Target

_SIZES: Final = frozenset({"Shape", "Size"})
"""Operators whose results follow from sizes, whatever the elements."""

_FOLLOWED: Final = _SIZES | {
    "Abs", "Add", "And", "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape",
    "Div", "Equal", "Expand", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax",
    "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze",
    "Sub", "Sum", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators by which the host follows what sizes become, in integers of one dimension
or none; see :meth:`onnxplug.ep.Partition.infer`."""

_INTEGERS: Final = frozenset({ep.DataType.INT64, ep.DataType.INT32, ep.DataType.BOOL})


class Unsettled(Exception):
    """What a node depends on follows from sizes, which are known in runs."""


class Judge:
    """Tells of each node of a graph, alone, whether the device can run it.

    Sizes that are not known are tried with some numbers: graphs of DirectML are made
    when they are known.
    """

    def __init__(self, graph: ep.Graph, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._follows = _Followers(graph)
        self._sizes = sample_sizes(sorted(_size_names(graph)))

    def __call__(self, node: ep.Node) -> ep.Reason | None:
        """Why *node* is refused; ``None`` if it is not."""
        if node.subgraphs:
            return ep.Reason(
                ep.RefusalCode.OP, "the host runs control flow, and asks for its bodies"
            )
        if self._is_followed(node):
            return None
        rule = RULES.get((node.domain, node.op_type))
        if rule is None:
            domain = f" of {node.domain}" if node.domain else ""
            return ep.Reason(
                ep.RefusalCode.OP, f"DirectML is given no {node.op_type}{domain}"
            )
        build = Builder(self._target)
        around = _Sample(self._graph, build, self._sizes, self._follows)
        try:
            for name in filter(None, node.outputs):
                build.check(around.dtype(name), around.shape(name))
            call = Call(node, build, around)
            made = rule(call)
            call.refuse_unread()
            values = [made] if isinstance(made, Value) else made
            for output, value in zip(node.outputs, values, strict=False):
                if output is not None and value is not None:
                    check_result(value, around.dtype(output), around.shape(output))
        except Unsettled:
            return None
        except Refused as error:
            return error.reason
        except MISMATCHES as error:
            return mismatched(error)
        return None

    def _is_followed(self, node: ep.Node) -> bool:
        """Whether DirectML sees nothing of the node: its outputs follow from sizes."""
        outputs = [name for name in node.outputs if name]
        return all(name in self._follows for name in outputs) and all(
            sampled(self._graph.value(name).shape, self._sizes) is not None
            for name in outputs
        )


class _Followers:
    """The values that are known once the sizes of the inputs are."""

    def __init__(self, graph: ep.Graph) -> None:
        self._graph = graph
        self._found: set[str] = set()
        for node in graph.nodes:
            if node.domain or node.op_type not in _FOLLOWED:
                continue
            if node.op_type in _SIZES or all(
                name is None or name in self for name in node.inputs
            ):
                outputs = filter(None, node.outputs)
                self._found.update(filter(self._is_small, outputs))

    def _is_small(self, name: str) -> bool:
        value = self._graph.value(name)
        few = value.shape is not None and len(value.shape) <= 1
        return few and value.dtype in _INTEGERS

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
                self._build.input(self.dtype(name), self.shape(name))
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
        shape = self._graph.value(name).shape
        if shape is None:
            raise Refused(ep.RefusalCode.RANK, f"{name!r} is of unknown rank")
        found = sampled(shape, self._sizes)
        if found is None:
            unknown = next((s for s in shape if isinstance(s, str)), None)
            said = (
                "a size that is"
                if unknown is None or GENERATED in unknown
                else f"{unknown}, which is"
            )
            raise Refused(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"{name!r} has {said} not known before the model runs",
            )
        return found

    def dtype(self, name: str) -> ep.DataType:
        return dtype_of(name, self._graph.value(name))
