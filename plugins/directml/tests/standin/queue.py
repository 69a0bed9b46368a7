"""Queues that work later, on a thread of their own, and fences that tell how far."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from .com import ComObject, addresses, object_at
from .commands import Command, GraphicsCommandList
from .results import DXGI_ERROR_INVALID_CALL, Failure, Invalid
from .states import Timeline

if TYPE_CHECKING:
    from .descriptors import DescriptorHeap
    from .device import D3D12Device

LAST = 2**64 - 1
"""The value of the fences of a device that is removed."""


class Submission:
    """Command lists that were executed together.

    Attributes:
        commands: of all lists in order.
        objects: that the GPU uses; each knows of it until the program has seen a fence
            reached that was signalled behind it.
        descriptors: that the GPU reads, by heap and index.
    """

    def __init__(self, lists: list[GraphicsCommandList]) -> None:
        self.commands: list[Command] = [c for each in lists for c in each.commands]
        self.objects: set[ComObject] = set(lists)
        self.descriptors: set[tuple[DescriptorHeap, int]] = set()
        for each in lists:
            assert each.allocator is not None
            self.objects.add(each.allocator)
        for command in self.commands:
            self.objects.update(command.objects())
            self.descriptors.update(command.descriptors())
        for found in self.objects:
            found.uses.add(self)

    def seen(self) -> None:
        """The program knows that it is complete."""
        for found in self.objects:
            found.uses.discard(self)


class Fence(ComObject):
    """A value that goes up.

    Attributes:
        behind: submissions that are complete when a value is reached.
        pending: signals to which the GPU has not come.
    """

    INTERFACE = "ID3D12Fence"

    def __init__(self, device: D3D12Device, value: int) -> None:
        super().__init__(device.windows, device)
        self.device = device
        self.value = value
        self.behind: list[tuple[int, list[Submission]]] = []
        self.pending = 0
        self._waiting: list[tuple[int, int]] = []
        device.fences.add(self)

    def reach(self, value: int, behind: list[Submission]) -> None:
        """Sets the value, and the events that wait for it."""
        self.value = value
        self.behind.append((value, behind))
        waiting, self._waiting = self._waiting, []
        for wanted, handle in waiting:
            if wanted <= value:
                self._set(wanted, handle)
            else:
                self._waiting.append((wanted, handle))
        self.windows.changed.notify_all()

    def _set(self, wanted: int, handle: int) -> None:
        event = self.windows.events.open.get(handle)
        if event is None:
            return
        event.state = True
        event.seen.append(lambda: self.see(wanted))

    def lost(self) -> None:
        """The device is removed."""
        self.pending = 0
        self.reach(LAST, [])
        self.see(LAST)

    def see(self, value: int) -> None:
        """The program has seen that the value is reached."""
        for reached, behind in self.behind:
            if reached <= value:
                for submission in behind:
                    submission.seen()
        self.behind = [b for b in self.behind if b[0] > value]

    def GetCompletedValue(self) -> int:
        self.see(self.value)
        return self.value

    def SetEventOnCompletion(self, value: int, handle: int | None) -> None:
        if not handle:
            self.windows.wait_for(lambda: self.value >= value, None)
            if self.value >= value:
                self.see(value)
            return
        event = self.windows.events.open.get(handle)
        if event is None:
            raise Invalid(f"{handle} is no open event")
        if self.value >= value:
            self._set(value, handle)
            self.windows.changed.notify_all()
        else:
            self._waiting.append((value, handle))

    def Signal(self, value: int) -> None:
        self.device.present()
        self.reach(value, [])

    def dispose(self) -> None:
        self.device.fences.discard(self)
        if self.pending:
            self.windows.note(f"{self} was released before the GPU came to signal it")


class Worker(threading.Thread):
    """A GPU's thread; it ends when its queue is released, and all is done."""

    ends = False


