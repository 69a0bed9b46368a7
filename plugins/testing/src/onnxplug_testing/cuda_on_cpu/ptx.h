// What kernels in CUDA C++ do by inline PTX on a GPU, in C++: functions of the names that
// their texts give it there.
#pragma once

static inline float f32_of_f16(unsigned bits) {
  return (float)shim::widened(bits & 0xffffu, shim::half_format);
}
static inline unsigned f16_of_f32(float x) {
  return shim::narrowed(x, shim::half_format, false);
}
