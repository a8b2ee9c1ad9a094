// Vectors of float for generated kernels: loads and stores, masks, conversions, reductions, transposition, and
// elementary functions.
//
// Everything is written once, for V = vf (a register of kLanes floats) and V = float (one element; the tails of loops),
// with the vector extensions of GCC 12+ and clang. The functions do not branch, except sin_ and cos_ of huge arguments.
// They are right for NaN, infinities, denormals and negative zero, and stay within the error stated above each one
// whether or not the compiler fuses multiplications and additions: `make math` looks at every float. An ulp is the unit
// in the last place of the right result; of denormal results, 2^-149. Do not compile with -ffast-math.
//
// A mask is the result of a comparison: bool for float, a vector of 0 and -1 for vf.
#ifndef KORCH_VECTOR_H
#define KORCH_VECTOR_H

#include <stdint.h>
#include <string.h>

#if !defined(__has_builtin)
#error "korch needs GCC 12 or newer, or clang"
#elif !__has_builtin(__builtin_shufflevector) || !__has_builtin(__builtin_convertvector)
#error "korch needs GCC 12 or newer, or clang"
#endif

#define KORCH_INLINE static inline __attribute__((always_inline))

namespace korch {

// ---- types ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
#define KORCH_VECTOR_BYTES 64
#elif defined(__AVX__)
#define KORCH_VECTOR_BYTES 32
#else
#define KORCH_VECTOR_BYTES 16
#endif

constexpr int kLanes = KORCH_VECTOR_BYTES / 4;

using vf = float __attribute__((vector_size(KORCH_VECTOR_BYTES)));
using vi = int32_t __attribute__((vector_size(KORCH_VECTOR_BYTES)));
using vu = uint32_t __attribute__((vector_size(KORCH_VECTOR_BYTES)));
// Half as many lanes, and the doubles and 64-bit integers that go with them.
using vf_half = float __attribute__((vector_size(KORCH_VECTOR_BYTES / 2)));
using vd = double __attribute__((vector_size(KORCH_VECTOR_BYTES)));
using vl = uint64_t __attribute__((vector_size(KORCH_VECTOR_BYTES)));

template <class V>
struct Types;
template <>
struct Types<float> {
  using Mask = bool;
  using Int = int32_t;
  using Unsigned = uint32_t;
  static constexpr int lanes = 1;
};
template <>
struct Types<vf> {
  using Mask = vi;
  using Int = vi;
  using Unsigned = vu;
  static constexpr int lanes = kLanes;
};
template <class V>
using Mask = typename Types<V>::Mask;

// The bits of a number, and back.
KORCH_INLINE uint32_t bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
KORCH_INLINE vu bits(vf x) { return (vu)x; }
KORCH_INLINE float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}
KORCH_INLINE vf from_bits(vu u) { return (vf)u; }
// The same bits as signed integers, for arithmetic shifts.
KORCH_INLINE int32_t as_signed(uint32_t u) { return (int32_t)u; }
KORCH_INLINE vi as_signed(vu u) { return (vi)u; }
KORCH_INLINE uint32_t as_unsigned(int32_t i) { return (uint32_t)i; }
KORCH_INLINE vu as_unsigned(vi i) { return (vu)i; }

// ---- masks ---------------------------------------------------------------------------------------------------------

KORCH_INLINE float select(bool mask, float a, float b) { return mask ? a : b; }
KORCH_INLINE vf select(vi mask, vf a, vf b) { return mask ? a : b; }
KORCH_INLINE uint32_t select(bool mask, uint32_t a, uint32_t b) { return mask ? a : b; }
KORCH_INLINE vu select(vi mask, vu a, vu b) { return mask ? a : b; }
KORCH_INLINE vi select(vi mask, vi a, vi b) { return mask ? a : b; }
template <class T>
KORCH_INLINE T select(bool mask, T a, T b) {
  return mask ? a : b;
}

KORCH_INLINE bool and_(bool a, bool b) { return a & b; }
KORCH_INLINE vi and_(vi a, vi b) { return a & b; }
KORCH_INLINE bool or_(bool a, bool b) { return a | b; }
KORCH_INLINE vi or_(vi a, vi b) { return a | b; }
KORCH_INLINE bool xor_(bool a, bool b) { return a != b; }
KORCH_INLINE vi xor_(vi a, vi b) { return a ^ b; }
KORCH_INLINE bool not_(bool a) { return !a; }
KORCH_INLINE vi not_(vi a) { return ~a; }

// Whether the mask is set in some lane.
KORCH_INLINE bool any(bool mask) { return mask; }
KORCH_INLINE bool any(vi mask) {
  uint64_t parts[KORCH_VECTOR_BYTES / 8], all = 0;
  memcpy(parts, &mask, sizeof mask);
  for (int i = 0; i < KORCH_VECTOR_BYTES / 8; ++i) all |= parts[i];
  return all != 0;
}

// ---- constants, loads and stores -----------------------------------------------------------------------------------

template <class V>
KORCH_INLINE V broadcast(float x) {
  return V{} + x;
}
template <>
inline __attribute__((always_inline)) vf broadcast<vf>(float x) {
  return x - vf{};  // a sum with zero would turn a negative zero into a positive one
}

// first, first + 1, ...
template <class V>
KORCH_INLINE V iota(float first);
template <>
inline __attribute__((always_inline)) float iota<float>(float first) {
  return first;
}
template <>
inline __attribute__((always_inline)) vf iota<vf>(float first) {
  vf v;
  for (int i = 0; i < kLanes; ++i) v[i] = (float)i;
  return v + first;
}

