// strategies/planned/profile_file.hpp: a run of a program, as `allocbench plan -o` wrote it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/options.hpp"
#include "strategies/planned/profile.hpp"

namespace allocbench {

// The profile of the run in a CSV of id,lower,upper,size,offset,step: a block a line, alive from
// instant `lower` up to but not including `upper`, requested when `step` steps had begun. Without
// the last column steps are found as in a run without marks. The order of the lines does not
// matter, nor do the offsets, which hold for that run alone. Throws SpecError, naming the option
// and the line, for a file that cannot be read or is no such CSV.
Profile read_profile(Options const& given, std::string_view option);

}  // namespace allocbench
