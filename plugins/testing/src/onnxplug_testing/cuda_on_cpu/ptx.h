// What kernels in CUDA C++ do by inline PTX on a GPU, in C++: functions of the names that
// their texts give it there.
#pragma once

static inline float f32_of_f16(unsigned bits) {
  return (float)shim::widened(bits & 0xffffu, shim::half_format);
}
static inline unsigned f16_of_f32(float x) {
  return shim::narrowed(x, shim::half_format, false);
}

static inline unsigned e4m3_of_f32(float x) { return shim::narrowed(x, shim::e4m3, true); }
static inline unsigned e5m2_of_f32(float x) { return shim::narrowed(x, shim::e5m2, true); }
static inline unsigned f16_of_e4m3(unsigned bits) {
  return shim::narrowed(shim::widened(bits & 0xffu, shim::e4m3), shim::half_format, false);
}
static inline unsigned f16_of_e5m2(unsigned bits) {
  return shim::narrowed(shim::widened(bits & 0xffu, shim::e5m2), shim::half_format, false);
}

// Fragments lie in lanes as the PTX ISA has it for ldmatrix and mma: of rows of words, of
// two halves each in m16n8k16, of one number in m16n8k8 and of four bytes in m16n8k32,
// lane n has word n % 4 of row n / 4.
namespace shim {
static inline void load(unsigned* (&found)[4], const unsigned* row, bool turned) {
  const unsigned* all[32];
  if ((uintptr_t)row % 16) shim_fail("ldmatrix of a row that is not aligned to 16 bytes");
  onnxplug_gather(row, all);
  const unsigned line = shim_lane() / 4, pair = shim_lane() % 4;
  for (unsigned matrix = 0; matrix < 4; matrix++) {
    if (!turned) {
      *found[matrix] = all[8 * matrix + line][pair];
      continue;
    }
    unsigned both = 0;
    for (unsigned half = 0; half < 2; half++) {
      const unsigned word = all[8 * matrix + 2 * pair + half][line / 2];
      both |= (word >> 16 * (line % 2) & 0xffffu) << 16 * half;
    }
    *found[matrix] = both;
  }
}

struct Fragments { unsigned a[4], b[2]; };

static inline void multiply(float* (&sums)[4], const Fragments& mine, float (*number)(unsigned),
                            unsigned per_word) {
  Fragments all[32];
  const unsigned width = 32 / per_word, mask = ~0u >> (32 - width);
  onnxplug_gather(mine, all);
  for (unsigned n = 0; n < 4; n++) {
    const unsigned row = shim_lane() / 4 + n / 2 * 8, column = shim_lane() % 4 * 2 + n % 2;
    double total = *sums[n];
    for (unsigned k = 0; k < 8 * per_word; k++) {
      const unsigned word = k / per_word, shift = k % per_word * width;
      const unsigned a = all[row % 8 * 4 + word % 4].a[row / 8 + word / 4 * 2] >> shift;
      const unsigned b = all[column * 4 + word % 4].b[word / 4] >> shift;
      total += (double)number(a & mask) * number(b & mask);
    }
    *sums[n] = (float)total;
  }
}

static inline unsigned byte_of(unsigned word, unsigned number, bool is_signed) {
  const unsigned byte = word >> 8 * number & 0xffu;
  return is_signed && byte >= 128 ? byte - 256u : byte;
}
static inline void multiply_bytes(unsigned* (&sums)[4], const Fragments& mine,
                                  bool left_is_signed, bool right_is_signed) {
  Fragments all[32];
  onnxplug_gather(mine, all);
  for (unsigned n = 0; n < 4; n++) {
    const unsigned row = shim_lane() / 4 + n / 2 * 8, column = shim_lane() % 4 * 2 + n % 2;
    for (unsigned k = 0; k < 32; k++) {
      const unsigned word = k / 4;
      const unsigned a = all[row % 8 * 4 + word % 4].a[row / 8 + word / 4 * 2];
      const unsigned b = all[column * 4 + word % 4].b[word / 4];
      *sums[n] += byte_of(a, k % 4, left_is_signed) * byte_of(b, k % 4, right_is_signed);
    }
  }
}
static inline unsigned added(unsigned word, unsigned total, bool is_signed) {
  for (unsigned n = 0; n < 4; n++) total += byte_of(word, n, is_signed);
  return total;
}

static inline float of_bf16(unsigned bits) { return __uint_as_float(bits << 16); }
// of which tensor cores do not look at the last 13 bits
static inline float of_tf32(unsigned bits) { return __uint_as_float(bits & ~0x1fffu); }

// Copies that lanes began: they are made when the lane waits for them, as late as may be.
struct Copy { unsigned* target; const unsigned* source; bool there; };
static struct Copies { Copy each[64]; unsigned count; } copies[1024];
}  // namespace shim

