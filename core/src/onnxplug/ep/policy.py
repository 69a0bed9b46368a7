"""Selection policies: which pairs of EP and device a session uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from onnxplug.authoring.record import Record
from onnxplug.ep.devices import EpDevice


class ModelInfo(Record):
    """What a policy may know of the model.  May gain attributes.

    Attributes:
        producer_name, producer_version: the program that made the model.
        domain: a namespace for the model's name, such as ``org.example``.
        model_version: the producer's number for it.
        doc_string: the model's description.
        graph_name: the name of the model's graph.
        graph_description: the graph's own description.
        metadata: custom entries.
    """

    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc_string: str = ""
    graph_name: str = ""
    graph_description: str = ""
    metadata: Mapping[str, str] = MappingProxyType({})


class SelectionPolicy(Protocol):
    """Chooses among the pairs of this machine.

    A function will do.  Plugins supply theirs by the hook
    ``onnxplug_selection_policies``; users may pass one to a session.
    """

    def __call__(
        self, ep_devices: Sequence[EpDevice], model_info: ModelInfo, /
    ) -> Iterable[EpDevice]:
        """The pairs to use, best first, all of them from *ep_devices*.

        Called once per session, with all pairs in ONNX Runtime's order.  Nodes go to
        the first EP that takes them.  Raising fails the session.
        """
