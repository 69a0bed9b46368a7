"""Whether what an EP compiled elsewhere, or before, is of use here."""

from __future__ import annotations

from enum import StrEnum


class Compatibility(StrEnum):
    """What an EP says of a compiled partition, in ONNX Runtime's four words."""

    OPTIMAL = "optimal"
    """It can be restored, and is what would be compiled here."""

    RECOMPILE = "recompile"
    """It can be restored, but what is compiled here would be better."""

    UNSUPPORTED = "unsupported"
    """It must not be restored."""

    NOT_APPLICABLE = "not-applicable"
    """It is not this EP's."""