// Addresses need the alignment of one element only.
template <class V>
KORCH_INLINE V load(const float* p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
KORCH_INLINE void store(float* p, float x) { *p = x; }
KORCH_INLINE void store(float* p, vf x) { memcpy(p, &x, sizeof x); }

// The first n elements, 0 <= n <= lanes; memory behind them is not touched. Other lanes get `fill`.
template <class V>
KORCH_INLINE V load_partial(const float* p, int n, float fill) {
  float lanes[Types<V>::lanes];
  for (int i = 0; i < Types<V>::lanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return load<V>(lanes);
}
KORCH_INLINE void store_partial(float* p, float x, int n) {
  if (n > 0) *p = x;
}
KORCH_INLINE void store_partial(float* p, vf x, int n) {
  float lanes[kLanes];
  store(lanes, x);
  for (int i = 0; i < kLanes; ++i)
    if (i < n) p[i] = lanes[i];
}

// Masks from and to booleans of one byte that hold 0 or 1.
template <class V, class Bool>
KORCH_INLINE Mask<V> load_mask(const Bool* p) {
  static_assert(sizeof(Bool) == 1, "a boolean has one byte");
  if constexpr (Types<V>::lanes == 1) {
    return *p != 0;
  } else {
    vi mask;
    for (int i = 0; i < kLanes; ++i) mask[i] = -(int32_t)p[i];
    return mask;
  }
}
template <class V, class Bool>
KORCH_INLINE Mask<V> load_mask_partial(const Bool* p, int n) {
  uint8_t bytes[Types<V>::lanes];
  for (int i = 0; i < Types<V>::lanes; ++i) bytes[i] = i < n ? (uint8_t)p[i] : 0;
  return load_mask<V>(bytes);
}
template <class Bool>
KORCH_INLINE void store_mask(Bool* p, bool mask) {
  static_assert(sizeof(Bool) == 1, "a boolean has one byte");
  *p = mask;
}
template <class Bool>
KORCH_INLINE void store_mask(Bool* p, vi mask) {
  static_assert(sizeof(Bool) == 1, "a boolean has one byte");
  uint8_t bytes[kLanes];
  for (int i = 0; i < kLanes; ++i) bytes[i] = (uint8_t)-mask[i];
  memcpy(p, bytes, sizeof bytes);
}
template <class Bool, class M>
KORCH_INLINE void store_mask_partial(Bool* p, M mask, int n) {
  uint8_t bytes[kLanes];
  store_mask(bytes, mask);
  for (int i = 0; i < kLanes; ++i)
    if (i < n) p[i] = (Bool)bytes[i];
}

// ---- shuffles ------------------------------------------------------------------------------------------------------

template <int... I>
struct Sequence {};
template <int N, int... I>
struct Counted : Counted<N - 1, N - 1, I...> {};
template <int... I>
struct Counted<0, I...> {
  using Type = Sequence<I...>;
};
using Lanes = typename Counted<kLanes>::Type;  // 0, 1, ..., kLanes - 1

// Lane i gets lane i + Width, modulo the number of lanes.
template <int Width, int... I>
KORCH_INLINE vf rotated(vf v, Sequence<I...>) {
  return __builtin_shufflevector(v, v, ((I + Width) % kLanes)...);
}

// GCC widens vectors of less than half a register through memory, and waits for it; so these become wider before.
template <int Times, int... I>
KORCH_INLINE vf load_repeated_lanes(const float* p, Sequence<I...>) {
  constexpr int few = kLanes / Times;
  if constexpr (few <= 1) {
    return broadcast<vf>(*p);
  } else if constexpr (few == 2) {
    uint64_t pair;
    memcpy(&pair, p, sizeof pair);
    const vf pairs = (vf)(vl{} + pair);
    return __builtin_shufflevector(pairs, pairs, (I / 2 * 2 + I / Times)...);
  } else if constexpr (few == 4 && kLanes == 16) {
    float __attribute__((vector_size(16))) four;
    memcpy(&four, p, sizeof four);
    const auto twice = __builtin_shufflevector(four, four, 0, 1, 2, 3, 0, 1, 2, 3);
    return __builtin_shufflevector(twice, twice, (I / Times)...);
  } else {
    float __attribute__((vector_size(KORCH_VECTOR_BYTES / Times))) half;
    memcpy(&half, p, sizeof half);
    return __builtin_shufflevector(half, half, (I / Times)...);
  }
}
// Each element `Times` times side by side, a power of two: p[0], p[0], p[1], p[1], ... for two.
template <class V, int Times>
KORCH_INLINE V load_repeated(const float* p) {
  if constexpr (Types<V>::lanes == 1) {
    return *p;
  } else {
    return load_repeated_lanes<Times>(p, Lanes{});
  }
}

template <int... I>
KORCH_INLINE vf load_pairs_lanes(const float* p, Sequence<I...>) {
  vf first, second;
  memcpy(&first, p, sizeof first);
  memcpy(&second, p + kLanes - 1, sizeof second);  // not behind the last element that is asked for
  return __builtin_shufflevector(first, second, (I < kLanes / 2 ? 2 * I : 2 * I + 1)...);
}
// p[0], p[2], p[4], ...
template <class V>
KORCH_INLINE V load_pairs(const float* p) {
  if constexpr (Types<V>::lanes == 1) {
    return *p;
  } else {
    return load_pairs_lanes(p, Lanes{});
  }
}

template <int... I>
KORCH_INLINE vf reversed_lanes(vf v, Sequence<I...>) {
  return __builtin_shufflevector(v, v, (kLanes - 1 - I)...);
}
// p[0], p[-1], p[-2], ...
template <class V>
KORCH_INLINE V load_reversed(const float* p) {
  if constexpr (Types<V>::lanes == 1) {
    return *p;
  } else {
    vf v;
    memcpy(&v, p - (kLanes - 1), sizeof v);
    return reversed_lanes(v, Lanes{});
  }
}

template <int Step, int... I>
KORCH_INLINE void exchange(vf& a, vf& b, Sequence<I...>) {
  vf upper = __builtin_shufflevector(a, b, ((I & Step) ? kLanes + I - Step : I)...);
  b = __builtin_shufflevector(a, b, ((I & Step) ? kLanes + I : I + Step)...);
  a = upper;
}
// Rows and columns of a square change places: blocks of `Step` elements first, then of twice as many, ...
template <int Step = 1>
KORCH_INLINE void transpose(vf* square) {
  if constexpr (Step < kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      if ((i & Step) == 0) exchange<Step>(square[i], square[i + Step], Lanes{});
    transpose<2 * Step>(square);
  }
}
// Fills `square` so that square[j] has element j of row(i) in lane i.
template <class F>
KORCH_INLINE void load_transposed(vf* square, F row) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) square[i] = row(i);
  transpose(square);
}

// ---- arithmetic ----------------------------------------------------------------------------------------------------

