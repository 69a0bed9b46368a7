/* A library of one EP, which multiplies tensors of float32, and misbehaves as told.
 *
 * What it does before there is a session is chosen by macros; what it does in one, by
 * the EP's option "mode".  "entries.h" is written by the tests, from the tables.
 *
 *   NO_RELEASE      does not export ReleaseEpFactory
 *   VERSION n       the version of the interface that it asks for (default 24)
 *   SILENT          says nothing when that version is not there
 *   FACTORIES n     how many factories it says that it made (default 1)
 *   NULL_FACTORY    makes none, and says that it did
 *   MADE_UP         gives addresses where nothing is: 1 of a factory, 2 of its name
 *   NAMELESS        its factory has no name
 *   DEVICES n       how many devices it says that it drives (default 1)
 *   FOREIGN_DEVICE  gives a device that the host did not make
 *   DEVICE_MEMORY   has memory that nobody else can read or write
 *   MEMORY text     what it calls that (default "example_memory")
 *   KERNELS         registers a kernel instead of compiling
 *   HOST_INPUT      whose second input is to be in the host's memory
 *   HOST_OUTPUT     whose output is left there
 *   NHWC            takes GlobalAveragePool, and wants its channels last: 1 also takes it
 *                   so, 2 as ONNX has it only, 3 says that it is not to be converted
 *   PACKING n       packs weights: see packing.h
 *   ALIASES n       has a kernel for Flatten: see aliases.h
 *   LOOP            has the host make a kernel for Loop
 *   SCAN n          has the host make a kernel for Scan: see bodies.h
 *   TYPES n         how many types it says that its kernel takes (default 1)
 *   CRASH           ends the process while it is asked for its factories
 *   NEXT_VERSION    takes nothing that it compiled before
 *   LATE            calls the host when the process ends, and in a thread until then
 *   STREAMS         queues its work, and does it when the stream is flushed
 *   CAPTURES n      captures runs if its mode is "captures": see capturing.h
 *   SESSIONS n      has an allocator for each session: see allocating.h
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entries.h"

#ifndef VERSION
#define VERSION 24
#endif
#ifndef FACTORIES
#define FACTORIES 1
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef MEMORY
#define MEMORY "example_memory"
#endif
#ifndef TYPES
#define TYPES 1
#endif

typedef void *Pointer;
typedef Pointer Status;

static Pointer *api;
static Pointer *ep_api;

#define CALL(index, result, ...) ((result(*)(__VA_ARGS__))api[index])
#define CALL_EP(index, result, ...) ((result(*)(__VA_ARGS__))ep_api[index])
#define CHECK(expression) do { Status s_ = (expression); if (s_) return s_; } while (0)

static Status fail(int code, const char *text) {
  return CALL(OrtApi_CreateStatus, Status, int, const char *)(code, text);
}

/* Memory that faults where it is used as it is: addresses are moved out of the way. */

#define AWAY ((uintptr_t)1 << 62)
static void *away(void *p) { return p ? (void *)((uintptr_t)p ^ AWAY) : p; }
static int allocated;
int example_allocated(void) { return allocated; }

typedef struct Allocator {
  uint32_t version;
  Pointer (*Alloc)(struct Allocator *, size_t);
  void (*Free)(struct Allocator *, void *);
  Pointer (*Info)(const struct Allocator *);
  Pointer rest[4];
  Pointer info;
  struct Ep *ep;
  bool is_for_weights;
} Allocator;

static Pointer device_alloc(Allocator *this, size_t size) {
  if (size > (size_t)1 << 40) return NULL;
  allocated++;
  return away(malloc(size ? size : 1));
}
static void device_free(Allocator *this, void *p) {
  if (p) { allocated--; free(away(p)); }
}
static Pointer device_info(const Allocator *this) { return this->info; }

/* Streams: a queue of products, computed when it is flushed */

typedef struct { const float *a, *b; float *y; size_t count; } Product;
static void multiply(const Product *p) {
  for (size_t i = 0; i < p->count; i++) p->y[i] = p->a[i] * p->b[i];
}

typedef struct Notification {
  uint32_t version;
  void (*Release)(struct Notification *);
  Status (*Activate)(struct Notification *);
  Status (*WaitOnDevice)(struct Notification *, Pointer);
  Status (*WaitOnHost)(struct Notification *);
  struct Stream *stream;
} Notification;

typedef struct Stream {
  uint32_t version;
  void (*Release)(struct Stream *);
  Pointer (*GetHandle)(struct Stream *);
  Status (*CreateNotification)(struct Stream *, Notification **);
  Status (*Flush)(struct Stream *);
  Status (*OnSessionRunEnd)(struct Stream *);
  Product queue[64];
  int length;
} Stream;

static Status stream_flush(Stream *this) {
  for (int i = 0; i < this->length; i++) multiply(&this->queue[i]);
  this->length = 0;
  return NULL;
}
static void stream_release(Stream *this) { stream_flush(this); allocated--; free(this); }
static Pointer stream_handle(Stream *this) { return this; }
static void note_release(Notification *this) { allocated--; free(this); }
static Status note_activate(Notification *this) { return NULL; }
static Status note_wait_device(Notification *this, Pointer s) { return stream_flush(this->stream); }
static Status note_wait_host(Notification *this) { return stream_flush(this->stream); }
static Status stream_notify(Stream *this, Notification **out) {
  Notification *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Release = note_release;
  made->Activate = note_activate;
  made->WaitOnDevice = note_wait_device;
  made->WaitOnHost = note_wait_host;
  made->stream = this;
  *out = made;
  return NULL;
}

/* Copies */

typedef struct Transfer {
  uint32_t version;
  void (*Release)(struct Transfer *);
  bool (*CanCopy)(const struct Transfer *, Pointer, Pointer);
  Status (*CopyTensors)(struct Transfer *, Pointer *, Pointer *, Pointer *, size_t);
} Transfer;

