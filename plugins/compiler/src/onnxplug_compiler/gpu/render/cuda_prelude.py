"""What kernels in CUDA C++ need before them, by parts: types that behave as kernels
have it, functions by one name for all types, and what PTX alone has.

PTX is left out on a processor (``ONNXPLUG_ON_CPU``), on which tests run kernels: there
functions of the same names are in C++.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_TYPES: Final = """\
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
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
  __device__ explicit operator f64() const { return static_cast<f64>(int(*this)); }
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
__device__ inline u32 to_u32(u64 x) { return static_cast<u32>(x); }
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
""" + "".join(
    f"__device__ inline f32 {name}(f32 x) {{ return ::{name}f(x); }}\n"
    for name in ("exp", "log", "sqrt", "rint", "floor", "ceil", "tan")
)

_DOUBLE_FUNCTIONS: Final = (
    "exp log sqrt rint floor ceil tan sin cos asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf erfc expm1 log1p"
).split()

_CELLS: Final = """\
template <class T> __device__ inline const T& cell(const u32* words, u32 at) {
  return reinterpret_cast<const T*>(words)[at];
}
template <class T> __device__ inline T& cell(u32* words, u32 at) {
  return reinterpret_cast<T*>(words)[at];
}
"""

_WIDE: Final = """\
__device__ inline u64 bits_of(u64 x) { return x; }
__device__ inline i64 as_i64(u64 x) { return static_cast<i64>(x); }
__device__ inline u64 as_u64(u64 x) { return x; }
"""

_DOUBLES: Final = """\
__device__ inline u64 bits_of(f64 x) {
  return static_cast<u64>(__double_as_longlong(x));
}
__device__ inline f64 as_f64(u64 x) {
  return __longlong_as_double(static_cast<i64>(x));
}
__device__ inline f64 abs(f64 x) { return ::fabs(x); }
__device__ inline f64 pow(f64 x, f64 y) { return ::pow(x, y); }
__device__ inline f64 fmod(f64 x, f64 y) { return ::fmod(x, y); }
// the float32 towards 0, whose last bit says whether it is another number: rounded
// further it gives what the float64 does
__device__ inline f32 f32_to_odd(f64 x) {
  f32 near = static_cast<f32>(x);
  if (abs(static_cast<f64>(near)) > abs(x)) near = as_f32(bits_of(near) - 1u);
  return static_cast<f64>(near) == x || x != x ? near : as_f32(bits_of(near) | 1u);
}
""" + "".join(
    f"__device__ inline f64 {name}(f64 x) {{ return ::{name}(x); }}\n"
    for name in _DOUBLE_FUNCTIONS
)

_HALVES: Final = """\
#ifndef ONNXPLUG_ON_CPU
__device__ inline f32 f32_of_f16(u32 bits) {
  f32 found;
  asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(static_cast<u16>(bits)));
  return found;
}
__device__ inline u32 f16_of_f32(f32 x) {
  u16 found;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found) : "f"(x));
  return found;
}
#endif
"""

_SHUFFLES: Final = """\
__device__ inline u32 swapped(u32 x, u32 apart, u32 lanes) {
  return __shfl_xor_sync(lanes, x, static_cast<int>(apart));
}
__device__ inline f32 swapped(f32 x, u32 apart, u32 lanes) {
  return __shfl_xor_sync(lanes, x, static_cast<int>(apart));
}
__device__ inline f64 swapped(f64 x, u32 apart, u32 lanes) {
  return __shfl_xor_sync(lanes, x, static_cast<int>(apart));
}
__device__ inline i32 swapped(i32 x, u32 apart, u32 lanes) {
  return i32(swapped(x.bits, apart, lanes));
}
__device__ inline u32 shifted_up(u32 x, u32 apart) {
  return __shfl_up_sync(0xffffffffu, x, apart);
}
"""

_MATRICES: Final = """\
#ifndef ONNXPLUG_ON_CPU
__device__ inline u32 shared_place(const u32* words) {
  return static_cast<u32>(__cvta_generic_to_shared(words));
}
__device__ inline void load_matrices(u32& a, u32& b, u32& c, u32& d, const u32* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_place(row))
               : "memory");
}
__device__ inline void load_turned(u32& a, u32& b, u32& c, u32& d, const u32* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_place(row))
               : "memory");
}
__device__ inline void multiply_f16(
    f32& w, f32& x, f32& y, f32& z, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z) : "r"(a), "r"(b), "r"(e));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z) : "r"(c), "r"(d), "r"(f));
