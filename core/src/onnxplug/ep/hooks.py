"""The mark of a plugin's hooks.

It is in a file of its own since pluggy takes longer to import than most of the rest of
the SPI, and a plugin whose entry points name its factories needs no hooks.
"""

from __future__ import annotations

import pluggy

hookimpl = pluggy.HookimplMarker("onnxplug")
"""Marks a plugin's functions as implementations of the host's hooks."""
