// core/pool_device.hpp: a device whose driver has memory pools of its own (cuMemPool).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "core/device.hpp"

namespace allocbench {

// A pool allocates and frees blocks in stream order and keeps freed memory. All memory of a pool
// counts as reserved. As in Device, public calls lock, count and check.
class PoolDevice : public Device {
 public:
  using PoolHandle = std::uint64_t;

  virtual bool has_driver_pools() const = 0;  // a driver or a GPU may lack them
  // A pool that keeps up to `keep` free bytes when its streams are synchronized, or 0.
  PoolHandle open_pool(Size keep, void const* owner);
  Address allocate_from(PoolHandle pool, Size size, Stream stream);  // 0 if the device refuses
  void free_to(PoolHandle pool, Address block, Stream stream);
  void trim_pool(PoolHandle pool);
  Size held_by(PoolHandle pool) const;  // bytes, allocated and free

 protected:
  // The device took memory from its pools. Returns by how many bytes that changes those reserved.
  Size recount_pools();

 private:
  struct OpenPool {
    void const* owner;  // null: closed by its owner, but the device failed to close it
    Size reserved = 0;
  };
  struct PoolBlock {
    PoolHandle pool;
    Stream stream;  // on which the block is freed
  };

  virtual PoolHandle do_open_pool(Size keep, double& seconds) = 0;
  // `others`: reserved bytes outside of the pool.
  virtual Address do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                                   double& seconds) = 0;
  virtual bool do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                          double& seconds) = 0;
  virtual void do_trim_pool(PoolHandle pool, double& seconds) = 0;
  virtual Size do_held_by(PoolHandle pool, Size before) = 0;
  virtual bool do_close_pool(PoolHandle pool, double& seconds) = 0;

  bool do_free_block(Address block, Size size, double& seconds) final;
  std::size_t do_blocks_freed(std::optional<void const*> owner) final;  // closes the pools
  void recount(PoolHandle pool);
  void close_pool(PoolHandle pool);

  std::map<PoolHandle, OpenPool> pools_;
  std::map<Address, PoolBlock> blocks_;
};

}  // namespace allocbench
