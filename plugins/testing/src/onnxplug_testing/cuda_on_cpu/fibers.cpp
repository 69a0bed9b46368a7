// Runs kernels in CUDA C++ on one thread: each of a block's lanes is a fiber, which runs
// until it waits for others or ends.  Warps, and lanes of a warp, take turns in random
// order.  What lanes read and write is looked at by what g++ calls with
// -fsanitize=thread, and what C++ does not define by what it calls with
// -fsanitize=undefined; either ends the launch with a text, and not the process.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <mutex>
#include <vector>

#if !defined(__x86_64__) || defined(ONNXPLUG_UCONTEXT)
#include <ucontext.h>
#define BY_UCONTEXT 1
#endif

struct dim3 { unsigned x, y, z; };
enum Vote { only_wait, count_of, all_of, any_of };

// What a launch is told of memory; as processor.py packs it.
struct Interval { uint64_t begin, end, written; };
struct Region { uint64_t begin, nbytes, written, number, first, count; };
struct Launch {
  void (*body)(void**);
  void** arguments;
  uint64_t grid[3], block[3];
  uint64_t seed, most_accesses, dynamic_bytes;
  uint64_t shared_begin, shared_end, image_begin, image_end;
  const Region* regions;
  uint64_t region_count;
  const Interval* intervals;
};
// What it tells.
struct Report { uint64_t failed, place; char text[1000]; };

namespace {
const unsigned most_lanes = 1024, slot = 128;
const size_t stack_bytes = 1 << 17, page = 4096;

#ifdef BY_UCONTEXT
typedef ucontext_t* Context;
#else
typedef void* Context;
#endif

enum State { ready, at_barrier, at_warp, ended };

struct Lane {
  State state;
  char* stack;
  Context context;
  unsigned line, mask, nbytes;
  const char* name;
  int value;
  char mine[slot], given[slot];
};

Launch launch;
Report* report;
Lane lanes[most_lanes];
unsigned count, current, barriers, block_serial, first_block = 1, launch_serial;
unsigned orders[most_lanes / 32];
dim3 block_index;
int voted;
bool running, failed;
uint64_t random_state, accesses;
std::mutex one_at_a_time;
std::vector<char*> free_stacks;
std::vector<char> dynamic;
Context scheduler;

uint64_t random_below(uint64_t end) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (random_state >> 11) % end;
}

// fibers

#ifdef BY_UCONTEXT
void go(Context* from, Context to) { swapcontext(*from, to); }
#else
// keeps what a call does not: registers, and where the stack is
extern "C" void shim_switch(void** from, void* to);
asm(R"(
.text
.globl shim_switch
.hidden shim_switch
shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void go(Context* from, Context to) { shim_switch(from, to); }
#endif

void leave() { go(&lanes[current].context, scheduler); }

void start() {
  launch.body(launch.arguments);
  lanes[current].state = ended;
  leave();
  abort();
}

char* take_stack() {
  if (!free_stacks.empty()) {
    char* found = free_stacks.back();
    free_stacks.pop_back();
    return found;
  }
  void* found = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) abort();
  mprotect(found, page, PROT_NONE);  // what overflows ends here
  return (char*)found;
}

void prepare(Lane& lane) {
  lane.stack = take_stack();
#ifdef BY_UCONTEXT
  if (!lane.context) lane.context = new ucontext_t;
  getcontext(lane.context);
  lane.context->uc_stack.ss_sp = lane.stack + page;
  lane.context->uc_stack.ss_size = stack_bytes - page;
  lane.context->uc_link = nullptr;
  makecontext(lane.context, start, 0);
#else
  void** top = (void**)(lane.stack + stack_bytes) - 2;
  *--top = nullptr;  // whom start would return to; calls leave the stack so aligned
  *--top = (void*)start;
  for (int n = 0; n < 6; n++) *--top = nullptr;
  lane.context = top;
#endif
}

void give_back(Lane& lane) {
  if (lane.stack) free_stacks.push_back(lane.stack);
  lane.stack = nullptr;
}

// failures

[[gnu::format(printf, 2, 3)]] void say(const void* place, const char* format, ...) {
  if (failed) return;
  failed = true;
  report->failed = 1;
  report->place = place ? (uint64_t)place - launch.image_begin : 0;
  va_list values;
  va_start(values, format);
  vsnprintf(report->text, sizeof report->text, format, values);
  va_end(values);
}

