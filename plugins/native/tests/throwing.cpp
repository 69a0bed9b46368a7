/* The library of example.c, of which one function throws: that which THROWS names.
 *
 *   THROWS name     the function
 *   SCAN, CAPTURES  those of example.c, of which it is then what changes the order of axes,
 *                   and what replays
 *   WHAT n          what: 0 an exception of the standard's, 1 a number
 */
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "entries.h"
#include "structures.h"

typedef void *Pointer;

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

static bool throws(const char *name) { return !std::strcmp(name, TEXT(THROWS)); }

[[noreturn]] static void fail() {
  if (WHAT) throw 42;
  throw std::runtime_error("nobody catches me");
}
static Pointer throwing(Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer) { fail(); }
static void in_parallel(Pointer, size_t) { fail(); }

extern "C" {
Pointer ExampleFactories(const char *, Pointer, Pointer, Pointer **, size_t, size_t *);
Pointer ExampleRelease(Pointer);
extern Pointer example_transpose;
}

/* The place of a function in a structure, behind the version */
static void patch(Pointer structure, int place, Pointer (*function)(Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer)) {
  static_cast<Pointer *>(structure)[place + 1] = reinterpret_cast<Pointer>(function);
}

typedef Pointer (*CreateEp)(Pointer, Pointer, Pointer, size_t, Pointer, Pointer, Pointer *);
typedef Pointer (*Compile)(Pointer, Pointer, Pointer, size_t, Pointer *, Pointer);
static CreateEp create_ep;
static Compile compile;
static Pointer *api;

static Pointer compute_in_parallel(Pointer, Pointer, Pointer context, Pointer, Pointer, Pointer, Pointer) {
  typedef Pointer (*ParallelFor)(Pointer, Pointer, size_t, size_t, Pointer);
  return reinterpret_cast<ParallelFor>(api[OrtApi_KernelContext_ParallelFor])(
      context, reinterpret_cast<Pointer>(&in_parallel), 4, 0, nullptr);
}

#define PATCH(structure, kind, name) \
  if (throws(#name)) patch(structure, kind##_##name, throwing)

static Pointer patched_compile(Pointer ep, Pointer graphs, Pointer nodes, size_t count, Pointer *out, Pointer contexts) {
  Pointer failed = compile(ep, graphs, nodes, count, out, contexts);
  if (failed) return failed;
  PATCH(out[0], OrtNodeComputeInfo, CreateState);
  PATCH(out[0], OrtNodeComputeInfo, Compute);
  PATCH(out[0], OrtNodeComputeInfo, ReleaseState);
  if (throws("ParallelFor")) patch(out[0], OrtNodeComputeInfo_Compute, compute_in_parallel);
  return nullptr;
}

static Pointer patched_create(Pointer factory, Pointer devices, Pointer metadata, size_t count, Pointer options, Pointer logger, Pointer *out) {
  Pointer failed = create_ep(factory, devices, metadata, count, options, logger, out);
  if (failed) return failed;
  compile = reinterpret_cast<Compile>(static_cast<Pointer *>(*out)[OrtEp_Compile + 1]);
  static_cast<Pointer *>(*out)[OrtEp_Compile + 1] = reinterpret_cast<Pointer>(&patched_compile);
  PATCH(*out, OrtEp, CreateAllocator);
  PATCH(*out, OrtEp, GetCapability);
  PATCH(*out, OrtEp, Compile);
  PATCH(*out, OrtEp, IsConcurrentRunSupported);
#ifdef CAPTURES
  PATCH(*out, OrtEp, IsGraphCaptured);
  PATCH(*out, OrtEp, ReplayGraph);
#endif
  return nullptr;
}

extern "C" Pointer CreateEpFactories(const char *name, Pointer *base, Pointer logger, Pointer **out, size_t room, size_t *count) {
  if (throws("CreateEpFactories")) fail();
  api = reinterpret_cast<Pointer *(*)(uint32_t)>(base[0])(24);
  Pointer failed = ExampleFactories(name, base, logger, out, room, count);
  if (failed) return failed;
#ifdef SCAN
  if (throws("Transpose")) example_transpose = reinterpret_cast<Pointer>(&throwing);
#endif
  Pointer *slot = &out[0][OrtEpFactory_CreateEp + 1];
  create_ep = reinterpret_cast<CreateEp>(*slot);
  *slot = reinterpret_cast<Pointer>(&patched_create);
  PATCH(out[0], OrtEpFactory, GetName);
  PATCH(out[0], OrtEpFactory, GetSupportedDevices);
  PATCH(out[0], OrtEpFactory, CreateEp);
  return nullptr;
}
extern "C" Pointer ReleaseEpFactory(Pointer factory) { return ExampleRelease(factory); }
