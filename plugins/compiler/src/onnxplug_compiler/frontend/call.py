"""An operator call: a node, or several that a pattern joined."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_compiler.frontend.traits import NONE, TRAITS, Traits
from onnxplug_kernels import Kernel

Infer: TypeAlias = Callable[
    [Sequence[ep.TensorFacts | None]], Sequence[ep.TensorFacts | None]
]


class NotCompiled(Exception):
    """The compiled tier does not run a call; the array tier does.

    Args:
        call: the call, when it is one call's fault.
    """

    def __init__(self, reason: str, call: Call | None = None) -> None:
        super().__init__(reason)
        self.call = call


class Call:
    """An operator call.

    Attributes:
        op_type: ONNX's name of the operator.
        domain: its domain.
        version: the opset version of the domain in the model.
        inputs, outputs: names; ``None`` for what is left out.
        attributes: with ONNX's defaults filled in.
        nodes: the indices of the graph's nodes that the call stands for.
        dtypes: of the outputs; ``None`` where unknown.
        function: computes the call on arrays, on the array tier; ``None`` for a call
            that a pattern made.
        infer: what follows for the outputs by the host's rules; ``None`` for a call
            that a pattern made, which gives what those did that it stands for.
        traits: of the operator.
        note: what is to be said of the nodes; empty if there is nothing.
        kind: the same for calls of which the same follows from the same inputs;
            ``None`` for one that is like no other.
        is_of_widening: it casts between a value and its form in float32, which no
            result is the less exact for.
    """

    __slots__ = (
        "attributes",
        "domain",
        "dtypes",
        "function",
        "infer",
        "inputs",
        "kind",
        "nodes",
        "note",
        "op_type",
        "outputs",
        "traits",
        "version",
    )

    is_of_widening: ClassVar[bool] = False

    def __init__(
        self,
        op_type: str,
        domain: str,
        version: int,
        inputs: tuple[str | None, ...],
        outputs: tuple[str | None, ...],
        attributes: Mapping[str, Any],
        nodes: tuple[int, ...],
        dtypes: tuple[np.dtype[Any] | None, ...],
        function: Callable[..., Any] | None = None,
        infer: Infer | None = None,
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.version = version
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.nodes = nodes
        self.dtypes = dtypes
        self.function = function
        self.infer = infer
        name = f"{domain}.{op_type}" if domain else op_type
        self.traits: Traits = TRAITS.get(name, NONE)
        self.note = ""
        self.kind: int | None = None

    def __repr__(self) -> str:
        return f"Call({self.op_type}, {self.inputs}, {self.outputs})"

    def counted(self, count: str, infer: Infer) -> Call:
        """The same call with one more output, of int64.

        Args:
            infer: what follows for all outputs then.
        """
        return Call(
            self.op_type,
            self.domain,
            self.version,
            self.inputs,
            (*self.outputs, count),
            self.attributes,
            self.nodes,
            (*self.dtypes, np.dtype(np.int64)),
            None,
            infer,
        )

    def input(self, position: int) -> str | None:
        """The name of an input, ``None`` also beyond the last one."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> str | None:
        """The name of an output, ``None`` also beyond the last one."""
        return self.outputs[position] if position < len(self.outputs) else None


def call_of(
    partition: ep.Partition,
    node: ep.Node,
    kernel: Kernel | None,
    function: Any,
    kinds: dict[Any, int],
) -> Call:
    """The call of *node*, which *function* computes on arrays.

    The signature of the *kernel* that the function is of is the operator's schema, and
    has the attributes' defaults; ``None``: it is of none of ``onnxplug_kernels``, and
    nothing is known of the operator.

    Args:
        kinds: numbers of kinds, the same for all calls of the partition; grows.
    """
    defaults = {} if kernel is None else attribute_defaults(kernel.function)
    call = Call(
        node.op_type,
        node.domain,
        partition.graph.opset(node.domain),
        tuple(node.inputs),
        tuple(node.outputs),
        {**defaults, **node.attributes},
        (node.index,),
        tuple(numpy_dtype(partition, name) for name in node.outputs),
        function,
        functools.partial(partition.infer, node),
    )
    signature = (
        call.domain,
        call.op_type,
        tuple(node.attributes.items()),
        tuple(name is None for name in call.inputs),
        call.dtypes,
    )
    try:
        call.kind = kinds.setdefault(signature, len(kinds))
    except TypeError:  # an array, say
        call.kind = None
    return call


def numpy_dtype(partition: ep.Partition, name: str | None) -> np.dtype[Any] | None:
    """The dtype of a value that is a tensor; ``None`` when that is not known."""
    if name is None:
        return None
    dtype = partition.value(name).dtype
    return None if dtype is None else dtype.numpy


