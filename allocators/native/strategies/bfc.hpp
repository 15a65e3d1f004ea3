// strategies/bfc.hpp: TensorFlow's best fit with coalescing.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. A request takes the smallest free chunk that fits, at the
// lowest address among equals. The chunk is split if it is at least twice as large as needed or if
// the rest would reach a limit (128 MiB, or a fraction of the memory limit). A freed chunk
// coalesces with its free neighbors at once. If no chunk fits, a region is requested from the
// device: 2 MiB first, then twice as much each time, within the memory limit. A refused size is
// reduced by 10% (in float32) until it is granted or too small. With garbage collection, regions
// without a chunk in use are returned to the device before a request is refused. A request and a
// free take O(log n) time for n free chunks.
//
// With timestamped frees, every free gets the next count. A freed chunk is reused and coalesced
// only after the safe frontier has passed its count: the device has finished all work up to the
// frontier. Chunks become reusable in batches, when a request begins. The mark of a step moves the
// frontier past the last free. If no safe chunk fits and no region can be obtained, the request
// waits for the device: the frontier moves past one free after another until a large enough chunk
// has formed.
//
// JAX uses the same allocator with other defaults. ONNX Runtime derived its arena from it, with
// other sizes of regions, two ways to extend, and shrinkage; its streams are not modeled.
//
// Source: tsl/framework/bfc_allocator.cc of TensorFlow 2.21, reproduced chunk for chunk, including
// growth and timestamps, with these differences:
// - If the device keeps refusing a region of at most 2304 bytes, a fixed point of the reduction by
//   10%, TensorFlow retries forever; this strategy refuses the request.
// - In TensorFlow, a request can demand that its chunk be safe (`freed_by_func`); here all do.
// - TensorFlow also counts kernels; here the frontier always moves past the last free.
// - TensorFlow cannot collect regions whose chunks wait for their batch; this strategy can.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/abilities.hpp"
#include "core/allocator.hpp"
#include "core/options.hpp"
#include "core/types.hpp"
#include "parts/free_index.hpp"
#include "parts/segment_blocks.hpp"

namespace allocbench {

// A best-fit index that can also withhold free chunks, which may not be used or coalesced yet. A
// withheld chunk is in no bin.
class WithholdingIndex : public FreeIndex {
 public:
  using FreeIndex::FreeIndex;

  void withhold(Index chunk) {
    if (withheld_.size() <= chunk) withheld_.resize(chunk + 1);
    withheld_[chunk] = 1;
  }
  void admit(Index chunk) {
    withheld_[chunk] = 0;
    insert(chunk);
  }
  bool withholds(Index chunk) const { return chunk < withheld_.size() && withheld_[chunk] != 0; }
  // Adjacent chunks that were withheld together stay apart when they are admitted.
  bool leaves_neighbors() const { return !withheld_.empty(); }

  void remove(Index chunk) {
    if (withholds(chunk))
      withheld_[chunk] = 0;
    else
      FreeIndex::remove(chunk);
  }
  bool contains(Index chunk) const { return FreeIndex::contains(chunk) != withholds(chunk); }

 private:
  std::vector<std::uint8_t> withheld_;  // by chunk, 0 or 1; empty until `withhold` is used
};

class Chunks : public SegmentBlocks<WithholdingIndex> {
 public:
  // Frees the allocated chunk at `address`, but excludes it from coalescing and from `find` until
  // `admit`, which does not coalesce it either. Returns the chunk, or kNone.
  Index withhold(Address address) {
    Index const chunk = allocated_.erase(address);
    if (chunk == kNone) return kNone;
    nodes_[chunk].block.requested = 0;
    free_.withhold(chunk);
    return chunk;
  }
  void admit(Index chunk) { free_.admit(chunk); }

  // Coalesces a free chunk with at most one free neighbor on each side.
  void coalesce(Index chunk) {
    free_.remove(chunk);
    free_.insert(coalesced(chunk));
  }

