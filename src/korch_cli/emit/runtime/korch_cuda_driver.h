// What a kernel library needs of CUDA's driver, found when it is first asked for: nothing of CUDA is linked or included.
//
// Declared here from the driver's binary interface. Opaque handles are pointers; a result of 0 is success.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

namespace korch {
namespace cuda {

using Result = int;
using Device = int;
struct DeviceContext;
struct Library;
struct LoadedKernel;
struct LoadedFunction;
struct Stream;

constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CUdevice_attribute
constexpr int kMaxDynamicShared = 8;                         // CUfunction_attribute
constexpr unsigned kSharedLimit = 48 << 10;                  // what a launch may have without that attribute

struct Driver {
  Result (*init)(unsigned);
  Result (*device_count)(int*);
  Result (*device)(Device*, int);
  Result (*device_attribute)(int*, int, Device);
  Result (*retain_primary)(DeviceContext**, Device);
  Result (*release_primary)(Device);
  Result (*current_context)(DeviceContext**);
  Result (*push_context)(DeviceContext*);
  Result (*pop_context)(DeviceContext**);
  Result (*load_library)(Library**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  Result (*unload_library)(Library*);
  Result (*find_kernel)(LoadedKernel**, Library*, const char*);
  Result (*kernel_attribute)(int, int, LoadedKernel*, Device);
  Result (*kernel_function)(LoadedFunction**, LoadedKernel*);
  Result (*launch)(LoadedFunction*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream*, void**,
                   void**);
  Result (*describe)(Result, const char**);
};

template <class F>
inline bool find(void* driver, F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(driver, name));
  return function != nullptr;
}

inline bool load(Driver& d) {
  void* so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (so == nullptr) return false;
  // cuLibrary* came with CUDA 12; a driver that is older is as good as none.
  return find(so, d.init, "cuInit") && find(so, d.device_count, "cuDeviceGetCount") &&
         find(so, d.device, "cuDeviceGet") && find(so, d.device_attribute, "cuDeviceGetAttribute") &&
         find(so, d.retain_primary, "cuDevicePrimaryCtxRetain") &&
         find(so, d.release_primary, "cuDevicePrimaryCtxRelease_v2") &&
         find(so, d.current_context, "cuCtxGetCurrent") && find(so, d.push_context, "cuCtxPushCurrent_v2") &&
         find(so, d.pop_context, "cuCtxPopCurrent_v2") && find(so, d.load_library, "cuLibraryLoadData") &&
         find(so, d.unload_library, "cuLibraryUnload") && find(so, d.find_kernel, "cuLibraryGetKernel") &&
         find(so, d.kernel_attribute, "cuKernelSetAttribute") &&
         find(so, d.kernel_function, "cuKernelGetFunction") && find(so, d.launch, "cuLaunchKernel") &&
         find(so, d.describe, "cuGetErrorString");
}

// The driver, or null where there is none or no device.
inline const Driver* driver() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static Driver found;
  static int state = 0;  // 1: there is a device; -1: there is none
  pthread_mutex_lock(&mutex);
  if (state == 0) {
    int devices = 0;
    const bool there = load(found) && found.init(0) == 0 && found.device_count(&devices) == 0 && devices > 0;
    state = there ? 1 : -1;
  }
  const bool there = state == 1;
  pthread_mutex_unlock(&mutex);
  return there ? &found : nullptr;
}

}  // namespace cuda
}  // namespace korch
