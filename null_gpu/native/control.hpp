// native/control.hpp: what tests and the hook ask of the null GPU and tell it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

Status counted(char const* function);  // see `entered` of machine.hpp
// Calls of functions fail: NAME:NUMBER or NAME:NUMBER:ERROR, several of them separated by commas.
// NUMBER counts the calls of NAME from now on; 0: each of them fails.
void fail_calls(std::string const& text);
// When this process ends, writes what it still holds of the driver: a line for each kind.
void report_at_exit(std::string const& path);

}  // namespace allocbench::null_gpu
