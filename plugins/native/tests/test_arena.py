"""Slots of the arena at the end of the interpreter."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import codecs, ctypes
from onnxplug_native.interface import arena

class Two(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int64), ("second", ctypes.c_int64)]

codecs.kept = [arena.placed(Two, 1, 2)]  # longer than what was imported later
# as what holds on to a frame does: the names of the module are taken away before it
ctypes.pythonapi.Py_IncRef(ctypes.py_object(arena))
"""


def test_a_slot_that_outlives_its_module_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
