// misses.cpp: the time of an access to memory that depends on the one before.
// SPDX-License-Identifier: Apache-2.0
//
// Follows a random cycle through all cache lines of an array, so that each access waits for the one
// before, as the look-up of a block waits for the entry of its address.
//
//   c++ -O2 -std=c++20 misses.cpp -o misses
//   misses MIB huge|small
//
// Prints the minimum of five rounds: `ns_per_access min=151.6`.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

struct alignas(64) Line {
  std::size_t next;
};

}  // namespace

int main(int count, char** arguments) {
  std::string const pages = count == 3 ? arguments[2] : "";
  std::size_t const mib = count == 3 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  if (mib == 0 || (pages != "huge" && pages != "small")) {
    std::cerr << "usage: misses MIB huge|small\n";
    return 2;
  }
  std::size_t const bytes = mib << 20;
  auto* const lines = static_cast<Line*>(::operator new(bytes, std::align_val_t{kPage}));
  ::madvise(lines, bytes, pages == "huge" ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

  std::vector<std::size_t> order(bytes / sizeof(Line));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  for (std::size_t n = 0; n < order.size(); ++n)
    lines[order[n]].next = order[(n + 1) % order.size()];

  double least = std::numeric_limits<double>::infinity();
  std::size_t line = order[0];
  for (int round = 0; round < 5; ++round) {
    auto const begin = std::chrono::steady_clock::now();
    for (std::size_t n = 0; n < order.size(); ++n) line = lines[line].next;
    std::chrono::duration<double, std::nano> const spent = std::chrono::steady_clock::now() - begin;
    least = std::min(least, spent.count() / static_cast<double>(order.size()));
  }
  if (line != order[0]) return 1;  // the cycle has all lines
  std::cout << "ns_per_access min=" << least << '\n';
  ::operator delete(lines, std::align_val_t{kPage});
}
