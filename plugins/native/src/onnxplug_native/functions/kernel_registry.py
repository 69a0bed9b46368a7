"""The kernels that an EP of a library registers, and which of them a node gets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_native.functions.node import NodeView, schema_of
from onnxplug_native.functions.types import element_number, element_type
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import ints, pointers, put_int, put_pointer

_LATEST: Final = 2**31 - 1
"""The last version of a kernel that is for no later version of its operator."""

_MOST_ALIASES: Final = 1 << 10
"""More arguments no operator has whose outputs have the content of inputs."""

_DEFAULT_MEMORY: Final = 0
"""The EP's own; what is less is the host's."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which nodes a kernel is for.

    Attributes:
        op_type: the operator.
        domain: its domain.
        since: the first version of the operator.
        until: the last one.
        ep: the EP's name.
        types: for a type variable or argument of the operator, the numbers of the
            element types that it may have.
        input_memory: where inputs are wanted, if not in the EP's memory.
        output_memory: where outputs are left, if not there.
        aliases: for an output the input whose content it has, as that of a Reshape.
    """

    op_type: str = ""
    domain: str = ""
    since: int = 1
    until: int = _LATEST
    ep: str = ""
    types: dict[str, frozenset[int]] = field(default_factory=dict)
    input_memory: dict[int, int] = field(default_factory=dict)
    output_memory: dict[int, int] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)

    def hosted_inputs(self) -> set[int]:
        """The inputs that the kernel wants on the host."""
        return {index for index, kind in self.input_memory.items() if kind < 0}

    def hosted_outputs(self) -> set[int]:
        """The outputs that the kernel leaves on the host."""
        return {index for index, kind in self.output_memory.items() if kind < 0}

    def fits(self, view: NodeView) -> bool:
        """Whether it is for the node of *view*."""
        node = view.node
        version = view.since_version
        return (
            (self.op_type, self.domain) == (node.op_type, node.domain)
            and (
                version == self.since
                if self.until == _LATEST
                else self.since <= version <= self.until
            )
            and all(
                number in allowed
                for name, allowed in self.types.items()
                for number in _numbers(view, name)
            )
        )


def _numbers(view: NodeView, name: str) -> list[int]:
    """The element types of the arguments of a node that *name* is about."""
    node = view.node
    schema = schema_of(node.op_type, node.domain, view.since_version)
    if schema is None:
        return []
    numbers = []
    for values, formals in (
        (node.inputs, list(schema.inputs)),
        (node.outputs, list(schema.outputs)),
    ):
        for place, value in enumerate(values):
            # the last argument may stand for several
            formal = formals[min(place, len(formals) - 1)] if formals else None
            if value and formal and name in (formal.type_str, formal.name):
                numbers.append(element_number(_dtype(view.graph.info(value).type)))
    return numbers


def _dtype(type: ep.ValueType | None) -> ep.DataType | None:
    while isinstance(type, ep.SequenceType | ep.OptionalType):
        type = type.element
    if isinstance(type, ep.TensorType | ep.SparseTensorType):
        return type.dtype
    return None


class RuleBuilder(Handle):
    """A rule that a library is writing.

    Attributes:
        rule: what it says up to now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rule = Rule()


class KernelDefinition(Handle):
    """A rule as libraries know it.

    Attributes:
        rule: it.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule


class Kernel(Record):
    """A kernel that is registered.

    Attributes:
        definition: which nodes it is for.
        create: the address of the function that makes one for a node.
        state: what that function is given.
    """

    definition: KernelDefinition
    create: int
    state: int | None


class KernelRegistry(Handle):
    """The kernels of an EP.

    Attributes:
        kernels: in the order in which they were registered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self._by_operator: dict[tuple[str, str], list[Kernel]] = {}

    def add(self, kernel: Kernel) -> None:
        """Register *kernel*."""
        self.kernels.append(kernel)
        rule = kernel.definition.rule
        self._by_operator.setdefault((rule.op_type, rule.domain), []).append(kernel)

    def find(self, view: NodeView) -> Kernel | None:
        """The kernel for the node of *view*; ``None`` if there is none."""
        known = self._by_operator.get((view.node.op_type, view.node.domain), ())
        for kernel in known:
            if kernel.definition.rule.fits(view):
                return kernel
        return None

    def release(self) -> None:
        """Release it and what is registered."""
        for kernel in self.kernels:
            kernel.definition.release()
        super().release()