static bool is_ours(Pointer device) {
  return CALL_EP(OrtEpApi_MemoryDevice_GetVendorId, uint32_t, Pointer)(device) == 0xACE;
}
static bool transfer_can(const Transfer *this, Pointer a, Pointer b) {
  return is_ours(a) || is_ours(b);
}
static Status address_of(Pointer value, char **out) {
  CHECK(CALL(OrtApi_GetTensorMutableData, Status, Pointer, void **)(value, (void **)out));
  if (is_ours(CALL_EP(OrtEpApi_Value_GetMemoryDevice, Pointer, Pointer)(value)))
    *out = away(*out);
  return NULL;
}
static Status transfer_copy(Transfer *this, Pointer *from, Pointer *to, Pointer *streams,
                            size_t count) {
  for (size_t i = 0; i < count; i++) {
    char *source, *target;
    size_t size;
    if (streams && streams[i])
      CHECK(stream_flush((Stream *)CALL_EP(OrtEpApi_SyncStream_GetImpl, Pointer, Pointer)(streams[i])));
    CHECK(address_of(from[i], &source));
    CHECK(address_of(to[i], &target));
    CHECK(CALL(OrtApi_GetTensorSizeInBytes, Status, Pointer, size_t *)(from[i], &size));
    memcpy(target, source, size);
  }
  return NULL;
}
static void transfer_release(Transfer *this) {}
static Transfer transfer = {VERSION, transfer_release, transfer_can, transfer_copy};

/* What is compiled: one multiplication, or several by the same factor, one after another */

typedef struct Ep Ep;
typedef struct Compiled {
  uint32_t version;
  Status (*CreateState)(struct Compiled *, Pointer, void **);
  Status (*Compute)(struct Compiled *, void *, Pointer);
  void (*ReleaseState)(struct Compiled *, void *);
  Ep *ep;
  size_t nodes;
} Compiled;

static Status compiled_state(Compiled *this, Pointer context, void **out);
static Status compiled_compute(Compiled *this, void *state, Pointer context);
static void compiled_release(Compiled *this, void *state) { allocated--; free(state); }

/* The EP */

struct Profiler;
struct Ep {
  uint32_t version;
  const char *(*GetName)(const Ep *);
  Status (*GetCapability)(Ep *, Pointer, Pointer);
  Status (*Compile)(Ep *, Pointer *, Pointer *, size_t, Compiled **, Pointer *);
  void (*Release)(Ep *, Compiled **, size_t);
  Status (*GetPreferredDataLayout)(Ep *, int *);
  Status (*ShouldConvertDataLayoutForOp)(Ep *, const char *, const char *, int, int *);
  Status (*SetDynamicOptions)(Ep *, const char *const *, const char *const *, size_t);
  Status (*OnRunStart)(Ep *, Pointer);
  Status (*OnRunEnd)(Ep *, Pointer, bool);
  Status (*CreateAllocator)(Ep *, Pointer, Allocator **);
  Pointer CreateSyncStreamForDevice;
  const char *(*GetCompatibility)(Ep *, Pointer);
  Status (*GetKernelRegistry)(Ep *, Pointer *);
  Status (*IsConcurrentRunSupported)(Ep *, bool *);
  Pointer Sync;
  Status (*CreateProfiler)(Ep *, struct Profiler **);
  bool (*IsGraphCaptureEnabled)(const Ep *);
  bool (*IsGraphCaptured)(const Ep *, int);
  Status (*ReplayGraph)(Ep *, int);
  Pointer more[4];
  Status (*ReleaseCapturedGraph)(Ep *, int);
  Pointer last;
  char mode[64];
  bool makes_contexts;
  Pointer first, registry;
  float scale;
  bool is_released;
};

static bool is(const Ep *ep, const char *mode) { return strcmp(ep->mode, mode) == 0; }
#ifdef CAPTURES
#include "capturing.h"
#endif

static int running, overlapped, started, ended;
int example_overlapped(void) { return overlapped; }
int example_runs(void) { return started == ended ? started : -1; }

/* A kernel */

static bool is_hosted(int argument) {
#ifdef HOST_INPUT
  if (argument == 1) return true;
#endif
#ifdef HOST_OUTPUT
  if (argument == 2) return true;
#endif
  return false;
}
static bool lies_well(Pointer value, int argument) {
  return is_ours(CALL_EP(OrtEpApi_Value_GetMemoryDevice, Pointer, Pointer)(value)) != is_hosted(argument);
}

typedef struct Kernel {
  uint32_t version, flags;
  Status (*Compute)(struct Kernel *, Pointer);
  void (*Release)(struct Kernel *);
  Status (*PrePackWeight)(struct Kernel *, Pointer, int, Allocator *, Pointer, bool *);
  Status (*SetSharedPrePackedWeight)(struct Kernel *, const void *const *, const size_t *, size_t, int);
  Compiled compiled;
  float *packed;
  Allocator *allocator;
} Kernel;
static Pointer registry;
#ifdef PACKING
#include "packing.h"
#endif
/* In the kernel that is called so manieth from now: 1 it fails, 2 leaves its output, 3
 * asks for one that is not there, and says nothing of it */
