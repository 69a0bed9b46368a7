"""What an EP says of a partition that it compiled.

Asked for by few programs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from onnxplug.authoring.fact import fact


@fact()
class PartitionReport:
    """What became of a partition, for ``explain()``.

    Attributes:
        tiers: which of the EP's tiers a node runs in, by its position in
            ``Partition.nodes``.
        notes: what is to be said of a node, such as why it is in no faster tier, by its
            position.
        counts: how many of what it has made for the shapes that it met, by a word in
            the plural such as ``plans``.
        bodies: of nodes of control flow that the EP took whole, by their position, what
            is said of each body as of a partition, by the attribute that holds it;
            ``explain()`` then has the nodes within.
    """

    tiers: Mapping[int, str] = field(default_factory=dict)
    notes: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    bodies: Mapping[int, Mapping[str, PartitionReport]] = field(default_factory=dict)
