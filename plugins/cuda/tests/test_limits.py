"""What sessions take of a device's memory: weights, limits, and what is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxplug

from .conftest import EP
from .standin import Machine

MIB = 1 << 20
SIDE = 512
"""Of two square matrices of float32, each of 1 MiB."""

Alone = Callable[..., onnxplug.InferenceSession]
X = np.random.default_rng(5).standard_normal((4, SIDE)).astype(np.float32)


def model(rows: int | str = "N") -> onnx.ModelProto:
    """Two products, each by a weight of its own."""
    rng = np.random.default_rng(6)
    weights = [
        numpy_helper.from_array(
            rng.standard_normal((SIDE, SIDE)).astype(np.float32), name
        )
        for name in ("a", "b")
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [rows, SIDE])
        for name in ("x", "y")
    )
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def assert_right(session: onnxplug.InferenceSession) -> None:
    a, b = (
        numpy_helper.to_array(each).astype(np.float64)
        for each in model().graph.initializer
    )
    (found,) = session.run(None, {"x": X})
    wanted = X @ a @ b
    np.testing.assert_allclose(found, wanted, 0, 1e-5 * float(np.abs(wanted).max()))


def test_weights_count_against_the_limit(alone: Alone, machine: Machine) -> None:
    session = alone(model(), gpu_mem_limit=4 * MIB, use_tf32=0)
    before = machine.used
    assert_right(session)
    assert 2 * MIB < machine.used - before <= 4 * MIB + MIB  # of what is fed, too


@pytest.mark.parametrize("rows", ["N", 4])
def test_weights_beyond_the_limit_are_an_error(alone: Alone, rows: Any) -> None:
    """And no reason to compute elsewhere."""
    settings = [(EP, {"gpu_mem_limit": MIB}), "CPUExecutionProvider"]
    said = rf"(?s)MatMul.* {MIB} bytes .*in use .*of the {MIB} that gpu_mem_limit"
    for make in (
        lambda: alone(model(rows), gpu_mem_limit=MIB),
        lambda: onnxplug.InferenceSession(model(rows), providers=settings),
    ):
        with pytest.raises(onnxplug.errors.OutOfMemory, match=said):
            make().run(None, {"x": X})


def test_a_run_without_memory_fails_and_the_next_has_it_again(
    alone: Alone, machine: Machine
) -> None:
    """Also where weights are first placed in a run."""
    session = alone(model(), use_tf32=0)
    capacity, machine.capacity = machine.capacity, MIB
    for _ in range(2):
        with pytest.raises(onnxplug.errors.OutOfMemory, match="CUDA has none"):
            session.run(None, {"x": X})
    machine.capacity = capacity
    assert_right(session)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_a_closed_session_gives_its_weights_back(
    alone: Alone, machine: Machine
) -> None:
    """Though it is still held, and others are open."""
    other = alone(model(), use_tf32=0)
    assert_right(other)
    used = machine.used
    sessions = [alone(model(), use_tf32=0, gpu_mem_limit=4 * MIB) for _ in range(2)]
    for session in sessions:
        assert_right(session)
    assert machine.used >= used + 4 * MIB
    for session in sessions:
        session.close()
    assert machine.used <= used
    other.close()
    assert machine.used == 0


def test_sessions_without_a_limit_share_weights(alone: Alone, machine: Machine) -> None:
    content = model().SerializeToString()
    first = alone(content, use_tf32=0)
    assert_right(first)
    used = machine.used
    second = alone(content, use_tf32=0, arena_extend_strategy=1)
    assert_right(second)
    assert machine.used - used < MIB
    first.close()
    assert_right(second)
