// parts/pages.hpp: the pages of a reservation: which are mapped, and which hold blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// Pages are numbered from the start of the reservation. One is idle when it is mapped and no block
// touches it. Every call takes O(pages) steps in the pages that it is about.
class Pages {
 public:
  struct Run {
    std::size_t first = 0, count = 0;
    std::size_t end() const { return first + count; }
  };

  // A block comes to, or goes from, pages.
  void enter(Run run) {
    hold(run);
    for (std::size_t at = run.first; at < run.end(); ++at)
      idle_ -= pages_[at].blocks++ == 0 && pages_[at].mapped;
  }
  void leave(Run run) {
    for (std::size_t at = run.first; at < run.end(); ++at)
      if (--pages_[at].blocks == 0 && pages_[at].mapped) add_idle(at);
  }

  void set_mapped(Run run, bool mapped) {
    hold(run);
    for (std::size_t at = run.first; at < run.end(); ++at) {
      idle_ -= is_idle(at);
      mapped_ -= pages_[at].mapped;
      pages_[at].mapped = mapped;
      mapped_ += mapped;
      if (is_idle(at)) add_idle(at);
    }
  }

  // The first run of pages, among those of `in`, that are mapped or that are not; count 0 when
  // there is none.
  Run first_run(Run in, bool mapped) const {
    std::size_t first = in.first;
    while (first < in.end() && is_mapped(first) != mapped) ++first;
    std::size_t last = first;
    while (last < in.end() && is_mapped(last) == mapped) ++last;
    return {first, last - first};
  }

  // The highest run of idle pages, at most so many; count 0 when there is none.
  Run idle_run(std::size_t most) {
    std::size_t last = idle_ == 0 ? 0 : idle_end_;
    while (last > 0 && !is_idle(last - 1)) --last;
    idle_end_ = last;
    std::size_t first = last;
    while (first > 0 && last - first < most && is_idle(first - 1)) --first;
    return {first, last - first};
  }

  Run all() const { return {0, pages_.size()}; }  // that ever mattered
  std::size_t mapped() const { return mapped_; }
  std::size_t idle() const { return idle_; }
  std::uint32_t blocks(std::size_t page) const {
    return page < pages_.size() ? pages_[page].blocks : 0;
  }
  bool is_mapped(std::size_t page) const { return page < pages_.size() && pages_[page].mapped; }
  bool is_idle(std::size_t page) const { return is_mapped(page) && blocks(page) == 0; }

 private:
  struct Page {
    std::uint32_t blocks : 31 = 0;  // that touch it
    std::uint32_t mapped : 1 = 0;
  };

  void add_idle(std::size_t page) {
    ++idle_;
    idle_end_ = std::max(idle_end_, page + 1);
  }
  void hold(Run run) {
    if (pages_.size() < run.end()) pages_.resize(std::max(run.end(), 2 * pages_.size()));
  }

  std::vector<Page> pages_;
  std::size_t mapped_ = 0, idle_ = 0;
  std::size_t idle_end_ = 0;  // no page from here on is idle
};

}  // namespace allocbench
