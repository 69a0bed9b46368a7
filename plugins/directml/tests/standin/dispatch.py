"""Compiled operators and initializers, and what a GPU does when it executes them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import definitions
from .com import ComObject, addresses, object_at
from .commands import Command
from .execution import Region, run
from .graph import Graph
from .memory import UPLOAD, Resource
from .results import Invalid
from .states import GENERIC_READ, UNORDERED_ACCESS, Access, Timeline

if TYPE_CHECKING:
    from .binding import Bindings
    from .descriptors import DescriptorHeap
    from .directml import DmlDevice

DESCRIPTORS_VOLATILE = 4
EXECUTION_FLAGS = 7
ALIGNMENT = 256
"""Of temporary and persistent resources."""

_HEADER = 32


@dataclass(frozen=True)
class Bound:
    """A range of a buffer that is bound, of which ``size`` bytes are used."""

    resource: Resource
    offset: int
    size: int

    @property
    def region(self) -> Region:
        """Its bytes."""
        part = slice(self.offset, self.offset + self.size)
        return Region(self.resource.data[part], self.resource.written[part])

    def access(self, what: str) -> Access:
        """Its bytes, for hazards."""
        return Access(self.resource, self.offset, self.size, what)


class Dispatchable(ComObject):
    """An object that can be dispatched.

    Attributes:
        flags: bits of ``DML_EXECUTION_FLAGS``.
        temporary_size: bytes of scratch memory.
        descriptor_count: descriptors that a binding table for it has.
    """

    persistent_size = 0

    def __init__(self, dml: DmlDevice) -> None:
        super().__init__(dml.windows, dml)
        self.dml = dml
        self.device = dml.device
        self.flags = 0
        self.temporary_size = 0
        self.descriptor_count = 0

    def GetDevice(self, riid: Any, place: Any) -> int | None:
        return self.dml.QueryInterface(riid, place)

    def GetBindingProperties(self) -> Any:
        found = definitions.find("DML_BINDING_PROPERTIES")
        return found(self.descriptor_count, self.temporary_size, self.persistent_size)


class CompiledOperator(Dispatchable):
    """A graph, or one operator, that can be executed once it is initialised."""

    INTERFACE = "IDMLCompiledOperator"

    def __init__(self, dml: DmlDevice, graph: Graph, flags: int) -> None:
        super().__init__(dml)
        self.graph = graph
        self.flags = flags
        self.state: tuple[Bound | None, int] | None = None
        spare = self.windows.spare
        self.places: dict[int, int] = {}
        end = _HEADER
        for i, found in enumerate(graph.inputs):
            if found.owned:
                self.places[i] = -(-end // ALIGNMENT) * ALIGNMENT
                end = self.places[i] + found.size
        self.persistent_size = end + spare if self.places else 0
        between = {p: graph.output(p) for p in graph.from_node.values()}
        scratch = sum(t.total_bytes for t in between.values())
        self.temporary_size = scratch + spare if scratch else 0
        self.descriptor_count = len(graph.inputs) + len(graph.outputs) + 3

    def initialize(self, inputs: dict[int, Bound], persistent: Bound | None) -> None:
        """Copies what DirectML owns, on the GPU.

        Raises:
            Invalid: it is initialised already.
        """
        if self.state is not None:
            raise Invalid(f"{self} is initialised twice")
        self.windows.counts.initializations += 1
        checksum = 0
        if persistent is not None:
            region = persistent.region
            region.spoil()
            region.data[:8] = np.frombuffer(id(self).to_bytes(8, "little"), np.uint8)
            for i, start in self.places.items():
                source = inputs[i].region
                part = slice(start, start + len(source.data))
                Region(region.data[part], region.written[part]).copy_from(source)
            region.written[:_HEADER] = True
            checksum = zlib.crc32(region.data.data)
        self.state = persistent, checksum

    def execute(self, bindings: Bindings) -> None:
        """Computes the outputs, on the GPU.

        Raises:
            Invalid: it was not initialised, or its persistent resource was changed.
        """
        if self.state is None:
            raise Invalid(f"{self} is executed before it is initialised")
        first, checksum = self.state
        found = bindings.persistent
        if self.persistent_size:
            assert first is not None and found is not None
            here = found.resource, found.offset
            if here != (first.resource, first.offset):
                raise Invalid(
                    f"{self} was initialised with another persistent resource: what is "
                    "in one cannot be moved"
                )
            if zlib.crc32(first.region.data.data) != checksum:
                raise Invalid(f"the persistent resource of {self} was changed")
        self.windows.counts.dispatches += 1
        inputs: list[Region | None] = []
        for i, bound in enumerate(bindings.inputs):
            if i in self.places and first is not None:
                start = self.places[i]
                part = slice(start, start + self.graph.inputs[i].size)
                region = first.region
                inputs.append(Region(region.data[part], region.written[part]))
            else:
                inputs.append(bound.region if bound else None)
        outputs = [bound.region if bound else None for bound in bindings.outputs]
        run(self.graph, inputs, outputs)


class OperatorInitializer(Dispatchable):
    """Initialises compiled operators."""

    INTERFACE = "IDMLOperatorInitializer"

    def __init__(self, dml: DmlDevice, operators: list[CompiledOperator]) -> None:
        super().__init__(dml)
        self.operators: list[CompiledOperator] = []
        self._target(operators)

    def _target(self, operators: list[CompiledOperator]) -> None:
        for operator in operators:
            operator.references += 1
        for operator in self.operators:
            operator.Release()
        self.operators = operators
        owned = sum(len(o.places) for o in operators)
        self.temporary_size = 4 * owned + self.windows.spare if owned else 0
        self.descriptor_count = owned + len(operators) + 1 if operators else 0

    def Reset(self, count: int, operators: Any) -> None:
        self.dml.present()
        if self.uses:
            raise Invalid(f"{self} is reset while the GPU may execute it")
        self._target(compiled(self.dml, count, operators))

    def dispose(self) -> None:
        for operator in self.operators:
            operator.Release()


def compiled(dml: DmlDevice, count: int, operators: Any) -> list[CompiledOperator]:
    """The compiled operators of an array.

    Raises:
        Invalid: one is of another device, or is there twice.
    """
    found = [
        object_at(a, CompiledOperator, "a compiled operator")
        for a in addresses(operators, count)
    ]
    if count and not found:
        raise Invalid(f"there are {count} operators, of which the array is null")
    for each in found:
        if each.dml is not dml:
            raise Invalid(f"{each} is of another device")
        if found.count(each) > 1:
            raise Invalid(f"{each} is to be initialised twice")
    return found


@dataclass
class Dispatch(Command):
    """A recorded dispatch; descriptors are looked at when it is executed."""

    dispatchable: Dispatchable
    bindings: Bindings
    heap: DescriptorHeap
    first: int
    volatile: bool = field(init=False)

    def __post_init__(self) -> None:
        self._checksums: dict[Bound, int | None] = {}
        self.volatile = bool(self.dispatchable.flags & DESCRIPTORS_VOLATILE)

    def objects(self) -> Iterable[ComObject]:
        found: list[ComObject] = [self.dispatchable, self.heap]
        if isinstance(self.dispatchable, OperatorInitializer):
            found += self.dispatchable.operators
        found += {bound.resource for bound in self.bindings.ranges()}
        return found

    def descriptors(self) -> Iterable[tuple[DescriptorHeap, int]]:
        count = self.dispatchable.descriptor_count
        return ((self.heap, self.first + i) for i in range(count))

    def check(self, timeline: Timeline) -> None:
        self._look_at_descriptors()
        bindings = self.bindings
        bindings.complete(self.dispatchable)
        for bound in bindings.ranges():
            upload = bound.resource.kind == UPLOAD
            timeline.use(bound.resource, GENERIC_READ if upload else UNORDERED_ACCESS)
        reads, writes = [], []
        for i, found in enumerate(bindings.inputs):
            if found and found.resource.kind != UPLOAD:
                reads.append(found.access(f"input {i} of {self.dispatchable}"))
        for i, found in enumerate(bindings.outputs):
            if found:
                writes.append(found.access(f"output {i} of {self.dispatchable}"))
        if bindings.temporary:
            writes.append(bindings.temporary.access("the temporary resource"))
        if bindings.persistent:
            reads.append(bindings.persistent.access("the persistent resource"))
        timeline.dispatch(reads, writes)
        self._checksums = {
            bound: bound.resource.checksum(bound.offset, bound.size)
            for bound in bindings.ranges()
        }

    def _look_at_descriptors(self) -> None:
        count = self.dispatchable.descriptor_count
        found = self.heap.slots[self.first : self.first + count]
        if self.volatile and found and found[0] is not None:
            self.bindings = found[0]  # type: ignore[assignment]
        bound = any(True for _ in self.bindings.ranges())
        if bound and any(slot is not self.bindings for slot in found):
            raise Invalid(
                f"descriptors of {self.dispatchable} were overwritten, or not copied "
                "to where the GPU reads them, after it was recorded"
            )

    def execute(self) -> None:
        self._look_at_descriptors()
        for bound, checksum in self._checksums.items():
            bound.resource.unchanged(bound.offset, bound.size, checksum)
        if isinstance(self.dispatchable, CompiledOperator):
            self.dispatchable.execute(self.bindings)
        elif isinstance(self.dispatchable, OperatorInitializer):
            self._initialize(self.dispatchable)
        if self.bindings.temporary:
            self.bindings.temporary.region.spoil()

    def _initialize(self, initializer: OperatorInitializer) -> None:
        operators = initializer.operators
        count = sum(len(o.graph.inputs) for o in operators)
        inputs = iter(self.bindings.inputs or [None] * count)
        outputs = self.bindings.outputs or [None] * len(operators)
        for operator, persistent in zip(operators, outputs, strict=True):
            bound = {i: next(inputs) for i, _ in enumerate(operator.graph.inputs)}
            owned = {i: found for i, found in bound.items() if found is not None}
            operator.initialize(owned, persistent)
