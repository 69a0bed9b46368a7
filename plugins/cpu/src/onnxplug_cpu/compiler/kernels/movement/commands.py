"""What only moves elements, as a target gives it."""

from __future__ import annotations

from onnxplug_cpu.compiler.kernels.movement.copy import record_copies, record_copy
from onnxplug_cpu.compiler.kernels.movement.trilu import record_trilu

__all__ = ["record_copies", "record_copy", "record_trilu"]
