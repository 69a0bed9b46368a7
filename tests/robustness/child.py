"""Runs cases of models in a process that may die of them; started by :mod:`.children`.

    python child.py DESCRIPTOR

A server imports everything and forks a worker.  The worker takes cases from the socket
DESCRIPTOR, one at a time, and answers.  When it dies, the server says so in its place
and forks the next one.  What is sent and received is described in :mod:`.children`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import logging
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

MEMORY: Final = 6 << 30
"""Bytes of address space that a worker may take beyond what it begins with."""

LARGE: Final = 32 << 20
"""Bytes of results above which only their shapes and element types are sent."""

_PAGE: Final = resource.getpagesize()


def serve(connection: Connection) -> None:
    """Fork workers until the other end is closed."""
    _import_all()
    while True:
        stacks = tempfile.TemporaryFile()  # noqa: SIM115 (the worker writes to it)
        worker = os.fork()
        if worker == 0:
            try:
                work(connection, stacks)
            except EOFError:
                os._exit(0)
            except BaseException:  # noqa: BLE001 (said on the socket, then the end)
                stacks.write(traceback.format_exc().encode())
                stacks.flush()
                os._exit(1)
        _, status = os.waitpid(worker, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        stacks.seek(0)
        stack = stacks.read().decode(errors="replace")
        stacks.close()
        try:
            connection.send({"died": code, "stack": stack})
        except OSError:
            return


def _import_all() -> None:
    import onnx  # noqa: F401

    import onnxplug
    import onnxplug_cpu.compiler.partition  # noqa: F401
    import onnxplug_kernels  # noqa: F401

    onnxplug.get_ep_devices()


def work(connection: Connection, stacks: Any) -> None:
    """Answer cases until the other end is closed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _pages(0) * _PAGE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    faulthandler.enable(stacks)
    # what is logged is not printed
    logging.getLogger("onnxplug").addHandler(logging.NullHandler())
    said = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
    for descriptor in (1, 2):
        os.dup2(said.fileno(), descriptor)
    connection.send({"pid": os.getpid()})
    while True:
        case = connection.recv()
        said.truncate(0)
        said.seek(0)
        with tempfile.TemporaryDirectory() as folder:
            outcome = _answer(connection, case, Path(folder))
        sys.stdout.flush()
        sys.stderr.flush()
        said.seek(0)
        outcome["printed"] = said.read().decode(errors="replace")
        outcome["number"] = case["number"]
        connection.send(outcome)


def _pages(column: int) -> int:
    """Of the process: 0 for its address space, 1 for what is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[column])


def _answer(
    connection: Connection, case: Mapping[str, Any], folder: Path
) -> dict[str, Any]:

    def tell(stage: str) -> None:
        connection.send({"stage": stage, "number": case["number"]})

    for name, content in case["files"].items():
        (folder / name).write_bytes(content)
    engine = ENGINES[case["engine"]]
    runs: list[Any] = []
    outcome: dict[str, Any] = {"create": None, "runs": runs, "warned": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case["repeat"]:
            tell("repeat")
            outcome["growth"] = _grow(engine, case, folder)
        tell("create")
        try:
            run = engine(case, folder)
        except Exception as error:  # noqa: BLE001 (what is looked for)
            outcome["create"] = _described(error)
            run = None
        for number, feeds in enumerate(case["runs"] if run else ()):
            tell(f"run {number}")
            try:
                results = run({name: _laid_out(x) for name, x in feeds.items()})
            except Exception as error:  # noqa: BLE001 (likewise)
                runs.append(_described(error))
            else:
                runs.append({"results": _sendable(results)})
                del results
        run = None
    outcome["warned"] = [
        f"{each.category.__module__}.{each.category.__name__}: {each.message}"
        for each in caught
    ]
    tell("closed")
    return outcome


def _laid_out(value: Any) -> Any:
    """An array of a pair with how it lies in memory; other values as they are."""
    if not (isinstance(value, tuple) and len(value) == 2):
        return value
    array, layout = value
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
        return array
    if layout == "reversed":
        return array[::-1].copy()[::-1] if array.ndim else array
    if layout == "strided":
        wide = np.empty((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    if layout == "unaligned":
        room = np.zeros(array.nbytes + 1, np.uint8)
        odd = room[1:].view(array.dtype).reshape(array.shape)
        odd[...] = array
        return odd
    if layout == "deep":
        return array.reshape((1,) * (64 - array.ndim) + array.shape)
    if layout == "swapped":
        return array.astype(array.dtype.newbyteorder())
    return array


def _grow(engine: Any, case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """How memory, threads and open files grow while sessions come, run and go."""
    few = max(2, case["repeat"] // 4)

    def state() -> list[int]:
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        threads = len(os.listdir("/proc/self/task"))
        return [_pages(1) * _PAGE, files, threads]

    def go(times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(Exception):
                run = engine(case, folder)
                for feeds in case["runs"]:
                    with contextlib.suppress(Exception):
                        run({name: _laid_out(x) for name, x in feeds.items()})

    go(few)
    before = state()
    go(case["repeat"])
    after = state()
    keys = ("bytes", "files", "threads")
    return {key: b - a for key, a, b in zip(keys, before, after, strict=True)}


def _sendable(results: Any) -> Any:
    total = 0

    def look(value: Any) -> Any:
        nonlocal total
        if isinstance(value, list | tuple):
            return [look(each) for each in value]
        if isinstance(value, np.ndarray):
            total += value.nbytes
            if total > LARGE:
                return ("large", str(value.dtype), value.shape)
            return np.array(value, order="C")
        if value is None or isinstance(value, dict | int | float | str | bytes):
            return value
        if isinstance(value, np.generic):
            return np.asarray(value)
        return ("other", type(value).__qualname__, repr(value)[:1000])

    return look(results)


def _described(error: BaseException) -> dict[str, Any]:
    """An error in words, where it was raised, and whether it is one of ours."""
    from onnxplug.errors import OnnxplugError

    causes: list[tuple[str, str, str, bool]] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 10:
        causes.append(
            (type(cause).__name__, str(cause)[:2000], _place(cause), _is_meant(cause))
        )
        cause = cause.__cause__ or (
            None if cause.__suppress_context__ else cause.__context__
        )
    return {
        "error": causes[0],
        "ours": isinstance(error, OnnxplugError),
        "causes": causes[1:],
        "traceback": "".join(traceback.format_exception(error))[-6000:],
    }


def _is_meant(error: BaseException) -> bool:
    """Whether a statement of onnxplug raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:  # it was made to be a cause
        return True
    line = (frames[-1].line or "").lstrip()
    return "/onnxplug" in frames[-1].filename and line.startswith("raise ")


