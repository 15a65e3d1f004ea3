// wrappers/check.hpp: checks every block and every free against a record of the live blocks.
// SPDX-License-Identifier: Apache-2.0
//
// An invalid free throws BadFree, whose message distinguishes a double free, an address inside a
// live block and an address that was never allocated. A bad block (too small, overlapping a live
// block, outside the device's segments) is a bug of the allocator and throws InvariantViolation.
// check() also compares the record with the snapshot. Blocks that are still live at the end are
// leaks.
//
// O(log n) per event for n live blocks. Uses memory for every address that was ever allocated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "wrappers/wrapper.hpp"

namespace allocbench {

class Check final : public Wrapper {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "check",
      .summary = "finds double frees, frees of unknown addresses, misplaced blocks, and leaks",
  };

  struct Live {
    Block block;
    Stream stream;
    std::uint64_t request;  // number of requests before this one, including failed ones
    std::uint64_t step;     // number of steps begun before this request
  };

  Check(Device& device, Options const&, MakeInner const& make_inner)
      : Wrapper(device, make_inner) {}

  std::vector<Live> live() const;  // in order of request

 private:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_step() override;
  void do_check() const override;

  void check_placement(Live const& live) const;
  bool inside_a_segment(Block const& block) const;
  [[noreturn]] void report(Live const& live, std::string const& defect) const;
  std::string bad_free(Address address) const;

  std::map<Address, Live> live_;
  std::unordered_map<Address, std::uint64_t> freed_;  // address -> the last request that had it
  std::uint64_t steps_ = 0;
};

}  // namespace allocbench
