"""Whole sessions on the compiled tier: threads, forks, and whatever the cache does."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug

from .differential import session
from .lowered import graph, random

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

W, U = random((48, 96), (96, 48), seed=5)


def model() -> onnx.ModelProto:
    """Products, norms and attention of sequences of any length."""
    text = graph(
        "float[B, S, 48] x",
        "float[] y",
        """
        n = LayerNormalization (x, scale) h = MatMul (n, w) g = Gelu (h)
        o = MatMul (g, u) r = Add (o, x)
        k = Transpose <perm = [0, 2, 1]> (r) s = MatMul (r, k) m = Mul (s, tenth)
        p = Softmax (m) a = MatMul (p, r) t = ReduceMean <keepdims = 1> (a, last)
        y = Sub (a, t)
        """,
        "float tenth = {0.1}, int64[1] last = {-1}",
    )
    parsed = onnx.parser.parse_model(text)
    parsed.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name)
        for name, array in (("w", W), ("u", U), ("scale", W[0, :48].copy()))
    )
    return parsed


SHAPES = [(1, 7), (2, 33), (3, 1), (1, 64), (4, 16), (2, 5), (1, 130), (5, 9)]
FEEDS = [random((*shape, 48), seed=n)[0] for n, shape in enumerate(SHAPES)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    runner = session(model(), compiled=False)
    return [runner.run(None, {"x": x})[0] for x in FEEDS]


def check(runner: onnxplug.InferenceSession, number: int, expected: list[Any]) -> None:
    (found,) = runner.run(None, {"x": FEEDS[number]})
    np.testing.assert_allclose(found, expected[number], 1e-4, 1e-4)


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Do *work* on so many threads, which start together."""
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def one(number: int) -> None:
        try:
            together.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


# threads


@pytest.mark.parametrize("threads", [1, 2])
def test_one_session_on_many_threads(threads: int, expected: list[Any]) -> None:
    runner = session(model(), compiled=True, threads=threads)

    def work(number: int) -> None:
        for turn in range(10):
            # the same shape as another thread's, too
            check(runner, (number + turn // 3) % len(FEEDS), expected)

    at_once(8, work)


def test_many_sessions_at_once(expected: list[Any]) -> None:
    shared = model()

    def work(number: int) -> None:
        runner = session(shared, compiled=True, threads=1 + number % 3)
        for turn in range(len(FEEDS)):
            check(runner, (number + turn) % len(FEEDS), expected)

    at_once(6, work)


@pytest.mark.parametrize("threads", range(1, 9))
def test_any_number_of_threads_gives_the_same(
    threads: int, expected: list[Any]
) -> None:
    alone = session(model(), compiled=True, threads=1)
    runner = session(model(), compiled=True, threads=threads)
    for number, x in enumerate(FEEDS):
        check(runner, number, expected)
        (one,), (other,) = (s.run(None, {"x": x}) for s in (alone, runner))
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


# forks


def _use(runner: onnxplug.InferenceSession, expected: list[Any], code: Any) -> None:
    """In a child: shapes that the parent ran, and others."""
    for number in range(len(FEEDS)):
        check(runner, number, expected)
    fresh = session(model(), compiled=True, threads=2)
    check(fresh, 1, expected)
    code.value = 7


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("busy", [False, True])
def test_a_session_is_used_on_both_sides_of_a_fork(
    busy: bool, expected: list[Any]
) -> None:
    runner = session(model(), compiled=True, threads=2)
    for number in range(4):
        check(runner, number, expected)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            check(runner, 3, expected)

    other = threading.Thread(target=keep_busy)
    if busy:  # locks may be held, and the pool be in use, at the fork
        other.start()
    try:
        processes = multiprocessing.get_context("fork")
        code = processes.Value("i", 0)
        child = processes.Process(target=_use, args=(runner, expected, code))
        child.start()
        for number in range(len(FEEDS)):
            check(runner, number, expected)
        child.join(60)
        if child.is_alive():
            child.kill()
        assert (child.exitcode, code.value) == (0, 7)
    finally:
        stop.set()
        if busy:
            other.join()
    check(runner, 2, expected)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_children_of_os_fork(expected: list[Any]) -> None:
    runner = session(model(), compiled=True, threads=2)
    check(runner, 0, expected)
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            code = 1
            try:
                check(runner, 0, expected)
                check(runner, 4, expected)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    check(runner, 4, expected)
    assert [ended(child) for child in children] == [0, 0, 0]


def ended(child: int) -> int:
    """The status of a child; it is ended if it hangs."""
    deadline = time.monotonic() + 60
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)


# the cache

PROGRAM = """
import json, logging, sys
sys.path.insert(0, {tests!r})
class Records(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())
told = []
logging.getLogger("onnxplug.cpu").addHandler(Records())
{preparation}
from onnxplug_cpu.compiler.runtime import jit
jit.source_state = lambda: "this source"  # somebody may be editing
from compiler import test_sessions as t
from compiler.differential import session
runner = session(t.model(), compiled=True, threads=2)
results = [runner.run(None, {{"x": x}})[0] for x in t.FEEDS[:3]]
again = session(t.model(), compiled=True)
results.append(again.run(None, {{"x": t.FEEDS[3]}})[0])
tiers = runner.explain().partitions[0].tiers
sums = [float(abs(result).sum()) for result in results]
compiled = "llvmlite.binding" in sys.modules
print(json.dumps(dict(tiers=tiers, sums=sums, compiled=compiled, told=told)))
"""


class Process:
    """A process with sessions and a cache in *folder*."""

    def __init__(self, folder: Path, preparation: str = "") -> None:
        tests = str(Path(__file__).parents[1])
        program = PROGRAM.format(tests=tests, preparation=preparation)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ONNXPLUG_CACHE_DIR": str(folder)},
        )

    def result(self, expected: list[Any]) -> dict[str, Any]:
        """What it says, when it computed what it should."""
        out, errors = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, errors
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        wanted = [float(abs(result).sum()) for result in expected[:4]]
        np.testing.assert_allclose(said["sums"], wanted, 1e-4)
        return said


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, expected: list[Any]) -> Path:
    """A cache that has all kernels, from two processes that filled it at once."""
    folder = tmp_path_factory.mktemp("filled")
    said = [each.result(expected) for each in [Process(folder), Process(folder)]]
    # where one starts late it finds all that the other compiled
    assert any(each["compiled"] for each in said)
    assert not any("array" in each["tiers"] for each in said)
    warm = Process(folder).result(expected)
    assert not warm["compiled"]
    assert not warm["told"]
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(filled, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o700)
    return tmp_path / "cache"


