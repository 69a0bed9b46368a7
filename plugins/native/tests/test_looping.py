"""Kernels that are called one after another without Python between them."""

from __future__ import annotations

import ctypes
import importlib.util

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import errors
from onnxplug_native import kernel_partition
from onnxplug_native.interface import looping

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"
NODES = 9


def named() -> bytes:
    """Products in a row, of which each has a name."""
    model = onnx.load_from_string(product("n", 3, nodes=NODES))
    for place, node in enumerate(model.graph.node):
        node.name = f"node {place}"
    return bytes(model.SerializeToString())


def test_there_is_a_loop_where_llvmlite_is() -> None:
    has = importlib.util.find_spec("llvmlite") is not None
    assert (looping.loop() is not None) == has


@pytest.mark.parametrize("memory", [[], ["DEVICE_MEMORY"]])
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("how", "kind", "told"),
    [
        (1, errors.InvalidArgument, "'node {}' failed .INVALID_ARGUMENT.: not now"),
        (2, errors.EPFail, "did not compute the output 'v{}'"),
        (3, errors.EpError, "there is no output 7 of 1"),
    ],
)
def test_a_run_says_at_which_kernel_it_failed(
    register, monkeypatch, memory, is_compiled, how, kind, told
) -> None:
    """Also the first, which plans nothing; what comes afterwards is right."""
    if not is_compiled:
        monkeypatch.setattr(kernel_partition, "loop", lambda: None)
    misbehave = ctypes.CDLL(str(register("KERNELS", *memory))).example_misbehave
    with onnxplug.InferenceSession(named(), providers=[EXAMPLE, "cpu"]) as session:
        for size in (2, 5):
            given = feeds(size, 3)
            expected = (given["x"] + given["x"]) * given["y"] ** NODES
            for place in (1, 4, NODES, 6):
                misbehave(place, how)
                with pytest.raises(kind, match=told.format(place)):
                    session.run(None, given)
                for _ in range(3):
                    (found,) = session.run(None, given)
                    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_portions_are_as_long_as_they_may_be(register) -> None:
    """Kernels that take long are called one at a time, and others all at once."""
    pytest.importorskip("llvmlite")
    register("KERNELS")
    given, portions = feeds(2, 3), []
    for mode in ("one_at_a_time", ""):
        providers = [(EXAMPLE, {"mode": mode}), "cpu"]
        with onnxplug.InferenceSession(
            product(2, 3, nodes=20), providers=providers
        ) as session:
            known: list[kernel_partition.KernelPartition] = []
            compute = kernel_partition.KernelPartition._compute

            def noted(self, arguments, compute=compute, known=known):
                known.append(self)
                return compute(self, arguments)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kernel_partition.KernelPartition, "_compute", noted)
                for _ in range(4):
                    session.run(None, given)
            portions.append(known[-1]._portion)
    assert portions[0] <= 5 < portions[1]