constexpr uint32_t kSignBit = 0x80000000u;
constexpr float kInfinity = __builtin_inff();
constexpr float kNaN = __builtin_nanf("");

// |x|: exact.
template <class V>
KORCH_INLINE V abs_(V x) {
  return from_bits(bits(x) & ~kSignBit);
}

// -x: exact; flips the sign of zeros and NaN too.
template <class V>
KORCH_INLINE V neg(V x) {
  return from_bits(bits(x) ^ kSignBit);
}

// `magnitude` (which is not negative) with the sign of `sign`.
template <class V>
KORCH_INLINE V with_sign(V magnitude, V sign) {
  return from_bits(bits(magnitude) | (bits(sign) & kSignBit));
}

// a * b + c, with one or two roundings.
template <class V>
KORCH_INLINE V mul_add(V a, V b, V c) {
  return a * b + c;
}

// The first operand if it is larger (smaller), else the second: also where one is NaN, or both are zero.
template <class V>
KORCH_INLINE V larger_or_second(V a, V b) {
  return select(a > b, a, b);
}
template <class V>
KORCH_INLINE V smaller_or_second(V a, V b) {
  return select(a < b, a, b);
}
#if defined(__AVX512F__) && !defined(__clang__)
// Just what one instruction does. GCC finds it by itself where masks are vectors, and clang always.
template <>
inline __attribute__((always_inline)) vf larger_or_second(vf a, vf b) {
  return (vf)__builtin_ia32_maxps512_mask(a, b, a, -1, 4);  // 4: no other rounding than the usual one
}
template <>
inline __attribute__((always_inline)) vf smaller_or_second(vf a, vf b) {
  return (vf)__builtin_ia32_minps512_mask(a, b, a, -1, 4);
}
#endif

// The larger and the smaller operand; NaN if either one is. Which of +0 and -0 counts as larger is not specified.
// Cheapest with a constant as the first operand.
template <class V>
KORCH_INLINE V vmax(V a, V b) {
  return select(a != a, a, larger_or_second(a, b));
}
template <class V>
KORCH_INLINE V vmin(V a, V b) {
  return select(a != a, a, smaller_or_second(a, b));
}

// max(x, bound) and min(x, bound) for a bound that is not NaN; NaN stays NaN.
template <class V>
KORCH_INLINE V at_least(V x, float bound) {
  return larger_or_second(broadcast<V>(bound), x);
}
template <class V>
KORCH_INLINE V at_most(V x, float bound) {
  return smaller_or_second(broadcast<V>(bound), x);
}