#endif
}
__device__ inline void multiply_bf16(
    f32& w, f32& x, f32& y, f32& z, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#else
  __trap();  // no target records it there
#endif
}
__device__ inline void multiply_tf32(
    f32& w, f32& x, f32& y, f32& z, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#else
  __trap();  // no target records it there
#endif
}
__device__ inline u32 rounded_to_tf32(u32 bits) {
#if __CUDA_ARCH__ >= 800
  u32 found;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(as_f32(bits)));
  return found;
#else
  return bits;
#endif
}
__device__ inline void begin_copy(u32* target, const u32* source, i1 there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared_place(target)), "l"(source), "r"(there ? 16u : 0u)
               : "memory");
#else
  const uint4 zeros = {0u, 0u, 0u, 0u};
  *reinterpret_cast<uint4*>(target) =
      there ? *reinterpret_cast<const uint4*>(source) : zeros;
#endif
}
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
#endif
"""

_BYTES: Final = (
    """\
#ifndef ONNXPLUG_ON_CPU
__device__ inline u32 added_i8(u32 bytes, u32 total) {
  u32 found;
  asm("dp4a.s32.s32 %0, %1, %2, %3;"
      : "=r"(found) : "r"(bytes), "r"(0x01010101u), "r"(total));
  return found;
}
__device__ inline u32 added_u8(u32 bytes, u32 total) {
  u32 found;
  asm("dp4a.u32.u32 %0, %1, %2, %3;"
      : "=r"(found) : "r"(bytes), "r"(0x01010101u), "r"(total));
  return found;
}
"""
    + "".join(
        f"""\
__device__ inline void multiply_{left}_{right}(
    u32& w, u32& x, u32& y, u32& z, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {{
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.{a}.{b}.s32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+r"(w), "+r"(x), "+r"(y), "+r"(z)
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#else
  asm("mma.sync.aligned.m8n8k16.row.col.s32.{a}.{b}.s32 "
      "{{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};" : "+r"(w), "+r"(x) : "r"(a), "r"(e));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.{a}.{b}.s32 "
      "{{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};" : "+r"(y), "+r"(z) : "r"(b), "r"(e));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.{a}.{b}.s32 "
      "{{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};" : "+r"(w), "+r"(x) : "r"(c), "r"(f));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.{a}.{b}.s32 "
      "{{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};" : "+r"(y), "+r"(z) : "r"(d), "r"(f));
#endif
}}
"""
        for left, a in (("i8", "s8"), ("u8", "u8"))
        for right, b in (("i8", "s8"), ("u8", "u8"))
    )
    + "#endif\n"
)

_PARTS: Final = (
    (r"\bend_copies\(", _MATRICES),
    (r"\b(multiply|added)_[iu]8", _BYTES),
    (r"\bcell<", _CELLS),
    (r"\b[iuf]64\b", _WIDE),
    (r"\bf64\b", _DOUBLES),
    (r"\bf(32|16)_of_f(16|32)\(|_of_f8e|\bf8e\w+_of_", _HALVES),
    (r"\b(swapped|shifted_up)\(", _SHUFFLES),
)
"""What statements in which such a text is found need as well."""


def prelude_of(lines: Sequence[str]) -> str:
    """What stands before a kernel of these statements."""
    text = "\n".join(lines)
    parts = [part for pattern, part in _PARTS if re.search(pattern, text)]
    return "".join([_TYPES, *parts])
