// entry_points.hpp: the allocation functions that PyTorch and CuPy call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "program.hpp"

namespace allocbench {

// Routes PyTorch's calls, which do not identify a program, to this one from now on.
void serve_torch(Program* program);

// The reason why the last failed request of this thread through CuPy's entry point failed.
std::string last_failure();

}  // namespace allocbench
