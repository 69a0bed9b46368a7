/* A kernel of example.c whose output has the content of its input: Flatten along axis 1.
 *
 *   ALIASES 1   says so, and copies nothing where both have one memory
 *           2   does not say so
 */
static int copied, shared;
int example_copied(void) { return copied; }
int example_shared(void) { return shared; }
static Status flatten_compute(Kernel *this, Pointer context) {
  Pointer value, output, info;
  int64_t shape[64], flat[2] = {1, 1};
  size_t rank, size;
  char *from, *to;
  CHECK(CALL(OrtApi_KernelContext_GetInput, Status, Pointer, size_t, Pointer *)(context, 0, &value));
  CHECK(CALL(OrtApi_GetTensorTypeAndShape, Status, Pointer, Pointer *)(value, &info));
  CHECK(CALL(OrtApi_GetDimensionsCount, Status, Pointer, size_t *)(info, &rank));
  CHECK(CALL(OrtApi_GetDimensions, Status, Pointer, int64_t *, size_t)(info, shape, rank));
  CALL(OrtApi_ReleaseTensorTypeAndShapeInfo, void, Pointer)(info);
  for (size_t i = 0; i < rank; i++) flat[i > 0] *= shape[i];
  CHECK(CALL(OrtApi_KernelContext_GetOutput, Status, Pointer, size_t, int64_t *, size_t, Pointer *)(context, 0, flat, 2, &output));
  CHECK(address_of(value, &from));
  CHECK(address_of(output, &to));
  CHECK(CALL(OrtApi_GetTensorSizeInBytes, Status, Pointer, size_t *)(value, &size));
  if (from == to) { shared++; return NULL; }
  memcpy(to, from, size);
  copied++;
  return NULL;
}
static Status flatten_create(void *state, Pointer info, Kernel **out) {
  Kernel *made = calloc(1, sizeof *made);
  allocated++;
  made->version = VERSION;
  made->Compute = flatten_compute;
  made->Release = kernel_release;
  *out = made;
  return NULL;
}
