"""The model as an EP sees it: read-only, owned by the host.

These are protocols: the host's own classes satisfy them, and may gain attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from onnxplug.authoring.fact import fact
from onnxplug.authoring.record import Record
from onnxplug.ep.types import DataType, Dimension, TensorType, ValueType

if TYPE_CHECKING:
    from onnxplug.ep.weights import WeightSource


@fact()
class ValueInfo:
    """What is known of a value before the model runs.

    Attributes:
        name: the value's name, unique in its graph.
        type: ``None`` when nothing is known.
        is_constant: its content is known and never changes.
    """

    name: str
    type: ValueType | None = None
    is_constant: bool = False

    @property
    def dtype(self) -> DataType | None:
        """The element type of a tensor; ``None`` when unknown or not a tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[Dimension, ...] | None:
        """The shape of a tensor; ``None`` when of unknown rank or not a tensor."""
        return self.type.shape if isinstance(self.type, TensorType) else None


@fact()
class SparseTensor:
    """A sparse tensor as numpy arrays, in ONNX's coordinate format.

    Attributes:
        values: [NNZ], the elements that are stored.
        indices: [NNZ] linear or [NNZ, rank] per dimension, int64, sorted.
        shape: the dense shape.
    """

    values: Any
    indices: Any
    shape: tuple[int, ...]


AttributeValue: TypeAlias = Any
"""int, float, str (bytes when not UTF-8), a read-only numpy array, ``SparseTensor``,
``Graph``, ``ValueType``, or a tuple of one of these."""


class Node(Protocol):
    """One operator call."""

    @property
    def index(self) -> int:
        """Identity in its graph, and position in a topological order."""

    @property
    def op_type(self) -> str:
        """The operator's name."""

    @property
    def domain(self) -> str:
        """The operator's domain; empty for ONNX's own operators."""

    @property
    def since_version(self) -> int:
        """The opset version at which the operator last changed, up to the model's.

        0 for an operator whose schema ONNX does not hold.
        """

    @property
    def name(self) -> str:
        """The node's name; may be empty, need not be unique."""

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """Names of the inputs; ``None`` for one that is left out."""

    @property
    def outputs(self) -> tuple[str | None, ...]:
        """Names of the outputs; ``None`` for one that nobody wants."""

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """The attributes that the node sets; ONNX's defaults are not filled in."""

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that the node's subgraphs take from the graphs around them."""

    @property
    def subgraphs(self) -> Mapping[str, Graph]:
        """The attributes that are graphs."""


class Graph(Protocol):
    """Nodes in topological order, and what is known of the values between them."""

    @property
    def name(self) -> str:
        """The graph's name; may be empty."""

    @property
    def nodes(self) -> Sequence[Node]:
        """``nodes[i].index == i``."""

    @property
    def inputs(self) -> Sequence[str]:
        """Names fed by the caller, constants excluded."""

    @property
    def outputs(self) -> Sequence[str]:
        """Names given to the caller."""

    @property
    def parent(self) -> Graph | None:
        """The graph around this one, if this is a body of a control-flow node."""

    def opset(self, domain: str = "") -> int:
        """The version of *domain*'s operators; 0 when the model does not import it."""

    def value(self, name: str) -> ValueInfo:
        """What is known of *name*, here or in a graph around; never raises."""

    def constant(self, name: str) -> Any | None:
        """The content of a constant, here or in a graph around; ``None`` if not one.

        A read-only numpy array, which may be mapped from the model's file.
        """

    def assigned_to(self, node: Node) -> str | None:
        """The name of the EP ranked higher that took *node*, if one did; or of that
        which the user pinned it to, if that is another than the one asked."""


class TensorFacts(Record):
    """What is known of a tensor when all sizes are numbers.

    Attributes:
        dtype: element type; ``None`` when unknown.
        shape: the sizes.
        content: a numpy array of *dtype* and *shape*, if it is known: a constant, or
            what follows from sizes.  Never written to.
    """

    dtype: DataType | None
    shape: tuple[int, ...]
    content: Any | None = None


