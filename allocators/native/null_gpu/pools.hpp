// null_gpu/pools.hpp: a model of the memory pools behind cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
//
// A pool keeps freed memory until it is trimmed; a synchronization returns what exceeds its release
// threshold. See pool_bytes.hpp.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/api.hpp"
#include "null_gpu/memory.hpp"

namespace allocbench::null_gpu {

class DriverPools {
 public:
  static DriverPools& get();

  Handle default_of(int device);
  Handle create(int device);
  void destroy(Handle pool);
  Status allocate(Handle pool, Size size, Address* address);
  // kInvalidValue if no pool has a block at the address.
  Status release(Address address);
  // Returns free memory above `keep` reserved bytes to the card.
  void trim(Handle pool, Size keep);
  // Trims every pool to its release threshold.
  void synchronize();
  Status attribute(Handle pool, int attribute, std::uint64_t* value);
  Status set_attribute(Handle pool, int attribute, std::uint64_t value);
  // The block that contains an address; size 0 if none does.
  Range range_of(Address address);

 private:
  struct DriverPool {
    int device = 0;
    PoolBytes bytes;
  };
  struct Block {
    Handle pool;
    Size size;
  };

  void shrink(DriverPool& pool, Size keep);

  std::mutex mutex_;
  std::unordered_map<Handle, DriverPool> pools_;
  std::unordered_map<int, Handle> defaults_;
  std::map<Address, Block> blocks_;
};

}  // namespace allocbench::null_gpu
