// core/allocator.cpp: the code that all strategies share: locking, counting, checks and messages.
// SPDX-License-Identifier: Apache-2.0
#include "core/allocator.hpp"

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

// Larger than any device, and small enough that rounding up does not overflow.
constexpr Size kLargestRequest = Size{1} << 62;

constexpr std::uint64_t kBlocksCheckedPerCall = 16;

void check_tiled(Segment const& segment) {
  Address position = segment.address;
  Address const end = segment.address + segment.size;
  for (Block const& block : segment.blocks) {
    require(block.size > 0, "a block has at least one byte");
    require(block.size <= end - position, "a block ends within its segment");
    require(block.address == position,
            "the blocks of a segment follow one another without gap or overlap");
    require(block.requested <= block.size, "a block is at least as large as its request");
    position = block.end();
  }
  require(position == end, "the blocks of a segment cover it");
}

}  // namespace

Allocator::~Allocator() { device_.free_all(this); }

Address Allocator::allocate(Size requested, Stream stream) {
  Block const block = try_allocate(requested, stream);
  if (block.size == 0 && requested != 0) {
    throw_failure();
    throw OutOfMemory(describe_failure(requested));
  }
  return block.address;
}

// The request must not be for 0 bytes.
[[gnu::always_inline]] inline Block Allocator::serve(Size requested, Stream stream) {
  Lock::Guard const guard(lock_);
  bool const hopeless = requested > kLargestRequest && !do_forwards();
  Block const block = hopeless ? Block{} : do_allocate(requested, stream);
  if (block.size == 0) [[unlikely]]
    ++stats_.failures;
  else
    count_allocation(block.size, requested);
  return block;
}

Block Allocator::try_allocate(Size requested, Stream stream) {
  return requested == 0 ? Block{} : serve(requested, stream);
}

// The address must not be 0.
[[gnu::always_inline]] inline Block Allocator::free(Address address, Stream stream) {
  Lock::Guard const guard(lock_);
  Block const block = do_deallocate(address, stream);
  if (block.size != 0) [[likely]] {
    ++stats_.frees;
    stats_.requested.subtract(block.requested);
    stats_.allocated.subtract(block.size);
  }
  return block;
}

void Allocator::deallocate(Address address, Stream stream) {
  if (address != 0 && free(address, stream).size == 0) [[unlikely]]
    throw_bad_free(address);
  throw_failure();
}

// In a function of its own, so that `deallocate` does not make room for the message.
[[gnu::noinline]] void Allocator::throw_bad_free(Address address) const {
  throw BadFree(std::string(info().name) + ": free of " + hex(address) +
                ", which is not an allocated block (never handed out, or freed before)");
}

Block Allocator::try_deallocate(Address address, Stream stream) {
  return address == 0 ? Block{} : free(address, stream);
}

void Allocator::trim() {
  trim_by([this] { do_trim(); });
}

void Allocator::trim_by(std::function<void()> const& give_back) {
  {
    std::scoped_lock const guard(lock_);
    Size const before = stats_.reserved.current;
    give_back();
    std::uint64_t const calls = stats_.allocations + stats_.frees;
    bool const changed = calls != calls_checked_ || stats_.reserved.current != before;
    if (changed && calls - calls_checked_ >= blocks_checked_ / kBlocksCheckedPerCall) {
      blocks_checked_ = check_sums(sorted_snapshot());
      calls_checked_ = calls;
    }
  }
  throw_failure();
}

void Allocator::throw_taken_failure() {
  if (auto const failure = device_.take_failure()) throw DeviceError(*failure);
}

void Allocator::reset_peaks() {
  std::scoped_lock const guard(lock_);
  for (Gauge* gauge : {&stats_.requested, &stats_.allocated, &stats_.reserved})
    gauge->peak = gauge->current;
}

std::vector<Segment> Allocator::snapshot() const {
  return locked([this] { return sorted_snapshot(); });
}

std::vector<Segment> Allocator::sorted_snapshot() const {
  auto segments = do_snapshot();
  std::ranges::sort(segments, {}, &Segment::address);
  return segments;
}

void Allocator::check_sums() const {
  locked([this] { check_sums(sorted_snapshot()); });
}

