"""Judges probes in a thread of their own, for as long as there is time.

A probe that hangs cannot be ended: its thread is left behind, and runs no other.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.verify.trial import unverified

if TYPE_CHECKING:
    from onnxplug.ep import Probe
    from onnxplug.verify.verdict import FamilyVerdict

_POLL: Final = 0.05
"""How often a caller that waits is asked whether it still wants to, in seconds."""


def judge_within(
    seconds: float,
    probes: Sequence[Probe],
    judge: Callable[[Probe], FamilyVerdict],
    check: Callable[[], None],
    remedy: str,
) -> list[FamilyVerdict]:
    """The verdicts on *probes*; those that there is no time for are unverified.

    Args:
        check: raises if the caller does not want to wait any more.
        remedy: what to do for those; follows a semicolon.
    """
    judged: queue.SimpleQueue[FamilyVerdict] = queue.SimpleQueue()
    abandoned = threading.Event()

    def work() -> None:
        for probe in probes:
            if abandoned.is_set():
                return
            try:
                verdict = judge(probe)
            # nobody else is there to catch it, and the caller waits
            except BaseException as error:  # noqa: BLE001
                why = f"the check itself failed: {type(error).__name__}: {error}"
                verdict = unverified(probe, why)._replace(lasts=False)
            judged.put(verdict)

    deadline = time.monotonic() + seconds
    worker = threading.Thread(target=work, name="onnxplug-verify", daemon=True)
    try:
        worker.start()
    except RuntimeError as error:  # the system gives no more threads
        return [
            unverified(probe, f"no thread could be started: {error}")._replace(
                lasts=False
            )
            for probe in probes
        ]
    verdicts: list[FamilyVerdict] = []
    try:
        while len(verdicts) < len(probes):
            left = deadline - time.monotonic()
            try:
                verdicts.append(judged.get(timeout=max(0.0, min(left, _POLL))))
            except queue.Empty:
                check()
                if left <= 0:
                    break
    finally:
        abandoned.set()
    limit = f"the {seconds:g} s that the probes of a device have together; {remedy}"
    texts = [f"it took longer than {limit}", f"not run within {limit}"]
    left_over = probes[len(verdicts) :]
    return verdicts + [
        unverified(probe, texts[min(number, 1)], late=True)
        for number, probe in enumerate(left_over)
    ]
