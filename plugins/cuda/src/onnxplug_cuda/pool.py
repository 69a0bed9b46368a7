"""Memory of a device, which is handed out again in the order of streams.

An arena asks the driver for regions, and cuts blocks off them.  A block knows on which
streams it was used, and how far these were then: it is handed out again for the only
stream that used it at once, as whatever is queued there comes after what was, and for
another when all of them are past that use.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from onnxplug import ep
from onnxplug_cuda.timeline import Timeline

ALIGNMENT: Final = 256
"""Addresses and sizes of memory are multiples of it."""

_LEAST_REGION: Final = 1 << 20
_LARGEST_STEP: Final = 1 << 30
"""Bytes from which on regions do not grow any more by themselves."""

_CANDIDATES: Final = 16
"""Blocks that are looked at for one that can be handed out."""

_serials: Final = itertools.count(1)


class Source(Protocol):
    """What regions are from.  Within the driver's context."""

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes.

        Raises:
            MemoryError: there are none.
        """

    def free(self, address: int) -> None:
        """Give back what no work uses any more."""

    def forget(self) -> None:
        """Give back what is kept for later."""


class Block:
    """A part of a region.

    Attributes:
        address: where it begins.
        nbytes: how many there are.
        serial: tells it from others in order.
        uses: how much each stream that used it had queued with the last use.
        is_free: nobody has it.
        before, after: its neighbours in the region.
    """

    __slots__ = ("address", "after", "before", "is_free", "nbytes", "serial", "uses")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.serial = next(_serials)
        self.uses: dict[Timeline, int] = {}
        self.is_free = True
        self.before: Block | None = None
        self.after: Block | None = None


_Return: TypeAlias = "tuple[Block, set[Timeline | None] | None]"
"""A block that nobody has any more, and on which streams others used it."""


class Memory:
    """Bytes on a device; they return to their arena when this object goes.

    Attributes:
        address: where they are.
        nbytes: how many, at least as many as were asked for.
        serial: tells it from all other memory.
        uses: see :class:`Block`.
        owner: what keeps memory that is of no arena.
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "_borrowers",
        "_returned",
        "address",
        "nbytes",
        "owner",
        "serial",
        "uses",
    )

    def __init__(self, returned: deque[_Return], block: Block) -> None:
        self._returned: deque[_Return] | None = returned
        self._block: Block | None = block
        self._borrowers: set[Timeline | None] | None = None
        self.owner: object = None
        self.address = block.address
        self.nbytes = block.nbytes
        self.serial = next(_serials)
        self.uses = block.uses

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        if self._returned is not None and self._block is not None:
            self._returned.append((self._block, self._borrowers))

    def lend(self, timeline: Timeline | None) -> None:
        """Note that others use it from now on, of which no ticket tells.

        Args:
            timeline: of the only stream that they use it on; ``None``: it is not known.
        """
        if self._borrowers is None:
            self._borrowers = set()
        self._borrowers.add(timeline)


def foreign(address: int, nbytes: int, owner: object) -> Memory:
    """Memory of another's, which *owner* keeps."""
    memory = Memory.__new__(Memory)
    memory._returned = memory._block = memory._borrowers = None
    memory.owner = owner
    memory.address, memory.nbytes = address, nbytes
    memory.serial = next(_serials)
    memory.uses = {}
    return memory