// The square root, correctly rounded.
KORCH_INLINE float sqrt_(float x) { return __builtin_sqrtf(x); }
KORCH_INLINE vf sqrt_(vf x) {
  vf y;
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

// Adding and subtracting 2^23 leaves an integer, rounded to even.
constexpr float kTwo23 = 8388608.0f;

// The nearest integer, halves to even: exact, keeps the sign of zero.
template <class V>
KORCH_INLINE V round_(V x) {
  V a = abs_(x);
  V r = (a + kTwo23) - kTwo23;
  return select(a < kTwo23, with_sign(r, x), x);
}
// The largest integer that is not above x: exact, keeps the sign of zero.
template <class V>
KORCH_INLINE V floor_(V x) {
  V r = round_(x);
  return select(r > x, r - 1.0f, r);
}
// The smallest integer that is not below x: exact, keeps the sign of zero.
template <class V>
KORCH_INLINE V ceil_(V x) {
  return neg(floor_(neg(x)));
}

// -1, 0 or 1; NaN for NaN.
template <class V>
KORCH_INLINE V sign_(V x) {
  V one = broadcast<V>(1.0f);
  return select(x > 0.0f, one, select(x < 0.0f, -one, x + 0.0f));
}

// 1 / x, correctly rounded.
template <class V>
KORCH_INLINE V reciprocal_(V x) {
  return 1.0f / x;
}

// What many numbers are divided by. `is_plain` says that neither it nor its reciprocal is zero, denormal, infinite or NaN.
struct Divisor {
  float by, reciprocal;
  bool is_plain;
};
KORCH_INLINE Divisor divisor(float by, float reciprocal) {
  // From the least normal number to 2^126.
  return {by, reciprocal, (bits(by) & ~kSignBit) - 0x00800000u <= 0x7e800000u - 0x00800000u};
}
KORCH_INLINE Divisor divisor(float by) { return divisor(by, 1.0f / by); }
// x / d.by: a product with the reciprocal and one step of correction. Error: at most 1.5 ulp.
template <class V>
KORCH_INLINE V divided(V x, Divisor d) {
  if (!d.is_plain) return x / d.by;
  V q = x * d.reciprocal;
  V rest = x - q * d.by;
  // For infinite quotients there is no rest.
  return select(abs_(rest) < kInfinity, q + rest * d.reciprocal, q);
}
// The same as a product with the reciprocal alone, whose rounding is added to that of the product. Error: at most 1.5 ulp.
template <class V>
KORCH_INLINE V divided_once(V x, Divisor d) {
  return d.is_plain ? x * d.reciprocal : x / d.by;
}

// ---- exponential functions -----------------------------------------------------------------------------------------
//
// Coefficients: least maximum of the relative error of the whole function (Lawson's reweighted least squares on
// Chebyshev nodes in float64); each coefficient is rounded to float before the next ones are fitted.

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
constexpr float kRoundMagic = 12582912.0f;
constexpr float kLog2E = 1.44269504f;
// log(2) in two parts: the first has 9 bits, so that its products with exponents are exact.
constexpr float kLog2High = 0.693359375f;
constexpr float kLog2Low = -2.12194440e-4f;

// x = n log(2) + r with integer n and |r| <= log(2)/2.
template <class V>
struct Reduced {
  V n;
  typename Types<V>::Int exponent;  // n
  V r;
};
template <class V>
KORCH_INLINE Reduced<V> reduce_exp(V x) {
  V t = x * kLog2E + kRoundMagic;
  V n = t - kRoundMagic;
  V r = (x - n * kLog2High) - n * kLog2Low;
  return {n, as_signed(bits(t) - 0x4b400000u), r};
}

// p 2^n for 1/2 < p < 2 and the n of a reduction, rounded once, whether it overflows or is denormal. Keeps NaN.
template <class V>
KORCH_INLINE V scaled(V p, Reduced<V> a) {
  // Two factors, each of them in range.
  auto half = a.exponent >> 1;
  auto rest = a.exponent - half;
  V part = p * from_bits((as_unsigned(half) + 127u) << 23);
  return part * from_bits((as_unsigned(rest) + 127u) << 23);
}
#if defined(__AVX512F__)
template <>
inline __attribute__((always_inline)) vf scaled(vf p, Reduced<vf> a) {
  return (vf)__builtin_ia32_scalefps512_mask(p, a.n, p, -1, 4);  // one instruction
}
#endif

// exp(x) for -105 < x < 90.
template <class V>
KORCH_INLINE V exp_bounded(V x) {
  Reduced<V> a = reduce_exp(x);
  V r = a.r;
  V q = broadcast<V>(1.38201355e-3f);
  q = q * r + 8.36868584e-3f;
  q = q * r + 4.16682735e-2f;
  q = q * r + 1.66665211e-1f;
  q = q * r + 4.99999940e-1f;
  return scaled((q * (r * r) + r) + 1.0f, a);
}

// e^x. Error: at most 1.25 ulp.
template <class V>
KORCH_INLINE V exp_(V x) {
  return exp_bounded(at_most(at_least(x, -104.5f), 89.0f));
}

// 1 / (1 + e^-x) as e^x / (1 + e^x), which is 1 long before e^x overflows. Error: at most 2.5 ulp.
template <class V>
KORCH_INLINE V sigmoid_(V x) {
  V e = exp_bounded(at_most(at_least(x, -104.5f), 60.0f));
  return e / (1.0f + e);
}

// The hyperbolic tangent. Error: at most 2.5 ulp.
template <class V>
KORCH_INLINE V tanh_(V x) {
  // With m = e^(-2|x|) - 1, tanh |x| = -m / (m + 2); m is formed without cancellation.
  V a = abs_(x);
  Reduced<V> s = reduce_exp(at_least(-2.0f * a, -20.0f));
  V r = s.r;
  V q = broadcast<V>(1.38706957e-3f);
  q = q * r + 8.36627185e-3f;
  q = q * r + 4.16674353e-2f;
  q = q * r + 1.66665465e-1f;
  q = q * r + 4.99999970e-1f;
  q = q * (r * r) + r;
  V power = from_bits((as_unsigned(s.exponent) + 127u) << 23);
  V m = power * q + (power - 1.0f);
  return with_sign(abs_(m) / (m + 2.0f), x);
}

// ---- logarithms ----------------------------------------------------------------------------------------------------

// log(1 + f) + n log(2) for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
template <class V>
KORCH_INLINE V log_reduced(V f, V n) {
  V p = broadcast<V>(-7.63818845e-2f);
  p = p * f + 1.27647638e-1f;
  p = p * f - 1.31601900e-1f;
  p = p * f + 1.42012730e-1f;
  p = p * f - 1.66233152e-1f;
  p = p * f + 2.00012505e-1f;
  p = p * f - 2.50008225e-1f;
  p = p * f + 3.33333313e-1f;
  V z = f * f;
  V tail = p * (f * z) + n * kLog2Low;
  return n * kLog2High + (f + (tail - 0.5f * z));
}

// x = m 2^n with sqrt(1/2) <= m < sqrt(2), for positive finite x.
template <class V>
struct Scaled {
  V m;
  V n;
};
template <class V>
KORCH_INLINE Scaled<V> split_exponent(V x) {
  auto denormal = x < 1.17549435e-38f;
  V scaled = select(denormal, x * kTwo23, x);
  V bias = select(denormal, broadcast<V>(-23.0f), broadcast<V>(0.0f));
  auto u = bits(scaled) - 0x3f3504f3u;  // the bits of sqrt(1/2)
  V m = from_bits((u & 0x007fffffu) + 0x3f3504f3u);
  // The exponent as a float: 2^23 + 2^22 + exponent is representable, and its bits are a sum of integers.
  V n = from_bits(as_unsigned(as_signed(u) >> 23) + 0x4b400000u) - kRoundMagic;
  return {m, n + bias};
}

// The natural logarithm. Error: at most 1 ulp. -inf for zeros, NaN for negative numbers.
template <class V>
KORCH_INLINE V log_(V x) {
  Scaled<V> s = split_exponent(x);
  V y = log_reduced(s.m - 1.0f, s.n);
  y = select(x < kInfinity, y, x);
  y = select(x < 0.0f, broadcast<V>(kNaN), y);
  return select(x == 0.0f, broadcast<V>(-kInfinity), y);
}

// log(1 + e^x), without overflow. Error: at most 2 ulp.
template <class V>
KORCH_INLINE V softplus_(V x) {
  // max(x, 0) + log(1 + e), e = e^-|x| <= 1
  V e = exp_bounded(at_least(neg(abs_(x)), -104.5f));
  auto large = e > 0.41421356f;
  V f = select(large, 0.5f * (e - 1.0f), e);
  V n = select(large, broadcast<V>(1.0f), broadcast<V>(0.0f));
  return log_reduced(f, n) + at_least(x, 0.0f);
}

// tanh(softplus(x)) = w / (w + 2) with w = e^x (e^x + 2). Error: at most 4.25 ulp.
template <class V>
KORCH_INLINE V tanh_softplus_(V x) {
  V e = exp_bounded(at_most(at_least(x, -104.5f), 20.0f));
  V w = e * (e + 2.0f);
  return w / (w + 2.0f);
}

// ---- error function ------------------------------------------------------------------------------------------------

// The error function. Error: at most 2 ulp.
template <class V>
KORCH_INLINE V erf_(V x) {
  V a = at_most(abs_(x), 4.0f);
  V z = a * a;
  V p = broadcast<V>(6.52619638e-5f);
  p = p * z - 7.56159774e-4f;
  p = p * z + 5.13115805e-3f;
  p = p * z - 2.68200599e-2f;
  p = p * z + 1.12826802e-1f;
  p = p * z - 3.76125365e-1f;
  p = p * z + 1.28379151e-1f;
  V small = p * a + a;
  // Around the middle of [1.2, 3.95].
  V t = a - 2.575f;
  V q = broadcast<V>(-8.61120679e-6f);
  q = q * t + 1.25265788e-5f;
  q = q * t + 7.32771732e-5f;
  q = q * t - 2.25221389e-4f;
  q = q * t + 1.19927492e-4f;
  q = q * t + 6.86032115e-4f;
  q = q * t - 2.48672650e-3f;
  q = q * t + 4.91080714e-3f;
  q = q * t - 6.55432139e-3f;
  q = q * t + 6.08785730e-3f;
  q = q * t - 3.83352931e-3f;
  q = q * t + 1.48854440e-3f;
  q = q * t + 9.99729037e-1f;
  V y = select(a < 1.2f, small, select(a > 3.92f, broadcast<V>(1.0f), q));
  return with_sign(select(a == a, y, a), x);
}

// ---- trigonometric functions ---------------------------------------------------------------------------------------

// x = q pi/2 + r for 0 <= x; only the two low bits of q are kept.
template <class V>
struct Quadrant {
  typename Types<V>::Unsigned q;
  V r;
};

// For any finite x: the product of the mantissa with those bits of 2/pi that matter.
static inline __attribute__((noinline, cold)) Quadrant<float> reduce_huge(float x) {
  // 2/pi = 0.A2F9836E..., in words of 32 bits.
  static const uint32_t kTwoOverPi[] = {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};
  uint32_t u = bits(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return {0, x - x};
  int exponent = (int)(u >> 23) - 127;  // x = mantissa * 2^(exponent - 23)
  uint32_t mantissa = (u & 0x007fffffu) | 0x00800000u;
  // Bits of 2/pi above 2^-shift give multiples of 4 and are left out.
  int shift = exponent - 23 - 2;
  if (shift < 0) shift = 0;
  int word = shift / 32, offset = shift % 32;
  __extension__ typedef unsigned __int128 Wide;
  Wide window = 0;  // 96 bits
  for (int i = 0; i < 3; ++i) {
    uint64_t pair = ((uint64_t)kTwoOverPi[word + i] << 32) | (word + i + 1 < 6 ? kTwoOverPi[word + i + 1] : 0);
    window = window << 32 | (uint32_t)((pair << offset) >> 32);
  }
  Wide product = window * mantissa;          // in units of 2^(integer_bits - 96)
  int integer_bits = exponent - 23 - shift;  // at most 2; negative below 2^23
  uint64_t whole = (uint64_t)(product >> (96 - integer_bits));
  uint64_t fraction = (uint64_t)(product >> (32 - integer_bits));
  if (fraction >> 63) ++whole;
  // The fraction as a signed number in [-1/2, 1/2).
  double r = (double)(int64_t)fraction * (1.0 / 18446744073709551616.0) * 1.57079632679489661923;
  return {(uint32_t)whole & 3u, (float)r};
}

constexpr float kReductionLimit = 10000.0f;

template <class V>
KORCH_INLINE Quadrant<V> reduce_quadrant(V a) {
  V t = a * 0.636619772f + kRoundMagic;
  V n = t - kRoundMagic;
  // pi/2 in four parts; the products of the first three with n < 2^13 are exact, and so are the first two differences.
  // What the last two take away is added up first, so that r is rounded once.
  V r = a - n * 1.5703125f;
  r = r - n * 4.83751297e-4f;
  r = r - (n * 7.54953362e-8f + n * 2.56334406e-12f);
  return {bits(t) & 3u, r};
}
KORCH_INLINE Quadrant<float> quadrant(float a) {
  return a <= kReductionLimit ? reduce_quadrant(a) : reduce_huge(a);
}
KORCH_INLINE Quadrant<vf> quadrant(vf a) {
  Quadrant<vf> result = reduce_quadrant(a);
  if (__builtin_expect(any(not_(a <= kReductionLimit)), 0)) {
    for (int i = 0; i < kLanes; ++i) {
      if (a[i] <= kReductionLimit) continue;
      Quadrant<float> lane = reduce_huge(a[i]);
      result.q[i] = lane.q;
      result.r[i] = lane.r;
    }
  }
  return result;
}

// sin(r + q pi/2)
template <class V, class U>
KORCH_INLINE V sin_quadrant(V r, U q) {
  V z = r * r;
  V s = broadcast<V>(-1.95078828e-4f);
  s = s * z + 8.33210628e-3f;
  s = s * z - 1.66666538e-1f;
  s = s * (z * r) + r;
  V c = broadcast<V>(2.44300882e-5f);
  c = c * z - 1.38872978e-3f;
  c = c * z + 4.16666456e-2f;
  c = c * (z * z) + (1.0f - 0.5f * z);
  V y = select((q & 1u) != 0u, c, s);
  return from_bits(bits(y) ^ ((q & 2u) << 30));
}

// The sine of any number. Error: at most 1.75 ulp, or 2e-10 where that is more.
template <class V>
KORCH_INLINE V sin_(V x) {
  Quadrant<V> a = quadrant(abs_(x));
  return from_bits(bits(sin_quadrant(a.r, a.q)) ^ (bits(x) & kSignBit));
}

// The cosine of any number. Error: at most 1.75 ulp, or 2e-10 where that is more.
template <class V>
KORCH_INLINE V cos_(V x) {
  Quadrant<V> a = quadrant(abs_(x));
  return sin_quadrant(a.r, a.q + 1u);
}

// ---- powers --------------------------------------------------------------------------------------------------------

// Doubles: one for float, two half vectors for vf.
KORCH_INLINE uint64_t bits(double x) {
  uint64_t u;
  memcpy(&u, &x, 8);
  return u;
}
KORCH_INLINE vl bits(vd x) { return (vl)x; }
KORCH_INLINE double from_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, 8);
  return x;
}
KORCH_INLINE vd from_bits(vl u) { return (vd)u; }

