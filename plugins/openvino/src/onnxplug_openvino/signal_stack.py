"""The stack of signals that a thread has, which OpenVINO replaces.

OpenVINO's processor plugin gives the thread that loads it a larger stack for signals
(``sigaltstack``), as Linux asks of users of AMX, and frees it with its ``Core``.  The
thread gets its former stack back only if no other ``Core`` replaced it meanwhile, and
only if the thread that releases the ``Core`` is the one that made it.  Otherwise the
thread keeps a stack that is unmapped, or belongs to something else by then: the next
signal, Ctrl-C for one, ends the process or overwrites foreign memory.  (Seen with
OpenVINO 2026.2; the larger stack came with its pull request 11894.)

A thread that has its former stack back at once does not meet that.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any


class SignalStack(ctypes.Structure):
    """``stack_t`` of Linux, for one thread."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    )

    @classmethod
    def current(cls) -> SignalStack | None:
        """That of the calling thread; None where OpenVINO replaces none."""
        stack = cls()
        if sys.platform == "linux" and _exchange(None, ctypes.byref(stack)):
            return stack
        return None

    def restore(self) -> bool:
        """Make it the calling thread's again, and tell whether that was possible.

        Linux refuses a stack that is too small for AMX once the process may use AMX.
        """
        return _exchange(ctypes.byref(self), None)


def _exchange(new: Any, old: Any) -> bool:
    function: Any = ctypes.CDLL(None).sigaltstack
    return bool(function(new, old) == 0)
