// strategies/rmm_pool.cpp: RMM's pool, best fit with coalescing per stream.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/rmm_pool.hpp"

#include <algorithm>
#include <cstddef>

namespace allocbench {
namespace {

// RMM passes requests on through a cuda::mr reference, which rounds them up to this.
constexpr Size kUpstreamAlignment = alignof(std::max_align_t);

}  // namespace

RmmPool::RmmPool(Device& device, Options const& given)
    : Allocator(device),
      default_initial_(!given.given("initial_pool_size")),
      initial_(default_initial_ ? 0 : given.bytes("initial_pool_size")),
      maximum_(given.given("maximum_pool_size") ? given.bytes("maximum_pool_size") : 0) {
  for (auto const name : {"initial_pool_size", "maximum_pool_size"})
    if (given.given(name) && given.bytes(name) % kAlignment != 0)
      given.reject(name, "must be a multiple of 256 bytes");
  if (given.given("maximum_pool_size") && maximum_ == 0)
    given.reject("maximum_pool_size", "must be at least 256 bytes");
  if (maximum_ != 0 && initial_ > maximum_)
    given.reject("initial_pool_size", "must not exceed maximum_pool_size");
}

void RmmPool::start() {
  started_ = true;
  if (default_initial_) initial_ = round_down(room() / 2, kAlignment);
  initial_ = std::min(initial_, do_room());
  if (initial_ == 0) return;
  pool_.use(0);
  if (Address const first = acquire(initial_); first != 0) pool_.add(first, initial_);
}

Block RmmPool::do_allocate(Size requested, Stream stream) {
  Size const size = round_up(requested, kAlignment);
  if (!started_ && size <= device().capacity()) start();
  Index block = pool_.find(size, stream);
  if (block == kNone) block = grow(size);
  return block == kNone ? Block{} : pool_.allocate(block, size, requested);
}

Block RmmPool::do_deallocate(Address address, Stream stream) {
  pool_.use(stream);
  return pool_.deallocate(address);
}

// Adds a segment of at least `size` bytes for the stream in use; kNone if the device or the maximum
// refuses it.
Index RmmPool::grow(Size size) {
  Size const held = counted().reserved.current;
  Size wanted = std::max(size, held);
  if (maximum_ > 0) {
    Size const room = round_up(maximum_ - held, kAlignment);
    if (size > room) return kNone;
    wanted = std::max(size, room / 2);
  }
  for (;; wanted = std::max(size, wanted / 2)) {
    Size const asked = round_up(wanted, kUpstreamAlignment);
    if (Address const segment = acquire(asked); segment != 0) return pool_.add(segment, asked);
    if (wanted == size) return kNone;
  }
}

void RmmPool::do_trim() {
  if (returns_memory())
    pool_.release_idle([this](Address segment, Size size) { release(segment, size); });
}

}  // namespace allocbench