// 2^(y (n + log2(m))) in double; the product is bounded to what float can tell from zero and infinity.
template <class D>
KORCH_INLINE D exp2_log2(D m, D n, D y) {
  D f = m - 1.0;
  D p = f * -0.06974023779949726 + 0.13251460617599528;
  p = p * f - 0.1346304843216107;
  p = p * f + 0.13027524759568218;
  p = p * f - 0.1424983407386756;
  p = p * f + 0.16021667226205466;
  p = p * f - 0.18043677558860444;
  p = p * f + 0.2061071242929058;
  p = p * f - 0.24044643267426746;
  p = p * f + 0.2885387956729291;
  p = p * f - 0.3606737931506768;
  p = p * f + 0.4808983488034875;
  p = p * f - 0.7213475203274948;
  p = p * f + 1.4426950408865735;
  D t = y * (p * f + n);
  t = t < -200.0 ? D{} - 200.0 : t;
  t = t > 200.0 ? D{} + 200.0 : t;
  D magic = t + 6755399441055744.0;  // 1.5 * 2^52 leaves the nearest integer in the low bits
  D g = t - (magic - 6755399441055744.0);
  D q = g * 1.5201901353142027e-05 + 0.00015469317305999387;
  q = q * g + 0.0013333922853344395;
  q = q * g + 0.009618027172780296;
  q = q * g + 0.055504103528368126;
  q = q * g + 0.24022651198754347;
  q = q * g + 0.6931471807287146;
  q = q * g + 1.0;
  return from_bits(bits(q) + (bits(magic) << 52));
}
KORCH_INLINE float power(float m, float n, float y) { return (float)exp2_log2((double)m, (double)n, (double)y); }
KORCH_INLINE vf power(vf m, vf n, vf y) {
  vf_half parts[3][2], result[2];
  memcpy(parts[0], &m, sizeof m);
  memcpy(parts[1], &n, sizeof n);
  memcpy(parts[2], &y, sizeof y);
  for (int i = 0; i < 2; ++i) {
    vd r = exp2_log2(__builtin_convertvector(parts[0][i], vd), __builtin_convertvector(parts[1][i], vd),
                     __builtin_convertvector(parts[2][i], vd));
    result[i] = __builtin_convertvector(r, vf_half);
  }
  vf joined;
  memcpy(&joined, result, sizeof joined);
  return joined;
}

