// Runs one kernel on operands from a file, for processors that are emulated.
//
//     run_kernel NAME FILE
//
// FILE holds 64-bit numbers: how many operands and results there are, the size of each in bytes, how many parts of the
// kernel's units are to be run, and the first and the last unit of each; then the bytes of all operands and results,
// each at the next multiple of 64. What is left of the results takes their place in the file.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"  // entries: the names of kernels and their functions

namespace {

int64_t number(FILE* file) {
  int64_t value = 0;
  if (fread(&value, sizeof value, 1, file) != 1) exit(3);
  return value;
}

void skip_to_block(FILE* file) {
  if (fseek(file, (ftell(file) + 63) / 64 * 64, SEEK_SET) != 0) exit(3);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  FILE* file = fopen(arguments[2], "r+b");
  if (file == nullptr) return 3;
  const int64_t inputs = number(file), outputs = number(file), tensors = inputs + outputs;
  int64_t sizes[64], bounds[128], places[64];
  void* blocks[64];
  if (tensors > 64) return 3;
  for (int64_t i = 0; i < tensors; ++i) sizes[i] = number(file);
  const int64_t parts = number(file);
  if (parts > 64) return 3;
  for (int64_t i = 0; i < 2 * parts; ++i) bounds[i] = number(file);
  for (int64_t i = 0; i < tensors; ++i) {
    skip_to_block(file);
    places[i] = ftell(file);
    // One allocation each: what reads or writes beyond it may be caught.
    blocks[i] = malloc(sizes[i] > 0 ? (size_t)sizes[i] : 1);
    if (fread(blocks[i], 1, (size_t)sizes[i], file) != (size_t)sizes[i]) return 3;
  }
  for (const Entry& entry : entries) {
    if (strcmp(entry.name, arguments[1]) != 0) continue;
    for (int64_t i = 0; i < parts; ++i) {
      void* results[64];
      for (int64_t j = 0; j < outputs; ++j) results[j] = (char*)blocks[inputs + j] + kGuard;
      entry.run(blocks, results, bounds[2 * i], bounds[2 * i + 1]);
    }
    for (int64_t j = inputs; j < tensors; ++j) {
      if (fseek(file, places[j], SEEK_SET) != 0) return 3;
      if (fwrite(blocks[j], 1, (size_t)sizes[j], file) != (size_t)sizes[j]) return 3;
    }
    return fclose(file) == 0 ? 0 : 3;
  }
  return 2;
}
