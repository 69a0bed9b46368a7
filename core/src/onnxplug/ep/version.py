"""The version of the SPI, apart from the version of any distribution, and what of it
warns since later ones will not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SPI_VERSION: Final = (1, 0)
"""A plugin is accepted when its major equals this and its minor is not greater, or it
was written for 0.x, and it defines nothing that was removed since."""


class Deprecation:
    """What is to be said of something deprecated.

    Attributes:
        since: the version that warns first.
        instead: what to use, in words.
    """

    __slots__ = ("instead", "since")

    def __init__(self, since: tuple[int, int], instead: str) -> None:
        self.since = since
        self.instead = instead

    def text(self, name: str) -> str:
        """The warning about *name*."""
        major, minor = self.since
        return (
            f"{name} is deprecated since SPI {major}.{minor}, and SPI {major + 1}.0 "
            f"will not have it; use {self.instead} instead"
        )


DEPRECATED: Final[Mapping[str, Deprecation]] = {}
"""What warns, until the next major version removes it: ``Name`` of ``onnxplug.ep``,
when it is asked for, or ``Class.member`` of what plugins supply, when one defines it.
Nothing does now.  A name must be one that is imported when it is asked for."""
