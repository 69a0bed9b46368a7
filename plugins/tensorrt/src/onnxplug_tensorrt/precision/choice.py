"""Decides for each node of a graph whether it computes in fewer bits, and why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import numpy_helper

from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug_tensorrt.precision.elements import Element
from onnxplug_tensorrt.precision.hazards import (
    INTEGER_PRODUCTS,
    LOOKUPS,
    MOVES,
    ORDINARY,
    PRODUCTS,
    Fact,
    Hazard,
    cast_fact,
    constant_fact,
    described,
    result_fact,
)
from onnxplug_tensorrt.precision.norms import nodes_of_norms
from onnxplug_tensorrt.precision.signatures import Signature, signature_of

_SENSITIVE: Final = frozenset({"AffineGrid", "CumSum", "Range", "RoiAlign"})
"""Operators whose results are positions, or sums that run over a whole axis."""

_FOLLOWERS: Final = MOVES | {"QuantizeLinear"}
"""Operators that are as well off in the type that they are given."""

_CODERS: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Operators whose second input is a scale."""

_TOWARDS_SOFTMAX: Final = MOVES | {"Add", "Where"}
"""What may lie between a mask and the softmax in which it makes zeros."""


class Exclusions(Record):
    """What stays float32 because the user says so.

    Attributes:
        operators: names of operators.
        nodes: names of nodes.
        norms: normalisations, written as one node or several, too.
    """

    operators: Collection[str] = ()
    nodes: Collection[str] = ()
    norms: bool = False


class Choice(Record):
    """How one node computes.

    Attributes:
        narrow: what of it may be narrow; ``None`` if it stays as it is.
        clipped: positions of inputs that are held to the range, as they are masks.
        reason: why a node that computes in float32 stays so; empty if it has nothing
            of float32, only casts, or follows from sizes and constants only.
    """

    narrow: Signature | None = None
    clipped: frozenset[int] = frozenset()
    reason: str = ""


class Scope:
    """What is known of the values that nodes of one graph can read.

    Args:
        graph: an ``onnx.GraphProto`` whose values have types, inferred or stated.
        outer: of the graph around it.
        constants: contents of constants of float32 by name.
    """

    def __init__(
        self, graph: Any, outer: Scope | None, constants: Mapping[str, Any]
    ) -> None:
        self.graph = graph
        self._outer = outer
        self._constants = constants
        self._types = dict(_types_of(graph))
        self._facts: dict[str, Fact] = {}
        self._narrow: set[str] = set()
        self._readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in (*node.input, *_captures(node)):
                self._readers.setdefault(name, []).append(node)
        self._tensors = {tensor.name for tensor in graph.initializer}
        self._before_softmax, self._elsewhere = _readings(graph)

    def element_type(self, name: str) -> str | None:
        """The element type of tensor *name*; ``None`` if it is none, or not known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._types:
                return scope._types[name]
            scope = scope._outer
        return None

    def is_float32(self, name: str) -> bool:
        """Whether *name* is a tensor of float32."""
        return bool(name) and self.element_type(name) == DataType.FLOAT32

    def constant(self, name: str) -> Any | None:
        """The content of *name*, if it is a constant of float32."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._constants:
                return scope._constants[name]
            if name in scope._types:
                return None
            scope = scope._outer
        return None

    def fact(self, name: str, element: Element) -> Fact:
        """What is known of the float32 value *name*."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._facts:
                return scope._facts[name]
            if name in scope._constants:
                found = constant_fact(scope._constants[name], element)
                return scope._facts.setdefault(name, found)
            scope = scope._outer
        return ORDINARY

    def state(self, name: str, fact: Fact, *, narrow: bool) -> None:
        """Note what is known of a result, and whether a node makes it narrow."""
        self._facts[name] = fact
        if narrow:
            self._narrow.add(name)

    def is_narrow(self, name: str) -> bool:
        """Whether a node of this graph, or of one around it, makes *name* narrow."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._narrow:
                return True
            if name in scope._types:
                return False
            scope = scope._outer
        return False

    def readers(self, name: str) -> Sequence[Any]:
        """The nodes of this graph that read *name*."""
        return self._readers.get(name, ())

    def is_initializer(self, name: str) -> bool:
        """Whether *name*, of whatever element type, is one of this graph's."""
        return name in self._tensors

    def only_softmax_reads(self, name: str) -> bool:
        """Whether *name* ends in softmaxes, with only moves and sums between."""
        return name in self._before_softmax and name not in self._elsewhere

    def ends_in_softmax(self, node: Any) -> bool:
        """Whether only softmaxes read the results of *node*, if it is none itself."""
        return _ends_in_softmax(node, self._before_softmax, self._elsewhere)


