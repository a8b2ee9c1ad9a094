// Operators that launch embedded CUDA images on ONNX Runtime's stream.
//
// The driver is loaded when the library is registered; nothing of CUDA is linked or included. On a machine without a
// driver or a device nothing is registered, and ONNX Runtime runs the functions that the model carries instead.
//
// All that may block happens when a session is made: images are loaded, functions found, scratch memory allocated. A run
// only launches, so that it can be captured in a CUDA graph. The context is the device's primary one, which ONNX Runtime
// uses too; it is made current on a thread only while it is needed there.
#pragma once

#include <pthread.h>

#include "korch_cuda_driver.h"
#include "korch_ort.h"

// What the operators report as their provider; a build for tests runs them in sessions of another one.
#ifndef KORCH_CUDA_PROVIDER
#define KORCH_CUDA_PROVIDER "CUDAExecutionProvider"
#endif

namespace korch {
namespace cuda {

// ---- Kernels -------------------------------------------------------------------------------------------------------

struct Image {
  int capability;  // times ten
  bool ptx;
  const void* data;
};

enum class Kind { in, out, scratch };

struct Argument {
  Kind kind;
  size_t index;
};

struct Launch {
  const char* function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  const Argument* arguments;
  size_t argument_count;
};

struct Kernel {
  Signature signature;
  const Image* images;
  size_t image_count;
  const Launch* launches;
  size_t launch_count;
  const size_t* scratch;  // offsets of the scratch buffers in one piece of memory
  size_t scratch_bytes;   // of that piece; 0 for none
};

// Scratch memory of one stream: launches on one stream follow each other, so that they may share it.
struct Scratch {
  Scratch* next;
  Stream* stream;
  bool claimed;
  char* memory;
};

// An operator in a session.
struct Instance {
  const Operator* owner;
  Device device;
  DeviceContext* context;  // the device's primary one
  Library* library;
  LoadedFunction** functions;  // one for each launch
  Allocator* allocator;
  pthread_mutex_t mutex;
  Scratch* scratch;
  bool checked[1];  // for each input, see check_shapes()
};

inline const Kernel& kernel_of(const Operator& owner) { return *reinterpret_cast<const Kernel*>(owner.kernel); }

inline Status* failed(const Instance& instance, const char* what, Result result) {
  const char* reason = nullptr;
  if (driver()->describe(result, &reason) != 0 || reason == nullptr) reason = "unknown error";
  char text[512];
  snprintf(text, sizeof text, "korch kernel %s: %s failed: %s (%d)", instance.owner->kernel->name, what, reason, result);
  return fail(instance.owner->api, text);
}

#define KORCH_CUDA_TRY(instance, function, ...)                                                      \
  do {                                                                                               \
    const ::korch::cuda::Result result_ = ::korch::cuda::driver()->function(__VA_ARGS__);            \
    if (result_ != 0) return ::korch::cuda::failed(instance, "the driver's " #function, result_); \
  } while (0)

// Makes the context of an instance current on this thread for as long as this lives.
class Current {
 public:
  explicit Current(const Instance& instance) {
    DeviceContext* current = nullptr;
    result_ = driver()->current_context(&current);
    if (result_ == 0 && current != instance.context) {
      result_ = driver()->push_context(instance.context);
      pushed_ = result_ == 0;
    }
  }
  ~Current() {
    DeviceContext* popped = nullptr;
    if (pushed_) driver()->pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Result result() const { return result_; }

 private:
  Result result_ = 0;
  bool pushed_ = false;
};

// A cubin for the same major number and no higher minor number, the nearest one; else the newest PTX that is not above.
inline const Image* pick(const Kernel& kernel, int capability) {
  const Image* best = nullptr;
  for (size_t i = 0; i < kernel.image_count; ++i) {
    const Image& image = kernel.images[i];
    const bool fits = image.capability <= capability && (image.ptx || image.capability / 10 == capability / 10);
    if (!fits) continue;
    const bool better = best == nullptr || (best->ptx && !image.ptx) ||
                        (best->ptx == image.ptx && image.capability > best->capability);
    if (better) best = &image;
  }
  return best;
}

inline Status* no_image(const Instance& instance, int capability) {
  const Kernel& kernel = kernel_of(*instance.owner);
  char text[512];
  size_t used = static_cast<size_t>(
      snprintf(text, sizeof text, "korch kernel %s: this GPU has compute capability %d.%d, and the library has",
               kernel.signature.name, capability / 10, capability % 10));
  for (size_t i = 0; i < kernel.image_count && used < sizeof text - 160; ++i) {
    used += static_cast<size_t>(snprintf(text + used, sizeof text - used, "%s %s_%d", i == 0 ? "" : ",",
                                         kernel.images[i].ptx ? "compute" : "sm", kernel.images[i].capability));
  }
  snprintf(text + used, sizeof text - used,
           "; run korch with --arch sm_%d too, or load the model without the library", capability);
  return fail(instance.owner->api, text);
}

inline Status* allocate(const Instance& instance, Scratch** result) {
  const Kernel& kernel = kernel_of(*instance.owner);
  const Api api = instance.owner->api;
  Scratch* scratch = static_cast<Scratch*>(calloc(1, sizeof(Scratch)));
  if (scratch == nullptr) return fail(api, "korch: out of memory");
  void* memory = nullptr;
  Status* status = call(api, kAllocatorAlloc, instance.allocator, kernel.scratch_bytes, &memory);
  if (status != nullptr) {
    free(scratch);
    return status;
  }
  scratch->memory = static_cast<char*>(memory);
  *result = scratch;
  return nullptr;
}

inline void destroy(void* data) {
  Instance* instance = static_cast<Instance*>(data);
  const Api api = instance->owner->api;
  while (instance->scratch != nullptr) {
    Scratch* scratch = instance->scratch;
    instance->scratch = scratch->next;
    Status* status = call(api, kAllocatorFree, instance->allocator, static_cast<void*>(scratch->memory));
    if (status != nullptr) call<void>(api, kReleaseStatus, status);
    free(scratch);
  }
  if (instance->allocator != nullptr) call<void>(api, kReleaseAllocator, instance->allocator);
  // At the end of a process the driver may be gone already; then these only return an error.
  if (instance->library != nullptr) driver()->unload_library(instance->library);
  if (instance->context != nullptr) driver()->release_primary(instance->device);
  pthread_mutex_destroy(&instance->mutex);
  free(instance->functions);
  free(instance);
}

inline Status* find_device(Instance& instance, const KernelInfo* info, int* capability) {
  const Api api = instance.owner->api;
  const MemoryInfo* memory = nullptr;
  int id = 0, major = 0, minor = 0;
  const int default_memory = 0;  // OrtMemTypeDefault: the provider's own
  KORCH_TRY(call(api, kKernelInfoGetAllocator, info, default_memory, &instance.allocator));
  KORCH_TRY(call(api, kAllocatorGetInfo, static_cast<const Allocator*>(instance.allocator), &memory));
  KORCH_TRY(call(api, kMemoryInfoGetId, memory, &id));
  KORCH_CUDA_TRY(instance, device, &instance.device, id);
  KORCH_CUDA_TRY(instance, device_attribute, &major, kCapabilityMajor, instance.device);
  KORCH_CUDA_TRY(instance, device_attribute, &minor, kCapabilityMinor, instance.device);
  *capability = 10 * major + minor;
  return nullptr;
}

inline Status* load_functions(Instance& instance, const Image& image) {
  const Kernel& kernel = kernel_of(*instance.owner);
  KORCH_CUDA_TRY(instance, retain_primary, &instance.context, instance.device);
  const Current current(instance);
  if (current.result() != 0) return failed(instance, "making the device's context current", current.result());
  KORCH_CUDA_TRY(instance, load_library, &instance.library, image.data, nullptr, nullptr, 0, nullptr, nullptr, 0);
  for (size_t i = 0; i < kernel.launch_count; ++i) {
    const Launch& launch = kernel.launches[i];
    LoadedKernel* loaded = nullptr;
    KORCH_CUDA_TRY(instance, find_kernel, &loaded, instance.library, launch.function);
    if (launch.shared_bytes > kSharedLimit) {
      KORCH_CUDA_TRY(instance, kernel_attribute, kMaxDynamicShared, static_cast<int>(launch.shared_bytes), loaded,
                     instance.device);
    }
    // This loads it into the context now, rather than in the first run.
    KORCH_CUDA_TRY(instance, kernel_function, &instance.functions[i], loaded);
  }
  return nullptr;
}

inline Status* prepare(Instance& instance, const KernelInfo* info) {
  const Kernel& kernel = kernel_of(*instance.owner);
  int capability = 0;
  KORCH_TRY(check_shapes(instance.owner->api, kernel.signature, info, instance.checked));
  KORCH_TRY(find_device(instance, info, &capability));
  const Image* image = pick(kernel, capability);
  if (image == nullptr) return no_image(instance, capability);
  KORCH_TRY(load_functions(instance, *image));
  return kernel.scratch_bytes == 0 ? nullptr : allocate(instance, &instance.scratch);
}

inline Status* create(const CustomOp* op, Api api, const KernelInfo* info, void** result) {
  const Operator& owner = self(op);
  const Kernel& kernel = kernel_of(owner);
  Instance* instance = static_cast<Instance*>(calloc(1, sizeof(Instance) + owner.kernel->input_count));
  void* functions = calloc(kernel.launch_count + 1, sizeof(LoadedFunction*));
  if (instance == nullptr || functions == nullptr) {
    free(instance);
    free(functions);
    return fail(api, "korch: out of memory");
  }
  instance->owner = &owner;
  instance->functions = static_cast<LoadedFunction**>(functions);
  pthread_mutex_init(&instance->mutex, nullptr);
  Status* status = prepare(*instance, info);
  if (status != nullptr) {
    destroy(instance);
    return status;
  }
  *result = instance;
  return nullptr;
}

// The scratch memory of a stream. The first stream takes what was allocated with the session; further ones, which runs
// at the same time have, get their own in their first run. Called with the mutex held.
inline Status* claim(Instance& instance, Stream* stream, char** memory) {
  Scratch* found = instance.scratch;
  while (found != nullptr && found->claimed && found->stream != stream) found = found->next;
  if (found == nullptr) {
    KORCH_TRY(allocate(instance, &found));
    found->next = instance.scratch;
    instance.scratch = found;
  }
  found->claimed = true;
  found->stream = stream;
  *memory = found->memory;
  return nullptr;
}

inline Status* misaligned(const Instance& instance, const char* what, size_t index) {
  char text[512];
  snprintf(text, sizeof text, "korch kernel %s: %s %zu must be aligned to 16 bytes", instance.owner->kernel->name, what,
           index);
  return fail(instance.owner->api, text);
}

inline bool is_aligned(const void* pointer) { return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0; }

inline Status* start(const Instance& instance, const Launch& launch, LoadedFunction* function, Stream* stream,
                     const void* const* in, void* const* out, char* scratch) {
  const Kernel& kernel = kernel_of(*instance.owner);
  const void** values = static_cast<const void**>(alloca((launch.argument_count + 1) * sizeof(void*)));
  void** parameters = static_cast<void**>(alloca((launch.argument_count + 1) * sizeof(void*)));
  for (size_t i = 0; i < launch.argument_count; ++i) {
    const Argument& argument = launch.arguments[i];
    values[i] = argument.kind == Kind::in    ? in[argument.index]
                : argument.kind == Kind::out ? out[argument.index]
                                             : scratch + kernel.scratch[argument.index];
    parameters[i] = &values[i];
  }
  KORCH_CUDA_TRY(instance, launch, function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                 launch.block[1], launch.block[2], launch.shared_bytes, stream, parameters, nullptr);
  return nullptr;
}

inline Status* launch_all(const Instance& instance, Stream* stream, const void* const* in, void* const* out,
                          char* scratch) {
  const Kernel& kernel = kernel_of(*instance.owner);
  const Current current(instance);
  if (current.result() != 0) return failed(instance, "making the device's context current", current.result());
  for (size_t i = 0; i < kernel.launch_count; ++i) {
    KORCH_TRY(start(instance, kernel.launches[i], instance.functions[i], stream, in, out, scratch));
  }
  return nullptr;
}

inline Status* compute(void* data, Context* context) {
  Instance& instance = *static_cast<Instance*>(data);
  const Api api = instance.owner->api;
  const Kernel& kernel = kernel_of(*instance.owner);
  const Signature& signature = kernel.signature;
  const void** in = static_cast<const void**>(alloca((signature.input_count + 1) * sizeof(void*)));
  void** out = static_cast<void**>(alloca((signature.output_count + 1) * sizeof(void*)));
  KORCH_TRY(bind(api, signature, instance.checked, context, in, out));
  for (size_t i = 0; i < signature.input_count; ++i) {
    if (!is_aligned(in[i])) return misaligned(instance, "input", i);
  }
  for (size_t i = 0; i < signature.output_count; ++i) {
    if (!is_aligned(out[i])) return misaligned(instance, "output", i);
  }
  void* stream = nullptr;
  KORCH_TRY(call(api, kContextGetGpuComputeStream, static_cast<const Context*>(context), &stream));
  if (kernel.scratch_bytes == 0) return launch_all(instance, static_cast<Stream*>(stream), in, out, nullptr);
  // Runs that share a stream share the memory: none may launch between the launches of another.
  char* scratch = nullptr;
  pthread_mutex_lock(&instance.mutex);
  Status* status = claim(instance, static_cast<Stream*>(stream), &scratch);
  if (status == nullptr) status = launch_all(instance, static_cast<Stream*>(stream), in, out, scratch);
  pthread_mutex_unlock(&instance.mutex);
  return status;
}

inline Status* register_kernels(SessionOptions* options, const ApiBase* base, const char* domain,
                                const Kernel* const* kernels, size_t count) {
  const Behaviour behaviour = {
      [](const CustomOp*) -> const char* { return KORCH_CUDA_PROVIDER; }, 18,
      "this korch library needs ONNX Runtime 1.18 or newer; without it the model still runs", create, compute, destroy};
  // An operator that is registered for CUDA alone would keep a session without CUDA from running its function.
  return register_operators(options, base, domain, kernels, driver() == nullptr ? 0 : count, behaviour);
}

}  // namespace cuda
}  // namespace korch
