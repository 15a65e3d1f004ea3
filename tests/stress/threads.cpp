// Threads that allocate through an entry point, and free what other threads allocated.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

namespace {

using Malloc = void* (*)(void* program, std::size_t size, int device);
using Free = void (*)(void* program, void* block, int device);
using UseStream = void (*)(void* stream);

constexpr std::uintptr_t kThreadBits = 255;  // blocks are aligned to 256 bytes

struct Counts {
  std::uint64_t served, refused, freed, freed_of_others;
};

// Each slot has the address of a block and, in the low bits, the thread that allocated it; or 0.
using Slots = std::array<std::atomic<std::uintptr_t>, 512>;

struct Worker {
  void* program;
  Malloc malloc;
  Free free;
  Slots& slots;
  std::uintptr_t number;
  std::uint64_t random;
  Counts counts = {};

  std::uint64_t draw() {  // xorshift64
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }

  void give_back(std::uintptr_t held) {
    if (held == 0) return;
    ++counts.freed;
    counts.freed_of_others += (held & kThreadBits) != number;
    free(program, reinterpret_cast<void*>(held & ~kThreadBits), 0);
  }

  // Empties a slot, or fills it. Each call of the allocator is an operation.
  void work(std::uint64_t operations) {
    while (counts.served + counts.refused + counts.freed < operations) {
      auto& slot = slots[draw() % slots.size()];
      if (std::uintptr_t const held = slot.exchange(0)) {
        give_back(held);
        continue;
      }
      std::size_t const size = 1 + draw() % (std::size_t{1} << (4 + draw() % 18));
      auto const block = reinterpret_cast<std::uintptr_t>(malloc(program, size, 0));
      ++(block == 0 ? counts.refused : counts.served);
      if (block != 0) give_back(slot.exchange(block | number));
    }
  }
};

}  // namespace

// Runs `threads` threads, at most 255, with at least `operations` calls each. Every other thread
// uses `stream`. All blocks are freed at the end.
extern "C" Counts stress(void* program, Malloc malloc, Free free, UseStream use, void* stream,
                         int threads, std::uint64_t operations) {
  Slots slots = {};
  std::vector<Worker> workers;
  for (int number = 1; number <= threads; ++number)
    workers.push_back({program, malloc, free, slots, static_cast<std::uintptr_t>(number),
                       0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(number)});
  std::latch all_started(threads);
  std::vector<std::thread> running;
  for (Worker& worker : workers)
    running.emplace_back([&worker, &all_started, operations, use, stream] {
      use(worker.number % 2 == 0 ? stream : nullptr);
      all_started.arrive_and_wait();
      worker.work(operations);
    });
  for (std::thread& thread : running) thread.join();
  for (auto& slot : slots) workers[0].give_back(slot);
  Counts sums = {};
  for (Worker const& worker : workers) {
    sums.served += worker.counts.served;
    sums.refused += worker.counts.refused;
    sums.freed += worker.counts.freed;
    sums.freed_of_others += worker.counts.freed_of_others;
  }
  return sums;
}
