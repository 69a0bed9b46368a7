"""Where nodes run, and which values are copied, as data for reports."""

from __future__ import annotations

from onnxplug.authoring.record import Record
from onnxplug.ep import Reason
from onnxplug.escape import escape


class PassedOver(Record):
    """An EP that a node is not on, though it was asked.

    Attributes:
        ep: the EP's name.
        reason: why not.
    """

    ep: str
    reason: Reason

    def __str__(self) -> str:
        return f"{escape(self.ep)}: {self.reason}"


class NodePlacement(Record):
    """Where one node runs.

    Attributes:
        graph: empty for the main graph, else the way to a body: ``Loop 'x'.body``.
        node: the node in words.
        op_type, domain, name: as in the model.
        ep: who runs it; ``host`` for control flow whose bodies are run by the core.
        partition: the partition's number; -1 for the host.
        passed_over: the EPs asked that do not run it, in order of preference.
        tier: which of the EP's tiers runs it, if the EP reports it.
        note: what the EP has to say of it, such as why it is in no faster tier.
        pin: the pins that decided that the EP has it, in words; empty if none did.
        inputs: names of what it reads, and of what its bodies take from outside;
            ``None`` for what is left out.
        outputs: names of what it makes; ``None`` likewise.
        types, nbytes: of the outputs, in words and in bytes; empty and ``None`` where
            they are not known before running.
    """

    graph: str
    node: str
    op_type: str
    domain: str
    name: str
    ep: str
    partition: int
    passed_over: tuple[PassedOver, ...] = ()
    tier: str = ""
    note: str = ""
    pin: str = ""
    inputs: tuple[str | None, ...] = ()
    outputs: tuple[str | None, ...] = ()
    types: tuple[str, ...] = ()
    nbytes: tuple[int | None, ...] = ()


class CopyPlacement(Record):
    """A copy of one value between memory locations, made in each run.

    Attributes:
        graph: as in :class:`NodePlacement`.
        value: the value's name.
        source, target: the locations.
        nbytes: its size, when known before running.
    """

    graph: str
    value: str
    source: str
    target: str
    nbytes: int | None = None
