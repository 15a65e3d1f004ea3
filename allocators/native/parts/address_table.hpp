// parts/address_table.hpp: address -> value, for what is known of a block beside its place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Every operation takes O(1) expected steps.
template <class Value>
class AddressTable {
 public:
  // The address is neither 0 nor in the table.
  void insert(Address address, Value const& value) {
    auto at = static_cast<Index>(values_.size());
    if (unused_.empty()) {
      values_.push_back(value);
    } else {
      at = unused_.back();
      unused_.pop_back();
      values_[at] = value;
    }
    slots_.insert(address, at);
  }

  // The value, which is forgotten.
  std::optional<Value> take(Address address) {
    Index const at = slots_.erase(address);
    if (at == kNone) return {};
    unused_.push_back(at);
    return values_[at];
  }

 private:
  AddressMap slots_;  // address -> index of its value
  std::vector<Value> values_;
  std::vector<Index> unused_;
};

}  // namespace allocbench
