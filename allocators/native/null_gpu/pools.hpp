// null_gpu/pools.hpp: a model of the memory pools behind cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
//
// A pool keeps freed memory until it is trimmed; a synchronization returns what exceeds its release
// threshold. See pool_bytes.hpp. Memory that is freed on a held stream stays in use until the
// stream gets there, and a destroyed pool stays until its last block is freed.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "null_gpu/api.hpp"
#include "null_gpu/held_streams.hpp"
#include "null_gpu/memory.hpp"

namespace allocbench::null_gpu {

class DriverPools {
 public:
  static DriverPools& get();

  Handle default_of(int device);
  Handle create(int device);
  Status destroy(Handle pool);
  Status allocate(Handle pool, Size size, Handle stream, Address* address);
  // kInvalidValue if no pool has a block at the address.
  Status release(Address address);
  // The same in the order of a stream, which must be of the pool's device. In a capture, only
  // memory that was allocated in it can be freed; anything else makes the capture invalid.
  Status release(Address address, Handle stream);
  // Returns free memory above `keep` reserved bytes to the card.
  Status trim(Handle pool, Size keep);
  // Trims every pool to its release threshold.
  void synchronize();
  Status attribute(Handle pool, int attribute, std::uint64_t* value);
  Status set_attribute(Handle pool, int attribute, std::uint64_t value);
  // The devices that may access the memory of a pool; its own always may.
  Status set_access(Handle pool, AccessDescription const* access, std::size_t count);
  Status allowed(Handle pool, int device, bool* allowed);
  // The block that contains an address; size 0 if none does.
  Range range_of(Address address);
  // The pool of that block; null if none does.
  Handle pool_of(Address address);

  struct Counts {
    std::size_t pools, blocks;  // pools that were created and not destroyed; blocks in use
    Size reserved;              // bytes, of all pools
  };
  Counts counts();

 private:
  struct DriverPool {
    int device = 0;
    PoolBytes bytes = {};
    std::set<int> peers = {};  // other devices that may access it
    bool destroyed = false;
  };
  struct Block {
    Handle pool;
    Size size;
    std::uint64_t capture;                        // in which it was allocated, or 0
    std::optional<HeldStreams::Work> freed = {};  // after this work
  };
  using Blocks = std::map<Address, Block>;

  DriverPool* find(Handle pool);
  Blocks::iterator block_at(Address address);
  Blocks::iterator free_block(Blocks::iterator block);
  void free_ended();
  void shrink(DriverPool& pool, Size keep);
  void drop_if_unused(Handle pool);

  std::mutex mutex_;
  std::unordered_map<Handle, DriverPool> pools_;
  std::unordered_map<int, Handle> defaults_;
  Blocks blocks_;
  std::size_t pending_ = 0;  // blocks whose frees a stream has not reached
};

}  // namespace allocbench::null_gpu
