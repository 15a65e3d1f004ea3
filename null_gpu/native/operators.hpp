// native/operators.hpp: the operators that PyTorch's dispatcher calls.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch tells an observer of each operator that its dispatcher calls, as it tells its profiler:
// the operator's schema and arguments before the call, and its results afterwards. So the null GPU
// knows which memory an operator writes, and the hook can compute small results on the host.
// Programs see nothing of it. The observer needs no header of PyTorch: the hook finds out where the
// parts of PyTorch's objects are (`inside/dispatcher.py`).
#pragma once

#include <cstdint>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// A kernel was launched, on this thread. It may have written to what the operator that launches it
// allocated, or to its arguments that it changes.
void kernel_in_operator();
// Whether this thread runs an operator, whose schema says what it writes.
bool in_operator();
// An operator that reads memory other than that of its arguments reads what it allocated itself.
// Returns a number of writes: memory at this address is known only if it was written later.
std::uint64_t known_after(Address address);

}  // namespace allocbench::null_gpu