static int misbehaves_in, misbehaviour;
void example_misbehave(int in, int how) { misbehaves_in = in; misbehaviour = how; }
static Status kernel_misbehaves(Pointer context) {
  int64_t shape = 1;
  Pointer output;
  if (misbehaviour == 1) return fail(2, "not now");
  if (misbehaviour == 3)
    CALL(OrtApi_ReleaseStatus, void, Status)(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 7, &shape, 1, &output));
  return NULL;
}
static Status kernel_compute(Kernel *this, Pointer context) {
  if (misbehaves_in && !--misbehaves_in) return kernel_misbehaves(context);
#ifdef PACKING
  if (this->packed) return packed_compute(this, context);
#endif
  return compiled_compute(&this->compiled, NULL, context);
}
static void kernel_release(Kernel *this) {
#ifdef PACKING
  packed_release(this);
#endif
  allocated--;
  free(this);
}
static Status kernel_create(void *state, Pointer info, Kernel **out) {
  size_t inputs;
  char name[16];
  size_t size = sizeof name;
  Pointer ep;
  CHECK(CALL(OrtApi_KernelInfo_GetInputCount, Status, Pointer, size_t *)(info, &inputs));
  CHECK(CALL(OrtApi_KernelInfo_GetOperatorType, Status, Pointer, char *, size_t *)(info, name, &size));
  CHECK(CALL_EP(OrtEpApi_KernelInfo_GetEp, Status, Pointer, Pointer *)(info, &ep));
  if (inputs != 2 || strcmp(name, "Mul")) return fail(1, "no such node");
  Kernel *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Compute = kernel_compute;
  made->Release = kernel_release;
#ifdef PACKING
  made->PrePackWeight = kernel_pack;
  if (PACKING != 3) made->SetSharedPrePackedWeight = kernel_share;
#endif
  made->compiled.ep = ep;
#ifdef DEVICE_MEMORY
  for (int i = 0; i < 2; i++) {
    int constant;
    Pointer value;
    CHECK(CALL(OrtApi_KernelInfoGetConstantInput_tensor, Status, Pointer, size_t, int *, Pointer *)(info, i, &constant, &value));
    if (constant && !lies_well(value, i)) return fail(1, "a constant is not where it is wanted");
  }
#endif
  *out = made;
  return NULL;
}

static int concatenated, transposed;
int example_concatenated(void) { return concatenated; }
int example_transposed(void) { return transposed; }
static Status also_register(Pointer registry, const char *type, int version, void *create, bool aliases) {
  Pointer builder, kernel;
  int input = 0, output = 0;
  CHECK(CALL_EP(OrtEpApi_CreateKernelDefBuilder, Status, Pointer *)(&builder));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetOperatorType, Status, Pointer, const char *)(builder, type));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetDomain, Status, Pointer, const char *)(builder, ""));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetSinceVersion, Status, Pointer, int, int)(builder, version, version));
  if (aliases)
    CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_AddInputOutputAliases, Status, Pointer, int *, int *, size_t)(builder, &input, &output, 1));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_Build, Status, Pointer, Pointer *)(builder, &kernel));
  CHECK(CALL_EP(OrtEpApi_KernelRegistry_AddKernel, Status, Pointer, Pointer, Pointer, Pointer)(registry, kernel, create, NULL));
  CALL_EP(OrtEpApi_ReleaseKernelDef, void, Pointer)(kernel);
  CALL_EP(OrtEpApi_ReleaseKernelDefBuilder, void, Pointer)(builder);
  return NULL;
}
#if defined(LOOP) || defined(SCAN)
#include "bodies.h"
#endif
#ifdef ALIASES
#include "aliases.h"
#endif

static Status registry_make(void) {
  Pointer builder, kernel, type;
  CHECK(CALL_EP(OrtEpApi_CreateKernelRegistry, Status, Pointer *)(&registry));
  CHECK(CALL_EP(OrtEpApi_CreateKernelDefBuilder, Status, Pointer *)(&builder));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetOperatorType, Status, Pointer, const char *)(builder, "Mul"));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetDomain, Status, Pointer, const char *)(builder, ""));
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetSinceVersion, Status, Pointer, int, int)(builder, 14, 14));
  CHECK(CALL_EP(OrtEpApi_GetTensorDataType, Status, int, Pointer *)(1, &type));
  Status refused = CALL_EP(OrtEpApi_KernelDefBuilder_AddTypeConstraint, Status, Pointer, const char *, Pointer *, size_t)(builder, "T", &type, TYPES);
  if (refused) {
    CALL_EP(OrtEpApi_ReleaseKernelDefBuilder, void, Pointer)(builder);
    CALL_EP(OrtEpApi_ReleaseKernelRegistry, void, Pointer)(registry);
    return refused;
  }
#ifdef HOST_INPUT
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetInputMemType, Status, Pointer, size_t, int)(builder, 1, -2));
#endif
#ifdef HOST_OUTPUT
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_SetOutputMemType, Status, Pointer, size_t, int)(builder, 0, -1));
#endif
  CHECK(CALL_EP(OrtEpApi_KernelDefBuilder_Build, Status, Pointer, Pointer *)(builder, &kernel));
  CHECK(CALL_EP(OrtEpApi_KernelRegistry_AddKernel, Status, Pointer, Pointer, Pointer, Pointer)(registry, kernel, kernel_create, NULL));
  CALL_EP(OrtEpApi_ReleaseKernelDef, void, Pointer)(kernel);
  CALL_EP(OrtEpApi_ReleaseKernelDefBuilder, void, Pointer)(builder);
#ifdef LOOP
  CHECK(also_register(registry, "Loop", 16, loop_create, false));
#endif
#ifdef SCAN
  CHECK(also_register(registry, "Scan", 16, scan_create, false));
#endif
#ifdef ALIASES
  CHECK(also_register(registry, "Flatten", 13, flatten_create, ALIASES == 1));
#endif
  return NULL;
}
static Status ep_registry(Ep *this, Pointer *out) { *out = this->registry; return NULL; }

static const char *ep_name(const Ep *this) {
  if (is(this, "made_up_name")) return (const char *)(uintptr_t)0x1238;
  return is(this, "other_name") ? "SomebodyElse" : "ExampleExecutionProvider";
}

