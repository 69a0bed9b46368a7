"""Weights in a form that kernels make of them."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import errors
from onnxplug_native import library

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"


@pytest.fixture
def libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> weakref.WeakSet[library.NativeLibrary]:
    """Those that are loaded in the test."""
    found: weakref.WeakSet[library.NativeLibrary] = weakref.WeakSet()
    load = library.NativeLibrary._load

    def noted(self: library.NativeLibrary, handle: str) -> object:
        found.add(self)
        return load(self, handle)

    monkeypatch.setattr(library.NativeLibrary, "_load", noted)
    return found


def of_constant(scale: float = 1) -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    """A model of two products by one constant, what it is fed, and what it gives."""
    loaded, given = onnx.load_from_string(product(2, 3, nodes=2)), feeds(2, 3)
    factor = given["y"] * np.float32(scale)
    loaded.graph.initializer.append(onnx.numpy_helper.from_array(factor, "y"))
    del loaded.graph.input[1]
    expected = (given["x"] + given["x"]) * factor**2
    return loaded.SerializeToString(), {"x": given["x"]}, expected


def open_session(model: bytes) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model, providers=[EXAMPLE, "cpu"])


@pytest.mark.parametrize(
    "macros",
    [["PACKING=1"], ["PACKING=1", "DEVICE_MEMORY"], ["PACKING=2"], ["PACKING=5"]],
)
def test_a_kernel_computes_with_what_it_packed(register, macros) -> None:
    path = register("KERNELS", *macros)
    model, fed, expected = of_constant()
    with open_session(model) as session:
        ran = [each.ep for each in session.explain().nodes if each.op_type == "Mul"]
        assert ran == [EXAMPLE] * 2
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, fed)[0], expected, rtol=1e-6)
    onnxplug.unregister_ep_library("example")
    assert ctypes.CDLL(str(path)).example_allocated() == 0


def test_what_is_packed_alike_is_there_once(register, libraries) -> None:
    path = register("KERNELS", "PACKING=2")
    handed_over = ctypes.CDLL(str(path)).example_packed
    model, fed, expected = of_constant()
    other, _, of_other = of_constant(2)
    (loaded,) = libraries
    with open_session(model) as one, open_session(model) as two:
        assert handed_over() == 4
        assert len(loaded.packed) == 1
        with open_session(other) as three:
            assert len(loaded.packed) == 2
            np.testing.assert_allclose(three.run(None, fed)[0], of_other, rtol=1e-6)
        assert len(loaded.packed) == 1
        one.close()
        np.testing.assert_allclose(two.run(None, fed)[0], expected, rtol=1e-6)
    assert len(loaded.packed) == 0
    del loaded


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (3, "does not implement OrtKernelImpl.SetSharedPrePackedWeight"),
        (4, "24 bytes of a weight are given at 0x1238, where nothing is"),
        (6, r"PrePackWeight of .*\(FAIL\): cannot pack it"),
    ],
)
def test_a_kernel_that_packs_wrongly_is_not_used(register, kind, told) -> None:
    register("KERNELS", f"PACKING={kind}")
    with pytest.raises(errors.OnnxplugError, match=told):
        onnxplug.InferenceSession(of_constant()[0], providers=[EXAMPLE])
