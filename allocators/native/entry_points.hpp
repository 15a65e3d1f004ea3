// entry_points.hpp: what PyTorch and CuPy call for memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "program.hpp"

namespace allocbench {

// PyTorch's calls name no program: from now on they are this one's.
void serve_torch(Program* program);

// Why the last request of this thread through CuPy's entry point failed.
std::string last_failure();

}  // namespace allocbench
