// wrappers/record.hpp: records a program's requests as the arrays of a trace.
// SPDX-License-Identifier: Apache-2.0
//
// Every block gets its own id, in request order. Failed requests are not recorded, because a trace
// contains only blocks that existed. A step becomes a mark. Takes 19 bytes of memory per event.
#pragma once

#include <cstdint>
#include <mutex>

#include "parts/address_map.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class Record final : public Wrapper {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "record",
      .summary = "records every alloc, free, step and trim as a trace",
  };

  // Arrays of equal length with one element per event. The label of a mark is 0 (a step).
  struct Recording {
    std::vector<std::uint8_t> op;
    std::vector<std::uint32_t> block;
    std::vector<std::uint64_t> size;
    std::vector<std::uint32_t> stream;
    std::vector<std::uint16_t> pool;
  };

  Record(Device& device, Options const&, MakeInner const& make_inner)
      : Wrapper(device, make_inner) {}

  Recording recording() const {
    std::scoped_lock const guard(lock());
    return recording_;
  }

 private:
  Block do_allocate(Size requested, Stream stream) override {
    Block const block = Wrapper::do_allocate(requested, stream);
    if (block.size == 0) return block;
    ids_.insert(block.address, blocks_);
    add(Op::kAlloc, blocks_++, requested, stream);
    return block;
  }

  Block do_deallocate(Address address, Stream stream) override {
    Block const block = Wrapper::do_deallocate(address, stream);
    if (block.size != 0) add(Op::kFree, ids_.erase(address), 0, stream);
    return block;
  }

  void do_trim() override {
    Wrapper::do_trim();
    add(Op::kTrim, 0, 0, 0);
  }

  void do_trim_pool(PoolId pool) override {
    Wrapper::do_trim_pool(pool);
    add(Op::kTrim, 0, 0, in_pool(0, pool));
  }

  void do_pool_event(Op op, PoolId pool) override {
    Wrapper::do_pool_event(op, pool);
    add(op, 0, 0, in_pool(0, pool));
  }

  void do_step() override {
    Wrapper::do_step();
    add(Op::kMark, 0, 0, 0);
  }

  void do_check() const override {
    Wrapper::do_check();
    require(ids_.size() == counted().allocations - counted().frees,
            "the recording contains the live blocks");
  }

  void add(Op op, std::uint32_t block, Size size, Stream stream) {
    recording_.op.push_back(static_cast<std::uint8_t>(op));
    recording_.block.push_back(block);
    recording_.size.push_back(size);
    recording_.stream.push_back(static_cast<std::uint32_t>(without_pool(stream)));
    recording_.pool.push_back(static_cast<std::uint16_t>(pool_of(stream)));
  }

  AddressMap ids_;  // of the live blocks
  std::uint32_t blocks_ = 0;
  Recording recording_;
};

}  // namespace allocbench
