"""CUDA C++ as a dialect of kernels."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.gpu.render.dialect import Binding, Dialect

_FLOAT_FUNCTIONS: Final = ("exp", "log", "sqrt", "rint", "floor", "ceil", "tan")
"""Of one float, by their names without a suffix."""

_TYPES: Final = """\
typedef unsigned int u32;
typedef float f32;
typedef bool i1;
// of C's own int an overflow has no meaning; kernels need it to wrap
struct i32 {
  u32 bits;
  i32() = default;
  __device__ i32(int x) : bits(static_cast<u32>(x)) {}
  __device__ explicit i32(u32 x) : bits(x) {}
  __device__ explicit i32(i1 x) : bits(x ? 1u : 0u) {}
  __device__ explicit i32(f32 x) : bits(static_cast<u32>(__float2int_rz(x))) {}
  __device__ explicit operator int() const { return static_cast<int>(bits); }
  __device__ explicit operator u32() const { return bits; }
  __device__ explicit operator f32() const { return static_cast<f32>(int(*this)); }
  friend __device__ i32 operator+(i32 a, i32 b) { return i32(a.bits + b.bits); }
  friend __device__ i32 operator-(i32 a, i32 b) { return i32(a.bits - b.bits); }
  friend __device__ i32 operator*(i32 a, i32 b) { return i32(a.bits * b.bits); }
  friend __device__ i32 operator&(i32 a, i32 b) { return i32(a.bits & b.bits); }
  friend __device__ i32 operator|(i32 a, i32 b) { return i32(a.bits | b.bits); }
  friend __device__ i32 operator^(i32 a, i32 b) { return i32(a.bits ^ b.bits); }
  friend __device__ i32 operator-(i32 a) { return i32(0u - a.bits); }
  friend __device__ i32 operator~(i32 a) { return i32(~a.bits); }
  friend __device__ i32 operator<<(i32 a, u32 b) { return i32(a.bits << b); }
  friend __device__ i32 operator>>(i32 a, u32 b) { return i32(int(a) >> b); }
  // as WebGPU's where there is no quotient
  friend __device__ i32 operator/(i32 a, i32 b) {
    return b.bits == 0u ? a : b.bits == ~0u ? -a : i32(int(a) / int(b));
  }
  friend __device__ i32 operator%(i32 a, i32 b) {
    return b.bits + 1u < 2u ? i32(0) : i32(int(a) % int(b));
  }
  friend __device__ i1 operator==(i32 a, i32 b) { return a.bits == b.bits; }
  friend __device__ i1 operator!=(i32 a, i32 b) { return a.bits != b.bits; }
  friend __device__ i1 operator<(i32 a, i32 b) { return int(a) < int(b); }
  friend __device__ i1 operator>(i32 a, i32 b) { return int(a) > int(b); }
  friend __device__ i1 operator<=(i32 a, i32 b) { return int(a) <= int(b); }
  friend __device__ i1 operator>=(i32 a, i32 b) { return int(a) >= int(b); }
};
__device__ inline u32 to_u32(u32 x) { return x; }
__device__ inline u32 to_u32(i32 x) { return x.bits; }
__device__ inline u32 to_u32(i1 x) { return x ? 1u : 0u; }
__device__ inline u32 to_u32(f32 x) { return __float2uint_rz(x); }
__device__ inline u32 bits_of(u32 x) { return x; }
__device__ inline u32 bits_of(i32 x) { return x.bits; }
__device__ inline u32 bits_of(f32 x) { return __float_as_uint(x); }
__device__ inline u32 as_u32(u32 x) { return x; }
__device__ inline i32 as_i32(u32 x) { return i32(x); }
__device__ inline f32 as_f32(u32 x) { return __uint_as_float(x); }
__device__ inline u32 clz(u32 x) { return to_u32(i32(__clz(int(i32(x))))); }
__device__ inline u32 abs(u32 x) { return x; }
__device__ inline i32 abs(i32 x) { return x < i32(0) ? -x : x; }
__device__ inline f32 abs(f32 x) { return ::fabsf(x); }
__device__ inline u32 min(u32 a, u32 b) { return b < a ? b : a; }
__device__ inline i32 min(i32 a, i32 b) { return b < a ? b : a; }
__device__ inline f32 min(f32 a, f32 b) { return b < a ? b : a; }
__device__ inline u32 max(u32 a, u32 b) { return a < b ? b : a; }
__device__ inline i32 max(i32 a, i32 b) { return a < b ? b : a; }
__device__ inline f32 max(f32 a, f32 b) { return a < b ? b : a; }
__device__ inline f32 pow(f32 x, f32 y) { return ::powf(x, y); }
"""


class Cuda:
    """CUDA C++, as NVRTC compiles it without any header.

    A launch has ``block`` along two axes of its grid, and its numbers as the last
    argument, by value.  The kernel is called ``kernel``.
    """

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
        if math.isfinite(value):
            return f"{float(value)!r}f"
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return f"as_f32(0x{bits:x}u)"

    def convert(self, kind: str, value: str) -> str:
        return f"to_u32({value})" if kind == "u32" else f"{kind}({value})"

    def reinterpret(self, kind: str, value: str) -> str:
        return f"as_{kind}(bits_of({value}))"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"(({condition}) ? ({yes}) : ({no}))"

    def call(self, function: str, *arguments: str) -> str:
        return f"{function}({', '.join(arguments)})"

    def read_shared_word(self, word: str) -> str:
        return f"*static_cast<const volatile u32*>(&{word})"

    def merge(self, word: str, mask: str, value: str) -> Sequence[str]:
        return f"atomicAnd(&{word}, ~({mask}));", f"atomicOr(&{word}, {value});"

    def raise_flag(self, word: str) -> str:
        return f"atomicOr(&{word}, 1u);"

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
        arrays = [f"__shared__ {kind} {name}[{size}];" for kind, name, size in shared]
        functions = [
            f"__device__ inline f32 {name}(f32 x) {{ return ::{name}f(x); }}"
            for name in _FLOAT_FUNCTIONS
        ]
        return "\n".join(
            [
                "namespace onnxplug {",
                _TYPES.rstrip(),
                *functions,
                f"struct Words {{ i32 of[{max(1, words)}]; }};",
                f'extern "C" __global__ void __launch_bounds__({lanes}) kernel(',
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
