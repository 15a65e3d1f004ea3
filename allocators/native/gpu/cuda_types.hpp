// gpu/cuda_types.hpp: structs of the CUDA driver's ABI, for those who call it and for the null GPU.
// SPDX-License-Identifier: Apache-2.0
//
// They repeat those of cuda.h, whose ABI is stable, so that no header of CUDA is needed to build.
#pragma once

#include "core/types.hpp"

namespace allocbench::cuda {

struct Location {  // CUmemLocation
  int type = 1;    // a device
  int id = 0;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // pinned
  int handle_types = 0;
  Location location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(AllocationProperties) == 32);

struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 3;  // read and write
};
static_assert(sizeof(AccessDescription) == 12);

struct PoolProperties {  // CUmemPoolProps
  int type = 1;          // pinned
  int handle_types = 0;
  Location location;
  void* windows = nullptr;
  Size most = 0;  // 0: as large as the device
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);

}  // namespace allocbench::cuda
