"""Command allocators and lists: what is recorded, and by which rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .com import ComObject, addresses, object_at, optional_at
from .descriptors import DescriptorHeap
from .memory import READBACK, Resource
from .results import E_FAIL, E_INVALIDARG, Invalid
from .states import COPY_DEST, COPY_SOURCE, Timeline

if TYPE_CHECKING:
    from .device import D3D12Device

TRANSITION, ALIASING, UAV = 0, 1, 2
"""Types of barriers."""

ALL_SUBRESOURCES = 0xFFFFFFFF


class Command:
    """What a list records.  A command alone does nothing and uses nothing."""

    def objects(self) -> Iterable[ComObject]:
        """What has to be there until the GPU has executed it."""
        return ()

    def descriptors(self) -> Iterable[tuple[DescriptorHeap, int]]:
        """The descriptors that the GPU reads."""
        return ()

    def check(self, timeline: Timeline) -> None:
        """Checks the states of buffers when the list is submitted.

        Raises:
            Invalid: a barrier is missing, for example.
        """

    def execute(self) -> None:
        """Does it, on the GPU's thread."""


class CopyRegion(Command):
    """Bytes from one buffer to another."""

    def __init__(
        self, target: tuple[Resource, int], source: tuple[Resource, int], size: int
    ) -> None:
        (self.target, self.to), (self.source, self.start) = target, source
        self.size = size
        self._checksum: int | None = None
        for found, offset in (target, source):
            if offset + size > found.size:
                raise Invalid(f"{size} bytes at {offset} of {found}, of {found.size}")
        if self.target is self.source:
            raise Invalid(f"{self.source} cannot be source and destination at once")

    def objects(self) -> Iterable[ComObject]:
        return self.target, self.source

    def check(self, timeline: Timeline) -> None:
        if self.target.kind == READBACK and self.target.mapped:
            raise Invalid(
                f"{self.target} is mapped while the GPU writes it, which buffers on "
                "read-back heaps must not be"
            )
        timeline.use(self.target, COPY_DEST)
        timeline.use(self.source, COPY_SOURCE)
        self._checksum = self.source.checksum(self.start, self.size)

    def execute(self) -> None:
        self.source.unchanged(self.start, self.size, self._checksum)
        there = slice(self.to, self.to + self.size)
        here = slice(self.start, self.start + self.size)
        self.target.data[there] = self.source.data[here]
        self.target.written[there] = self.source.written[here]


class Transition(Command):
    """A buffer changes its state."""

    def __init__(self, resource: Resource, before: int, after: int) -> None:
        self.resource, self.before, self.after = resource, before, after

    def objects(self) -> Iterable[ComObject]:
        return (self.resource,)

    def check(self, timeline: Timeline) -> None:
        timeline.transition(self.resource, self.before, self.after)


class UavBarrier(Command):
    """Dispatches that use a buffer, or any, are complete before others start."""

    def __init__(self, resource: Resource | None) -> None:
        self.resource = resource
        if resource is not None and not resource.unordered:
            raise Invalid(f"{resource} does not allow unordered access")

    def objects(self) -> Iterable[ComObject]:
        return () if self.resource is None else (self.resource,)

    def check(self, timeline: Timeline) -> None:
        timeline.barrier(self.resource)


class CommandAllocator(ComObject):
    """Memory of commands, for one list at a time.

    Attributes:
        generation: how often it was reset, by which lists know their commands lost.
    """

    INTERFACE = "ID3D12CommandAllocator"

    def __init__(self, device: D3D12Device, kind: int) -> None:
        super().__init__(device.windows, device)
        self.device = device
        self.kind = kind
        self.generation = 0
        self.recording: GraphicsCommandList | None = None

    def begin(self, by: GraphicsCommandList | None) -> None:
        """A list is to record.

        Raises:
            Invalid: another does.
        """
        if self.recording is not None and not self.recording.destroyed:
            raise Invalid(f"{self.recording} records with {self}", E_INVALIDARG)
        self.recording = by

    def Reset(self) -> None:
        self.device.present()
        if self.recording is not None and not self.recording.destroyed:
            raise Invalid(f"{self.recording} records with {self}", E_FAIL)
        if self.uses:
            raise Invalid(
                f"{self} is reset while the GPU may execute what was recorded with it: "
                "wait for a fence signalled behind it",
                E_FAIL,
            )
        self.generation += 1


