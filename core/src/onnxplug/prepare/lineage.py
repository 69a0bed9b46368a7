"""Which nodes stand in the place of which, after a graph was rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.graph import Node


def trace(before: Sequence[Node], after: Sequence[Node]) -> None:
    """Note of what the nodes are made that a graph has *after*, and had not *before*.

    A new node is made of the node that gave a value that it gives, with all before that
    one that are gone and were only for it; one that gives none of these values is made
    of what its readers are made of.
    """
    there, known = set(after), set(before)
    new = [node for node in after if node not in known]
    if not new:
        return
    gone = {name: node for node in before if node not in there for name in node.outputs}
    given = {name for node in after for name in node.outputs if name}
    readers: dict[str, list[Node]] = {}
    for node in new:
        for name in filter(None, node.inputs):
            readers.setdefault(name, []).append(node)
    for node in reversed(new):
        made_of = _gone_for(node, gone, given)
        if not made_of:
            read_by = (
                each for name in node.outputs for each in readers.get(name or "", ())
            )
            made_of = [made for reader in read_by for made in reader.made_of]
        node.made_of = tuple(dict.fromkeys((*node.made_of, *made_of)))


def _gone_for(node: Node, gone: dict[str | None, Node], given: set[str]) -> list[Node]:
    """Nodes that are gone of what *node* gives; *given* values are still there."""
    found: dict[Node, None] = {}
    waiting = [name for name in node.outputs if name and name in gone]
    while waiting:
        made = gone[waiting.pop()]
        if made in found:
            continue
        found[made] = None
        waiting += [
            name
            for name in (*made.inputs, *made.captures)
            if name and name in gone and name not in given
        ]
    return list(found)