def _place(error: BaseException) -> str:
    """The innermost function of onnxplug that the error passed through."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if "onnxplug" in frame.filename and "robustness" not in frame.filename:
            parts = Path(frame.filename).parts
            start = max(
                n for n, part in enumerate(parts) if part.startswith("onnxplug")
            )
            place = f"{'/'.join(parts[start:])}:{frame.lineno} {frame.name}"
    return place


# engines


def _onnxplug(case: Mapping[str, Any], folder: Path, compiles: bool) -> Any:
    import onnxplug

    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = case["threads"]
    source: Any = case["model"]
    if case["files"]:
        (folder / "model.onnx").write_bytes(source)
        source = folder / "model.onnx"
    session = onnxplug.InferenceSession(
        source, options, providers=[("CPUExecutionProvider", {"compile": compiles})]
    )
    return lambda feeds: session.run(None, feeds)


def _compiled(case: Mapping[str, Any], folder: Path) -> Any:
    return _onnxplug(case, folder, True)


def _arrays(case: Mapping[str, Any], folder: Path) -> Any:
    return _onnxplug(case, folder, False)


def _guarded(case: Mapping[str, Any], folder: Path, at_end: bool) -> Any:
    from plugins.cpu.tests.compiler.guarded import Guarded

    session = Guarded(
        case["model"], at_end=at_end, threads=case["threads"], files=case["files"]
    )
    return lambda feeds: session.run(None, feeds)


def _onnxruntime(case: Mapping[str, Any], folder: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source: Any = case["model"]
    if case["files"]:
        (folder / "model.onnx").write_bytes(source)
        source = str(folder / "model.onnx")
    session = onnxruntime.InferenceSession(
        source, options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: session.run(None, feeds)


def _reference(case: Mapping[str, Any], folder: Path) -> Any:
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load_from_string(case["model"]))
    return lambda feeds: evaluator.run(None, feeds)


_left_behind: list[bytes] = []


def _misbehaving(case: Mapping[str, Any], folder: Path) -> Any:
    """Does what the model, a word, says: to try how that is found out."""

    def run(feeds: Any) -> Any:
        word = case["model"]
        if word == b"crash":
            ctypes.string_at(0)
        elif word == b"die later":
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        elif word == b"wait":
            time.sleep(0.6)
        elif word == b"hang":
            time.sleep(1000)
        elif word == b"raise":
            raise IndexError("tuple index out of range")
        elif word == b"grow":
            _left_behind.append(os.urandom(1 << 20))
        elif word == b"print":
            os.write(1, b"something")
        elif word == b"take all":
            return np.ones(2 * MEMORY, np.uint8)
        elif word == b"warn":
            return np.ones(1) / np.zeros(1)
        return []

    return run


ENGINES: Final = {
    "compiled": _compiled,
    "arrays": _arrays,
    "guarded-end": functools.partial(_guarded, at_end=True),
    "guarded-start": functools.partial(_guarded, at_end=False),
    "onnxruntime": _onnxruntime,
    "reference": _reference,
    "misbehaving": _misbehaving,
}

if __name__ == "__main__":
    # what interrupts the tests is theirs to handle
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    serve(Connection(int(sys.argv[1])))
