// null_gpu/pools.hpp: the memory pools behind cudaMallocAsync, a model.
// SPDX-License-Identifier: Apache-2.0
//
// A pool reserves from the card in steps of kPoolStep and keeps what is freed until it is trimmed,
// or at a synchronisation down to its release threshold. NVIDIA does not document the step: 32 MiB
// is what cudaMemPoolAttrReservedMemCurrent shows on current drivers. Blocks inside are not placed,
// so a pool here is never fragmented.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/api.hpp"
#include "null_gpu/memory.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kPoolStep = Size{32} << 20;

class Pools {
 public:
  static Pools& get();

  Handle default_of(int device);
  Handle create(int device);
  void destroy(Handle pool);
  Status allocate(Handle pool, Size size, Address* address);
  // kInvalidValue for an address that comes from no pool.
  Status release(Address address);
  void trim(Handle pool, Size keep);
  // What the release thresholds allow goes back to the card.
  void synchronize();
  Status attribute(Handle pool, int attribute, std::uint64_t* value);
  Status set_attribute(Handle pool, int attribute, std::uint64_t value);
  Range range_of(Address address);

 private:
  struct Pool {
    int device = 0;
    Size threshold = 0, reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  };
  struct Block {
    Handle pool;
    Size size;
  };

  void shrink(Pool& pool, Size keep);

  std::mutex mutex_;
  std::unordered_map<Handle, Pool> pools_;
  std::unordered_map<int, Handle> defaults_;
  std::map<Address, Block> blocks_;
};

}  // namespace allocbench::null_gpu
