// gpu/pages.hpp: the pages of a card that segments take.
// SPDX-License-Identifier: Apache-2.0
//
// As measured on an H100 (benchmarks/results/gpu): a segment takes whole pages of 2 MiB, and those
// of up to half a page share pages, at multiples of 512 bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "core/types.hpp"
#include "gpu/ranges.hpp"

namespace allocbench {

inline constexpr Size kPage = 2 * kMiB;

struct Range {
  Address begin = 0;
  Size size = 0;
};

// Not thread-safe.
class Pages {
 public:
  // Takes whole pages of the card, which follow one another; returns 0 if there are too few.
  using Take = std::function<Address(Size)>;
  using Give = std::function<void(Range)>;  // returns what one call of Take took

  explicit Pages(Size page = kPage) : page_(page) {}

  // A segment, or 0.
  Address allocate(Size size, Take const& take);
  // False if no segment begins at the address.
  bool release(Address segment, Give const& give);
  // The requested bytes of the segment that contains an address; size 0 if none does.
  Range around(Address address) const;
  std::map<Address, Size> const& segments() const { return segments_; }  // requested bytes

 private:
  struct SharedPage {
    Ranges holes;
    std::size_t live = 0;
  };

  bool shares(Size size) const { return size <= page_ / 2; }
  Address allocate_shared(Size size, Take const& take);

  Size page_;
  std::map<Address, Size> segments_;
  std::map<Address, SharedPage> shared_;
};

}  // namespace allocbench
