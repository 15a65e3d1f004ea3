// pickle_rows.cpp: which dicts of a pickle become rows of tables, and how.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "pickle.hpp"

namespace allocbench {
namespace {

constexpr std::size_t kFrames = 0;  // the table of frames
constexpr std::size_t kMostRows = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNoPair = 0;  // its text is empty

}  // namespace

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 80));
  for (char& byte : shown)
    if (byte < ' ' || byte > '~') byte = '?';
  return shown;
}

// The row of a dict whose keys and values begin at a place.
std::optional<Value> PickleReader::as_row(std::vector<Value> const& items, std::size_t begin) {
  std::size_t const count = items.size() - begin;
  if (count == 0 || count > 2 * kMostKeys || tables_.empty()) return std::nullopt;
  Places const& found = places(items, begin);
  if (!found.table) return std::nullopt;
  Table& table = tables_[*found.table];
  if (table.rows == kMostRows)
    throw PickleError("holds more than " + std::to_string(kMostRows) + " of one kind");
  for (std::size_t field = 0; field < table.columns.size(); ++field) {
    int const place = found.place[field];
    add(table, field,
        place < 0 ? nullptr : &items[begin + 2 * static_cast<std::size_t>(place) + 1]);
  }
  if (*found.table != kFrames) return Value::row(*found.table, table.rows++);
  std::string key;
  for (Column const& column : table.columns)
    key += column.wide.empty() ? bytes_of(column.narrow.back()) : bytes_of(column.wide.back());
  std::size_t const row = frames_.number(key);
  if (row == table.rows)
    ++table.rows;
  else
    for (Column& column : table.columns)
      column.wide.empty() ? column.narrow.pop_back() : column.wide.pop_back();
  return Value::row(kFrames, row);
}

// The stack of a list of frames or of an empty list.
std::optional<std::uint32_t> PickleReader::as_stack(std::vector<Value> const& values) {
  rows_.clear();
  for (Value const value : values) {
    if (value.kind() != Value::kRow || value.table() != kFrames) return std::nullopt;
    rows_.push_back(static_cast<std::uint32_t>(value.row()));
  }
  return stacks_.number({reinterpret_cast<char const*>(rows_.data()), rows_.size() * 4});
}

// The pair of two whole numbers.
std::optional<Value> PickleReader::as_pair(Value first, Value second) {
  auto const one = whole(first), other = whole(second);
  if (!one || !other) return std::nullopt;
  std::int64_t const numbers[] = {*one, *other};
  return Value(Value::kPair, pairs_.number(bytes_of(numbers)));
}

PickleReader::Places const& PickleReader::places(std::vector<Value> const& items,
                                                 std::size_t begin) {
  keys_.clear();
  for (std::size_t n = begin; n < items.size(); n += 2) keys_ += bytes_of(items[n]);
  std::uint32_t const shape = shapes_.number(keys_);
  if (shape < places_.size()) return places_[shape];
  std::unordered_map<std::string_view, int, KeyedHash> at;
  for (std::size_t n = begin; n < items.size(); n += 2) {
    if (items[n].kind() != Value::kText) return places_.emplace_back();
    at[texts_[items[n].index()]] = static_cast<int>((n - begin) / 2);
  }
  Places found;
  for (std::size_t table = 0; table < tables_.size() && !found.table; ++table) {
    Form const& form = tables_[table].form;
    auto const has = [&](std::string const& key) { return at.contains(key); };
    if (!std::ranges::all_of(form.needed, has)) continue;
    found.table = table;
    for (Field const& field : form.fields) {
      auto const key = std::ranges::find_if(field.keys, has);
      found.place.push_back(key == field.keys.end() ? -1 : at[*key]);
    }
  }
  return places_.emplace_back(std::move(found));
}