/* All products in one group; the stubborn one takes what it was asked about first */
static Status take_together(Ep *this, Pointer *nodes, size_t count, Pointer info) {
  size_t taken = 0;
  for (size_t i = 0; i < count; i++) {
    const char *type;
    CHECK(CALL(OrtApi_Node_GetOperatorType, Status, Pointer, const char **)(nodes[i], &type));
    if (!strcmp(type, "Mul")) nodes[taken++] = nodes[i];
  }
  if (!this->first && taken) this->first = nodes[0];
  else if (is(this, "stubborn") && taken) nodes[0] = this->first;
  return taken ? CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, nodes, taken, NULL) : NULL;
}

/* Texts are followed as std::string would: a null ends the process */
static Status check_texts(Pointer graph) {
  Pointer nodes[2], node;
  const char *text;
  size_t all = 0;
  CHECK(CALL(OrtApi_Graph_GetNodes, Status, Pointer, Pointer *, size_t)(graph, nodes, 2));
  node = nodes[0];
  int of_node[] = {OrtApi_Node_GetName, OrtApi_Node_GetOperatorType, OrtApi_Node_GetDomain, OrtApi_Node_GetEpName};
  for (int i = 0; i < 4; i++) {
    CHECK(CALL(of_node[i], Status, Pointer, const char **)(node, &text));
    all += strlen(text);
  }
  int of_graph[] = {OrtApi_Graph_GetName, OrtApi_Graph_GetModelPath};
  for (int i = 0; i < 2; i++) {
    CHECK(CALL(of_graph[i], Status, Pointer, const char **)(graph, &text));
    all += strlen(text);
  }
  int never_null[] = {OrtApi_HardwareDevice_Vendor, OrtApi_EpDevice_EpName, OrtApi_EpDevice_EpVendor, OrtApi_GetErrorMessage, OrtApi_GetBuildInfoString, OrtApi_ExternalInitializerInfo_GetFilePath};
  for (int i = 0; i < 6; i++) all += strlen(CALL(never_null[i], const char *, Pointer)(graph));
  int of_kernels[] = {OrtEpApi_NodeComputeContext_NodeName, OrtEpApi_KernelDef_GetOperatorType, OrtEpApi_KernelDef_GetDomain, OrtEpApi_KernelDef_GetExecutionProvider};
  for (int i = 0; i < 4; i++) all += strlen(CALL_EP(of_kernels[i], const char *, Pointer)(graph));
  return all ? NULL : fail(1, "all texts are empty");
}

static Status ep_capability(Ep *this, Pointer graph, Pointer info) {
  size_t count;
  if (is(this, "texts")) CHECK(check_texts(graph));
  if (is(this, "fail_capability")) return fail(6, "no idea");
  if (is(this, "unknown_entry")) CHECK(CALL(470, Status, Pointer)(graph));
  if (is(this, "missing_entry"))
    CHECK(CALL(OrtApi_CreateSession, Status, Pointer, Pointer, Pointer, Pointer)(0, 0, 0, 0));
  if (is(this, "stale_handle")) CHECK(CALL(OrtApi_Graph_GetNumNodes, Status, Pointer, size_t *)(this, &count));
  if (is(this, "null_out")) CHECK(CALL(OrtApi_Graph_GetNumNodes, Status, Pointer, size_t *)(graph, NULL));
  CHECK(CALL(OrtApi_Graph_GetNumNodes, Status, Pointer, size_t *)(graph, &count));
  Pointer *nodes = calloc(count + 1, sizeof(Pointer));
  if (is(this, "little_room")) { free(nodes); return CALL(OrtApi_Graph_GetNodes, Status, Pointer, Pointer *, size_t)(graph, nodes, 0); }
  CHECK(CALL(OrtApi_Graph_GetNodes, Status, Pointer, Pointer *, size_t)(graph, nodes, count));
  if (is(this, "one_group") || is(this, "stubborn")) {
    Status failed = take_together(this, nodes, count, info);
    free(nodes);
    return failed;
  }
  for (size_t i = 0; i < count; i++) {
    const char *type;
    CHECK(CALL(OrtApi_Node_GetOperatorType, Status, Pointer, const char **)(nodes[i], &type));
#ifdef KERNELS
    Pointer kernel;
    CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_LookUpKernel, Status, Pointer, Pointer, Pointer *)(info, nodes[i], &kernel));
    if (kernel) CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddSingleNode, Status, Pointer, Pointer)(info, nodes[i]));
    continue;
#endif
#ifdef NHWC
    const char *domain;
    CHECK(CALL(OrtApi_Node_GetDomain, Status, Pointer, const char **)(nodes[i], &domain));
    if (strcmp(type, "GlobalAveragePool") || (NHWC == 2 && *domain)) continue;
#else
    if (strcmp(type, "Mul")) continue;
#endif
    CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, &nodes[i], 1, NULL));
    if (is(this, "null_node")) {
      Pointer none = NULL;
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, &none, 1, NULL));
    }
    if (is(this, "empty_group"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, &nodes[i], 0, NULL));
    if (is(this, "null_group"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, NULL, 1, NULL));
    if (is(this, "many_nodes"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, nodes, (size_t)1 << 60, NULL));
    if (is(this, "one_node_more"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, nodes, count + 1, NULL));
    if (is(this, "made_up_group"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, (Pointer *)(uintptr_t)0x1238, 1, NULL));
    if (is(this, "made_up_options"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, &nodes[i], 1, (Pointer)(uintptr_t)0x1238));
    if (is(this, "many_in_view")) {
      Pointer view;
      CHECK(CALL(OrtApi_Graph_GetGraphView, Status, Pointer, Pointer *, size_t, Pointer *)(graph, nodes, (size_t)-1, &view));
    }
    if (is(this, "two_groups"))
      CHECK(CALL_EP(OrtEpApi_EpGraphSupportInfo_AddNodesToFuse, Status, Pointer, Pointer *, size_t, Pointer)(info, &nodes[i], 1, NULL));
  }
  free(nodes);
  return NULL;
}

