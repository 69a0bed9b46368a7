"""Lets the child of a fork import what another thread was importing at that moment.

While a thread imports a module it holds a lock of that module's.  The child has a copy
of the lock, and no thread that would ever release it: importing the module would wait
for ever.  Here such locks are made anew, and modules that are half imported are taken
out of ``sys.modules``, so that they are imported from their beginning.  What is
imported completely does not depend on those.

CPython does so for the lock of all imports only.  What is known of the others is that
of its ``importlib._bootstrap``; where it is not found, nothing is done.
"""

from __future__ import annotations

import _thread
import os
import sys
from typing import Any


def _start_child() -> None:
    bootstrap: Any = sys.modules.get("_frozen_importlib")
    own = _thread.get_ident()
    for name, reference in list(getattr(bootstrap, "_module_locks", {}).items()):
        lock = reference()
        if getattr(lock, "owner", None) in (None, own):
            continue
        lock.__init__(name)
        module = sys.modules.get(name)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            del sys.modules[name]
    # what threads that are gone were waiting for
    getattr(bootstrap, "_blocking_on", {}).clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_child)
