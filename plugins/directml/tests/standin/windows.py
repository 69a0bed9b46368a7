"""A machine with Windows: its adapters, what it notes, and how it may fail."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .adapters import GPU, NPU, SOFTWARE, AdapterDescription
from .events import Events
from .exports import library
from .results import DXGI_ERROR_DEVICE_HUNG, E_OUTOFMEMORY, Failure

if TYPE_CHECKING:
    from .com import ComObject
    from .device import D3D12Device
    from .queue import Worker

SYSTEM = ("directml.dll", "d3d12.dll", "dxgi.dll", "dxcore.dll", "kernel32.dll")
"""The libraries that the system has, unless a machine lacks them."""

LEAVING = ("AddRef", "Release", "QueryInterface", "GetDeviceRemovedReason", "SetName")
"""Methods that do not count as calls of a device."""


class Violation(AssertionError):
    """What a debug layer would have reported, for a test to fail with."""


@dataclass
class Faults:
    """What goes wrong though the program does nothing wrong; numbers count from 1.

    Attributes:
        remove_at_call: the call of a device or its children that finds it removed.
        remove_at_submission: the call of ExecuteCommandLists whose work removes it.
        removed_reason: what ``GetDeviceRemovedReason`` says then.
        no_memory_at: the allocation of memory that fails.
        lose_directml_at_call: the call of DirectML that finds only its device removed.
        compile_at: the compilation that fails.
        compile_result: what it answers.
        stall_at_signal: the signal to which the GPU comes at `Windows.resume` only.
        no_device: what ``D3D12CreateDevice`` answers.
        no_directml: what ``DMLCreateDevice1`` answers.
    """

    remove_at_call: int = 0
    remove_at_submission: int = 0
    removed_reason: int = DXGI_ERROR_DEVICE_HUNG
    no_memory_at: int = 0
    lose_directml_at_call: int = 0
    compile_at: int = 0
    compile_result: int = E_OUTOFMEMORY
    stall_at_signal: int = 0
    no_device: int = 0
    no_directml: int = 0


@dataclass
class Counts:
    """How often what `Faults` numbers has happened, and what tests want to know."""

    calls: int = 0
    directml_calls: int = 0
    submissions: int = 0
    allocations: int = 0
    compilations: int = 0
    initializations: int = 0
    dispatches: int = 0
    signals: int = 0
    recorded_lists: int = 0
    by_method: dict[str, int] = field(default_factory=dict)


class Windows:
    """One process on one machine, to be used as a context: in the end all is checked.

    Args:
        adapters: in DXGI's order, those that DXGI does not list among them.
        directml_level: the feature level of the DirectML.dll.
        delay: seconds that the GPU waits before it does what it was given.
        patience: seconds after which a wait without an end is noted and ends.
        debug_layers: whether the optional component with the debug layers is installed.
        files: feature levels of other DirectML.dlls by their paths.
        lacking: libraries, in lower case, and functions that the machine has not.
        spare: bytes by which temporary and persistent resources are larger than what
            their contents need, to be different from any guess.
    """

    def __init__(
        self,
        adapters: Sequence[AdapterDescription] = (GPU, NPU, SOFTWARE),
        *,
        directml_level: tuple[int, int] = (6, 4),
        delay: float = 0.0005,
        patience: float = 60.0,
        debug_layers: bool = False,
        files: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        lacking: Collection[str] = (),
        spare: int = 20,
    ) -> None:
        self.adapters = tuple(adapters)
        self.directml_level = directml_level
        self.delay = delay
        self.patience = patience
        self.debug_layers = debug_layers
        self.files = files
        self.lacking = lacking
        self.spare = spare
        self.faults = Faults()
        self.counts = Counts()
        self.notes: list[str] = []
        self.alive: set[ComObject] = set()
        self.devices: dict[int, D3D12Device] = {}
        self.memory_used: dict[int, int] = {}
        self.threads: list[Worker] = []
        self.stalled = False
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.events = Events(self)
        self._loaded: dict[str, Any] = {}

    def load(self, name: str) -> Any:
        """A library, of which the attributes are C functions.

        Args:
            name: ``DirectML.dll``, ``d3d12.dll``, ``dxgi.dll``, ``dxcore.dll`` or
                ``kernel32.dll``, or one of ``files``.

        Raises:
            OSError: the machine lacks it.
        """
        if name not in self._loaded:
            self._loaded[name] = library(self, name)
        return self._loaded[name]

    def __getattr__(self, name: str) -> Any:
        """A function of any of the system's libraries, for a program that takes one.

        Raises:
            AttributeError: none has it.
        """
        for each in SYSTEM:
            if not name.startswith("_") and each not in self.lacking:
                found = getattr(self.load(each), name, None)
                if found is not None:
                    return found
        raise AttributeError(f"no library exports {name}")

    def __enter__(self) -> Windows:
        return self

    def __exit__(self, kind: object, *others: object) -> None:
        self.resume()
        if kind is None:
            self.check()

    def note(self, what: str) -> None:
        """Notes what a debug layer would report."""
        with self.lock:
            self.notes.append(what)

    def broken(self, what: str, error: Exception) -> None:
        """Notes that the stand-in itself, or an operator's meaning, raised an error."""
        lines = "".join(traceback.format_exception(error))
        self.note(f"{what}: the stand-in failed\n{lines}")

    def check(self) -> None:
        """Fails if a rule was broken, or anything of the process is still there.

        Raises:
            Violation: with all that was noted.
        """
        for thread in self.threads:
            if thread.ends:
                thread.join(self.patience)
        with self.lock:
            found = list(self.notes)
            found += [
                f"{o} still has {o.references} references"
                for o in sorted(self.alive, key=repr)
            ]
            found += [f"the event {handle} is open" for handle in self.events.open]
        if found:
            raise Violation("\n".join(found))

    @contextmanager
    def expected(self, *words: str) -> Iterator[None]:
        """Notes made within must be one for each of ``words``, which it has in it.

        Raises:
            Violation: others were made, or fewer.
        """
        before = len(self.notes)
        yield
        with self.lock:
            made = self.notes[before:]
            del self.notes[before:]
        rest = [w for w in words if not any(w in note for note in made)]
        others = [note for note in made if not any(w in note for w in words)]
        if rest or others:
            raise Violation(f"not noted: {rest}; noted beside: {others}")

    def called(self, found: ComObject, name: str) -> None:
        """Counts a call; the one at which the device is lost finds it so."""
        counts = self.counts
        counts.by_method[name] = counts.by_method.get(name, 0) + 1
        device = getattr(found, "device", None)
        if device is None or name in LEAVING:
            return
        counts.calls += 1
        if counts.calls == self.faults.remove_at_call:
            device.remove(self.faults.removed_reason)
        directml = getattr(found, "dml", None)
        if directml is not None:
            counts.directml_calls += 1
            if counts.directml_calls == self.faults.lose_directml_at_call:
                directml.lose(self.faults.removed_reason)

    def allocate(self, luid: int, size: int) -> None:
        """Takes memory of an adapter.

        Raises:
            Failure: there is not enough, or a test wants it to fail.
        """
        self.counts.allocations += 1
        adapter = self.adapter(luid)
        used = self.memory_used.get(luid, 0) + size
        lacking = used > adapter.memory
        if lacking or self.counts.allocations == self.faults.no_memory_at:
            raise Failure(E_OUTOFMEMORY, f"{size} bytes of {adapter.name}")
        self.memory_used[luid] = used

    def free(self, luid: int, size: int) -> None:
        """Gives memory of an adapter back."""
        self.memory_used[luid] -= size

    def adapter(self, luid: int) -> AdapterDescription:
        """The adapter with an identifier."""
        return next(a for a in self.adapters if a.luid == luid)

    def resume(self) -> None:
        """Lets a GPU go on that a fault has stalled."""
        with self.lock:
            self.stalled = False
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Waits with the lock given up; one that would have no end is noted."""
        start = time.monotonic()
        if self.changed.wait_for(
            condition, self.patience if timeout is None else timeout
        ):
            return True
        if timeout is None:
            waited = time.monotonic() - start
            self.note(
                f"a wait without a time-out would not have ended ({waited:.0f} s)"
            )
        return False
