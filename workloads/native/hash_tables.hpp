// hash_tables.hpp: hashes of keys that files contain, and tables of integers that use them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace allocbench {

__extension__ using Wide = unsigned __int128;

// Hashes depend on random numbers that each process draws. Nobody can write a file whose keys
// collide, with which a table would take quadratic time. Results must not depend on the hashes.
class KeyedHash {
 public:
  using is_transparent = void;

  // One multiplication would leave keys at equal distances, such as addresses, in clusters.
  std::size_t operator()(std::uint64_t key) const { return mixed(mixed(key)); }

  // The value of a polynomial at a random place, modulo a prime. Its coefficients are the length
  // and the parts of the text, so two texts rarely have the same value.
  std::size_t operator()(std::string_view text) const {
    auto const& [square, cube, fourth] = drawn_.powers;
    std::uint64_t hash = text.size();
    for (; text.size() > 4 * kPart; text.remove_prefix(4 * kPart))  // as four turns of the other
      hash = reduced(Wide{hash} * fourth + Wide{part(text, 0)} * cube +
                     Wide{part(text, kPart)} * square + Wide{part(text, 2 * kPart)} * drawn_.place +
                     part(text, 3 * kPart));
    for (; !text.empty(); text.remove_prefix(std::min(kPart, text.size()))) {
      std::uint64_t last = 0;
      std::memcpy(&last, text.data(), std::min(kPart, text.size()));
      hash = reduced(Wide{hash} * drawn_.place + last);
    }
    return hash;
  }

 private:
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  static constexpr std::size_t kPart = 7;  // bytes; their numbers are below the prime

  std::uint64_t mixed(std::uint64_t number) const {
    Wide const product = Wide{number ^ drawn_.mask} * drawn_.factor;
    return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
  }

  // Seven bytes, of at least eight that follow `at`: one load is faster than several.
  static std::uint64_t part(std::string_view text, std::size_t at) {
    std::uint64_t number = 0;
    std::memcpy(&number, text.data() + at, sizeof number);
    return number & ((std::uint64_t{1} << 8 * kPart) - 1);
  }
  // A number below 2^125 modulo the prime.
  static std::uint64_t reduced(Wide number) {
    std::uint64_t const sum =
        (static_cast<std::uint64_t>(number) & kPrime) + static_cast<std::uint64_t>(number >> 61);
    std::uint64_t const rest = (sum & kPrime) + (sum >> 61);
    return rest >= kPrime ? rest - kPrime : rest;
  }

  struct Numbers {
    std::uint64_t mask, factor, place;
    std::array<std::uint64_t, 3> powers;  // of the place: its square, cube and fourth power
  };
  static Numbers const& drawn() {
    static Numbers const numbers = [] {
      std::random_device random;
      std::uniform_int_distribution<std::uint64_t> any, below(1 << 20, kPrime - 1);
      std::uint64_t const place = below(random), square = reduced(Wide{place} * place);
      return Numbers{any(random),
                     any(random) | 1,
                     place,
                     {square, reduced(Wide{square} * place), reduced(Wide{square} * square)}};
    }();
    return numbers;
  }

  Numbers drawn_ = drawn();
};

// The slots of a table with linear probing, at most half full; their number is a power of two. A
// Slot has a `key` and `used()`.
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
