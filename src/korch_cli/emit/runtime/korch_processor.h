// Whether a processor, and the system that runs on it, can run the code of a library.
//
// Compiled for any processor of the architecture: it runs before that is known.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace korch {

// An extension of the instruction set: the bit that says it is there. On x86-64 `word` and `part` are a leaf and a
// subleaf of cpuid, and `number` is one of its four registers; on aarch64 `word` is an entry of the auxiliary vector.
struct Feature {
  const char* name;
  uint32_t word;
  uint32_t part;
  int number;
  int bit;
};

#if defined(__x86_64__)
// Whether the system keeps the registers of these extensions: all that `mask` names in XCR0.
inline bool keeps(uint32_t mask) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}
#endif

inline bool begins(const char* text, const char* with) {
  while (*with != '\0') {
    if (*text++ != *with++) return false;
  }
  return true;
}

inline bool has(const Feature& feature) {
#if defined(__x86_64__)
  unsigned found[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(feature.word, feature.part, &found[0], &found[1], &found[2], &found[3])) return false;
  if (!(found[feature.number] >> feature.bit & 1)) return false;
  if (begins(feature.name, "avx512")) return keeps(0xe6);
  return !begins(feature.name, "avx") || keeps(0x6);
#elif defined(__aarch64__) && defined(__linux__)
  return getauxval(feature.word) >> feature.bit & 1;
#else
  (void)feature;
  return true;  // no way to ask: the library was built here
#endif
}

// The name of the first of `count` features that is not there; nullptr where all are.
inline const char* first_missing(const Feature* features, int count) {
  for (int i = 0; i < count; ++i) {
    if (!has(features[i])) return features[i].name;
  }
  return nullptr;
}

}  // namespace korch
