// strategies/planned/small_blocks.cpp: which chunks serve which sizes.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/small_blocks.hpp"

#include "core/errors.hpp"

namespace allocbench {
namespace {

// A bit for each block of this many units that fits into a chunk, at its first unit.
std::uint64_t begins(std::size_t units) {
  std::uint64_t bits = 0;
  for (std::size_t unit = 0; unit + units <= SmallBlocks::kUnits; unit += units)
    bits |= std::uint64_t{1} << unit;
  return bits;
}

}  // namespace

Pages::Run SmallBlocks::unmapped_page() const {
  Pages::Run const run = pages.first_run({0, pages.all().count + 1}, false);
  bool const inside = run.count > 0 && (run.first + 1) * page_chunks_ * kChunk <= size();
  return {run.first, inside ? std::size_t{1} : 0};
}

void SmallBlocks::see_mapped(Pages::Run run) {
  if (used_.size() < run.end()) {
    used_.resize(run.end());
    chunks_.resize(run.end() * page_chunks_);
    requested_.resize(chunks_.size() * kUnits);
  }
  unused_ = std::min(unused_, run.first * page_chunks_);
}

// Adds an unused chunk to those of a size. Returns false if there is none.
bool SmallBlocks::add_chunk(Kind& kind) {
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
void SmallBlocks::number_chunks(Kind& kind, std::size_t from) {
  for (std::size_t position = from; position < kind.chunks.size(); ++position)
    chunks_[kind.chunks[position]].position = static_cast<std::uint32_t>(position);
}

void SmallBlocks::forget_empty() {
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

std::map<Address, Block> SmallBlocks::blocks() const {
  std::map<Address, Block> blocks;
  for (std::size_t unit = 0; unit < requested_.size(); ++unit) {
    Chunk const& chunk = chunks_[unit / kUnits];
    if (((chunk.all & ~chunk.free) >> unit % kUnits & 1) == 0) continue;
    Address const address = begin() + unit * kUnit;
    blocks[address] = {address, chunk.units * kUnit, requested_[unit]};
  }
  return blocks;
}

void SmallBlocks::check() const {
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

}  // namespace allocbench
