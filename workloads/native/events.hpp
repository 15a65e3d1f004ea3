// events.hpp: what the events of a trace are about, counted in one reading: blocks, loads,
// lifetimes. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/trace.hpp"
#include "hash_tables.hpp"

namespace allocbench {

// Of n events: `begin`, `from_start` and `left_out` have n elements. Events are indices.
struct Pairs {
  std::vector<std::int64_t> begin;         // the event that began its block; any if left out
  std::vector<std::uint8_t> from_start;    // the free of a block that was alive before all events
  std::vector<std::uint8_t> left_out;      // a request for no bytes, or a free of no block
  std::vector<std::int64_t> unfreed;       // allocs at the address of a block that is alive
  std::vector<std::int64_t> still_alive;   // the alloc of that block, for each of `unfreed`
  std::vector<std::uint64_t> addresses;    // all of them once, in any order
  std::uint64_t requests_for_nothing = 0;  // how many are left out for each reason
  std::uint64_t stray_frees = 0;
  std::uint64_t search_steps = 0;  // slots of the table visited beyond the first of each search
};

// The first free of an address without an alloc before it ends a block that was alive before, if it
// has a size. The spans have equal lengths.
inline Pairs pair_events(std::span<std::uint8_t const> is_alloc,
                         std::span<std::uint64_t const> address,
                         std::span<std::uint64_t const> size) {
  constexpr std::int64_t kNone = -1;
  // What happened last at an address.
  struct Place {
    std::uint64_t key = 0;       // the address
    std::int64_t alloc = kNone;  // the event of the block that is alive there
    bool known = false;
    bool used() const { return known; }
  };
  std::size_t const events = is_alloc.size();
  Pairs pairs;
  pairs.begin.resize(events);
  pairs.from_start.resize(events);
  pairs.left_out.resize(events);
  Probed<Place> places;
  for (std::size_t n = 0; n < events; ++n) {
    auto const event = static_cast<std::int64_t>(n);
    if (is_alloc[n] && size[n] == 0) {
      pairs.left_out[n] = true;
      ++pairs.requests_for_nothing;
      continue;
    }
    Place& found = places.find(address[n]);
    bool const known = found.used();
    Place& place = known ? found : places.add(found, {address[n], kNone, true});
    pairs.begin[n] = event;
    if (is_alloc[n]) {
      if (place.alloc != kNone) {
        pairs.unfreed.push_back(event);
        pairs.still_alive.push_back(place.alloc);
      }
      place.alloc = event;
    } else if (place.alloc != kNone) {
      pairs.begin[n] = place.alloc;
      place.alloc = kNone;
    } else if (!known && size[n] > 0) {
      pairs.from_start[n] = true;
    } else {
      pairs.left_out[n] = true;
      ++pairs.stray_frees;
    }
  }
  pairs.addresses.reserve(places.count());
  for (Place const& place : places.slots())
    if (place.used()) pairs.addresses.push_back(place.key);
  pairs.search_steps = places.search_steps();
  return pairs;
}

// Gives each live block a number. It is free for another block after the block's free, so all
// numbers are below the largest number of blocks that are alive at once.
class BlockNumbers {
 public:
  // Writes the number of the block of each alloc and free, and `block` of any other event. Stops at
  // the first event that allocates a live block or frees one that is not live, and returns its
  // index, or the number of events if there is none. The spans have equal lengths.
  std::size_t number(std::span<std::uint8_t const> op, std::span<std::uint32_t const> block,
                     std::span<std::uint32_t> numbers) {
    for (std::size_t event = 0; event < op.size(); ++event) {
      numbers[event] = block[event];
      if (Op{op[event]} == Op::kAlloc) {
        Slot& slot = live_.find(block[event]);
        if (slot.used()) return event;
        // Without a free number, the live blocks have the numbers from 0 on.
        auto number = static_cast<std::uint32_t>(live_.count());
        if (!free_.empty()) {
          number = free_.back();
          free_.pop_back();
        }
        live_.add(slot, {block[event], number});
        numbers[event] = number;
      } else if (Op{op[event]} == Op::kFree) {
        Slot& slot = live_.find(block[event]);
        if (!slot.used()) return event;
        numbers[event] = slot.number;
        free_.push_back(slot.number);
        live_.remove(slot);
      }
    }
    return op.size();
  }

 private:
  struct Slot {
    std::uint32_t key = 0;  // the block's id
    std::uint32_t number = kNone;
    bool used() const { return number != kNone; }
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Probed<Slot> live_;
  std::vector<std::uint32_t> free_;
};

// The live requested bytes of a valid trace, event by event.
class Load {
 public:
  // Blocks have numbers below `most_blocks`.
  explicit Load(std::uint64_t most_blocks) : most_blocks_(most_blocks) {}

