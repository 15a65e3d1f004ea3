// strategies/planned/profile_file.hpp: reads a run written by `allocbench plan -o`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/options.hpp"
#include "strategies/planned/profile.hpp"

namespace allocbench {

// Builds the profile of a run from a CSV with the columns id,lower,upper,size,offset,step: one
// block per line, alive from instant `lower` up to but not including `upper` and requested after
// `step` steps had begun. Without the column `step`, steps are detected as in a run without marks.
// The order of the lines does not matter; the offsets, valid only for that run, are ignored. Throws
// SpecError with the option and the line if the file cannot be read or is not such a CSV.
Profile read_profile(Options const& given, std::string_view option);

}  // namespace allocbench
