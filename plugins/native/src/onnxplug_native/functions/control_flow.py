"""Kernels of control flow, which libraries have the host make.

The host runs bodies itself, and has no use for the kernels.  What a library gives for
them, to work in its memory, is used.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.ending import lasting
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import put_pointer
from onnxplug_native.interface.status import Status
from onnxplug_native.interface.structure import Structure
from onnxplug_native.interface.table import API_VERSION, entries


class _KernelMemory(ctypes.Structure):
    _fields_: ClassVar = [
        ("version", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("functions", ctypes.c_void_p * len(entries("OrtKernelImpl"))),
    ]


def _compute(kernel: int, _: int) -> int:
    known = find(ControlFlowKernel, kernel, quiet=True)
    what = "a kernel of control flow" if known is None else f"the kernel of {known.op}"
    text = f"{what} was to be run by a library: the host runs bodies itself"
    return Status(Code.NOT_IMPLEMENTED, text).address


def _release(kernel: int) -> None:
    found = find(ControlFlowKernel, kernel, quiet=True)
    if found is not None:
        found.release()


_BODIES = {"Compute": _compute, "Release": _release}
_FUNCTIONS = lasting(
    [
        entry.signature(_BODIES[entry.name]) if entry.name in _BODIES else None
        for entry in entries("OrtKernelImpl")
    ]
)


class ControlFlowKernel(Handle):
    """A kernel of the host's, by the interface that those of libraries have.

    Attributes:
        op: the operator.
        helper: what the library gave for it; ``None`` for nothing.
    """

    def __init__(self, op: str, helper: Structure | None) -> None:
        pointers = [
            ctypes.cast(each, ctypes.c_void_p).value if each else None
            for each in _FUNCTIONS
        ]
        functions = (ctypes.c_void_p * len(pointers))(*pointers)
        super().__init__(_KernelMemory(API_VERSION, 0, functions))
        self.op = op
        self.helper = helper

    def release(self) -> None:
        """Release it, and what the library gave for it."""
        helper, self.helper = self.helper, None
        super().release()
        if helper is not None and helper.has("Release"):
            helper.call("Release")


def _make(op: str, info: int, helper: Structure | None, out: int) -> None:
    node = find(KernelInfo, info).view.node
    if (node.op_type, node.domain) != (op, ""):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"a kernel for {op} is to be made for a node {node.op_type}",
        )
    put_pointer(out, ControlFlowKernel(op, helper))


def _helper(kind: str, address: int | None, needed: str) -> Structure:
    """What a library gives, with the functions that it has to have."""
    if not address:
        raise InterfaceError(Code.INVALID_ARGUMENT, f"the {kind} is null")
    helper = Structure(kind, address, "a library")
    for name in ("Release", needed):
        if not helper.has(name):
            raise InterfaceError(Code.INVALID_ARGUMENT, f"the {kind} has no {name}")
    return helper


@implements("CreateIfKernel", "OrtEpApi")
def create_if_kernel(info: int, out: int) -> None:
    """A kernel for If."""
    _make("If", info, None, out)


@implements("CreateLoopKernel", "OrtEpApi")
def create_loop_kernel(info: int, helper: int | None, out: int) -> None:
    """A kernel for Loop, which owns what the library gives for it."""
    _make("Loop", info, _helper("OrtLoopKernelHelper", helper, "ConcatOutput"), out)


@implements("CreateScanKernel", "OrtEpApi")
def create_scan_kernel(info: int, helper: int | None, out: int) -> None:
    """A kernel for Scan, which owns what the library gives for it."""
    _make("Scan", info, _helper("OrtScanKernelHelper", helper, "Transpose"), out)


@implements("ReleaseKernelImpl", "OrtEpApi")
def release_kernel(kernel: int | None) -> None:
    """Release a kernel that was made here; nothing for a null."""
    found = find(ControlFlowKernel, kernel, quiet=True)
    if found is not None:
        found.release()
