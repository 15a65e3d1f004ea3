// strategies/ggml_pool.hpp: the two pools in which ggml (llama.cpp) has temporary CUDA buffers.
// SPDX-License-Identifier: Apache-2.0
//
// The pool of buffers: a request takes the smallest of up to 256 free buffers that is large enough,
// the first one among equals, unless it is 64 GiB larger. A new buffer has 5 % more than the
// request, rounded up to 256 bytes. If the device refuses, all free buffers are returned, and the
// request is retried. A freed buffer goes to the first empty place; if there is none, it is
// returned. A request finds its buffer in O(log n) steps; ggml looks at all 256 places.
//
// The pool with virtual memory is a stack in a reservation of 32 GiB. A request takes the next
// multiple of 128 bytes, and memory is mapped at the end when it is short, by one call. ggml frees
// in reverse order, and ends when a program does not. Here, the bytes of a block that is freed out
// of order are free when all blocks above it are. A request or a free takes O(log n) time.
//
// ggml returns memory only when a pool ends; here, a trim returns what is unused. Source:
// ggml_cuda_pool_leg and ggml_cuda_pool_vmm in ggml-cuda.cu, August 2026.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/allocator.hpp"

namespace allocbench {

class GgmlPool : public Allocator {
 public:
  static constexpr Size kRounding = 256, kStackRounding = 128, kStack = 32 * kGiB;
  static constexpr Size kMostMore = 64 * kGiB;
  static constexpr std::size_t kPlaces = 256;
  static constexpr Option options[] = {
      {"vmm", OptionType::kFlag, "false",
       "the stack in virtual memory, which ggml has on GPUs with virtual memory management"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "ggml_pool",
      .summary = "up to 256 free buffers, best fit, or a stack in virtual memory (llama.cpp)",
      .worst_case = "inside a buffer: the largest freed one; of the stack: all below its top",
      .reference = "ggml_cuda_pool_leg and ggml_cuda_pool_vmm of ggml",
      .options = options,
      .largest_request =
          [](Size capacity) {
            Size const most = round_down(capacity, kRounding);
            return most / 21 * 20 + std::min(most % 21, Size{19});
          },
      .exemption = "a new buffer has 5 % more than the request, in multiples of 256 bytes",
  };

  GgmlPool(Device& device, Options const& given) : Allocator(device), stack_(given.flag("vmm")) {}
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Block block = stack_ ? push(requested) : take(requested);
    if (block.size == 0) return {};
    block.requested = requested;
    live_.emplace_hint(live_.end(), block.address, block);
    return block;
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    auto const found = live_.extract(address);
    if (!found) return {};
    Block const& block = found.mapped();
    if (stack_) return block;
    auto const place =
        static_cast<std::size_t>(std::ranges::find(addresses_, Address{0}) - addresses_.begin());
    if (place == kPlaces) {
      release(address, block.size);
      return block;
    }
    addresses_[place] = address;
    std::pair const buffer{block.size, place};
    free_.insert(std::ranges::lower_bound(free_, buffer), buffer);
    return block;
  }

  void do_trim() override {
    if (!returns_memory()) return;
    for (Block const& buffer : free_buffers()) release(buffer.address, buffer.size);
    free_.clear();
    addresses_ = {};
    for (; !mapped_.empty() && mapped_.back().address >= top(); mapped_.pop_back())
      unmap(mapped_.back().address, mapped_.back().size, mapped_.back().size);
  }

  Size do_largest_free() const override {
    if (stack_) return largest_free_in(GgmlPool::do_snapshot());
    return free_.empty() ? 0 : free_.back().first;
  }

  std::vector<Segment> do_snapshot() const override {
    if (stack_ && mapped_.empty()) return {};
    if (stack_) return {tiled(base_, end() - base_, live_.begin(), live_.end())};
    std::vector<Segment> all;
    for (auto const& [address, block] : live_) all.push_back({address, block.size, {block}});
    for (Block const& buffer : free_buffers())
      all.push_back({buffer.address, buffer.size, {buffer}});
    return all;
  }

 private:
  std::vector<Block> free_buffers() const {
    auto by_place = free_;
    std::ranges::sort(by_place, {}, [](auto const& buffer) { return buffer.second; });
    std::vector<Block> all;
    for (auto const& [size, place] : by_place) all.push_back({addresses_[place], size});
    return all;
  }

  // A free buffer, or a new one.
  Block take(Size requested) {
    auto const fit = std::ranges::lower_bound(free_, std::pair{requested, std::size_t{0}});
    if (fit != free_.end() && fit->first - requested < kMostMore) {
      auto const [size, place] = *fit;
      free_.erase(fit);
      return {std::exchange(addresses_[place], 0), size};
    }
    Size const size = round_up(requested + requested / 20, kRounding);
    Address address = acquire(size);
    if (address == 0) {
      count_retry();
      do_trim();
      address = acquire(size);
    }
    return {address, address == 0 ? 0 : size};
  }

  // The bytes above the stack, after mapping those that are missing.
  Block push(Size requested) {
    if (base_ == 0) base_ = reserve(kStack);
    Size const size = round_up(requested, kStackRounding);
    if (Size const room = end() - top(); base_ != 0 && size > room) {
      Size const more = round_up(size - room, device().granularity());
      if (more > base_ + kStack - end() || !map(end(), more, more)) return {};
      mapped_.push_back({end(), more});
    }
    return base_ == 0 ? Block{} : Block{top(), size};
  }

  Address top() const { return live_.empty() ? base_ : live_.rbegin()->second.end(); }
  Address end() const { return mapped_.empty() ? base_ : mapped_.back().end(); }

  bool stack_;
  std::map<Address, Block> live_;
  std::vector<std::pair<Size, std::size_t>> free_;  // buffers: size and place, in order
  std::array<Address, kPlaces> addresses_ = {};     // of free buffers; 0: an empty place
  Address base_ = 0;                                // of the stack
  std::vector<Block> mapped_;                       // by one call each, in order
};

}  // namespace allocbench
