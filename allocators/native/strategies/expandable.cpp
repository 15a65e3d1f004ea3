// strategies/expandable.cpp: memory in pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/expandable.hpp"

namespace allocbench {

Expandable::Expandable(Device& device, Options const& given)
    : Stitching(device, given, given.bytes("page"), given.bytes("small"), given.number("slack")) {
  if (!(given.number("slack") >= 0)) given.reject("slack", "must be at least 0");
}

}  // namespace allocbench