static inline void load_matrices(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                 const unsigned* row) {
  unsigned* found[4] = {&a, &b, &c, &d};
  shim::load(found, row, false);
}
static inline void load_turned(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                               const unsigned* row) {
  unsigned* found[4] = {&a, &b, &c, &d};
  shim::load(found, row, true);
}
static inline void multiply_f16(float& w, float& x, float& y, float& z, unsigned a,
                                unsigned b, unsigned c, unsigned d, unsigned e, unsigned f) {
  float* sums[4] = {&w, &x, &y, &z};
  shim::multiply(sums, {{a, b, c, d}, {e, f}}, &f32_of_f16, 2);
}
static inline void multiply_bf16(float& w, float& x, float& y, float& z, unsigned a,
                                 unsigned b, unsigned c, unsigned d, unsigned e, unsigned f) {
  float* sums[4] = {&w, &x, &y, &z};
  shim::multiply(sums, {{a, b, c, d}, {e, f}}, &shim::of_bf16, 2);
}
static inline void multiply_tf32(float& w, float& x, float& y, float& z, unsigned a,
                                 unsigned b, unsigned c, unsigned d, unsigned e, unsigned f) {
  float* sums[4] = {&w, &x, &y, &z};
  shim::multiply(sums, {{a, b, c, d}, {e, f}}, &shim::of_tf32, 1);
}
#define ONNXPLUG_MULTIPLY_BYTES(name, left, right)                                        \
  static inline void name(unsigned& w, unsigned& x, unsigned& y, unsigned& z, unsigned a, \
                          unsigned b, unsigned c, unsigned d, unsigned e, unsigned f) {   \
    unsigned* sums[4] = {&w, &x, &y, &z};                                                 \
    shim::multiply_bytes(sums, {{a, b, c, d}, {e, f}}, left, right);                      \
  }
ONNXPLUG_MULTIPLY_BYTES(multiply_i8_i8, true, true)
ONNXPLUG_MULTIPLY_BYTES(multiply_i8_u8, true, false)
ONNXPLUG_MULTIPLY_BYTES(multiply_u8_i8, false, true)
ONNXPLUG_MULTIPLY_BYTES(multiply_u8_u8, false, false)
static inline unsigned added_i8(unsigned word, unsigned total) {
  return shim::added(word, total, true);
}
static inline unsigned added_u8(unsigned word, unsigned total) {
  return shim::added(word, total, false);
}
static inline unsigned rounded_to_tf32(unsigned bits) {
  // ties away from zero; an infinity and NaN as they are
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}
__attribute__((no_sanitize("thread", "undefined"))) static void begin_copy(
    unsigned* target, const unsigned* source, bool there) {
  shim::Copies& mine = shim::copies[shim_thread().x];
  if ((uintptr_t)target % 16 || (there && (uintptr_t)source % 16))
    shim_fail("cp.async of what is not aligned to 16 bytes");
  if (mine.count == 64) shim_fail("more copies than the emulation has room for");
  mine.each[mine.count++] = {target, source, there};
}
__attribute__((no_sanitize("thread", "undefined"))) static bool next_copy(shim::Copy& copy) {
  shim::Copies& mine = shim::copies[shim_thread().x];
  if (mine.count) copy = mine.each[--mine.count];
  else return false;
  return true;
}
static inline void end_copies() {
  shim::Copy copy;
  while (next_copy(copy))
    for (unsigned n = 0; n < 4; n++) copy.target[n] = copy.there ? copy.source[n] : 0;
}
