"""Children of a fork while other threads import, load, plan and hold locks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4, 4] x) => (float[4, 4] y)
    { a = MatMul (x, x) b = Softmax (a) c = Hardmax (b) d = Add (c, x) y = Erf (d) }
    """
).SerializeToString()

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

SCRIPT = """
import os, signal, sys, threading, time



def child(check):
    "Assert that *check* succeeds in a child of a fork."
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            check()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


"""


def run(script: str, *paths: Path) -> None:
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, [*map(str, paths), before]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT + script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_another_thread_was_importing(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text("import inner\ncomplete = True\n")
    (tmp_path / "inner.py").write_text(
        "import builtins, whole\n"
        "builtins.started.set()\n"
        "builtins.go_on.wait(30)\n"
        "complete = True\n"
    )
    (tmp_path / "whole.py").write_text("import builtins\nbuiltins.times += 1\n")
    run(
        """
import builtins, importlib
import onnxplug

builtins.started, builtins.go_on = threading.Event(), threading.Event()
builtins.times = 0
thread = threading.Thread(target=importlib.import_module, args=["outer"])
thread.start()
builtins.started.wait()


def check():
    builtins.go_on = threading.Event()
    builtins.go_on.set()
    assert importlib.import_module("outer").complete
    assert importlib.import_module("inner").complete
    assert builtins.times == 1  # what was imported is not imported again


child(check)
builtins.go_on.set()
thread.join()
assert importlib.import_module("inner").complete

""",
        tmp_path,
    )


def test_locks_that_others_held_are_free_in_the_child() -> None:
    run(
        """
from onnxplug.authoring.locks import new_lock, new_rlock

locks = [new_lock(), new_rlock(), new_rlock()]
held, go_on = threading.Event(), threading.Event()


def hold():
    with locks[0], locks[1]:
        held.set()
        go_on.wait()


thread = threading.Thread(target=hold)
thread.start()
held.wait()


def check():
    assert locks[0].acquire(timeout=5)
    assert locks[1].acquire(timeout=5)
    locks[2].release()  # the thread that forked has it


with locks[2]:
    child(check)
go_on.set()
thread.join()
"""
    )


def test_a_plugin_that_another_thread_was_loading_is_loaded_anew(
    tmp_path: Path,
) -> None:
    info = tmp_path / "slow_ep-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: slow-ep\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[onnxplug.execution_providers]\nToyExecutionProvider = slow_ep\n"
    )
    (tmp_path / "slow_ep.py").write_text(
        """
import threading
from onnxplug.ep import hookimpl
from onnxplug_testing import ToyFactory

called, go_on = threading.Event(), threading.Event()


@hookimpl
def onnxplug_ep_factories(host):
    called.set()
    go_on.wait()
    return [ToyFactory()]
"""
    )
    run(
        """
import slow_ep
from onnxplug.plugins import registry

thread = threading.Thread(target=registry.factory, args=["toy"])
thread.start()
slow_ep.called.wait()


def check():
    slow_ep.go_on = threading.Event()
    slow_ep.go_on.set()
    assert registry.factory("toy").name == "ToyExecutionProvider"


child(check)
slow_ep.go_on.set()
thread.join()
assert registry.factory("toy").name == "ToyExecutionProvider"
""",
        tmp_path,
    )


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1])
def test_a_fork_while_another_thread_makes_its_first_session(
    delay: float, tmp_path: Path
) -> None:
    run(
        f"""
import numpy as np
import onnxplug

MODEL = b'{MODEL.hex()}'
x = np.ones((4, 4), np.float32)


def use():
    session = onnxplug.InferenceSession(bytes.fromhex(MODEL.decode()))
    assert np.isfinite(session.run(None, {{"x": x}})[0]).all()


begun = threading.Event()
thread = threading.Thread(target=lambda: (begun.set(), use()))
thread.start()
begun.wait()
time.sleep({delay})
child(use)
thread.join()
""",
        tmp_path,
    )


def test_a_set_of_shapes_that_another_thread_was_compiling() -> None:
    run(
        """
import numpy as np
import onnxplug
from onnxplug.plugins import registry
from shapes_lab import DOUBLE, EP, Factory, Lab, run

lab = Lab()
registry.add(Factory(lab))
options = onnxplug.SessionOptions()
served = onnxplug.SessionOptions()
served.add_session_config_entry("session.serve_while_compiling", "1")
waiting = onnxplug.InferenceSession(DOUBLE, options, providers=[EP])
serving = onnxplug.InferenceSession(DOUBLE, served, providers=[EP])
for session in (waiting, serving):
    run(session, 1)
gate = lab.gate(7)
thread = threading.Thread(target=run, args=(waiting, 7))
thread.start()
lab.began[7].wait(30)
run(serving, 7)  # has it compiled in the background
while lab.compiled.count(((7, 3),)) < 2:
    time.sleep(0.001)


def check():
    lab.gates.clear()
    for session in (waiting, serving):
        run(session, 7)
    while not any("7" in key for part in serving.explain().partitions
                  for key in part.specialisations.kept):
        run(serving, 7)
        time.sleep(0.001)
    run(serving, 7)
    for session in (waiting, serving):
        session.close()


child(check)
gate.set()
thread.join()
run(waiting, 7)
waiting.close()
serving.close()
""",
        Path(__file__).parent,
    )
