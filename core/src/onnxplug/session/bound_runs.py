"""What the runs of one binding keep from one to the next: streams, captured work."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug.errors import EpError
from onnxplug.session.prepared_call import PreparedCall, not_prepared

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.run.capture import CapturedRun
    from onnxplug.run.device import Device
    from onnxplug.run.streams import Streams
    from onnxplug.session.ort_value import OrtValue


_NONE: Final[tuple[BuiltModel | None, int, PreparedCall | None]] = (None, 0, None)


class HostOutputs(Record):
    """The outputs of a binding that has nothing but what is on the host.

    Attributes:
        version: the binding's.
        filled: for each output of the model the array that an EP may fill, or ``None``.
        places: of those that are bound, among the model's, in the order of the binding.
        values: those that are to be filled, in that order.
    """

    version: int
    filled: Sequence[Any | None]
    places: Sequence[int]
    values: Sequence[OrtValue]


class BoundRuns:
    """The streams of a binding, and what was captured on them.

    They are made anew when the session's model is (``set_providers``).

    Attributes:
        outputs: those of the binding, if the last run was on the host.
    """

    def __init__(self) -> None:
        self._built: BuiltModel | None = None
        self._streams: Streams | None = None
        self._captured: dict[str, CapturedRun] = {}
        self._end: weakref.finalize[Any, Any] | None = None
        self._call = _NONE
        self.outputs: HostOutputs | None = None

    def prepared(self, built: BuiltModel, version: int) -> PreparedCall | None:
        """The call of *built* with what is bound as this *version*.

        The first run, which may be the only one, is none; ``None`` for the second,
        after which it is to be prepared.
        """
        known, of, call = self._call
        if of == version and known is built:
            return call
        self._call = built, version, None
        return not_prepared

    def prepare(self, built: BuiltModel, version: int, call: PreparedCall) -> None:
        """Have *call* prepared."""
        self._call = built, version, call

    def streams(self, built: BuiltModel) -> Streams:
        """The streams of runs of *built*, always the same."""
        if self._built is not built or self._streams is None:
            self.close()
            self._built = built
            self._streams = built.streams.own()
            self._end = weakref.finalize(
                self, _drop, built, self._streams, self._captured
            )
        return self._streams

    def captured(
        self, built: BuiltModel, device: Device, graph_id: str, arrays: Sequence[Any]
    ) -> CapturedRun:
        """The runs that are captured as *graph_id*; begun anew on other *arrays*."""
        from onnxplug.run.capture import CapturedRun

        self.streams(built)
        known = self._captured.get(graph_id)
        if known is None or not known.is_on(arrays):
            self.release(graph_id)
            known = self._captured[graph_id] = CapturedRun(device, arrays)
        return known

    def release(self, graph_id: str) -> None:
        """Release what was captured as *graph_id*, if anything was.

        Raises:
            EpError: its EP failed to.
        """
        captured = self._captured.pop(graph_id, None)
        if captured is not None and self._streams is not None:
            self._streams.synchronize()
            captured.close()

    def release_done(self) -> None:
        """Drop what no queued work uses any more."""
        if self._streams is not None:
            with self._streams.lock:
                self._streams.release_done()

    def forget(self) -> None:
        """Drop what was bound."""
        self._call, self.outputs = _NONE, None
        self.release_done()

    def close(self) -> None:
        """Release everything."""
        if self._end is not None:
            self._end()
        self._built = self._streams = self._end = None
        self._call, self.outputs = _NONE, None
        self._captured = {}


def _drop(
    built: BuiltModel, streams: Streams, captured: dict[str, CapturedRun]
) -> None:
    from onnxplug.run.capture import close_captured

    try:
        if captured:
            runs = list(captured.values())
            streams.when_idle(functools.partial(close_captured, runs))
        built.streams.drop(streams)
    except EpError as error:  # nobody is there to whom it could be raised
        import logging

        logging.getLogger("onnxplug.session").warning("%s", error)
