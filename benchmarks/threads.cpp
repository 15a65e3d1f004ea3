// threads.cpp: critical sections per second of one thread and of several, without an allocator.
// SPDX-License-Identifier: Apache-2.0
//
// Each thread enters a critical section again and again. A section reads and writes four cache
// lines, each chosen by the value of the one before, as an allocator follows its records. All
// threads share the lines: 1,000 blocks of an allocator have about 1,000 lines.
//
//   c++ -O3 -std=c++20 -I ../allocators/native threads.cpp ../allocators/native/core/lock.cpp
//   ./a.out mutex|spin|biased|none THREADS LINES SECONDS
//
// `biased` is the lock of the allocators here. `none` is for one thread. Prints millions of
// sections per second of all threads together, and the lowest and the highest number of a thread
// relative to their mean: `per_second=31.5 lowest=0.93 highest=1.04`.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/lock.hpp"
#include "locks.hpp"

namespace {

struct alignas(64) Line {
  std::uint64_t value = 0;
};

struct Job {
  std::size_t threads;
  std::size_t lines;  // a power of two
  double seconds;
};

template <class Lock>
std::vector<double> sections(Job const& job) {
  Lock lock;
  std::vector<Line> lines(job.lines);
  std::atomic<bool> stop = false;
  std::vector<double> counts(job.threads);
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < job.threads; ++number)
    threads.emplace_back([&, number] {
      std::uint64_t random = number;
      std::uint64_t count = 0;
      for (; !stop.load(std::memory_order_relaxed); ++count) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        lock.lock();
        std::uint64_t place = random >> 32;
        for (int step = 0; step < 4; ++step) {
          std::uint64_t& value = lines[place & (job.lines - 1)].value;
          place = place / 2 + value;
          value += step;
        }
        lock.unlock();
      }
      counts[number] = static_cast<double>(count);
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(job.seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return counts;
}

std::vector<double> measure(std::string const& lock, Job const& job) {
  if (lock == "mutex") return sections<std::mutex>(job);
  if (lock == "spin") return sections<SpinLock>(job);
  if (lock == "biased") return sections<allocbench::Lock>(job);
  if (lock == "none" && job.threads == 1) return sections<NoLock>(job);
  std::cerr << lock << ": the lock must be mutex, spin or biased, or none for one thread\n";
  std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
  Job job{};
  if (count == 5)
    job = {std::strtoull(arguments[2], nullptr, 10), std::strtoull(arguments[3], nullptr, 10),
           std::strtod(arguments[4], nullptr)};
  if (job.threads == 0 || !std::has_single_bit(job.lines) || !(job.seconds > 0)) {
    std::cerr << "usage: threads mutex|spin|biased|none THREADS LINES SECONDS\n"
                 "LINES must be a power of two\n";
    return 2;
  }
  std::vector<double> const counts = measure(arguments[1], job);
  double const all = std::reduce(counts.begin(), counts.end());
  double const mean = all / static_cast<double>(counts.size());
  double const processor = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  std::cout << "per_second=" << all / job.seconds / 1e6 << " cpu_ns=" << 1e9 * processor / all
            << " lowest=" << *std::ranges::min_element(counts) / mean
            << " highest=" << *std::ranges::max_element(counts) / mean << '\n';
}
