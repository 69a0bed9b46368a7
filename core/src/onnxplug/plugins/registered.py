"""What is known of a library that was registered by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class LibraryForm(StrEnum):
    """What the target of a registration was taken for."""

    OBJECT = "object"
    FILE = "file"
    MODULE = "module"
    ENTRY_POINT = "entry point"


class LibraryRecord(NamedTuple):
    """A library that was registered by hand.

    Attributes:
        name: the handle that the caller chose.
        form: what its target was taken for.
        source: where it came from: a path, ``module:attribute``, or a name.
        eps: the names of the EPs that it supplies, sorted.
        target: as the caller gave it.
    """

    name: str
    form: LibraryForm
    source: str
    eps: tuple[str, ...]
    target: object

    @property
    def is_installed(self) -> bool:
        """Whether it is an installed plugin, which is known without it, too."""
        return self.form is LibraryForm.ENTRY_POINT
