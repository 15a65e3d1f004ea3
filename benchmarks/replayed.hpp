// replayed.hpp: what the programs that replay a trace without allocbench share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "locks.hpp"

using Address = std::uint64_t;

// Open addressing with linear probing; a removal moves later entries back (Knuth, The Art of
// Computer Programming 3, 6.4, Algorithm R). At most half full.
class Table {
 public:
  explicit Table(std::size_t most)
      : slots_(std::bit_ceil(2 * most + 2)), shift_(65 - std::bit_width(slots_.size())) {}

  void insert(Address address, std::uint64_t value) {
    std::size_t slot = home(address);
    while (slots_[slot].address != 0) slot = next(slot);
    slots_[slot] = {address, value};
  }

  // Returns the value. An address that is not there ends the program.
  std::uint64_t erase(Address address) {
    if (address == 0) std::abort();
    std::size_t slot = home(address);
    while (slots_[slot].address != address) {
      if (slots_[slot].address == 0) std::abort();
      slot = next(slot);
    }
    std::uint64_t const value = slots_[slot].value;
    for (std::size_t later = next(slot); slots_[later].address != 0; later = next(later)) {
      std::size_t const wanted = home(slots_[later].address);
      bool const between =
          slot <= later ? slot < wanted && wanted <= later : slot < wanted || wanted <= later;
      if (between) continue;
      slots_[slot] = slots_[later];
      slot = later;
    }
    slots_[slot].address = 0;
    return value;
  }

 private:
  struct Slot {
    Address address = 0;
    std::uint64_t value = 0;
  };

  std::size_t home(Address address) const {
    return static_cast<std::size_t>(address * 0x9E3779B97F4A7C15u >> shift_);
  }
  std::size_t next(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;
  int shift_;
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Address allocate(std::uint64_t size) = 0;
  virtual void free(Address address) = 0;
};

struct Event {
  bool alloc;
  std::uint32_t id;
  std::uint64_t size;
};

struct Trace {
  std::vector<Event> events;
  std::size_t ids = 0;
  std::size_t most = 0;  // live blocks
};

inline Trace read(char const* path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line != "op,id,size") {
    std::cerr << path << ": not a trace with the heading op,id,size\n";
    std::exit(2);
  }
  Trace trace;
  std::size_t live = 0;
  while (std::getline(file, line)) {
    char* end = nullptr;
    auto const id = static_cast<std::uint32_t>(std::strtoul(line.c_str() + 2, &end, 10));
    bool const alloc = line[0] == 'a';
    trace.events.push_back({alloc, id, alloc ? std::strtoull(end + 1, nullptr, 10) : 0});
    live = alloc ? live + 1 : live - 1;
    trace.most = std::max(trace.most, live);
    trace.ids = std::max<std::size_t>(trace.ids, id + 1);
  }
  return trace;
}

// Nanoseconds per event of the fastest pass.
inline double replay(Trace const& trace, Allocator& allocator, long passes) {
  std::vector<Address> addresses(trace.ids);
  double least = std::numeric_limits<double>::infinity();
  for (; passes > 0; --passes) {
    auto const begin = std::chrono::steady_clock::now();
    for (Event const& event : trace.events) {
      if (event.alloc)
        addresses[event.id] = allocator.allocate(event.size);
      else
        allocator.free(std::exchange(addresses[event.id], 0));
    }
    std::chrono::duration<double, std::nano> const spent = std::chrono::steady_clock::now() - begin;
    least = std::min(least, spent.count() / static_cast<double>(trace.events.size()));
    for (Address& address : addresses)
      if (address != 0) allocator.free(std::exchange(address, 0));
  }
  return least;
}

// Calls make(lock) with the lock of this name.
template <class Make>
std::unique_ptr<Allocator> with_lock(std::string const& name, Make make) {
  if (name == "mutex") return make.template operator()<std::mutex>();
  if (name == "spin") return make.template operator()<SpinLock>();
  if (name == "none") return make.template operator()<NoLock>();
  std::cerr << name << ": the lock must be mutex, spin or none\n";
  std::exit(2);
}
