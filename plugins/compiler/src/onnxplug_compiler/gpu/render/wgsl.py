"""WebGPU's shading language as a dialect of kernels."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from onnxplug_compiler.gpu.render.dialect import (
    Binding,
    Fragments,
    Memory,
    Vectors,
    Warps,
)


class _Words:
    """Memory of words, to parts of which invocations write by atomics."""

    parts_share_words = True

    def load(self, nbytes: int, buffer: str, place: str, *, shared: bool) -> str:
        at = f"u32({place})" if nbytes == 4 else f"u32({place}) / {4 // nbytes}u"
        word = f"{buffer}[{at}]"
        if shared:
            word = f"atomicLoad(&{word})"
        if nbytes == 4:
            return word
        return f"({word} >> {_shift(place, nbytes)}) & {_mask(nbytes)}"

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
            word, mask = f"{buffer}[u32({place})]", "0xffffffffu"
            if not shared:
                return (f"{word} = {bits};",)
        else:
            word = f"{buffer}[u32({place}) / {4 // nbytes}u]"
            shift = let("u32", _shift(place, nbytes))
            mask = f"{_mask(nbytes)} << {shift}"
            bits = f"(({bits}) & {_mask(nbytes)}) << {shift}"
        return f"atomicAnd(&{word}, ~({mask}));", f"atomicOr(&{word}, {bits});"


def _mask(nbytes: int) -> str:
    return "0xffu" if nbytes == 1 else "0xffffu"


def _shift(place: str, nbytes: int) -> str:
    return f"((u32({place}) % {4 // nbytes}u) * {8 * nbytes}u)"


class Wgsl:
    """WebGPU's shading language, within its default limits and without extensions."""

    wide = False
    halves = False
    bytes_of_floats: frozenset[str] = frozenset()
    vectors: Vectors | None = None
    warps: Warps | None = None
    fragments: Fragments | None = None
    memory: Memory = _Words()
    barrier = "workgroupBarrier();"
    _kinds = {"f32": "f32", "i32": "i32", "u32": "u32", "i1": "bool"}  # noqa: RUF012
    _functions = {"rint": "round", "clz": "countLeadingZeros"}  # noqa: RUF012

    def constant(self, kind: str, name: str, value: str) -> str:
        return f"let {name}: {self._kinds[kind]} = {value};"

    def variable(self, kind: str, name: str, value: str) -> str:
        return f"var {name}: {self._kinds[kind]} = {value};"

    def loop(self, name: str, start: str, end: str, step: str) -> str:
        return f"for (var {name}: u32 = {start}; {name} < {end}; {name} += {step})"

    def number(self, kind: str, value: float) -> str:
        if kind == "i1":
            return "true" if value else "false"
        if kind == "u32":
            return f"{int(value)}u"
        if kind == "i32":  # the least one is no negated literal
            return "i32(-2147483647 - 1)" if value == -(2**31) else f"i32({int(value)})"
        if math.isfinite(value):
            return f"{float(value)!r}f"
        # no expression of constants may have such a value
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return f"not_finite(0x{bits:x}u)"

    def convert(self, kind: str, value: str) -> str:
        return f"{self._kinds[kind]}({value})"

    def reinterpret(self, kind: str, value: str) -> str:
        return f"bitcast<{self._kinds[kind]}>({value})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def call(self, function: str, *arguments: str) -> str:
        return f"{self._functions.get(function, function)}({', '.join(arguments)})"

    def raise_to(self, word: str, value: str) -> str:
        return f"atomicMax(&{word}, {value});"

    def word(self, number: int) -> str:
        return f"words[{number // 4}].{'xyzw'[number % 4]}"

    def kernel(
        self,
        bindings: Sequence[Binding],
        shared: Sequence[tuple[str, str, int]],
        words: int,
        lanes: int,
        lines: Sequence[str],
    ) -> str:
        head = [
            f"@group(0) @binding(0) var<uniform> words: array<vec4<i32>, "
            f"{max(1, -(-words // 4))}>;"
        ]
        for number, binding in enumerate(bindings):
            access = "read_write" if binding.written else "read"
            word = "atomic<u32>" if binding.shares_words else "u32"
            head.append(
                f"@group(0) @binding({number + 1}) "
                f"var<storage, {access}> b{number}: array<{word}>;"
            )
        head += [
            f"var<workgroup> {name}: array<{self._kinds[kind]}, {size}>;"
            for kind, name, size in shared
        ]
        if any("not_finite(" in line for line in lines):
            head.append(
                "fn not_finite(bits: u32) -> f32 "
                "{ var kept = bits; return bitcast<f32>(kept); }"
            )
        return "\n".join(
            [
                *head,
                f"@compute @workgroup_size({lanes})",
                "fn main(@builtin(workgroup_id) group: vec3<u32>,",
                "        @builtin(num_workgroups) groups: vec3<u32>,",
                "        @builtin(local_invocation_index) lane: u32) {",
                "  let block = group.x + group.y * groups.x;",
                *(f"  {line}" for line in lines),
                "}",
                "",
            ]
        )


WGSL = Wgsl()
