"""Compiled partitions on disk, for EPs that ask for it.

An entry is found by all that its content depends on: one of another version, device or
option is never found, and deleted in time, as the least used are.  Whatever else may
be wrong with one, :mod:`onnxplug.authoring.entries` finds; then the partition is
compiled, and the entry written anew.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.cache import cache_root
from onnxplug.authoring.entries import Cache, fingerprint, size_limit
from onnxplug.authoring.record import Record
from onnxplug.ep import CompiledPartition, Declined
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.selection.compatibility import compatibility_info, lasting_facts

if TYPE_CHECKING:
    from onnxplug.ep import Partition, Serialiser
    from onnxplug.selection import ChosenEp

FOLDER: Final = "onnxplug-compiled"
"""The name of the folder that they are in."""

DEFAULT_SIZE: Final = 4 << 30
"""Bytes that they may take where ``ONNXPLUG_CACHE_SIZE`` does not say."""

_FORMAT: Final = 1
_ALIGNMENT: Final = 64
_LENGTH: Final = 8
"""Bytes of the length of the facts that data begins with."""

_FACTS: Final = 64 << 10
"""Bytes of facts that are read of an entry to list it."""

_STORED: Final = 16
"""Bytes of the digest that entries begin with in their files."""


class CompiledCache:
    """The compiled partitions of an EP of one session.

    Attributes:
        RESTORED: what is said of a partition of which there was an entry.
    """

    RESTORED: Final = "restored from the cache"

    def __init__(
        self, ep: ChosenEp, serialiser: Serialiser, threads: int, model: str
    ) -> None:
        self._ep = ep
        self._serialiser = serialiser
        self._threads = threads
        self._model = model
        self._store = Cache(FOLDER, size_limit(DEFAULT_SIZE))
        self._origin: str | None = None

    def name_of(self, partition: Partition) -> str:
        """The name of the entry of *partition*.

        Raises:
            EpError: the EP failed to say what it compiles for.
        """
        if self._origin is None:
            self._origin = json.dumps(self._facts(), sort_keys=True)
        return fingerprint(f"{partition.fingerprint}\0{self._origin}").hex()[:40]

    def _facts(self) -> dict[str, object]:
        """All that compiled partitions depend on besides the partition."""
        from onnxplug import __version__

        ep = self._ep
        compilers = [compatibility_info(ep.factory, each) for each in ep.devices]
        options = {name: repr(value) for name, value in ep.compiled_in.items()}
        return {
            "format": _FORMAT,
            "onnxplug": __version__,
            "ep": [ep.name, ep.factory.version],
            "code": [_code(type(ep.factory)), _code(type(ep.provider))],
            "compilers": compilers,
            "devices": [lasting_facts(each) for each in ep.devices],
            "options": options,
            "threads": self._threads,
            "system": [platform.system(), platform.machine()],
        }

    def load(self, name: str) -> memoryview | None:
        """What is in an entry for the EP; ``None`` if there is none."""
        content = self._store.map(name)
        return None if content is None else _split(content)[1]

    def restore(self, partition: Partition, data: memoryview) -> CompiledPartition:
        """What the EP makes of what was in an entry."""
        return self._serialiser.restore(partition, data)

    def store(
        self,
        name: str,
        partition: Partition,
        compiled: CompiledPartition,
        fault: BaseException | None,
    ) -> str:
        """Write the entry of what was just compiled, if that can be.

        Args:
            fault: why the entry that was there could not be restored.

        Returns:
            What was done, in words.
        """
        outcome = self._stored(name, partition, compiled)
        if fault is not None:
            outcome += f"; what was there failed: {type(fault).__name__}: {fault}"
        return outcome

    def _stored(
        self, name: str, partition: Partition, compiled: CompiledPartition
    ) -> str:
        try:
            data = self._serialiser.serialise(compiled)
            content = memoryview(data).cast("B")
        except Declined as error:
            return f"not cached: {error.reason}"
        except (*FAILURES, MemoryError) as error:
            # it runs all the same
            return f"not cached: {ep_failure(self._ep.name, 'serialise', error)}"
        head = _head(self._described(partition))
        problem = self._store.store(name, head, content)
        self._store.prune_if_due()
        return f"not cached: {problem}" if problem else "cached for other processes"

    def _described(self, partition: Partition) -> dict[str, Any]:
        """What is told of an entry when entries are listed."""
        return {
            "ep": self._ep.name,
            "version": self._ep.factory.version,
            "device": self._ep.device,
            "model": self._model,
            "nodes": len(partition.nodes),
            "inputs": {
                name: list(map(str, partition.value(name).shape or ()))
                for name in partition.inputs
            },
        }

    def discard(self, name: str) -> None:
        """Delete an entry that the EP has no use for."""
        self._store.remove(name)


class Entry(Record):
    """An entry as it is listed.

    Attributes:
        name: that of its file, without the ending.
        nbytes: of the file.
        used: when it was last used, to the day, in seconds since 1970.
        facts: EP, version, device, model, number of nodes, and shapes of inputs; empty
            if the entry cannot be read.
    """

    name: str
    nbytes: int
    used: float
    facts: Mapping[str, Any]


def entries() -> Iterator[Entry]:
    """All entries, latest first, whose contents are not read but for the facts."""
    if not (cache_root() / FOLDER).exists():
        return  # looking would make it
    store = Cache(FOLDER, DEFAULT_SIZE)
    for name, status, start in store.heads(_LENGTH + _FACTS):
        try:
            facts, _ = _split(memoryview(start))
        except ValueError:
            facts = {}
        yield Entry(name, status.st_size, status.st_mtime, facts)


def _head(facts: Mapping[str, Any]) -> bytes:
    """What is before the data, which begins at a multiple of 64 bytes in the file."""
    text = json.dumps(facts).encode()
    text += b" " * (-(_STORED + _LENGTH + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH, "little") + text


def _split(content: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The header and the data of an entry.

    Raises:
        ValueError: it is none.
    """
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = json.loads(bytes(content[_LENGTH:end]))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, content[end:]


def _code(kind: type) -> list[object]:
    """What tells the file that a class is from: in development, versions stay."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    where: list[object] = [kind.__module__, kind.__qualname__]
    if file is not None:
        try:
            status = os.stat(file)
        except OSError:  # in an archive
            return where
        where += [status.st_size, status.st_mtime_ns]
    return where
