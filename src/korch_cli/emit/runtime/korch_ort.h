// What a kernel library needs of ONNX Runtime's C interface, and what its operators have in common: static shapes.
//
// Declared here from the interface's binary layout, so that no header of ONNX Runtime has to be installed: OrtApi is a
// table of function pointers that only grows, and each entry keeps its place for good. Works with ONNX Runtime 1.17 and
// newer, and needs no C++ runtime library.
#pragma once

#include <alloca.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

namespace korch {

// ---- ONNX Runtime's interface --------------------------------------------------------------------------------------

struct Status;
struct SessionOptions;
struct Domain;
struct KernelInfo;
struct Context;
struct Value;
struct TypeInfo;
struct ShapeInfo;
struct InferenceContext;
struct MemoryInfo;
struct Allocator;

using Api = void* const*;

struct ApiBase {
  Api (*get_api)(uint32_t version);
  const char* (*version)();
};

// Places in the table. The comment gives the first version of the interface that has the entry, where it is not 1.
enum Slot : int {
  kCreateStatus = 0,
  kCreateCustomOpDomain = 26,
  kCustomOpDomainAdd = 27,
  kAddCustomOpDomain = 28,
  kGetTensorMutableData = 51,
  kCastTypeInfoToTensorInfo = 55,
  kCreateTensorTypeAndShapeInfo = 57,
  kSetTensorElementType = 58,
  kSetDimensions = 59,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kMemoryInfoGetId = 72,
  kAllocatorAlloc = 75,
  kAllocatorFree = 76,
  kAllocatorGetInfo = 77,
  kContextGetInput = 90,
  kContextGetOutput = 91,
  kReleaseStatus = 93,
  kReleaseTypeInfo = 98,
  kReleaseShapeInfo = 99,
  kReleaseAllocator = 132,               // 3
  kContextGetGpuComputeStream = 193,     // 4
  kKernelInfoGetInputTypeInfo = 234,     // 14
  kInferenceSetOutputTypeShape = 270,    // 17
  kSetSymbolicDimensions = 271,          // 17
  kContextParallelFor = 274,             // 17
  kKernelInfoGetAllocator = 278,         // 18
};
constexpr uint32_t kNewestApi = 18;

// Calls an entry of the table; the arguments must have exactly the types of the C declaration.
template <class Result = Status*, class... Args>
inline Result call(Api api, Slot slot, Args... args) {
  return reinterpret_cast<Result (*)(Args...)>(api[slot])(args...);
}

// OrtCustomOp; ONNX Runtime reads as many fields as `version` has.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel_legacy)(const CustomOp*, Api, const KernelInfo*);
  const char* (*name)(const CustomOp*);
  const char* (*execution_provider)(const CustomOp*);
  int (*input_type)(const CustomOp*, size_t);
  size_t (*input_count)(const CustomOp*);
  int (*output_type)(const CustomOp*, size_t);
  size_t (*output_count)(const CustomOp*);
  void (*compute_legacy)(void*, Context*);
  void (*destroy_kernel)(void*);
  int (*input_characteristic)(const CustomOp*, size_t);
  int (*output_characteristic)(const CustomOp*, size_t);
  int (*input_memory_type)(const CustomOp*, size_t);
  int (*variadic_input_min_arity)(const CustomOp*);
  int (*variadic_input_homogeneity)(const CustomOp*);
  int (*variadic_output_min_arity)(const CustomOp*);
  int (*variadic_output_homogeneity)(const CustomOp*);
  Status* (*create_kernel)(const CustomOp*, Api, const KernelInfo*, void**);
  Status* (*compute)(void*, Context*);
  Status* (*infer_shapes)(const CustomOp*, InferenceContext*);
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
  // From version 18 on.
  size_t (*may_inplace)(int**, int**);
  void (*release_may_inplace)(int*, int*);
  size_t (*alias_map)(int**, int**);
  void (*release_alias_map)(int*, int*);
};

// ---- Operators with static shapes ----------------------------------------------------------------------------------

struct Tensor {
  int type;  // TensorProto.DataType
  size_t rank;
  const int64_t* shape;
};

// The first member of every kernel.
struct Signature {
  const char* name;
  const Tensor* inputs;
  size_t input_count;
  const Tensor* outputs;
  size_t output_count;
  // Says which inputs and outputs may be the same memory: as many indices in each of two arrays. Null where none may.
  size_t (*in_place)(int** inputs, int** outputs);
};

// What is registered: the operator as ONNX Runtime sees it, and the kernel that it runs. Lives as long as the process,
// because sessions and their options may use it until the end, in any order.
struct Operator {
  CustomOp op;
  Api api;
  const Signature* kernel;
};

#define KORCH_TRY(expression)                        \
  do {                                               \
    ::korch::Status* status_ = (expression);         \
    if (status_ != nullptr) return status_;          \
  } while (0)

