// core/mapped_pages.hpp: the pages of a reservation that have memory behind them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace allocbench {

// Everything is in granules, from the start of the reservation. A page is one granule or more.
class MappedPages {
 public:
  enum class State : std::uint8_t {
    kMapped,
    kUnreturned,  // given back by its owner, but not taken by the device
  };
  struct Page {
    std::size_t first = 0;
    std::uint32_t count = 0;  // 0: there is none
    State state = State::kMapped;
    std::size_t end() const { return first + count; }
  };

  // The first page with any of the granules from `begin` to before `end`; of count 0 when there is
  // none.
  Page first(std::size_t begin, std::size_t end) const {
    end = std::min(end, granules_.size());
    while (begin < end && granules_[begin].count == 0) ++begin;
    if (begin >= end) return {};
    while (granules_[begin].count == kInside) --begin;
    return {begin, granules_[begin].count, granules_[begin].state};
  }

  void set(Page const& page) {
    if (granules_.size() < page.end()) granules_.resize(std::max(page.end(), 2 * granules_.size()));
    for (std::size_t at = page.first + 1; at < page.end(); ++at) granules_[at].count = kInside;
    granules_[page.first] = {page.count, page.state};
  }
  void erase(Page const& page) {
    for (std::size_t at = page.first; at < page.end(); ++at) granules_[at] = {};
  }

 private:
  static constexpr std::uint32_t kInside = ~std::uint32_t{0};

  struct Granule {
    std::uint32_t count = 0;  // granules of the page that begins here; kInside: of one before
    State state = State::kMapped;
  };
  std::vector<Granule> granules_;
};

}  // namespace allocbench
