// wrappers/check.hpp: every block handed out and every free, compared with a book of its own.
// SPDX-License-Identifier: Apache-2.0
//
// A free that is none is told apart: a double free, an address inside a live block, one that was
// never handed out. A block that the allocator should not have handed out (too small, over a live
// one, outside of the device's segments) is its defect, an InvariantViolation. check() also
// compares the book with the snapshot. What is live at the end is a leak.
//
// O(log n) per event for n live blocks, and memory for every address ever handed out.
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
    std::uint64_t request;  // how many requests came before its own, failed ones too
    std::uint64_t step;     // how many steps had begun
  };

  Check(Device& device, Options const&, MakeInner const& make_inner)
      : Wrapper(device, make_inner) {}

  std::vector<Live> live() const;  // in order of request

 private:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_step() override;
  void do_check() const override;

  void judge(Live const& granted) const;
  bool inside_a_segment(Block const& block) const;
  [[noreturn]] void defect(Live const& granted, std::string const& what) const;
  std::string bad_free(Address address) const;

  std::map<Address, Live> live_;
  std::unordered_map<Address, std::uint64_t> freed_;  // address -> the request that last had it
  std::uint64_t steps_ = 0;
};

}  // namespace allocbench
