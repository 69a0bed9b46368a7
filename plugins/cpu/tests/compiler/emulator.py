"""Runs aarch64 code on other processors, by the package unicorn, to test kernels.

The emulated processor sees the memory of this process, at the same addresses.  It lacks
the extension I8MM, whose instructions are computed here as Arm's manual defines them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

VARIABLE = "ONNXPLUG_TEST_EMULATED"
"""Set it to 1 to run tests of kernels on an emulated aarch64, too; they take long."""

_BLOCK = 1 << 16
_RETURN = 0x1000
_processor: list[Any] = []
_stack = np.zeros(1 << 20, np.uint8)


def wanted() -> bool:
    """Whether kernels are to be run on an emulated aarch64."""
    return os.environ.get(VARIABLE) == "1"


def function(address: int) -> Callable[[int, int, int], None]:
    """The kernel's function at *address*."""
    import unicorn
    from unicorn import arm64_const as arm

    if not _processor:
        _processor.append(_start())
    processor = _processor[0]

    def call(*arguments: int) -> None:
        registers = (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2)
        for register, argument in zip(registers, arguments, strict=True):
            processor.reg_write(register, argument)
        top = (_stack.ctypes.data + _stack.nbytes - 64) // 64 * 64
        processor.reg_write(arm.UC_ARM64_REG_SP, top)
        processor.reg_write(arm.UC_ARM64_REG_X30, _RETURN)
        where = address
        while where != _RETURN:
            try:
                processor.emu_start(where, _RETURN)
                return
            except unicorn.UcError as error:
                where = processor.reg_read(arm.UC_ARM64_REG_PC)
                if not _multiply(processor, arm, where):
                    raise AssertionError(f"at {where - address:#x}: {error}") from error
                where += 4

    return call


_I8MM = {
    0x4E809C00: (np.uint8, "nk,nk->n"),  # USDOT
    0x4E80A400: (np.int8, "ik,jk->ij"),  # SMMLA
    0x4E80AC00: (np.uint8, "ik,jk->ij"),  # USMMLA
}
"""The bytes of the first factor, and how they are multiplied, by what of an instruction
does not name registers."""


def _multiply(processor: Any, arm: Any, place: int) -> bool:
    """Compute the instruction at an address, if it is one of I8MM."""
    word = int.from_bytes(processor.mem_read(place, 4), "little")
    form = _I8MM.get(word & 0xFFE0FC00)
    if form is None:
        return False
    kind, product = form
    sums, first, second = (
        arm.UC_ARM64_REG_Q0 + (word >> shift & 31) for shift in (0, 5, 16)
    )

    def read(register: int, dtype: Any) -> np.ndarray[Any, Any]:
        content = processor.reg_read(register).to_bytes(16, "little")
        found = np.frombuffer(content, dtype).astype(np.int32)
        rows = 4 if product.endswith("n") else 2
        return found if dtype == np.int32 else found.reshape(rows, -1)

    found = np.einsum(product, read(first, kind), read(second, np.int8))
    total = read(sums, np.int32) + found.reshape(-1)
    processor.reg_write(sums, int.from_bytes(total.tobytes(), "little"))
    return True


def _start() -> Any:
    import unicorn
    from unicorn import arm64_const as arm

    processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    processor.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
    allow_vectors = 3 << 20
    processor.reg_write(arm.UC_ARM64_REG_CPACR_EL1, allow_vectors)

    def map_memory(uc: Any, access: int, address: int, size: int, *_: Any) -> bool:
        if address < _BLOCK:  # NULL and what is near it
            return False
        for block in {address // _BLOCK, (address + size - 1) // _BLOCK}:
            place = block * _BLOCK
            try:
                uc.mem_map_ptr(place, _BLOCK, unicorn.UC_PROT_ALL, place)
            except unicorn.UcError:  # the first of two, which is mapped
                continue
        return True

    processor.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, map_memory)
    return processor
