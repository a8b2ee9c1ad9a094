// Runs launches in a process of its own: launcher LIBRARY < job > results
//
// The job: lines
//   buffer BYTES given | fresh         fresh buffers are filled with 0xff; at most one element longer would be seen
//   launch FUNCTION gx gy gz bx by bz shared COUNT buffer...
//   data
// and then the bytes of the given buffers. The results are the bytes of the fresh ones.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

using Function = void (*)(unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void**);

struct Buffer {
  void* memory;
  size_t bytes;
  bool given;
};
struct Call {
  std::string function;
  unsigned extents[7];
  std::vector<int> buffers;
};

[[noreturn]] static void fail(const char* what) {
  fprintf(stderr, "launcher: %s\n", what);
  exit(2);
}

int main(int count, char** arguments) {
  if (count != 2) fail("give one library");
  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) fail(dlerror());
  std::vector<Buffer> buffers;
  std::vector<Call> calls;
  char word[256];
  while (scanf("%255s", word) == 1 && strcmp(word, "data") != 0) {
    if (!strcmp(word, "buffer")) {
      Buffer b{};
      if (scanf("%zu %255s", &b.bytes, word) != 2) fail("bad buffer");
      b.given = !strcmp(word, "given");
      // Exactly as long as it is said to be, and aligned no better than promised.
      if (posix_memalign(&b.memory, 16, b.bytes ? b.bytes : 1)) fail("no memory");
      memset(b.memory, 0xff, b.bytes);
      buffers.push_back(b);
    } else {
      Call c;
      int used = 0;
      if (scanf("%255s", word) != 1) fail("bad launch");
      c.function = std::string("cuda_on_cpu_launch_") + word;
      for (unsigned& e : c.extents)
        if (scanf("%u", &e) != 1) fail("bad extents");
      if (scanf("%d", &used) != 1) fail("bad count");
      c.buffers.resize(used);
      for (int& b : c.buffers)
        if (scanf("%d", &b) != 1) fail("bad argument");
      calls.push_back(c);
    }
  }
  getchar();
  for (Buffer& b : buffers)
    if (b.given && fread(b.memory, 1, b.bytes, stdin) != b.bytes) fail("too little data");
  for (const Call& c : calls) {
    auto function = reinterpret_cast<Function>(dlsym(library, c.function.c_str()));
    if (!function) fail(dlerror());
    std::vector<void*> parameters;
    for (int b : c.buffers) parameters.push_back(&buffers[b].memory);
    const unsigned* e = c.extents;
    function(e[0], e[1], e[2], e[3], e[4], e[5], e[6], parameters.data());
  }
  for (Buffer& b : buffers) {
    if (!b.given) fwrite(b.memory, 1, b.bytes, stdout);
    free(b.memory);
  }
  return 0;
}
