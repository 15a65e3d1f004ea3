// strategies/planned/small_blocks.hpp: the smallest blocks, in chunks of equal blocks.
// SPDX-License-Identifier: Apache-2.0
//
// A chunk has a bit for each unit in it. It is divided into blocks of one size, and a bit is set
// where a free block begins. A request takes the lowest free block of its size, so that equal steps
// get equal addresses. If all blocks of its size are in use, it takes an unused chunk. Chunks that
// have become empty serve their size until a step begins, another size needs one, or pages are
// unmapped.
//
// A request and a free take O(1) steps, apart from requests that need a chunk and those that begin
// a step: these may visit all chunks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "strategies/planned/mapped_range.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {

// Serves one stream. A block that is freed on another stream can be reused after `streams_done`.
class SmallBlocks final : public MappedRange {
 public:
  static constexpr Size kUnit = StepKind::kUnit;
  static constexpr std::size_t kUnits = 64;  // of a chunk
  static constexpr Size kChunk = kUnits * kUnit;
  static constexpr std::size_t kSizes = 8;
  static constexpr Size kLargest = kSizes * kUnit;

  explicit SmallBlocks(Size page) : MappedRange(page), page_chunks_(page / kChunk) {}

  // `size` is a multiple of the unit. Returns a block of size 0 if there is no chunk for it.
  Block allocate(Size size, Size requested) {
    Kind& kind = kinds_[size / kUnit - 1];
    while (kind.first < kind.chunks.size() && chunks_[kind.chunks[kind.first]].free == 0)
      ++kind.first;
    if (kind.first == kind.chunks.size() && !add_chunk(kind)) [[unlikely]]
      return {};
    std::size_t const number = kind.chunks[kind.first];
    Chunk& chunk = chunks_[number];
    if (chunk.free == chunk.all) use(number, true);
    std::size_t const unit =
        kUnits * number + static_cast<std::size_t>(std::countr_zero(chunk.free));
    chunk.free &= chunk.free - 1;
    requested_[unit] = static_cast<std::uint16_t>(requested);
    return {begin() + unit * kUnit, size, requested};
  }

  // Returns the block as it was allocated; size 0 if none is allocated at this address of the
  // reservation.
  Block deallocate(Address address, bool waits) {
    Size const offset = address - begin();
    std::size_t const unit = offset / kUnit;
    if (offset % kUnit != 0 || unit >= requested_.size() || requested_[unit] == 0) return {};
    Size const size = chunks_[unit / kUnits].units * kUnit;
    Block const block{address, size, std::exchange(requested_[unit], std::uint16_t{0})};
    if (waits) [[unlikely]]
      waiting_.push_back(unit);
    else
      free(unit);
    return block;
  }

  void streams_done() {
    for (std::size_t const unit : waiting_) free(unit);
    waiting_.clear();
  }

  // The first page that is not mapped; none if the reservation has no more.
  PageUse::Run unmapped_page() const {
    PageUse::Run const run = pages.first_run({0, pages.all().count + 1}, false);
    bool const inside = run.count > 0 && (run.first + 1) * page_chunks_ * kChunk <= size();
    return {run.first, inside ? std::size_t{1} : 0};
  }

  // these pages can be used from now on
  void see_mapped(PageUse::Run run) {
    if (used_.size() < run.end()) {
      used_.resize(run.end());
      chunks_.resize(run.end() * page_chunks_);
      requested_.resize(chunks_.size() * kUnits);
    }
    unused_ = std::min(unused_, run.first * page_chunks_);
  }

  // Takes all chunks without blocks from their sizes.
  [[gnu::noinline]] void forget_empty() {
    for (Kind& kind : kinds_) {
      std::erase_if(kind.chunks, [this](std::uint32_t number) {
        bool const empty = chunks_[number].free == chunks_[number].all;
        if (empty) chunks_[number] = {};
        return empty;
      });
      number_chunks(kind, 0);
      kind.first = 0;
    }
    unused_ = 0;
  }

