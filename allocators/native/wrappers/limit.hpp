// wrappers/limit.hpp: limits an allocator's reserved bytes.
// SPDX-License-Identifier: Apache-2.0
//
// For the inner allocator, the device appears to be full: a call that would raise its reserved
// bytes above the limit is refused before it reaches the device. The allocator then behaves as on a
// full device (a smaller segment, a trim, a failed request). It still sees the capacity of the
// whole device. So bfc, for example, which requests 10% less after each refusal, may leave the last
// 10% of the limit unused.
#pragma once

#include <array>

#include "core/text.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class Limit final : public Wrapper, public TakesOver {
 public:
  static constexpr std::array<Option, 1> kOptions = {
      {{"bytes", OptionType::kBytes, "", "the most bytes reserved at any time"}}};
  static constexpr WrapperInfo wrapper = {
      .name = "limit",
      .summary = "makes the device refuse memory beyond a limit of reserved bytes",
      .options = kOptions,
  };

  Limit(Device& device, Options const& options, MakeInner const& make_inner)
      : Wrapper(device, make_inner), bytes_(limit_of(options)) {}

  bool adopt(std::vector<HeldSegment> const& layout) override {
    auto* const inside = dynamic_cast<TakesOver*>(&inner());
    return take_over(layout, [&] { return inside != nullptr && inside->adopt(layout); });
  }

 private:
  static Size limit_of(Options const& options) {
    if (!options.given("bytes")) options.reject("bytes", "must be given, as in limit:bytes=8GiB");
    return options.bytes("bytes");
  }

  // Nothing is reserved before the first request, so the difference is never negative.
  Size do_room() const override { return bytes_ - counted().reserved.current; }

  void do_check() const override {
    Wrapper::do_check();
    require(counted().reserved.peak <= bytes_, "reserved bytes never exceed the limit");
  }

  std::string do_summary() const override {
    std::string const inside = Wrapper::do_summary();
    return "limit: " + human_bytes(bytes_) + " of reserved bytes" +
           (inside.empty() ? "" : "\n" + inside);
  }

  Size bytes_;
};

}  // namespace allocbench
