// core/options.hpp: the named, typed options of a strategy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/types.hpp"

namespace allocbench {

enum class OptionType { kBytes, kFlag, kNumber, kText };

std::string_view to_string(OptionType type);

// `fallback` is the default value, in the syntax of a user. If it is empty, the strategy decides,
// as described in `help`.
struct Option {
  std::string_view name;
  OptionType type;
  std::string_view fallback;
  std::string_view help;
};

// A user's options on top of the declared defaults.
class Options {
 public:
  // Throws SpecError for an undeclared name (listing the valid names) and for a value of the wrong
  // type.
  Options(std::string_view owner, std::span<Option const> declared,
          std::map<std::string, std::string> given);
  // Adds options. Throws SpecError like the constructor, and if an option was given before.
  void give(std::map<std::string, std::string> more);

  // Those of these options that have a value, as it is written.
  std::map<std::string, std::string> written(std::initializer_list<std::string_view> names) const;

  bool given(std::string_view name) const;  // true if the option has a value, also by default
  Size bytes(std::string_view name) const;
  bool flag(std::string_view name) const;
  double number(std::string_view name) const;
  std::string const& text(std::string_view name) const;

  // Throws SpecError with the strategy, the option, its value and the rule that it breaks.
  [[noreturn]] void reject(std::string_view name, std::string_view rule) const;

 private:
  std::string const& value(std::string_view name, OptionType type) const;

  std::string owner_;
  std::span<Option const> declared_;
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string> given_;
};

}  // namespace allocbench
