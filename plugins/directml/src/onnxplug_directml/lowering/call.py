"""A node as the rules of operators see it, and where rules are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.attributes import is_of, kinds_of
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Shape, Value

MICROSOFT: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


class Surroundings(Protocol):
    """What is known of the values around a node."""

    def operand(self, name: str) -> Value:
        """The graph's value.

        Raises:
            Refused: it can have none.
        """

    def content(self, name: str) -> Any | None:
        """The array that a value always is; ``None`` if it is not known."""

    def shape(self, name: str) -> Shape:
        """The sizes of a value.

        Raises:
            Refused: they are not known.
        """

    def dtype(self, name: str) -> ep.DataType:
        """ONNX's element type of a value.

        Raises:
            Refused: it is not known.
        """


class Call:
    """One node to be lowered.

    Attributes:
        since: the version of the operator.
        build: where nodes are written.
    """

    def __init__(
        self, node: ep.Node, build: Builder, surroundings: Surroundings
    ) -> None:
        self.op_type: Final = node.op_type
        self.since: Final = node.since_version
        self.build: Final = build
        self._node = node
        self._around = surroundings
        self._read: set[str] = set()

    # inputs

    @property
    def input_count(self) -> int:
        """How many inputs there are, with those left out in between."""
        return len(self._node.inputs)

    def has(self, position: int) -> bool:
        """Whether an input is there."""
        names = self._node.inputs
        return position < len(names) and names[position] is not None

    def operand(self, position: int) -> Value:
        """An input; it is packed.

        Raises:
            Refused: it is left out, or of a type that DirectML lacks.
        """
        return self._around.operand(self._name(position))

    def optional(self, position: int) -> Value | None:
        """An input, or ``None`` if it is left out."""
        return self.operand(position) if self.has(position) else None

    def operands(self) -> list[Value]:
        """All inputs."""
        return [self.operand(position) for position in range(self.input_count)]

    def shape(self, position: int) -> Shape:
        """The sizes of an input."""
        return self._around.shape(self._name(position))

    def dtype(self, position: int = 0) -> ep.DataType:
        """ONNX's element type of an input."""
        return self._around.dtype(self._name(position))

    def content(self, position: int) -> Any:
        """The array that an input always is.

        Raises:
            Refused: that is not known before runs.
        """
        found = self.known(position)
        if found is None:
            raise Refused(
                ep.RefusalCode.NOT_CONSTANT,
                f"input {position} ({self._name(position)!r}) is computed; takes "
                "constants and what follows from sizes",
            )
        return found

    def known(self, position: int) -> Any | None:
        """The array that an input always is, or ``None``."""
        name = self._name(position)
        shape = self._around.shape(name)
        if 0 in shape:  # a list of no axes, say
            return np.empty(shape, self._around.dtype(name).numpy)
        return self._around.content(name)

    def integers(self, position: int) -> list[int]:
        """What an input always is, as numbers, whatever its rank."""
        return [int(number) for number in self.content(position).reshape(-1)]

    def _name(self, position: int) -> str:
        name = self._node.inputs[position] if self.has(position) else None
        if name is None:
            raise Refused(ep.RefusalCode.OTHER, f"input {position} is left out")
        return name

    def input_name(self, position: int) -> str:
        """What an input is called in the model."""
        return self._name(position)

    # outputs

    @property
    def output_count(self) -> int:
        """How many outputs there are, up to the last that is wanted."""
        wanted = [i for i, name in enumerate(self._node.outputs) if name]
        return wanted[-1] + 1 if wanted else 0

    def wants(self, position: int) -> bool:
        """Whether anybody wants an output."""
        return position < self.output_count and bool(self._node.outputs[position])

    def output_shape(self, position: int = 0) -> Shape:
        """The sizes of an output."""
        return self._around.shape(self._output(position))

    def output_dtype(self, position: int = 0) -> ep.DataType:
        """ONNX's element type of an output."""
        return self._around.dtype(self._output(position))

    def result(self, position: int = 0) -> Result:
        """An output, as a node of the graph is to make it."""
        return Result(self.output_dtype(position), self.output_shape(position))

    def _output(self, position: int) -> str:
        name = self._node.outputs[position]
        assert name is not None
        return name

    # attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, or ONNX's *default* of it.

        Raises:
            Refused: it is of another kind than ONNX has it.
        """
        self._read.add(name)
        kinds = kinds_of(self.op_type, name)
        found = self._node.attributes.get(name)
        if found is None:
            return default
        if not any(is_of(found, kind) for kind in kinds):
            raise self.refuse_attribute(name, " or ".join(kinds))
        return found

    def required(self, name: str) -> Any:
        """An attribute that has no default.

        Raises:
            Refused: it is left out, or of another kind.
        """
        found = self.attribute(name)
        if found is None:
            raise Refused(ep.RefusalCode.ATTRIBUTE, f"{name} is left out")
        return found

    def count(self, name: str) -> int:
        """An attribute that is a number of things, without a default.

        Raises:
            Refused: it is left out, or less than 1.
        """
        found: int = self.required(name)
        if found < 1:
            raise self.refuse_attribute(name, "1 or more")
        return found

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self._read.update(names)

    def refuse_unread(self) -> None:
        """Refuse attributes that the rule did not ask for: it knows nothing of them.

        Raises:
            Refused: there is such an attribute.
        """
        unread = set(self._node.attributes) - self._read - {"consumed_inputs"}
        if unread:
            raise Refused(
                ep.RefusalCode.ATTRIBUTE, f"{', '.join(sorted(unread))} is not taken"
            )

    def axis(self, rank: int, default: int | None = 0, name: str = "axis") -> int:
        """An attribute that is an axis, counted from the front."""
        return front(self.attribute(name, default), rank)

    def refuse_attribute(self, name: str, takes: str) -> Refused:
        """The refusal of an attribute's value."""
        found = self._node.attributes.get(name)
        return Refused(ep.RefusalCode.ATTRIBUTE, f"{name} is {found!r}; takes {takes}")

    def require_rank(self, position: int, *ranks: int) -> None:
        """Refuse an input with another number of dimensions than *ranks*."""
        found = len(self.shape(position))
        if found not in ranks:
            raise Refused(
                ep.RefusalCode.RANK,
                f"{self._name(position)!r} has {found} dimensions; takes "
                f"{' or '.join(map(str, ranks))}",
            )

    def require_type(self, position: int, *types: ep.DataType) -> None:
        """Refuse an input of another type than *types*."""
        found = self.dtype(position)
        if found not in types:
            raise Refused(
                ep.RefusalCode.DTYPE,
                f"{self._name(position)!r} is {found}; takes {', '.join(types)}",
            )


def front(axis: int, rank: int) -> int:
    """*axis* counted from the front.

    Raises:
        Refused: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Refused(ep.RefusalCode.ATTRIBUTE, f"axis {axis} of {rank} dimensions")
    return axis % rank


Rule: TypeAlias = Callable[[Call], "Value | Sequence[Value | None]"]
"""Lowers a node: its outputs, of which those that nobody wants may be ``None``.

Inputs are packed and have at least one element.  Outputs have the shapes and types that
the model states; those with strides of their own are packed by who calls the rule.
"""

RULES: Final[dict[tuple[str, str], Rule]] = {}
"""By domain and operator."""


_R = TypeVar("_R", bound=Rule)


def lowers(*op_types: str, domain: str = "") -> Callable[[_R], _R]:
    """Declare a function to be the rule of operators."""

    def declare(rule: _R) -> _R:
        for op_type in op_types:
            assert (domain, op_type) not in RULES, op_type
            RULES[domain, op_type] = rule
        return rule

    return declare


FLOATS: Final = (ep.DataType.FLOAT32, ep.DataType.FLOAT16)
