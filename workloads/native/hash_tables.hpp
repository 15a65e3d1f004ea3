// hash_tables.hpp: hash tables of integers with linear probing, at most half full.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "keyed_hash.hpp"

namespace allocbench {

// The slots of a table; their number is a power of two. A Slot has a `key` and `used()`.
template <class Slot>
class Probed {
 public:
  // The slot of a key, or the unused one where it belongs.
  Slot& find(std::uint64_t key) {
    std::size_t at = home(key);
    while (slots_[at].used() && slots_[at].key != key) {
      at = after(at);
      ++search_steps_;
    }
    return slots_[at];
  }

  // Makes an unused slot, which `find` returned, a used one. Returns where it is now.
  Slot& add(Slot& slot, Slot const& value) {
    slot = value;
    if (2 * ++count_ <= slots_.size()) return slot;
    rehash(2 * slots_.size());
    return find(value.key);
  }

  // Removes a used slot and moves those after it that would no longer be found.
  void remove(Slot& slot) {
    auto hole = static_cast<std::size_t>(&slot - slots_.data());
    for (std::size_t at = after(hole); slots_[at].used(); at = after(at)) {
      std::size_t const probes = (at - home(slots_[at].key)) & (slots_.size() - 1);
      if (probes < ((at - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --count_;
  }

  std::vector<Slot> const& slots() const { return slots_; }  // the unused ones too
  std::size_t count() const { return count_; }

  // Slots visited so far, beyond the first one of each search.
  std::uint64_t search_steps() const { return search_steps_; }

 private:
  static constexpr std::size_t kFewest = 64;

  std::size_t home(std::uint64_t key) const {
    return hash_(key) >> (64 - std::countr_zero(slots_.size()));
  }
  std::size_t after(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }

  void rehash(std::size_t size) {
    std::vector<Slot> old(size);
    old.swap(slots_);
    for (Slot const& slot : old)
      if (slot.used()) find(slot.key) = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kFewest);
  KeyedHash hash_;
  std::size_t count_ = 0;
  std::uint64_t search_steps_ = 0;
};

// How often each number above 0 occurred.
class Counts {
 public:
  struct Slot {
    std::uint64_t key = 0;
    std::uint64_t count = 0;
    bool used() const { return count > 0; }
  };

  void add(std::uint64_t number) {
    Slot& slot = slots_.find(number);
    if (slot.used())
      ++slot.count;
    else
      slots_.add(slot, {number, 1});
  }
  std::uint64_t of(std::uint64_t number) { return slots_.find(number).count; }

  // Calls `visit(number, count)` for each number, in any order.
  template <class Visit>
  void each(Visit visit) const {
    for (Slot const& slot : slots_.slots())
      if (slot.used()) visit(slot.key, slot.count);
  }

  std::size_t distinct() const { return slots_.count(); }

 private:
  Probed<Slot> slots_;
};

}  // namespace allocbench
