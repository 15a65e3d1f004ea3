// core/trace.hpp: the events of a trace. workloads/native uses them, too; in Python, they are in
// allocbench/base/trace.py.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.hpp"

namespace allocbench {

// The values of a trace's `op` array. A mark is the boundary of a step or phase. A trim of pool 0
// gives back what is free outside of private pools and in released ones. The rest are the events of
// private pools (PrivatePools).
enum class Op : std::uint8_t {
  kAlloc = 0,
  kFree = 1,
  kMark = 2,
  kTrim = 3,
  kPoolCreate = 4,
  kPoolEnter = 5,
  kPoolLeave = 6,
  kCaptureBegin = 7,
  kCaptureEnd = 8,
  kPoolRelease = 9,
};

// Consecutive events of a trace: arrays of equal length with one element per event. A mark whose
// `block` is the trace's `step_label` begins a step; allocators ignore other marks.
struct TracePart {
  std::span<std::uint8_t const> op;
  std::span<std::uint32_t const> block;
  std::span<std::uint64_t const> size;
  std::span<std::uint16_t const> stream;
  // The private pool of each event, 0 for memory outside of them; empty in all parts of a trace
  // without pools. A free may have any, because its block knows its pool.
  std::span<std::uint16_t const> pool = {};
  // What results and errors call the block of each alloc and free; empty: the same as `block`.
  std::span<std::uint32_t const> id = {};

  std::size_t events() const { return op.size(); }
  PoolId pool_at(std::size_t event) const { return pool.empty() ? 0 : pool[event]; }
  std::uint32_t id_at(std::size_t event) const { return id.empty() ? block[event] : id[event]; }
};

}  // namespace allocbench
