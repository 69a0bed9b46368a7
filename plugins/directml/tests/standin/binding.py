"""Binding tables: which ranges of buffers a dispatch reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import definitions
from .com import ComObject, object_at
from .decoding import MINIMUM_ALIGNMENT
from .descriptors import DescriptorHeap, range_of
from .dispatch import (
    ALIGNMENT,
    Bound,
    CompiledOperator,
    Dispatchable,
    OperatorInitializer,
)
from .graph import GraphInput
from .memory import DEFAULT, UPLOAD, Resource
from .results import Invalid

if TYPE_CHECKING:
    from .directml import DmlDevice

NONE, BUFFER, BUFFER_ARRAY = 0, 1, 2
"""Types of bindings."""


@dataclass(frozen=True, eq=False)
class Bindings:
    """What a table has bound; for an initializer inputs are those of all operators."""

    inputs: tuple[Bound | None, ...] = ()
    outputs: tuple[Bound | None, ...] = ()
    temporary: Bound | None = None
    persistent: Bound | None = None

    def ranges(self) -> Iterator[Bound]:
        """All that is bound."""
        found = *self.inputs, *self.outputs, self.temporary, self.persistent
        return (bound for bound in found if bound is not None)

    def complete(self, dispatchable: Dispatchable) -> None:
        """Checks that all is bound that has to be, and nothing that must not.

        Raises:
            Invalid: it is not so.
        """
        if dispatchable.temporary_size and self.temporary is None:
            raise Invalid(
                f"{dispatchable} needs a temporary resource of "
                f"{dispatchable.temporary_size} bytes, and none is bound"
            )
        if dispatchable.persistent_size and self.persistent is None:
            raise Invalid(
                f"{dispatchable} needs a persistent resource of "
                f"{dispatchable.persistent_size} bytes, and none is bound"
            )
        if isinstance(dispatchable, CompiledOperator):
            self._complete_execution(dispatchable)
        elif isinstance(dispatchable, OperatorInitializer):
            self._complete_initialization(dispatchable)
        self._apart()

    def _complete_execution(self, operator: CompiledOperator) -> None:
        graph = operator.graph
        if len(self.inputs) != len(graph.inputs):
            raise Invalid(f"{len(self.inputs)} of {len(graph.inputs)} inputs are bound")
        for i, (found, bound) in enumerate(zip(graph.inputs, self.inputs, strict=True)):
            if found.tensors and not found.owned and bound is None:
                raise Invalid(f"input {i} of {operator} is not bound")
        if len(self.outputs) != len(graph.outputs):
            raise Invalid(
                f"{len(self.outputs)} of {len(graph.outputs)} outputs are bound"
            )
        for i, (place, bound) in enumerate(
            zip(graph.outputs, self.outputs, strict=True)
        ):
            if graph.nodes[place[0]].outputs[place[1]] is not None and bound is None:
                raise Invalid(f"output {i} of {operator} is not bound")

    def _complete_initialization(self, initializer: OperatorInitializer) -> None:
        wanted = [
            (operator, i, found)
            for operator in initializer.operators
            for i, found in enumerate(operator.graph.inputs)
        ]
        inputs = self.inputs or (None,) * len(wanted)
        for (operator, i, found), bound in zip(wanted, inputs, strict=True):
            if found.owned and bound is None:
                raise Invalid(
                    f"input {i} of {operator} is OWNED_BY_DML and not bound when it is "
                    "initialised"
                )
        outputs = self.outputs or (None,) * len(initializer.operators)
        for operator, bound in zip(initializer.operators, outputs, strict=True):
            if operator.persistent_size and bound is None:
                raise Invalid(f"the persistent resource of {operator} is not bound")

    def _apart(self) -> None:
        read = {bound.resource for bound in self.inputs if bound}
        written = [bound for bound in self.outputs if bound]
        for bound in written:
            if bound.resource in read:
                raise Invalid(f"{bound.resource} is bound for input and for output")
        others = [b for b in (self.temporary, self.persistent) if b]
        every = [*written, *others]
        for i, bound in enumerate(every):
            beside = [*every[i + 1 :], *(b for b in self.inputs if b)]
            for other in beside:
                if bound.access("").meets(other.access("")):
                    raise Invalid(
                        f"{bound.resource} is bound for two purposes, of which one "
                        f"writes, from {bound.offset} and from {other.offset} on"
                    )


class BindingTable(ComObject):
    """Writes descriptors of what is bound into a range of a heap."""

    INTERFACE = "IDMLBindingTable"
    HELD = False  # the heap has the descriptors

    def __init__(self, dml: DmlDevice, desc: Any) -> None:
        super().__init__(dml.windows, dml)
        self.dml = dml
        self.device = dml.device
        self.dispatchable: Dispatchable | None = None
        try:
            self._wrap(desc)
        except Invalid:
            self.Release()
            raise

    def GetDevice(self, riid: Any, place: Any) -> int | None:
        return self.dml.QueryInterface(riid, place)

    def _wrap(self, desc: Any) -> None:
        former, self.dispatchable = self.dispatchable, None
        try:
            self._refer(desc)
        finally:
            if former is not None:  # which may be the same
                former.Release()

    def _refer(self, desc: Any) -> None:
        self.bindings = Bindings()
        self.gpu: tuple[DescriptorHeap, int] | None = None
        self.cpu: tuple[DescriptorHeap, int] | None = None
        self.count = 0
        if not desc:
            return
        found = desc.contents
        address = found.Dispatchable.value
        dispatchable = object_at(address, Dispatchable, "the dispatchable")
        if dispatchable.dml is not self.dml:
            raise Invalid(f"{dispatchable} is of another device")
        count = found.SizeInDescriptors
        if count < dispatchable.descriptor_count:
            raise Invalid(
                f"{dispatchable} needs {dispatchable.descriptor_count} descriptors, "
                f"not {count}"
            )
        if count:
            device = self.device
            self.cpu = range_of(device, found.CPUDescriptorHandle.ptr, count, False)
            self.gpu = range_of(device, found.GPUDescriptorHandle.ptr, count, True)
        self.count = count
        self.dispatchable = dispatchable
        dispatchable.references += 1

    def Reset(self, desc: Any) -> None:
        self.dml.present()
        self._wrap(desc)

    def dispose(self) -> None:
        if self.dispatchable is not None:
            self.dispatchable.Release()

    def failed(self, failure: Invalid) -> None:
        self.dml.lose(failure.result)

    def _bind(self, **changes: Any) -> None:
        if self.dml.removed or self.device.removed:
            return
        self.bindings = replace(self.bindings, **changes)
        if self.cpu is not None:
            self.cpu[0].write(self.cpu[1], self.count, self.bindings)

    def _target(self) -> Dispatchable:
        if self.dispatchable is None:
            raise Invalid("the table is for no dispatchable")
        if self.dispatchable.destroyed:
            raise Invalid(f"{self.dispatchable} was released")
        return self.dispatchable

    def BindInputs(self, count: int, bindings: Any) -> None:
        target = self._target()
        if not count:
            self._bind(inputs=())
            return
        if not bindings:
            raise Invalid(f"there are {count} bindings, of which the array is null")
        found = [bindings[i] for i in range(count)]
        if isinstance(target, CompiledOperator):
            if count != len(target.graph.inputs):
                raise Invalid(
                    f"{count} bindings for {len(target.graph.inputs)} inputs of "
                    f"{target}"
                )
            pairs = enumerate(zip(target.graph.inputs, found, strict=True))
            self._bind(inputs=tuple(self._input(i, g, b) for i, (g, b) in pairs))
        elif isinstance(target, OperatorInitializer):
            self._bind(inputs=tuple(self._initial(target, found)))

    def _input(self, index: int, wanted: GraphInput, desc: Any) -> Bound | None:
        what = f"input {index}"
        bound = self._buffer(what, desc, wanted.size, wanted.alignment, (DEFAULT,))
        if bound is not None and wanted.owned:
            raise Invalid(
                f"{what} is OWNED_BY_DML: it is bound at initialisation, not when the "
                "operator is executed"
            )
        return bound

    def _initial(
        self, target: OperatorInitializer, found: list[Any]
    ) -> Iterator[Bound | None]:
        if len(found) != len(target.operators):
            raise Invalid(
                f"{len(found)} bindings for {len(target.operators)} operators"
            )
        array = definitions.find("DML_BUFFER_ARRAY_BINDING")
        for operator, desc in zip(target.operators, found, strict=True):
            inputs = operator.graph.inputs
            if desc.Type == NONE:
                yield from (None for _ in inputs)
                continue
            if desc.Type != BUFFER_ARRAY or not desc.Desc:
                raise Invalid(
                    f"inputs of an initializer are arrays of buffers, not of the type "
                    f"{desc.Type}"
                )
            ranges = array.from_address(desc.Desc)
            if ranges.BindingCount == 0:
                yield from (None for _ in inputs)
                continue
            if ranges.BindingCount != len(inputs) or not ranges.Bindings:
                raise Invalid(
                    f"{ranges.BindingCount} buffers for {len(inputs)} inputs of "
                    f"{operator}"
                )
            for i, wanted in enumerate(inputs):
                yield self._owned(i, wanted, ranges.Bindings[i])

    def _owned(self, index: int, wanted: GraphInput, binding: Any) -> Bound | None:
        what = f"input {index} at initialisation"
        kinds = (DEFAULT, UPLOAD)
        bound = self._range(what, binding, wanted.size, wanted.alignment, kinds)
        if bound is not None and not wanted.owned:
            raise Invalid(
                f"{what} is not OWNED_BY_DML: it is bound when the operator is executed"
            )
        return bound

    def BindOutputs(self, count: int, bindings: Any) -> None:
        target = self._target()
        if not count:
            self._bind(outputs=())
            return
        if not bindings:
            raise Invalid(f"there are {count} bindings, of which the array is null")
        wanted: list[tuple[int, int]]
        if isinstance(target, OperatorInitializer):
            wanted = [(o.persistent_size, ALIGNMENT) for o in target.operators]
        else:
            assert isinstance(target, CompiledOperator)
            tensors = [
                target.graph.nodes[n].outputs[o] for n, o in target.graph.outputs
            ]
            wanted = [(t.total_bytes, t.alignment) if t else (0, 0) for t in tensors]
        if count != len(wanted):
            raise Invalid(f"{count} bindings for {len(wanted)} outputs of {target}")
        self._bind(
            outputs=tuple(
                self._buffer(f"output {i}", bindings[i], size, alignment, (DEFAULT,))
                for i, (size, alignment) in enumerate(wanted)
            )
        )

    def BindTemporaryResource(self, binding: Any) -> None:
        size = self._target().temporary_size
        self._bind(temporary=self._resource("the temporary resource", binding, size))

    def BindPersistentResource(self, binding: Any) -> None:
        size = self._target().persistent_size
        self._bind(persistent=self._resource("the persistent resource", binding, size))

    def _resource(self, what: str, binding: Any, size: int) -> Bound | None:
        if not binding:
            return None
        return self._buffer(what, binding.contents, size, ALIGNMENT, (DEFAULT,))

    def _buffer(
        self, what: str, desc: Any, size: int, alignment: int, kinds: tuple[int, ...]
    ) -> Bound | None:
        if desc.Type == NONE:
            return None
        if desc.Type != BUFFER or not desc.Desc:
            raise Invalid(f"{what} is bound as the type {desc.Type}, not as a buffer")
        found = definitions.find("DML_BUFFER_BINDING").from_address(desc.Desc)
        return self._range(what, found, size, alignment, kinds)

    def _range(
        self, what: str, found: Any, size: int, alignment: int, kinds: tuple[int, ...]
    ) -> Bound | None:
        if not found.Buffer.value:
            if found.SizeInBytes:
                raise Invalid(f"{what}: {found.SizeInBytes} bytes of no buffer")
            return None
        if not size:
            raise Invalid(f"{what}: nothing is to be bound there, and a buffer is")
        resource = object_at(found.Buffer.value, Resource, f"the buffer of {what}")
        if resource.device is not self.device:
            raise Invalid(f"{what}: {resource} is of another device")
        if resource.kind not in kinds:
            raise Invalid(
                f"{what}: {resource} is on a heap of type {resource.kind}; it has to "
                "be D3D12_HEAP_TYPE_DEFAULT"
            )
        if resource.kind == DEFAULT and not resource.unordered:
            raise Invalid(f"{what}: {resource} does not allow unordered access")
        offset, length = found.Offset, found.SizeInBytes
        if offset + length > resource.size:
            raise Invalid(f"{what}: {length} bytes at {offset} of {resource.size}")
        aligned = max(alignment, MINIMUM_ALIGNMENT)
        if offset % aligned:
            raise Invalid(f"{what}: offset {offset} is no multiple of {aligned}")
        if length % 4:
            raise Invalid(f"{what}: {length} bytes are no multiple of 4")
        if length < size:
            raise Invalid(f"{what}: {length} bytes are bound, and {size} are needed")
        return Bound(resource, offset, size)