def entries(cache: Path) -> list[Path]:
    found = sorted(cache.glob("onnxplug-cpu/*.entry"))
    assert len(found) > 3
    return found


def truncate(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2])


def empty(entry: Path) -> None:
    entry.write_bytes(b"")


def flip(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)


def test_spoilt_entries_are_compiled_again(cache: Path, expected: list[Any]) -> None:
    for number, entry in enumerate(entries(cache)):
        (truncate, empty, flip)[number % 3](entry)
    assert Process(cache).result(expected)["compiled"]
    assert not Process(cache).result(expected)["compiled"]


def test_a_cache_that_cannot_be_written_is_read(
    cache: Path, expected: list[Any]
) -> None:
    for entry in entries(cache)[::2]:
        entry.unlink()
    # root may write all the same, so say that the disk does not take it
    preparation = """
import os
from onnxplug.authoring import entries
def refuse(*arguments, **named):
    if arguments[1] & (os.O_WRONLY | os.O_RDWR):
        raise PermissionError(30, "read-only file system")
    return opened(*arguments, **named)
opened, os.open = os.open, refuse
"""
    before = entries(cache)
    said = Process(cache, preparation).result(expected)
    assert said["compiled"]
    assert "array" not in said["tiers"]
    assert entries(cache) == before


def test_a_cache_that_is_deleted_meanwhile(cache: Path, expected: list[Any]) -> None:
    preparation = f"""
import shutil
from onnxplug_cpu.compiler.runtime import jit
add = jit.Library._add
def delete_and_add(self, kernels, check):
    shutil.rmtree({str(cache)!r}, ignore_errors=True)
    add(self, kernels, check)
jit.Library._add = delete_and_add
"""
    said = Process(cache, preparation).result(expected)
    assert said["compiled"]
    assert "array" not in said["tiers"]


def test_a_cache_of_somebody_else_is_not_read(cache: Path, expected: list[Any]) -> None:
    preparation = """
import os
own = os.geteuid()
os.geteuid = lambda: own + 1
"""
    said = Process(cache, preparation).result(expected)
    assert said["compiled"]
    (told,) = said["told"]
    assert "are not kept for the next start" in told
    assert "array" not in said["tiers"]


# where nothing can be compiled

WITHOUT_LLVMLITE = """
import importlib.abc
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_without_llvmlite_arrays_are_used_which_is_said_once(
    tmp_path: Path, expected: list[Any]
) -> None:
    said = Process(tmp_path / "none", WITHOUT_LLVMLITE).result(expected)
    assert set(said["tiers"]) == {"array"}
    (told,) = said["told"]
    assert "pip install llvmlite" in told


def test_without_llvmlite_a_filled_cache_is_enough(
    cache: Path, expected: list[Any]
) -> None:
    said = Process(cache, WITHOUT_LLVMLITE).result(expected)
    assert "array" not in said["tiers"]
    assert said["told"] == []


def test_without_llvmlite_and_a_part_of_the_cache(
    cache: Path, expected: list[Any]
) -> None:
    for entry in entries(cache)[::2]:
        entry.unlink()
    said = Process(cache, WITHOUT_LLVMLITE).result(expected)
    assert set(said["tiers"]) == {"array"}
    assert len(set(said["told"])) == len(said["told"]) <= 2
    assert "pip install llvmlite" in said["told"][0]


def test_where_memory_cannot_be_executed(cache: Path, expected: list[Any]) -> None:
    preparation = """
import ctypes
from onnxplug_cpu.compiler.runtime import code_memory
REFUSE, GAIN = 65, 1  # prctl's PR_SET_MDWE, since Linux 6.3
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl is None or prctl(REFUSE, GAIN, 0, 0, 0):
    def refuse(*arguments):
        raise OSError(13, "Permission denied")
    code_memory._Posix.fill = refuse
"""
    said = Process(cache, preparation).result(expected)
    assert set(said["tiers"]) == {"array"}
    (told,) = said["told"]
    assert "machine code cannot be executed in this process" in told