  // Throws InvariantViolation.
  void check() const {
    check_pages();
    std::size_t serving = 0, requests = 0, in_use = 0;
    for (std::size_t units = 1; units <= kSizes; ++units) {
      Kind const& kind = kinds_[units - 1];
      require(std::ranges::is_sorted(kind.chunks), "the chunks of a size are in order");
      serving += kind.chunks.size();
      for (std::size_t position = 0; position < kind.chunks.size(); ++position) {
        Chunk const& chunk = chunks_[kind.chunks[position]];
        require(chunk.units == units && chunk.position == position && chunk.all == begins(units),
                "a chunk knows its size and its position");
        require((chunk.free & ~chunk.all) == 0, "a free block begins where a block begins");
        require(position >= kind.first || chunk.free == 0, "the first chunks of a size are full");
      }
    }
    for (Chunk const& chunk : chunks_) {
      serving -= chunk.units != 0;
      in_use += static_cast<std::size_t>(std::popcount(chunk.all & ~chunk.free));
    }
    for (std::uint16_t const requested : requested_) requests += requested != 0;
    require(serving == 0, "a chunk serves the size that lists it, or none");
    require(in_use == requests + waiting_.size(), "each block in use is allocated or waits");
  }

 private:
  // A bit for each block of this many units that fits into a chunk, at its first unit.
  static std::uint64_t begins(std::size_t units) {
    std::uint64_t bits = 0;
    for (std::size_t unit = 0; unit + units <= SmallBlocks::kUnits; unit += units)
      bits |= std::uint64_t{1} << unit;
    return bits;
  }

  using Bits = std::uint64_t;  // one bit per unit

  struct Chunk {
    Bits free = 0;               // where a free block begins
    Bits all = 0;                // where a block begins
    std::uint32_t units = 0;     // of a block; 0: the chunk serves no size
    std::uint32_t position = 0;  // among the chunks of its size
  };
  struct Kind {                         // blocks of one size
    std::vector<std::uint32_t> chunks;  // by number, in order
    std::size_t first = 0;              // all chunks before this position are full
  };

  void free(std::size_t unit) {
    std::size_t const number = unit / kUnits;
    Chunk& chunk = chunks_[number];
    chunk.free |= Bits{1} << unit % kUnits;
    Kind& kind = kinds_[chunk.units - 1];
    kind.first = std::min<std::size_t>(kind.first, chunk.position);
    if (chunk.free == chunk.all) use(number, false);
  }

  // Counts a chunk that has got its first block or lost its last one.
  void use(std::size_t number, bool used) {
    std::size_t const page = number / page_chunks_;
    if (used ? used_[page]++ == 0 : --used_[page] == 0)
      used ? pages.touch({page, 1}) : pages.untouch({page, 1});
  }

  // Adds an unused chunk to those of a size. Returns false if there is none.
  [[gnu::noinline]] bool add_chunk(Kind& kind) {
    auto const find = [this] {
      while (unused_ < chunks_.size() && !unused(unused_)) ++unused_;
      return unused_ < chunks_.size();
    };
    if (!find()) {
      forget_empty();
      if (!find()) return false;
    }
    auto const number = static_cast<std::uint32_t>(unused_);
    auto const units = static_cast<std::uint32_t>(&kind - kinds_.data() + 1);
    chunks_[number] = {begins(units), begins(units), units, 0};
    auto const added = kind.chunks.insert(std::ranges::lower_bound(kind.chunks, number), number);
    kind.first = static_cast<std::size_t>(added - kind.chunks.begin());
    number_chunks(kind, kind.first);
    return true;
  }

  // Sets the positions of the chunks of a size, from this one on.
  void number_chunks(Kind& kind, std::size_t from) {
    for (std::size_t position = from; position < kind.chunks.size(); ++position)
      chunks_[kind.chunks[position]].position = static_cast<std::uint32_t>(position);
  }

  bool unused(std::size_t number) const {
    return chunks_[number].units == 0 && pages.mapped({number / page_chunks_, 1});
  }

  std::map<Address, Block> blocks() const override {
    std::map<Address, Block> blocks;
    for (std::size_t unit = 0; unit < requested_.size(); ++unit) {
      Chunk const& chunk = chunks_[unit / kUnits];
      if (((chunk.all & ~chunk.free) >> unit % kUnits & 1) == 0) continue;
      Address const address = begin() + unit * kUnit;
      blocks[address] = {address, chunk.units * kUnit, requested_[unit]};
    }
    return blocks;
  }

  std::array<Kind, kSizes> kinds_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint16_t> requested_;  // bytes of the block that begins at each unit
  std::vector<std::size_t> waiting_;      // units
  std::vector<std::uint32_t> used_;       // chunks with blocks, by page
  std::size_t page_chunks_;
  std::size_t unused_ = 0;  // no chunk before this one is unused
};

}  // namespace allocbench