// x^y, with the special cases of C. Error: at most 0.75 ulp.
template <class V>
KORCH_INLINE V pow_(V x, V y) {
  V one = broadcast<V>(1.0f);
  V a = abs_(x);
  // An infinite y acts like a huge one, so that 1^inf does not become a NaN.
  V exponent = at_most(at_least(y, -1e30f), 1e30f);
  Scaled<V> s = split_exponent(a);
  V r = power(s.m, s.n, exponent);
  V extreme = select(exponent > 0.0f, a, 1.0f / a);  // for a zero or infinite; NaN stays NaN
  r = select(or_(a == 0.0f, not_(a < kInfinity)), extreme, r);
  V whole = floor_(y);
  V pairs = 0.5f * y;
  auto odd = and_(whole == y, floor_(pairs) != pairs);
  r = from_bits(bits(r) ^ select(odd, bits(x) & kSignBit, bits(x) & 0u));
  auto undefined = and_(and_(x < 0.0f, a < kInfinity), whole != y);
  r = select(undefined, broadcast<V>(kNaN), r);
  r = select(y == y, r, y);
  return select(or_(y == 0.0f, x == 1.0f), one, r);
}

// ---- conversions ---------------------------------------------------------------------------------------------------

// Half precision. Both directions are exact up to the rounding (to nearest even) of the second.
template <class U>
KORCH_INLINE auto half_to_float(U h) {
  U magnitude = (h & 0x7fffu) << 13;
  auto scaled = from_bits(magnitude) * from_bits(U{} + 0x77800000u);  // 2^112 moves the exponent's bias
  U u = bits(scaled) | select(magnitude >= 0x0f800000u, U{} + 0x7f800000u, U{});
  return from_bits(u | ((h & 0x8000u) << 16));
}
template <class V>
KORCH_INLINE typename Types<V>::Unsigned float_to_half(V x) {
  using U = typename Types<V>::Unsigned;
  V a = at_most(abs_(x), 65536.0f);
  // Adding a power of two lets the adder round to the 11 bits (fewer for denormals) that a half has.
  U exponent = bits(a) & 0x7f800000u;
  U least = U{} + (113u << 23);
  V magic = from_bits(select(exponent < least, least, exponent) + (13u << 23));
  V rounded = (a + magic) - magic;
  U h = bits(rounded * from_bits(U{} + (15u << 23))) >> 13;  // 2^-112
  h = select(x == x, h, U{} + 0x7e00u);
  return h | ((bits(x) >> 16) & 0x8000u);
}
template <class V>
KORCH_INLINE typename Types<V>::Unsigned float_to_bfloat(V x) {
  using U = typename Types<V>::Unsigned;
  U u = bits(x);
  U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return select(x == x, rounded, (u >> 16) | 0x40u);
}

// Vectors of them, as they lie in memory. Processors with F16C convert in one instruction; clang has other names for it.
using vh = uint16_t __attribute__((vector_size(KORCH_VECTOR_BYTES / 2)));
KORCH_INLINE vf widened(vh h) {
#if defined(__F16C__) && defined(__AVX512F__) && !defined(__clang__)
  using Signed = short __attribute__((vector_size(32)));
  return (vf)__builtin_ia32_vcvtph2ps512_mask((Signed)h, vf{}, -1, 4);  // 4: no other rounding than the usual one
#elif defined(__F16C__) && !defined(__clang__)
  using Signed = short __attribute__((vector_size(16)));
  return (vf)__builtin_ia32_vcvtph2ps256((Signed)h);
#else
  return half_to_float(__builtin_convertvector(h, vu));
#endif
}
KORCH_INLINE vh narrowed(vf x) {
#if defined(__F16C__) && defined(__AVX512F__) && !defined(__clang__)
  using Signed = short __attribute__((vector_size(32)));
  return (vh)__builtin_ia32_vcvtps2ph512_mask(x, 0, Signed{}, -1);  // 0: to the nearest, halves to even
#elif defined(__F16C__) && !defined(__clang__)
  return (vh)__builtin_ia32_vcvtps2ph256(x, 0);
#else
  return __builtin_convertvector(float_to_half(x), vh);
#endif
}

