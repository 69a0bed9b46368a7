"""Work of runs that a library captures, and replays in memory that is bound.

A library captures by itself, in a run whose options tell it a number; the host asks it
afterwards whether it did, and has it replay what has that number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_native.functions.environment import GRAPH_ID, NOT_CAPTURED
from onnxplug_native.interface.structure import Structure

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from onnxplug_native.device import NativeTransfer
    from onnxplug_native.partition import Arguments

MOST_RUNS: Final = 8
"""So many runs a library may want before it has captured one, as in ONNX Runtime."""

_REMEDY: Final = (
    f"leave out its option to capture, or run with {GRAPH_ID}={NOT_CAPTURED}"
)


class DoneEvent(ep.Event):
    """A point in work that was done when it was asked for."""

    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class DoneStream(ep.Stream):
    """A stream of a library without streams, whose work is done when its calls return.

    Attributes:
        work: what the runs on it are captured for; ``None``: they are not.
    """

    work: CapturedWork | None = None

    def record(self) -> DoneEvent:
        return DoneEvent()

    def wait(self, event: ep.Event) -> bool:
        return False

    def synchronize(self) -> None:
        return None


class CapturedWork(ep.CapturedGraph):
    """What a library has captured in one run of a session."""

    def __init__(self, capture: NativeCapture) -> None:
        self._capture = capture
        self._numbers: list[int] = []
        self._kept: list[tuple[Arguments, Sequence[Any]]] = []

    def begin(self) -> int:
        """The number of what is captured next.

        Raises:
            EPFail: the library says that it has captured that already.
        """
        number = self._capture.new_number()
        self._numbers.append(number)
        return number

    def keep(self, arguments: Arguments, arrays: Sequence[Any]) -> None:
        """Keep what the captured work reads and writes."""
        self._kept.append((arguments, arrays))

    def launch(self, stream: ep.Stream) -> None:
        """Have the library replay all of it.

        Raises:
            OnnxplugError: it fails, and says why.
        """
        for number in self._numbers:
            self._capture.replay(number)

    def close(self) -> None:
        """Have the library release it, and release what it needs."""
        numbers, self._numbers = self._numbers, []
        kept, self._kept = self._kept, []
        try:
            self._capture.release(self, numbers)
        finally:
            for arguments, _ in kept:
                arguments.release()


class NativeCapture(ep.GraphCapture):
    """Has the EP of a library capture the runs of a session."""

    def __init__(
        self, structure: Structure, who: str, turn: AbstractContextManager[Any]
    ) -> None:
        """*turn* is held while the library is called.

        Raises:
            OptionError: the library does not implement what it takes to replay.
        """
        for needed in ("IsGraphCaptured", "ReplayGraph"):
            if not structure.has(needed):
                raise ep.OptionError(
                    f"{who} is to capture graphs, and does not implement "
                    f"OrtEp.{needed}; leave out its option that says so"
                )
        self._structure = structure
        self._who = who
        self._turn = turn
        self._numbers = itertools.count(1)
        self._lock = new_lock()
        self._live: set[CapturedWork] = set()

    def begin(self, stream: ep.Stream) -> None:
        """Let runs on *stream* be captured."""
        assert isinstance(stream, DoneStream)
        stream.work = CapturedWork(self)
        with self._lock:
            self._live.add(stream.work)

    def end(self, stream: ep.Stream) -> CapturedWork:
        """What was captured since :meth:`begin`."""
        assert isinstance(stream, DoneStream)
        work, stream.work = stream.work, None
        assert work is not None
        return work

    def new_number(self) -> int:
        """A number that nothing was captured under.

        Raises:
            EPFail: the library says otherwise.
        """
        number = next(self._numbers)
        if self.has_captured(number):
            raise ep.EPFail(
                f"{self._who} says that it has captured graph {number}, of which it "
                "was not told yet: it keeps one for all numbers; bind one session once "
                f"and run one partition, or {_REMEDY}"
            )
        return number

    def has_captured(self, number: int) -> bool:
        """Whether the library says so."""
        with self._turn:
            return bool(self._structure.call("IsGraphCaptured", number))

    def replay(self, number: int) -> None:
        """Have the library do again what it has captured, and wait for it.

        Raises:
            OnnxplugError: it fails, and says why.
        """
        with self._turn:
            self._structure.call("ReplayGraph", number)
            if self._structure.has("Sync"):
                self._structure.call("Sync")

    def release(self, work: CapturedWork, numbers: Sequence[int]) -> None:
        """Have the library release what it has captured, if it can."""
        with self._lock:
            self._live.discard(work)
        for number in numbers:
            if self._structure.has("ReleaseCapturedGraph"):
                with self._turn:
                    self._structure.call("ReleaseCapturedGraph", number)

    def failed(self, what: str) -> ep.EPFail:
        """What is raised where a library does not capture as it should."""
        return ep.EPFail(f"{self._who} {what}; {_REMEDY}")

    def close(self) -> None:
        """Release what is left, as bindings outlive sessions."""
        while self._live:
            self._live.pop().close()


class Trial:
    """Tries once whether what was captured computes what an ordinary run did."""

    def __init__(self, transfer: NativeTransfer, arrays: Sequence[Any]) -> None:
        """*arrays* are what the ordinary run left."""
        self._transfer = transfer
        self._arrays = [array for array in arrays if array.nbytes]
        self._expected = self._read()

    def _read(self) -> list[np.ndarray[Any, Any]]:
        found = [np.empty(array.shape, array.dtype) for array in self._arrays]
        self._transfer.copy(list(zip(self._arrays, found, strict=True)), None)
        return found

    def spoil(self) -> None:
        """Let each byte be another than the one expected."""
        other = [
            (~each.reshape(-1).view(np.uint8)).view(each.dtype).reshape(each.shape)
            for each in self._expected
        ]
        self._transfer.copy(list(zip(other, self._arrays, strict=True)), None)

    def is_right(self) -> bool:
        """Whether what is there now is what was expected, but for rounding."""
        return all(map(_alike, self._read(), self._expected))


def _alike(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    if found.tobytes() == expected.tobytes():
        return True
    if expected.dtype.kind in "iub":
        return False
    if expected.dtype.kind != "c":
        found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if finite.size else 0.0
    return np.allclose(found, expected, rtol=1e-3, atol=1e-3 * largest, equal_nan=True)


def is_captured(context: ep.RunContext | None) -> bool:
    """Whether a run is one to capture."""
    return context is not None and context.capture is ep.CapturePhase.CAPTURE


def capture_of(
    structure: Structure,
    factory: Structure,
    who: str,
    turn: AbstractContextManager[Any],
) -> NativeCapture | None:
    """What has *structure*, an EP, capture; ``None`` if it does not.

    Raises:
        OptionError: it does, in a way that is not hosted.
    """
    entry = "IsGraphCaptureEnabled"
    if not structure.has(entry) or not structure.call(entry):
        return None
    if factory.has("IsStreamAware") and factory.call("IsStreamAware"):
        raise ep.OptionError(
            f"{who} is to capture graphs, on streams of its own, which are not hosted: "
            "what is computed on others would be left out; leave out its option that "
            "says so"
        )
    return NativeCapture(structure, who, turn)
