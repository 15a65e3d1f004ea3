// pickle.cpp: reads pickles that hold only data; dicts with known keys become rows of tables.
// SPDX-License-Identifier: Apache-2.0
#include "pickle.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace allocbench {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

namespace {

constexpr std::size_t kWindow = 1 << 18;  // bytes read at a time
constexpr std::size_t kMostText = 1 << 24;
constexpr std::size_t kMostDigits = 64;  // bytes of a number, or of a line that holds one

// The opcodes that create or call something other than data.
constexpr std::pair<std::uint8_t, char const*> kRefused[] = {
    {'c', "GLOBAL"},        {'i', "INST"},         {'o', "OBJ"},
    {'R', "REDUCE"},        {'b', "BUILD"},        {'P', "PERSID"},
    {'Q', "BINPERSID"},     {0x81, "NEWOBJ"},      {0x82, "EXT1"},
    {0x83, "EXT2"},         {0x84, "EXT4"},        {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

std::string utf8_of_latin1(std::string_view text) {
  std::string found;
  for (char const byte : text) {
    auto const code = static_cast<std::uint8_t>(byte);
    if (code < 0x80) {
      found += byte;
    } else {
      found += static_cast<char>(0xc0 | code >> 6);
      found += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return found;
}

}  // namespace

std::uint32_t Texts::number(std::string_view text) {
  if (last_ < texts_.size() && *texts_[last_] == text) return last_;
  if (auto const found = numbers_.find(text); found != numbers_.end()) return last_ = found->second;
  last_ = static_cast<std::uint32_t>(texts_.size());
  texts_.push_back(&numbers_.emplace(text, last_).first->first);
  return last_;
}

PickleReader::PickleReader(std::vector<Form> forms, std::uint64_t size, Read read, OldText old_text)
    : read_(std::move(read)), old_text_(std::move(old_text)), size_(size) {
  stacks_.number({});
  pairs_.number({});
  for (Form& form : forms) {
    std::vector<Column> columns(form.fields.size());
    tables_.push_back({std::move(form), std::move(columns)});
  }
}

std::pair<std::int64_t, std::int64_t> PickleReader::pair(std::size_t number) const {
  std::pair<std::int64_t, std::int64_t> found(0, 0);
  std::string_view const text = pairs_[number];
  if (text.empty()) return found;
  std::memcpy(&found.first, text.data(), sizeof found.first);
  std::memcpy(&found.second, text.data() + sizeof found.first, sizeof found.second);
  return found;
}

std::vector<std::uint32_t> PickleReader::stack(std::size_t number) const {
  std::string_view const text = stacks_[number];
  std::vector<std::uint32_t> frames(text.size() / sizeof(std::uint32_t));
  if (!frames.empty()) std::memcpy(frames.data(), text.data(), text.size());
  return frames;
}

Value PickleReader::load() {
  while (true) {
    if (at_ == data_.size() && !refill()) cut();
    op_at_ = before_ + at_;
    auto const op = static_cast<std::uint8_t>(data_[at_++]);
    if (op == '.') return settled(pop());
    act(op);
  }
}

void PickleReader::forget_values() {
  data_ = {};
  stack_ = {};
  memo_ = {};
  sparse_ = {};
  containers_ = {};
  for (Table& table : tables_)
    for (Column& column : table.columns) {
      column.wide.shrink_to_fit();
      column.narrow.shrink_to_fit();
      column.end.shrink_to_fit();
    }
}

// --- the file

bool PickleReader::refill() {
  data_.erase(0, at_);
  before_ += at_;
  at_ = 0;
  std::uint64_t const had = data_.size(), rest = size_ - before_ - had;
  if (rest > 0) read_(data_, static_cast<std::size_t>(std::min<std::uint64_t>(kWindow, rest)));
  data_.resize(std::min<std::uint64_t>(data_.size(), had + rest));
  return data_.size() > had;
}

void PickleReader::need(std::size_t bytes) {
  while (data_.size() - at_ < bytes)
    if (!refill()) cut();
}

template <class Number>
Number PickleReader::number() {
  need(sizeof(Number));
  Number number;
  std::memcpy(&number, data_.data() + at_, sizeof number);
  at_ += sizeof number;
  return number;
}

// The next bytes, which must be in the file.
std::string_view PickleReader::take(std::uint64_t count, std::uint64_t most) {
  if (count > left())
    throw PickleError("is truncated or not a pickle: " + std::to_string(count) +
                      " more bytes were expected, and " + std::to_string(left()) + " are left");
  if (count > most)
    throw PickleError("is not the data of a trace: a value of " + std::to_string(count) + " bytes");
  need(static_cast<std::size_t>(count));
  at_ += static_cast<std::size_t>(count);
  return std::string_view(data_).substr(at_ - static_cast<std::size_t>(count),
                                        static_cast<std::size_t>(count));
}

std::string_view PickleReader::line() {
  std::size_t searched = 0;
  while (true) {
    std::size_t const end = data_.find('\n', at_ + searched);
    if (end != std::string::npos) {
      std::size_t const begin = at_;
      at_ = end + 1;
      return std::string_view(data_).substr(begin, end - begin);
    }
    searched = data_.size() - at_;
    if (searched > kMostText)
      throw PickleError("is not the data of a trace: a line of over " + std::to_string(kMostText) +
                        " bytes");
    if (!refill()) cut();
  }
}

std::uint64_t PickleReader::index_line() {
  std::string_view const text = line();
  std::uint64_t index = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > 10) broken();
  return index;
}

void PickleReader::cut() const {
  throw PickleError("is truncated: the pickle does not end within its " + std::to_string(size_) +
                    " bytes");
}

void PickleReader::broken() const {
  throw PickleError("is a broken pickle, near byte " + std::to_string(op_at_));
}

void PickleReader::refuse(std::uint8_t op) {
  auto const* const found =
      std::ranges::find(kRefused, op, &std::pair<std::uint8_t, char const*>::first);
  if (found == std::end(kRefused)) {
    char hex[3] = {};
    std::to_chars(hex, hex + 2, op, 16);
    throw PickleError("is a broken pickle: no opcode 0x" + std::string(op < 16 ? "0" : "") + hex +
                      ", at byte " + std::to_string(op_at_));
  }
  std::string what;
  if (op == 'c' || op == 'i') {
    what.append(printable(line())).append(1, '.');
    what.append(printable(line()));
  } else if (op == 0x93 && stack_.size() >= 2) {
    for (Value const value : {stack_[stack_.size() - 2], stack_.back()})
      if (value.kind() == Value::kText)
        what.append(what.empty() ? 0 : 1, '.').append(printable(texts_[value.index()]));
  }
  throw PickleError("is a pickle that holds a callable or an object" +
                    (what.empty() ? "" : ", " + what) + " (" + found->second +
                    "): only plain data is read, and none of it was run");
}

// --- the stack and the memo

// Does what an opcode says. Throws PickleError if it is not one of data.
void PickleReader::act(std::uint8_t op) {
  switch (op) {
    case 0x80:
      if (std::uint64_t const version = number<std::uint8_t>(); version > 5)
        throw PickleError("is a pickle of protocol " + std::to_string(version) +
                          "; protocols 0 to 5 are supported");
      return;
    case 0x95:  // FRAME
      if (std::uint64_t const length = number<std::uint64_t>(); length > left())
        throw PickleError("is truncated or not a pickle: a frame of " + std::to_string(length) +
                          " bytes was expected, and " + std::to_string(left()) + " are left");
      return;
    case 'h': return push_shared(memo(number<std::uint8_t>()));
    case 'j': return push_references();
    case 'g': return push_shared(memo(index_line()));
    case 0x94: return put(memo_.size() + sparse_.size());
    case 'q': return put(number<std::uint8_t>());
    case 'r': return put(number<std::uint32_t>());
    case 'p': return put(index_line());
    case '(': marks_.push_back(stack_.size()); return;
    case '0':
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return;
    case '1': stack_.resize(pop_mark()); return;
    case '2': return push_shared(stack_[last(1)]);
    case 'N': return push({});
    case 0x88:
    case 0x89: return push({Value::kFlag, op == 0x88});
    case 'K': return push({Value::kWhole, number<std::uint8_t>()});
    case 'M': return push({Value::kWhole, number<std::uint16_t>()});
    case 'J': return push({Value::kWhole, number<std::int32_t>()});
    case 0x8a: {
      std::uint64_t const length = number<std::uint8_t>();
      if (length > kMostDigits)
        throw PickleError("holds a number of " + std::to_string(length) + " bytes");
      return push_long(take(length, kMostDigits));
    }
    case 0x8b: return push_long(take(number<std::uint32_t>(), kMostDigits));
    case 'I':
    case 'L': return push_digits(line());
    case 'F': {
      std::string_view const text = line().substr(0, kMostDigits);
      double value = 0;
      auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc::invalid_argument || end != text.data() + text.size()) broken();
      return push_float(value);
    }
    case 'G': {
      std::uint64_t bits = 0;
      for (char const byte : take(8, 8)) bits = bits << 8 | static_cast<std::uint8_t>(byte);
      return push_float(std::bit_cast<double>(bits));
    }
    case 'X': return push_text(Value::kText, take(number<std::uint32_t>(), kMostText));
    case 0x8c: return push_text(Value::kText, take(number<std::uint8_t>(), kMostText));
    case 0x8d: return push_text(Value::kText, take(number<std::uint64_t>(), kMostText));
    case 'T':
      return push_text(Value::kText, utf8_of_latin1(take(number<std::uint32_t>(), kMostText)));
    case 'U':
      return push_text(Value::kText, utf8_of_latin1(take(number<std::uint8_t>(), kMostText)));
    case 'S':
    case 'V': {
      auto const text = old_text_(static_cast<char>(op), line());
      if (!text) broken();
      return push_text(Value::kText, *text);
    }
    case 'B': return push_text(Value::kBytes, take(number<std::uint32_t>(), kMostText));
    case 'C': return push_text(Value::kBytes, take(number<std::uint8_t>(), kMostText));
    case 0x8e:
    case 0x96: return push_text(Value::kBytes, take(number<std::uint64_t>(), kMostText));
    case ']':
    case 0x8f:  // EMPTY_SET, of which only the members matter
      return push_container(Value::kList, stack_.size());
    case '}': return push_container(Value::kDict, stack_.size());
    case ')': return push_container(Value::kTuple, stack_.size());
    case 'a': return append(last(1));
    case 'e':
    case 0x90: return append(pop_mark());
    case 'l':
    case 0x91: return push_container(Value::kList, pop_mark());
    case 's': return set_items(last(2), false);
    case 'u': return set_items(pop_mark(), true);
    case 'd': {
      std::size_t const begin = pop_mark();
      stack_.insert(stack_.begin() + static_cast<std::ptrdiff_t>(begin), Value());
      push_container(Value::kDict, stack_.size());
      stack_[begin] = pop();
      return set_items(begin + 1, false);
    }
    case 't': return push_container(Value::kTuple, pop_mark());
    case 0x85:
    case 0x86:
    case 0x87: return push_container(Value::kTuple, last(op - 0x84U));
    default: refuse(op);
  }
}

void PickleReader::push_long(std::string_view bytes) {
  std::uint64_t bits = 0;
  if (!bytes.empty() && bytes.size() <= sizeof bits) {
    std::memcpy(&bits, bytes.data(), bytes.size());
    auto const unused = static_cast<unsigned>(8 * (sizeof bits - bytes.size()));
    auto const number = static_cast<std::int64_t>(bits << unused) >> unused;
    if (Value::fits(number)) return push({Value::kWhole, number});
  }
  bytes.empty() ? push({Value::kWhole, 0}) : push_text(Value::kLong, bytes);
}

void PickleReader::push_digits(std::string_view line) {
  if (line.size() > kMostDigits)
    throw PickleError("holds a number of " + std::to_string(line.size()) + " digits");
  if (line == "00" || line == "01") return push({Value::kFlag, line == "01"});
  if (line.ends_with('L')) line.remove_suffix(1);
  std::size_t const sign = line.starts_with('-');
  if (line.size() == sign || line.find_first_not_of("0123456789", sign) != line.npos) broken();
  std::int64_t number = 0;
  auto const error = std::from_chars(line.data(), line.data() + line.size(), number).ec;
  if (error != std::errc()) return push_text(Value::kDigits, line);
  push_long(bytes_of(number));
}

void PickleReader::push_float(double value) { push_text(Value::kFloat, bytes_of(value)); }

// Takes the values of the stack from `begin` on into a container.
void PickleReader::push_container(Value::Kind kind, std::size_t begin) {
  settle(begin);
  std::size_t const count = stack_.size() - begin;
  if (kind == Value::kTuple && count == 2) {
    if (auto const pair = as_pair(stack_[begin], stack_[begin + 1])) {
      stack_.resize(begin);
      return push(*pair);
    }
  }
  std::size_t index = containers_.size();
  if (unused_.empty()) {
    containers_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  containers_[index].values.assign(stack_.begin() + static_cast<std::ptrdiff_t>(begin),
                                   stack_.end());
  stack_.resize(begin);
  push({kind, static_cast<std::int64_t>(index)});
}

// The place of the last values of the stack.
std::size_t PickleReader::last(std::size_t count) const {
  if (count > stack_.size()) broken();
  return stack_.size() - count;
}

Value PickleReader::pop() {
  Value const value = stack_[last(1)];
  stack_.pop_back();
  return value;
}

std::size_t PickleReader::pop_mark() {
  if (marks_.empty() || marks_.back() > stack_.size()) broken();
  std::size_t const begin = marks_.back();
  marks_.pop_back();
  return begin;
}

PickleReader::Container* PickleReader::container(Value value) {
  bool const has = value.kind() == Value::kList || value.kind() == Value::kDict;
  return has ? &containers_[value.index()] : nullptr;
}

Value& PickleReader::memo(std::uint64_t place) {
  if (place < memo_.size()) return memo_[static_cast<std::size_t>(place)];
  auto const found = sparse_.find(place);
  if (found == sparse_.end()) broken();
  return found->second;
}

void PickleReader::put(std::uint64_t place) {
  Value const value = stack_[last(1)];
  if (place < memo_.size() || sparse_.contains(place)) {
    Container* const replaced = container(memo(place));
    if (replaced && replaced->slot == place) replaced->slot = kNoSlot;
    memo(place) = value;
  } else if (place == memo_.size()) {
    memo_.push_back(value);
  } else {
    sparse_.emplace(place, value);
  }
  if (Container* const referred = container(value)) {
    referred->shared |= referred->slot != kNoSlot;
    referred->slot = place;
  }
}

// Reads references to the memo, which are most of a snapshot: its stacks of frames.
void PickleReader::push_references() {
  --at_;  // the opcode of the first one
  need(5);
  char const* at = data_.data() + at_;
  char const* const end = data_.data() + data_.size();
  std::size_t const size = memo_.size();
  for (; end - at >= 5 && *at == 'j'; at += 5) {
    std::uint32_t place;
    std::memcpy(&place, at + 1, sizeof place);
    Value const value = place < size ? memo_[place] : memo(place);
    if (value.kind() == Value::kRow)
      push(value);
    else
      push_shared(value);
  }
  at_ = static_cast<std::size_t>(at - data_.data());
}

void PickleReader::push_shared(Value value) {
  if (Container* const referred = container(value)) referred->shared = true;
  push(value);
}

// --- values that are complete

// What stands for a value from now on: for a dict a row and for a list a stack of frames, if they
// are that.
Value PickleReader::settled(Value value) {
  Container* const found = container(value);
  if (!found || found->shared) return value;
  std::vector<Value> const& values = found->values;
  if (value.kind() == Value::kDict) {
    if (auto const row = as_row(values, 0)) return replace(value, *row);
  } else if (auto const stack = as_stack(values)) {
    return replace(value, {Value::kStack, *stack});
  }
  return value;
}

void PickleReader::settle(std::size_t begin) {
  for (std::size_t n = begin; n < stack_.size(); ++n)
    if (container(stack_[n])) stack_[n] = settled(stack_[n]);
}

Value PickleReader::replace(Value old, Value value) {
  Container& found = containers_[old.index()];
  if (found.slot != kNoSlot) memo(found.slot) = value;
  found.slot = kNoSlot;
  if (found.values.capacity() > kMostKeys)
    found.values = {};
  else
    found.values.clear();
  unused_.push_back(old.index());
  return value;
}

// Adds the values of the stack from `begin` on to the list below them.
void PickleReader::append(std::size_t begin) {
  if (begin == 0 || stack_[begin - 1].kind() != Value::kList) broken();
  settle(begin);
  std::vector<Value>& values = containers_[stack_[begin - 1].index()].values;
  values.insert(values.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
  stack_.resize(begin);
}

// Adds the keys and values of the stack from `begin` on to the dict below them. Keys that are not
// texts are left out. complete: whether no more items follow.
void PickleReader::set_items(std::size_t begin, bool complete) {
  if (begin == 0 || stack_[begin - 1].kind() != Value::kDict || (stack_.size() - begin) % 2)
    broken();
  settle(begin);
  Value const dict = stack_[begin - 1];
  Container& target = containers_[dict.index()];
  if (complete && target.values.empty() && !target.shared) {
    if (auto const row = as_row(stack_, begin)) {
      stack_[begin - 1] = replace(dict, *row);
      stack_.resize(begin);
      return;
    }
  }
  for (std::size_t n = begin; n < stack_.size(); n += 2)
    if (stack_[n].kind() == Value::kText)
      target.values.insert(target.values.end(), {stack_[n], stack_[n + 1]});
  stack_.resize(begin);
}

}  // namespace allocbench
