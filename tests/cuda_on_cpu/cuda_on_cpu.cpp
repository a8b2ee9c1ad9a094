// Runs CUDA threads as fibers. See cuda_on_cpu.h. This file is compiled without instrumentation: what it does between
// two fibers is no business of the sanitizers, which are told of every switch.
//
//   CUDA_ON_CPU_ORDER=forward | reverse | random:SEED | warp:SEED
// says which runnable thread goes on. `warp` lets one randomly chosen warp run ahead as far as barriers allow. Blocks
// are run in the same kind of order.
#include "cuda_on_cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if CUDA_ON_CPU_ADDRESS
#include <sanitizer/common_interface_defs.h>
#endif
#if CUDA_ON_CPU_THREAD
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

namespace cuda_on_cpu {

uint3 thread_index, block_index;
dim3 block_extents, grid_extents;

namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr size_t kStack = 256 << 10;
constexpr size_t kMostStatic = 48 << 10;
constexpr size_t kMostShared = 227 << 10;  // for a function that asks for it

[[noreturn]] void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "cuda_on_cpu: block (%u,%u,%u): ", block_index.x, block_index.y, block_index.z);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  fflush(stderr);
  abort();
}

// ---- contexts ------------------------------------------------------------------------------------------------------

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t saved;
#endif
  char* stack = nullptr;
  size_t size = 0;
  void* sanitizer_fiber = nullptr;
};

#if defined(__x86_64__)
extern "C" void cuda_on_cpu_switch(void** save, void* to);
extern "C" void cuda_on_cpu_start();
asm(R"(
.text
.globl cuda_on_cpu_switch
.hidden cuda_on_cpu_switch
.type cuda_on_cpu_switch,@function
cuda_on_cpu_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp,(%rdi); mov %rsi,%rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
.globl cuda_on_cpu_start
.hidden cuda_on_cpu_start
.type cuda_on_cpu_start,@function
cuda_on_cpu_start:
  xor %ebp,%ebp; and $-16,%rsp; call cuda_on_cpu_fiber; ud2
)");
#endif
extern "C" __attribute__((visibility("hidden"))) void cuda_on_cpu_fiber();

char* new_stack() {
  void* p = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) die("no memory for stacks");
  mprotect(p, 4096, PROT_NONE);
  return static_cast<char*>(p);
}

void arm(Context& context) {
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(context.stack + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(cuda_on_cpu_start);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
#else
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = context.stack;
  context.saved.uc_stack.ss_size = kStack;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, cuda_on_cpu_fiber, 0);
#endif
  context.size = kStack;
}

Context scheduler;

// `last`: `from` never runs again.
void switch_to(Context& from, Context& to, bool last = false) {
#if CUDA_ON_CPU_ADDRESS
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, to.stack, to.size);
#endif
#if CUDA_ON_CPU_THREAD
  __tsan_switch_to_fiber(to.sanitizer_fiber, 1);  // 1: the switch orders nothing
#endif
  (void)last;
#if defined(__x86_64__)
  cuda_on_cpu_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.saved, &to.saved);
#endif
#if CUDA_ON_CPU_ADDRESS
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// ---- the block that runs -------------------------------------------------------------------------------------------

enum class State { kReady, kAtBarrier, kAtShuffle, kDone };

struct Thread {
  State state = State::kReady;
  int line = 0;    // where it waits
  int parity = 0;  // of the number of its shuffles
  Context context;
};

struct Warp {
  unsigned wanted = 0, arrived = 0;
  int line = 0;
  uint64_t slots[2][kWarp];
  uint64_t priority = 0;
};

struct Block {
  const Launch* what = nullptr;
  int threads = 0, done = 0, waiting = 0, current = 0;
  Thread thread[kMostThreads];
  Warp warp[kMostThreads / kWarp];
  std::vector<int> ready;
  std::vector<char*> stacks;
  char ordered[2], started, ended;  // what the sanitizer orders threads by
  int parity = 0;          // of the number of barriers
  int line = 0;            // of the barrier that threads wait at
};
Block block;

enum class Order { kForward, kReverse, kRandom, kWarp };
Order order;
uint64_t random_state;

uint64_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state >> 11;
}

