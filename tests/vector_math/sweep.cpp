// Compares a function of korch_vector.h with the C library in double, over a range of float32 bit patterns.
//
//     sweep NAME FIRST LAST STRIDE ABSOLUTE
//
// takes the patterns FIRST, FIRST + STRIDE, ... below LAST, and special numbers besides, one element at a time and in
// vectors. Errors up to ABSOLUTE do not count. It prints the worst error in units of the last place of the right result
// (of 2^-149 where that is denormal), the pattern of the operand with that error, and the number of results that are
// wrong in kind (NaN or not, the sign of zero) with the pattern of one of these. Functions of two operands get the
// second one from the pattern of the first.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "korch_vector.h"

namespace {

constexpr int kBlock = 4096;
static_assert(kBlock % korch::kLanes == 0, "whole vectors");

// Scrambles bits, so that neighbouring patterns get unlike second operands.
uint32_t scrambled(uint32_t u) {
  u = (u ^ (u >> 16)) * 0x7feb352du;
  u = (u ^ (u >> 15)) * 0x846ca68bu;
  return u ^ (u >> 16);
}

// An exponent for pow: what models use, a whole number, one whose power a float can hold, or any float.
float exponent_for(float x) {
  static const float kUsual[] = {0.5f, -0.5f, 2.0f, 3.0f, -1.0f, -2.0f, 0.25f, 0.75f,
                                 1.5f, 2.4f,  2.2f, 0.33333334f, 0.41666666f, 0.0f, 1.0f, -3.0f};
  const uint32_t u = scrambled(korch::bits(x));
  const float unit = (float)(scrambled(u) >> 8) * (1.0f / 16777216.0f);
  switch (u & 3u) {
    case 0: return kUsual[(u >> 2) & 15u];
    case 1: return (float)(int)((u >> 2) % 17u) - 8.0f;
    case 2: return (float)((300.0 * unit - 160.0) / log2(fabs((double)x)));
    default: return korch::from_bits(scrambled(u));
  }
}

// A divisor: any float, one of a size that is usual, or now and then a special one.
float divisor_for(float x) {
  static const float kSpecial[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, 1e-40f, 3.4e38f};
  const uint32_t u = scrambled(korch::bits(x) ^ 0x9e3779b9u);
  if ((u & 127u) == 0) return kSpecial[(u >> 7) & 7u];
  return u & 1u ? korch::from_bits(scrambled(u)) : korch::from_bits(0x3d000000u + (scrambled(u) >> 5));
}

// The nearest number with so many bits and no exponent below `least`; infinite from 2^(most + 1) on.
double rounded_to(double x, int bits, int least, int most) {
  if (x == 0 || !isfinite(x)) return x;
  const int exponent = ilogb(x) > least ? ilogb(x) : least;
  const double quantum = ldexp(1.0, exponent - bits + 1);
  const double result = nearbyint(x / quantum) * quantum;
  return fabs(result) < ldexp(1.0, most + 1) ? result : copysign(INFINITY, x);
}

double sigmoid(double x) { return (x < 0 ? exp(x) : 1.0) / (1.0 + exp(-fabs(x))); }
double softplus(double x) { return (x > 0 ? x : x != x ? x : 0.0) + log1p(exp(-fabs(x))); }

struct Function {
  const char* name;
  void (*run)(const float* x, float* scalar, float* vector);
  double (*reference)(float x);
};

template <class F>
void run(const float* x, float* scalar, float* vector, F f) {
  for (int i = 0; i < kBlock; ++i) scalar[i] = f(x[i]);
  for (int i = 0; i < kBlock; i += korch::kLanes) korch::store(vector + i, f(korch::load<korch::vf>(x + i)));
}

#define TESTED(name, expression, reference)                                       \
  {#name,                                                                         \
   [](const float* in, float* scalar, float* vector) {                            \
     run(in, scalar, vector, [](auto x) __attribute__((always_inline)) {          \
       using V = decltype(x);                                                     \
       (void)sizeof(V);                                                           \
       return expression;                                                         \
     });                                                                          \
   },                                                                             \
   [](float operand) -> double {                                                  \
     const double x = operand;                                                    \
     return reference;                                                            \
   }}

// What `of` says for each lane.
template <class V, class F>
KORCH_INLINE V each(V x, F of) {
  float in[korch::Types<V>::lanes];
  korch::store(in, x);
  return korch::lanes<V>([&](int i) { return of(in[i]); });
}

// Every lane has a divisor of its own here; kernels have one for many numbers.
template <class V, class F>
KORCH_INLINE V quotients(V x, F divide) {
  float in[korch::Types<V>::lanes];
  korch::store(in, x);
  return korch::lanes<V>([&](int i) {
    const korch::Divisor d = korch::divisor(divisor_for(in[i]));
    if constexpr (korch::Types<V>::lanes == 1) {
      return divide(in[i], d);
    } else {
      return divide(korch::broadcast<V>(in[i]), d)[i];
    }
  });
}

using namespace korch;

const Function kFunctions[] = {
    TESTED(exp, exp_(x), ::exp(x)),
    TESTED(sigmoid, sigmoid_(x), sigmoid(x)),
    TESTED(tanh, tanh_(x), ::tanh(x)),
    TESTED(log, log_(x), ::log(x)),
    TESTED(softplus, softplus_(x), softplus(x)),
    TESTED(tanh_softplus, tanh_softplus_(x), ::tanh(softplus(x))),
    TESTED(erf, erf_(x), ::erf(x)),
    TESTED(sin, sin_(x), ::sin(x)),
    TESTED(cos, cos_(x), ::cos(x)),
    TESTED(pow, pow_(x, each(x, exponent_for)), ::pow(x, exponent_for(operand))),
    TESTED(sqrt, sqrt_(x), ::sqrt(x)),
    TESTED(rsqrt, reciprocal_(sqrt_(x)), 1.0 / ::sqrt(x)),
    TESTED(reciprocal, reciprocal_(x), 1.0 / x),
    TESTED(divided, quotients(x, [](auto a, Divisor d) { return divided(a, d); }), x / divisor_for(operand)),
    TESTED(divided_once, quotients(x, [](auto a, Divisor d) { return divided_once(a, d); }), x / divisor_for(operand)),
    TESTED(abs, abs_(x), ::fabs(x)),
    TESTED(neg, neg(x), -x),
    TESTED(sign, sign_(x), x > 0 ? 1.0 : x < 0 ? -1.0 : x + 0.0),
    TESTED(floor, floor_(x), ::floor(x)),
    TESTED(ceil, ceil_(x), ::ceil(x)),
    TESTED(round, round_(x), ::rint(x)),
    TESTED(round_f16, round_f16(x), rounded_to(x, 11, -14, 15)),
    TESTED(round_bf16, round_bf16(x), rounded_to(x, 8, -126, 127)),
    TESTED(acos, acos_(x), ::acos(x)),
    TESTED(acosh, acosh_(x), ::acosh(x)),
    TESTED(asin, asin_(x), ::asin(x)),
    TESTED(asinh, asinh_(x), ::asinh(x)),
    TESTED(atan, atan_(x), ::atan(x)),
    TESTED(atanh, atanh_(x), ::atanh(x)),
    TESTED(cosh, cosh_(x), ::cosh(x)),
    TESTED(sinh, sinh_(x), ::sinh(x)),
    TESTED(tan, tan_(x), ::tan(x)),
};

// What was found so far.
struct Worst {
  double error = 0;
  uint32_t at = 0;
  uint64_t wrong = 0;
  uint32_t wrong_at = 0;
};

// Infinity counts as the number after the largest one.
double bounded(double x) { return fabs(x) < 0x1p128 ? x : copysign(0x1p128, x); }

void judge(float x, float got, double want, double absolute, Worst& worst) {
  const bool wrong_zero = got == 0 && signbit(got) != signbit(want);
  if ((got != got) != (want != want) || (wrong_zero && want == want)) {
    ++worst.wrong;
    worst.wrong_at = bits(x);
    return;
  }
  if (want != want) return;
  const double right = bounded(want), off = fabs(bounded(got) - right);
  if (off <= absolute) return;
  const double size = fabs(right) < 0x1p-126 ? 0x1p-126 : fabs(right) < 0x1p128 ? fabs(right) : 0x1p127;
  // The power of two at or below it has its exponent and nothing else.
  const double power = from_bits(bits(size) & 0x7ff0000000000000u);
  const double error = off / power * 0x1p23;
  if (error > worst.error) {
    worst.error = error;
    worst.at = bits(x);
  }
}

void sweep(const Function& function, const float* x, int count, double absolute, Worst& worst) {
  float scalar[kBlock], vector[kBlock];
  function.run(x, scalar, vector);
  for (int i = 0; i < count; ++i) {
    const double want = function.reference(x[i]);
    judge(x[i], scalar[i], want, absolute, worst);
    if (bits(vector[i]) != bits(scalar[i])) judge(x[i], vector[i], want, absolute, worst);
  }
}

const uint32_t kSpecial[] = {
    0x00000000u, 0x00000001u, 0x007fffffu, 0x00800000u, 0x00800001u, 0x33000000u, 0x3effffffu, 0x3f000000u, 0x3f000001u,
    0x3f7fffffu, 0x3f800000u, 0x3f800001u, 0x3fc00000u, 0x40200000u, 0x41200000u, 0x42ae0000u, 0x42b17217u, 0x42b17218u,
    0x42b17219u, 0x42cff1b4u, 0x42cff1b5u, 0x42cff1b6u, 0x461c4000u, 0x461c4001u, 0x477fefffu, 0x477ff000u, 0x4afffffeu,
    0x4affffffu, 0x4b000000u, 0x4b000001u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu,
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) return 2;
  const uint64_t first = strtoull(arguments[2], nullptr, 0), last = strtoull(arguments[3], nullptr, 0);
  const uint64_t stride = strtoull(arguments[4], nullptr, 0);
  const double absolute = strtod(arguments[5], nullptr);
  for (const Function& function : kFunctions) {
    if (strcmp(function.name, arguments[1]) != 0) continue;
    Worst worst;
    static float x[kBlock];
    int filled = 0;
    for (uint32_t u : kSpecial) {
      x[filled++] = from_bits(u);
      x[filled++] = from_bits(u | 0x80000000u);
    }
    for (uint64_t u = first; u < last; u += stride) {
      x[filled++] = from_bits((uint32_t)u);
      if (filled == kBlock) {
        sweep(function, x, filled, absolute, worst);
        filled = 0;
      }
    }
    sweep(function, x, filled, absolute, worst);
    printf("%.9g %u %llu %u\n", worst.error, worst.at, (unsigned long long)worst.wrong, worst.wrong_at);
    return 0;
  }
  return 2;
}
