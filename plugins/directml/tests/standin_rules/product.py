"""What the tests of the stand-in have a program compute, and what it answers."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.driving import (
    OWNED,
    UNORDERED_ACCESS,
    Answer,
    Program,
    Reference,
    array_binding,
    bind,
    graph_desc,
    operator_desc,
    tensor,
)
from ..standin.operators import Rejected

E_INVALIDARG = 0x80070057 - 2**32
E_OUTOFMEMORY = 0x8007000E - 2**32
DEVICE_REMOVED = 0x887A0005 - 2**32
DEVICE_HUNG = 0x887A0006 - 2**32
UNSUPPORTED = 0x887A0004 - 2**32
NOT_FOUND = 0x887A0002 - 2**32


class Add:
    support = """
        3.0  ATensor       input   1-8  FLOATS SIGNED UINT8
             BTensor       input   1-8  FLOATS SIGNED UINT8
             OutputTensor  output  1-8  FLOATS SIGNED UINT8
        1.0  ATensor       input   4-5  FLOATS
             BTensor       input   4-5  FLOATS
             OutputTensor  output  4-5  FLOATS
    """

    @staticmethod
    def check(desc: Any, tensors: Any) -> None:
        if len({t.sizes for t in tensors.values()}) != 1:
            raise Rejected("sizes differ")

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        return [inputs[0] + inputs[1]]


class Relu:
    support = """
        1.0  InputTensor   input   1-8  FLOATS
             OutputTensor  output  1-8  FLOATS
    """

    @staticmethod
    def apply(desc: Any, values: Any) -> Any:
        return np.maximum(values, 0)

    @classmethod
    def evaluate(cls, desc: Any, inputs: list[Any]) -> list[Any]:
        return [cls.apply(desc, inputs[0])]


class Gemm:
    support = """
        1.0  ATensor       input   4  FLOATS
             BTensor       input   4  FLOATS
             CTensor       input?  4  FLOATS
             OutputTensor  output  4  FLOATS
    """

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        a, b, c = inputs
        a = a.swapaxes(2, 3) if desc.TransA == "TRANSPOSE" else a
        b = b.swapaxes(2, 3) if desc.TransB == "TRANSPOSE" else b
        product = desc.Alpha * (a.astype(np.float64) @ b)
        if c is not None:
            product = product + desc.Beta * c
        if desc.FusedActivation is not None:
            product = Relu.apply(desc.FusedActivation, product)
        return [product.astype(a.dtype)]


class Join:
    support = """
        1.0  InputTensors  input   1-8  FLOATS
             OutputTensor  output  1-8  FLOATS
    """

    @staticmethod
    def evaluate(desc: Any, inputs: list[Any]) -> list[Any]:
        return [np.concatenate(inputs, desc.Axis)]


A = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3) - 2
B = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) / 4 - 1
C = np.ones((1, 1, 2, 4), np.float32)


def gemm(program: Program, *, owned: bool = True, **fields: Any) -> Reference:
    """Relu(A·B + C), in which B and C are DirectML's if ``owned``."""
    flags = OWNED if owned else 0
    relu = operator_desc("ACTIVATION_RELU")
    return program.operator(
        "GEMM",
        **{
            "ATensor": tensor(A.shape),
            "BTensor": tensor(B.shape, flags=flags),
            "CTensor": tensor(C.shape, flags=flags),
            "OutputTensor": tensor(C.shape),
            "Alpha": 1.0,
            "Beta": 1.0,
            "FusedActivation": ctypes.pointer(relu),
        }
        | fields,
    )


class Run:
    """A product whose weights DirectML owns, ready to be executed."""

    def __init__(self, program: Program, flags: int = 0) -> None:
        self.program = program
        self.compiled = program.compiled(gemm(program), flags)
        properties = self.compiled.GetBindingProperties()
        self.persistent = program.buffer(properties.PersistentResourceSize)
        self.initializer = program.initializer(self.compiled)
        self.table = program.table(self.initializer)
        owned = [None, program.uploaded(B), program.uploaded(C)]
        self.scratch = program.buffer(
            self.initializer.GetBindingProperties().TemporaryResourceSize
        )
        bind(
            self.table,
            inputs=[array_binding(owned)],
            outputs=[self.persistent],
            temporary=self.scratch,
        )

    def initialize(self) -> None:
        """On a list of its own."""
        self.program.dispatch(self.initializer, self.table)
        self.program.submit()
        self.program.wait()
        self.program.again()

    def bound(self, **changes: Any) -> Reference:
        """A table for the execution."""
        program = self.program
        self.source = program.resident(A)
        self.target = program.buffer(C.nbytes)
        table = program.table(self.compiled)
        bindings: dict[str, Any] = {
            "inputs": [self.source, None, None],
            "outputs": [self.target],
            "persistent": self.persistent,
        }
        bind(table, **bindings | changes)
        return table

    def execute(self, **changes: Any) -> None:
        """Recorded only."""
        self.program.dispatch(self.compiled, self.bound(**changes))

    def result(self) -> np.ndarray[Any, Any]:
        """What was computed, in a list that goes on."""
        self.program.transition(self.target, UNORDERED_ACCESS, 0x800)
        return self.program.read(self.target, C)


EXPECTED = np.maximum(A.astype(np.float64) @ B + C, 0).astype(np.float32)


def run_result(run: Run) -> np.ndarray[Any, Any]:
    """What was computed by an earlier list: buffers have decayed to COMMON."""
    return run.program.read(run.target, C)


def sum_and_relu(program: Program, **changes: Any) -> Any:
    """Join(x + y, Relu(x + y)) as a graph of three nodes."""
    whole = tensor([2, 3])
    add = program.operator(
        "ELEMENT_WISE_ADD",
        **{"ATensor": whole, "BTensor": whole, "OutputTensor": whole}
        | changes.pop("add", {}),
    )
    relu = program.operator(
        "ACTIVATION_RELU",
        **{"InputTensor": whole, "OutputTensor": whole} | changes.pop("relu", {}),
    )
    parts = (type(whole.contents) * 2)(whole.contents, whole.contents)
    join = program.operator(
        "JOIN",
        InputCount=2,
        InputTensors=parts,
        OutputTensor=tensor([4, 3]),
        Axis=0,
    )
    edges: dict[str, Any] = {
        "nodes": [join, add, relu],
        "inputs": [(0, 1, 0), (1, 1, 1)],
        "between": [(1, 0, 2, 0), (1, 0, 0, 0), (2, 0, 0, 1)],
        "outputs": [(0, 0, 0)],
    }
    return graph_desc(**edges | changes)


def loses(program: Program, words: str, action: Callable[[], Any]) -> None:
    """Invalid use of a method without an HRESULT removes the device of DirectML."""
    with program.windows.expected(words):
        action()
    assert program.dml.GetDeviceRemovedReason() == E_INVALIDARG
    assert program.device.GetDeviceRemovedReason() == 0
    with pytest.raises(Answer) as error:
        gemm(program)
    assert error.value.result == DEVICE_REMOVED


def refused(program: Program, words: str, action: Callable[[], Any]) -> None:
    """A submission that breaks a rule is dropped, and removes the device."""
    with program.windows.expected(words):
        action()
    assert program.device.GetDeviceRemovedReason() == 0x887A0001 - 2**32


def fails_late(program: Program, words: str) -> None:
    """The GPU finds that a rule is broken, which removes the device."""
    with program.windows.expected(words):
        program.submit()
        # the signal is given before or after that
        with contextlib.suppress(Answer):
            program.wait()
    assert program.device.GetDeviceRemovedReason() == 0x887A0001 - 2**32