class Arena:
    """Regions of a device's memory.  Used under the device's lock, and within the
    driver's context.

    Args:
        source: what regions are from.
        limit: bytes of all regions, at most; ``None`` for as many as there are.
        doubles: each region is twice as large as the last, where it can be; else as
            large as is needed.
        make_room: has others give back what they do not use.
        settle: waits for all work, also of other libraries; whether it can.

    Attributes:
        is_closing: it is given up when nothing of it is in use.
        held: bytes of the regions.
        used: bytes that are handed out.
    """

    def __init__(
        self,
        source: Source,
        limit: int | None = None,
        *,
        doubles: bool = True,
        make_room: Callable[[], None] = lambda: None,
        settle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._limit = limit
        self._doubles = doubles
        self._make_room = make_room
        self._settle = settle
        self._step = _LEAST_REGION
        self._returned: deque[_Return] = deque()
        self._borrowed: list[Block] = []
        self._free: list[tuple[int, int, Block]] = []
        self._regions: dict[int, int] = {}
        self.held = 0
        self.used = 0
        self.is_closing = False

    def take(self, nbytes: int, timeline: Timeline | None) -> Memory:
        """Memory of unspecified content.

        Args:
            timeline: of the stream that it is for; ``None``: all work that used it is
                done.

        Raises:
            MemoryError: there is none.
        """
        self.collect()
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        block = self._find(size, timeline)
        if block is None and self._reclaim(size):
            block = self._find(size, timeline)
        if block is None:
            block = self._extended(size) or self._waited_for(size, timeline)
        if block is None:
            self._reclaim(0)
            self._make_room()
            self.trim()
            block = self._extended(size, last=True)
        assert block is not None
        self._cut(block, size)
        block.is_free = False
        block.uses = {
            each: ticket
            for each, ticket in block.uses.items()
            if each.completed < ticket
        }
        self.used += block.nbytes
        return Memory(self._returned, block)

    def _find(self, size: int, timeline: Timeline | None) -> Block | None:
        """A free block of at least *size* that can be handed out as it is."""
        start = bisect.bisect_left(self._free, (size,))
        for _, _, block in self._free[start : start + _CANDIDATES]:
            if all(
                each is timeline or each.is_past(ticket)
                for each, ticket in block.uses.items()
            ):
                return self._removed(block)
        return None

    def _waited_for(self, size: int, timeline: Timeline | None) -> Block | None:
        """A free block of at least *size* that others still use, which whoever gets it
        waits for: the stream, or else the host."""
        start = bisect.bisect_left(self._free, (size,))
        for _, _, block in self._free[start : start + _CANDIDATES]:
            if all(
                each.synchronize(ticket)
                if timeline is None
                else timeline.wait_for(each, ticket)
                for each, ticket in block.uses.items()
            ):
                return self._removed(block)
        return None

    def _removed(self, block: Block) -> Block:
        place = bisect.bisect_left(self._free, (block.nbytes, block.serial))
        del self._free[place]
        return block

    def _extended(self, size: int, *, last: bool = False) -> Block | None:
        """A new region, as one block; ``None`` if there is no memory for it.

        Args:
            last: nothing else can be tried.

        Raises:
            MemoryError: the *last* attempt failed.
        """
        for wanted in dict.fromkeys((self._region_size(size), size)):
            if self._limit is not None and self.held + wanted > self._limit:
                continue
            try:
                address = self._source.allocate(wanted)
            except MemoryError as error:
                ep.raise_interruption(error)
                if last and wanted == size:
                    raise MemoryError(
                        f"{size} bytes of device memory were asked for, and CUDA has "
                        f"none: {error}; {self.used} bytes are in use here and "
                        f"{self.held} held; close sessions or programs that share the "
                        "GPU, or feed less at once"
                    ) from error
                continue
            self._regions[address] = wanted
            self.held += wanted
            if wanted > size:
                self._step = min(2 * wanted, _LARGEST_STEP)
            return Block(address, wanted)
        if last:
            raise MemoryError(
                f"{size} bytes of device memory were asked for; {self.used} bytes are "
                f"in use and {self.held} held of the {self._limit} that gpu_mem_limit "
                "allows; raise gpu_mem_limit, or feed less at once"
            )
        return None

    def _region_size(self, size: int) -> int:
        if not self._doubles:
            return size
        step = self._step
        while step < size:
            step *= 2
        return step

    def _cut(self, block: Block, size: int) -> None:
        """Leave what *block* has beyond *size* free."""
        if block.nbytes == size:
            return
        rest = Block(block.address + size, block.nbytes - size)
        rest.uses = dict(block.uses)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.nbytes = size
        self._keep(rest)

    def _keep(self, block: Block) -> None:
        bisect.insort(self._free, (block.nbytes, block.serial, block))

    def collect(self) -> None:
        """Take back what nobody has any more."""
        while self._returned:
            block, borrowers = self._returned.popleft()
            self.used -= block.nbytes
            if borrowers and None in borrowers:
                self._borrowed.append(block)
                continue
            for timeline in borrowers or ():
                assert timeline is not None
                if not timeline.is_closed:
                    block.uses[timeline] = timeline.next()
            self._put_back(block)

    def _put_back(self, block: Block) -> None:
        block.is_free = True
        if block.after is not None and block.after.is_free:
            self._join(block, self._removed(block.after))
        before = block.before
        if before is not None and before.is_free:
            self._join(self._removed(before), block)
            block = before
        self._keep(block)

    def _reclaim(self, size: int) -> bool:
        """Take back what others used on streams that are not known, if that is at least
        *size*, once all work is done; whether there was any."""
        if sum(block.nbytes for block in self._borrowed) < max(size, 1):
            return False
        if not self._settle():
            return False
        for block in self._borrowed:
            self._put_back(block)
        self._borrowed.clear()
        return True

    def _join(self, block: Block, after: Block) -> None:
        block.nbytes += after.nbytes
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        uses = dict(block.uses)
        for timeline, ticket in after.uses.items():
            uses[timeline] = max(ticket, uses.get(timeline, 0))
        block.uses = uses

    def trim(self) -> None:
        """Give regions back of which nothing is in use, once all work that used them
        is done."""
        self.collect()
        self._reclaim(0)
        for _, _, block in list(self._free):
            if self._regions.get(block.address) != block.nbytes:
                continue
            if all(each.synchronize(ticket) for each, ticket in block.uses.items()):
                self._removed(block)
                del self._regions[block.address]
                self.held -= block.nbytes
                self._source.free(block.address)
        if not self._regions:
            self._step = _LEAST_REGION
        self._source.forget()