// The lane goes no further, and neither does the launch.
#define FAIL(place, format, ...)                                                        \
  do {                                                                                  \
    say(place, "lane %u of block (%u, %u, %u) " format, current, block_index.x,         \
        block_index.y, block_index.z, ##__VA_ARGS__);                                   \
    leave();                                                                            \
    abort();                                                                            \
  } while (0)

#include "accesses.h"

// turns

void shuffle(unsigned* order, unsigned size) {
  for (unsigned n = size; n > 1; n--) {
    const unsigned other = (unsigned)random_below(n), kept = order[n - 1];
    order[n - 1] = order[other];
    order[other] = kept;
  }
}

void run_ready() {
  unsigned warps[most_lanes / 32], of_warp[32];
  const unsigned warp_count = (count + 31) / 32;
  for (unsigned n = 0; n < warp_count; n++) warps[n] = n;
  shuffle(warps, warp_count);
  for (unsigned w = 0; w < warp_count && !failed; w++) {
    const unsigned first = warps[w] * 32, size = count - first < 32 ? count - first : 32;
    for (unsigned n = 0; n < size; n++) of_warp[n] = first + n;
    shuffle(of_warp, size);
    for (unsigned n = 0; n < size && !failed; n++) {
      Lane& lane = lanes[of_warp[n]];
      if (lane.state != ready) continue;
      current = of_warp[n];
      if (!lane.stack) prepare(lane);
      running = true;
      go(&scheduler, lane.context);
      running = false;
      if (lane.state == ended) give_back(lane);
    }
  }
}

unsigned present(unsigned warp) {
  const unsigned size = count - 32 * warp < 32 ? count - 32 * warp : 32;
  return size == 32 ? ~0u : (1u << size) - 1;
}

// Let those lanes of a warp go on that wait for each other, and all are there.
bool release_warp(unsigned warp) {
  bool any = false;
  Lane* mine = &lanes[32 * warp];
  for (unsigned n = 0; n < 32 && 32 * warp + n < count; n++) {
    if (mine[n].state != at_warp) continue;
    const unsigned mask = mine[n].mask & present(warp);
    bool all = true;
    for (unsigned m = 0; m < 32 && all; m++)
      if (mask >> m & 1)
        all = mine[m].state == at_warp && mine[m].line == mine[n].line &&
              mine[m].name == mine[n].name && mine[m].mask == mine[n].mask;
    if (!all) continue;
    any = true;
    // of all that warps do together only __syncwarp orders memory, and it gives nothing
    if (mine[n].nbytes == 0 && ++orders[warp] > most_waits)
      say(nullptr, "a warp waits too often for marks");
    for (unsigned m = 0; m < 32; m++)
      if (mask >> m & 1) {
        memcpy(mine[m].given, mine[m].mine, mine[m].nbytes);
        mine[m].state = ready;
      }
  }
  return any;
}

bool release_block() {
  unsigned votes = 0;
  for (unsigned n = 0; n < count; n++) {
    if (lanes[n].state != at_barrier || lanes[n].line != lanes[0].line) return false;
    votes += lanes[n].value;
  }
  voted = lanes[0].mask == count_of ? (int)votes
          : lanes[0].mask == all_of ? votes == count
                                    : votes != 0;
  for (unsigned n = 0; n < count; n++) lanes[n].state = ready;
  if (++barriers > most_waits) say(nullptr, "a block waits too often for marks");
  return true;
}

void describe(const Lane& lane, char* text, size_t size) {
  if (lane.state == ended)
    snprintf(text, size, "lane %u ended", (unsigned)(&lane - lanes));
  else
    snprintf(text, size, "lane %u waits in line %u at %s", (unsigned)(&lane - lanes),
             lane.line, lane.state == at_barrier ? "__syncthreads" : lane.name);
}

void say_stuck() {
  const Lane* waits = nullptr;
  for (unsigned n = 0; n < count && !waits; n++)
    if (lanes[n].state != ended) waits = &lanes[n];
  const Lane* differs = nullptr;
  for (unsigned n = 0; n < count && !differs; n++)
    if (lanes[n].state != waits->state || lanes[n].line != waits->line ||
        (lanes[n].state == at_warp && lanes[n].mask != waits->mask))
      differs = &lanes[n];
  char one[120], two[120] = "others are not in its mask";
  describe(*waits, one, sizeof one);
  if (differs) describe(*differs, two, sizeof two);
  say(nullptr, "block (%u, %u, %u) is stuck: %s, and %s", block_index.x, block_index.y,
      block_index.z, one, two);
}

void run_block() {
  barriers = 0;
  memset(orders, 0, sizeof orders);
  for (unsigned n = 0; n < count; n++) lanes[n].state = ready;
  while (!failed) {
    run_ready();
    if (failed) break;
    unsigned ends = 0;
    bool any = false;
    for (unsigned n = 0; n < count; n++) ends += lanes[n].state == ended;
    if (ends == count) break;
    for (unsigned w = 0; 32 * w < count; w++) any |= release_warp(w);
    if (!any && !release_block()) say_stuck();
  }
  for (unsigned n = 0; n < count; n++) give_back(lanes[n]);
}

void place_memory() {
  uint64_t cells = launch.shared_end - launch.shared_begin + launch.dynamic_bytes;
  for (uint64_t n = 0; n < launch.region_count; n++)
    if (launch.regions[n].written) cells += launch.regions[n].nbytes;
  // what earlier launches marked is of no use, and much of it is much memory
  if (cells > 1 << 22) shadow.forget();
  Cell* next = shadow.cells(cells);
  places.clear();
  auto add = [&](uint64_t begin, uint64_t nbytes, bool written, bool shared, int number,
                 const Interval* intervals, uint64_t count) {
    if (!nbytes) return;
    places.push_back({begin, begin + nbytes, written, shared, written ? next : nullptr,
                      intervals, count, number});
    if (written) next += nbytes;
  };
  dynamic.resize(launch.dynamic_bytes + 128);
  add(launch.shared_begin, launch.shared_end - launch.shared_begin, true, true, 0, nullptr, 0);
  add((uint64_t)dynamic.data() + (-(uint64_t)dynamic.data() & 127), launch.dynamic_bytes,
      true, true, 0, nullptr, 0);
  for (uint64_t n = 0; n < launch.region_count; n++) {
    const Region& each = launch.regions[n];
    add(each.begin, each.nbytes, each.written, false, (int)each.number,
        launch.intervals + each.first, each.count);
  }
}
}  // namespace

