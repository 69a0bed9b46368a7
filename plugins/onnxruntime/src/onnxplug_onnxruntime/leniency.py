"""What is done about options that do nothing, as ONNX Runtime does it."""

from __future__ import annotations

from onnxplug.errors import OptionWarning
from onnxplug.strictness import Strictness
from onnxplug.warn import warn_user


class Leniency(Strictness):
    """Config entries that nobody has are kept, with one warning for each; of what has
    no effect only a debug message tells."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def unknown(self, name: str, text: str) -> None:
        """Warn of the config entry *name*, unless that was done."""
        if name not in self._told:
            self._told.add(name)
            warn_user(f"{text}; it is kept and has no effect", OptionWarning)

    def without_effect(self, text: str) -> None:
        """See :func:`log_without_effect`."""
        log_without_effect(text)


def log_without_effect(text: str) -> None:
    """Log, for who looks for it, that what is set has no effect."""
    import logging

    logging.getLogger("onnxplug.options").debug("%s", text)
