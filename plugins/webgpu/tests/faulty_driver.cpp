// A Vulkan driver that has another do everything, and of which a call can be made to fail.
//
// FAULTY_DRIVER_OF is the path of the other one's library.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using Word = std::uintptr_t;
using Call = int (*)(Word, Word, Word, Word, Word, Word, Word, Word);
using Find = void* (*)(void*, const char*);

// those that give a result, with at most eight arguments that are numbers or addresses
constexpr const char* kNames[] = {
    "vkCreateDevice",           "vkCreateBuffer",           "vkCreateShaderModule",
    "vkCreateComputePipelines", "vkAllocateDescriptorSets", "vkQueueSubmit",
    "vkWaitSemaphores",         "vkGetSemaphoreCounterValue",
};
constexpr int kCount = sizeof(kNames) / sizeof(*kNames);
constexpr int kLost = -4;

Call real[kCount];
std::atomic<int> planted{-1}, result{0};
std::atomic<long> before{0};
std::atomic<bool> lost{false};

void* driver() {
  static void* handle = dlopen(getenv("FAULTY_DRIVER_OF"), RTLD_NOW | RTLD_LOCAL);
  return handle;
}

template <int N>
int call(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) {
  if (N == 0) lost = false;
  if (planted == N && before-- <= 0) {
    planted = -1;
    if (result != kLost) return result;
    lost = true;  // and so is what follows, until there is another device
  }
  return lost ? kLost : real[N](a, b, c, d, e, f, g, h);
}

template <int N = 0>
void* own(const char* name, void* found) {
  if constexpr (N < kCount) {
    if (strcmp(name, kNames[N])) return own<N + 1>(name, found);
    real[N] = reinterpret_cast<Call>(found);
    return reinterpret_cast<void*>(&call<N>);
  }
  return found;
}

Find of_device;

void* find_of_device(void* device, const char* name) {
  void* found = of_device(device, name);
  return found ? own(name, found) : nullptr;
}

}  // namespace

extern "C" {

int vk_icdNegotiateLoaderICDInterfaceVersion(std::uint32_t* version) {
  void* found = dlsym(driver(), "vk_icdNegotiateLoaderICDInterfaceVersion");
  return reinterpret_cast<int (*)(std::uint32_t*)>(found)(version);
}

void* vk_icdGetInstanceProcAddr(void* instance, const char* name) {
  static auto find =
      reinterpret_cast<Find>(dlsym(driver(), "vk_icdGetInstanceProcAddr"));
  void* found = find(instance, name);
  if (!found || strcmp(name, "vkGetDeviceProcAddr"))
    return found ? own(name, found) : nullptr;
  of_device = reinterpret_cast<Find>(found);
  return reinterpret_cast<void*>(&find_of_device);
}

void* vk_icdGetPhysicalDeviceProcAddr(void* instance, const char* name) {
  static auto find =
      reinterpret_cast<Find>(dlsym(driver(), "vk_icdGetPhysicalDeviceProcAddr"));
  return find ? find(instance, name) : nullptr;
}

// Has the call of that name fail with *code* after so many that do not.
int faulty_plant(const char* name, int code, long after) {
  for (int number = 0; number < kCount; number++)
    if (!strcmp(name, kNames[number])) {
      before = after;
      result = code;
      planted = number;
      return 1;
    }
  return 0;
}

// Takes back what was planted; whether it had failed.
int faulty_take_back() { return planted.exchange(-1) < 0; }
}
