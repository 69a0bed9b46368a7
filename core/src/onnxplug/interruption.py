"""Tells what a signal handler raised from what the code raised that it interrupted.

Python calls a handler between two instructions of whatever the main thread does, so
what the handler raises, ``SystemExit`` or a service's own ``Timeout``, goes through the
code of an EP as if that had raised it.  In the traceback the handler's frame differs
from every other: it was called with the very frame that it interrupted, which is its
caller.  No list of handlers is asked: one that set another in its place before it
raised is known all the same, and so is what wraps one.

Not known are a handler that is not written in Python, which leaves no frame, and one
that binds its parameter for the frame anew.  What comes of an exception that was kept,
and that a handler raised long ago, is taken for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType


def raise_interruption(error: BaseException) -> None:
    """Raise what a signal handler raised, if *error* is that or came of it.

    To be called first where *error* was caught, and is to be reported as something
    else or not at all.

    Raises:
        BaseException: what the handler raised, as it raised it.
    """
    found = interruption(error)
    if found is None:
        return
    context = found.__context__
    try:
        raise found
    finally:
        # not what is only its report: that would be a cycle, too, which keeps arrays
        found.__context__ = context


def interruption(error: BaseException) -> BaseException | None:
    """What a signal handler raised: *error*, or what it came of since it was caught by
    the code that calls this; ``None``: *error* is nobody's but its own."""
    callers = set(_callers(error))
    # whose locals, once they were read, would hold what it caught until it ends
    catching = error.__traceback__ and error.__traceback__.tb_frame
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        trace = each.__traceback__
        # what was caught further out was there before: the program handles it already
        if trace is not None and trace.tb_frame in callers:
            continue
        while trace is not None:
            if trace.tb_frame is not catching and _is_handler(trace.tb_frame):
                return each
            trace = trace.tb_next
        pending += (each.__context__, each.__cause__)
    return None


def _callers(error: BaseException) -> Iterator[FrameType]:
    """The frames around the one that caught *error*."""
    trace = error.__traceback__
    frame = None if trace is None else trace.tb_frame.f_back
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_handler(frame: FrameType) -> bool:
    """Whether Python called the function of *frame* as a handler of signals."""
    import inspect  # takes time, and most programs never come here

    interrupted = frame.f_back
    if interrupted is None:
        return False
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount
    given = [values.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        given += values.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    # what was the signal's number may be its name by now
    return any(each is interrupted for each in given[1:])
