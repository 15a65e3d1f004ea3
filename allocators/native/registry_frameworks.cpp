// registry_frameworks.cpp: the allocators of frameworks that place blocks in segments.
// SPDX-License-Identifier: Apache-2.0
#include "registry_lists.hpp"
#include "strategies/bfc.hpp"
#include "strategies/caching.hpp"
#include "strategies/cupy_pool.hpp"
#include "strategies/ggml_pool.hpp"
#include "strategies/mlx_cache.hpp"
#include "strategies/rmm_arena.hpp"
#include "strategies/rmm_pool.hpp"

namespace allocbench {

std::span<Registered const> framework_strategies() {
  return list<Bfc, Caching, CupyPool, GgmlPool, MlxCache, RmmArena, RmmPool>();
}

}  // namespace allocbench
