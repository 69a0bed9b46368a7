"""Events that an EP of a library records of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    pointers,
    put_int,
    put_long,
    put_pointer,
    texts,
)

NODE: Final = 1
"""The category of what computes a node."""

CATEGORIES: Final = ("Session", "Node", "Kernel", "Api")
"""By the interface's numbers."""

_MOST_ARGUMENTS: Final = 1 << 10
_MOST_EVENTS: Final = 1 << 20


class ProfilingEvent(Handle):
    """Something that took time.

    Attributes:
        category: what kind, by its place in :data:`CATEGORIES`.
        name: what was done.
        start_us: when it began, in µs from the beginning of profiling.
        duration_us: how long it took, in µs.
        details: further facts.
    """

    def __init__(
        self,
        category: int,
        name: str,
        start_us: int,
        duration_us: int,
        details: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.category = category
        self.name = name
        self.start_us = start_us
        self.duration_us = duration_us
        self.details = dict(details)


class ProfilingEvents(Handle):
    """What a library fills with its events.

    Attributes:
        events: category, name, start and duration in µs, and details of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[int, str, int, int, Mapping[str, str]]] = []


@implements("CreateProfilingEvent", "OrtEpApi")
def create_profiling_event(
    category: int,
    _process: int,
    _thread: int,
    name: bytes | None,
    start_us: int,
    duration_us: int,
    keys: int,
    values: int,
    count: int,
    out: int,
) -> None:
    """An event, which the library releases."""
    if not 0 <= category < len(CATEGORIES):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"{category} is no category of an event"
        )
    what = "arguments of an event"
    given = [texts(each, count, _MOST_ARGUMENTS, what) for each in (keys, values)]
    text = (name or b"").decode("utf-8", "replace")
    details = dict(zip(*given, strict=True))
    put_pointer(out, ProfilingEvent(category, text, start_us, duration_us, details))


def _tell(name: str, put: Callable[[int, Any], None], attribute: str) -> None:
    @implements(f"ProfilingEvent_{name}", "OrtEpApi")
    def get(event: int, out: int) -> None:
        put(out, getattr(find(ProfilingEvent, event), attribute))


_tell("GetCategory", put_int, "category")
_tell("GetTimestampUs", put_long, "start_us")
_tell("GetDurationUs", put_long, "duration_us")


@implements("ProfilingEvent_GetName", "OrtEpApi")
def get_event_name(event: int, out: int) -> None:
    """What was done."""
    found = find(ProfilingEvent, event)
    put_pointer(out, found.text(found.name))


@implements("ProfilingEvent_GetArgValue", "OrtEpApi")
def get_event_argument(event: int, key: bytes | None, out: int) -> None:
    """A further fact; null if the event has not that."""
    found = find(ProfilingEvent, event)
    value = found.details.get((key or b"").decode("utf-8", "replace"))
    put_pointer(out, None if value is None else found.text(value))


@implements("ProfilingEventsContainer_AddEvents", "OrtEpApi")
def add_events(container: int, events: int, count: int) -> None:
    """Copies of events."""
    found = find(ProfilingEvents, container)
    for address in pointers(events, count, _MOST_EVENTS, "events"):
        event = find(ProfilingEvent, address)
        found.events.append(
            (
                event.category,
                event.name,
                event.start_us,
                event.duration_us,
                event.details,
            )
        )
