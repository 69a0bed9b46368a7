"""Processors that multiply bytes, as tests have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, Isa, host_isa

from . import emulator
from .interpreter import ISAS, ON_ARM


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
    _tiles = _with(AVX512._replace(tiles="emulated"), "amx-int8")
    NAMES |= {_tiles: "tiles", _tiles._replace(l2=1 << 12): "tiles, small cache"}
if _HOST is not None and _HOST.has("avx512vnni"):
    NAMES[VNNI] = "vnni"
if (_narrow := host_isa("avx2_vnni")) is not None and _narrow.has("avxvnni"):
    NAMES[AVX_VNNI] = "avx-vnni"
elif VNNI in NAMES:
    # LLVM is not to know of it, and writes the same instructions as of AVX-512
    _same = AVX_VNNI._replace(features=f"{AVX_VNNI.features},-avxvnni")
    NAMES[_same._replace(cpu="cascadelake")] = "avx-vnni here"
if emulator.wanted():
    NAMES |= {NEON: "neon", DOT: "dot", I8MM: "i8mm"}
elif _HOST is not None and ON_ARM:
    NAMES[NEON] = "neon"
    if _HOST.has("dotprod"):
        NAMES[DOT] = "dot"
    if _HOST.has("i8mm"):
        NAMES[I8MM] = "i8mm"
elif ISAS:
    NAMES |= {
        isa._replace(triple=AVX2.triple, cpu=AVX2.cpu, tuned_for=""): name
        for isa, name in ((DOT, "dot here"), (I8MM, "i8mm here"))
    }


@contextmanager
def arm_here() -> Iterator[None]:
    """A context in which kernels for aarch64 are compiled for this processor, their
    instructions for products of bytes and of bfloat16 replaced by their definitions;
    where these can be run, it changes nothing."""
    if ON_ARM or emulator.wanted():
        yield
        return
    text = Module.text

    def replaced(self: Module, attributes: str) -> str:
        found = text(self, attributes)
        names = set(re.findall(r"@llvm\.aarch64\.neon\.(\w+)[.(]", found))
        if names:
            found = re.sub(r"declare .*@llvm\.aarch64\.neon\..*", "", found)
            found = found.replace("@llvm.aarch64.neon.", "@stand_in.")
            found = re.sub(r'(asm "", "=r,0[^"]*)"', _with_registers_of_x86, found)
            found += "".join(map(_definition, sorted(names)))
        return found

    with mock.patch.object(Module, "text", replaced):
        yield


def _with_registers_of_x86(match: re.Match[str]) -> str:
    return match.group(0).replace(",w", ",x")


def _definition(name: str) -> str:
    """What an instruction does, as Arm's manual defines it; but sums of bfloat16 are
    rounded to the nearest."""
    if name == "bfmmla":
        return _SQUARES_OF_BF16
    lines, total = [], "%c"
    for factor, way in (("a", "zext" if name[0] == "u" else "sext"), ("b", "sext")):
        lines.append(f"%w{factor} = {way} <16 x i8> %{factor} to <16 x i32>")
    squares = name.endswith("mmla")
    for k in range(8 if squares else 4):
        if squares:
            places = {"a": (k, k, 8 + k, 8 + k), "b": (k, 8 + k, k, 8 + k)}
        else:
            places = dict.fromkeys("ab", (k, 4 + k, 8 + k, 12 + k))
        for factor, lanes in places.items():
            mask = ", ".join(f"i32 {lane}" for lane in lanes)
            both = f"<16 x i32> %w{factor}, <16 x i32> %w{factor}"
            lines.append(f"%{factor}{k} = shufflevector {both}, <4 x i32> <{mask}>")
        lines.append(f"%p{k} = mul <4 x i32> %a{k}, %b{k}")
        lines.append(f"%s{k} = add <4 x i32> {total}, %p{k}")
        total = f"%s{k}"
    body = "\n".join([*lines, f"ret <4 x i32> {total}"])
    parameters = "<4 x i32> %c, <16 x i8> %a, <16 x i8> %b"
    kind = f"{name}.v4i32.v16i8"
    return (
        f"\ndefine internal <4 x i32> @stand_in.{kind}({parameters}) {{\n{body}\n}}\n"
    )


def _squares_of_bf16() -> str:
    lines, total = [], "%c"
    for k in range(4):
        for factor, lanes in (
            ("a", (k, k, 4 + k, 4 + k)),
            ("b", (k, 4 + k, k, 4 + k)),
        ):
            mask = ", ".join(f"i32 {lane}" for lane in lanes)
            both = f"<8 x bfloat> %{factor}, <8 x bfloat> %{factor}"
            lines += [
                f"%n{factor}{k} = shufflevector {both}, <4 x i32> <{mask}>",
                f"%{factor}{k} = fpext <4 x bfloat> %n{factor}{k} to <4 x float>",
            ]
        lines.append(f"%p{k} = fmul <4 x float> %a{k}, %b{k}")
        lines.append(f"%s{k} = fadd <4 x float> {total}, %p{k}")
        total = f"%s{k}"
    body = "\n".join([*lines, f"ret <4 x float> {total}"])
    parameters = "<4 x float> %c, <8 x bfloat> %a, <8 x bfloat> %b"
    return (
        f"\ndefine internal <4 x float> @stand_in.bfmmla({parameters}) {{\n{body}\n}}\n"
    )


_SQUARES_OF_BF16 = _squares_of_bf16()
