// Copies memory with a fixed number of threads that wait for work by spinning, as those of ONNX Runtime do.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace {

struct Pool {
  std::atomic<unsigned> round{0};
  std::atomic<int> left{0};
  char* target = nullptr;
  const char* source = nullptr;
  size_t bytes = 0;
  int threads;

  explicit Pool(int count) : threads(count) {
    for (int i = 1; i < count; ++i) std::thread([this, i] { work(i); }).detach();
  }

  void part(int i) const {
    const size_t begin = bytes * i / threads, end = bytes * (i + 1) / threads;
    std::memcpy(target + begin, source + begin, end - begin);
  }

  void work(int i) {
    for (unsigned seen = 0;;) {
      while (round.load(std::memory_order_acquire) == seen) {}
      ++seen;
      part(i);
      left.fetch_sub(1, std::memory_order_release);
    }
  }
};

}  // namespace

extern "C" void copy_bytes(void* target, const void* source, size_t bytes, int threads) {
  static Pool* pool = new Pool(threads);
  pool->target = static_cast<char*>(target);
  pool->source = static_cast<const char*>(source);
  pool->bytes = bytes;
  pool->left.store(threads - 1, std::memory_order_relaxed);
  pool->round.fetch_add(1, std::memory_order_release);
  pool->part(0);
  while (pool->left.load(std::memory_order_acquire) > 0) {}
}
