// Floats of 16 and 8 bits, as cuda_fp16.h, cuda_bf16.h and cuda_fp8.h name them, by the
// bits of IEEE 754 and of the OCP's 8-bit formats, to the nearest, ties to even.
#pragma once

struct __half { unsigned short of_x; };
struct __nv_bfloat16 { unsigned short of_x; };
struct __align__(4) __half2 { __half x, y; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half half;
typedef __half2 half2;
typedef unsigned char __nv_fp8_storage_t;
struct __half_raw { unsigned short x; };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace shim {
// A format of floats: how many bits its exponents and fractions have; e4m3 has no
// infinities, and one NaN.
struct Format { int exponent, fraction; bool infinite; };
const Format half_format = {5, 10, true}, e4m3 = {4, 3, false}, e5m2 = {5, 2, true};

static inline double widened(unsigned bits, Format format) {
  const int ones = (1 << format.exponent) - 1, bias = ones / 2;
  const unsigned fraction = bits & ((1u << format.fraction) - 1);
  const int exponent = (int)(bits >> format.fraction) & ones;
  const double sign = bits >> (format.exponent + format.fraction) & 1 ? -1.0 : 1.0;
  if (format.infinite && exponent == ones)
    return fraction ? (double)NAN : sign * (double)INFINITY;
  if (!format.infinite && exponent == ones && fraction == (1u << format.fraction) - 1)
    return (double)NAN;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - format.fraction);
  return sign * ldexp(1.0 + ldexp(fraction, -format.fraction), exponent - bias);
}

static inline unsigned narrowed(double value, Format format, bool saturates) {
  const int ones = (1 << format.exponent) - 1, bias = ones / 2;
  const unsigned sign = (unsigned)(signbit(value) != 0)
                        << (format.exponent + format.fraction);
  const unsigned infinite = (unsigned)ones << format.fraction;
  const unsigned nan = infinite | ((1u << format.fraction) - 1);
  const unsigned largest = format.infinite ? infinite - 1 : nan - 1;
  const unsigned beyond = saturates ? largest : format.infinite ? infinite : nan;
  if (isnan(value)) return nan;  // which has no sign
  const double size = fabs(value);
  if (isinf(size)) return sign | beyond;
  int exponent = 0;
  frexp(size, &exponent);
  if (exponent - 1 < 1 - bias) exponent = 2 - bias;  // a denormal, or nothing
  const double ulp = ldexp(1.0, exponent - 1 - format.fraction);
  const double rounded = rint(size / ulp) * ulp;
  // the next number after the largest one is beyond
  if (rounded > widened(largest, format)) return sign | beyond;
  if (rounded == 0.0) return sign;
  frexp(rounded, &exponent);
  if (exponent - 1 < 1 - bias)
    return sign | (unsigned)(rounded / ldexp(1.0, 1 - bias - format.fraction));
  const double fraction = ldexp(rounded, format.fraction - (exponent - 1));
  return sign | ((unsigned)(exponent - 1 + bias) << format.fraction) |
         ((unsigned)fraction & ((1u << format.fraction) - 1));
}
}  // namespace shim

static inline unsigned short __half_as_ushort(__half x) { return x.of_x; }
static inline __half __ushort_as_half(unsigned short x) { return {x}; }
static inline float __half2float(__half x) {
  return (float)shim::widened(x.of_x, shim::half_format);
}
static inline __half __float2half_rn(float x) {
  return {(unsigned short)shim::narrowed(x, shim::half_format, false)};
}
static inline __half __float2half(float x) { return __float2half_rn(x); }
static inline __half __double2half(double x) {
  return {(unsigned short)shim::narrowed(x, shim::half_format, false)};
}
static inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
static inline float2 __half22float2(__half2 x) {
  return {__half2float(x.x), __half2float(x.y)};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.of_x; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return {x}; }
static inline float __bfloat162float(__nv_bfloat16 x) {
  return __uint_as_float((unsigned)x.of_x << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const unsigned bits = __float_as_uint(x);
  if (isnan(x)) return {0x7fff};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x) {
  return {__bfloat162float(x.x), __bfloat162float(x.y)};
}

static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(
    float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
  return (unsigned char)shim::narrowed(
      x, kind == __NV_E4M3 ? shim::e4m3 : shim::e5m2, saturation == __NV_SATFINITE);
}
static inline __half_raw __nv_cvt_fp8_to_halfraw(
    __nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  const double value = shim::widened(x, kind == __NV_E4M3 ? shim::e4m3 : shim::e5m2);
  return {(unsigned short)shim::narrowed(value, shim::half_format, false)};
}
