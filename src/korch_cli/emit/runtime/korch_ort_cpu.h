// Operators that run generated C++ on ONNX Runtime's threads.
#pragma once

#include <unistd.h>

#include "korch_ort.h"
#include "korch_processor.h"

namespace korch {

using Function = void (*)(const void* const* in, void* const* out, int64_t begin, int64_t end);

struct Kernel {
  Signature signature;
  Function run;
  int64_t units;  // run() may be called on any partition of [0, units)
  int64_t grain;  // units that are worth handing to another thread
};

// An operator in a session.
struct Instance {
  const Operator* owner;
  bool checked[1];  // for each input, see check_shapes()
};

inline const Kernel& kernel_of(const Operator& owner) { return *reinterpret_cast<const Kernel*>(owner.kernel); }

inline Status* create(const CustomOp* op, Api api, const KernelInfo* info, void** result) {
  const Operator& owner = self(op);
  Instance* instance = static_cast<Instance*>(malloc(sizeof(Instance) + owner.kernel->input_count));
  if (instance == nullptr) return fail(api, "korch: out of memory");
  instance->owner = &owner;
  Status* status = check_shapes(api, *owner.kernel, info, instance->checked);
  if (status != nullptr) {
    free(instance);
    return status;
  }
  *result = instance;
  return nullptr;
}

struct Work {
  const Kernel* kernel;
  const void* const* in;
  void* const* out;
  int64_t chunks;
};

inline void run_chunk(void* data, size_t index) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t units = work.kernel->units;
  const int64_t share = units / work.chunks;
  const int64_t rest = units % work.chunks;  // the first `rest` chunks get one unit more
  const int64_t i = static_cast<int64_t>(index);
  const int64_t begin = i * share + (i < rest ? i : rest);
  work.kernel->run(work.in, work.out, begin, begin + share + (i < rest ? 1 : 0));
}

// Four chunks a processor: enough that a thread which is held up elsewhere leaves its share to the others.
inline int64_t chunk_limit() {
  static int64_t limit = 0;  // threads that race write the same number
  if (limit == 0) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    limit = 4 * (processors > 0 ? processors : 1);
  }
  return limit;
}

inline Status* compute(void* data, Context* context) {
  const Instance& instance = *static_cast<const Instance*>(data);
  const Api api = instance.owner->api;
  const Kernel& kernel = kernel_of(*instance.owner);
  const void** in = static_cast<const void**>(alloca((kernel.signature.input_count + 1) * sizeof(void*)));
  void** out = static_cast<void**>(alloca((kernel.signature.output_count + 1) * sizeof(void*)));
  KORCH_TRY(bind(api, kernel.signature, instance.checked, context, in, out));
  int64_t chunks = kernel.units / kernel.grain;
  if (chunks > chunk_limit()) chunks = chunk_limit();
  if (chunks < 2) {
    kernel.run(in, out, 0, kernel.units);
    return nullptr;
  }
  Work work = {&kernel, in, out, chunks};
  const size_t total = static_cast<size_t>(chunks);
  return call(api, kContextParallelFor, static_cast<const Context*>(context), &run_chunk, total, total,
              static_cast<void*>(&work));
}

// Refuses a processor that lacks a feature which the kernels may use: they would end the process.
inline Status* require(const ApiBase* base, const Feature* features, int count, const char* processor) {
  const char* missing = first_missing(features, count);
  if (missing == nullptr) return nullptr;
  char text[512];
  snprintf(text, sizeof text,
           "this korch library was built for %s processors%s and needs %s, which this processor does not have; run "
           "korch optimize on this machine or with another --cpu, or load the model without the library: it runs all "
           "the same",
           processor, processor[0] == 'n' ? " (of the machine that built it)" : "", missing);
  return fail(base->get_api(1), text);
}

inline Status* register_kernels(SessionOptions* options, const ApiBase* base, const char* domain,
                                const Kernel* const* kernels, size_t count) {
  const Behaviour behaviour = {
      [](const CustomOp*) -> const char* { return nullptr; }, 17,
      "this korch library needs ONNX Runtime 1.17 or newer; without it the model still runs", create, compute, free};
  return register_operators(options, base, domain, kernels, count, behaviour);
}

}  // namespace korch
