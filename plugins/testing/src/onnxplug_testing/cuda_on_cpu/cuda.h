// What kernels in CUDA C++ need of CUDA, on a processor.  g++ instruments all that they
// read and write; the calls of that, and all declared here, are in fibers.cpp.
//
// There is: threadIdx, blockIdx, blockDim, gridDim, warpSize; __shared__, and extern
// __shared__; __constant__; __syncthreads and its _count, _and, _or; __syncwarp;
// __shfl_sync, _up, _down, _xor; __any_sync, __all_sync, __ballot_sync, __match_any_sync;
// __reduce_add/min/max/and/or/xor_sync; __activemask; fences; atomics of 32 and 64 bits;
// vectors of 2 to 4 elements and make_*; __ldg and the like; conversions between numbers
// and of bits; __half, __nv_bfloat16 and fp8 by their conversions; integer, fast and
// rounded intrinsics.  What a warp computes together, as tensor cores do, an emulation
// makes of onnxplug_gather(mine, all): all[n] is the value of lane n of the warp.
// ONNXPLUG_ON_CPU tells kernels that they are here.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#define ONNXPLUG_ON_CPU 1
#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__ static const

struct dim3 {
  unsigned x, y, z;
};

enum Vote { only_wait, count_of, all_of, any_of };

extern "C" {
dim3 shim_thread() __attribute__((const));
dim3 shim_block() __attribute__((const));
dim3 shim_lanes() __attribute__((const));
dim3 shim_grid() __attribute__((const));
unsigned shim_lane() __attribute__((const));
int shim_barrier(unsigned line, Vote vote, int value);
// Wait for the lanes of mask, which each give bytes, at most 128; fetch those of one.
void shim_exchange(unsigned line, const char* name, unsigned mask, const void* mine,
                   unsigned nbytes);
void shim_fetch(unsigned lane, void* found, unsigned nbytes);
unsigned shim_present();
void shim_begin_atomic(const void* place, void* found, unsigned nbytes);
void shim_end_atomic(void* place, const void* value, unsigned nbytes);
void* shim_dynamic();
[[noreturn]] void shim_fail(const char* what);
}

#define threadIdx (shim_thread())
#define blockIdx (shim_block())
#define blockDim (shim_lanes())
#define gridDim (shim_grid())
#define warpSize 32

#define __syncthreads() ((void)shim_barrier(__LINE__, only_wait, 0))
#define __syncthreads_count(value) shim_barrier(__LINE__, count_of, (value) != 0)
#define __syncthreads_and(value) shim_barrier(__LINE__, all_of, (value) != 0)
#define __syncthreads_or(value) shim_barrier(__LINE__, any_of, (value) != 0)
#define __syncwarp(...) shim::synchronize(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) shim::shuffle(__LINE__, "__shfl_sync", 0, __VA_ARGS__)
#define __shfl_up_sync(...) shim::shuffle(__LINE__, "__shfl_up_sync", 1, __VA_ARGS__)
#define __shfl_down_sync(...) shim::shuffle(__LINE__, "__shfl_down_sync", 2, __VA_ARGS__)
#define __shfl_xor_sync(...) shim::shuffle(__LINE__, "__shfl_xor_sync", 3, __VA_ARGS__)
#define __ballot_sync(mask, value) shim::ballot(__LINE__, mask, (value) != 0)
#define __any_sync(mask, value) (shim::ballot(__LINE__, mask, (value) != 0) != 0)
#define __all_sync(mask, value) (shim::ballot(__LINE__, mask, (value) == 0) == 0)
#define __match_any_sync(mask, value) shim::match(__LINE__, mask, value)
#define __reduce_add_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::Add())
#define __reduce_min_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::Least())
#define __reduce_max_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::Most())
#define __reduce_and_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::And())
#define __reduce_or_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::Or())
#define __reduce_xor_sync(mask, value) shim::reduce(__LINE__, mask, value, shim::Xor())
#define __activemask() shim_present()
#define onnxplug_gather(mine, all) shim::gather(__LINE__, mine, all)

