"""The process in which one session is timed; see :mod:`onnxplug.calibration.process`.

It reads what it is to do in a thread of its own, and ends with its parent whatever it
is at.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from onnxplug.guard import in_words
from onnxplug.plugins import registry
from onnxplug.session.lifecycle import reopened
from onnxplug.session.session import InferenceSession


def main() -> None:
    """Make a session, run it once, and then as often as is asked for."""
    with os.fdopen(os.dup(1), "wb") as answers, os.fdopen(os.dup(0), "rb") as told:
        os.dup2(2, 1)  # what EPs print is no answer
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        path, libraries = pickle.load(told)
        sys.path[:] = path
        threading.Thread(target=_read, args=(told, messages), daemon=True).start()
        try:
            _serve(messages, libraries, answers)
        # whoever waits has to know, whatever an EP has raised
        except BaseException as error:  # noqa: BLE001
            _answer(answers, "failed", in_words(error))
    # what engines do at their ends is nobody's concern
    os._exit(0)


def _read(told: IO[bytes], messages: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(pickle.load(told))
    except EOFError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001  # of what cannot be read here
        messages.put(error)


def _serve(
    messages: queue.SimpleQueue[Any],
    libraries: list[tuple[str, str]],
    answers: IO[bytes],
) -> None:
    for name, target in libraries:
        registry.register_ep_library(name, target)
    message = messages.get()
    if isinstance(message, Exception):
        raise message
    request, feed = message
    rest = peak_memory()
    started = time.perf_counter()
    session = reopened(InferenceSession, request)
    loaded = time.perf_counter()
    results = session.run(None, feed)
    ran = time.perf_counter()
    names = [output.name for output in session.get_outputs()]
    opened = {
        "load": loaded - started,
        "first_run": ran - loaded,
        "nodes": dict(Counter(node.ep for node in session.explain().nodes)),
        "outputs": dict(zip(names, results, strict=True)),
        "rest": rest,
        "peak": peak_memory(),
    }
    _answer(answers, "done", opened)
    del results, opened
    while True:
        asked = messages.get()
        if asked is None:
            _answer(answers, "done", peak_memory())
        else:
            _answer(answers, "done", timed(session, feed, *asked))


def timed(
    session: InferenceSession, feed: Mapping[str, Any], times: int, threads: int
) -> tuple[list[float], float]:
    """The seconds of *times* runs in each of *threads* threads, and of all together."""

    def repeat() -> list[float]:
        run, clock = session.run, time.perf_counter
        seconds = []
        for _ in range(times):
            started = clock()
            run(None, feed)
            seconds.append(clock() - started)
        return seconds

    if threads == 1:
        started = time.perf_counter()
        return repeat(), time.perf_counter() - started
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        futures = [pool.submit(repeat) for _ in range(threads)]
        found = [future.result() for future in futures]
        busy = time.perf_counter() - started
    return [each for seconds in found for each in seconds], busy


def peak_memory() -> int:
    """The most bytes of memory that this process had; 0 where that is not told."""
    try:
        # what getrusage() tells is at least what the parent had when it forked
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def _answer(answers: IO[bytes], what: str, value: Any) -> None:
    pickle.dump((what, value), answers)
    answers.flush()


if __name__ == "__main__":
    main()