// Adds the value of a field, nullptr if the dict has none, to its column.
void PickleReader::add(Table& table, std::size_t number, Value const* value) {
  Field const& field = table.form.fields[number];
  Column& column = table.columns[number];
  auto const is = [&](Value::Kind kind) { return value && value->kind() == kind; };
  switch (field.holds) {
    case Holds::kNumber: {
      auto const found = value ? whole(*value) : field.absent;
      if (!found || (value && (*found < field.least || *found > field.most)))
        misfit(table, field, *value);
      column.wide.push_back(*found);
      return;
    }
    case Holds::kName:
      if (value && !is(Value::kText)) misfit(table, field, *value);
      column.narrow.push_back(value ? static_cast<std::uint32_t>(value->index())
                                    : texts_.number({}));
      return;
    case Holds::kChoice: column.narrow.push_back(is(Value::kFlag) && value->number()); return;
    case Holds::kPool: {
      Value found = value ? *value : Value(Value::kPair, kNoPair);
      if (is(Value::kList) && values(found).size() == 2)
        found = as_pair(values(found)[0], values(found)[1]).value_or(found);
      if (found.kind() != Value::kPair) misfit(table, field, found);
      column.narrow.push_back(static_cast<std::uint32_t>(found.index()));
      return;
    }
    case Holds::kFrames:
      column.narrow.push_back(is(Value::kStack) ? static_cast<std::uint32_t>(value->index()) : 0);
      return;
    case Holds::kRows:
      std::size_t begin = 0, end = 0;
      if (is(Value::kList)) {
        std::vector<Value> const& rows = values(*value);
        begin = rows.front().row();
        end = begin + rows.size();
        for (std::size_t n = 0; n < rows.size(); ++n)
          if (rows[n].kind() != Value::kRow || rows[n].row() != begin + n ||
              tables_[rows[n].table()].form.name != field.of)
            misfit(table, field, *value);
      } else if (value && !(is(Value::kStack) && value->index() == 0)) {
        misfit(table, field, *value);
      }
      column.narrow.push_back(static_cast<std::uint32_t>(begin));
      column.end.push_back(static_cast<std::uint32_t>(end));
  }
}

std::optional<std::int64_t> PickleReader::whole(Value value) const {
  if (value.kind() == Value::kWhole) return value.number();
  if (value.kind() != Value::kLong || texts_[value.index()].size() > 8) return std::nullopt;
  std::string_view const bytes = texts_[value.index()];
  std::int64_t number = static_cast<std::int8_t>(bytes.back()) < 0 ? -1 : 0;
  std::memcpy(&number, bytes.data(), bytes.size());
  return number;
}

void PickleReader::misfit(Table const& table, Field const& field, Value value) const {
  std::string wanted;
  if (field.holds == Holds::kNumber)
    wanted = "a number from " + std::to_string(field.least) + " to " + std::to_string(field.most);
  if (field.holds == Holds::kName) wanted = "a text";
  if (field.holds == Holds::kPool) wanted = "two numbers";
  if (field.holds == Holds::kRows) wanted = "a list of its own of dicts, each a " + field.of;
  throw PickleError(table.form.name + " " + std::to_string(table.rows) +
                    " in the file is not valid: its '" + field.keys.front() + "' is " +
                    shown(value) + ", not " + wanted);
}

std::string PickleReader::shown(Value value) const {
  switch (value.kind()) {
    case Value::kNone: return "None";
    case Value::kFloat: return "a float";
    case Value::kBytes: return "bytes";
    case Value::kTuple: return "a tuple";
    case Value::kList:
    case Value::kStack: return "a list";
    case Value::kDict:
    case Value::kRow: return "a dict";
    case Value::kFlag: return value.number() ? "True" : "False";
    case Value::kText:
    case Value::kDigits:
      return std::string(1, '\'').append(printable(texts_[value.index()])).append(1, '\'');
    case Value::kPair: {
      auto const [first, second] = pair(value.index());
      std::string text(1, '(');
      return text.append(std::to_string(first)).append(", ").append(std::to_string(second)) + ')';
    }
    default:
      if (auto const number = whole(value)) return std::to_string(*number);
      return "a number of " + std::to_string(texts_[value.index()].size()) + " bytes";
  }
}

}  // namespace allocbench
