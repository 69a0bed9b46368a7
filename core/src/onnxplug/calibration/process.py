"""A session in a process of its own, which it may crash, or never end.

It is told what to do through its standard input, and answers through its standard
output, in pickles: both ends are this user's own program.  What EPs print goes to a
file, of which the last line is told if the process dies.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from onnxplug.errors import OptionError
from onnxplug.guard import in_words
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.target import LibraryForm
from onnxplug.search_path import search_path

if TYPE_CHECKING:
    from onnxplug.plugins import PluginRegistry
    from onnxplug.session.request import SessionRequest

_POLL: Final = 0.05
"""How often a caller that waits is asked whether it still wants to, in seconds."""

_TOLD: Final = 4096
"""Bytes of what a process wrote that are looked at when it has died."""


class ProcessFailed(Exception):
    """A process did not do what it was told; the text says why."""


class Opened:
    """What a process says of the session that it has made, and run once.

    Attributes:
        load, first_run: seconds.
        nodes: how many nodes each EP has, by its name.
        outputs: by name.
        rest: bytes of memory at their most before the session was made.
        peak: the same by now; 0 where the system does not tell.
    """

    def __init__(
        self,
        load: float,
        first_run: float,
        nodes: Mapping[str, int],
        outputs: Mapping[str, Any],
        rest: int,
        peak: int,
    ) -> None:
        self.load = load
        self.first_run = first_run
        self.nodes = nodes
        self.outputs = outputs
        self.rest = rest
        self.peak = peak


def libraries_of(registry: PluginRegistry) -> list[tuple[str, str]]:
    """The libraries that were registered by hand, as another process can register them.

    Raises:
        OptionError: one is an object of this process.
    """
    found = []
    for record in registry.libraries():
        if record.form is LibraryForm.OBJECT:
            raise OptionError(
                f"the library {record.name!r} is an object of this process, which "
                "another one, in which EPs are timed, cannot have; register it by the "
                "path of its file or by its module"
            )
        found.append((record.name, str(record.target)))
    return found


class SessionProcess:
    """A session in a process of its own.

    Args:
        request: what the session is asked for.
        feed: what it is run on.
        libraries: what is registered there first.
        timeout: seconds that each answer may take.
        check: called while an answer is waited for; raises if that is to end.

    Raises:
        OptionError: what is asked for cannot be handed to another process, or this
            program is not run by a Python that could be started again.
    """

    def __init__(
        self,
        request: SessionRequest,
        feed: Mapping[str, Any],
        libraries: Sequence[tuple[str, str]],
        timeout: float,
        check: Callable[[], None],
    ) -> None:
        self._timeout = timeout
        self._check = check
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        message = _pickled(request, feed)
        self._written: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with it
        try:
            self._process = _started(self._written)
            threading.Thread(
                target=self._read, args=(self._process.stdout,), daemon=True
            ).start()
            self._send(pickle.dumps((search_path(), list(libraries))))
            self._send(message)
        except ProcessFailed:
            pass  # it has died at once, which the first answer that is asked for tells
        except BaseException:
            self.close()
            raise

    def opened(self) -> Opened:
        """What became of the session.

        Raises:
            ProcessFailed: it could not be made, or run.
        """
        return Opened(**self._answer("while its session was made"))

    def run(self, times: int, threads: int = 1) -> tuple[list[float], float]:
        """Run *times* times in each of *threads* threads; the seconds of each run, and
        of all together.

        Raises:
            ProcessFailed: a run failed, or took too long.
        """
        self._send(pickle.dumps((times, threads)))
        seconds, busy = self._answer("while it was timed")
        return seconds, busy

    def peak(self) -> int:
        """The most bytes of memory that the process had; 0 where that is not told.

        Raises:
            ProcessFailed: it is dead.
        """
        self._send(pickle.dumps(None))
        found: int = self._answer("when it was asked for its memory")
        return found

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                _kill(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what it was told last is lost
                        pipe.close()
        self._written.close()

    def _send(self, message: bytes) -> None:
        process = self._process
        if process is None:
            raise ProcessFailed("its process has ended")
        assert process.stdin is not None
        try:
            process.stdin.write(message)
            process.stdin.flush()
        except OSError as error:
            raise_interruption(error)
            raise ProcessFailed(self._how_it_died("at once")) from error

    def _read(self, answers: IO[bytes]) -> None:
        """Hand on what the process says, ``None`` at its end; a thread's work."""
        try:
            while True:
                self._answers.put(pickle.load(answers))
        # it ended in the middle of an answer, or what it sent is none
        except Exception:  # noqa: BLE001
            self._answers.put(None)

    def _answer(self, doing: str) -> Any:
        end = time.monotonic() + self._timeout
        while True:
            try:
                answer = self._answers.get(timeout=_POLL)
                break
            except queue.Empty:
                self._check()
            if time.monotonic() > end:
                self._end()
                raise ProcessFailed(f"it took more than {self._timeout:g} s {doing}")
        if answer is None:
            raise ProcessFailed(self._how_it_died(doing))
        what, value = answer
        if what != "done":
            raise ProcessFailed(str(value))
        return value

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)

    def _how_it_died(self, doing: str) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_POLL * 20)
        except subprocess.TimeoutExpired:
            _kill(self._process)
            return f"its process closed its output {doing}"
        text = f"its process ended with exit code {code} {doing}"
        if code < 0:
            text = f"its process was killed by {_signal(-code)} {doing}"
        self._written.seek(0, os.SEEK_END)
        self._written.seek(max(0, self._written.tell() - _TOLD))
        lines = self._written.read().decode("utf-8", "replace").strip().splitlines()
        return f"{text}: {lines[-1]}" if lines else text


def _pickled(request: SessionRequest, feed: Mapping[str, Any]) -> bytes:
    try:
        return pickle.dumps((request.pickled(), dict(feed)))
    except Exception as error:  # of objects of any kind
        raise_interruption(error)
        raise OptionError(
            "the session cannot be made in another process, in which EPs are timed: "
            f"{in_words(error)}"
        ) from error


def _started(written: IO[bytes]) -> subprocess.Popen[bytes]:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise OptionError(
            "EPs are timed in processes of their own, and this program is not run by a "
            "Python that could be started again; calibrate by `onnxplug calibrate` of "
            "an environment that has the same EPs"
        )
    path = os.pathsep.join(search_path())
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # no plugin comes from the current directory
            *("-m", "onnxplug.calibration.child"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=written,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # to end its children with it
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
