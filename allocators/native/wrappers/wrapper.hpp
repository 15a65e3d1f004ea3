// wrappers/wrapper.hpp: one allocator around another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/allocator.hpp"
#include "core/errors.hpp"

namespace allocbench {

// What a wrapper says about itself, as data beside its code.
struct WrapperInfo {
  std::string_view name;
  std::string_view summary;
  std::span<Option const> options = {};
};

using MakeInner = std::function<std::unique_ptr<Allocator>()>;

// Every call goes on to the allocator inside, and a wrapper overrides those that it observes. Each
// layer keeps statistics of its own, which agree: reserved bytes are counted by all layers at once.
class Wrapper : public Allocator {
 public:
  Wrapper(Device& device, MakeInner const& make_inner) : Allocator(device), inner_(make_inner()) {
    enclose(*inner_);
  }
  // The strategy's: a wrapper is none.
  StrategyInfo const& info() const override { return inner_->info(); }
  // To be looked at alone: a call on it would pass the wrapper by.
  Allocator& inner() const { return *inner_; }

 protected:
  Block do_allocate(Size requested, Stream stream) override {
    return inner_->try_allocate(requested, stream);
  }
  Block do_deallocate(Address address, Stream stream) override {
    return inner_->try_deallocate(address, stream);
  }
  void do_trim() override { inner_->trim(); }
  void do_step() override { inner_->step(); }
  void do_check() const override {
    inner_->check();
    Stats const inside = inner_->stats();
    require(inside.requested.current == counted().requested.current &&
                inside.allocated.current == counted().allocated.current &&
                inside.reserved.current == counted().reserved.current,
            "a wrapper and the allocator inside it count the same bytes");
  }
  std::string do_summary() const override { return inner_->summary(); }

 private:
  bool do_forwards() const override { return true; }
  std::vector<Segment> do_snapshot() const override { return inner_->snapshot(); }
  Size do_largest_free() const override { return inner_->largest_free(); }
  Counters do_counters() const override { return inner_->counters(); }

  std::unique_ptr<Allocator> inner_;
};

// The outermost layer of `allocator` that is a `W`, or null.
template <class W>
W const* find_layer(Allocator const& allocator) {
  Allocator const* layer = &allocator;
  while (layer != nullptr) {
    if (auto const* found = dynamic_cast<W const*>(layer)) return found;
    auto const* wrapper = dynamic_cast<Wrapper const*>(layer);
    layer = wrapper == nullptr ? nullptr : &wrapper->inner();
  }
  return nullptr;
}

}  // namespace allocbench