extern "C" {
void shim_launch(const Launch* told, Report* found) {
  std::lock_guard<std::mutex> held(one_at_a_time);
  launch = *told;
  report = found;
  report->failed = 0;
  failed = false;
  accesses = 0;
  random_state = launch.seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  count = (unsigned)(launch.block[0] * launch.block[1] * launch.block[2]);
  const uint64_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
#ifdef BY_UCONTEXT
  static ucontext_t own;
  scheduler = &own;
#endif
  if (blocks >= many_blocks - 1) {
    say(nullptr, "%llu blocks are more than are told apart here",
        (unsigned long long)blocks);
    return;
  }
  first_block = block_serial + 1;
  launch_serial++;
  if (first_block + blocks >= many_blocks) {
    shadow.forget();
    first_block = 1;
    block_serial = 0;
  }
  place_memory();
  // blocks in another order: multiples of a number that has no divisor in common
  uint64_t step = blocks > 2 ? 1 + random_below(blocks - 1) : 1;
  for (;; step++) {
    uint64_t a = step, b = blocks;
    while (b) { const uint64_t rest = a % b; a = b; b = rest; }
    if (a == 1) break;
  }
  uint64_t at = random_below(blocks);
  for (uint64_t n = 0; n < blocks && !failed; n++, at = (at + step) % blocks) {
    block_index = {(unsigned)(at % launch.grid[0]),
                   (unsigned)(at / launch.grid[0] % launch.grid[1]),
                   (unsigned)(at / launch.grid[0] / launch.grid[1])};
    block_serial++;
    run_block();
  }
}

dim3 shim_thread() {
  const unsigned x = (unsigned)launch.block[0], y = (unsigned)launch.block[1];
  return {current % x, current / x % y, current / x / y};
}
dim3 shim_block() { return block_index; }
dim3 shim_lanes() {
  return {(unsigned)launch.block[0], (unsigned)launch.block[1], (unsigned)launch.block[2]};
}
dim3 shim_grid() {
  return {(unsigned)launch.grid[0], (unsigned)launch.grid[1], (unsigned)launch.grid[2]};
}
unsigned shim_lane() { return current % 32; }
unsigned shim_present() { return present(current / 32); }
void* shim_dynamic() {
  return dynamic.data() + (-(uint64_t)dynamic.data() & 127);
}
void shim_fail(const char* text) { FAIL(__builtin_return_address(0), "failed: %s", text); }

int shim_barrier(unsigned line, Vote vote, int value) {
  Lane& lane = lanes[current];
  lane.state = at_barrier;
  lane.line = line;
  lane.mask = vote;
  lane.value = value;
  leave();
  return voted;
}

void shim_exchange(unsigned line, const char* name, unsigned mask, const void* mine,
                   unsigned nbytes) {
  Lane& lane = lanes[current];
  const void* from = __builtin_return_address(0);
  if (!(mask >> (current % 32) & 1))
    FAIL(from, "is not in the mask %#x of its %s", mask, name);
  if (nbytes > slot) FAIL(from, "gives %u bytes by %s", nbytes, name);
  lane.state = at_warp;
  lane.line = line;
  lane.name = name;
  lane.mask = mask;
  lane.nbytes = nbytes;
  if (nbytes) memcpy(lane.mine, mine, nbytes);
  leave();
}

void shim_fetch(unsigned source, void* found, unsigned nbytes) {
  const Lane& lane = lanes[current];
  if (source > 31 || !((lane.mask & shim_present()) >> source & 1))
    FAIL(__builtin_return_address(0), "reads by %s from lane %u of its warp, which is not there",
         lane.name, source);
  memcpy(found, lanes[current / 32 * 32 + source].given, nbytes);
}

void shim_begin_atomic(const void* place, void* found, unsigned nbytes) {
  look(__builtin_return_address(0), (uint64_t)place, nbytes, changes);
  memcpy(found, place, nbytes);
}
void shim_end_atomic(void* place, const void* value, unsigned nbytes) {
  memcpy(place, value, nbytes);
}

// called by what -fsanitize=thread instruments

#define RETURN __builtin_return_address(0)
#define SIZED(n)                                                                       \
  void __tsan_read##n(void* p) { look(RETURN, (uint64_t)p, n, reads); }                 \
  void __tsan_write##n(void* p) { look(RETURN, (uint64_t)p, n, writes); }               \
  void __tsan_unaligned_read##n(void* p) { look(RETURN, (uint64_t)p, n, reads); }       \
  void __tsan_unaligned_write##n(void* p) { look(RETURN, (uint64_t)p, n, writes); }     \
  void __tsan_volatile_read##n(void* p) { look(RETURN, (uint64_t)p, n, weakly); }       \
  void __tsan_volatile_write##n(void* p) { look(RETURN, (uint64_t)p, n, changes); }     \
  void __tsan_unaligned_volatile_read##n(void* p) { look(RETURN, (uint64_t)p, n, weakly); } \
  void __tsan_unaligned_volatile_write##n(void* p) { look(RETURN, (uint64_t)p, n, changes); }
SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
SIZED(16)
void __tsan_read_range(void* p, unsigned long n) { look(RETURN, (uint64_t)p, n, reads); }
void __tsan_write_range(void* p, unsigned long n) { look(RETURN, (uint64_t)p, n, writes); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// and by what -fsanitize=undefined does

struct Source { const char* file; uint32_t line, column; };
#define UNDEFINED(name, text, ...)                                                     \
  void __ubsan_handle_##name(void*, ##__VA_ARGS__) {                                    \
    if (running) FAIL(RETURN, text);                                                    \
  }
#define ONE uintptr_t
#define TWO uintptr_t, uintptr_t
UNDEFINED(add_overflow, "adds beyond what the type has", TWO)
UNDEFINED(sub_overflow, "subtracts beyond what the type has", TWO)
UNDEFINED(mul_overflow, "multiplies beyond what the type has", TWO)
UNDEFINED(negate_overflow, "negates beyond what the type has", ONE)
UNDEFINED(divrem_overflow, "divides by zero, or beyond what the type has", TWO)
UNDEFINED(shift_out_of_bounds, "shifts by more bits than there are", TWO)
UNDEFINED(out_of_bounds, "has an index out of an array of fixed size", ONE)
UNDEFINED(pointer_overflow, "computes an address out of memory", TWO)
UNDEFINED(load_invalid_value, "reads a value that its type does not have", ONE)
UNDEFINED(float_cast_overflow, "converts a float beyond what the type has", ONE)
UNDEFINED(builtin_unreachable, "comes where nothing comes")
UNDEFINED(missing_return, "comes to the end of a function that gives something")
UNDEFINED(vla_bound_not_positive, "has an array of no size", ONE)
UNDEFINED(invalid_builtin, "asks for the first bit of zero")
UNDEFINED(nonnull_arg, "passes nothing where something has to be")
struct Type { uint16_t kind, info; char name[1]; };
struct Mismatch { Source source; const Type* type; unsigned char alignment, kind; };
void __ubsan_handle_type_mismatch_v1(Mismatch* data, uintptr_t at) {
  if (!running) return;
  const uint64_t alignment = 1ull << data->alignment;
  if (at % alignment)
    FAIL(RETURN, "uses address %#llx as one of %s, which is not aligned to %llu bytes",
         (unsigned long long)at, data->type->name, (unsigned long long)alignment);
  FAIL(RETURN, "uses address %#llx, where no %s is", (unsigned long long)at,
       data->type->name);
}
}
