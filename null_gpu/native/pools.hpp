// native/pools.hpp: the memory pools behind cudaMallocAsync, by their handles.
// SPDX-License-Identifier: Apache-2.0
//
// gpu/driver_pool.hpp models each of them. A destroyed pool stays until its last block is freed.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "gpu/driver_pool.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

class PoolTable : public Only<PoolTable> {
 public:
  Handle default_of(int device) {
    std::lock_guard const lock(mutex_);
    auto const [entry, is_new] = defaults_.try_emplace(device);
    if (is_new) {
      entry->second = Machine::get().new_handle();
      pools_.try_emplace(entry->second, device, DriverPool(0));
    }
    return entry->second;
  }

  Handle create(int device, Size most) {
    Handle const pool = Machine::get().new_handle();
    std::lock_guard const lock(mutex_);
    pools_.try_emplace(pool, device, DriverPool(most));
    return pool;
  }
  Status destroy(Handle handle) {
    std::lock_guard const lock(mutex_);
    Entry* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    auto const is_default = [&](auto const& pool) { return pool.second == handle; };
    if (std::ranges::any_of(defaults_, is_default)) return kInvalidValue;
    entry->destroyed = true;
    drop_if_unused(handle);
    return kSuccess;
  }

  Status allocate(Handle handle, Size size, Handle stream, Address* address) {
    std::uint64_t const capture = Streams::get().captured(stream).id;
    std::lock_guard const lock(mutex_);
    Entry* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    *address = 0;
    if (size == 0) return kSuccess;
    if (!open(*entry, size)) return kOutOfMemory;
    auto& memory = Machine::get().memory(entry->device);
    *address = entry->pool.allocate(size, number_of(stream), ended(*entry, number_of(stream)),
                                    [&] { return memory.take(DriverPool::kPage) == kSuccess; });
    if (*address == 0) return kOutOfMemory;
    blocks_[*address] = {handle, size, capture};
    return kSuccess;
  }

  // kInvalidValue if no pool has a block at the address.
  Status release(Address address) {
    std::lock_guard const lock(mutex_);
    auto const block = block_at(address);
    if (block == blocks_.end() || block->first != address) return kInvalidValue;
    free_block(block, nullptr, {});
    return kSuccess;
  }

  // The same in the order of a stream, which must be of the pool's device. In a capture, only
  // memory that was allocated in it can be freed.
  Status release(Address address, Handle stream) {
    auto& streams = Streams::get();
    std::uint64_t const capture = streams.captured(stream).id;
    std::lock_guard const lock(mutex_);
    auto const block = block_at(address);
    if (block == blocks_.end() || block->first != address) return kInvalidValue;
    if (device_of(stream) != pools_.at(block->second.pool).device) return kInvalidHandle;
    if (capture != 0 && block->second.capture != capture) return kInvalidValue;
    free_block(block, stream, streams.put(stream));
    return kSuccess;
  }

  // Returns free memory above `keep` reserved bytes to the card.
  Status trim(Handle handle, Size keep) {
    std::lock_guard const lock(mutex_);
    Entry* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    constexpr Size kPage = DriverPool::kPage;
    shrink(*entry, keep < ~Size{0} - kPage ? round_up(keep, kPage) : keep);
    return kSuccess;
  }

  // Settles what was freed on all streams, or on one; then trims every pool to its release
  // threshold.
  void synchronize() {
    std::lock_guard const lock(mutex_);
    for (auto& [handle, entry] : pools_) {
      entry.pool.settle(ended(entry));
      shrink(entry, entry.threshold);
    }
  }

  void synchronize(Handle stream) {
    std::lock_guard const lock(mutex_);
    for (auto& [handle, entry] : pools_) {
      if (entry.freed.erase(number_of(stream)) == 0) continue;
      entry.pool.settle([&](Stream freed) { return freed == number_of(stream); });
      shrink(entry, entry.threshold);
    }
  }

  // Gives the card all free memory of the pools of a device; false if there was none.
  bool give_all(int device) {
    std::lock_guard const lock(mutex_);
    Size gave = 0;
    for (auto& [handle, entry] : pools_) {
      if (entry.device != device) continue;
      entry.pool.settle(ended(entry));
      gave += shrink(entry, 0);
    }
    return gave != 0;
  }

  Status attribute(Handle handle, int attribute, std::uint64_t* value) {
    std::lock_guard const lock(mutex_);
    Entry const* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    switch (attribute) {
      case kReleaseThreshold: *value = entry->threshold; return kSuccess;
      case kReservedNow: *value = entry->pool.reserved().current; return kSuccess;
      case kReservedHigh: *value = entry->pool.reserved().peak; return kSuccess;
      case kUsedNow: *value = entry->pool.used().current; return kSuccess;
      case kUsedHigh: *value = entry->pool.used().peak; return kSuccess;
      default:
        if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
          return kInvalidValue;
        *reinterpret_cast<int*>(value) = entry->reuse[attribute - kReuseFollowsEvents];
        return kSuccess;
    }
  }

  // an int or 64 bits
  Status set_attribute(Handle handle, int attribute, void const* given) {
    std::lock_guard const lock(mutex_);
    std::uint64_t const value = attribute >= kReleaseThreshold
                                    ? *static_cast<std::uint64_t const*>(given)
                                    : static_cast<std::uint64_t>(*static_cast<int const*>(given));
    Entry* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    switch (attribute) {
      case kReleaseThreshold: entry->threshold = value; return kSuccess;
      case kReservedHigh:
        if (value != 0) return kInvalidValue;
        entry->pool.reset_peak_reserved();
        return kSuccess;
      case kUsedHigh:
        if (value != 0) return kInvalidValue;
        entry->pool.reset_peak_used();
        return kSuccess;
      default:
        if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
          return kInvalidValue;
        entry->reuse[attribute - kReuseFollowsEvents] = value != 0;
        return kSuccess;
    }
  }

