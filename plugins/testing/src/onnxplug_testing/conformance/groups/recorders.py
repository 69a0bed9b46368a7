"""What an EP records of a run that is profiled by hand, and what is wrong of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.contract import Sentence

BEGAN: Final = Sentence(
    "Profiler.record", "when it began, by :func:`time.perf_counter_ns`."
)
LASTED: Final = Sentence("Profiler.record", "how long it took, in ns.")
NODE: Final = Sentence(
    "Profiler.record",
    "``Node`` for what computes a node, or several at once; for all else any other "
    "word.",
)
DETAILS: Final = Sentence(
    "Profiler.record", "facts that JSON can hold, never changed afterwards."
)
NAME: Final = Sentence("Profiler.record", "what was done, as it is to be shown.")
LOOKED_FOR: Final = Sentence(
    "Profiler.record",
    "``op_name``, the operator; ``tier``, which of the EP's tiers computed it",
)
UNTIL: Final = Sentence(
    "Profiler",
    "It may be used from any thread, until the run ends and in what :meth:`when_done` "
    "calls.",
)
OF_A_RUN: Final = Sentence(
    "Profiler", "Records what an EP does in a run, for the session's trace."
)


class Event(Record):
    """What was recorded; ``text`` are the details as JSON had them then."""

    name: str
    category: str
    start_ns: int
    duration_ns: int
    details: Any
    text: str

    @property
    def operator(self) -> Any:
        """That which it says that it computed; ``None`` if it says nothing."""
        is_node = self.category == "Node" and isinstance(self.details, Mapping)
        return self.details.get("op_name") if is_node else None

    @property
    def wrong(self) -> tuple[Sentence, str] | None:
        """What is not well formed of it, in words."""
        if not isinstance(self.name, str) or not self.name.strip():
            return NAME, f"an event has the name {self.name!r}"
        if not isinstance(self.category, str) or not self.category.strip():
            return NODE, f"{self.name!r} has the category {self.category!r}"
        for what, number, said in (
            ("start_ns", self.start_ns, BEGAN),
            ("duration_ns", self.duration_ns, LASTED),
        ):
            if type(number) is not int:
                kind = type(number).__name__
                return said, f"{what} of {self.name!r} is {number!r}, a {kind}"
        if self.duration_ns < 0:
            return LASTED, f"{self.name!r} lasted {self.duration_ns} ns"
        return self._wrong_details()

    def _wrong_details(self) -> tuple[Sentence, str] | None:
        if not self.text:
            said = what_json_cannot_hold(self.details)
            text = f"the details of {self.name!r}, {said}, are nothing that JSON can"
            return DETAILS, f"{text} hold"
        if as_json(self.details) != self.text:
            text = f"the details of {self.name!r} changed when they had been recorded"
            return DETAILS, text
        for key in ("flops", "bytes", "share_of_peak"):
            number = self.details.get(key, 0)
            is_number = isinstance(number, int | float)
            if not is_number or not 0 <= number < float("inf"):
                return DETAILS, f"{key} of {self.name!r} is {number!r}"
        return None


class Recorder:
    """Keeps what an EP records of a run; see :class:`onnxplug.ep.Profiler`.

    Attributes:
        has_ended: the run has, so that only what is told then may record.
        events: what was recorded.
        late: names of events that were recorded when nobody may.
    """

    def __init__(self, stream: ep.Stream | None) -> None:
        self.has_ended = False
        self.events: list[Event] = []
        self.late: list[str] = []
        self._stream = stream
        self._reports: list[Callable[[], None]] = []

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        details: Mapping[str, object],
    ) -> None:
        if self.has_ended:
            self.late.append(name)
        event = Event(name, category, start_ns, duration_ns, details, as_json(details))
        self.events.append(event)

    def when_done(self, report: Callable[[], None]) -> None:
        if self._stream is None:
            report()
        else:
            self._reports.append(report)

    def tell(self) -> None:
        """Have told what was to be told when the work is done, which it is."""
        self.has_ended = False
        for report in self._reports:
            report()
        self._reports.clear()
        self.has_ended = True


def as_json(details: Any) -> str:
    """*details* as JSON; empty if that cannot hold them."""
    if not isinstance(details, Mapping):
        return ""
    try:
        return json.dumps(details)
    except (TypeError, ValueError):
        return ""


def what_json_cannot_hold(details: Any) -> str:
    """The first of *details* that JSON cannot hold, in words."""
    if not isinstance(details, Mapping):
        return f"a {type(details).__name__}"
    wrong = next((pair for pair in details.items() if not as_json(dict([pair]))), None)
    if wrong is None:
        return f"a {type(details).__name__}"
    return f"with {wrong[0]!r} a {type(wrong[1]).__name__}, {wrong[1]!r}"[:120]
