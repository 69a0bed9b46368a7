/* What example.c gives for kernels of Loop and Scan, whose bodies only the host can run.
 *
 *   LOOP     what puts together the outputs of a Loop
 *   SCAN 1   what changes the order of axes
 *        2   nothing that does
 *        3   what fails
 *        4   a kernel of its own instead
 *        5   what returns a status that is none
 */
#ifdef LOOP
typedef struct LoopHelper {
  uint32_t version;
  void (*Release)(struct LoopHelper *);
  Status (*ConcatOutput)(struct LoopHelper *, void *, Pointer *, size_t, void *, size_t);
} LoopHelper;
static void loop_release(LoopHelper *this) { allocated--; free(this); }
static Status loop_concat(LoopHelper *this, void *stream, Pointer *values, size_t count, void *out, size_t bytes) {
  char *to = away(out), *from;
  for (size_t i = 0; i < count; i++) {
    size_t size;
    CHECK(address_of(values[i], &from));
    CHECK(CALL(OrtApi_GetTensorSizeInBytes, Status, Pointer, size_t *)(values[i], &size));
    if (size > bytes) return fail(1, "there is no room");
    memcpy(to, from, size);
    to += size;
    bytes -= size;
  }
  concatenated++;
  return bytes ? fail(1, "there is too much room") : NULL;
}
static Status loop_create(void *state, Pointer info, Kernel **out) {
  LoopHelper *helper = calloc(1, sizeof *helper);
  Pointer none;
  allocated++;
  helper->version = VERSION;
  helper->Release = loop_release;
  helper->ConcatOutput = loop_concat;
  Status wrong = CALL_EP(OrtEpApi_CreateIfKernel, Status, Pointer, Pointer *)(info, &none);
  if (!wrong) return fail(1, "this is no If");
  CALL(OrtApi_ReleaseStatus, void, Status)(wrong);
  CALL_EP(OrtEpApi_ReleaseKernelImpl, void, Pointer)(NULL);
  return CALL_EP(OrtEpApi_CreateLoopKernel, Status, Pointer, Pointer, Pointer *)(info, helper, (Pointer *)out);
}
#endif

#ifdef SCAN
typedef struct ScanHelper {
  uint32_t version;
  void (*Release)(struct ScanHelper *);
  Status (*Transpose)(struct ScanHelper *, const size_t *, size_t, Pointer, Pointer, Pointer);
} ScanHelper;
static void scan_release(ScanHelper *this) { allocated--; free(this); }
static Status shape_of(Pointer value, int64_t *shape, size_t *rank) {
  Pointer info;
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(value, &info));
  CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, rank));
  CHECK(CALL(OrtApi_GetDimensions, Status, Pointer, int64_t *, size_t)(info, shape, *rank));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  return NULL;
}
static Status scan_transpose(ScanHelper *this, const size_t *order, size_t rank, Pointer input, Pointer stream, Pointer output) {
  int64_t from[64], to[64], strides[64], count = 1;
  size_t ranks[2], size;
  char *source, *target;
  if (SCAN == 3) return fail(1, "the axes stay where they are");
  if (SCAN == 5) return (Status)(uintptr_t)0x1234;
  if (stream)
    CHECK(stream_flush((Stream *)CALL_EP(OrtEpApi_SyncStream_GetImpl, Pointer, Pointer)(stream)));
  CHECK(shape_of(input, from, &ranks[0]));
  CHECK(shape_of(output, to, &ranks[1]));
  if (rank != ranks[0] || rank != ranks[1]) return fail(1, "that is no order of its axes");
  for (size_t i = rank; i-- > 0;) { strides[i] = count; count *= from[i]; }
  CHECK(address_of(input, &source));
  CHECK(address_of(output, &target));
  CHECK(CALL(OrtApi_GetTensorSizeInBytes, Status, Pointer, size_t *)(input, &size));
  size /= count;
  for (size_t i = 0; i < rank; i++)
    if (to[i] != from[order[i]]) return fail(1, "there is no such room");
  for (int64_t n = 0; n < count; n++) {
    int64_t left = n, at = 0;
    for (size_t i = rank; i-- > 0;) { at += left % to[i] * strides[order[i]]; left /= to[i]; }
    memcpy(target + n * size, source + at * size, size);
  }
  transposed++;
  return NULL;
}
void *example_transpose = scan_transpose;
static Status scan_compute(Kernel *this, Pointer context) { return fail(1, "it has no bodies"); }
static Status scan_create(void *state, Pointer info, Kernel **out) {
  if (SCAN == 4) {
    *out = calloc(1, sizeof **out);
    allocated++;
    (*out)->version = VERSION;
    (*out)->Compute = scan_compute;
    (*out)->Release = kernel_release;
    return NULL;
  }
  ScanHelper *helper = calloc(1, sizeof *helper);
  allocated++;
  helper->version = VERSION;
  helper->Release = scan_release;
  if (SCAN != 2) helper->Transpose = example_transpose;
  Status failed = CALL_EP(OrtEpApi_CreateScanKernel, Status, Pointer, Pointer, Pointer *)(info, helper, (Pointer *)out);
  if (failed) scan_release(helper);
  return failed;
}
#endif