_known_defaults: dict[Callable[..., Any], dict[str, Any]] = {}


def attribute_defaults(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The attributes of a kernel of the array tier that have defaults, and these."""
    if function not in _known_defaults:
        _known_defaults[function] = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
            and parameter.default is not parameter.empty
        }
    return _known_defaults[function]


_FEW: Final = 64
"""Elements of contents that are compared, rather than where they are."""

# asked for at every input of every call, and numpy takes a while to name a dtype
data_type = functools.cache(ep.DataType.from_numpy)


class Abstract:
    """What is known of a value when a plan is made; it never changes.

    Attributes:
        dtype: the elements' dtype.
        shape: the sizes.
        content: the value itself, if it is known: a constant, or what follows from
            shapes.  Never written to.
        varies: the content follows from the shapes of inputs, and may be another one
            in another plan.
        load: gives the content of a large constant, where a question is worth it.
    """

    __slots__ = ("_facts", "_key", "content", "dtype", "load", "shape", "varies")

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        content: np.ndarray[Any, Any] | None = None,
        varies: bool = False,
        facts: ep.TensorFacts | None = None,
        load: Callable[[], np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self.load: Final = load
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.content: Final = content
        self.varies: Final = varies
        self._facts = facts
        self._key: Hashable = None

    def __repr__(self) -> str:
        return f"Abstract({self.dtype}, {self.shape}, {self.content})"

    @property
    def key(self) -> Hashable:
        """Equal only for values from which the same follows, while these are kept."""
        if self._key is None:
            self._key = self._made_key()
        return self._key

    def _made_key(self) -> Hashable:
        content = self.content
        if content is not None:
            if content.dtype.hasobject:
                return id(content)
            if content.size <= _FEW:
                return self.dtype, self.shape, content.tobytes()
            if content.ndim < 2 and content.dtype.kind in "iub":
                return id(content)  # sizes, of which rules read any number
        return self.dtype, self.shape

    @property
    def is_exact(self) -> bool:
        """Whether the key is that of this content alone."""
        content = self.content
        return (
            content is None
            or content.size <= _FEW
            or content.dtype.hasobject
            or (content.ndim < 2 and content.dtype.kind in "iub")
        )

    @property
    def size(self) -> int:
        """How many elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def facts(self) -> ep.TensorFacts:
        """The same, as rules take it."""
        if self._facts is None:
            dtype = data_type(self.dtype)
            self._facts = ep.TensorFacts(dtype, self.shape, self.content)
        return self._facts

    @classmethod
    def following(cls, facts: ep.TensorFacts, dtype: np.dtype[Any]) -> Abstract:
        """What *facts* say of a value of *dtype*."""
        shape, content = facts.shape, facts.content
        return cls(dtype, shape, content, content is not None, facts)

    @classmethod
    def known(cls, content: np.ndarray[Any, Any], *, varies: bool = False) -> Abstract:
        """A value whose content is known."""
        return cls(content.dtype, content.shape, content, varies)


def integers(call: Call, value: Abstract | None, what: str, rank: int = 1) -> list[int]:
    """The content of a tensor of integers of *rank*.

    Raises:
        NotCompiled: it is not known when the plan is made, or is no such tensor.
    """
    if value is None or value.content is None:
        raise NotCompiled(f"{what} of {call.op_type} is not known", call)
    if value.dtype.kind not in "iu" or value.content.ndim != rank:
        raise NotCompiled(
            f"{what} of {call.op_type} is {value.dtype}{list(value.shape)}; "
            f"expected integers of rank {rank}",
            call,
        )
    numbers: list[int] = value.content.reshape(-1).tolist()
    return numbers


def integer(call: Call, value: Abstract | None, what: str) -> int:
    """The content of a tensor of one integer, of rank 0 or 1.

    Raises:
        NotCompiled: it is not known when the plan is made, or is no such tensor.
    """
    (number,) = integers(call, value, what, 0 if value and not value.shape else 1)
    return number


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether an array of *shape* can be repeated to one of *target*."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(
        size in (1, wanted) for size, wanted in zip(shape, target[lead:], strict=True)
    )


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape by ONNX's multidirectional broadcasting.

    Raises:
        NotCompiled: there is none; the array tier then says so in its own words.
    """
    if shapes and all(shape == shapes[0] for shape in shapes[1:]):
        return tuple(shapes[0])
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    raise NotCompiled(f"shapes {list(shapes)} do not broadcast")
                result[axis] = size
    return tuple(result)