inline const Operator& self(const CustomOp* op) { return *reinterpret_cast<const Operator*>(op); }

inline Status* fail(Api api, const char* message) {
  return call(api, kCreateStatus, 1, message);
}

enum class Shape { same, different, unknown };

// Compares the dimensions that ONNX Runtime tells with those that the kernel was generated for. A symbolic dimension
// is negative. Rank 0 is also what ONNX Runtime tells where it knows no shape at all.
inline Status* compare(Api api, const ShapeInfo* info, const Tensor& expected, bool exact, Shape* result) {
  size_t rank = 0;
  KORCH_TRY(call(api, kGetDimensionsCount, info, &rank));
  *result = rank == expected.rank ? Shape::same : Shape::different;
  if (rank == 0 && !exact) *result = Shape::unknown;
  if (rank == 0 || *result == Shape::different) return nullptr;
  int64_t* shape = static_cast<int64_t*>(alloca(rank * sizeof(int64_t)));
  KORCH_TRY(call(api, kGetDimensions, info, shape, rank));
  for (size_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 0) {
      if (*result == Shape::same) *result = Shape::unknown;
    } else if (shape[axis] != expected.shape[axis]) {
      *result = Shape::different;
    }
  }
  return nullptr;
}

inline Status* wrong_shape(Api api, const Signature& kernel, size_t input) {
  const Tensor& tensor = kernel.inputs[input];
  char text[512];
  size_t used = static_cast<size_t>(snprintf(text, sizeof text, "korch kernel %s: input %zu must have the shape [",
                                             kernel.name, input));
  for (size_t axis = 0; axis < tensor.rank && used < sizeof text - 128; ++axis) {
    used += static_cast<size_t>(snprintf(text + used, sizeof text - used, axis == 0 ? "%lld" : ",%lld",
                                         static_cast<long long>(tensor.shape[axis])));
  }
  snprintf(text + used, sizeof text - used,
           "] for which it was generated; run korch for the new shape, or load the model without the library");
  return fail(api, text);
}

// Kernels read their operands with the shapes they were generated for. Where ONNX Runtime knows those very shapes, a
// run checks nothing (asking costs 0.2 us an input); where it knows others, the session is refused; where it knows
// none, every run checks. What it knows is what it infers, what it enforces (for the inputs of the graph), and what it
// believes: value_info that a model states falsely about another tensor is not found out here.
// `checked[i]` then says that a run need not look at the shape of input i.
inline Status* check_shapes(Api api, const Signature& kernel, const KernelInfo* info, bool* checked) {
  for (size_t i = 0; i < kernel.input_count; ++i) {
    TypeInfo* type = nullptr;
    const ShapeInfo* shape_info = nullptr;
    Shape shape = Shape::unknown;
    Status* status = call(api, kKernelInfoGetInputTypeInfo, info, i, &type);
    if (status == nullptr) {
      status = call(api, kCastTypeInfoToTensorInfo, static_cast<const TypeInfo*>(type), &shape_info);
    }
    if (status == nullptr && shape_info != nullptr) status = compare(api, shape_info, kernel.inputs[i], false, &shape);
    if (type != nullptr) call<void>(api, kReleaseTypeInfo, type);
    if (status == nullptr && shape == Shape::different) status = wrong_shape(api, kernel, i);
    if (status != nullptr) return status;
    checked[i] = shape == Shape::same;
  }
  return nullptr;
}

inline Status* check_value(Api api, const Signature& kernel, size_t input, const Value* value) {
  ShapeInfo* info = nullptr;
  Shape shape = Shape::different;
  KORCH_TRY(call(api, kGetTensorTypeAndShape, value, &info));
  Status* status = compare(api, info, kernel.inputs[input], true, &shape);
  call<void>(api, kReleaseShapeInfo, info);
  if (status == nullptr && shape != Shape::same) status = wrong_shape(api, kernel, input);
  return status;
}

// Finds the elements of all operands and results of a run.
inline Status* bind(Api api, const Signature& kernel, const bool* checked, Context* context, const void** in,
                    void** out) {
  for (size_t i = 0; i < kernel.input_count; ++i) {
    const Value* value = nullptr;
    void* elements = nullptr;
    KORCH_TRY(call(api, kContextGetInput, static_cast<const Context*>(context), i, &value));
    if (!checked[i]) KORCH_TRY(check_value(api, kernel, i, value));
    KORCH_TRY(call(api, kGetTensorMutableData, const_cast<Value*>(value), &elements));
    in[i] = elements;
  }
  for (size_t i = 0; i < kernel.output_count; ++i) {
    Value* value = nullptr;
    const Tensor& tensor = kernel.outputs[i];
    KORCH_TRY(call(api, kContextGetOutput, context, i, tensor.shape, tensor.rank, &value));
    KORCH_TRY(call(api, kGetTensorMutableData, value, &out[i]));
  }
  return nullptr;
}