  // Allocates blocks, in order of address, in the free chunk `rest`.
  void carve(Index rest, std::vector<Block> const& blocks) {
    std::vector<Address> gaps;
    for (Block const& block : blocks) {
      if (Address const begin = nodes_[rest].block.address; begin < block.address) {
        gaps.push_back(allocate(rest, block.address - begin, 1).address);
        rest = nodes_[rest].next;
      }
      allocate(rest, block.size, block.requested);
      rest = nodes_[rest].next;
    }
    for (Address const gap : gaps) deallocate(gap);
  }

  // True if a chunk that was free has been released or merged into a neighbor. Valid until its
  // index is reused.
  bool is_gone(Index chunk) const { return nodes_[chunk].block.size == 0; }
};

// Every free gets the next count. A chunk whose count is above the safe frontier is unsafe: it does
// not coalesce and serves no request. Chunks that the frontier has passed are freed in batches:
// each coalesces, in the order of the frees, with at most one neighbor on each side. So two free
// chunks can stay apart if a chunk between them is merged in the same batch. Each call takes
// O(1) expected time in addition to that of `Chunks`, except `largest` and `forget`, which take
// O(withheld chunks).
class Timestamps {
 public:
  explicit Timestamps(Chunks& chunks) : chunks_(chunks) {}

  // Returns the chunk as it was allocated, or one of size 0 if none is allocated at the address.
  Block free(Address address) {
    Block const chunk = chunks_.allocated(address);
    if (chunk.size != 0) withheld_.push_back(chunks_.withhold(address));
    return chunk;
  }

  // Moves the frontier past one more free; false if it has passed the last.
  bool advance() {
    if (passed_ == withheld_.size()) return false;
    ++passed_;
    return true;
  }

  void advance_to_last() { passed_ = withheld_.size(); }

  // Frees the batch of chunks that the frontier has passed.
  void merge() {
    if (passed_ > 0) [[unlikely]]
      merge_batch();
  }

  // Drops the chunks that no longer exist.
  void forget() {
    auto const gone = [&](Index chunk) { return chunks_.is_gone(chunk); };
    passed_ -= static_cast<std::size_t>(std::count_if(
        withheld_.begin(), withheld_.begin() + static_cast<std::ptrdiff_t>(passed_), gone));
    std::erase_if(withheld_, gone);
  }

  std::size_t unsafe() const { return withheld_.size() - passed_; }

  // Size of the largest chunk waiting for its batch, in bytes; 0 if there is none.
  Size largest() const {
    Size largest_size = 0;
    for (Index const chunk : withheld_)
      largest_size = std::max(largest_size, chunks_.block(chunk).size);
    return largest_size;
  }

