"""Judges probes in a thread of their own, for as long as there is time.

A probe that hangs cannot be ended: its thread is left behind, and runs no other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.verify.stopwatch import Phase, Stopwatch
from onnxplug.verify.trial import unverified

if TYPE_CHECKING:
    from onnxplug.ep import Probe
    from onnxplug.verify.verdict import FamilyVerdict

_POLL: Final = 0.05
"""How often a caller that waits is asked whether it still wants to, in seconds."""


def judge_within(
    limits: Mapping[Phase, float],
    probes: Sequence[Probe],
    judge: Callable[[Probe, Stopwatch], FamilyVerdict],
    check: Callable[[], None],
    remedy: str,
) -> list[FamilyVerdict]:
    """The verdicts on *probes*; those that there is no time for are unverified.

    Args:
        limits: what each phase of all probes may take together, in seconds.
        check: raises if the caller does not want to wait any more.
        remedy: what to do for those; follows a semicolon.
    """
    judged: queue.SimpleQueue[FamilyVerdict] = queue.SimpleQueue()
    abandoned = threading.Event()
    stopwatch = Stopwatch()

    def work() -> None:
        for probe in probes:
            if abandoned.is_set():
                return
            try:
                verdict = judge(probe, stopwatch)
            # nobody else is there to catch it, and the caller waits
            except BaseException as error:  # noqa: BLE001
                why = f"the check itself failed: {type(error).__name__}: {error}"
                verdict = unverified(probe, why)._replace(lasts=False)
            judged.put(verdict)

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
            phase, left = stopwatch.left(limits)
            try:
                verdicts.append(judged.get(timeout=max(0.0, min(left, _POLL))))
            except queue.Empty:
                check()
                if left <= 0:
                    break
    finally:
        abandoned.set()
    if len(verdicts) == len(probes):
        return verdicts
    limit = (
        f"the {limits[phase]:g} s that {phase} the probes of a device may take "
        f"together; {remedy}"
    )
    reached, *others = probes[len(verdicts) :]
    return [
        *verdicts,
        unverified(reached, f"{phase} it took longer than {limit}", timeouts=1),
        *(unverified(each, f"not run within {limit}", timeouts=0) for each in others),
    ]
