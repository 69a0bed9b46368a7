"""The on-device check in other processes: what is known is not found out again."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CPU = "CPUExecutionProvider"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of one test."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnxplug"


PROGRAM = """
import sys, warnings
import numpy as np, onnx, onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug.verify import check
from onnxplug_testing import Knobs
from verified_ep import Factory

check.SECONDS = 60
runs = []
def wrong(a, b):
    runs.append(1)
    return a + b + np.float32(1)

def model(text):
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        'agraph (float[2] x) => (float[2] y) {{ y = ' + text + ' }}'
    ).SerializeToString()

Factory.engine = {engine!r}
probe = ep.Probe(
    family="add",
    operators=frozenset({{("", "Add", ep.DataType.FLOAT32)}}),
    model=model("Add (x, x)"),
    inputs={{"x": np.ones(2, np.float32)}},
    tolerance=({tolerance}, 0),
)
Factory.version = {version!r}
registry.add(Factory(Knobs(kernels={{"Add": wrong}}, probes=(probe,))))
{before}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    session = onnxplug.InferenceSession(
        model("Add (x, x)"), providers=["SimulatedExecutionProvider", "cpu"]
    )
(node,) = session.explain().nodes
print(len(runs), node.ep, node.passed_over[0].reason.code,
      sum("checked against" in str(each.message) for each in told))
"""


# what is kept is told by the file of the class, too
EP = """
from onnxplug_testing import SimulatedFactory

class Factory(SimulatedFactory):
    def engine_versions(self, device):
        return {"engine": self.engine}
"""


@pytest.fixture
def process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """What a fresh process prints: probe runs, the EP, the reason, warnings."""

    (tmp_path / "verified_ep.py").write_text(EP, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(**facts: Any) -> list[str]:
        defaults = {"engine": "1", "version": "1", "tolerance": 0, "before": ""}
        program = PROGRAM.format(**defaults | facts)
        found = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        return found.stdout.split()

    return run


RAN = ["2", CPU, "verify", "1"]
"""The device rehearses, then computes."""
KEPT = ["0", CPU, "verify", "1"]


def test_a_second_process_does_not_pay(process: Callable[..., list[str]]) -> None:
    assert process() == RAN
    assert process() == KEPT


@pytest.mark.parametrize(
    "change", [{"engine": "2"}, {"version": "2"}, {"tolerance": 1e-9}]
)
def test_what_matters_is_checked_again(
    process: Callable[..., list[str]], change: dict[str, Any]
) -> None:
    assert process() == RAN
    assert process(**change) == RAN
    assert process() == process(**change) == KEPT


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def forge(path: Path) -> None:
    from onnxplug.authoring.entries import Cache

    Cache("onnxplug").store(path.stem, b'[["add", "?"]]')


@pytest.mark.parametrize("damage", [spoil, forge, lambda path: path.write_bytes(b"")])
def test_a_damaged_entry_is_made_anew(
    process: Callable[..., list[str]], cache: Path, damage: Callable[[Path], None]
) -> None:
    assert process() == RAN
    (entry,) = cache.glob("verify-*.entry")
    damage(entry)
    assert process() == RAN
    assert process() == KEPT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("known", [True, False], ids=["known", "not yet"])
def test_the_child_of_a_fork(process: Callable[..., list[str]], known: bool) -> None:
    """Also of one at the very moment at which another thread checks."""
    program = """
        import os, threading, time
        begun = threading.Event()
        plain = registry.resolve("simulated").factory.knobs.kernels["Add"]
        def slow(a, b):
            begun.set()
            time.sleep(0.2)
            return plain(a, b)
        registry.resolve("simulated").factory.knobs.kernels["Add"] = slow
        def open_one():
            onnxplug.InferenceSession(
                model("Add (x, x)"), providers=["SimulatedExecutionProvider", "cpu"]
            )
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=open_one)
        thread.start()
        begun.wait()
        if KNOWN:
            thread.join()
        child = os.fork()
        if child:
            thread.join()
            assert os.waitpid(child, 0)[1] == 0
        else:
            del runs[:]
    """
    before = textwrap.dedent(program).replace("KNOWN", str(known))
    lines = process(before=before)
    child, parent = lines[:4], lines[4:]
    assert parent[1:3] == child[1:3] == [CPU, "verify"]
    assert child[0] == ("0" if known else "2")