/* A node that stands for what is compiled, with the inputs and outputs of the fused one */

static Status name_of(Pointer node, int get, const char **out) {
  Pointer values[2];
  CHECK(CALL(get, Status, Pointer, Pointer *, size_t)(node, values, get == OrtApi_Node_GetInputs ? 2 : 1));
  for (int i = 0; i < (get == OrtApi_Node_GetInputs ? 2 : 1); i++)
    CHECK(CALL(OrtApi_GetValueInfoName, Status, Pointer, const char **)(values[i], &out[i]));
  return NULL;
}
static Status make_context(Ep *this, Pointer node, Pointer *out) {
  Pointer *editor = CALL(OrtApi_GetModelEditorApi, Pointer *, void)();
  const char *inputs[2], *outputs[1];
  Pointer attributes[2];
  int64_t embed = 1;
  CHECK(name_of(node, OrtApi_Node_GetInputs, inputs));
  CHECK(name_of(node, OrtApi_Node_GetOutputs, outputs));
  CHECK(CALL(OrtApi_CreateOpAttr, Status, const char *, const void *, int, int, Pointer *)("ep_cache_context", "a product", 9, 5, &attributes[0]));
  CHECK(CALL(OrtApi_CreateOpAttr, Status, const char *, const void *, int, int, Pointer *)("embed_mode", &embed, 1, 1, &attributes[1]));
  return ((Status(*)(const char *, const char *, const char *, const char **, size_t, const char **, size_t, Pointer *, size_t, Pointer *))editor[OrtModelEditorApi_CreateNode])(
      is(this, "other_context") ? "Mul" : "EPContext", "com.microsoft", "made", inputs, 2, outputs, 1, attributes, 2, out);
}
static Status is_context(Pointer graph, bool *out) {
  Pointer node, attribute;
  const char *type;
  char data[16] = "";
  size_t size = 0;
  CHECK(CALL(OrtApi_Graph_GetNodes, Status, Pointer, Pointer *, size_t)(graph, &node, 1));
  CHECK(CALL(OrtApi_Node_GetOperatorType, Status, Pointer, const char **)(node, &type));
  *out = strcmp(type, "EPContext") == 0;
  if (!*out) return NULL;
  CHECK(CALL(OrtApi_Node_GetAttributeByName, Status, Pointer, const char *, Pointer *)(node, "ep_cache_context", &attribute));
  CHECK(CALL(OrtApi_ReadOpAttr, Status, Pointer, int, void *, size_t, size_t *)(attribute, 5, data, sizeof data, &size));
  return size == 9 && memcmp(data, "a product", 9) == 0 ? NULL : fail(1, "that is no product");
}
static const char *ep_compatibility(Ep *this, Pointer graph) { return "made by version 1"; }
static Status ep_run_start(Ep *this, Pointer options) {
  if (CALL(OrtApi_GetRunConfigEntry, const char *, Pointer, const char *)(options, "tag")) return fail(1, "who said so?");
  __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
  return NULL;
}
/* The only option that may change: by how much the factor of products is */
static Status ep_set_dynamic(Ep *this, const char *const *keys, const char *const *values, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(keys[i], "ep.dynamic.scale")) return fail(2, "nobody knows that option");
  for (size_t i = 0; i < count; i++) this->scale = atof(values[i]);
  return NULL;
}
/* A profiler: of each run it tells the one event that it was told of */

typedef struct Profiler {
  uint32_t version;
  void (*Release)(struct Profiler *);
  Status (*StartProfiling)(struct Profiler *, int64_t);
  Status (*StartEvent)(struct Profiler *, uint64_t);
  Status (*StopEvent)(struct Profiler *, uint64_t, Pointer);
  Status (*EndProfiling)(struct Profiler *, Pointer);
  uint64_t started;
  int64_t duration;
  char name[32];
} Profiler;
static void profiler_release(Profiler *this) { allocated--; free(this); }
static Status profiler_start(Profiler *this, int64_t offset) { this->started = 0; return NULL; }
static Status profiler_event(Profiler *this, uint64_t id) { this->started = id; return NULL; }
static Status profiler_stop(Profiler *this, uint64_t id, Pointer event) {
  const char *name, *none;
  int category;
  if (!id || id != this->started) return fail(1, "another event began");
  CHECK(CALL_EP(OrtEpApi_ProfilingEvent_GetCategory, Status, Pointer, int *)(event, &category));
  CHECK(CALL_EP(OrtEpApi_ProfilingEvent_GetName, Status, Pointer, const char **)(event, &name));
  CHECK(CALL_EP(OrtEpApi_ProfilingEvent_GetDurationUs, Status, Pointer, int64_t *)(event, &this->duration));
  CHECK(CALL_EP(OrtEpApi_ProfilingEvent_GetArgValue, Status, Pointer, const char *, const char **)(event, "nothing", &none));
  if (category != 1 || none) return fail(1, "that is no event of a node");
  snprintf(this->name, sizeof this->name, "%s", name);
  return NULL;
}
static Status profiler_end(Profiler *this, Pointer container) {
  const char *keys[] = {"of", "id"}, *values[] = {this->name, "7"};
  Pointer event;
  CHECK(CALL_EP(OrtEpApi_CreateProfilingEvent, Status, int, int, int, const char *, int64_t, int64_t, const char *const *, const char *const *, size_t, Pointer *)(2, 1, 1, "multiply", 1, this->duration, keys, values, 2, &event));
  Status failed = CALL_EP(OrtEpApi_ProfilingEventsContainer_AddEvents, Status, Pointer, Pointer *, size_t)(container, &event, 1);
  CALL_EP(OrtEpApi_ReleaseProfilingEvent, void, Pointer)(event);
  return failed;
}
static Status ep_profiler(Ep *this, Profiler **out) {
  Profiler *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Release = profiler_release;
  made->StartProfiling = profiler_start;
  made->StartEvent = profiler_event;
  made->StopEvent = profiler_stop;
  made->EndProfiling = profiler_end;
  *out = made;
  return NULL;
}
static Status ep_run_end(Ep *this, Pointer options, bool sync) {
  __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

#ifdef NHWC
static Status ep_layout(Ep *this, int *out) { *out = 1; return NULL; }
static Status ep_converts(Ep *this, const char *domain, const char *type, int layout, int *out) {
  *out = NHWC == 3 ? 0 : strcmp(type, "Conv") ? -1 : 1;
  return NULL;
}
/* The means of all axes but the first and the last */
static Status mean_compute(Compiled *this, void *state, Pointer context) {
  Pointer value, info, output;
  int64_t shape[64], inner = 1;
  size_t rank;
  float *x, *y;
  CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, 0, &value));
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(value, &info));
  CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, &rank));
  CHECK(CALL(OrtApi_GetDimensions, Status, Pointer, int64_t *, size_t)(info, shape, rank));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  for (size_t i = 1; i < rank - 1; i++) { inner *= shape[i]; shape[i] = 1; }
  CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 0, shape, rank, &output));
  CHECK(CALL(OrtApi_GetTensorData, Status, Pointer, void **)(value, (void **)&x));
  CHECK(CALL(OrtApi_GetTensorMutableData, Status, Pointer, void **)(output, (void **)&y));
  int64_t channels = shape[rank - 1];
  for (int64_t n = 0; n < shape[0]; n++)
    for (int64_t c = 0; c < channels; c++) {
      double sum = 0;
      for (int64_t i = 0; i < inner; i++) sum += x[(n * inner + i) * channels + c];
      y[n * channels + c] = sum / inner;
    }
  return NULL;
}
#endif

