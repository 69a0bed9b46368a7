"""The styles of EPs that can be written, and the templates that each is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Style(NamedTuple):
    """A way in which EPs work.

    Attributes:
        summary: what is special to it, in words.
        layers: folders of templates; of a file that several have, the last one's is
            taken.
    """

    summary: str
    layers: tuple[str, ...]


STYLES: Final[Mapping[str, Style]] = {
    "kernels": Style("runs each node by a function", ("common", "kernels")),
    "compile": Style(
        "makes one function of many nodes", ("common", "kernels", "compile")
    ),
    "device": Style(
        "queues work on a device with memory of its own, which is simulated",
        ("common", "device"),
    ),
}
"""By the name that users write."""
