"""Processors that multiply bytes, as tests have them."""

from __future__ import annotations

from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, Isa, host_isa

from . import emulator
from .interpreter import ISAS


def _with(isa: Isa, *features: str) -> Isa:
    return isa._replace(features=",+".join([isa.features, *features]))


VNNI = _with(AVX512, "avx512vnni")
AVX_VNNI = _with(AVX2, "avxvnni", "fast-dpwssd")
DOT = _with(NEON, "dotprod")
I8MM = _with(NEON, "dotprod", "i8mm")

NAMES: dict[Isa, str] = {}
"""Descriptions beside :data:`~.interpreter.ISAS` whose products of bytes this processor
can run, or that are emulated, and what they are called."""

_HOST = host_isa()
if AVX512 in ISAS:
    NAMES[_with(AVX512._replace(tiles="emulated"), "amx-int8")] = "tiles"
if _HOST is not None and _HOST.has("avx512vnni"):
    NAMES[VNNI] = "vnni"
    # LLVM is not to know of it, and writes the same instructions as of AVX-512
    _same = AVX_VNNI._replace(features=f"{AVX_VNNI.features},-avxvnni")
    NAMES[_same._replace(cpu="cascadelake")] = "avx-vnni"
if emulator.wanted():
    NAMES |= {NEON: "neon", DOT: "dot", I8MM: "i8mm"}
