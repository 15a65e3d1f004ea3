// core/options.cpp: the named, typed options of a strategy.
// SPDX-License-Identifier: Apache-2.0
#include "core/options.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

std::optional<bool> parse_flag(std::string_view text) {
  for (auto yes : {"true", "True", "1", "on", "yes"})
    if (text == yes) return true;
  for (auto no : {"false", "False", "0", "off", "no"})
    if (text == no) return false;
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool parses(OptionType type, std::string_view text) {
  switch (type) {
    case OptionType::kBytes: return parse_bytes(text).has_value();
    case OptionType::kFlag: return parse_flag(text).has_value();
    case OptionType::kNumber: return parse_number(text).has_value();
    case OptionType::kText: return true;
  }
  return false;
}

std::string valid_names(std::span<Option const> declared) {
  if (declared.empty()) return "it has no options";
  std::string names = "valid options: ";
  for (auto const& option : declared) names.append(option.name).append(", ");
  names.resize(names.size() - 2);
  return names;
}

}  // namespace

std::string_view to_string(OptionType type) {
  switch (type) {
    case OptionType::kBytes: return "bytes";
    case OptionType::kFlag: return "true or false";
    case OptionType::kNumber: return "number";
    case OptionType::kText: return "text";
  }
  return "";
}

Options::Options(std::string_view owner, std::span<Option const> declared,
                 std::map<std::string, std::string> given)
    : owner_(owner), declared_(declared) {
  for (auto const& option : declared_)
    if (!option.fallback.empty()) values_.emplace(option.name, option.fallback);
  give(std::move(given));
}

void Options::give(std::map<std::string, std::string> more) {
  for (auto& [name, value] : more) {
    auto const option = std::ranges::find(declared_, std::string_view(name), &Option::name);
    if (option == declared_.end())
      throw SpecError(owner_ + " has no option '" + name + "'; " + valid_names(declared_));
    if (!given_.insert(name).second) reject(name, "is given twice");
    values_[name] = std::move(value);
    if (!parses(option->type, values_[name]))
      reject(name, "must be " + std::string(to_string(option->type)));
  }
}

bool Options::given(std::string_view name) const { return values_.contains(name); }

std::map<std::string, std::string> Options::written(
    std::initializer_list<std::string_view> names) const {
  std::map<std::string, std::string> found;
  for (auto const name : names)
    if (auto const value = values_.find(name); value != values_.end()) found.insert(*value);
  return found;
}

Size Options::bytes(std::string_view name) const {
  return *parse_bytes(value(name, OptionType::kBytes));
}

bool Options::flag(std::string_view name) const {
  return *parse_flag(value(name, OptionType::kFlag));
}

double Options::number(std::string_view name) const {
  return *parse_number(value(name, OptionType::kNumber));
}

std::string const& Options::text(std::string_view name) const {
  return value(name, OptionType::kText);
}

void Options::reject(std::string_view name, std::string_view rule) const {
  auto const value = values_.find(name);
  throw SpecError(owner_ + ": option " + std::string(name) + "=" +
                  (value == values_.end() ? "" : value->second) + " " + std::string(rule));
}

std::string const& Options::value(std::string_view name, OptionType type) const {
  auto const declared = std::ranges::find(declared_, name, &Option::name);
  require(declared != declared_.end() && declared->type == type, "an option is read as declared");
  auto const option = values_.find(name);
  require(option != values_.end(), "an option is read only when it is given");
  return option->second;
}

}  // namespace allocbench
