"""Processors with tiles of bfloat16, as tests have them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from onnxplug_cpu.compiler import trial_of_tiles as trial
from onnxplug_cpu.compiler.codegen.emit import I64, PTR
from onnxplug_cpu.compiler.codegen.tile_registers import EmulatedTiles
from onnxplug_cpu.compiler.machine import isa as isa_module
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, Isa, host_isa
from onnxplug_cpu.compiler.runtime import jit

from .interpreter import ISAS, ON_ARM, ON_X86

AVX512_BF16 = AVX512._replace(features=f"{AVX512.features},+avx512bf16")
BF16 = NEON._replace(features=f"{NEON.features},+bf16")

_HOST = host_isa()
INSTRUCTIONS = [
    isa
    for isa, feature in ((AVX512_BF16, "avx512bf16"), (BF16, "bf16"))
    if _HOST and _HOST.has(feature)
]
"""The descriptions with an instruction for products of bfloat16 that this processor can
run."""

DEFINED = [BF16._replace(triple=AVX2.triple, cpu=AVX2.cpu, tuned_for="")] * ON_X86
"""Such a description whose instruction is replaced by its definition, in
:func:`~.integer_isas.arm_here`."""

EMULATED = [
    isa._replace(tiles="emulated") for isa in ISAS if isa.name != "neon" or ON_ARM
]
"""The descriptions that this processor can run, with tiles emulated by vector code."""


@contextmanager
def host(isa: Isa | None = None, problem: str | None = None) -> Iterator[None]:
    """A context in which the processor is another, and nothing was tried yet.

    Args:
        isa: by default the one with emulated tiles.
        problem: why AMX cannot be used.
    """
    isa = isa or EMULATED[0]
    found = mock.Mock(return_value=(isa, problem), cache_clear=lambda: None)
    with (
        mock.patch.object(isa_module, "detect", found),
        mock.patch.object(jit, "hosts", {}),
        mock.patch.object(jit, "warned", set()),
        mock.patch.object(trial, "tried", {}),
    ):
        yield


class Counted:
    """How many products of tiles were computed, and of how many rows.

    Attributes:
        address: of both counts.
        isa: for what is to be counted.
    """

    def __init__(self) -> None:
        self._counts = (ctypes.c_int64 * 2)()
        self.address = ctypes.addressof(self._counts)
        # code that counts must not be taken for other code, and this changes no code
        self.isa = EMULATED[0]._replace(l3=self.address)

    @property
    def products(self) -> int:
        """Products of tiles."""
        return self._counts[0]

    @property
    def rows(self) -> int:
        """Rows of the left ones of these tiles."""
        return self._counts[1]


@contextmanager
def counted() -> Iterator[Counted]:
    """A context in which kernels that are compiled for the given processor count."""
    found = Counted()
    multiply = EmulatedTiles.multiply

    def and_count(self: EmulatedTiles, sums: int, a: int, b: int) -> None:
        f = self.f
        for number, more in enumerate((f.value(1, I64), self._rows(sums))):
            place = f.instruction(
                PTR, f"inttoptr i64 {found.address + 8 * number} to ptr"
            )
            f.store(f.load(place, I64) + more, place)
        multiply(self, sums, a, b)

    with mock.patch.object(EmulatedTiles, "multiply", and_count):
        yield found
