// null_gpu/pool_bytes.hpp: the bytes of a memory pool of cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
//
// A pool reserves memory of the card in multiples of kPoolUnit. NVIDIA does not document the unit:
// 32 MiB is what cudaMemPoolAttrReservedMemCurrent shows on current drivers. Blocks are not placed
// inside a pool, so a pool is never fragmented.
#pragma once

#include <algorithm>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kPoolUnit = Size{32} << 20;

inline Size round_up(Size size, Size unit) { return (size + unit - 1) / unit * unit; }

struct PoolBytes {
  Size threshold = 0;  // reserved bytes that a synchronization leaves
  Size reserved = 0, reserved_high = 0, used = 0, used_high = 0;

  // Bytes of the card that the pool needs in addition before `size` can be used.
  [[nodiscard]] Size lacking(Size size) const {
    return used + size > reserved ? round_up(used + size - reserved, kPoolUnit) : 0;
  }
  void grow(Size size) {
    reserved += size;
    reserved_high = std::max(reserved_high, reserved);
  }
  void use(Size size) {
    used += size;
    used_high = std::max(used_high, used);
  }
  // Keeps what is used and at least `keep` reserved bytes; returns the bytes that the card gets
  // back.
  Size shrink(Size keep) {
    if (keep >= reserved) return 0;  // also avoids an overflow when all may be kept
    Size const left = round_up(std::max(keep, used), kPoolUnit);
    if (left >= reserved) return 0;
    Size const freed = reserved - left;
    reserved = left;
    return freed;
  }
};

}  // namespace allocbench::null_gpu
