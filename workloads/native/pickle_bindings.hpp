// pickle_bindings.hpp: what a pickle holds, as Python objects and as columns of tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace allocbench {

void bind_pickles(nanobind::module_& m);

}  // namespace allocbench