inline Status* infer_output(Api api, const Tensor& tensor, size_t index, ShapeInfo* info, InferenceContext* context) {
  KORCH_TRY(call(api, kSetTensorElementType, info, tensor.type));
  KORCH_TRY(call(api, kSetDimensions, info, tensor.shape, tensor.rank));
  // Up to 1.20 the dimensions count only where their names are set too.
  const char** names = static_cast<const char**>(alloca((tensor.rank + 1) * sizeof(char*)));
  for (size_t axis = 0; axis < tensor.rank; ++axis) names[axis] = "";
  KORCH_TRY(call(api, kSetSymbolicDimensions, info, names, tensor.rank));
  return call(api, kInferenceSetOutputTypeShape, static_cast<const InferenceContext*>(context), index,
              static_cast<const ShapeInfo*>(info));
}

inline Status* infer_shapes(const CustomOp* op, InferenceContext* context) {
  const Api api = self(op).api;
  const Signature& kernel = *self(op).kernel;
  for (size_t i = 0; i < kernel.output_count; ++i) {
    ShapeInfo* info = nullptr;
    KORCH_TRY(call(api, kCreateTensorTypeAndShapeInfo, &info));
    Status* status = infer_output(api, kernel.outputs[i], i, info, context);
    call<void>(api, kReleaseShapeInfo, info);
    if (status != nullptr) return status;
  }
  return nullptr;
}

// What operators of a target do beyond that.
struct Behaviour {
  const char* (*provider)(const CustomOp*);  // returns null for the CPU
  uint32_t oldest_api;
  const char* too_old;  // what to say where ONNX Runtime is older
  Status* (*create)(const CustomOp*, Api, const KernelInfo*, void**);
  Status* (*compute)(void*, Context*);
  void (*destroy)(void*);
};

inline void describe(Operator* result, const Signature* kernel, Api api, uint32_t version, const Behaviour& behaviour) {
  *result = Operator{};
  result->api = api;
  result->kernel = kernel;
  CustomOp& op = result->op;
  op.version = version;
  op.name = [](const CustomOp* o) { return self(o).kernel->name; };
  op.execution_provider = behaviour.provider;
  op.input_type = [](const CustomOp* o, size_t i) { return self(o).kernel->inputs[i].type; };
  op.input_count = [](const CustomOp* o) { return self(o).kernel->input_count; };
  op.output_type = [](const CustomOp* o, size_t i) { return self(o).kernel->outputs[i].type; };
  op.output_count = [](const CustomOp* o) { return self(o).kernel->output_count; };
  op.input_characteristic = [](const CustomOp*, size_t) { return 0; };   // required
  op.output_characteristic = [](const CustomOp*, size_t) { return 0; };  // required
  op.input_memory_type = [](const CustomOp*, size_t) { return 0; };      // the default
  op.create_kernel = behaviour.create;
  op.compute = behaviour.compute;
  op.destroy_kernel = behaviour.destroy;
  op.infer_shapes = infer_shapes;
  op.may_inplace = kernel->in_place;
  op.release_may_inplace = [](int*, int*) {};  // the arrays stay
}

// The number after the first dot of "1.32.0".
inline uint32_t minor_version(const char* text) {
  while (*text != '\0' && *text != '.') ++text;
  uint32_t minor = 0;
  for (text += *text == '.'; *text >= '0' && *text <= '9'; ++text) minor = 10 * minor + static_cast<uint32_t>(*text - '0');
  return minor;
}

// Registers `count` kernels under `domain`. What is allocated here is never freed: see Operator.
template <class Kernel>
inline Status* register_operators(SessionOptions* options, const ApiBase* base, const char* domain,
                                  const Kernel* const* kernels, size_t count, const Behaviour& behaviour) {
  const uint32_t minor = minor_version(base->version());
  const uint32_t version = minor < kNewestApi ? minor : kNewestApi;
  if (version < behaviour.oldest_api) return fail(base->get_api(1), behaviour.too_old);
  const Api api = base->get_api(version);
  Operator* operators = static_cast<Operator*>(malloc((count + 1) * sizeof(Operator)));
  if (operators == nullptr) return fail(api, "korch: out of memory");
  Domain* made = nullptr;
  KORCH_TRY(call(api, kCreateCustomOpDomain, domain, &made));
  for (size_t i = 0; i < count; ++i) {
    describe(&operators[i], &kernels[i]->signature, api, version, behaviour);
    KORCH_TRY(call(api, kCustomOpDomainAdd, made, static_cast<const CustomOp*>(&operators[i].op)));
  }
  return call(api, kAddCustomOpDomain, options, made);
}

}  // namespace korch