static Status ep_compile(Ep *this, Pointer *graphs, Pointer *nodes, size_t count,
                         Compiled **out, Pointer *contexts) {
  if (is(this, "fail_compile")) return fail(11, "cannot compile it");
  if (is(this, "null_compiled")) return NULL;
  if (is(this, "made_up_compiled")) { out[0] = (Compiled *)(uintptr_t)0x1238; return NULL; }
  for (size_t i = 0; i < count; i++) {
    Compiled *made = calloc(1, sizeof *made);
    allocated++;
    made->version = is(this, "version_zero") ? 0 : VERSION;
    made->CreateState = compiled_state;
    made->Compute = is(this, "no_compute") ? NULL : compiled_compute;
#ifdef NHWC
    made->Compute = mean_compute;
#endif
    made->ReleaseState = compiled_release;
    made->ep = this;
    CHECK(CALL(OrtApi_Graph_GetNumNodes, Status, Pointer, size_t *)(graphs[i], &made->nodes));
    out[i] = made;
    bool restored = false;
    if (made->nodes == 1) CHECK(is_context(graphs[i], &restored));
    if (this->makes_contexts && !restored) CHECK(make_context(this, nodes[i], &contexts[i]));
  }
  return NULL;
}
static void ep_release(Ep *this, Compiled **infos, size_t count) {
  for (size_t i = 0; i < count; i++) { allocated--; free(infos[i]); }
}
static Status ep_concurrent(Ep *this, bool *out) {
  *out = !is(this, "one_at_a_time");
  return NULL;
}

static Status compiled_state(Compiled *this, Pointer context, void **out) {
  if (is(this->ep, "fail_state")) return fail(1, "no state");
  *out = malloc(1);
  allocated++;
  return NULL;
}

static Status compiled_compute(Compiled *this, void *state, Pointer context) {
  Ep *ep = this->ep;
  Pointer values[3], info, output;
  int64_t shape[64];
  size_t rank, count = 1;
  float *data[3];
  if (is(ep, "fail_compute")) return fail(2, "not today");
  if (is(ep, "garbage_status")) return (Status)(uintptr_t)0x1234;
  if (is(ep, "old_status")) {
    Status old = fail(1, "long ago");
    CALL(OrtApi_ReleaseStatus, void, Status)(old);
    return old;
  }
  if (is(ep, "no_output")) return NULL;
  if (is(ep, "made_up_context")) context = (Pointer)(uintptr_t)0x1238;
  if (is(ep, "bad_input")) CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, 9, values));
  for (int i = 0; i < 2; i++)
    CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, i, &values[i]));
  if (is(ep, "made_up_value")) values[0] = (Pointer)(uintptr_t)0x1238;
  if (is(ep, "other_value")) values[0] = context;
  if (is(ep, "our_value")) values[0] = shape;
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(values[0], &info));
  if (is(ep, "made_up_shape")) info = (Pointer)(uintptr_t)0x1238;
  CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, &rank));
  CHECK(CALL(OrtApi_GetDimensions, Status, Pointer, int64_t *, size_t)(info, shape, rank));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  if (is(ep, "released_shape")) CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, &rank));
  if (is(ep, "released_twice"))
    for (int i = 0; i < 3; i++) CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  if (is(ep, "released_input")) CALL(OrtApi_ReleaseValue, void, Pointer)(values[0]);
  for (size_t i = 0; i < rank; i++) count *= shape[i];
  if (is(ep, "negative_shape")) { rank = 1; shape[0] = -5; }
  if (is(ep, "huge_output")) { rank = 2; shape[0] = shape[1] = (int64_t)1 << 40; }
  if (is(ep, "other_shape")) { rank = 1; shape[0] = count; }
  if (is(ep, "long_shape")) rank = 1 << 20;
  if (is(ep, "null_output"))
    CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 0, shape, rank, NULL));
  if (is(ep, "null_shape"))
    CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 0, NULL, rank, &output));
  CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, is(ep, "bad_output") ? 7 : 0, shape, rank, &output));
  for (int i = 0; i < 2; i++)
    CHECK(CALL(OrtApi_GetTensorData, Status, Pointer, void **)(values[i], (void **)&data[i]));
  CHECK(CALL(OrtApi_GetTensorMutableData, Status, Pointer, void **)(output, (void **)&data[2]));
