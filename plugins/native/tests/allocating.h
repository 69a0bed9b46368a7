/* How example.c allocates for each session, if its mode begins with "session".
 *
 *   SESSIONS 1   an allocator for each session
 *            2   and another one for weights, of memory that is only read
 *
 * What follows in the mode is what it does instead: "session fails", "session null", "session
 * arena", "session made up", "session no info", or "session later" for weights only.
 * EPs that are released stay in memory, so that it is seen if one is used all the same.
 */
static int misused, of_session, of_weights, ever;
int example_live_eps(void) { return live_eps; }
int example_misused(void) { return misused; }
int example_of_session(void) { return of_session; }
int example_of_weights(void) { return of_weights; }
int example_ever_of_session(void) { return ever; }

static int *session_count(Allocator *this) {
  if (this->ep->is_released) misused++;
  return this->is_for_weights ? &of_weights : &of_session;
}
static Pointer session_alloc(Allocator *this, size_t size) {
  Pointer made = device_alloc(this, size);
  if (made) ++*session_count(this);
  ever += made && !this->is_for_weights;
  return made;
}
static void session_free(Allocator *this, void *p) {
  if (p) --*session_count(this);
  device_free(this, p);
}
static Pointer session_arena(const Allocator *this) {
  static Pointer arena;
  if (!arena) CALL(OrtApi_CreateMemoryInfo_V2, Status, const char *, int, uint32_t, int, int, size_t, int, Pointer *)(MEMORY, 1, 0xACE, 0, 0, 64, 1, &arena);
  return arena;
}
static Pointer session_no_info(const Allocator *this) { return (Pointer)(uintptr_t)0x1238; }

static Status ep_allocator(Ep *this, Pointer info, Allocator **out) {
  int type = 0;
  CHECK(CALL(OrtApi_MemoryInfoGetType, Status, Pointer, int *)(info, &type));
  if (is(this, "session fails") || (type == 2 && is(this, "session later"))) return fail(1, "no pages");
  if (is(this, "session null")) { *out = NULL; return NULL; }
  if (is(this, "session made up")) { *out = (Allocator *)(uintptr_t)0x1238; return NULL; }
  CHECK(factory_allocator(NULL, info, NULL, out));
  (*out)->Alloc = session_alloc;
  (*out)->Free = session_free;
  (*out)->ep = this;
  (*out)->is_for_weights = type == 2;
  if (is(this, "session arena")) (*out)->Info = session_arena;
  if (is(this, "session no info")) (*out)->Info = session_no_info;
  return NULL;
}
