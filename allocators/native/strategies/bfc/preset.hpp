// strategies/bfc/preset.hpp: the defaults of the programs that use this allocator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

#include "core/options.hpp"
#include "core/types.hpp"

namespace allocbench {

struct BfcPreset {
  std::string_view name;
  double fraction;  // of the capacity, as the memory limit; 0: no limit
  bool allow_growth;
  Size first_region;
  Size largest_region;        // 0: none
  Size smallest_retry;        // the device is not asked for less after it refused a region
  bool doubles_when_refused;  // the next region is larger even if the device refused this one
};

// Sources: TensorFlow 2.21; JAX's documentation of GPU memory allocation; OrtArenaCfg and bfc_arena
// of ONNX Runtime 1.31.
inline constexpr BfcPreset kBfcPresets[] = {
    {"tensorflow", 1.0, true, 2 * kMiB, 0, 0, false},
    {"jax", 0.75, false, 2 * kMiB, 0, 0, false},
    {"onnxruntime", 0.0, true, kMiB, kGiB, 8 * kKiB, true},
};

inline BfcPreset const& bfc_preset(Options const& given) {
  auto const preset = std::ranges::find(kBfcPresets, given.text("preset"), &BfcPreset::name);
  if (preset == std::end(kBfcPresets))
    given.reject("preset", "must be tensorflow, jax or onnxruntime");
  return *preset;
}

}  // namespace allocbench