class DataType(Handle):
    """A type of tensors; there is one of each, for ever.

    Attributes:
        number: of the element type.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@functools.cache
def data_type(number: int) -> DataType:
    """The type of tensors of an element type."""
    element_type(number)
    return DataType(number)


@implements("GetTensorDataType", "OrtEpApi")
def get_tensor_data_type(number: int, out: int) -> None:
    """The type of tensors of an element type, which lives for ever."""
    put_pointer(out, data_type(number))


@implements("CreateKernelRegistry", "OrtEpApi")
def create_kernel_registry(out: int) -> None:
    """No kernels yet."""
    put_pointer(out, KernelRegistry())


@implements("KernelRegistry_AddKernel", "OrtEpApi")
def add_kernel(registry: int, definition: int, create: int, state: int | None) -> None:
    """A kernel, with a copy of its definition."""
    if not create:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, "the function that makes it is null"
        )
    rule = find(KernelDefinition, definition).rule
    kernel = Kernel(KernelDefinition(rule), create, state)
    find(KernelRegistry, registry).add(kernel)


@implements("CreateKernelDefBuilder", "OrtEpApi")
def create_kernel_def_builder(out: int) -> None:
    """A rule that says nothing yet."""
    put_pointer(out, RuleBuilder())


def _say(builder: int, **said: Any) -> None:
    found = find(RuleBuilder, builder)
    found.rule = replace(found.rule, **said)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


@implements("KernelDefBuilder_SetOperatorType", "OrtEpApi")
def set_operator_type(builder: int, name: bytes | None) -> None:
    """The operator."""
    _say(builder, op_type=_text(name))


@implements("KernelDefBuilder_SetDomain", "OrtEpApi")
def set_domain(builder: int, name: bytes | None) -> None:
    """The operator's domain; ONNX's own has two names."""
    domain = _text(name)
    _say(builder, domain="" if domain == "ai.onnx" else domain)


@implements("KernelDefBuilder_SetSinceVersion", "OrtEpApi")
def set_since_version(builder: int, first: int, last: int) -> None:
    """The versions of the operator."""
    if not 0 < first <= last:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"{first} to {last} are no versions of an operator"
        )
    _say(builder, since=first, until=last)


@implements("KernelDefBuilder_SetExecutionProvider", "OrtEpApi")
def set_execution_provider(builder: int, name: bytes | None) -> None:
    """The EP."""
    _say(builder, ep=_text(name))


@implements("KernelDefBuilder_SetInputMemType", "OrtEpApi")
def set_input_memory(builder: int, index: int, kind: int) -> None:
    """Where an input is wanted."""
    memory = find(RuleBuilder, builder).rule.input_memory
    _say(builder, input_memory={**memory, index: kind})


@implements("KernelDefBuilder_SetOutputMemType", "OrtEpApi")
def set_output_memory(builder: int, index: int, kind: int) -> None:
    """Where an output is left."""
    memory = find(RuleBuilder, builder).rule.output_memory
    _say(builder, output_memory={**memory, index: kind})


@implements("KernelDefBuilder_AddTypeConstraint", "OrtEpApi")
def add_type_constraint(
    builder: int, name: bytes | None, types: int, count: int
) -> None:
    """The element types that a type variable may stand for."""
    given = pointers(types, count, len(ep.DataType), "element types")
    numbers = {find(DataType, each).number for each in given}
    known = find(RuleBuilder, builder).rule.types
    _say(builder, types={**known, _text(name): frozenset(numbers)})


@implements("KernelDefBuilder_AddInputOutputAliases", "OrtEpApi")
def add_aliases(
    builder: int, inputs: int | None, outputs: int | None, count: int
) -> None:
    """Which outputs have the content of an input, and are left in its memory."""
    known = find(RuleBuilder, builder).rule.aliases
    pairs = zip(
        ints(outputs, count, _MOST_ALIASES, "outputs"),
        ints(inputs, count, _MOST_ALIASES, "inputs"),
        strict=True,
    )
    _say(builder, aliases={**known, **dict(pairs)})


@implements("KernelDefBuilder_AddInputOutputMutableAliases", "OrtEpApi")
def add_mutable_aliases(builder: int, _: int, __: int, ___: int) -> None:
    """Which outputs may be left in an input's memory: they have their own."""
    find(RuleBuilder, builder)


@implements("KernelDefBuilder_Build", "OrtEpApi")
def build_kernel_def(builder: int, out: int) -> None:
    """What was said, which the library releases."""
    put_pointer(out, KernelDefinition(find(RuleBuilder, builder).rule))


def _define(entry: str, read: Callable[[Rule], str]) -> None:
    @implements(entry, "OrtEpApi")
    def get_text(definition: int) -> int:
        found = find(KernelDefinition, definition)
        return found.text(read(found.rule))


_define("KernelDef_GetOperatorType", lambda rule: rule.op_type)
_define("KernelDef_GetDomain", lambda rule: rule.domain)
_define("KernelDef_GetExecutionProvider", lambda rule: rule.ep)


@implements("KernelDef_GetSinceVersion", "OrtEpApi")
def get_since_version(definition: int, first: int, last: int) -> None:
    """The versions of the operator."""
    rule = find(KernelDefinition, definition).rule
    put_int(first, rule.since)
    put_int(last, rule.until)


@implements("KernelDef_GetInputMemType", "OrtEpApi")
def get_input_memory(definition: int, index: int, out: int) -> None:
    """Where an input is wanted."""
    rule = find(KernelDefinition, definition).rule
    put_int(out, rule.input_memory.get(index, _DEFAULT_MEMORY))


@implements("KernelDef_GetOutputMemType", "OrtEpApi")
def get_output_memory(definition: int, index: int, out: int) -> None:
    """Where an output is left."""
    rule = find(KernelDefinition, definition).rule
    put_int(out, rule.output_memory.get(index, _DEFAULT_MEMORY))