  // Returns the live bytes after an event. Throws std::invalid_argument for another block, for
  // which the table could take any amount of memory.
  Wide after(Op op, std::uint32_t block, std::uint64_t size) {
    if (op == Op::kAlloc) {
      if (block >= size_.size()) grow(block);
      size_[block] = size;
      load_ += size;
    } else if (op == Op::kFree && block < size_.size()) {
      load_ -= size_[block];
    }
    return load_;
  }

 private:
  void grow(std::uint32_t block) {
    if (block >= most_blocks_)
      throw std::invalid_argument("not a valid trace: a block is out of range");
    size_.resize(std::size_t{block} + 1);
  }

  std::uint64_t most_blocks_;
  std::vector<std::uint64_t> size_;  // by block
  Wide load_ = 0;                    // sums of bytes exceed 64 bits
};

// Memory: in proportion to the largest block number, the distinct sizes and the distinct lifetimes.
// n events with b live blocks on average have at most sqrt(2 n b) distinct lifetimes, because the
// sum of the lifetimes is n b.
class TraceScan {
 public:
  // A mark whose block is `step_label` begins a step. Blocks have numbers below `most_blocks`.
  TraceScan(std::int64_t step_label, std::uint64_t most_blocks)
      : step_label_(step_label), streams_(1 << 16), load_(most_blocks) {}

  void add(TracePart const& part) {
    for (std::size_t n = 0; n < part.events(); ++n, ++events) {
      Op const op{part.op[n]};
      std::uint32_t const block = part.block[n];
      Wide const load = load_.after(op, block, part.size[n]);
      if (op <= Op::kFree) streams_[part.stream[n]] = true;
      if (op == Op::kAlloc) {
        if (block >= begin_.size()) begin_.resize(std::size_t{block} + 1);
        begin_[block] = events + 1;
        ++live_;
        ++step_allocs_;
        sizes.add(part.size[n]);
        if (steps > 0) step_sizes_.add(part.size[n]);
      } else if (op == Op::kFree && block < begin_.size()) {
        lifetimes.add(events + 1 - std::exchange(begin_[block], 0));
        --live_;
      } else if (op == Op::kMark && block == step_label_) {
        end_step();
        ++steps;
      }
      live_peak = std::max(live_peak, live_);
      live_sum += live_;
      load_sum += load;
      if (load > load_max) {
        load_max = load;
        load_max_at = events;
      }
    }
  }

  // Call it after the last event. Blocks that are alive end there, and so does the last step.
  void finish() {
    for (std::uint64_t const begin : begin_)
      if (begin > 0) lifetimes.add(events + 1 - begin);
    end_step();
  }

  std::uint64_t events = 0;
  std::uint64_t steps = 0;
  std::uint64_t live_peak = 0;
  std::uint64_t live_sum = 0;  // of the live blocks after each event
  Wide load_max = 0;
  std::uint64_t load_max_at = 0;  // the first event with it
  Wide load_sum = 0;
  Counts sizes;
  Counts lifetimes;
  // Sums over the steps from the second on: of the requests that have the size of one of the step
  // before, each of which counts once, and of the requests of the larger of the two steps.
  std::uint64_t repeated = 0;
  std::uint64_t compared = 0;

  std::uint64_t streams() const {
    return static_cast<std::uint64_t>(std::ranges::count(streams_, std::uint8_t{true}));
  }

 private:
  // Events before the first step belong to no step.
  void end_step() {
    if (steps >= 2) {
      step_sizes_.each([&](std::uint64_t size, std::uint64_t count) {
        repeated += std::min(count, last_step_sizes_.of(size));
      });
      compared += std::max(step_allocs_, last_step_allocs_);
    }
    last_step_sizes_ = std::exchange(step_sizes_, {});
    last_step_allocs_ = std::exchange(step_allocs_, 0);
  }

  std::int64_t step_label_;
  std::vector<std::uint8_t> streams_;  // whether an alloc or a free used it
  std::vector<std::uint64_t> begin_;   // by block: 1 + the event of its alloc, 0 if it is not alive
  std::uint64_t live_ = 0;
  Load load_;
  Counts step_sizes_, last_step_sizes_;
  std::uint64_t step_allocs_ = 0, last_step_allocs_ = 0;
};

// Counts the events after which the live bytes are at least `threshold`.
class HighLoad {
 public:
  HighLoad(double threshold, std::uint64_t most_blocks)
      : threshold_(threshold), load_(most_blocks) {}

  void add(TracePart const& part) {
    for (std::size_t n = 0; n < part.events(); ++n) {
      Wide const load = load_.after(Op{part.op[n]}, part.block[n], part.size[n]);
      count += static_cast<double>(load) >= threshold_;
    }
  }

  std::uint64_t count = 0;

 private:
  double threshold_;
  Load load_;
};

}  // namespace allocbench
