"""What all protocols of a server share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_serve.admission import Admission
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.repository import Repository
from onnxplug_serve.settings import Settings


class Service:
    """A server's models, limits and metrics.

    Args:
        settings: checked.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.admission = Admission(settings.limits, self.metrics)
        self.repository = Repository(settings, self.metrics)

    def metadata(self, extensions: Sequence[str]) -> dict[str, Any]:
        """What the protocol tells of a server."""
        from onnxplug_serve import __version__  # which imports this module

        return {
            "name": "onnxplug",
            "version": __version__,
            "extensions": list(extensions),
        }
