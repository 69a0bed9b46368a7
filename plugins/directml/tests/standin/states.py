"""States of buffers and hazards between dispatches, within one ExecuteCommandLists.

Buffers decay to COMMON when that has been executed, and start in it whatever they were
created in; from COMMON the first use promotes them.  Dispatches run side by side unless
a barrier is between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .results import Invalid

if TYPE_CHECKING:
    from .memory import Allocation, Resource

COMMON = 0
UNORDERED_ACCESS = 0x8
COPY_DEST = 0x400
COPY_SOURCE = 0x800
GENERIC_READ = 0x1 | 0x2 | 0x40 | 0x80 | 0x200 | COPY_SOURCE
WRITES = 0x4 | UNORDERED_ACCESS | 0x100 | COPY_DEST | 0x1000
"""States of buffers in which something is written: not with any other."""

BUFFER_STATES = WRITES | GENERIC_READ | 0x2000
"""States of buffers, to all of which COMMON is promoted."""


def alone(state: int) -> bool:
    """Whether a state that writes stands alone."""
    return not state & WRITES or state.bit_count() == 1


@dataclass(frozen=True)
class Access:
    """Bytes of a buffer that a dispatch reads or writes."""

    resource: Resource
    start: int
    size: int
    what: str

    @property
    def allocation(self) -> Allocation:
        """The memory in which they are."""
        return self.resource.allocation

    def meets(self, other: Access) -> bool:
        """Whether both have bytes in common."""
        here = self.resource.start + self.start
        there = other.resource.start + other.start
        return (
            self.allocation is other.allocation
            and here < there + other.size
            and there < here + self.size
        )


class Timeline:
    """What has happened to buffers within one ExecuteCommandLists, in order."""

    def __init__(self) -> None:
        self._states: dict[Resource, int] = {}
        self._read: list[Access] = []
        self._written: list[Access] = []

    def state(self, resource: Resource) -> int:
        """The state in which a buffer is."""
        fixed = resource.fixed_state
        return self._states.get(resource, COMMON) if fixed is None else fixed

    def use(self, resource: Resource, wanted: int) -> None:
        """Uses a buffer in a state, to which it is promoted out of COMMON.

        Raises:
            Invalid: it is in another.
        """
        found = self.state(resource)
        if found == COMMON and resource.fixed_state is None:
            self._states[resource] = wanted
        elif found & wanted != wanted:
            raise Invalid(
                f"{resource} is in the state {found:#x} and is used as {wanted:#x}: a "
                "transition barrier is missing"
            )

    def transition(self, resource: Resource, before: int, after: int) -> None:
        """A transition barrier, which is a barrier between dispatches as well.

        Raises:
            Invalid: a state is none of buffers, or not that in which it is.
        """
        if resource.fixed_state is not None:
            raise Invalid(f"{resource} cannot leave the state of its heap")
        for state in (before, after):
            if state & ~BUFFER_STATES or not alone(state):
                raise Invalid(f"no buffer can be in the state {state:#x}")
        if before == after:
            raise Invalid(f"{resource} goes from {before:#x} to the same state")
        if UNORDERED_ACCESS in (before, after) and not resource.unordered:
            raise Invalid(f"{resource} does not allow unordered access")
        found = self.state(resource)
        if found not in (before, COMMON):
            raise Invalid(
                f"{resource} is in the state {found:#x}, not {before:#x} as the "
                "barrier says"
            )
        self._states[resource] = after
        self.barrier(resource)

    def barrier(self, resource: Resource | None) -> None:
        """A barrier for unordered access to a buffer, or to all."""
        if resource is None:
            self._read.clear()
            self._written.clear()
            return
        self._read = [a for a in self._read if a.resource is not resource]
        self._written = [a for a in self._written if a.resource is not resource]

    def dispatch(self, reads: list[Access], writes: list[Access]) -> None:
        """A dispatch, which may run beside those since the last barrier.

        Raises:
            Invalid: it reads or writes what one of those writes, or writes what one of
                those reads.
        """
        for access in reads + writes:
            for earlier in self._written:
                if access.meets(earlier):
                    raise Invalid(_missing(access, earlier, "writes"))
        for access in writes:
            for earlier in self._read:
                if access.meets(earlier):
                    raise Invalid(_missing(access, earlier, "reads"))
        self._read += reads
        self._written += writes


def _missing(access: Access, earlier: Access, does: str) -> str:
    return (
        f"{access.what} ({access.resource}) uses bytes that an earlier dispatch {does} "
        f"as {earlier.what}: a UAV barrier is missing"
    )
