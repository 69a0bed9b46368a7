"""Plugins that are broken, in conflict or slow cost others nothing.

Their distributions are made up in a folder of ``PYTHONPATH``, beside the installed CPU
EP, and what a fresh process does with them is compared with what it does without.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

pytestmark = pytest.mark.slow

ROUNDS = 15
NOISE = 0.020
"""Seconds by which two medians may differ on a busy machine."""

SLOW = 2.0
"""Seconds that the slow plugin takes to import, which it notes in a file beside it."""

HOOK = """
from onnxplug import ep

@ep.hookimpl
def {hook}(host):
    return []
"""
PLUGINS = {
    # distribution, the EP that it supplies, and its module
    "raising": ("RaisingExecutionProvider", "raise RuntimeError('no such driver')"),
    "misspelt": (
        "MisspeltExecutionProvider",
        HOOK.format(hook="onnxplug_ep_factory"),
    ),
    "one": ("ContestedExecutionProvider", HOOK.format(hook="onnxplug_ep_factories")),
    "other": ("ContestedExecutionProvider", HOOK.format(hook="onnxplug_ep_factories")),
    "slow": (
        "SlowExecutionProvider",
        "import pathlib, time\n"
        "pathlib.Path(__file__).with_suffix('.imported').touch()\n"
        f"time.sleep({SLOW})",
    ),
}

SESSION = """
import sys
import numpy as np
import onnxplug
session = onnxplug.InferenceSession(sys.argv[1])
print(session.get_providers(), session.run(None, {"x": np.float32([-1, 2])}))
print(session.explain())
"""
COMMANDS = {
    "import onnxplug": ["-c", "import onnxplug"],
    "onnxplug eps": ["-m", "onnxplug", "eps", "--json"],
    "a session on the CPU": ["-c", SESSION, "model.onnx"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and with the folder ``site`` of the plugins."""
    folder = tmp_path_factory.mktemp("neighbours")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        "agraph (float[2] x) => (float[2] y) { y = Relu (x) }"
    )
    onnx.save(model, folder / "model.onnx")
    for name, (ep, code) in PLUGINS.items():
        info = folder / "site" / f"acme_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: acme-{name}\nVersion: 1.0\n\n")
        (info / "entry_points.txt").write_text(
            f"[onnxplug.execution_providers]\n{ep} = acme_{name}\n"
        )
        (folder / "site" / f"acme_{name}.py").write_text(code)
    return folder


def run(words: list[str], folder: Path, *, with_neighbours: bool) -> tuple[str, float]:
    """What a Python process prints, and how many seconds it takes."""
    environment: Mapping[str, str] = {
        key: value
        for key, value in os.environ.items()
        if key != "PYTHONPATH" and not key.startswith("ONNXPLUG_")
    }
    site = {"PYTHONPATH": str(folder / "site")} if with_neighbours else {}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, **site},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seconds = time.perf_counter() - start
    assert not done.stderr
    return done.stdout, seconds


def test_all_are_listed_without_being_imported(folder: Path) -> None:
    before, _ = run(COMMANDS["onnxplug eps"], folder, with_neighbours=False)
    after, _ = run(COMMANDS["onnxplug eps"], folder, with_neighbours=True)
    listed = {ep["name"]: ep for ep in json.loads(after)["eps"]}
    made_up = {ep: listed.pop(ep)["state"] for ep in {ep for ep, _ in PLUGINS.values()}}
    assert list(listed.values()) == json.loads(before)["eps"]
    assert made_up == {
        "ContestedExecutionProvider": "conflict",
        "MisspeltExecutionProvider": "found",
        "RaisingExecutionProvider": "found",
        "SlowExecutionProvider": "found",
    }
    assert not (folder / "site" / "acme_slow.imported").exists()


def test_asked_for_each_costs_only_itself(folder: Path) -> None:
    program = """
import onnxplug
onnxplug.get_ep_devices()
for record in onnxplug.get_plugins():
    print(record.name, record.state, record.reason.splitlines()[:1])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "site" / "acme_slow.imported").unlink()  # it was asked for
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert " ready []" in lines["CPUExecutionProvider"]
    assert "no such driver" in lines["RaisingExecutionProvider"]
    assert "onnxplug_ep_factory" in lines["MisspeltExecutionProvider"]
    assert "acme-one and acme-other" in lines["ContestedExecutionProvider"]
    assert "SlowExecutionProvider failed" in lines["SlowExecutionProvider"]


@pytest.mark.parametrize("what", COMMANDS)
def test_they_cost_no_time_and_change_no_result(
    folder: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds: dict[bool, list[float]] = {False: [], True: []}
    printed: dict[bool, set[str]] = {False: set(), True: set()}
    for with_neighbours in (False, True):  # a first time, for files not yet in memory
        run(COMMANDS[what], folder, with_neighbours=with_neighbours)
    for _ in range(ROUNDS):
        for with_neighbours in (False, True):
            out, taken = run(COMMANDS[what], folder, with_neighbours=with_neighbours)
            seconds[with_neighbours].append(taken)
            printed[with_neighbours].add(out)
    alone, beside = (statistics.median(seconds[with_]) for with_ in (False, True))
    with capsys.disabled():
        print(
            f"\n{what}: {alone * 1e3:.0f} ms alone, {beside * 1e3:.0f} ms beside five "
            f"bad plugins, ratio {beside / alone:.3f}"
        )
    assert all(len(texts) == 1 for texts in printed.values())
    if what != "onnxplug eps":  # which lists them
        assert printed[True] == printed[False]
    assert beside < 1.25 * alone + NOISE
    assert not (folder / "site" / "acme_slow.imported").exists()
