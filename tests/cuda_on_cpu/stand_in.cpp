// A stand-in for libcuda.so.1 on a machine without a GPU: it takes the calls that a kernel library makes, is as strict as
// the driver about their order and arguments, and runs the kernels' text on the CPU.
//
// KORCH_STAND_IN_KERNELS     the library that execution.py builds of the kernels
// KORCH_STAND_IN_LOG         a file that each call is appended to, a line each
// KORCH_STAND_IN_CAPABILITY  compute capability times ten; 90 unless it is set; that of each device, by commas
// KORCH_STAND_IN_DEVICES     the number of devices; 1 unless it is set
// KORCH_STAND_IN_FAILS       a function that fails, with CUDA_ERROR_OUT_OF_MEMORY
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace {

enum { kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101, kInvalidImage = 200,
       kInvalidContext = 201, kNotFound = 500, kInvalidHandle = 400 };

constexpr unsigned kSharedLimit = 48 << 10, kMostShared = 227 << 10;

struct Context {
  int device;
};
struct Library {
  const char* data;
  size_t size;
  bool ptx;
};
struct Kernel {
  std::string name;
  void (*run)(unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void**);
  const Library* library;
  std::map<int, unsigned> shared;  // by device, where it is not the limit that every launch has
};
// A kernel in a context.
struct Function {
  Kernel* kernel;
  Context* context;
};

std::mutex mutex;
bool initialized;
Context primary[8];
int retained[8];
std::set<void*> libraries, kernels;
std::map<std::pair<Kernel*, Context*>, Function*> functions;
thread_local Context* stack[16];
thread_local int depth;

int setting(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}
int devices() { return setting("KORCH_STAND_IN_DEVICES", 1); }
Context* current() { return depth ? stack[depth - 1] : nullptr; }

// Of a device, times ten; of the last one that is named for those after it.
int capability_of(int device) {
  const char* text = getenv("KORCH_STAND_IN_CAPABILITY");
  if (!text) return 90;
  for (const char* comma; device > 0 && (comma = strchr(text, ',')); --device) text = comma + 1;
  return atoi(text);
}

// Writes a call down; returns what it is to fail with, 0 for nothing.
int called(const char* function, const std::string& arguments) {
  if (const char* log = getenv("KORCH_STAND_IN_LOG")) {
    FILE* file = fopen(log, "a");
    fprintf(file, "%s %s\n", function, arguments.c_str());
    fclose(file);
  }
  const char* fails = getenv("KORCH_STAND_IN_FAILS");
  if (fails && !strcmp(fails, function)) return kOutOfMemory;
  return initialized || !strcmp(function, "cuInit") ? 0 : kNotInitialized;
}

bool is_cubin(const char* data, size_t* size) {
  if (memcmp(data, "\x7f" "ELF", 4) != 0) return false;
  uint16_t machine, entry_size, count;
  uint64_t table;
  memcpy(&machine, data + 18, 2);
  memcpy(&table, data + 40, 8);
  memcpy(&entry_size, data + 58, 2);
  memcpy(&count, data + 60, 2);
  *size = table + uint64_t(entry_size) * count;
  return machine == 190;
}

int capability(const char* cubin) {
  uint32_t flags;
  memcpy(&flags, cubin + 48, 4);
  const int low = flags & 0xff, high = flags >> 8 & 0xff;
  return cubin[8] >= 8 ? high : low;  // by the version of the ABI
}

bool runs_on(const Library& library, int device) {
  const int made_for = library.ptx ? 0 : capability(library.data), there = capability_of(device);
  return library.ptx || (made_for / 10 == there / 10 && made_for <= there);
}

}  // namespace

#define DRIVER(function) extern "C" __attribute__((visibility("default"))) int function
#define CALLED(...)                                       \
  std::lock_guard<std::mutex> lock(mutex);                \
  if (const int result = called(__func__, __VA_ARGS__)) return result