std::uint64_t Allocator::check_sums(std::vector<Segment> const& segments) const {
  Size requested = 0, allocated = 0, reserved = 0;
  std::uint64_t blocks = 0;
  for (Segment const& segment : segments) {
    reserved += segment.size;
    blocks += segment.blocks.size();
    for (Block const& block : segment.blocks) {
      requested += block.requested;
      if (block.allocated()) allocated += block.size;
    }
  }
  require(requested == stats_.requested.current, "requested bytes equal the sum over the blocks");
  require(allocated == stats_.allocated.current, "allocated bytes equal the sum over the blocks");
  if (info().from_driver_pool)
    require(reserved <= stats_.reserved.current, "a pool holds at least its blocks");
  else
    require(reserved == stats_.reserved.current, "reserved bytes equal the sum over the segments");
  require(requested <= allocated && allocated <= stats_.reserved.current &&
              stats_.reserved.current <= device_.stated_capacity(),
          "requested, allocated and reserved bytes and the capacity are in this order");
  return blocks;
}

void Allocator::check() const {
  std::scoped_lock const guard(lock_);
  auto const segments = sorted_snapshot();
  Size largest = 0;
  Address last_end = 0;
  for (Segment const& segment : segments) {
    require(segment.address >= last_end, "segments do not overlap");
    last_end = segment.address + segment.size;
    check_tiled(segment);
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  }
  check_sums(segments);
  require(largest == do_largest_free(), "the largest free block is the largest of the snapshot");
  do_check();
}

Size Allocator::room() const { return std::min(device_.room(), permitted()); }

bool Allocator::has_room(Size size) const { return size <= permitted() && device_.has_room(size); }

bool Allocator::take_over(std::vector<HeldSegment> const& layout,
                          std::function<bool()> const& take) {
  std::scoped_lock const guard(lock_);
  Size bytes = 0;
  for (HeldSegment const& held : layout) bytes += held.segment.size;
  if (stats_.reserved.current > 0 || bytes > do_room() || !has_room(bytes) || !take()) return false;
  for (HeldSegment const& held : layout)
    for (Block const& block : held.segment.blocks) count_allocation(block.size, block.requested);
  return true;
}

Address Allocator::acquire(Size size) {
  if (size > permitted()) return 0;
  Address const segment = device_.allocate(size, this);
  if (segment != 0) count_reserved(size);
  return segment;
}

Allocator::Acquired Allocator::acquire_between(Size least, Size wanted, Size unit) {
  Size size = least;
  if (wanted > least) size = std::max(least, round_down(has_room(wanted) ? wanted : room(), unit));
  for (;;) {
    Address const address = acquire(size);
    if (address != 0 || size == least) return {address, size};
    size = std::max(least, round_down(size / 2, unit));
  }
}

void Allocator::release(Address segment, Size size) {
  device_.free(segment);
  count_unreserved(size);
}

Address Allocator::reserve(Size size) { return device_.reserve(size, this); }

void Allocator::unreserve(Address reservation) { device_.unreserve(reservation); }

bool Allocator::map(Address first, Size size, Size page) {
  if (size > permitted() || !device_.map(first, size, page)) return false;
  count_reserved(size);
  return true;
}

void Allocator::unmap(Address first, Size size, Size page) {
  device_.unmap(first, size, page);
  count_unreserved(size);
}

void Allocator::count_retry() {
  for (Allocator* layer = this; layer != nullptr; layer = layer->outer_) ++layer->stats_.retries;
}

void Allocator::count_reserved(Size size) {
  for (Allocator* layer = this; layer != nullptr; layer = layer->outer_)
    layer->stats_.reserved.add(size);
}

void Allocator::count_unreserved(Size size) {
  for (Allocator* layer = this; layer != nullptr; layer = layer->outer_)
    layer->stats_.reserved.subtract(size);
}

Size Allocator::permitted() const {
  Size least = ~Size{0};
  for (Allocator const* layer = outer_; layer != nullptr; layer = layer->outer_)
    least = std::min(least, layer->do_room());
  return least;
}

std::string Allocator::describe_failure(Size requested) const {
  std::scoped_lock const guard(lock_);
  Size const reserved = stats_.reserved.current;
  Size const allocated = stats_.allocated.current;
  std::string text(info().name);
  text += ": out of memory: asked for " + human_bytes(requested) + "; reserved " +
          human_bytes(reserved) + " of a device of " + human_bytes(device_.stated_capacity()) +
          "; allocated " + human_bytes(allocated) + " for requests of " +
          human_bytes(stats_.requested.current) + "; free " + human_bytes(reserved - allocated) +
          ", largest free block " + human_bytes(do_largest_free());
  if (std::string const more = do_summary(); !more.empty()) text += "\n" + more;
  return text;
}

}  // namespace allocbench
