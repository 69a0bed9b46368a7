"""Processes that run models which may crash them, hang or take all memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

PATIENCE: Final = 10.0
"""Seconds that making a session, or one run, may take."""

INTERNAL: Final = frozenset(
    "AssertionError AttributeError IndexError KeyError NameError RecursionError "
    "StopIteration SystemError TypeError UnboundLocalError UnicodeDecodeError "
    "UnicodeEncodeError ZeroDivisionError".split()
)
"""Errors of Python that say that nobody foresaw what happened, also where one of ours
passes on what they say."""

GROWS: Final = 40 << 10
"""Bytes that a session that is gone may leave behind on the average, as allocators keep
some memory: more than a few is something that nobody frees."""


class Case(NamedTuple):
    """A model, and what is fed to it.

    Attributes:
        name: what it is, and how it was made.
        model: the bytes.
        runs: for each run of one session the inputs: arrays, pairs of an array and
            how it lies in memory (see ``child.py``), or whatever else.
        files: beside the model, by name.
        threads: of a run.
        repeat: how many sessions to make, to see what they leave behind; mostly none.
        ops: what was mutated, for telling findings apart.
    """

    name: str
    model: bytes
    runs: Sequence[Mapping[str, Any]]
    files: Mapping[str, bytes] = MappingProxyType({})
    threads: int = 1
    repeat: int = 0
    ops: str = ""


class Outcome(NamedTuple):
    """What became of a case on one engine.

    Attributes:
        kind: ``results``, ``clear error``, and what is a finding: ``crash``, ``hang``,
            ``growth``, ``raw error``, ``internal error`` (one of Python's within one of
            ours), ``printed`` or ``stray warning``.
        key: equal for outcomes that likely have one cause.
        stage: ``create``, ``run 0`` and so on, where it happened.
        text: what to show of it.
        create: the error of making the session, if there was one.
        runs: of each run its results, or its error.
        seconds: from the beginning to the end.
    """

    kind: str
    key: str = ""
    stage: str = ""
    text: str = ""
    create: Mapping[str, Any] | None = None
    runs: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        """Whether it must not be."""
        return self.kind not in ("results", "clear error")


class Child:
    """A process for one case after the other; a context manager.

    Args:
        patience: seconds that making a session, or one run, may take.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        ours, theirs = socket.socketpair()
        script = Path(__file__).with_name("child.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._worker = 0
        self._number = 0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, case: Case, engine: str) -> Outcome:
        """What becomes of *case* on ``compiled``, ``arrays``, ``onnxruntime`` or
        ``reference``."""
        while not self._worker:
            self._worker = self._receive(60)["pid"]
        self._number += 1
        given = {
            **case._asdict(),
            "files": dict(case.files),
            "engine": engine,
            "number": self._number,
        }
        self._connection.send(given)
        started = time.monotonic()
        stage = "sent"
        while True:
            patience = self._patience * (6 if stage == "repeat" else 1)
            try:
                message = self._receive(patience)
            except TimeoutError:
                stack = self._kill()
                return Outcome("hang", f"hang {_stack_key(stack)}", stage, stack[:6000])
            if message.get("number", self._number) != self._number:
                continue  # of the case before, whose worker died after its answer
            if "stage" in message:
                stage = message["stage"]
            elif "died" in message:
                self._worker = 0
                died, stack = message["died"], message["stack"]
                name = signal.Signals(-died).name if died < 0 else f"exit {died}"
                key = f"{name} {_stack_key(stack)}"
                return Outcome("crash", key, stage, f"{name}\n{stack[:6000]}")
            else:
                seconds = time.monotonic() - started
                return _judged(message, case.repeat, seconds)

    def _receive(self, patience: float) -> dict[str, Any]:
        if not self._connection.poll(patience):
            raise TimeoutError
        message: dict[str, Any] = self._connection.recv()
        return message

    def _kill(self) -> str:
        """End a worker that hangs; where it was."""
        os.kill(self._worker, signal.SIGABRT)  # faulthandler writes the stacks
        self._worker = 0
        while True:
            message = self._receive(60)
            if "died" in message:
                return str(message["stack"])


def _judged(message: Mapping[str, Any], repeat: int, seconds: float) -> Outcome:
    create, runs = message["create"], message["runs"]
    kind, key, stage, text = "results", "", "", ""
    stages = [("create", create)] + [(f"run {n}", run) for n, run in enumerate(runs)]
    for name, part in stages:
        if part is None or "error" not in part:
            continue
        found = _kind_of_error(part)
        if kind in ("results", "clear error") and (kind != found):
            kind, stage = found, name
            error = part["error"]
            innermost = (part["causes"] or [error])[-1]
            key = f"{innermost[0]} at {innermost[2] or error[2]}"
            text = f"{error[0]}: {error[1]}\n{part['traceback']}"
    if kind in ("results", "clear error"):
        growth = message.get("growth")
        strays = [each for each in message["warned"] if _is_stray(each)]
        if growth and max(growth["files"], growth["threads"]) > repeat // 4:
            kind, key, text = "growth", "files or threads", str(growth)
        elif growth and growth["bytes"] > GROWS * repeat:
            kind, key, text = "growth", "memory", str(growth)
        elif strays:
            kind, key, text = "stray warning", strays[0][:60], "\n".join(strays)
        elif message["printed"]:
            kind, text = "printed", message["printed"][:2000]
            key = text[:60]
    return Outcome(kind, key, stage, text, create, runs, seconds)


def _kind_of_error(part: Mapping[str, Any]) -> str:
    if not part["ours"] or len(part["error"][1]) < 10:
        return "raw error"
    for name, text, _, meant in part["causes"][:1]:  # which ours tells of
        said = f"{name}: {text}"[:60] in part["error"][1]
        # of what a function of numpy cannot do, it says all
        if name in INTERNAL and said and not meant and not text.startswith("ufunc '"):
            return "internal error"
    return "clear error"


def _is_stray(warning: str) -> bool:
    """Whether a warning is neither one of ours nor about how something is written."""
    return not warning.startswith("onnxplug.errors.")


def _stack_key(stack: str) -> str:
    """The innermost functions of a stack as faulthandler writes it."""
    frames: list[str] = []
    for line in stack.splitlines():
        line = line.strip()
        if line.startswith("File ") and "robustness" not in line:
            path, _, rest = line[6:].partition('"')
            frames.append(f"{Path(path).name}{rest.removeprefix(', line ')}")
        if len(frames) == 3:
            break
    return " < ".join(frames)
