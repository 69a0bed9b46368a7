"""What is restored without a graph is of this source, and of as many threads."""

from __future__ import annotations

import marshal
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug import ep
from onnxplug.weights import of_host
from onnxplug_cpu.compiler import kept_plans
from onnxplug_cpu.compiler.restore import restore
from onnxplug_cpu.compiler.runtime.kept import NothingKept

from .lowered import noted_partitions


@pytest.fixture
def restorable(monkeypatch: pytest.MonkeyPatch) -> ep.Restorable:
    """How a session of one ``Neg`` is restored."""
    monkeypatch.setenv(kept_plans.KEEP, "1")
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1234]) for name in "xy"
    )
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", [x], [y])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    with noted_partitions() as partitions:
        session = onnxplug.InferenceSession(model.SerializeToString())
    session.run(None, {"x": np.zeros(1234, np.float32)})
    found = partitions[0].restorable
    assert found is not None
    return found


class OnePartition:
    """What a host without a graph knows of it."""

    inputs, outputs, nodes, graph = ("x",), ("y",), (), None


def test_a_program_is_restored(restorable: ep.Restorable) -> None:
    partition: Any = OnePartition()
    restored = restore(partition, restorable.content, of_host)
    x = np.arange(1234, dtype=np.float32)
    (y,) = restored.run([x], [None], None)
    assert np.array_equal(y, -x)
    assert restored.restorable is None


@pytest.mark.parametrize("part", [0, 1, 2], ids=["kernels", "partition", "threads"])
def test_what_was_made_otherwise_is_not(restorable: ep.Restorable, part: int) -> None:
    partition: Any = OnePartition()
    content = list(marshal.loads(restorable.content))
    content[part] = (99, 0, True, 2) if part == 2 else "another"
    with pytest.raises(NothingKept):
        restore(partition, marshal.dumps(tuple(content)), of_host)


def test_it_can_be_turned_off(
    restorable: ep.Restorable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kept_plans.KEEP, "0")
    partition: Any = OnePartition()
    with pytest.raises(NothingKept):
        restore(partition, restorable.content, of_host)
