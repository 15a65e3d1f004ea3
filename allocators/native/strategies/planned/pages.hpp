// strategies/planned/pages.hpp: tracks which pages of a reservation are mapped and have blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// Pages are numbered from the start of the reservation. A page is idle if it is mapped and no block
// touches it. Every call takes one step per 64 pages of its run.
class Pages {
 public:
  struct Run {
    std::size_t first = 0, count = 0;
    std::size_t end() const { return first + count; }
  };

  // Marks pages as touched by a block; no block may touch them yet.
  void touch(Run run) {
    for_each_word(run, [this](Word& word, Bits part, std::size_t pages) {
      word.touched |= part;
      idle_ -= count(word.mapped, part, pages);
    });
  }
  // Marks pages as no longer touched by any block.
  void untouch(Run run) {
    for_each_word(run, [this](Word& word, Bits part, std::size_t pages) {
      word.touched &= ~part;
      idle_ += count(word.mapped, part, pages);
    });
    idle_end_ = std::max(idle_end_, run.end());
  }
  bool touched(Run run) const {
    return !all_words(run, [](Word const& word, Bits part) { return (word.touched & part) == 0; });
  }
  bool mapped(Run run) const {
    return all_words(run, [](Word const& word, Bits part) { return (word.mapped & part) == part; });
  }

  void set_mapped(Run run, bool mapped) {
    for_each_word(run, [this, mapped](Word& word, Bits part, std::size_t pages) {
      mapped_ -= count(word.mapped, part, pages);
      idle_ -= count(word.idle_pages(), part, pages);
      word.mapped = mapped ? word.mapped | part : word.mapped & ~part;
      mapped_ += count(word.mapped, part, pages);
      idle_ += count(word.idle_pages(), part, pages);
    });
    if (mapped) idle_end_ = std::max(idle_end_, run.end());
  }

  // The first run of mapped (or unmapped) pages within `in`; count 0 if there is none.
  Run first_run(Run in, bool mapped) const {
    auto const wanted = mapped ? &Word::mapped_pages : &Word::unmapped_pages;
    auto const other = mapped ? &Word::unmapped_pages : &Word::mapped_pages;
    std::size_t const begin = first(in, wanted);
    return {begin, first({begin, in.end() - begin}, other) - begin};
  }

  // The highest run of at most `most` idle pages; count 0 if there is none.
  Run idle_run(std::size_t most) {
    if (idle_ == 0) return {};
    std::size_t word = (idle_end_ - 1) / kBits;
    while (words_[word].idle_pages() == 0) --word;
    idle_end_ = (word + 1) * kBits - std::countl_zero(words_[word].idle_pages());
    std::size_t begin = idle_end_;
    while (begin > 0 && idle_end_ - begin < most && is_idle(begin - 1)) --begin;
    return {begin, idle_end_ - begin};
  }

  Run all() const { return {0, words_.size() * kBits}; }  // all pages used so far
  std::size_t mapped() const { return mapped_; }
  std::size_t idle() const { return idle_; }

 private:
  using Bits = std::uint64_t;  // one bit per page
  static constexpr std::size_t kBits = 64;

  struct Word {
    Bits mapped = 0, touched = 0;
    Bits mapped_pages() const { return mapped; }
    Bits unmapped_pages() const { return ~mapped; }
    Bits idle_pages() const { return mapped & ~touched; }
  };

  // The number of pages of a part, which has `pages`, in the set. Mostly, all or none are.
  static std::size_t count(Bits set, Bits part, std::size_t pages) {
    if ((set & part) == part) return pages;
    return (set & part) == 0 ? 0 : static_cast<std::size_t>(std::popcount(set & part));
  }

  // Calls `visit` with each word of the run, the part of the word, and its number of pages, until
  // `visit` returns false.
  template <class Visit>
  static bool visit_words(Run run, Visit visit) {
    if (run.count == 0) return true;
    if ((run.first ^ (run.end() - 1)) < kBits) [[likely]]
      return visit(run.first / kBits, ~Bits{0} >> (kBits - run.count) << run.first % kBits,
                   run.count);
    for (std::size_t page = run.first; page < run.end();) {
      std::size_t const pages = std::min(run.end() - page, kBits - page % kBits);
      if (!visit(page / kBits, ~Bits{0} >> (kBits - pages) << page % kBits, pages)) return false;
      page += pages;
    }
    return true;
  }
  template <class Change>
  void for_each_word(Run run, Change change) {
    if (all().count < run.end()) words_.resize(std::max(run.end() / kBits + 1, 2 * words_.size()));
    visit_words(run, [&](std::size_t word, Bits part, std::size_t pages) {
      change(words_[word], part, pages);
      return true;
    });
  }
  template <class Test>
  bool all_words(Run run, Test test) const {
    return visit_words(run, [&](std::size_t word, Bits part, std::size_t) {
      return test(word < words_.size() ? words_[word] : Word{}, part);
    });
  }

  // The first page of the run for which `of` has a bit set, or the end of the run.
  std::size_t first(Run run, Bits (Word::*of)() const) const {
    for (std::size_t page = run.first; page < run.end(); page = (page / kBits + 1) * kBits) {
      Word const word = page / kBits < words_.size() ? words_[page / kBits] : Word{};
      if (Bits const bits = (word.*of)() >> page % kBits)
        return std::min(run.end(), page + static_cast<std::size_t>(std::countr_zero(bits)));
    }
    return run.end();
  }

  bool is_idle(std::size_t page) const {
    return (words_[page / kBits].idle_pages() >> page % kBits & 1) != 0;
  }

  std::vector<Word> words_;
  std::size_t mapped_ = 0, idle_ = 0;
  std::size_t idle_end_ = 0;  // no page at or after this one is idle
};

}  // namespace allocbench
