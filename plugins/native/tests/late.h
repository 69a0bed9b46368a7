/* What example.c does at the end of the process, when Python is gone. */
#include <pthread.h>

static const Base *late_base;
static Pointer late_logger, late_info, late_pairs;
static Allocator *late_allocator;
static void *late_memory;
static volatile bool late_stop;
static pthread_t late_thread;

static void *late_log(void *nothing) {
  while (!late_stop)
    CALL(OrtApi_Logger_LogMessage, Status, Pointer, int, const char *, const char *, int, const char *)(late_logger, 0, "still here", "late.h", 1, "log");
  return nothing;
}

static void late_begin(const Base *base, Pointer logger) {
  late_base = base;
  late_logger = logger;
  CALL(OrtApi_CreateMemoryInfo_V2, Status, const char *, int, uint32_t, int, int, size_t, int, Pointer *)("late", 1, 0xACE, 0, 0, 64, 0, &late_info);
  CALL(OrtApi_CreateKeyValuePairs, void, Pointer *)(&late_pairs);
  CALL(OrtApi_GetAllocatorWithDefaultOptions, Status, Allocator **)(&late_allocator);
  late_memory = late_allocator->Alloc(late_allocator, 100);
  pthread_create(&late_thread, NULL, late_log, NULL);
}

#define EXPECT(condition) \
  if (!(condition)) { fprintf(stderr, "at the end: not %s\n", #condition); _exit(99); }

__attribute__((destructor)) static void late_end(void) {
  late_stop = true;
  pthread_join(late_thread, NULL);
  bool is_ending = late_base->GetApi(9999) != NULL;
  EXPECT(late_base->GetApi(VERSION) == api);
  EXPECT(strlen(late_base->GetVersionString()) > 3);
  EXPECT(CALL(OrtApi_GetEpApi, Pointer *, void)() == ep_api);
  EXPECT(!CALL(OrtApi_Logger_LogMessage, Status, Pointer, int, const char *, const char *, int, const char *)(late_logger, 0, "bye", "late.h", 1, "end"));
  Status made = fail(1, "late");
  EXPECT(made && CALL(OrtApi_GetErrorCode, int, Status)(made) >= 0);
  EXPECT(strlen(CALL(OrtApi_GetErrorMessage, const char *, Status)(made)));
  CALL(OrtApi_ReleaseStatus, void, Status)(made);
  late_allocator->Free(late_allocator, late_memory);
  EXPECT(late_allocator->Info(late_allocator));
  CALL(OrtApi_ReleaseKeyValuePairs, void, Pointer)(late_pairs);
  CALL(OrtApi_ReleaseMemoryInfo, void, Pointer)(late_info);
  if (is_ending)
    for (int i = 0; i < 480; i++) {
      CALL(i, Pointer, Pointer, Pointer, Pointer, Pointer)(NULL, NULL, NULL, NULL);
      if (i < 130) CALL_EP(i, Pointer, Pointer, Pointer, Pointer, Pointer)(NULL, NULL, NULL, NULL);
    }
  printf("the library ended %s\n", is_ending ? "with the process" : "before it");
  fflush(stdout);
}