KORCH_INLINE void load_lanes(const uint16_t* p, uint32_t& u) { u = *p; }
KORCH_INLINE void load_lanes(const uint16_t* p, vu& u) {
  for (int i = 0; i < kLanes; ++i) u[i] = p[i];
}
KORCH_INLINE void store_lanes(uint16_t* p, uint32_t u) { *p = (uint16_t)u; }
KORCH_INLINE void store_lanes(uint16_t* p, vu u) {
  uint16_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = (uint16_t)u[i];
  memcpy(p, lanes, sizeof lanes);
}

template <class V>
KORCH_INLINE V load_f16(const uint16_t* p) {
  if constexpr (Types<V>::lanes == 1) {
    return half_to_float((uint32_t)*p);
  } else {
    vh h;
    memcpy(&h, p, sizeof h);
    return widened(h);
  }
}
template <class V>
KORCH_INLINE V load_bf16(const uint16_t* p) {
  typename Types<V>::Unsigned u;
  load_lanes(p, u);
  return from_bits(u << 16);
}
KORCH_INLINE void store_f16(uint16_t* p, float x) { *p = (uint16_t)float_to_half(x); }
KORCH_INLINE void store_f16(uint16_t* p, vf x) {
  vh h = narrowed(x);
  memcpy(p, &h, sizeof h);
}
template <class V>
KORCH_INLINE void store_bf16(uint16_t* p, V x) {
  store_lanes(p, float_to_bfloat(x));
}

// One element, and what a number becomes when it is kept as one.
KORCH_INLINE float from_f16(uint16_t h) { return half_to_float((uint32_t)h); }
KORCH_INLINE float from_bf16(uint16_t h) { return from_bits((uint32_t)h << 16); }
KORCH_INLINE uint16_t to_f16(float x) { return (uint16_t)float_to_half(x); }
KORCH_INLINE uint16_t to_bf16(float x) { return (uint16_t)float_to_bfloat(x); }
KORCH_INLINE float round_f16(float x) { return half_to_float(float_to_half(x)); }
KORCH_INLINE vf round_f16(vf x) { return widened(narrowed(x)); }
template <class V>
KORCH_INLINE V round_bf16(V x) {
  return from_bits(float_to_bfloat(x) << 16);
}

// Integers as floats, rounded to nearest even.
KORCH_INLINE float to_float(int32_t i) { return (float)i; }
KORCH_INLINE vf to_float(vi i) { return __builtin_convertvector(i, vf); }
// Floats as integers, truncated; the value must fit.
KORCH_INLINE int32_t to_int(float x) { return (int32_t)x; }
KORCH_INLINE vi to_int(vf x) { return __builtin_convertvector(x, vi); }

template <class V>
KORCH_INLINE typename Types<V>::Int load_int(const int32_t* p) {
  typename Types<V>::Int i;
  memcpy(&i, p, sizeof i);
  return i;
}
KORCH_INLINE void store_int(int32_t* p, int32_t i) { *p = i; }
KORCH_INLINE void store_int(int32_t* p, vi i) { memcpy(p, &i, sizeof i); }

template <class V>
KORCH_INLINE V load_i32(const int32_t* p) {
  return to_float(load_int<V>(p));
}
template <class V>
KORCH_INLINE void store_i32(int32_t* p, V x) {
  store_int(p, to_int(x));
}
template <class V>
KORCH_INLINE V load_i64(const int64_t* p) {
  float lanes[Types<V>::lanes];
  for (int i = 0; i < Types<V>::lanes; ++i) lanes[i] = (float)p[i];
  return load<V>(lanes);
}

// The first n elements only, 0 <= n <= lanes; other lanes hold zero, and other memory is not touched.
#define KORCH_PARTIAL(name, Element)                              \
  template <class V>                                              \
  KORCH_INLINE V load_##name##_partial(const Element* p, int n) { \
    Element lanes[Types<V>::lanes] = {};                          \
    for (int i = 0; i < Types<V>::lanes; ++i)                     \
      if (i < n) lanes[i] = p[i];                                 \
    return load_##name<V>(lanes);                                 \
  }
#define KORCH_PARTIAL_STORE(name, Element)                               \
  template <class V>                                                     \
  KORCH_INLINE void store_##name##_partial(Element* p, V x, int n) {     \
    Element lanes[Types<V>::lanes];                                      \
    store_##name(lanes, x);                                              \
    for (int i = 0; i < Types<V>::lanes; ++i)                            \
      if (i < n) p[i] = lanes[i];                                        \
  }
KORCH_PARTIAL(f16, uint16_t)
KORCH_PARTIAL_STORE(f16, uint16_t)
KORCH_PARTIAL(bf16, uint16_t)
KORCH_PARTIAL_STORE(bf16, uint16_t)
KORCH_PARTIAL(i32, int32_t)
KORCH_PARTIAL_STORE(i32, int32_t)
KORCH_PARTIAL(i64, int64_t)
#undef KORCH_PARTIAL
#undef KORCH_PARTIAL_STORE

// 1 where the mask is set, else 0.
KORCH_INLINE float mask_to_float(bool mask) { return mask ? 1.0f : 0.0f; }
KORCH_INLINE vf mask_to_float(vi mask) { return select(mask, broadcast<vf>(1.0f), vf{}); }

// ---- functions of the C library ------------------------------------------------------------------------------------
//
// What models use rarely: one call for each lane. For double everything is one.

#define KORCH_LIBRARY_FUNCTION(name)                                                 \
  KORCH_INLINE float name##_(float x) { return __builtin_##name##f(x); }             \
  KORCH_INLINE double name##_(double x) { return __builtin_##name(x); }              \
  KORCH_INLINE vf name##_(vf x) {                                                    \
    vf y;                                                                            \
    for (int i = 0; i < kLanes; ++i) y[i] = __builtin_##name##f(x[i]);               \
    return y;                                                                        \
  }
KORCH_LIBRARY_FUNCTION(acos)
KORCH_LIBRARY_FUNCTION(acosh)
KORCH_LIBRARY_FUNCTION(asin)
KORCH_LIBRARY_FUNCTION(asinh)
KORCH_LIBRARY_FUNCTION(atan)
KORCH_LIBRARY_FUNCTION(atanh)
KORCH_LIBRARY_FUNCTION(cosh)
KORCH_LIBRARY_FUNCTION(sinh)
KORCH_LIBRARY_FUNCTION(tan)
#undef KORCH_LIBRARY_FUNCTION

