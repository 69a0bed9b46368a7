/* How a kernel of example.c packs its second input: it keeps the numbers negated.
 *
 *   PACKING 1   keeps them for itself
 *           2   hands them over to be shared
 *           3   hands them over, and cannot be given them
 *           4   hands over what is not there
 *           5   hands over twice, and packs nothing
 *           6   fails
 */
static int packed;
int example_packed(void) { return packed; }

static Status kernel_pack(Kernel *this, Pointer value, int index, Allocator *allocator,
                          Pointer cache, bool *out) {
  Pointer info;
  size_t count;
  float *data;
  *out = false;
  if (index != 1) return NULL;
  if (PACKING == 6) return fail(1, "cannot pack it");
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(value, &info));
  CHECK(CALL(OrtApi_GetTensorShapeElementCount, Status, Pointer, size_t *)(info, &count));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  CHECK(CALL(OrtApi_GetTensorData, Status, Pointer, void **)(value, (void **)&data));
#ifdef DEVICE_MEMORY
  if (cache) return fail(1, "nobody shares memory of a device");
  data = away(data);
#endif
  size_t size = count * sizeof(float);
  float *made = allocator->Alloc(allocator, size);
  this->packed = made;
  this->allocator = allocator;
#ifdef DEVICE_MEMORY
  made = away(made);
#endif
  for (size_t i = 0; i < count; i++) made[i] = -data[i];
  *out = PACKING != 5;
  if (PACKING == 1) return NULL;
  void *buffers[] = {PACKING == 4 ? (void *)(uintptr_t)0x1238 : made};
  this->packed = NULL;
  for (int i = 0; i < (PACKING == 5 ? 2 : 1); i++) {
    if (i) buffers[0] = allocator->Alloc(allocator, size);
    Status failed = CALL_EP(OrtEpApi_SharedPrePackedWeightCache_StoreWeightData, Status, Pointer, void **, size_t *, size_t)(cache, buffers, &size, 1);
    if (failed) { allocator->Free(allocator, made); return failed; }
  }
  return NULL;
}
static Status kernel_share(Kernel *this, const void *const *buffers, const size_t *sizes,
                           size_t count, int index) {
  if (count != 1 || index != 1) return fail(1, "that is not what it packed");
  this->packed = (float *)buffers[0];
  packed++;
  return NULL;
}
static Status packed_compute(Kernel *this, Pointer context) {
  Pointer value, none, info, output;
  int64_t shape[64];
  size_t rank;
  Product product = {.b = this->packed, .count = 1};
  CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, 0, &value));
  CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, 1, &none));
  if (none) return fail(1, "it is given what it packed");
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(value, &info));
  CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, &rank));
  CHECK(CALL(OrtApi_GetDimensions, Status, Pointer, int64_t *, size_t)(info, shape, rank));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  for (size_t i = 0; i < rank; i++) product.count *= shape[i];
  CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 0, shape, rank, &output));
  CHECK(CALL(OrtApi_GetTensorData, Status, Pointer, void **)(value, (void **)&product.a));
  CHECK(CALL(OrtApi_GetTensorMutableData, Status, Pointer, void **)(output, (void **)&product.y));
#ifdef DEVICE_MEMORY
  product.a = away((void *)product.a);
  product.b = away((void *)product.b);
  product.y = away(product.y);
#endif
  multiply(&product);
  for (size_t i = 0; i < product.count; i++) product.y[i] = -product.y[i];
  return NULL;
}
static void packed_release(Kernel *this) {
  if (PACKING == 1 && this->packed) this->allocator->Free(this->allocator, this->packed);
}
