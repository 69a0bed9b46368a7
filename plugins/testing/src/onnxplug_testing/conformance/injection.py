"""Failures in the midst of what host and EP do with each other, at a chosen call.

A method of one of the EP's objects raises once, before or after it has done its work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import replaced


class Injected(RuntimeError):
    """Raised by the kit, in place of the EP."""


class Place(Record):
    """Where it fails.

    Attributes:
        owner: whose method it is: ``factory``, ``provider``, ``partition``,
            ``context``, ``allocator``, ``transfer`` or ``stream``.
        method: which.
        call: at which of its calls, from 1.
        is_late: the method has done its work then.
        error: what is raised.
        ring: called instead; it raises by way of a signal handler.
    """

    owner: str
    method: str
    call: int = 1
    is_late: bool = False
    error: type[Exception] = Injected
    ring: Callable[[], None] | None = None

    def __str__(self) -> str:
        when = "after" if self.is_late else "in place of"
        return (
            f"{self.error.__name__} {when} call {self.call} of "
            f"{self.owner}.{self.method}"
        )


ON_HOST: Final = (
    ("factory", "create"),
    ("provider", "get_capability"),
    ("provider", "compile"),
    ("partition", "run"),
    ("partition", "close"),
    ("provider", "close"),
)
ON_DEVICE: Final = (
    ("context", "create_stream"),
    ("context", "data_type"),
    ("allocator", "empty"),
    ("transfer", "copy"),
    ("stream", "record"),
    ("stream", "wait"),
    ("stream", "synchronize"),
    ("stream", "close"),
)
_OFTEN: Final = {"empty": 4, "copy": 3, "record": 2, "run": 2}
"""How many calls of a method fail, each in its turn."""


def places(*, on_device: bool) -> list[Place]:
    """All of them, those that come first in a session first."""
    found = []
    for owner, method in (*ON_HOST, *(ON_DEVICE if on_device else ())):
        for call in range(1, _OFTEN.get(method, 1) + 1):
            if method != "close":  # what is never called leaves something open
                found.append(Place(owner, method, call))
            # what the host is not given it cannot close
            if method not in ("create", "compile", "create_stream"):
                found.append(Place(owner, method, call, is_late=True))
            if method in ("empty", "run", "compile", "copy"):
                found.append(Place(owner, method, call, error=MemoryError))
    return found


class Injection:
    """A failure, and whether it has come.

    Attributes:
        place: where.
        came: it has.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.came = False
        self._calls = 0

    def into(self, owner: str, target: Any) -> None:
        """Have *target* fail if it is the one."""
        if owner == self.place.owner and hasattr(target, "__dict__"):
            method = self.place.method
            vars(target)[method] = self.failing(getattr(target, method))

    def failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """*function*, which raises at the call that is chosen."""

        @functools.wraps(function)
        def failing(*args: Any, **kwargs: Any) -> Any:
            self._calls += 1
            if self.came or self._calls != self.place.call:
                return function(*args, **kwargs)
            self.came = True
            if self.place.is_late:
                function(*args, **kwargs)
            if self.place.ring is not None:
                self.place.ring()
            raise self.place.error(f"raised by the kit: {self.place}")

        return failing


@contextmanager
def injected(
    subject: Subject, place: Place, context: ep.DeviceContext | None
) -> Iterator[Injection]:
    """A context in which something fails once.

    Args:
        context: of the EP's device, which is open.

    Raises:
        TypeError: the factory takes no attributes.
    """
    injection = Injection(place)
    create: Any = subject.factory.create

    def created(*args: Any, **kwargs: Any) -> Any:
        provider = create(*args, **kwargs)
        if hasattr(provider, "__dict__"):
            _compile_into(provider, injection)
            injection.into("provider", provider)
        return provider

    fails = place.owner == "factory"
    wrapped = injection.failing(create) if fails else created
    with replaced(subject.factory, "create", wrapped), _device(injection, context):
        yield injection


def _compile_into(provider: ep.ExecutionProvider, injection: Injection) -> None:
    make = provider.compile

    @functools.wraps(make)
    def compiled(partition: ep.Partition) -> ep.CompiledPartition:
        made = make(partition)
        injection.into("partition", made)
        return made

    vars(provider)["compile"] = compiled


@contextmanager
def _device(injection: Injection, context: ep.DeviceContext | None) -> Iterator[None]:
    """Have what belongs to the device fail, as long as this lasts."""
    place = injection.place
    if context is None or place.owner not in (
        "context",
        "allocator",
        "transfer",
        "stream",
    ):
        yield
        return
    targets = {
        "context": context,
        "allocator": context.allocator(ep.MemoryKind.DEVICE),
        "transfer": context.transfer,
    }
    create = context.create_stream

    @functools.wraps(create)
    def created() -> ep.Stream | None:
        stream = create()
        injection.into("stream", stream)
        return stream

    target: Any = targets.get(place.owner, context)
    method = place.method if place.owner != "stream" else "create_stream"
    if not hasattr(target, "__dict__"):
        yield
        return
    function = (
        created
        if place.owner == "stream"
        else injection.failing(getattr(target, method))
    )
    with replaced(target, method, function):
        yield
