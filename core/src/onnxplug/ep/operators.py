"""What an EP says of the operators that it runs, apart from any graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from onnxplug.authoring.fact import fact
from onnxplug.ep.types import DataType


@fact()
class OperatorSupport:
    """An operator that an EP runs, in one of its tiers.

    It is a summary for people: a node may still be refused, or run in a slower tier,
    for its attributes, its shapes, or the way its element types are combined.

    Attributes:
        op_type: the operator's name.
        domain: its domain; empty for ONNX's own.
        since: the first version of the operator that is meant, as
            ``Node.since_version`` counts.
        until: the last one; ``None`` for all later ones.
        tier: which of the EP's tiers runs it; empty if the EP has only one.
        types: for each type variable of the operator's schema (``T``) the element types
            of tensors that it may stand for; empty when nothing is said of them.
    """

    op_type: str
    domain: str = ""
    since: int = 1
    until: int | None = None
    tier: str = ""
    types: Mapping[str, tuple[DataType, ...]] = field(default_factory=dict)
