// Stands between ONNX Runtime and a kernel library in sessions on the CPU, and makes the library believe that a session is
// on another device. The CUDA provider tells its device by the number of its memory, which on the CPU is always 0.
//
// KORCH_ON_DEVICE          the number, read whenever the library asks
// KORCH_ON_DEVICE_LIBRARY  the kernel library
#include <dlfcn.h>
#include <string.h>

#include "korch_ort.h"

using namespace korch;

static const ApiBase* real;
static void* table[kKernelInfoGetAllocator + 1];

static Status* memory_id(const MemoryInfo*, int* id) {
  *id = atoi(getenv("KORCH_ON_DEVICE"));
  return nullptr;
}

static Api own_table(uint32_t version) {
  memcpy(table, real->get_api(version), sizeof table);
  table[kMemoryInfoGetId] = reinterpret_cast<void*>(memory_id);
  return table;
}

extern "C" __attribute__((visibility("default"))) Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  real = base;
  static const ApiBase own = {own_table, base->version};
  void* library = dlopen(getenv("KORCH_ON_DEVICE_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, "RegisterCustomOps") : nullptr;
  if (!symbol) return fail(base->get_api(1), "on_device: no kernel library");
  return reinterpret_cast<Status* (*)(SessionOptions*, const ApiBase*)>(symbol)(options, &own);
}
