// native/control.hpp: what tests ask of the null GPU and tell it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace allocbench::null_gpu {

// When this process ends, writes what it still holds of the driver: a line for each kind.
void report_at_exit(std::string const& path);

}  // namespace allocbench::null_gpu
