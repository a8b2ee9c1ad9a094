// Integer arithmetic of generated kernels, the same on every target: it never traps, and wraps around.
//
// Included where KORCH_INLINE, the integer types and pow_ are defined.
#ifndef KORCH_INTEGERS_H
#define KORCH_INTEGERS_H

namespace korch {

// Sums, differences and products wrap around: their low bits are those of unsigned 64-bit arithmetic.
template <class T>
KORCH_INLINE T int_add(T a, T b) {
  return (T)((uint64_t)a + (uint64_t)b);
}
template <class T>
KORCH_INLINE T int_sub(T a, T b) {
  return (T)((uint64_t)a - (uint64_t)b);
}
template <class T>
KORCH_INLINE T int_mul(T a, T b) {
  return (T)((uint64_t)a * (uint64_t)b);
}
template <class T>
KORCH_INLINE T int_neg(T a) {
  return (T)(0 - (uint64_t)a);
}
template <class T>
constexpr bool kIsSigned = (T)-1 < (T)1;

// Division by zero and the one overflow give zero and the dividend instead of a trap.
template <class T>
KORCH_INLINE T int_div(T a, T b) {
  if (b == 0) return 0;
  if (kIsSigned<T> && b == (T)-1) return int_neg(a);
  return (T)(a / b);
}
// The remainder with the sign of the dividend, and with that of the divisor; zero for a divisor of zero.
template <class T>
KORCH_INLINE T int_fmod(T a, T b) {
  if (b == 0 || (kIsSigned<T> && b == (T)-1)) return 0;
  return (T)(a % b);
}
template <class T>
KORCH_INLINE T int_mod(T a, T b) {
  T r = int_fmod(a, b);
  return r != 0 && (r > 0) != (b > 0) ? int_add(r, b) : r;
}
// Computed in double, then truncated.
template <class T>
KORCH_INLINE T int_pow(T a, T b) {
  return (T)pow_((double)a, (double)b);
}
template <class T>
KORCH_INLINE T int_abs(T a) {
  return a > 0 ? a : int_neg(a);
}
template <class T>
KORCH_INLINE T int_max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
KORCH_INLINE T int_min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
KORCH_INLINE T int_sign(T a) {
  return (T)((a > 0) - !(a >= 0));
}
template <class T>
KORCH_INLINE T int_bit_and(T a, T b) {
  return (T)(a & b);
}
template <class T>
KORCH_INLINE T int_bit_or(T a, T b) {
  return (T)(a | b);
}
template <class T>
KORCH_INLINE T int_bit_xor(T a, T b) {
  return (T)(a ^ b);
}
template <class T>
KORCH_INLINE T int_bit_not(T a) {
  return (T)~a;
}
// A shift by all bits or more leaves nothing.
template <class T>
KORCH_INLINE T int_shift_left(T a, T b) {
  return (uint64_t)b >= 8 * sizeof(T) ? (T)0 : (T)((uint64_t)a << b);
}
template <class T>
KORCH_INLINE T int_shift_right(T a, T b) {
  return (uint64_t)b >= 8 * sizeof(T) ? (T)0 : (T)(a >> b);
}

}  // namespace korch

#endif
