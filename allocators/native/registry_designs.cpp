// registry_designs.cpp: textbook and research designs, and allocators of others.
// SPDX-License-Identifier: Apache-2.0
#include "registry_lists.hpp"
#include "strategies/arena.hpp"
#include "strategies/buddy.hpp"
#include "strategies/bump.hpp"
#include "strategies/external.hpp"
#include "strategies/free_lists.hpp"
#include "strategies/naive.hpp"
#include "strategies/slab.hpp"
#include "strategies/tlsf.hpp"

namespace allocbench {

std::span<Registered const> design_strategies() {
  return list<Arena, Buddy, Bump, FreeLists, Naive, Slab, Tlsf>();
}

Registered const& external_strategy() { return list<External>().front(); }

}  // namespace allocbench
