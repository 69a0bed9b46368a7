"""The functions that write primitives as Core AI's operations, by primitive."""

from __future__ import annotations

from typing import Final

from onnxplug_coreml.emitters import Emitters

EMITTERS: Final = Emitters()

emits = EMITTERS.emits
