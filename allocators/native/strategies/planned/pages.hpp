// strategies/planned/pages.hpp: which pages of a reservation are mapped, and which hold blocks.
// blocks. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// Pages are numbered from the start of the reservation. One is idle when it is mapped and no block
// touches it. Every call takes one step for each 64 pages that it is about.
class Pages {
 public:
  struct Run {
    std::size_t first = 0, count = 0;
    std::size_t end() const { return first + count; }
  };

  // No block touched these pages, and now one does.
  void touch(Run run) {
    for_each_word(run, [this](Word& word, Bits part) {
      word.touched |= part;
      idle_ -= count(word.mapped & part);
    });
  }
  // Blocks touched each of these pages, and now none does.
  void leave(Run run) {
    for_each_word(run, [this](Word& word, Bits part) {
      word.touched &= ~part;
      idle_ += count(word.mapped & part);
    });
    idle_end_ = std::max(idle_end_, run.end());
  }
  bool touched(Run run) const { return first(run, &Word::touched_pages) != run.end(); }

  void set_mapped(Run run, bool mapped) {
    for_each_word(run, [this, mapped](Word& word, Bits part) {
      mapped_ -= count(word.mapped & part);
      idle_ -= count(word.idle_pages() & part);
      word.mapped = mapped ? word.mapped | part : word.mapped & ~part;
      mapped_ += count(word.mapped & part);
      idle_ += count(word.idle_pages() & part);
    });
    if (mapped) idle_end_ = std::max(idle_end_, run.end());
  }

  // The first run of pages, among those of `in`, that are mapped or that are not; count 0 when
  // there is none.
  Run first_run(Run in, bool mapped) const {
    auto const wanted = mapped ? &Word::mapped_pages : &Word::unmapped_pages;
    auto const other = mapped ? &Word::unmapped_pages : &Word::mapped_pages;
    std::size_t const begin = first(in, wanted);
    return {begin, first({begin, in.end() - begin}, other) - begin};
  }

  // The highest run of idle pages, at most so many; count 0 when there is none.
  Run idle_run(std::size_t most) {
    if (idle_ == 0) return {};
    std::size_t word = (idle_end_ - 1) / kBits;
    while (words_[word].idle_pages() == 0) --word;
    idle_end_ = (word + 1) * kBits - std::countl_zero(words_[word].idle_pages());
    std::size_t begin = idle_end_;
    while (begin > 0 && idle_end_ - begin < most && is_idle(begin - 1)) --begin;
    return {begin, idle_end_ - begin};
  }

  Run all() const { return {0, words_.size() * kBits}; }  // that ever mattered
  std::size_t mapped() const { return mapped_; }
  std::size_t idle() const { return idle_; }

 private:
  using Bits = std::uint64_t;  // one for each page
  static constexpr std::size_t kBits = 64;

  struct Word {
    Bits mapped = 0, touched = 0;
    Bits mapped_pages() const { return mapped; }
    Bits unmapped_pages() const { return ~mapped; }
    Bits touched_pages() const { return touched; }
    Bits idle_pages() const { return mapped & ~touched; }
  };

  static std::size_t count(Bits bits) { return static_cast<std::size_t>(std::popcount(bits)); }

  template <class Change>
  void for_each_word(Run run, Change change) {
    if (all().count < run.end()) words_.resize(std::max(run.end() / kBits + 1, 2 * words_.size()));
    for (std::size_t at = run.first; at < run.end(); at = (at / kBits + 1) * kBits) {
      std::size_t const pages = std::min(run.end() - at, kBits - at % kBits);
      change(words_[at / kBits], ~Bits{0} >> (kBits - pages) << at % kBits);
    }
  }

  // The first of these pages that is among `of` a word, or their end.
  std::size_t first(Run run, Bits (Word::*of)() const) const {
    for (std::size_t at = run.first; at < run.end(); at = (at / kBits + 1) * kBits) {
      Word const word = at / kBits < words_.size() ? words_[at / kBits] : Word{};
      if (Bits const found = (word.*of)() >> at % kBits)
        return std::min(run.end(), at + static_cast<std::size_t>(std::countr_zero(found)));
    }
    return run.end();
  }

  bool is_idle(std::size_t page) const {
    return (words_[page / kBits].idle_pages() >> page % kBits & 1) != 0;
  }

  std::vector<Word> words_;
  std::size_t mapped_ = 0, idle_ = 0;
  std::size_t idle_end_ = 0;  // no page from here on is idle
};

}  // namespace allocbench
