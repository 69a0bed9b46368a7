"""Models that stay in a folder of the user's, for later sessions."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug_coreml import __version__
from onnxplug_coreml.artefact import Artefact
from onnxplug_coreml.formats import engine_version
from onnxplug_coreml.machine import Machine
from onnxplug_coreml.options import Settings


class KeptModels:
    """A folder of models by what they were built of, by which version of what.

    Several processes may use it: a model appears in it whole.  Who may write to the
    folder decides what is computed.

    Args:
        root: made if need be.

    Raises:
        OptionError: it cannot be made, or is no folder.
    """

    def __init__(self, root: Path, settings: Settings, machine: Machine) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ep.OptionError(
                f"option 'ModelCacheDirectory' is {str(root)!r}, which cannot be used: "
                f"{error.strerror}"
            ) from error
        self._root: Final = root
        self._built_by: Final = {
            "ep": __version__,
            "engine": engine_version(settings.model_format),
            "system": (machine.system, machine.processor, machine.release),
            "settings": {
                name: value
                for name, value in settings._asdict().items()
                if name not in ("cache_folder", "caches", "profiles_plan")
            },
        }

    def _place(self, partition: ep.Partition) -> Path:
        key = json.dumps([partition.fingerprint, self._built_by], sort_keys=True)
        return self._root / hashlib.sha256(key.encode()).hexdigest()[:40]

    def find(self, partition: ep.Partition) -> Artefact | None:
        """The model of *partition*; ``None``: there is none."""
        place = self._place(partition)
        return Artefact(place) if place.is_dir() else None

    def discard(self, artefact: Artefact) -> None:
        """Delete a model that is of no use."""
        shutil.rmtree(artefact.folder, ignore_errors=True)

    def keep(
        self,
        partition: ep.Partition,
        build: Callable[[ep.Partition, Artefact], None],
    ) -> Artefact:
        """What *build* writes for *partition*, kept.

        Raises:
            Declined: as of *build*, or the folder cannot be written to.
        """
        place = self._place(partition)
        try:
            made = Path(tempfile.mkdtemp(prefix=".building-", dir=self._root))
        except OSError as error:
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"ModelCacheDirectory {str(self._root)!r} cannot be written to: "
                    f"{error.strerror}",
                )
            ) from error
        try:
            build(partition, Artefact(made))
            # another process may have been sooner, whose model is as good
            with contextlib.suppress(FileExistsError, OSError):
                os.rename(made, place)
            return Artefact(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
