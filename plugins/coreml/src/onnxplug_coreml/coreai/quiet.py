"""What Core AI writes on the standard error, kept from it."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CHATTER: Final = re.compile(rb"^ODIE \[default\]: Loading function '.*'$\n?", re.M)
"""What it says of every function that it loads, with no way to turn that off."""

_STANDARD_ERROR: Final = 2

_lock: Final = threading.Lock()


@contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back the process's standard error; what is no chatter follows at the end."""
    with _lock, tempfile.TemporaryFile() as held:
        try:
            kept = os.dup(_STANDARD_ERROR)
        except OSError:  # there is none
            yield
            return
        os.dup2(held.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(kept, _STANDARD_ERROR)
            held.seek(0)
            rest = _CHATTER.sub(b"", held.read())
            while rest:
                rest = rest[os.write(kept, rest) :]
            os.close(kept)
