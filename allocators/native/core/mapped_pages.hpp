// core/mapped_pages.hpp: the mapped pages of a reservation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace allocbench {

// Positions and counts are in granules (the granularity of the device) from the start of the
// reservation. A page consists of one or more granules.
class MappedPages {
 public:
  enum class State : std::uint8_t {
    kMapped,
    kUnreturned,  // unmapped by its owner, but the device failed to free it
  };
  struct Page {
    std::size_t first = 0;
    std::uint32_t count = 0;  // 0: no page
    State state = State::kMapped;
    std::size_t end() const { return first + count; }
  };

  // The first page that overlaps the granules [begin, end); its count is 0 if there is none.
  Page first(std::size_t begin, std::size_t end) const {
    end = std::min(end, granules_.size());
    while (begin < end && granules_[begin].count == 0) ++begin;
    if (begin >= end) return {};
    while (granules_[begin].count == kInside) --begin;
    return {begin, granules_[begin].count, granules_[begin].state};
  }

  void set(Page const& page) {
    if (granules_.size() < page.end()) granules_.resize(std::max(page.end(), 2 * granules_.size()));
    for (std::size_t granule = page.first + 1; granule < page.end(); ++granule)
      granules_[granule].count = kInside;
    granules_[page.first] = {page.count, page.state};
  }
  void erase(Page const& page) {
    for (std::size_t granule = page.first; granule < page.end(); ++granule) granules_[granule] = {};
  }

 private:
  static constexpr std::uint32_t kInside = ~std::uint32_t{0};

  struct Granule {
    std::uint32_t count = 0;  // granules of the page that begins here; kInside: inside a page
    State state = State::kMapped;
  };
  std::vector<Granule> granules_;
};

}  // namespace allocbench