namespace shim {
// Where an object of static memory is that nobody constructs.
template <class T>
struct alignas(T) Room {
  unsigned char bytes[sizeof(T)];
  T& as_it_is() { return reinterpret_cast<T&>(bytes); }
};

const unsigned whole = 0xffffffffu;

static inline void synchronize(unsigned line, unsigned mask = whole) {
  shim_exchange(line, "__syncwarp", mask, nullptr, 0);
}

// Call a kernel with what pointers point to, as cuLaunchKernel is told of it.
template <class... T, size_t... n>
__attribute__((no_sanitize("thread", "undefined"))) void call_each(
    void (*kernel)(T...), void** arguments, std::index_sequence<n...>) {
  kernel(*(std::remove_cv_t<T>*)arguments[n]...);
}
template <class... T>
__attribute__((no_sanitize("thread", "undefined"))) void call(
    void (*kernel)(T...), void** arguments) {
  call_each(kernel, arguments, std::index_sequence_for<T...>());
}

template <class T>
T of_lane(unsigned lane) {
  T found;
  shim_fetch(lane, &found, sizeof found);
  return found;
}

template <class T>
T shuffle(unsigned line, const char* name, int kind, unsigned mask, T value, int other,
          int width = 32) {
  if (width < 1 || width > 32 || (width & (width - 1)))
    shim_fail("a shuffle's width is no power of two up to 32");
  shim_exchange(line, name, mask, &value, sizeof value);
  const int lane = (int)shim_lane(), first = lane & ~(width - 1), place = lane - first;
  int source = lane;
  if (kind == 0) source = first + (other & (width - 1));
  if (kind == 1) source = place < other ? lane : lane - other;
  if (kind == 2) source = place + other >= width ? lane : lane + other;
  if (kind == 3) source = (lane ^ other) >= first + width ? lane : lane ^ other;
  return of_lane<T>((unsigned)source);
}

static inline unsigned ballot(unsigned line, unsigned mask, bool value) {
  shim_exchange(line, "a vote", mask, &value, sizeof value);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    if ((mask & shim_present()) >> lane & 1) found |= of_lane<bool>(lane) << lane;
  return found;
}

template <class T>
unsigned match(unsigned line, unsigned mask, T value) {
  shim_exchange(line, "__match_any_sync", mask, &value, sizeof value);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    if ((mask & shim_present()) >> lane & 1) {
      const T other = of_lane<T>(lane);
      found |= (unsigned)(memcmp(&other, &value, sizeof value) == 0) << lane;
    }
  return found;
}

struct Add { template <class T> T operator()(T a, T b) { return a + b; } };
struct Least { template <class T> T operator()(T a, T b) { return b < a ? b : a; } };
struct Most { template <class T> T operator()(T a, T b) { return a < b ? b : a; } };
struct And { template <class T> T operator()(T a, T b) { return a & b; } };
struct Or { template <class T> T operator()(T a, T b) { return a | b; } };
struct Xor { template <class T> T operator()(T a, T b) { return a ^ b; } };

template <class T, class F>
T reduce(unsigned line, unsigned mask, T value, F combine) {
  shim_exchange(line, "a reduction of a warp", mask, &value, sizeof value);
  bool any = false;
  T found = value;
  for (unsigned lane = 0; lane < 32; lane++)
    if ((mask & shim_present()) >> lane & 1) {
      const T other = of_lane<T>(lane);
      found = any ? combine(found, other) : other;
      any = true;
    }
  return found;
}

template <class T>
void gather(unsigned line, const T& mine, T (&all)[32]) {
  shim_exchange(line, "a gathering of a warp", whole, &mine, sizeof mine);
  for (unsigned lane = 0; lane < 32; lane++) shim_fetch(lane, &all[lane], sizeof mine);
}

template <class T, class F>
T change(T* place, F compute) {
  T old;
  shim_begin_atomic(place, &old, sizeof old);
  const T next = compute(old);
  shim_end_atomic(place, &next, sizeof next);
  return old;
}

template <class To, class From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To found;
  memcpy(&found, &value, sizeof found);
  return found;
}

// As the hardware converts: NaN to nothing, and what is beyond to the end.
template <class To, class From>
To saturated(From x, From (*rounded)(From)) {
  if (isnan(x)) return sizeof(To) == 8 ? (To)(1ull << 63) : 0;
  x = rounded(x);
  const bool is_signed = (To)-1 < (To)1;
  const int digits = 8 * sizeof(To) - is_signed;
  if (x >= (From)ldexp(1.0, digits)) return (To)(~0ull >> (64 - digits));
  if (x < (is_signed ? -(From)ldexp(1.0, digits) : (From)0))
    return is_signed ? (To)(1ull << digits) : (To)0;
  return (To)x;
}
}  // namespace shim

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
[[noreturn]] static inline void __trap() { shim_fail("the kernel gives up by __trap"); }

