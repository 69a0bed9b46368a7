"""What both engines give: models built of programs, loaded, and called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from onnxplug_coreml.lowering.program import Program
from onnxplug_coreml.options import Settings

Runner: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Called from any number of threads with C-contiguous arrays by the names of the
program's inputs; gives new arrays by the names of its results."""


class Engine(Protocol):
    """One of the modules :mod:`.coreai` and :mod:`.mlprogram`."""

    def build(self, program: Program, settings: Settings, folder: Path) -> Path:
        """The program as a model in *folder*; where it is there.

        Raises:
            Declined: the engine does not take it.
        """

    def load(self, path: Path, settings: Settings) -> Runner:
        """The model at *path*, which stays there while it is used, ready to run.

        Raises:
            Declined: the engine does not take it.
        """

    def units(self, path: Path, settings: Settings) -> Mapping[str, str]:
        """On which unit the engine means to make values, by their names.

        What it does not say is left out.

        Raises:
            Declined: it says nothing at all.
        """