// The remainder with the sign of the dividend, and with that of the divisor.
KORCH_INLINE float fmod_(float x, float y) { return __builtin_fmodf(x, y); }
KORCH_INLINE double fmod_(double x, double y) { return __builtin_fmod(x, y); }
KORCH_INLINE vf fmod_(vf x, vf y) {
  vf r;
  for (int i = 0; i < kLanes; ++i) r[i] = __builtin_fmodf(x[i], y[i]);
  return r;
}
template <class V>
KORCH_INLINE V mod_(V x, V y) {
  V r = fmod_(x, y);
  return select(and_(r != 0.0f, xor_(r > 0.0f, y > 0.0f)), r + y, r);
}

KORCH_INLINE double abs_(double x) { return __builtin_fabs(x); }
KORCH_INLINE double ceil_(double x) { return __builtin_ceil(x); }
KORCH_INLINE double cos_(double x) { return __builtin_cos(x); }
KORCH_INLINE double erf_(double x) { return __builtin_erf(x); }
KORCH_INLINE double exp_(double x) { return __builtin_exp(x); }
KORCH_INLINE double floor_(double x) { return __builtin_floor(x); }
KORCH_INLINE double log_(double x) { return __builtin_log(x); }
KORCH_INLINE double neg(double x) { return -x; }
KORCH_INLINE double pow_(double x, double y) { return __builtin_pow(x, y); }
KORCH_INLINE double reciprocal_(double x) { return 1.0 / x; }
KORCH_INLINE double round_(double x) { return __builtin_rint(x); }
KORCH_INLINE double sign_(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x + 0.0; }
KORCH_INLINE double sin_(double x) { return __builtin_sin(x); }
KORCH_INLINE double sqrt_(double x) { return __builtin_sqrt(x); }
KORCH_INLINE double tanh_(double x) { return __builtin_tanh(x); }
KORCH_INLINE double sigmoid_(double x) {
  double e = __builtin_exp(-__builtin_fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
KORCH_INLINE double softplus_(double x) {
  return (x > 0 ? x : x != x ? x : 0.0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x)));
}
KORCH_INLINE double vmax(double a, double b) { return a != a ? a : a > b ? a : b; }
KORCH_INLINE double vmin(double a, double b) { return a != a ? a : a < b ? a : b; }
KORCH_INLINE double at_least(double x, double bound) { return bound > x ? bound : x; }
KORCH_INLINE double at_most(double x, double bound) { return bound < x ? bound : x; }

// ---- lanes ---------------------------------------------------------------------------------------------------------

// f(0), f(1), ... in the lanes: elements that do not lie side by side.
template <class V, class F>
KORCH_INLINE V lanes(F f) {
  float x[Types<V>::lanes];
  for (int i = 0; i < Types<V>::lanes; ++i) x[i] = f(i);
  return load<V>(x);
}
template <class V, class F>
KORCH_INLINE Mask<V> lane_mask(F f) {
  uint8_t x[Types<V>::lanes];
  for (int i = 0; i < Types<V>::lanes; ++i) x[i] = f(i) ? 1 : 0;
  return load_mask<V>(x);
}

// Calls f(i, x) for every lane i and its value x.
template <class V, class F>
KORCH_INLINE void spread(V v, F f) {
  float x[Types<V>::lanes];
  store(x, v);
  for (int i = 0; i < Types<V>::lanes; ++i) f(i, x[i]);
}
template <class V, class F>
KORCH_INLINE void spread_mask(Mask<V> mask, F f) {
  uint8_t x[Types<V>::lanes];
  store_mask(x, mask);
  for (int i = 0; i < Types<V>::lanes; ++i) f(i, x[i]);
}

// A condition that is the same in all lanes, as a mask.
template <class V>
KORCH_INLINE Mask<V> mask_of(bool condition) {
  if constexpr (Types<V>::lanes == 1) {
    return condition;
  } else {
    return vi{} - (int32_t)condition;
  }
}
template <class V>
KORCH_INLINE vi mask_of(vi mask) {
  return mask;
}

struct Add {
  template <class V>
  KORCH_INLINE V of(V a, V b) {
    return a + b;
  }
};
struct Multiply {
  template <class V>
  KORCH_INLINE V of(V a, V b) {
    return a * b;
  }
};
struct Largest {
  template <class V>
  KORCH_INLINE V of(V a, V b) {
    return vmax(a, b);
  }
};
struct Smallest {
  template <class V>
  KORCH_INLINE V of(V a, V b) {
    return vmin(a, b);
  }
};

// All lanes joined, in pairs.
template <class Op, int Width = kLanes / 2>
KORCH_INLINE float across_lanes(vf v) {
  if constexpr (Width == 0) {
    return v[0];
  } else {
    return across_lanes<Op, Width / 2>(Op::of(v, rotated<Width>(v, Lanes{})));
  }
}

// The same for as many vectors as there are lanes: lane i of the result is vector i's. `square` is overwritten. Pairs of
// vectors become one that holds half of the work of both, and so on.
template <class Op, int Step = 1>
KORCH_INLINE vf across_rows(vf (&square)[kLanes]) {
  if constexpr (Step < kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i += 2 * Step) {
      exchange<Step>(square[i], square[i + Step], Lanes{});
      square[i] = Op::of(square[i], square[i + Step]);
    }
    return across_rows<Op, 2 * Step>(square);
  } else {
    return square[0];
  }
}
template <class Op>
KORCH_INLINE float across_rows(vf (&row)[1]) {
  return across_lanes<Op>(row[0]);
}

// ---- integers ------------------------------------------------------------------------------------------------------

// Rounded towards minus infinity; `by` is positive.
KORCH_INLINE int64_t floor_div(int64_t a, int64_t by) { return a >= 0 ? a / by : -((by - 1 - a) / by); }
KORCH_INLINE int64_t floor_mod(int64_t a, int64_t by) { return a - by * floor_div(a, by); }

}  // namespace korch

#include "korch_integers.h"


#undef KORCH_VECTOR_BYTES
#endif