  // The devices that may access the memory of a pool; its own always may.
  Status set_access(Handle handle, AccessDescription const* access, std::size_t count) {
    std::lock_guard const lock(mutex_);
    Entry* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    for (std::size_t index = 0; index < count; ++index) {
      int const device = access[index].location.id;
      if (access[index].flags == kNoAccess)
        entry->peers.erase(device);
      else
        entry->peers.insert(device);
    }
    return kSuccess;
  }

  Status allowed(Handle handle, int device, bool* allowed) {
    std::lock_guard const lock(mutex_);
    Entry const* const entry = find(handle);
    if (entry == nullptr) return kInvalidValue;
    *allowed = device == entry->device || entry->peers.contains(device);
    return kSuccess;
  }

  // The block that contains an address: of size 0 where the pool has no block, and none outside of
  // all pools.
  std::optional<Range> range_of(Address address) {
    std::lock_guard const lock(mutex_);
    if (auto const block = block_at(address); block != blocks_.end())
      return Range{block->first, block->second.size};
    for (auto const& [handle, entry] : pools_)
      if (entry.pool.contains(address)) return Range{};
    return std::nullopt;
  }

  // The pool of that block; null if none does.
  Handle pool_of(Address address) {
    std::lock_guard const lock(mutex_);
    auto const block = block_at(address);
    return block == blocks_.end() ? nullptr : block->second.pool;
  }

  struct Counts {
    std::size_t pools, blocks;  // pools that were created and not destroyed; blocks in use
  };
  Counts counts() {
    std::lock_guard const lock(mutex_);
    return {pools_.size() - defaults_.size(), blocks_.size()};
  }

 private:
  struct Entry {
    int device;
    DriverPool pool;
    Size threshold = 0;                    // reserved bytes that a synchronization leaves
    std::array<int, 3> reuse = {1, 1, 1};  // the attributes 1 to 3, as the driver has them
    std::map<Stream, HeldStreams::Work> freed = {};  // the work after which it is free, by stream
    std::set<int> peers = {};                        // other devices that may access it
    bool destroyed = false;
  };
  struct Block {
    Handle pool;
    Size size;
    std::uint64_t capture;  // in which it was allocated, or 0
  };
  using Blocks = std::map<Address, Block>;

  static Stream number_of(Handle stream) { return reinterpret_cast<Stream>(stream); }
  Entry* find(Handle handle) {
    auto const entry = pools_.find(handle);
    return entry == pools_.end() || entry->second.destroyed ? nullptr : &entry->second;
  }
  Blocks::iterator block_at(Address address) { return around(blocks_, address); }
  // Gives a pool addresses before its first block: more than the card has bytes, because a block
  // may find no range of free addresses that is large enough although enough memory is free.
  bool open(Entry& entry, Size size) {
    if (entry.pool.opened()) return true;
    constexpr Size kPage = DriverPool::kPage;
    auto& memory = Machine::get().memory(entry.device);
    Size addresses = round_up(4 * std::max(Machine::get().settings().memory, size), kPage);
    for (; addresses >= round_up(size, kPage); addresses = round_up(addresses / 2, kPage)) {
      Address begin = 0;
      if (memory.reserve(addresses, &begin) == kSuccess) {
        entry.pool.open(begin, addresses);
        return true;
      }
      if (addresses == kPage) break;
    }
    return false;
  }

  void free_block(Blocks::iterator block, Handle stream, HeldStreams::Work work) {
    auto const [address, freed] = *block;
    released_outside(address);
    Entry& entry = pools_.at(freed.pool);
    entry.pool.release(address, freed.size, number_of(stream));
    entry.freed[number_of(stream)] = std::move(work);  // it is after all earlier work of the stream
    blocks_.erase(block);
    drop_if_unused(freed.pool);
  }

  // Forgets the work of streams that have ended it. What they freed may be used by all. For a
  // request on the stream `only`, that is only so if the pool reuses what ended by itself; its own
  // stream always counts.
  DriverPool::Ended ended(Entry& entry, std::optional<Stream> only = {}) {
    bool const all = !only || entry.reuse[kReuseOfEnded - kReuseFollowsEvents] != 0;
    return [&entry, all, only](Stream stream) {
      if (!all && stream != *only) return false;
      auto const freed = entry.freed.find(stream);
      if (!Streams::get().ended(freed->second)) return false;
      entry.freed.erase(freed);
      return true;
    };
  }

  Size shrink(Entry& entry, Size most) {
    Size const freed = entry.pool.shrink(most);
    if (freed != 0) Machine::get().memory(entry.device).give(freed);
    return freed;
  }
  void drop_if_unused(Handle handle) {
    Entry& entry = pools_.at(handle);
    if (!entry.destroyed || entry.pool.used().current != 0) return;
    if (entry.pool.opened()) {
      auto& memory = Machine::get().memory(entry.device);
      memory.give(entry.pool.reserved().current);
      memory.unreserve(entry.pool.begin());
    }
    pools_.erase(handle);
  }

  std::mutex mutex_;
  std::unordered_map<Handle, Entry> pools_;
  std::unordered_map<int, Handle> defaults_;
  Blocks blocks_;
};

// Memory with an address, after the pools of the device gave up theirs if nothing else suffices.
inline Status allocate_memory(int device, Size size, Address* address) {
  auto& memory = Machine::get().memory(device);
  Status const status = memory.allocate(size, address);
  bool const again = status == kOutOfMemory && PoolTable::get().give_all(device);
  return again ? memory.allocate(size, address) : status;
}

}  // namespace allocbench::null_gpu