#ifdef DEVICE_MEMORY
  values[2] = output;
  for (int i = 0; i < 3; i++) {
    if (!lies_well(values[i], i)) return fail(1, "a tensor is not where it is wanted");
    if (!is_hosted(i)) data[i] = away(data[i]);
  }
#endif
  Product product = {data[0], data[1], data[2], count};
#ifdef CAPTURES
  if (capturing_notes(ep, &product, this->nodes)) return NULL;
#endif
#ifdef STREAMS
  Pointer handle;
  CHECK(CALL(OrtApi_KernelContext_GetGPUComputeStream, Status, Pointer, Pointer *)(context, &handle));
  Stream *stream = handle;
  if (stream && stream->length < 64) { stream->queue[stream->length++] = product; return NULL; }
#endif
  if (__atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST) > 1) overlapped++;
  multiply(&product);
  product.a = product.y;
  for (size_t i = 1; i < this->nodes; i++) multiply(&product);
  if (ep->scale != 1)
    for (size_t i = 0; i < count; i++) product.y[i] *= ep->scale;
  if (is(ep, "one_at_a_time")) usleep(1000);
  __atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

/* The factory */

typedef struct Factory {
  uint32_t version;
  const char *(*GetName)(const struct Factory *);
  const char *(*GetVendor)(const struct Factory *);
  Status (*GetSupportedDevices)(struct Factory *, Pointer *, size_t, Pointer *, size_t, size_t *);
  Status (*CreateEp)(struct Factory *, Pointer *, Pointer *, size_t, Pointer, Pointer, Ep **);
  void (*ReleaseEp)(struct Factory *, Ep *);
  uint32_t (*GetVendorId)(const struct Factory *);
  const char *(*GetVersion)(const struct Factory *);
  Status (*Validate)(struct Factory *, Pointer *, size_t, const char *, int *);
  Status (*CreateAllocator)(struct Factory *, Pointer, Pointer, Allocator **);
  void (*ReleaseAllocator)(struct Factory *, Allocator *);
  Status (*CreateDataTransfer)(struct Factory *, Transfer **);
  bool (*IsStreamAware)(const struct Factory *);
  Status (*CreateSyncStreamForDevice)(struct Factory *, Pointer, Pointer, Stream **);
  Pointer rest[8];
} Factory;

static const char *factory_name(const Factory *this) {
#if MADE_UP == 2
  return (const char *)(uintptr_t)0x1238;
#endif
#ifdef NAMELESS
  return "";
#else
  return "ExampleExecutionProvider";
#endif
}
static const char *factory_vendor(const Factory *this) { return "Example Inc."; }
static uint32_t factory_vendor_id(const Factory *this) { return 0xACE; }
static const char *factory_version(const Factory *this) { return "1.2.3"; }

static Status factory_devices(Factory *this, Pointer *devices, size_t count, Pointer *out,
                              size_t room, size_t *made) {
  *made = 0;
#ifdef FOREIGN_DEVICE
  out[0] = this;
  *made = 1;
  return NULL;
#endif
  for (size_t i = 0; i < count && *made < room; i++) {
    Pointer metadata, options;
    if (CALL(OrtApi_HardwareDevice_Type, int, Pointer)(devices[i]) != 0) continue;
    CALL(OrtApi_CreateKeyValuePairs, void, Pointer *)(&metadata);
    CALL(OrtApi_AddKeyValuePair, void, Pointer, const char *, const char *)(metadata, "colour", "green");
    CALL(OrtApi_CreateKeyValuePairs, void, Pointer *)(&options);
    CALL(OrtApi_AddKeyValuePair, void, Pointer, const char *, const char *)(options, "speed", "fast");
    CHECK(CALL_EP(OrtEpApi_CreateEpDevice, Status, Pointer, Pointer, Pointer, Pointer, Pointer *)(this, devices[i], metadata, options, &out[*made]));
    CALL(OrtApi_ReleaseKeyValuePairs, void, Pointer)(metadata);
    CALL(OrtApi_ReleaseKeyValuePairs, void, Pointer)(options);
#ifdef DEVICE_MEMORY
    Pointer info;
    CHECK(CALL(OrtApi_CreateMemoryInfo_V2, Status, const char *, int, uint32_t, int, int, size_t, int, Pointer *)(MEMORY, 1, 0xACE, 0, 0, 64, 0, &info));
    CHECK(CALL_EP(OrtEpApi_EpDevice_AddAllocatorInfo, Status, Pointer, Pointer)(out[*made], info));
    CALL(OrtApi_ReleaseMemoryInfo, void, Pointer)(info);
#if SESSIONS == 2
    CHECK(CALL(OrtApi_CreateMemoryInfo_V2, Status, const char *, int, uint32_t, int, int, size_t, int, Pointer *)(MEMORY, 1, 0xACE, 0, 0, 64, 2, &info));
    CHECK(CALL_EP(OrtEpApi_EpDevice_AddAllocatorInfo, Status, Pointer, Pointer)(out[*made], info));
    CALL(OrtApi_ReleaseMemoryInfo, void, Pointer)(info);
#endif
#endif
    ++*made;
  }
  if (*made) *made += DEVICES - 1;
  return NULL;
}

#ifdef SESSIONS
static Status ep_allocator(Ep *this, Pointer info, Allocator **out);
static int live_eps;
#endif