class ExportedModel(Record):
    """A partition as a model of its own.

    Attributes:
        model: an ``onnx.ModelProto``.
        weights: buffers (C-contiguous arrays of bytes) by the ``location`` that the
            model's external data names; empty when weights are inline.
    """

    model: Any
    weights: Mapping[str, Any]


class Partition(Protocol):
    """A convex group of nodes that one EP is to run."""

    @property
    def graph(self) -> Graph:
        """The graph that the nodes belong to."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The group's nodes, in topological order."""

    @property
    def inputs(self) -> Sequence[str]:
        """Values computed outside; the order of ``run``'s inputs.  No constants."""

    @property
    def outputs(self) -> Sequence[str]:
        """Values needed outside; the order of ``run``'s outputs."""

    @property
    def label(self) -> str:
        """The label of the claim, when the partition is one claim."""

    @property
    def fingerprint(self) -> str:
        """A hash of structure, types and weights, the same in every process.

        Weights in files are not read for that: such a file is told from others by its
        place and the times that the system keeps of it, so on another machine, or of
        a copy of the file, it is another.
        """

    @property
    def covers_model(self) -> bool:
        """Nothing of the model runs outside this partition."""

    @property
    def cancelled(self) -> bool:
        """The session is not wanted any more.

        An EP that compiles for long asks now and then, and raises ``LoadCancelled``.
        """

    def value(self, name: str) -> ValueInfo:
        """What is known of *name*; as :meth:`Graph.value`."""

    def constant(self, name: str) -> Any | None:
        """The content of a constant; as :meth:`Graph.constant`."""

    def weight(self, name: str) -> WeightSource | None:
        """Where the bytes of a constant are from, to share what is made of them.

        What is in a file is not read for that, unless it was written to a moment ago.
        What the host computed, and what a program gave as an array, is: it is told from
        others by a digest.

        Returns:
            ``None`` if *name* is no constant, is one of strings or without elements,
            or has fewer than 64 KiB and nothing but a digest would tell it.
        """

    def infer(
        self, node: Node, inputs: Sequence[TensorFacts | None]
    ) -> Sequence[TensorFacts | None]:
        """What follows for the outputs of *node* by the host's rules of operators.

        Cheap enough to be asked for each node of a plan.  From any thread.

        Args:
            node: of the partition.
            inputs: by position; ``None`` for what is left out, is no dense tensor, or
                is not known.

        Returns:
            By position; ``None`` for what does not follow, as where sizes depend on
            elements that are not known.  Fewer than the node has outputs, or none, when
            nothing follows for the last ones.

            Content is given of integers of rank 0 or 1, at most 64 of them, that follow
            from sizes.

        Raises:
            OutOfBounds: an attribute, or what is known of an input, is nothing with
                which the node can run; a ``ValueError`` that names the node.  Whether
                the inputs' sizes go together is not looked at by all rules.
        """

    def bodies(self, node: Node) -> Mapping[str, Partition]:
        """The bodies of control flow of *node*, by the attributes that hold them.

        Each has all nodes of its graph.  Its inputs are what these read: inputs of the
        body, and values of the graphs around it; its outputs those of the body that
        nodes make, as others are inputs or constants.

        Args:
            node: of the partition.
        """

    def specialise(self, shapes: Mapping[str, tuple[int, ...]]) -> Partition:
        """The partition where inputs have these shapes.

        It has copies of the nodes, in the same order, in a graph of their own with the
        same constants; inputs and outputs are the same.  Types are static wherever
        sizes follow by the host's rules of operators, in bodies of control flow too.
        Cheap to ask for again.  From any thread.

        Args:
            shapes: by name, of inputs that are dense tensors; the others stay as they
                are known now.

        Raises:
            ValueError: *shapes* names what is no input, or no dense tensor, or a shape
                contradicts the rank or a fixed size of its input.
            InvalidModel: a node cannot run with these shapes; a ``ValueError`` too,
                that names the node.
        """

    def to_model(
        self, weights: Literal["inline", "external"] = "inline"
    ) -> ExportedModel:
        """The partition as a self-contained ``onnx.ModelProto``.

        Raises:
            ValueError: inline weights beyond protobuf's limit of 2 GiB.
        """
