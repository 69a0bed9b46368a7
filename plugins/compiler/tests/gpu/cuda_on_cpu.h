// What kernels in CUDA C++ need of CUDA, on one thread of a processor: the threads of a
// block take turns, one until it waits for the others or ends.
#include <math.h>
#include <string.h>
#include <ucontext.h>
#include <vector>

#define __global__ static
#define __device__
#define __shared__ static
#define __launch_bounds__(lanes)

struct Position { unsigned x, y, z; };
static Position threadIdx, blockIdx, gridDim;

static int __float2int_rz(float x) {
  if (isnan(x)) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x < -2147483648.0f ? -2147483647 - 1 : (int)x;
}
static unsigned __float2uint_rz(float x) {
  if (!(x > 0.0f)) return 0;
  return x >= 4294967296.0f ? 4294967295u : (unsigned)x;
}
static unsigned __float_as_uint(float x) { unsigned found; memcpy(&found, &x, 4); return found; }
static float __uint_as_float(unsigned x) { float found; memcpy(&found, &x, 4); return found; }
static int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static void atomicAnd(unsigned* word, unsigned other) { *word &= other; }
static void atomicOr(unsigned* word, unsigned other) { *word |= other; }

namespace turns {
enum State { going, waiting, ended };
static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static std::vector<char> stacks;
static std::vector<State> states;
static unsigned current;
static void (*body)(void*);
static void* arguments;
const unsigned long stack = 1 << 16;

static void start() {
  body(arguments);
  states[current] = ended;
}

// Whether all threads of the block came to the same ends.
static bool block(unsigned lanes) {
  threads.resize(lanes);
  states.assign(lanes, going);
  stacks.resize(lanes * stack);
  for (unsigned n = 0; n < lanes; n++) {
    getcontext(&threads[n]);
    threads[n].uc_stack.ss_sp = &stacks[n * stack];
    threads[n].uc_stack.ss_size = stack;
    threads[n].uc_link = &scheduler;
    makecontext(&threads[n], start, 0);
  }
  for (;;) {
    unsigned ends = 0;
    for (current = 0; current < lanes; current++) {
      threadIdx = {current, 0, 0};
      swapcontext(&scheduler, &threads[current]);
      ends += states[current] == ended;
    }
    if (ends == lanes) return true;
    if (ends) return false;
  }
}
}  // namespace turns

static void __syncthreads() {
  turns::states[turns::current] = turns::waiting;
  swapcontext(&turns::threads[turns::current], &turns::scheduler);
}

static bool launch(void (*body)(void*), void* arguments, unsigned x, unsigned y, unsigned lanes) {
  turns::body = body;
  turns::arguments = arguments;
  gridDim = {x, y, 1};
  for (unsigned j = 0; j < y; j++)
    for (unsigned i = 0; i < x; i++) {
      blockIdx = {i, j, 0};
      if (!turns::block(lanes)) return false;
    }
  return true;
}