DRIVER(cuInit)(unsigned flags) {
  CALLED("");
  initialized = true;
  return flags ? kInvalidValue : 0;
}
DRIVER(cuDeviceGetCount)(int* count) {
  CALLED("");
  *count = devices();
  return 0;
}
DRIVER(cuDriverGetVersion)(int* version) {
  CALLED("");
  *version = 13000;
  return 0;
}
DRIVER(cuDeviceGetName)(char* name, int size, int device) {
  CALLED(std::to_string(device));
  snprintf(name, size, "Stand-in");
  return device < devices() ? 0 : kInvalidDevice;
}
DRIVER(cuDeviceGet)(int* device, int number) {
  CALLED(std::to_string(number));
  *device = number;
  return number >= 0 && number < devices() ? 0 : kInvalidDevice;
}
DRIVER(cuDeviceGetAttribute)(int* value, int attribute, int device) {
  CALLED(std::to_string(attribute));
  const int capability = capability_of(device);
  if (device >= devices()) return kInvalidDevice;
  if (attribute != 75 && attribute != 76) return kInvalidValue;
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}
DRIVER(cuDevicePrimaryCtxRetain)(Context** context, int device) {
  CALLED(std::to_string(device));
  if (device >= devices()) return kInvalidDevice;
  ++retained[device];
  primary[device].device = device;
  *context = &primary[device];
  return 0;
}
DRIVER(cuDevicePrimaryCtxRelease_v2)(int device) {
  CALLED(std::to_string(device));
  return --retained[device] < 0 ? kInvalidContext : 0;
}
DRIVER(cuCtxGetCurrent)(Context** context) {
  CALLED("");
  *context = current();
  return 0;
}
DRIVER(cuCtxPushCurrent_v2)(Context* context) {
  CALLED("");
  if (!context || !retained[context->device]) return kInvalidContext;
  stack[depth++] = context;
  return 0;
}
DRIVER(cuCtxPopCurrent_v2)(Context** context) {
  CALLED("");
  if (!depth) return kInvalidContext;
  *context = stack[--depth];
  return 0;
}
DRIVER(cuLibraryLoadData)(Library** library, const void* data, void*, void*, unsigned options, void*, void*, unsigned more) {
  const char* image = static_cast<const char*>(data);
  size_t size = 0;
  const bool cubin = is_cubin(image, &size);
  CALLED(cubin ? "sm_" + std::to_string(capability(image)) : "ptx");
  if (options || more) return kInvalidValue;
  if (!current()) return kInvalidContext;
  if (!cubin && !strstr(image, ".version")) return kInvalidImage;
  Library loaded{image, cubin ? size : strlen(image), !cubin};
  if (!runs_on(loaded, current()->device)) return kInvalidImage;
  *library = new Library(loaded);
  libraries.insert(*library);
  return 0;
}
DRIVER(cuLibraryUnload)(Library* library) {
  CALLED("");
  return libraries.erase(library) ? 0 : kInvalidHandle;
}
DRIVER(cuLibraryGetKernel)(Kernel** kernel, Library* library, const char* name) {
  CALLED(name);
  if (!libraries.count(library)) return kInvalidHandle;
  const std::string text = library->ptx ? ".entry " + std::string(name) + "(" : ".text." + std::string(name) + '\0';
  if (!memmem(library->data, library->size, text.data(), text.size())) return kNotFound;
  const char* path = getenv("KORCH_STAND_IN_KERNELS");
  void* so = path ? dlopen(path, RTLD_NOW) : nullptr;
  void* run = so ? dlsym(so, ("cuda_on_cpu_launch_" + std::string(name)).c_str()) : nullptr;
  if (!run) return kNotFound;
  *kernel = new Kernel{name, nullptr, library, {}};
  memcpy(&(*kernel)->run, &run, sizeof run);
  kernels.insert(*kernel);
  return 0;
}
DRIVER(cuKernelSetAttribute)(int attribute, int value, Kernel* kernel, int device) {
  CALLED(std::to_string(attribute) + " " + std::to_string(value) + " " + std::to_string(device));
  if (!kernels.count(kernel) || device >= devices()) return kInvalidHandle;
  if (attribute != 8 || value < 0 || unsigned(value) > kMostShared) return kInvalidValue;
  kernel->shared[device] = value;
  return 0;
}
DRIVER(cuKernelGetFunction)(Function** function, Kernel* kernel) {
  CALLED(current() ? std::to_string(current()->device) : "");
  if (!current()) return kInvalidContext;
  if (!kernels.count(kernel) || !libraries.count(const_cast<Library*>(kernel->library))) return kInvalidHandle;
  if (!runs_on(*kernel->library, current()->device)) return kInvalidImage;
  Function*& found = functions[{kernel, current()}];
  if (!found) found = new Function{kernel, current()};
  *function = found;
  return 0;
}
DRIVER(cuLaunchKernel)(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void*, void** parameters, void** extra) {
  // One launch at a time: the fibers that stand for a block's threads belong to the process.
  std::lock_guard<std::mutex> lock(mutex);
  const auto known = [&] { for (auto& [key, f] : functions) if (f == function) return true; return false; };
  if (!known()) return kInvalidHandle;
  const Kernel& kernel = *function->kernel;
  const int device = function->context->device;
  if (const int result = called(__func__, kernel.name + " " + std::to_string(device))) return result;
  // A function belongs to a context, which has to be the current one.
  if (current() != function->context) return kInvalidContext;
  if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffffu || gy > 65535 || gz > 65535) return kInvalidValue;
  if (bx > 1024 || by > 1024 || bz > 64 || uint64_t(bx) * by * bz > 1024) return kInvalidValue;
  const auto limit = kernel.shared.find(device);
  if (shared > (limit == kernel.shared.end() ? kSharedLimit : limit->second) || extra) return kInvalidValue;
  kernel.run(gx, gy, gz, bx, by, bz, shared, parameters);
  return 0;
}
DRIVER(cuGetErrorString)(int result, const char** text) {
  static const std::map<int, const char*> texts = {
      {kInvalidValue, "invalid argument"},      {kOutOfMemory, "out of memory"},
      {kNotInitialized, "initialization error"}, {kInvalidDevice, "invalid device ordinal"},
      {kInvalidImage, "device kernel image is invalid"}, {kInvalidContext, "invalid device context"},
      {kInvalidHandle, "invalid resource handle"}, {kNotFound, "named symbol not found"}};
  const auto found = texts.find(result);
  if (found == texts.end()) return kInvalidValue;
  *text = found->second;
  return 0;
}
