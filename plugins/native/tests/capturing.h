/* How example.c captures runs, if its mode is "captures".
 *
 *   CAPTURES 1   the third run of a number, whose work it does at its end
 *            2   the first run, whose work it does when it is replayed only
 *            3   no run
 *            4   one run for all numbers
 *            5   nothing of a run
 *            6   what cannot be replayed
 *            7   what it does not implement to replay
 *            8   and computes other numbers then
 */
typedef struct { int id, runs, count; bool captured; Product products[512]; } Graph;
static Graph graphs[32], *current;
static int captured, replayed, computed;
int example_captured(void) { return captured; }
int example_replayed(void) { return replayed; }
int example_computed(void) { return computed; }

static Graph *graph_of(int id, bool makes) {
  for (int i = 0; i < 32; i++)
    if (graphs[i].id == id) return &graphs[i];
  if (!makes) return NULL;
  for (int i = 0; i < 32; i++)
    if (!graphs[i].id) { graphs[i].id = id; return &graphs[i]; }
  abort();
}
static bool capturing_notes(Ep *ep, const Product *product, size_t nodes) {
  if (!current) { computed++; return false; }
  if (!nodes) nodes = 1;
  for (size_t i = 0; i < nodes && CAPTURES != 5; i++) {
    current->products[current->count] = *product;
    if (i) current->products[current->count].a = product->y;
    current->count++;
  }
  return true;
}
static bool ep_captures(const Ep *this) { return true; }
static bool ep_captured(const Ep *this, int id) {
  for (int i = 0; i < 32 && CAPTURES == 4; i++)
    if (graphs[i].captured) return true;
  Graph *found = graph_of(id, false);
  return found && found->captured;
}
static Status ep_replay(Ep *this, int id) {
  Graph *found = graph_of(id, false);
  if (CAPTURES == 6) return fail(1, "it is gone");
  if (!found || !found->captured) return fail(1, "nothing was captured");
  for (int i = 0; i < found->count; i++) {
    const Product *p = &found->products[i];
    multiply(p);
    for (size_t k = 0; k < p->count && CAPTURES == 8; k++) p->y[k] += 1;
  }
  replayed++;
  return NULL;
}
static Status ep_release_captured(Ep *this, int id) {
  Graph *found = graph_of(id, false);
  if (!found) return fail(1, "nothing is to be released");
  if (found->captured) captured--;
  memset(found, 0, sizeof *found);
  return NULL;
}
static Status capturing_start(Ep *this, Pointer options) {
  const char *text = CALL(OrtApi_GetRunConfigEntry, const char *, Pointer, const char *)(options, "gpu_graph_id");
  if (!text) return fail(1, "the run has no number");
  current = NULL;
  if (!strcmp(text, "-1")) return NULL;
  Graph *found = graph_of(atoi(text), true);
  if (found->captured) return fail(1, "it is captured already");
  if (found->runs++ < (CAPTURES == 2 ? 0 : 2)) return NULL;
  current = found;
  current->count = 0;
  return NULL;
}
static Status capturing_end(Ep *this, Pointer options, bool sync) {
  Graph *found = current;
  current = NULL;
  if (!found || CAPTURES == 3) return NULL;
  found->captured = true;
  captured++;
  return CAPTURES == 1 ? ep_replay(this, found->id) : NULL;
}
static void capturing_begin(Ep *ep) {
  ep->IsGraphCaptureEnabled = ep_captures;
  ep->IsGraphCaptured = ep_captured;
  if (CAPTURES != 7) ep->ReplayGraph = ep_replay;
  ep->ReleaseCapturedGraph = ep_release_captured;
  ep->OnRunStart = capturing_start;
  ep->OnRunEnd = capturing_end;
}
