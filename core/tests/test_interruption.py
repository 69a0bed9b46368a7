"""What a signal handler raised is told from what the interrupted code raises itself."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from onnxplug.guard import blaming, close_all, ignoring_failures
from onnxplug.interruption import interruption, raise_interruption


class Timeout(Exception):
    """A service's own."""


def handle(number: int, frame: FrameType | None) -> NoReturn:
    raise Timeout


def wrap(*arguments: Any) -> None:
    handle(*arguments)


def handle_with(extra: str, number: int, frame: FrameType | None) -> NoReturn:
    raise Timeout(extra)


def replace_and_raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    raise Timeout


def raise_for_a_reason(number: int, frame: FrameType | None) -> NoReturn:
    try:
        raise LookupError
    except LookupError as error:
        raise Timeout from error


def handle_by_name(number: int | str, frame: FrameType | None) -> NoReturn:
    number = signal.Signals(int(number)).name
    raise Timeout(number)


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        sys.exit(3)

    def close_over(self, number: int, frame: FrameType | None) -> NoReturn:
        def name() -> str:
            return "" if frame is None else frame.f_code.co_name

        raise Timeout(name())


HANDLERS: list[Callable[..., Any]] = [
    handle,
    handle_by_name,
    wrap,
    functools.partial(handle_with, "late"),
    replace_and_raise,
    raise_for_a_reason,
    Handler(),
    Handler().close_over,
    lambda *_: sys.exit(4),
]


def interrupted() -> None:
    signal.raise_signal(signal.SIGTERM)


def interrupted_in_a_generator() -> None:
    def values() -> Iterator[int]:
        interrupted()
        yield 1

    list(values())


def wrapped() -> None:
    try:
        interrupted()
    except BaseException as error:
        raise OSError("wrapped") from error


def replaced_in_a_generator() -> None:
    def values() -> Iterator[int]:
        try:
            interrupted()
        except (Timeout, SystemExit):
            raise OSError("replaced")  # noqa: B904
        yield 1

    list(values())


def wrapped_twice() -> None:
    try:
        replaced_in_a_generator()
    except OSError as error:
        raise KeyError("twice") from error


@pytest.fixture
def on_signal() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGTERM)
    yield lambda handler: signal.signal(signal.SIGTERM, handler) and None
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize(
    "code",
    [
        interrupted,
        interrupted_in_a_generator,
        wrapped,
        replaced_in_a_generator,
        wrapped_twice,
    ],
)
def test_it_is_found(
    on_signal: Callable[[Any], None],
    handler: Callable[..., Any],
    code: Callable[[], None],
) -> None:
    on_signal(handler)
    try:
        code()
    except BaseException as error:  # noqa: BLE001
        found = interruption(error)
        assert isinstance(found, Timeout | SystemExit)
        before = found.__cause__, found.__context__
        with pytest.raises(type(found)) as caught:
            raise_interruption(error)
        assert caught.value is found
        assert (found.__cause__, found.__context__) == before
    else:
        raise AssertionError("it was not interrupted")


def takes_its_caller(number: int, frame: Any) -> NoReturn:
    raise OSError


def not_the_frame_before() -> None:
    takes_its_caller(3, sys._getframe(1))


def no_number() -> None:
    def looks_at(frame: Any) -> NoReturn:
        raise OSError

    looks_at(sys._getframe())


def fails() -> NoReturn:
    raise OSError


@pytest.mark.parametrize("code", [fails, not_the_frame_before, no_number])
def test_what_code_raises_itself_is_none(code: Callable[[], None]) -> None:
    with pytest.raises(OSError) as caught:
        code()
    raise_interruption(caught.value)
    assert interruption(caught.value) is None


def test_what_the_program_handles_already_is_not_raised_again(
    on_signal: Callable[[Any], None],
) -> None:
    def called() -> None:
        try:
            fails()
        except OSError as error:
            assert isinstance(error.__context__, Timeout)
            raise_interruption(error)

    on_signal(handle)
    try:
        interrupted()
    except Timeout:
        called()


def test_guards_let_it_pass(on_signal: Callable[[Any], None]) -> None:
    on_signal(handle)
    with pytest.raises(Timeout), blaming("SomeEP", "run"):
        wrapped()
    with pytest.raises(Timeout), ignoring_failures():
        wrapped()
    with ignoring_failures():
        fails()
    closed: list[int] = []
    closers = [fails, wrapped, functools.partial(closed.append, 1)]
    with pytest.raises(Timeout):
        close_all(("SomeEP", each) for each in closers)
    assert closed == [1]