class CommandQueue(ComObject):
    """Does what it was given, in order and after a while."""

    INTERFACE = "ID3D12CommandQueue"

    def __init__(self, device: D3D12Device, kind: int) -> None:
        super().__init__(device.windows, device)
        self.device = device
        self.kind = kind
        self.submitted: list[Submission] = []
        self._work: deque[tuple[str, Any, int]] = deque()
        device.queues.add(self)
        self._worker = Worker(target=self._run, daemon=True, name=repr(self))
        device.windows.threads.append(self._worker)
        self._worker.start()

    def ExecuteCommandLists(self, count: int, lists: Any) -> None:
        windows = self.windows
        if self.device.removed:
            return
        windows.counts.submissions += 1
        if not count:
            raise Invalid("ExecuteCommandLists needs at least one list")
        found = [
            object_at(a, GraphicsCommandList, "a command list")
            for a in addresses(lists, count)
        ]
        try:
            timeline = Timeline()
            for each in found:
                each.executable(self.kind)
                for command in each.commands:
                    command.check(timeline)
        except Invalid as invalid:
            windows.note(f"ID3D12CommandQueue.ExecuteCommandLists: {invalid}")
            self.device.remove(DXGI_ERROR_INVALID_CALL)  # as documented
            return
        submission = Submission(found)
        self.uses.add(submission)
        submission.objects.add(self)
        self.submitted.append(submission)
        lost = windows.counts.submissions == windows.faults.remove_at_submission
        self._give("remove" if lost else "execute", submission, 0)

    def Signal(self, fence: int | None, value: int) -> None:
        self.device.present()
        found = object_at(fence, Fence, "the fence")
        found.pending += 1
        self._give("signal", (found, list(self.submitted)), value)

    def Wait(self, fence: int | None, value: int) -> None:
        self.device.present()
        self._give("wait", object_at(fence, Fence, "the fence"), value)

    def GetTimestampFrequency(self, place: Any) -> None:
        place[0] = 10_000_000

    def _give(self, what: str, subject: Any, value: int) -> None:
        self._work.append((what, subject, value))
        self.windows.changed.notify_all()

    def lost(self) -> None:
        """The device is removed: what was given is dropped, and nothing is in use."""
        self._work.clear()
        for submission in self.submitted:
            submission.seen()
        self.submitted.clear()

    def dispose(self) -> None:
        self._worker.ends = True
        self.device.queues.discard(self)
        self.windows.changed.notify_all()

    def _run(self) -> None:
        windows = self.windows
        while True:
            with windows.lock:
                windows.changed.wait_for(lambda: self._work or self._worker.ends)
                if not self._work:
                    return
                what, subject, value = self._work.popleft()
            if what != "signal":
                time.sleep(windows.delay)
            with windows.lock:
                if self.device.removed:
                    continue
                # a session that garbage collection ends waits for this very thread
                collects = gc.isenabled()
                gc.disable()
                try:
                    getattr(self, f"_{what}")(subject, value)
                except Failure as failure:
                    windows.note(f"the GPU: {failure}")
                    self.device.remove(DXGI_ERROR_INVALID_CALL)
                except Exception as error:  # noqa: BLE001  a thread's error is lost
                    windows.broken("the GPU", error)
                    self.device.remove(DXGI_ERROR_INVALID_CALL)
                finally:
                    if collects:
                        gc.enable()

    def _execute(self, submission: Submission, _: int) -> None:
        for command in submission.commands:
            command.execute()
            if self.device.removed:
                return

    def _remove(self, submission: Submission, _: int) -> None:
        self.device.remove(self.windows.faults.removed_reason)

    def _signal(self, subject: tuple[Fence, list[Submission]], value: int) -> None:
        fence, behind = subject
        windows = self.windows
        windows.counts.signals += 1
        if windows.counts.signals == windows.faults.stall_at_signal:
            windows.stalled = True
        windows.changed.wait_for(
            lambda: not windows.stalled or self.device.removed or self._worker.ends
        )
        if not self.device.removed and not fence.destroyed:
            fence.pending -= 1
            fence.reach(value, behind)
            self.submitted = [s for s in self.submitted if s not in behind]

    def _wait(self, fence: Fence, value: int) -> None:
        self.windows.changed.wait_for(
            lambda: fence.value >= value or self.device.removed or self._worker.ends
        )
