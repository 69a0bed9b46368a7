"""What a distribution supplies of a domain's operators, whichever EPs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from onnxplug.authoring.fact import fact
from onnxplug.ep.capability import Reason
from onnxplug.ep.editor import GraphEditor
from onnxplug.ep.graph import Graph, Node
from onnxplug.ep.types import ValueType

FunctionBody: TypeAlias = Any
"""An ``onnx.FunctionProto``, or a text that ``onnx.parser.parse_function`` reads; or of
what is made for a node an
:class:`onnxplug.ep.Function`."""

InferTypes: TypeAlias = Callable[
    [Graph, Node, Sequence[ValueType | None]], Sequence[ValueType | None]
]
"""The types of a node's outputs, by those of its inputs; ``None`` where unknown.

A dimension may be text, the name of a size or an expression of names: a result that has
the same text is known to be of the same size.  An exception is a failure of who
supplies the operator, but ``InvalidModel`` and the ``OutOfBounds`` of
``onnxplug.authoring.bounds``, which say that the node is wrong.
"""

Trait: TypeAlias = Literal["unary", "broadcast", "last_axis", "dequantize"]
"""What the host may rely on, whoever computes the operator:

- ``unary``: each element of the result follows from that of the first input; the other
  inputs are the same for all.
- ``broadcast``: each element of a result follows from those at its place in the inputs,
  which are broadcast.
- ``last_axis``: likewise of all along the last axis, the inputs broadcast.
- ``dequantize``: floats of integers, a scale and a zero point: of constants it is left
  to EPs that compute with integers, or computed when it is asked for.
"""

TRAITS: Final = frozenset(get_args(Trait))


@fact()
class Operator:
    """What is known of one operator from one version of its domain on.

    All but the name may be left out.

    Attributes:
        op_type: the operator's name.
        since: the first version of the domain that has the operator as it is here.
        function: the operator as a function of others, by which the host replaces the
            nodes that no EP takes; or what makes the function for a node of a graph, or
            says why it has none in this form.  If a node leaves out an input of the
            function, so do the nodes of the body that read it.
        rewrite: replaces its nodes in a graph by others before EPs see them, and tells
            which, in words.  It may look at the graph, and expand other nodes.  Called
            for each graph that has such nodes, while values have their names still.
        infer_types: the rule for the types of its outputs; see :data:`InferTypes`.  A
            name: that of the operator of ONNX whose rule it is.
        kernel: what makes a function of the inputs for a node, over arrays of the array
            namespace that it is given (numpy, or one that follows the Array API), or
            says why there is none.  The function is as that of
            ``KernelExecutionProvider.find_kernel``.  It serves EPs that ask for it, by
            ``SessionContext.find_kernel``.
        traits: see :data:`Trait`.
        refused: why it cannot be replaced in any form, where users may expect it.
    """

    op_type: str
    since: int = 1
    function: FunctionBody | Callable[[Graph, Node], FunctionBody | Reason] | None = (
        None
    )
    rewrite: Callable[[GraphEditor], Sequence[str]] | None = None
    infer_types: InferTypes | str | None = None
    kernel: Callable[[Graph, Node, Any], Callable[..., Any] | Reason] | None = None
    traits: Sequence[Trait] = ()
    refused: str = ""


@fact()
class Domain:
    """The operators of a domain that a distribution supplies.

    An entry point of the group ``onnxplug.domains``, which has the domain's name, leads
    to it, or to a module whose hook ``onnxplug_domains`` returns it.  The module is
    imported when a model uses an operator of the domain.

    Attributes:
        name: the domain, such as ``com.example``.  That of ONNX's own operators,
            ``ai.onnx``, for those that ONNX does not define, in some version or at all.
        spi_version: the SPI that this was written for: a literal such as ``(0, 4)``,
            never ``SPI_VERSION``, which would always agree with the host.
        operators: the operators, in any order.
    """

    name: str
    spi_version: tuple[int, int]
    operators: Sequence[Operator]