 private:
  void merge_batch() {
    auto const end = withheld_.begin() + static_cast<std::ptrdiff_t>(passed_);
    std::vector<Index> const batch(withheld_.begin(), end);
    withheld_.erase(withheld_.begin(), end);
    passed_ = 0;
    for (Index const chunk : batch) chunks_.admit(chunk);
    for (Index const chunk : batch)
      if (!chunks_.is_gone(chunk)) chunks_.coalesce(chunk);
  }
  Chunks& chunks_;
  std::deque<Index> withheld_;  // in the order of their counts
  std::size_t passed_ = 0;      // the number at the front that the frontier has passed
};

struct BfcPreset {
  std::string_view name;
  double fraction;  // of the capacity, as the memory limit; 0: no limit
  bool allow_growth;
  Size first_region;
  Size largest_region;        // 0: none
  Size smallest_retry;        // the device is not asked for less after it refused a region
  bool doubles_when_refused;  // the next region is larger even if the device refused this one
};

// Sources: TensorFlow 2.21; JAX's documentation of GPU memory allocation; OrtArenaCfg and bfc_arena
// of ONNX Runtime 1.31.
inline constexpr BfcPreset kBfcPresets[] = {
    {"tensorflow", 1.0, true, 2 * kMiB, 0, 0, false},
    {"jax", 0.75, false, 2 * kMiB, 0, 0, false},
    {"onnxruntime", 0.0, true, kMiB, kGiB, 8 * kKiB, true},
};

inline BfcPreset const& bfc_preset(Options const& given) {
  auto const preset = std::ranges::find(kBfcPresets, given.text("preset"), &BfcPreset::name);
  if (preset == std::end(kBfcPresets))
    given.reject("preset", "must be tensorflow, jax or onnxruntime");
  return *preset;
}

class Bfc : public Allocator, public TakesOver {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"preset", OptionType::kText, "tensorflow",
       "whose defaults the other options have: tensorflow, jax or onnxruntime"},
      {"memory_limit", OptionType::kBytes, "",
       "the most bytes of all regions together; default: the capacity of the device (jax: 75 % of "
       "it; onnxruntime: no limit)"},
      {"per_process_memory_fraction", OptionType::kNumber, "",
       "the memory limit as a fraction of the capacity, above 0 and at most 1"},
      {"system_reserve", OptionType::kFlag, "false",
       "lower the default memory limit by the memory that TensorFlow reserves for the system: "
       "225 MiB on a device below 2 GiB, otherwise 5 % and at least 300 MiB"},
      {"allow_growth", OptionType::kFlag, "",
       "add regions as needed; false: one region of the whole memory limit; default: true (jax: "
       "false)"},
      {"extend", OptionType::kText, "doubling",
       "size of a new region: doubling, or requested (exactly the rounded request)"},
      {"first_region", OptionType::kBytes, "",
       "size at which doubling starts; default: 2 MiB (onnxruntime: 1 MiB)"},
      {"largest_region", OptionType::kBytes, "",
       "size at which doubling ends, unless a request is larger; default: none (onnxruntime: 1 "
       "GiB)"},
      {"shrink", OptionType::kFlag, "false",
       "at each step mark, return unused regions, except for the first one with extend=doubling "
       "(the arena shrinkage of ONNX Runtime)"},
      {"garbage_collection", OptionType::kFlag, "false",
       "return unused regions to the device before a request fails"},
      {"fragmentation_fraction", OptionType::kNumber, "0",
       "split a chunk if the remainder is at least this fraction of the memory limit; 0: at least "
       "128 MiB"},
      {"coalesce_regions", OptionType::kFlag, "false", "merge adjacent regions"},
      {"timestamped_frees", OptionType::kFlag, "false",
       "reuse a freed chunk only after the next step mark, or when memory runs out"},
      {"retry_seconds", OptionType::kNumber, "0",
       "seconds that a request waits for frees by other threads before it fails (TensorFlow: 10)"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "bfc",
      .summary = "best fit with coalescing, in regions of doubling size (TensorFlow)",
      .worst_case =
          "inside a chunk: half of it, at most 128 MiB; outside: free chunks that are too small",
      .reference = "BFCAllocator of TensorFlow and XLA",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kRounding); },
      .exemption = "sizes are rounded up to 256 bytes",
      .retry_option = "retry_seconds",
  };

  Bfc(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }
  bool adopt(std::vector<HeldSegment> const& layout) override;

 protected:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override {
    return timestamped_frees_ ? timestamps_.free(address) : chunks_.deallocate(address);
  }
  void do_trim() override;
  void do_step() override;
  std::vector<Segment> do_snapshot() const override { return chunks_.snapshot(); }
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;
  std::string do_summary() const override;
  Size do_room() const override { return memory_limit_ - reserved(); }

 private:
  bool adopt_region(Segment const& region);
  bool extend(Size rounded);
  void double_next_region();
  bool collect(Size rounded);
  bool release_idle(Address kept = 0);
  Size reserved() const { return counted().reserved.current; }

  BfcPreset const& preset_;
  Size memory_limit_;
  Size next_region_;
  Size largest_region_;  // 0: none
  Address first_region_ = 0;
  Size largest_waste_;  // a chunk is split if the rest reaches this
  bool garbage_collection_;
  bool coalesce_regions_;
  bool timestamped_frees_;
  bool extend_as_requested_;
  bool shrink_;
  Chunks chunks_;
  Timestamps timestamps_{chunks_};
  std::uint64_t early_ = 0;  // frees that the frontier passed early because memory ran out
};

}  // namespace allocbench