void read_order() {
  const char* text = getenv("CUDA_ON_CPU_ORDER");
  char kind = text ? *text : 'f';
  bool reverse = text && text[1] == 'e';
  order = kind == 'f' ? Order::kForward : kind == 'w' ? Order::kWarp : reverse ? Order::kReverse : Order::kRandom;
  const char* seed = text ? strchr(text, ':') : nullptr;
  random_state = 88172645463325252ull + (seed ? strtoull(seed + 1, nullptr, 10) * 2654435761u : 0);
  for (int i = 0; i < 8; ++i) random_number();
}

// Takes the thread that goes on next out of the ready ones.
int take_ready() {
  auto& ready = block.ready;
  size_t place = 0;
  switch (order) {
    case Order::kForward:
      place = ready.size() - 1;  // the list is kept in reverse
      break;
    case Order::kReverse:
      for (size_t i = 1; i < ready.size(); ++i)
        if (ready[i] > ready[place]) place = i;
      break;
    case Order::kRandom:
      place = random_number() % ready.size();
      break;
    case Order::kWarp:
      for (size_t i = 1; i < ready.size(); ++i)
        if (block.warp[ready[i] / kWarp].priority < block.warp[ready[place] / kWarp].priority) place = i;
      break;
  }
  int taken = ready[place];
  std::swap(ready[place], ready.back());
  ready.pop_back();
  return taken;
}

void make_ready(int i) {
  block.thread[i].state = State::kReady;
  block.ready.push_back(i);
}

[[noreturn]] void explain_standstill() {
  int barriers = 0, shuffles = 0, barrier_line = 0, shuffle_line = 0;
  for (int i = 0; i < block.threads; ++i) {
    const Thread& t = block.thread[i];
    if (t.state == State::kAtBarrier) ++barriers, barrier_line = t.line;
    if (t.state == State::kAtShuffle) ++shuffles, shuffle_line = t.line;
  }
  die("divergence: %d threads wait at a barrier (line %d), %d at a shuffle (line %d), %d have returned", barriers,
      barrier_line, shuffles, shuffle_line, block.done);
}

// Lets other threads run until this one is ready again.
void wait() { switch_to(block.thread[block.current].context, scheduler); }

void resume(int i) {
  Thread& t = block.thread[i];
  if (!t.context.stack) {
    if (block.stacks.empty()) block.stacks.push_back(new_stack());
    t.context.stack = block.stacks.back();
    block.stacks.pop_back();
    arm(t.context);
  }
  block.current = i;
  unsigned x = block_extents.x, y = block_extents.y;
  thread_index = {i % x, i / x % y, i / (x * y)};
  switch_to(scheduler, t.context);
#if !CUDA_ON_CPU_THREAD
  // To the thread sanitizer two threads that use a stack one after the other would race.
  if (t.state == State::kDone) block.stacks.push_back(t.context.stack), t.context.stack = nullptr;
#endif
}

void start_threads() {
  block.done = block.waiting = block.parity = 0;
  block.ready.clear();
  for (Warp& w : block.warp) w.arrived = 0, w.priority = random_number();
#if CUDA_ON_CPU_THREAD
  __tsan_release(&block.started);
#endif
  for (int i = block.threads; i-- > 0;) {
    Thread& t = block.thread[i];
    t.parity = 0;
#if CUDA_ON_CPU_THREAD
    // Made once, as that takes long: a fiber stands for the same thread of every block.
    if (!t.context.sanitizer_fiber) t.context.sanitizer_fiber = __tsan_create_fiber(0);
#endif
    make_ready(i);
  }
}

void end_threads() {
#if CUDA_ON_CPU_THREAD
  __tsan_acquire(&block.ended);
  for (int i = 0; i < block.threads; ++i) {
    Thread& t = block.thread[i];
    block.stacks.push_back(t.context.stack);
    t.context.stack = nullptr;
  }
#endif
}

// By hand: the sanitizers watch memset.
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void poison(char* begin, char* end) {
  for (volatile char* p = begin; p < end; ++p) *p = (char)0xff;
}

void run_block(uint64_t number) {
  block_index = {unsigned(number % grid_extents.x), unsigned(number / grid_extents.x % grid_extents.y),
                 unsigned(number / grid_extents.x / grid_extents.y)};
  poison(block.what->static_begin, block.what->static_end);
  start_threads();
  while (block.done < block.threads) {
    if (block.ready.empty()) explain_standstill();
    resume(take_ready());
  }
  end_threads();
}

