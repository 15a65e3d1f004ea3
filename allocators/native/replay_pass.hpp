// replay_pass.hpp: what every replay does: fetches the parts of a trace and replays their events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "core/abilities.hpp"
#include "core/huge_pages.hpp"
#include "replay.hpp"

namespace allocbench {

// Checks what can be checked without a replay: lengths, ops, block numbers and the sum of the
// sizes.
class PartChecks {
 public:
  explicit PartChecks(TraceView const& trace) : trace_(trace) {}

  // Checks the next part, whose first event is the event `first` of the trace. Returns a number
  // above all block numbers of the part. Throws as bad_trace does.
  std::size_t check(TracePart const& part, std::size_t first);

 private:
  void find_bad_event(TracePart const& part, std::size_t first) const;

  TraceView const& trace_;
  std::uint64_t low_ = 0, high_ = 0;  // sums of the lower and upper halves of the sizes
};

// Throws std::invalid_argument that names the event and the rule that it breaks.
[[noreturn]] void bad_trace(std::size_t event, std::string const& rule);

// The base class of all passes over a trace: knows the address of each live block by its number.
// Events are counted from the first one of the current part, except where a name says otherwise.
class Pass {
 public:
  Pass(TraceView const& trace, Allocator& allocator)
      : trace_(trace), allocator_(allocator), checks_(trace), change_(trace.changes.begin()) {}

  // Fetches the next part; false after the last one.
  bool next_part();

  // Call it for each part. Prepares the allocator for the first part. Returns the first event to
  // replay: if the allocator adopts the layout of the trace, the allocs of its blocks are skipped.
  std::size_t begin();

  Block allocate(std::size_t event) {
    Address& address = address_[part_.block[event]];
    if (address != 0) bad_block(event, " is alive");
    remember_pool(event);
    Block const block = allocator_.try_allocate(part_.size[event], stream_of(event));
    address = block.size == 0 ? kFailed : block.address;
    return block;
  }

  void deallocate(std::size_t event) {
    Address& address = address_[part_.block[event]];
    if (address == 0) bad_block(event, " is not alive");
    if (address != kFailed) allocator_.deallocate(address, stream_of(event));
    address = 0;
  }

  bool alloc(std::size_t event) {
    allocate(event);
    return true;
  }
  bool free(std::size_t event) {
    deallocate(event);
    return true;
  }

  // Frees each live block on the stream of its alloc, the latest first. The allocs of those that
  // began in the current part are before `end`.
  void free_the_rest(std::size_t end);
  void free_the_rest() { free_the_rest(part_.events()); }

  void trim(PoolId pool) { pool == 0 ? allocator_.trim() : pools().trim_pool(pool); }

  // Makes the changes before `event` and returns the event before which the next one is made.
  std::size_t make_changes(std::size_t event);

  TraceView const& trace() const { return trace_; }
  TracePart const& part() const { return part_; }
  Allocator& allocator() const { return allocator_; }
  ServesPools& pools() const { return serving_pools(allocator_); }

 protected:
  std::size_t in_trace(std::size_t event) const { return first_ + event; }
  std::size_t blocks() const { return address_.size(); }

  TraceView const& trace_;
  Allocator& allocator_;
  TracePart part_;

 private:
  // The address of a block whose request failed, which is alive in the trace but not in the
  // allocator. No real block has an odd address.
  static constexpr Address kFailed = 1;

  struct Carried {
    std::uint32_t block;
    Stream stream;  // with the pool
  };

  [[noreturn]] void bad_block(std::size_t event, char const* rule) const {
    bad_trace(in_trace(event), "block " + std::to_string(part_.id_at(event)) + rule);
  }

  // With the pool of the block, which is that of its last alloc.
  Stream stream_of(std::size_t event) const {
    Stream const stream = part_.stream[event];
    return pool_.empty() ? stream : in_pool(stream, pool_[part_.block[event]]);
  }
  void remember_pool(std::size_t event) {
    if (!pool_.empty()) pool_[part_.block[event]] = part_.pool[event];
  }
  void carry_live_blocks();

  PartChecks checks_;
  std::vector<Change>::const_iterator change_;  // the next one
  std::size_t first_ = 0;                       // event of the trace with which the part begins
  LargeArray<Address> address_;                 // by block
  std::vector<std::uint16_t> pool_;             // by block; empty when the trace has no pools
  std::vector<Carried> carried_;                // alive since an earlier part, in order of allocs
  std::vector<std::uint8_t> is_carried_;        // by block
};

// Replays the events of the current part from `first` on. `pass.alloc(event)` and
// `pass.free(event)` return false to stop the replay; then this does too.
template <class P>
bool play(P& pass, std::size_t first) {
  TracePart const& part = pass.part();
  Allocator& allocator = pass.allocator();
  std::int64_t const step_label = pass.trace().step_label;
  std::size_t next_change = first;
  for (std::size_t event = first; event < part.events(); ++event) {
    if (event >= next_change) [[unlikely]]
      next_change = pass.make_changes(event);
    bool proceed = true;
    switch (static_cast<Op>(part.op[event])) {
      case Op::kAlloc: proceed = pass.alloc(event); break;
      case Op::kFree: proceed = pass.free(event); break;
      case Op::kMark:
        if (part.block[event] == step_label) {
          if constexpr (requires { pass.begin_step(); }) pass.begin_step();
          allocator.step();
        }
        break;
      case Op::kTrim: pass.trim(part.pool_at(event)); break;
      default: pass.pools().pool_event(static_cast<Op>(part.op[event]), part.pool_at(event)); break;
    }
    if constexpr (requires { pass.after(event); }) pass.after(event);
    if (!proceed) return false;
  }
  return true;
}

// Does the work of a pass. If it fails, frees all blocks before the exception goes on; if that
// fails too, as it can after a violated invariant, the first exception is the one that matters.
template <class P, class Work>
void or_free(P& pass, Work work) {
  try {
    work();
  } catch (...) {
    try {
      pass.free_the_rest();
    } catch (std::exception const&) {
    }
    throw;
  }
}

// Replays all parts, until one stops the replay.
template <class P>
void run(P& pass) {
  or_free(pass, [&] {
    while (pass.next_part())
      if (!play(pass, pass.begin())) return;
  });
}

}  // namespace allocbench
