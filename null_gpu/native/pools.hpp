// native/pools.hpp: the memory pools behind cudaMallocAsync, by their handles.
// SPDX-License-Identifier: Apache-2.0
//
// gpu/driver_pool.hpp models each of them. A destroyed pool stays until its last block is freed.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "gpu/driver_pool.hpp"
#include "null_gpu/native/api.hpp"
#include "null_gpu/native/memory.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

class PoolTable : public Only<PoolTable> {
 public:
  Handle default_of(int device);
  Handle create(int device, Size most);
  Status destroy(Handle pool);
  Status allocate(Handle pool, Size size, Handle stream, Address* address);
  // kInvalidValue if no pool has a block at the address.
  Status release(Address address);
  // The same in the order of a stream, which must be of the pool's device. In a capture, only
  // memory that was allocated in it can be freed.
  Status release(Address address, Handle stream);
  // Returns free memory above `keep` reserved bytes to the card.
  Status trim(Handle pool, Size keep);
  // Settles what was freed on all streams, or on one; then trims every pool to its release
  // threshold.
  void synchronize();
  void synchronize(Handle stream);
  // Gives the card all free memory of the pools of a device; false if there was none.
  bool give_all(int device);
  Status attribute(Handle pool, int attribute, std::uint64_t* value);
  Status set_attribute(Handle pool, int attribute, void const* value);  // an int or 64 bits
  // The devices that may access the memory of a pool; its own always may.
  Status set_access(Handle pool, AccessDescription const* access, std::size_t count);
  Status allowed(Handle pool, int device, bool* allowed);
  // The block that contains an address: of size 0 where the pool has no block, and none outside of
  // all pools.
  std::optional<Range> range_of(Address address);
  // The pool of that block; null if none does.
  Handle pool_of(Address address);

  struct Counts {
    std::size_t pools, blocks;  // pools that were created and not destroyed; blocks in use
  };
  Counts counts();

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

  Entry* find(Handle pool);
  Blocks::iterator block_at(Address address);
  bool open(Entry& entry, Size size);
  void free_block(Blocks::iterator block, Handle stream, HeldStreams::Work work);
  DriverPool::Ended ended(Entry& entry, std::optional<Stream> only = {});
  Size shrink(Entry& entry, Size most);
  void drop_if_unused(Handle pool);

  std::mutex mutex_;
  std::unordered_map<Handle, Entry> pools_;
  std::unordered_map<int, Handle> defaults_;
  Blocks blocks_;
};

// Memory with an address, after the pools of the device gave up theirs if nothing else suffices.
Status allocate_memory(int device, Size size, Address* address);

}  // namespace allocbench::null_gpu
