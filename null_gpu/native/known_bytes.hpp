// native/known_bytes.hpp: the contents of ranges of device memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// A range that is set to one value takes no memory for its bytes.
class KnownBytes {
 public:
  bool empty() const { return ranges_.empty(); }
  void clear();
  void forget(Address begin, Size size);
  void write(Address to, char const* bytes, Size size);
  void fill(Address to, char value, Size size);
  // Whether any byte of the range is known.
  bool overlaps(Address begin, Size size) const;
  // Forgets what was written to the range before `last_write` had this value.
  void forget_before(Address begin, Size size, std::uint64_t write);
  // Forgets the range that has this address, and those that follow it without a gap.
  void forget_run(Address address);
  // The number of writes so far.
  static std::uint64_t last_write();
  // Copies the known bytes of the range to `to`, of those that were written after this number of
  // writes; returns how many there were.
  Size read(Address from, char* to, Size size, std::uint64_t after = 0) const;
  // Writes these parts of a range elsewhere, and forgets the others there.
  void copy(Address to, Address from, Size size, std::uint64_t after = 0);
  // Forgets the ranges that were written first, until the others take at most so much memory.
  void limit(Size most);

 private:
  struct Range {
    Size size;
    std::string bytes;  // empty: all `size` bytes are `fill`
    char fill;
    std::uint64_t written;
  };
  using Ranges = std::map<Address, Range>;

  static Range part(Range const& range, Address offset, Size size);
  Ranges::const_iterator first_at(Address begin) const;
  void put(Address to, Range range);
  void erase(Ranges::const_iterator entry);

  Ranges ranges_;
  std::set<std::pair<std::uint64_t, Address>> order_;  // of the ranges that have bytes
  Size stored_ = 0;
};

}  // namespace allocbench::null_gpu
