// entry_points.hpp: the allocation functions that PyTorch and CuPy call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "program.hpp"

namespace allocbench {

// PyTorch's calls do not identify a program; from now on they go to this one.
void serve_torch(Program* program);

// Why this thread's last request through CuPy's entry point failed.
std::string last_failure();

}  // namespace allocbench
