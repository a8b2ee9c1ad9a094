// The part of CUDA C++ that generated kernels use, for a plain C++17 compiler: the kernel's text runs unchanged.
//
// Each CUDA thread is a fiber; cuda_on_cpu.cpp schedules them, one block at a time. At the end of a kernel's source
// stands CUDA_ON_CPU_EXPORT(function) for each of its __global__ functions, which makes it callable as
//   void cuda_on_cpu_launch_FUNCTION(unsigned gx, gy, gz, bx, by, bz, unsigned shared, void** parameters)
// with the parameters of cuLaunchKernel. CUDA_SHARED_SECTION names a section of the translation unit's own that
// static shared memory goes into, so that it can be poisoned when a block starts.
//
// Built with -fsanitize=thread, a CUDA thread is a thread to the sanitizer and only __syncthreads() orders two of them:
// a missing barrier is a data race whatever the order in which the fibers run. A shuffle orders nothing, as in CUDA.
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <utility>

struct uint3 {
  unsigned x, y, z;
};
using dim3 = uint3;

namespace cuda_on_cpu {

extern uint3 thread_index, block_index;
extern dim3 block_extents, grid_extents;

struct Launch {
  dim3 grid, block;
  unsigned dynamic_bytes;
  char *static_begin, *static_end;  // static shared memory
  void (*run)(void*);               // runs one thread
  void* argument;
};

void launch(const Launch& what);
// Returns when every thread of the block is at the same line.
void barrier(int line);
// Returns what lane number `source` has deposited, when all lanes in `mask` have, at the same line.
uint64_t exchange(unsigned mask, uint64_t deposit, int source, int line);
int lane();

template <class T>
T shuffle(unsigned mask, T x, int source, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = exchange(mask, bits, source, line);
  memcpy(&x, &bits, sizeof x);
  return x;
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** parameters, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(parameters[I])...);
}

template <class... A>
void launch_kernel(void (*kernel)(A...), Launch what, void** parameters) {
  struct Bound {
    void (*kernel)(A...);
    void** parameters;
  } bound{kernel, parameters};
  what.argument = &bound;
  what.run = [](void* given) {
    auto* b = static_cast<Bound*>(given);
    call(b->kernel, b->parameters, std::index_sequence_for<A...>{});
  };
  launch(what);
}

}  // namespace cuda_on_cpu

// ---- keywords ------------------------------------------------------------------------------------------------------

#define CUDA_ON_CPU_TEXT(x) #x
#define CUDA_ON_CPU_SECTION(x) CUDA_ON_CPU_TEXT(x)
#define CUDA_ON_CPU_JOINED(a, b) a##b
#define CUDA_ON_CPU_EDGE(edge, section) CUDA_ON_CPU_JOINED(edge, section)

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads)
#define __shared__ static __attribute__((section(CUDA_ON_CPU_SECTION(CUDA_SHARED_SECTION))))

#define threadIdx (::cuda_on_cpu::thread_index)
#define blockIdx (::cuda_on_cpu::block_index)
#define blockDim (::cuda_on_cpu::block_extents)
#define gridDim (::cuda_on_cpu::grid_extents)

// ---- functions -----------------------------------------------------------------------------------------------------

#define __syncthreads() ::cuda_on_cpu::barrier(__LINE__)
#define __shfl_xor_sync(mask, x, other) ::cuda_on_cpu::shuffle(mask, x, ::cuda_on_cpu::lane() ^ (other), __LINE__)

inline float __int_as_float(int32_t i) {
  float x;
  memcpy(&x, &i, sizeof x);
  return x;
}
inline float __uint_as_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

// ---- export --------------------------------------------------------------------------------------------------------

namespace korch {}

#define CUDA_ON_CPU_EXPORT(function)                                                                                \
  extern "C" char CUDA_ON_CPU_EDGE(__start_, CUDA_SHARED_SECTION)[] __attribute__((weak, visibility("hidden")));      \
  extern "C" char CUDA_ON_CPU_EDGE(__stop_, CUDA_SHARED_SECTION)[] __attribute__((weak, visibility("hidden")));       \
  extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_launch_##function(                             \
      unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,                \
      void** parameters) {                                                                                          \
    using namespace korch;                                                                                          \
    ::cuda_on_cpu::launch_kernel(function,                                                                          \
                                 {{gx, gy, gz}, {bx, by, bz}, shared, CUDA_ON_CPU_EDGE(__start_, CUDA_SHARED_SECTION), \
                                  CUDA_ON_CPU_EDGE(__stop_, CUDA_SHARED_SECTION), nullptr, nullptr},                \
                                 parameters);                                                                       \
  }

#endif
