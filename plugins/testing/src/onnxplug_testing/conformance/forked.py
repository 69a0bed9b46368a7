"""A piece of work in a child of the process, which it may end or hang."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

from onnxplug.authoring.record import Record

CAN_FORK: Final = hasattr(os, "fork")

_MOST: Final = 1 << 16
"""Bytes that a child may say."""


class Child(Record):
    """What came of it.

    Attributes:
        said: what the work returned, or what it raised; empty if it did not end.
        ended: how it ended otherwise, in words; empty if it did not.
        hung: it was still at work when the time was over.
    """

    said: str
    ended: str = ""
    hung: bool = False


def in_child(work: Callable[[], str], seconds: float) -> Child:
    """What *work* returns in a child that is forked now."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            text = work()
        except BaseException as error:  # noqa: BLE001 (told to the parent)
            text = f"raised {type(error).__name__}: {error}"
        _write(writer, text.encode()[:_MOST])
        os._exit(0)
    os.close(writer)
    try:
        said = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
    if said is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return Child("", hung=True)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Child(said, f"signal {signal.Signals(-code).name}")
    return Child(said, f"exit code {code}" if code else "")


def _write(writer: int, text: bytes) -> None:
    while text:
        text = text[os.write(writer, text) :]


def _read(reader: int, end: float) -> str | None:
    """All that is written until the other end is closed; ``None`` if it is not."""
    parts: list[bytes] = []
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        part = os.read(reader, 4096)
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