void check_extents(const Launch& what) {
  auto product = [](dim3 d) { return uint64_t(d.x) * d.y * d.z; };
  if (product(what.block) < 1 || product(what.block) > kMostThreads || what.block.z > 64) die("bad extents of a block");
  if (product(what.grid) < 1 || what.grid.x > 0x7fffffff || what.grid.y > 65535 || what.grid.z > 65535)
    die("bad extents of the grid");
#if !CUDA_ON_CPU_ADDRESS  // which puts space between variables
  const size_t fixed = what.static_end - what.static_begin, shared = fixed + what.dynamic_bytes;
  if (fixed > kMostStatic || shared > kMostShared) die("%zu bytes of shared memory", shared);
#endif
}

}  // namespace

extern "C" void cuda_on_cpu_fiber() {
#if CUDA_ON_CPU_ADDRESS
  const void* bottom = nullptr;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &scheduler.size);
  scheduler.stack = static_cast<char*>(const_cast<void*>(bottom));
#endif
#if CUDA_ON_CPU_THREAD
  __tsan_acquire(&block.started);  // after all of the block before
#endif
  block.what->run(block.what->argument);
#if CUDA_ON_CPU_THREAD
  __tsan_release(&block.ended);
#endif
  Thread& t = block.thread[block.current];
  t.state = State::kDone;
  ++block.done;
  switch_to(t.context, scheduler, true);
  __builtin_unreachable();
}

void barrier(int line) {
  Thread& t = block.thread[block.current];
  if (block.waiting && block.line != line)
    die("threads wait at different barriers, lines %d and %d", block.line, line);
  block.line = line;
  t.state = State::kAtBarrier;
  t.line = line;
  char* object = &block.ordered[block.parity];
  (void)object;
#if CUDA_ON_CPU_THREAD
  __tsan_release(object);
#endif
  if (++block.waiting == block.threads) {
    block.waiting = 0;
    block.parity ^= 1;
    for (Warp& w : block.warp) w.priority = random_number();
    for (int i = block.threads; i-- > 0;) make_ready(i);
  }
  wait();
#if CUDA_ON_CPU_THREAD
  __tsan_acquire(object);
#endif
}

int lane() { return block.current % kWarp; }

uint64_t exchange(unsigned mask, uint64_t deposit, int source, int line) {
  int mine = block.current, first = mine / kWarp * kWarp;
  Thread& t = block.thread[mine];
  Warp& w = block.warp[mine / kWarp];
  int lanes = std::min(kWarp, block.threads - first);
  unsigned present = lanes == kWarp ? ~0u : (1u << lanes) - 1;
  if ((mask & present) != mask || !(mask >> (mine - first) & 1)) die("line %d: bad mask %08x", line, mask);
  if (source < 0 || source >= kWarp || !(mask >> source & 1)) die("line %d: lane %d takes no part", line, source);
  if (w.arrived && (w.wanted != mask || w.line != line))
    die("lanes of a warp are at different shuffles, lines %d and %d", w.line, line);
  w.wanted = mask, w.line = line;
  w.slots[t.parity][mine - first] = deposit;
  w.arrived |= 1u << (mine - first);
  int parity = t.parity;
  t.parity ^= 1;
  t.state = State::kAtShuffle;
  t.line = line;
  if (w.arrived == w.wanted) {
    w.arrived = 0;
    for (int i = kWarp; i-- > 0;)
      if (mask >> i & 1) make_ready(first + i);
  }
  wait();
  return w.slots[parity][source];
}

void launch(const Launch& what) {
  check_extents(what);
  read_order();
  grid_extents = what.grid;
  block_extents = what.block;
  block.what = &what;
  block.threads = what.block.x * what.block.y * what.block.z;
#if CUDA_ON_CPU_THREAD
  scheduler.sanitizer_fiber = __tsan_get_current_fiber();
#endif
  uint64_t blocks = uint64_t(what.grid.x) * what.grid.y * what.grid.z;
  std::vector<unsigned> numbers(blocks);
  for (uint64_t i = 0; i < blocks; ++i) numbers[i] = unsigned(order == Order::kReverse ? blocks - 1 - i : i);
  if (order == Order::kRandom || order == Order::kWarp)
    for (uint64_t i = blocks; i > 1; --i) std::swap(numbers[i - 1], numbers[random_number() % i]);
  for (unsigned number : numbers) run_block(number);
}

}  // namespace cuda_on_cpu
