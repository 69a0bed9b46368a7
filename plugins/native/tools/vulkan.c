/* A libvulkan.so.1 that forwards to the one that REAL_VULKAN names, and says that drivers
 * index arrays of resources by what is known in shaders only.
 *
 * Mesa 22's software driver, which Debian 12 has, does so and does not say it, and WebGPU's
 * library wants to be told.  For tests: of a driver that cannot, it would be a lie.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef struct { uint32_t of[55]; } Features;                /* VkPhysicalDeviceFeatures */
typedef struct Chained { int32_t type; struct Chained *next; Features features; } Chained;
typedef struct {                                             /* VkDeviceCreateInfo */
  int32_t type; Chained *next; uint32_t flags, queues; void *queue; uint32_t layers;
  void *layer; uint32_t extensions; void *extension; const Features *features;
} Creation;
enum { FEATURES_2 = 1000059000, FIRST = 33, LAST = 36 };     /* the …ArrayDynamicIndexing */

static Function (*real)(void *, const char *);
static void (*real_features)(void *, Features *), (*real_chained)(void *, Chained *);
static int32_t (*real_create)(void *, const Creation *, void *, void *);

static void add(Features *features) {
  for (int i = FIRST; i <= LAST; i++) features->of[i] = 1;
}
static void get_features(void *device, Features *out) { real_features(device, out); add(out); }
static void get_chained(void *device, Chained *out) { real_chained(device, out); add(&out->features); }

/* The driver is asked for no more than it says itself */
static int32_t create(void *device, const Creation *given, void *allocator, void *out) {
  Creation creation = *given;
  Features has, wanted;
  real_features(device, &has);
  if (given->features) {
    wanted = *given->features;
    for (int i = FIRST; i <= LAST; i++) wanted.of[i] &= has.of[i];
    creation.features = &wanted;
  }
  for (Chained *each = creation.next; each; each = each->next)
    if (each->type == FEATURES_2)
      for (int i = FIRST; i <= LAST; i++) each->features.of[i] &= has.of[i];
  return real_create(device, &creation, allocator, out);
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
  if (!real) {
    void *library = dlopen(getenv("REAL_VULKAN"), RTLD_NOW | RTLD_LOCAL);
    real = (Function (*)(void *, const char *))dlsym(library, "vkGetInstanceProcAddr");
  }
  Function found = real(instance, name);
  if (!found || strncmp(name, "vk", 2)) return found;
  if (!strcmp(name, "vkGetInstanceProcAddr")) return (Function)vkGetInstanceProcAddr;
  int is_create = !strcmp(name, "vkCreateDevice");
  int is_chained = !strncmp(name, "vkGetPhysicalDeviceFeatures2", 28);
  if (!is_create && strncmp(name, "vkGetPhysicalDeviceFeatures", 27)) return found;
  real_features = (void *)real(instance, "vkGetPhysicalDeviceFeatures");
  if (is_create) { real_create = (void *)found; return (Function)create; }
  if (is_chained) { real_chained = (void *)found; return (Function)get_chained; }
  return (Function)get_features;
}
