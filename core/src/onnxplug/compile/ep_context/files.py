"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable

from onnxplug.errors import Fail


def write_whole(path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write *parts* to a new file, and put it in the place of what is at *path*.

    Who has that mapped keeps it as it was.

    Raises:
        Fail: it cannot be written; *path* is as it was.
    """
    with contextlib.suppress(OSError):  # it is not there yet
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Fail(
                f"the file {path!r} cannot be written: what is there is no regular file"
            )
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid():x}.{time.monotonic_ns():x}")
    try:
        with open(temporary, "xb") as file:
            for part in parts:
                file.write(part)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise Fail(
                f"the file {path!r} cannot be written: {error.strerror or error}"
            ) from error
        raise
