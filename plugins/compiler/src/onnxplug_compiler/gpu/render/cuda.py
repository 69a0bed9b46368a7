"""CUDA C++ as a dialect of kernels."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Final

from onnxplug_compiler.gpu.render.cuda_minifloats import BY_INSTRUCTION, conversions_of
from onnxplug_compiler.gpu.render.cuda_prelude import prelude_of
from onnxplug_compiler.gpu.render.dialect import (
    Binding,
    Dialect,
    Fragments,
    Memory,
    Vectors,
    Warps,
)


class _Cells:
    """Memory of elements, of which even those of a byte are written by themselves."""

    parts_share_words = False

    def load(self, nbytes: int, buffer: str, place: str, *, shared: bool) -> str:
        if nbytes == 4:
            return f"{buffer}[u32({place})]"
        found = f"cell<u{8 * nbytes}>({buffer}, u32({place}))"
        return found if nbytes == 8 else f"u32({found})"

    def store(
        self,
        nbytes: int,
        buffer: str,
        place: str,
        bits: str,
        let: Callable[[str, str], str],
        *,
        shared: bool,
    ) -> Sequence[str]:
        if nbytes == 4:
            return (f"{buffer}[u32({place})] = {bits};",)
        kind = f"u{8 * nbytes}"
        return (f"cell<{kind}>({buffer}, u32({place})) = static_cast<{kind}>({bits});",)


class _Vectors:
    """Vectors of words, which CUDA reads and writes by one instruction."""

    _kinds = {8: "uint2", 16: "uint4"}  # noqa: RUF012

    def load(
        self, nbytes: int, buffer: str, number: str, let: Callable[[str, str], str]
    ) -> list[str]:
        if nbytes <= 4:
            return [let("u32", f"u32(cell<u{8 * nbytes}>({buffer}, {number}))")]
        kind = self._kinds[nbytes]
        name = let(kind, f"cell<{kind}>({buffer}, {number})")
        return [f"{name}.{part}" for part in "xyzw"[: nbytes // 4]]

    def store(self, nbytes: int, buffer: str, number: str, words: Sequence[str]) -> str:
        if nbytes <= 4:
            kind = f"u{8 * nbytes}"
            return (
                f"cell<{kind}>({buffer}, {number}) = static_cast<{kind}>({words[0]});"
            )
        kind = self._kinds[nbytes]
        return f"cell<{kind}>({buffer}, {number}) = {kind}{{{', '.join(words)}}};"


class _Warps:
    """Shuffles of 32 lanes."""

    size = 32

    def swap(self, value: str, apart: int, lanes: int) -> str:
        return f"swapped({value}, {apart}u, 0x{(1 << min(lanes, 32)) - 1:x}u)"

    def shift_up(self, value: str, apart: int) -> str:
        return f"shifted_up({value}, {apart}u)"


class _Fragments:
    """Tensor cores by ``ldmatrix`` and ``mma``, and copies by ``cp.async``."""

    def load(self, names: Sequence[str], place: str, *, turned: bool) -> str:
        name = "load_turned" if turned else "load_matrices"
        return f"{name}({', '.join(names)}, {place});"

    def multiply(
        self, element: str, sums: Sequence[str], a: Sequence[str], b: Sequence[str]
    ) -> str:
        if element not in ("f16", "bf16", "tf32"):
            sums = [f"{total}.bits" for total in sums]
        return f"multiply_{element}({', '.join([*sums, *a, *b])});"

    def added(self, element: str, word: str, total: str) -> str:
        return f"added_{element}({word}, {total})"

    def rounded(self, word: str) -> str:
        return f"rounded_to_tf32({word})"

    def copy(self, target: str, source: str, condition: str) -> str:
        return f"begin_copy({target}, {source}, {condition});"

    def arrive(self) -> str:
        return "end_copies();"


class Cuda:
    """CUDA C++, as NVRTC compiles it without any header.

    A launch has ``block`` along two axes of its grid, and its numbers as the last
    argument, by value.  The kernel is called ``kernel``.
    """

    wide = True
    halves = True
    bytes_of_floats = BY_INSTRUCTION
    vectors: Vectors | None = _Vectors()
    warps: Warps | None = _Warps()
    fragments: Fragments | None = _Fragments()
    memory: Memory = _Cells()
    barrier = "__syncthreads();"

    def constant(self, kind: str, name: str, value: str) -> str:
        return f"const {kind} {name} = {value};"

    def variable(self, kind: str, name: str, value: str) -> str:
        return f"{kind} {name} = {value};"

    def loop(self, name: str, start: str, end: str, step: str) -> str:
        return f"for (u32 {name} = {start}; {name} < {end}; {name} += {step})"

    def number(self, kind: str, value: float) -> str:
        if kind == "i1":
            return "true" if value else "false"
        if kind == "u32":
            return f"{int(value)}u"
        if kind == "i32":  # the least one is no negated literal
            return f"i32({int(value) & 0xFFFF_FFFF}u)"
        if kind == "f64":
            if math.isfinite(value):
                return repr(float(value))
            return f"as_f64(0x{struct.unpack('<Q', struct.pack('<d', value))[0]:x}ull)"
        if math.isfinite(value):
            return f"{float(value)!r}f"
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return f"as_f32(0x{bits:x}u)"

    def convert(self, kind: str, value: str) -> str:
        if kind == "u32":
            return f"to_u32({value})"
        return f"{kind}({value})"

    def reinterpret(self, kind: str, value: str) -> str:
        return f"as_{kind}(bits_of({value}))"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"(({condition}) ? ({yes}) : ({no}))"

    def call(self, function: str, *arguments: str) -> str:
        return f"{function}({', '.join(arguments)})"

    def raise_to(self, word: str, value: str) -> str:
        return f"atomicMax(&{word}, {value});"

    def word(self, number: int) -> str:
        return f"words.of[{number}]"

    def kernel(
        self,
        bindings: Sequence[Binding],
        shared: Sequence[tuple[str, str, int]],
        words: int,
        lanes: int,
        lines: Sequence[str],
    ) -> str:
        arguments = [
            f"{'' if binding.written else 'const '}u32* __restrict__ b{number}"
            for number, binding in enumerate(bindings)
        ]
        arrays = [
            f"__shared__ __align__(16) {kind} {name}[{size}];"
            for kind, name, size in shared
        ]
        return "\n".join(
            [
                "namespace onnxplug {",
                prelude_of([*lines, *arrays]).rstrip(),
                *conversions_of([*lines], self),
                f"struct Words {{ i32 of[{max(1, words)}]; }};",
                f'extern "C" __global__ void __launch_bounds__({lanes}, 1) kernel(',
                f"    {', '.join([*arguments, 'const Words words'])}) {{",
                *(f"  {line}" for line in arrays),
                "  const u32 lane = threadIdx.x;",
                "  const u32 block = blockIdx.x + blockIdx.y * gridDim.x;",
                *(f"  {line}" for line in lines),
                "}",
                "}",
                "",
            ]
        )


CUDA: Final[Dialect] = Cuda()