template <class T> T atomicAdd(T* p, T v) {
  return shim::change(p, [=](T x) { return (T)(x + v); });
}
static inline int atomicAdd(int* p, int v) {
  return shim::change(p, [=](int x) { return (int)((unsigned)x + (unsigned)v); });
}
template <class T> T atomicSub(T* p, T v) {
  return shim::change(p, [=](T x) { return (T)(x - v); });
}
template <class T> T atomicMin(T* p, T v) {
  return shim::change(p, [=](T x) { return v < x ? v : x; });
}
template <class T> T atomicMax(T* p, T v) {
  return shim::change(p, [=](T x) { return x < v ? v : x; });
}
template <class T> T atomicAnd(T* p, T v) {
  return shim::change(p, [=](T x) { return x & v; });
}
template <class T> T atomicOr(T* p, T v) {
  return shim::change(p, [=](T x) { return x | v; });
}
template <class T> T atomicXor(T* p, T v) {
  return shim::change(p, [=](T x) { return x ^ v; });
}
template <class T> T atomicExch(T* p, T v) {
  return shim::change(p, [=](T) { return v; });
}
template <class T> T atomicCAS(T* p, T old, T v) {
  return shim::change(p, [=](T x) { return x == old ? v : x; });
}
static inline unsigned atomicInc(unsigned* p, unsigned v) {
  return shim::change(p, [=](unsigned x) { return x >= v ? 0 : x + 1; });
}
static inline unsigned atomicDec(unsigned* p, unsigned v) {
  return shim::change(p, [=](unsigned x) { return x == 0 || x > v ? v : x - 1; });
}

// vectors

#define VECTORS(T, name, two, four)                                                      \
  struct name##1 { T x; };                                                               \
  struct __align__(two) name##2 { T x, y; };                                             \
  struct name##3 { T x, y, z; };                                                         \
  struct __align__(four) name##4 { T x, y, z, w; };                                      \
  static inline name##1 make_##name##1(T x) { return {x}; }                              \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                      \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }              \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned, uint, 8, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcg(T* p, T v) { *p = v; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> void __stwt(T* p, T v) { *p = v; }

// conversions

#define CONVERSIONS(from, From, to, To)                                                 \
  static inline To __##from##2##to##_rz(From x) { return shim::saturated<To>(x, &trunc##from); } \
  static inline To __##from##2##to##_rn(From x) { return shim::saturated<To>(x, &rint##from); }  \
  static inline To __##from##2##to##_rd(From x) { return shim::saturated<To>(x, &floor##from); } \
  static inline To __##from##2##to##_ru(From x) { return shim::saturated<To>(x, &ceil##from); }
static inline float truncfloat(float x) { return truncf(x); }
static inline float rintfloat(float x) { return rintf(x); }
static inline float floorfloat(float x) { return floorf(x); }
static inline float ceilfloat(float x) { return ceilf(x); }
static inline double truncdouble(double x) { return trunc(x); }
static inline double rintdouble(double x) { return rint(x); }
static inline double floordouble(double x) { return floor(x); }
static inline double ceildouble(double x) { return ceil(x); }
CONVERSIONS(float, float, int, int)
CONVERSIONS(float, float, uint, unsigned)
CONVERSIONS(float, float, ll, long long)
CONVERSIONS(float, float, ull, unsigned long long)
CONVERSIONS(double, double, int, int)
CONVERSIONS(double, double, uint, unsigned)
CONVERSIONS(double, double, ll, long long)
CONVERSIONS(double, double, ull, unsigned long long)
#undef CONVERSIONS
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline unsigned __float_as_uint(float x) { return shim::bits<unsigned>(x); }
static inline int __float_as_int(float x) { return shim::bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return shim::bits<float>(x); }
static inline float __int_as_float(int x) { return shim::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return shim::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim::bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int high, int low) {
  return shim::bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

// integers

static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((uint64_t)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline unsigned __brev(unsigned x) {
  unsigned found = 0;
  for (int n = 0; n < 32; n++) found |= (x >> n & 1) << (31 - n);
  return found;
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const uint64_t both = (uint64_t)y << 32 | x;
  unsigned found = 0;
  for (int n = 0; n < 4; n++) {
    const unsigned from = s >> 4 * n & 15;
    unsigned byte = both >> 8 * (from & 7) & 0xff;
    if (from & 8) byte = byte & 0x80 ? 0xff : 0;
    found |= byte << 8 * n;
  }
  return found;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
static inline long long __mul64hi(long long a, long long b) {
  return (long long)((__int128)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline int __dp4a(int a, int b, int c) {
  for (int n = 0; n < 4; n++) c += (int8_t)(a >> 8 * n) * (int8_t)(b >> 8 * n);
  return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int n = 0; n < 4; n++) c += (uint8_t)(a >> 8 * n) * (uint8_t)(b >> 8 * n);
  return c;
}
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

// floats

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float __fdividef(float a, float b) { return a / b; }
// which names glibc has taken
#define __expf expf
#define __exp10f(x) powf(10.0f, x)
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
static inline float __saturatef(float a) { return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; }
static inline float rsqrtf(float a) { return __frsqrt_rn(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __drcp_rn(double a) { return 1.0 / a; }

#include "narrow.h"
#include "ptx.h"