static Status factory_create(Factory *this, Pointer *devices, Pointer *metadata, size_t count,
                             Pointer options, Pointer logger, Ep **out) {
  Ep *ep = calloc(1, sizeof *ep);
  int has = 0;
  size_t size = sizeof ep->mode;
  const char *key = "ep.exampleexecutionprovider.mode";
  CHECK(CALL(OrtApi_HasSessionConfigEntry, Status, Pointer, const char *, int *)(options, key, &has));
  if (has) CHECK(CALL(OrtApi_GetSessionConfigEntry, Status, Pointer, const char *, char *, size_t *)(options, key, ep->mode, &size));
  size = 8;
  char speed[8];
  CHECK(CALL(OrtApi_GetSessionConfigEntry, Status, Pointer, const char *, char *, size_t *)(options, "ep.exampleexecutionprovider.speed", speed, &size));
  if (is(ep, "fail_create")) { free(ep); return fail(3, "no licence file"); }
  if (is(ep, "null_ep")) { free(ep); return NULL; }
  if (is(ep, "made_up_ep")) { free(ep); *out = (Ep *)(uintptr_t)0x1238; return NULL; }
  if (is(ep, "log"))
    CHECK(CALL(OrtApi_Logger_LogMessage, Status, Pointer, int, const char *, const char *, int, const char *)(logger, 2, speed, "example.c", 1, "create"));
  allocated++;
  ep->version = VERSION;
  ep->GetName = ep_name;
  ep->GetCapability = ep_capability;
  ep->Compile = ep_compile;
  ep->Release = ep_release;
  ep->IsConcurrentRunSupported = ep_concurrent;
  ep->GetCompatibility = ep_compatibility;
#ifdef NHWC
  ep->GetPreferredDataLayout = ep_layout;
  ep->ShouldConvertDataLayoutForOp = ep_converts;
#endif
  ep->scale = 1;
  if (is(ep, "dynamic")) ep->SetDynamicOptions = ep_set_dynamic;
#ifdef CAPTURES
  if (is(ep, "captures")) capturing_begin(ep);
#endif
  if (is(ep, "profiles")) ep->CreateProfiler = ep_profiler;
  if (is(ep, "told_of_runs")) { ep->OnRunStart = ep_run_start; ep->OnRunEnd = ep_run_end; }
  CHECK(CALL(OrtApi_HasSessionConfigEntry, Status, Pointer, const char *, int *)(options, "ep.context_enable", &has));
  ep->makes_contexts = has && !is(ep, "no_context");
#ifdef NHWC
  ep->makes_contexts = false;
#endif
#ifdef SESSIONS
  if (!strncmp(ep->mode, "session", 7)) ep->CreateAllocator = ep_allocator;
  live_eps++;
#endif
#ifdef KERNELS
  CHECK(registry_make());
  ep->registry = registry;
  ep->GetKernelRegistry = ep_registry;
#endif
  *out = ep;
  return NULL;
}
static void factory_release(Factory *this, Ep *ep) {
#ifdef KERNELS
  CALL_EP(OrtEpApi_ReleaseKernelRegistry, void, Pointer)(ep->registry);
#endif
  allocated--;
#ifdef SESSIONS
  live_eps--;
  ep->is_released = true;
#else
  free(ep);
#endif
}

static Status factory_allocator(Factory *this, Pointer info, Pointer options, Allocator **out) {
  Allocator *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Alloc = device_alloc;
  made->Free = device_free;
  made->Info = device_info;
  made->info = info;
  *out = made;
  return NULL;
}
static void factory_release_allocator(Factory *this, Allocator *made) { allocated--; free(made); }
#ifdef SESSIONS
#include "allocating.h"
#endif
static Status factory_transfer(Factory *this, Transfer **out) { *out = &transfer; return NULL; }
static bool factory_streams(const Factory *this) {
#ifdef STREAMS
  return true;
#else
  return false;
#endif
}
static Status factory_stream(Factory *this, Pointer device, Pointer options, Stream **out) {
  Stream *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Release = stream_release;
  made->GetHandle = stream_handle;
  made->CreateNotification = stream_notify;
  made->Flush = stream_flush;
  *out = made;
  return NULL;
}

/* 1: as good as new, 3: of no use */
static Status factory_validate(Factory *this, Pointer *devices, size_t count, const char *info,
                               int *out) {
#ifndef NEXT_VERSION
  *out = strcmp(info, "made by version 1") ? 3 : 1;
#else
  *out = 3;
#endif
  return NULL;
}

static Factory factory = {
  VERSION, factory_name, factory_vendor, factory_devices, factory_create, factory_release,
  factory_vendor_id, factory_version, factory_validate, factory_allocator, factory_release_allocator,
  factory_transfer, factory_streams, factory_stream,
};

typedef struct { Pointer *(*GetApi)(uint32_t); const char *(*GetVersionString)(void); } Base;

#ifdef LATE
#include "late.h"
#endif

Status CreateEpFactories(const char *name, const Base *base, Pointer logger, Factory **out,
                         size_t room, size_t *made) {
  *made = 0;
#ifdef CRASH
  abort();
#endif
  api = base->GetApi(VERSION);
  if (!api) {
#ifdef SILENT
    return NULL;
#else
    api = base->GetApi(1);
    return fail(1, "this host is too old");
#endif
  }
  ep_api = CALL(OrtApi_GetEpApi, Pointer *, void)();
#ifdef LATE
  late_begin(base, logger);
#endif
#if MADE_UP == 1
  out[0] = (Factory *)(uintptr_t)0x1238;
#elif !defined(NULL_FACTORY)
  out[0] = &factory;
#endif
  *made = FACTORIES;
  return NULL;
}

#ifndef NO_RELEASE
Status ReleaseEpFactory(Factory *factory) { return NULL; }
#endif
