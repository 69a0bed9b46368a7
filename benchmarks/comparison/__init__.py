"""Compares onnxplug with other runtimes on models: processes that take turns."""

from __future__ import annotations

from .command import main
from .processes import Files, Runtime

__all__ = ["Files", "Runtime", "main"]
