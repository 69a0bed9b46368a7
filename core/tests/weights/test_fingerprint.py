"""Fingerprints of partitions: weights in files are not read for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.authoring import files
from onnxplug.graph import Weight
from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition

WEIGHTS = np.arange(1 << 16, dtype=np.float32)

SCRIPT = """
import sys
from onnxplug.authoring import files
from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition

files._TICK = 0
graph = load_model(sys.argv[1]).graph
print(GraphPartition(graph, graph.nodes).fingerprint)
"""


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough for their times to tell of what is written next."""
    monkeypatch.setattr(files, "_TICK", 0)


def model(weights: Any = WEIGHTS, op_type: str = "Add", size: int = 1 << 16) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])
    node = helper.make_node(op_type, ["x", "w"], ["y"])
    stored = numpy_helper.from_array(weights, "w")
    return helper.make_model(helper.make_graph([node], "g", [x], [y], [stored]))


def fingerprint(source: Any) -> str:
    graph = load_model(source).graph
    return GraphPartition(graph, graph.nodes).fingerprint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    return path


def test_another_process_has_the_same(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == fingerprint(path)


def test_weights_in_files_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fingerprint(path)

    def read(weight: Weight) -> None:
        raise AssertionError(f"{weight} is read")

    monkeypatch.setattr(Weight, "raw", read)
    monkeypatch.setattr(Weight, "array", property(read))
    assert fingerprint(path) == expected


def test_weights_in_memory_are_told_by_their_bytes() -> None:
    data = model().SerializeToString()
    other = WEIGHTS.copy()
    other[-1] += 1
    assert fingerprint(data) == fingerprint(bytearray(data))
    assert fingerprint(data) != fingerprint(model(other).SerializeToString())


def test_a_file_that_was_written_to_has_another(path: Path) -> None:
    before, times = fingerprint(path), path.stat()
    other = WEIGHTS.copy()
    other[-1] += 1
    data = model(other).SerializeToString()
    assert len(data) == times.st_size
    time.sleep(0.02)  # of the clock that times of files are taken from
    with path.open("r+b") as file:  # the same file, as old as it was
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(path) != before


def test_a_file_that_was_just_written_is_told_by_its_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TICK", 1 << 62)
    assert fingerprint(path) == fingerprint(model().SerializeToString())


def test_structure_and_types_are_in_it() -> None:
    found = {
        fingerprint(made.SerializeToString())
        for made in (
            model(),
            model(op_type="Sub"),
            model(WEIGHTS.reshape(1, -1)),
            model(WEIGHTS.view(np.uint32).view(np.float32)[::-1]),
        )
    }
    assert len(found) == 4


def test_what_is_computed_is_told_by_what_it_is_of(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute() -> Any:
        raise AssertionError("it is computed")

    def computed(method: str) -> str:
        graph = load_model(path).graph
        weight = graph.constants["w"]
        graph.constants["w"] = Weight.computed(
            weight.dtype, weight.shape, compute, method=method, of=[weight]
        )
        return GraphPartition(graph, graph.nodes).fingerprint

    assert computed("double") == computed("double")
    assert len({computed("double"), computed("halve"), fingerprint(path)}) == 3