class GraphicsCommandList(ComObject):
    """Records commands for a queue."""

    INTERFACE = "ID3D12GraphicsCommandList"
    HELD = False  # its allocator has the commands

    def __init__(self, device: D3D12Device, allocator: CommandAllocator) -> None:
        super().__init__(device.windows, device)
        self.device = device
        self.kind = allocator.kind
        self.error: Invalid | None = None
        self._start(allocator)

    def _start(self, allocator: CommandAllocator) -> None:
        allocator.begin(self)
        self.allocator = allocator
        self.generation = allocator.generation
        self.commands: list[Command] = []
        self.heaps: list[DescriptorHeap] = []
        self.open = True
        self._earlier = set(self.uses)

    def GetType(self) -> int:
        return self.kind

    def failed(self, failure: Invalid) -> None:
        self.error = self.error or failure

    def Close(self) -> int:
        self.device.present()
        if not self.open:
            raise Invalid(f"{self} is closed already", E_FAIL)
        self.open = False
        self.allocator.recording = None
        self.windows.counts.recorded_lists += 1
        return E_INVALIDARG if self.error else 0

    def Reset(self, allocator: int | None, state: int | None) -> int | None:
        self.device.present()
        if self.error:
            return E_INVALIDARG  # for good
        if self.open:
            raise Invalid(f"{self} is reset before it was closed", E_FAIL)
        if state:
            raise Invalid("the stand-in has no pipeline states")
        found = object_at(allocator, CommandAllocator, "the command allocator")
        if found.kind != self.kind:
            raise Invalid(
                f"an allocator of type {found.kind} for a list of {self.kind}"
            )
        self._start(found)
        return None

    def executable(self, kind: int) -> None:
        """Checks that a queue of a type can execute the list.

        Raises:
            Invalid: it cannot.
        """
        if kind != self.kind:
            raise Invalid(f"{self}, of type {self.kind}, on a queue of type {kind}")
        if self.open or self.error:
            raise Invalid(f"{self} was not closed without an error")
        if self.uses - self._earlier:
            raise Invalid(
                f"{self} is executed again before its last execution is known to be "
                "complete"
            )
        if self.allocator.destroyed or self.generation != self.allocator.generation:
            raise Invalid(f"what {self} recorded is lost: its allocator was reset")
        for command in self.commands:
            for found in command.objects():
                if found.destroyed:
                    raise Invalid(f"{self} uses {found}, which was released")

    def record(self, command: Command) -> None:
        """Records a command.

        Raises:
            Invalid: the list is closed.
        """
        if not self.open:
            raise Invalid(f"{self} is closed")
        self.commands.append(command)

    def SetDescriptorHeaps(self, count: int, heaps: Any) -> None:
        if not self.open:
            raise Invalid(f"{self} is closed")
        found = [
            object_at(a, DescriptorHeap, "a descriptor heap")
            for a in addresses(heaps, count)
        ]
        if len(found) > 1:
            raise Invalid("there can be one descriptor heap of a type only")
        for heap in found:
            if not heap.visible:
                raise Invalid(f"{heap} is not visible to shaders")
        self.heaps = found

    def CopyBufferRegion(
        self, target: int | None, to: int, source: int | None, start: int, size: int
    ) -> None:
        into = object_at(target, Resource, "the destination")
        out_of = object_at(source, Resource, "the source")
        self.record(CopyRegion((into, to), (out_of, start), size))

    def CopyResource(self, target: int | None, source: int | None) -> None:
        into = object_at(target, Resource, "the destination")
        out_of = object_at(source, Resource, "the source")
        if into.size != out_of.size:
            raise Invalid(f"{into} has {into.size} bytes, {out_of} {out_of.size}")
        self.record(CopyRegion((into, 0), (out_of, 0), into.size))

    def ResourceBarrier(self, count: int, barriers: Any) -> None:
        for barrier in (barriers[i] for i in range(count)):
            if barrier.Flags:
                raise Invalid("the stand-in has no split barriers")
            if barrier.Type == TRANSITION:
                self._transition(barrier.Transition)
            elif barrier.Type == UAV:
                found = optional_at(
                    barrier.UAV.pResource.value, Resource, "a barrier's buffer"
                )
                self.record(UavBarrier(found))
            elif barrier.Type != ALIASING:
                raise Invalid(f"there is no barrier of type {barrier.Type}")

    def _transition(self, barrier: Any) -> None:
        found = object_at(barrier.pResource.value, Resource, "a barrier's buffer")
        if barrier.Subresource not in (0, ALL_SUBRESOURCES):
            raise Invalid(f"a buffer has no subresource {barrier.Subresource}")
        self.record(Transition(found, barrier.StateBefore, barrier.StateAfter))

    def dispose(self) -> None:
        self.commands = []
        if self.open and self.allocator.recording is self:
            self.allocator.recording = None
