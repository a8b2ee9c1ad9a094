// Scalars for generated CUDA kernels: types, elementary functions, conversions of 16-bit floats, vector accesses, and
// reductions over the threads that share a row.
//
// NVRTC compiles this without any other header. The functions are CUDA's accurate ones, right for NaN, infinities and
// denormals; do not compile with --use_fast_math. The same text runs on a CPU where something else defines CUDA's
// keywords.
#ifndef KORCH_CUDA_H
#define KORCH_CUDA_H

#define KORCH_INLINE static __device__ __forceinline__

#undef INT64_C
#undef UINT64_C
#define INT64_C(number) number##ll
#define UINT64_C(number) number##ull

// No constant expression has these bits without a header.
#define kInfinity __int_as_float(0x7f800000)
#define kNaN __int_as_float(0x7fc00000)

#ifdef __CUDACC__
// Loop variables are named whether or not an address needs them; what is written for signed integers serves all.
#pragma nv_diag_suppress 177
#pragma nv_diag_suppress 186
// Of libdevice, which NVRTC links: one instruction each.
extern "C" __device__ float __nv_half2float(unsigned short);
extern "C" __device__ unsigned short __nv_float2half_rn(float);
#endif

namespace korch {

// ---- types ---------------------------------------------------------------------------------------------------------

// Of this namespace, so that the C library's, which may be `long`, do not matter.
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

// ---- booleans ------------------------------------------------------------------------------------------------------

KORCH_INLINE bool and_(bool a, bool b) { return a & b; }
KORCH_INLINE bool or_(bool a, bool b) { return a | b; }
KORCH_INLINE bool xor_(bool a, bool b) { return a != b; }
KORCH_INLINE bool not_(bool a) { return !a; }
KORCH_INLINE float mask_to_float(bool mask) { return mask ? 1.0f : 0.0f; }

// ---- floats --------------------------------------------------------------------------------------------------------

#define KORCH_FUNCTION(name, single, other)                    \
  KORCH_INLINE float name(float x) { return single(x); }       \
  KORCH_INLINE double name(double x) { return other(x); }
KORCH_FUNCTION(abs_, fabsf, fabs)
KORCH_FUNCTION(acos_, acosf, acos)
KORCH_FUNCTION(acosh_, acoshf, acosh)
KORCH_FUNCTION(asin_, asinf, asin)
KORCH_FUNCTION(asinh_, asinhf, asinh)
KORCH_FUNCTION(atan_, atanf, atan)
KORCH_FUNCTION(atanh_, atanhf, atanh)
KORCH_FUNCTION(ceil_, ceilf, ceil)
KORCH_FUNCTION(cos_, cosf, cos)
KORCH_FUNCTION(cosh_, coshf, cosh)
KORCH_FUNCTION(erf_, erff, erf)
KORCH_FUNCTION(exp_, expf, exp)
KORCH_FUNCTION(floor_, floorf, floor)
KORCH_FUNCTION(log_, logf, log)
KORCH_FUNCTION(neg, -, -)
KORCH_FUNCTION(reciprocal_, 1.0f /, 1.0 /)
KORCH_FUNCTION(round_, rintf, rint)
KORCH_FUNCTION(sin_, sinf, sin)
KORCH_FUNCTION(sinh_, sinhf, sinh)
KORCH_FUNCTION(sqrt_, sqrtf, sqrt)
KORCH_FUNCTION(tan_, tanf, tan)
KORCH_FUNCTION(tanh_, tanhf, tanh)
#undef KORCH_FUNCTION

KORCH_INLINE float fmod_(float x, float y) { return fmodf(x, y); }
KORCH_INLINE double fmod_(double x, double y) { return fmod(x, y); }
KORCH_INLINE float pow_(float x, float y) { return powf(x, y); }
KORCH_INLINE double pow_(double x, double y) { return pow(x, y); }
KORCH_INLINE float log1p_(float x) { return log1pf(x); }
KORCH_INLINE double log1p_(double x) { return log1p(x); }

// The remainder with the sign of the divisor.
template <class T>
KORCH_INLINE T mod_(T x, T y) {
  T r = fmod_(x, y);
  return r != 0 && (r > 0) != (y > 0) ? r + y : r;
}
// -1, 0 or 1; NaN for NaN.
template <class T>
KORCH_INLINE T sign_(T x) {
  return x > 0 ? (T)1 : x < 0 ? (T)-1 : x + (T)0;
}
// 1 / (1 + e^-x), without overflow.
template <class T>
KORCH_INLINE T sigmoid_(T x) {
  T e = exp_(-abs_(x));
  return (x < 0 ? e : (T)1) / (1 + e);
}
// log(1 + e^x), without overflow.
template <class T>
KORCH_INLINE T softplus_(T x) {
  return (x < 0 ? (T)0 : x) + log1p_(exp_(-abs_(x)));
}
// The larger and the smaller operand; NaN if either one is.
template <class T>
KORCH_INLINE T vmax(T a, T b) {
  return (a != a) | (a > b) ? a : b;
}
template <class T>
KORCH_INLINE T vmin(T a, T b) {
  return (a != a) | (a < b) ? a : b;
}
// max(x, bound) and min(x, bound) for a bound that is not NaN; NaN stays NaN.
KORCH_INLINE float at_least(float x, float bound) { return bound > x ? bound : x; }
KORCH_INLINE double at_least(double x, double bound) { return bound > x ? bound : x; }
KORCH_INLINE float at_most(float x, float bound) { return bound < x ? bound : x; }
KORCH_INLINE double at_most(double x, double bound) { return bound < x ? bound : x; }

// ---- 16-bit floats -------------------------------------------------------------------------------------------------

#ifdef __CUDACC__
KORCH_INLINE float from_f16(uint16_t h) { return __nv_half2float(h); }
KORCH_INLINE uint16_t to_f16(float x) { return __nv_float2half_rn(x); }
#else
KORCH_INLINE float from_f16(uint16_t h) {
  uint32_t magnitude = (h & 0x7fffu) << 13;
  float scaled = __uint_as_float(magnitude) * __uint_as_float(0x77800000u);  // 2^112 moves the exponent's bias
  uint32_t u = __float_as_uint(scaled) | (magnitude >= 0x0f800000u ? 0x7f800000u : 0u);
  return __uint_as_float(u | ((uint32_t)(h & 0x8000u) << 16));
}
KORCH_INLINE uint16_t to_f16(float x) {
  if (x != x) return 0x7fff;
  float a = at_most(abs_(x), 65536.0f);
  // Adding a power of two lets the adder round to the 11 bits (fewer for denormals) that a half has.
  uint32_t exponent = __float_as_uint(a) & 0x7f800000u;
  uint32_t least = 113u << 23;
  float magic = __uint_as_float((exponent < least ? least : exponent) + (13u << 23));
  float rounded = (a + magic) - magic;
  uint32_t h = __float_as_uint(rounded * __uint_as_float(15u << 23)) >> 13;  // 2^-112
  return (uint16_t)(h | ((__float_as_uint(x) >> 16) & 0x8000u));
}
#endif
KORCH_INLINE float from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
KORCH_INLINE uint16_t to_bf16(float x) {
  uint32_t u = __float_as_uint(x);
  return x != x ? 0x7fff : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
// What a number becomes when it is kept in 16 bits.
KORCH_INLINE float round_f16(float x) { return from_f16(to_f16(x)); }
KORCH_INLINE float round_bf16(float x) { return from_bf16(to_bf16(x)); }

// ---- integers ------------------------------------------------------------------------------------------------------

// Rounded towards minus infinity; `by` is positive.
template <class I>
KORCH_INLINE I floor_div(I a, int by) {
  return a >= 0 ? a / by : -((by - 1 - a) / by);
}
template <class I>
KORCH_INLINE I floor_mod(I a, int by) {
  return a - by * floor_div(a, by);
}

}  // namespace korch

#include "korch_integers.h"

namespace korch {

// ---- vector accesses -----------------------------------------------------------------------------------------------

// N neighbouring elements that move together, 16 bytes at a time at most.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

// The elements at `p`, which is aligned as they are.
template <int N, class T>
KORCH_INLINE Pack<T, N> load(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T>
KORCH_INLINE void store(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}
// The first `count` of them, at least one; memory behind them is not touched.
template <int N, class T>
KORCH_INLINE Pack<T, N> load(const T* p, int count) {
  if (count >= N) return load<N>(p);
  Pack<T, N> pack = {};
#pragma unroll
  for (int e = 0; e < N; ++e)
    if (e < count) pack.at[e] = p[e];
  return pack;
}
template <int N, class T>
KORCH_INLINE void store(T* p, const Pack<T, N>& pack, int count) {
  if (count >= N) {
    store<N>(p, pack);
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e)
    if (e < count) p[e] = pack.at[e];
}

// ---- reductions over threads ---------------------------------------------------------------------------------------

struct Sum {
  KORCH_INLINE float of(float a, float b) { return a + b; }
  KORCH_INLINE double of(double a, double b) { return a + b; }
  template <class T>
  KORCH_INLINE T of(T a, T b) {
    return int_add(a, b);
  }
};
struct Product {
  KORCH_INLINE float of(float a, float b) { return a * b; }
  KORCH_INLINE double of(double a, double b) { return a * b; }
  template <class T>
  KORCH_INLINE T of(T a, T b) {
    return int_mul(a, b);
  }
};
struct Largest {
  KORCH_INLINE bool of(bool a, bool b) { return a | b; }
  template <class T>
  KORCH_INLINE T of(T a, T b) {
    return vmax(a, b);
  }
};
struct Smallest {
  KORCH_INLINE bool of(bool a, bool b) { return a & b; }
  template <class T>
  KORCH_INLINE T of(T a, T b) {
    return vmin(a, b);
  }
};

// What the lane has whose number differs in the bits of `other`.
template <class T>
KORCH_INLINE T exchanged(T x, int other) {
  if constexpr (sizeof(T) < 4) {
    return (T)__shfl_xor_sync(0xffffffffu, (int)x, other);
  } else {
    return __shfl_xor_sync(0xffffffffu, x, other);
  }
}

// The total over each `kTeam` neighbouring lanes, 1 to 32, in all of them. Every lane of the warp takes part.
template <class Op, int kTeam, class T>
KORCH_INLINE T warp_total(T x) {
#pragma unroll
  for (int other = kTeam / 2; other > 0; other /= 2) x = Op::of(x, exchanged(x, other));
  return x;
}

// The total over the `kTeam` threads of a block, 64 to 1024. `shared` holds kTeam / 32 elements and is used once.
template <class Op, int kTeam, class T>
KORCH_INLINE T block_total(T x, T* shared) {
  constexpr int kWarps = kTeam / 32;
  x = warp_total<Op, 32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_total<Op, kWarps>(shared[threadIdx.x % kWarps]);
}

// The total over the `kMembers` threads of a block that have the same number modulo `kTeams`, in all of them.
// `shared` holds an element a thread and is used once.
template <class Op, int kTeams, int kMembers, class T>
KORCH_INLINE T column_total(T x, T* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
  const int team = (int)threadIdx.x % kTeams;
  T total = shared[team];
#pragma unroll
  for (int member = 1; member < kMembers; ++member) total = Op::of(total, shared[member * kTeams + team]);
  return total;
}

}  // namespace korch

#endif