def _types_of(graph: Any) -> Iterator[tuple[str, str | None]]:
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = value.type.tensor_type
        known = value.type.HasField("tensor_type") and kind.elem_type
        yield value.name, DataType.from_onnx(kind.elem_type) if known else None
    for tensor in graph.initializer:
        yield tensor.name, DataType.from_onnx(tensor.data_type)


def _readings(graph: Any) -> tuple[set[str], set[str]]:
    """Values of *graph* that are read towards softmaxes, and that are read elsewhere.

    With only moves and sums between them and the softmax.
    """
    found: set[str] = set()
    elsewhere = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if _ends_in_softmax(node, found, elsewhere):
            found.update(node.input)
        else:
            elsewhere.update(node.input, _captures(node))
    return found, elsewhere


def _ends_in_softmax(
    node: Any, found: Collection[str], elsewhere: Collection[str]
) -> bool:
    """Whether *node* is a softmax, or leads to nothing but softmaxes."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Softmax":
        return True
    return (
        node.op_type in _TOWARDS_SOFTMAX
        and any(name in found for name in node.output)
        and not any(name in elsewhere for name in node.output)
    )


def bodies_of(node: Any) -> Iterator[Any]:
    """The graphs in the attributes of *node*."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _captures(node: Any) -> Iterator[str]:
    """All names that bodies of *node* mention; some are their own."""
    for body in bodies_of(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from inner.input
            yield from _captures(inner)


class Chooser:
    """Chooses for the nodes of a model's graphs.

    Args:
        element: the type to compute in.
        opset: the version of ONNX's own operators.
        exclusions: what stays float32.
    """

    def __init__(self, element: Element, opset: int, exclusions: Exclusions) -> None:
        self._element = element
        self._opset = opset
        self._exclusions = exclusions

    def choose(self, scope: Scope) -> list[Choice]:
        """A choice for each node of *scope*'s graph; it is told what follows."""
        nodes = scope.graph.node
        norms = nodes_of_norms(nodes) if self._exclusions.norms else set()
        makers = {name: node for node in nodes for name in node.output}
        for value in scope.graph.input:
            # what is fed as a mask may be the lowest float32
            if scope.is_float32(value.name) and scope.only_softmax_reads(value.name):
                mask = Fact(activation=True, hazards=frozenset({Hazard.MASK}))
                scope.state(value.name, mask, narrow=False)
        choices = []
        for position, node in enumerate(nodes):
            choice = self._choice(node, scope, makers, in_norm=position in norms)
            self._state(node, choice, scope, makers)
            choices.append(choice)
        return choices

    def _choice(
        self, node: Any, scope: Scope, makers: Mapping[str, Any], *, in_norm: bool
    ) -> Choice:
        inputs = [name for name in node.input if scope.is_float32(name)]
        outputs = [name for name in node.output if scope.is_float32(name)]
        if not inputs and not outputs:
            return Choice()
        if any(True for _ in bodies_of(node)):
            return Choice(reason="its bodies' inputs and outputs keep their types")
        if node.domain not in ("", "ai.onnx"):
            return Choice(reason=f"it is of domain {node.domain}")
        if reason := self._excluded(node, in_norm=in_norm):
            return Choice(reason=reason)
        if any(
            name and scope.element_type(name) is None
            for name in (*node.input, *node.output)
        ):
            return Choice(reason="types of its values are not known")
        facts = [scope.fact(name, self._element) for name in inputs]
        if node.op_type == "Cast" or not self._computes(node, facts, scope):
            return Choice()
        constant = node.op_type == "DequantizeLinear" and _has_no_maker(
            node.input[0], makers, scope
        )
        if node.op_type == "DequantizeLinear":
            readers = scope.readers(node.output[0])
            if not constant or any(
                _between_codes(reader, makers, scope) for reader in readers
            ):
                return Choice(reason="its codes are what an integer kernel reads")
        elif _between_codes(node, makers, scope):
            return Choice(reason="it reads codes: an integer kernel computes it")
        signature = signature_of(
            node.op_type, self._opset, self._element, constant_input=constant
        )
        if signature is None:
            return Choice(
                reason=f"{node.op_type} of opset {self._opset} does not take "
                f"{self._element.dtype}"
            )
        if node.op_type in _FOLLOWERS and not self._leads(node, scope):
            return Choice(reason="it moves values of float32")
        return self._unless_hazardous(node, signature, scope)

    def _excluded(self, node: Any, *, in_norm: bool) -> str:
        if node.op_type in self._exclusions.operators:
            return f"{node.op_type} is to stay float32"
        if node.name and node.name in self._exclusions.nodes:
            return "it is to stay float32"
        if in_norm:
            return "normalisations are to stay float32"
        if node.op_type in _SENSITIVE:
            return f"{node.op_type} needs the digits of float32"
        return ""

    def _computes(self, node: Any, facts: Sequence[Fact], scope: Scope) -> bool:
        """Whether a node reads activations, or makes them of weights."""
        if node.op_type == "DequantizeLinear":
            return True
        if node.op_type in LOOKUPS and scope.constant(node.input[0]) is not None:
            return True
        return any(fact.activation for fact in facts)

    def _leads(self, node: Any, scope: Scope) -> bool:
        """Whether a move, or a lookup in weights, is given what is narrow."""
        values = [name for name in node.input if scope.is_float32(name)]
        computed = [name for name in values if scope.constant(name) is None]
        return not computed or any(scope.is_narrow(name) for name in computed)

    def _unless_hazardous(
        self, node: Any, signature: Signature, scope: Scope
    ) -> Choice:
        clipped = set()
        for position, name in enumerate(node.input):
            if not (scope.is_float32(name) and signature.input(position)):
                continue
            hazards = scope.fact(name, self._element).hazards
            if node.op_type in _CODERS and position == 1:
                hazards |= self._of_scales(scope.constant(name))
            if not hazards:
                continue
            if hazards <= {Hazard.MASK} and scope.ends_in_softmax(node):
                clipped.add(position)
                continue
            return Choice(reason=described(hazards, self._element))
        return Choice(narrow=signature, clipped=frozenset(clipped))

    def _of_scales(self, scales: Any | None) -> set[Hazard]:
        """Scales are rounded only where each keeps all digits of the element type."""
        if scales is None:
            return {Hazard.TINY}
        magnitudes = abs(scales[scales != 0])
        small = magnitudes.size and magnitudes.min() < self._element.smallest
        return {Hazard.TINY} if small else set()

    def _state(
        self, node: Any, choice: Choice, scope: Scope, makers: Mapping[str, Any]
    ) -> None:
        """Tell *scope* what is known of the results of *node*."""
        if node.op_type == "Constant":
            return
        names = [name for name in node.input if scope.is_float32(name)]
        facts = [scope.fact(name, self._element) for name in names]
        activation = (
            choice.narrow is not None
            or node.op_type == "DequantizeLinear"
            or any(fact.activation for fact in facts)
        )
        if bodies := list(bodies_of(node)):
            fact = Fact(activation=bool(bodies))
        elif node.op_type == "Cast":
            maker = _maker_past_moves(node.input[0], makers)
            fact = cast_fact(
                scope.element_type(node.input[0]),
                self._element,
                summed=maker in INTEGER_PRODUCTS,
                computed=maker not in ("", "Cast", "Constant", "DequantizeLinear"),
            )
        elif choice.narrow is not None and choice.clipped:
            fact = Fact(activation=True)
        elif not facts:
            fact = _made_fact(node, self._element)
        else:
            fact = result_fact(node.op_type, facts, activation=activation)
        for position, name in enumerate(node.output):
            if scope.is_float32(name):
                narrow = choice.narrow is not None and choice.narrow.output(position)
                scope.state(name, fact, narrow=narrow)


def _maker_past_moves(name: str, makers: Mapping[str, Any]) -> str:
    """The operator that computes *name*, or what is moved there; empty if none does."""
    while (maker := makers.get(name)) is not None and maker.op_type in MOVES:
        name = maker.input[0]
    return "" if maker is None else str(maker.op_type)


def _has_no_maker(name: str, makers: Mapping[str, Any], scope: Scope) -> bool:
    """Whether *name* is a constant, of whatever element type."""
    if name in makers:
        return bool(makers[name].op_type == "Constant")
    return scope.is_initializer(name)


def _between_codes(node: Any, makers: Mapping[str, Any], scope: Scope) -> bool:
    """Whether all that *node* computes with is dequantised, and not only weights.

    An engine makes one kernel on integers of it and the nodes around it; of what is
    no product, whose results may be floats, only if they become codes again.
    """
    if node.op_type not in PRODUCTS and not all(
        reader.op_type == "QuantizeLinear"
        for name in node.output
        for reader in scope.readers(name) or [node]
    ):
        return False
    names = [name for name in node.input if scope.is_float32(name)]
    computed = [makers.get(name) for name in names if scope.constant(name) is None]
    return all(
        maker is not None and maker.op_type == "DequantizeLinear" for maker in computed
    ) and any(
        maker is not None and not _has_no_maker(maker.input[0], makers, scope)
        for maker in computed
    )


def _made_fact(node: Any, element: Element) -> Fact:
    """What is known of float32 values that are made of no others."""
    if node.op_type == "ConstantOfShape":
        for attribute in node.attribute:
            if attribute.name == "value":
                return constant_fact(numpy_helper.to_array(attribute.t), element)
        return Fact(activation=False, unit=True)
    if node.op_type.startswith("Random"):
        return ORDINARY
    return Fact(activation=False)
