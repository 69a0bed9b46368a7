"""What is done about options that nobody has, and about those without effect."""

from __future__ import annotations

from typing import Final

from onnxplug.errors import OptionError, OptionWarning
from onnxplug.warn import warn_user


class Strictness:
    """The one is an error, the other a warning; programs for ONNX Runtime have
    another, in ``onnxplug_onnxruntime``."""

    def unknown(self, name: str, text: str) -> None:
        """Nobody has the config entry *name*, as *text* says.

        Raises:
            OptionError: always; where this does not raise, the entry is kept and has no
                effect.
        """
        raise OptionError(text)

    def without_effect(self, text: str) -> None:
        """What is set has no effect, as *text* says."""
        warn_user(text, OptionWarning)


STRICT: Final = Strictness()
"""onnxplug's own."""
