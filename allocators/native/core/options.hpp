// core/options.hpp: named, typed options of a strategy, checked before it is made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/types.hpp"

namespace allocbench {

enum class OptionType { kBytes, kFlag, kNumber, kText };

std::string_view to_string(OptionType type);

// What a strategy declares. `fallback` is the default as a user would write it; an empty one
// means "not given", which only the strategy can interpret; `help` says how.
struct Option {
  std::string_view name;
  OptionType type;
  std::string_view fallback;
  std::string_view help;
};

// The options given by a user, over the declared defaults.
class Options {
 public:
  // Throws SpecError for a name that is not declared (listing the valid ones) and for a value
  // that is not of the declared type.
  Options(std::string_view owner, std::span<Option const> declared,
          std::map<std::string, std::string> given);
  // More of them; throws SpecError as the constructor does, and for one that was given before.
  void give(std::map<std::string, std::string> more);

  bool given(std::string_view name) const;  // by the user, or by a non-empty default
  Size bytes(std::string_view name) const;
  bool flag(std::string_view name) const;
  double number(std::string_view name) const;
  std::string const& text(std::string_view name) const;

  // Throws SpecError saying which option of which strategy is wrong, its value and the rule.
  [[noreturn]] void reject(std::string_view name, std::string_view rule) const;

 private:
  std::string const& value(std::string_view name, OptionType type) const;

  std::string owner_;
  std::span<Option const> declared_;
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string> given_;
};

}  // namespace allocbench
