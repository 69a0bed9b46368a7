"""The compiled partitions that a loaded model brings with it.

Files are opened when the model is loaded, by the rules of all files beside a model; of
their content the headers are read, and the rest when it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.checksum import Checksum
from onnxplug.authoring.record import Record
from onnxplug.compile.ep_context.container import MAGIC, Damaged, Entry, unpack
from onnxplug.compile.ep_context.node import ContextNode
from onnxplug.errors import ContextError
from onnxplug.graph.scopes import all_graphs
from onnxplug.operators import is_ep_context

if TYPE_CHECKING:
    from onnxplug.graph import Model, Node

REMEDY: Final = "compile the model anew, or copy the model and its files again"


class FoundContext(Record):
    """A node, and the entry that it names.

    Attributes:
        entry: ``None`` for what onnxplug did not write.
    """

    node: ContextNode
    entry: Entry | None


class Contexts:
    """The EPContext nodes of a model.

    Args:
        files: the content of files by their locations.
    """

    def __init__(self, nodes: list[Node], files: Mapping[str, memoryview]) -> None:
        self._files: Final = files
        self._containers: Final[dict[str, dict[str, Entry] | None]] = {}
        # by the identity of what is kept with them
        self._embedded: Final[dict[int, tuple[bytes, dict[str, Entry] | None]]] = {}
        read = [ContextNode.read(node) for node in nodes]
        self._main: Final = [node for node in read if node.is_main]
        # by the identity of entries, which containers keep
        self._checksums: Final[dict[int, Checksum]] = {}
        for node in nodes:
            # read while the EPs are made, which takes as long
            entry = self.find(node).entry
            if entry is not None and id(entry) not in self._checksums:
                self._checksums[id(entry)] = Checksum(entry.data)

    def find(self, node: Node) -> FoundContext:
        """What *node* stands for.

        Raises:
            ContextError: it is damaged, or not there.
        """
        said = ContextNode.read(node)
        places = [said] if said.is_main else self._mains_of(said)
        for place in places:
            entries = self._entries(place)
            if entries is None:
                return FoundContext(said, None)
            if said.partition in entries:
                return FoundContext(said, entries[said.partition])
        raise ContextError(
            f"{said.in_words} is {said.partition!r}, which is not among what "
            f"{said.source or 'its EP'} compiled {places[-1].where}: that is of "
            f"another model, or was compiled anew; {REMEDY}"
        )

    def verify(self, found: FoundContext) -> None:
        """Compare the checksum of all bytes.

        Raises:
            ContextError: they are not what was written.
        """
        entry = found.entry
        assert entry is not None, "of nodes that onnxplug wrote"
        if self._checksums[id(entry)].digits() != entry.checksum:
            why = f"the checksum of its {len(entry.data)} bytes is wrong"
            raise damaged(found.node, why)

    def _mains_of(self, said: ContextNode) -> list[ContextNode]:
        """The nodes that may have the bytes of one that has none itself."""
        found = [node for node in self._main if node.source == said.source]
        if not found:
            raise ContextError(
                f"{said.in_words} leaves its bytes to another node of "
                f"{said.source or 'its EP'} (main_context is 0), and there is none; "
                f"{REMEDY}"
            )
        return found

    def _entries(self, node: ContextNode) -> dict[str, Entry] | None:
        """Those of the container of *node*; ``None`` if it is no container."""
        payload = node.payload
        if isinstance(payload, bytes):
            if id(payload) not in self._embedded:
                found = _unpacked(memoryview(payload), node)
                self._embedded[id(payload)] = payload, found
            return self._embedded[id(payload)][1]
        if payload not in self._containers:
            self._containers[payload] = _unpacked(self._files[payload], node)
        return self._containers[payload]


def find_contexts(
    model: Model, read_file: Callable[[str], memoryview] | None = None
) -> Contexts | None:
    """The EPContext nodes of *model*; ``None`` if it has none.

    Args:
        read_file: gives the content of a file by its location, in place of the files
            beside the model.

    Raises:
        ContextError: a file is missing, outside the model's folder, or cannot be read.
    """
    nodes = [node for node in _all_nodes(model) if is_ep_context(node)]
    if not nodes:
        return None
    files: dict[str, memoryview] = {}
    for node in nodes:
        said = ContextNode.read(node)
        if not said.is_main or isinstance(said.payload, bytes):
            continue
        if said.payload not in files:
            whose = f"what {said.source or 'an EP'} compiled for {said.in_words}"
            files[said.payload] = (
                model.folder.content(said.payload, whose, ContextError)
                if read_file is None
                else read_file(said.payload)
            )
    model.folder.contents.require_unchanged()
    return Contexts(nodes, files)


def _all_nodes(model: Model) -> Iterator[Node]:
    for root in (model.graph, *(each.body for each in model.functions.values())):
        for graph in all_graphs(root):
            yield from graph.nodes


def _unpacked(container: memoryview, node: ContextNode) -> dict[str, Entry] | None:
    if bytes(container[: len(MAGIC)]) != MAGIC:
        return None
    try:
        return unpack(container)
    except Damaged as error:
        raise damaged(node, str(error)) from error


def damaged(node: ContextNode, why: str) -> ContextError:
    """The error for what is not as it was written."""
    return ContextError(
        f"what {node.source or 'an EP'} compiled for {node.in_words}, {node.where}, is "
        f"damaged: {why}; {REMEDY}"
    )
