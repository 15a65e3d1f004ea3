// pickle.hpp: reads pickles that hold only data; dicts with known keys become rows of tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hash_tables.hpp"

namespace allocbench {

// A pickle that is truncated, broken or holds more than data; the message is one line of ASCII.
struct PickleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The beginning of a text in printable ASCII.
std::string printable(std::string_view text);

template <class Number>
std::string_view bytes_of(Number const& number) {
  return {reinterpret_cast<char const*>(&number), sizeof number};
}

// A value of a pickle in eight bytes: what it is, and a number of 60 bits.
class Value {
 public:
  enum Kind : std::uint8_t {
    kNone,
    kFlag,    // 0 or 1
    kWhole,   // a whole number
    kLong,    // a larger one: the text of its bytes, in two's complement, lowest first
    kDigits,  // one in decimal: its text
    kFloat,   // the text of its eight bytes
    kText,    // UTF-8, as Python's "surrogatepass" writes it
    kBytes,   // a text
    kPair,    // a tuple of two numbers of at most eight bytes
    kTuple,   // a container
    kList,    // a container
    kDict,    // a container: keys and values in turn
    kRow,     // of a table: see `row`
    kStack,   // a list of rows of the table of frames, or an empty list
  };

  Value() = default;
  Value(Kind kind, std::int64_t number)
      : bits_(static_cast<std::uint64_t>(number) << 4 | static_cast<std::uint64_t>(kind)) {}
  static Value row(std::size_t table, std::size_t row) {
    return {kRow, static_cast<std::int64_t>(row << kTableBits | table)};
  }
  static bool fits(std::int64_t number) { return number << 4 >> 4 == number; }

  Kind kind() const { return static_cast<Kind>(bits_ & 15); }
  std::int64_t number() const { return static_cast<std::int64_t>(bits_) >> 4; }
  std::size_t index() const { return static_cast<std::size_t>(number()); }
  std::size_t table() const { return index() & ((1 << kTableBits) - 1); }
  std::size_t row() const { return index() >> kTableBits; }
  bool operator==(Value const&) const = default;

 private:
  static constexpr unsigned kTableBits = 4;
  std::uint64_t bits_ = 0;
};

// What a column of a table holds. kNumber: whole numbers from `least` to `most`. kName: texts, by
// number. kChoice: whether a value is True. kPool: pairs of numbers, by number. kFrames: lists of
// frames, by number; any other value is an empty list. kRows: consecutive rows of another table.
enum class Holds : std::uint8_t { kNumber, kName, kChoice, kPool, kFrames, kRows };

struct Field {
  std::vector<std::string> keys;  // of which a dict has one
  Holds holds;
  std::int64_t absent, least, most;  // of kNumber; absent: for a dict without the key
  std::string of;                    // of kRows: the name of their table
};

// A dict with at least the keys in `needed` is a row of the table.
struct Form {
  std::string name;
  std::vector<std::string> needed;
  std::vector<Field> fields;
};

// Values of a column, in one of the vectors: numbers, or numbers of texts, pairs and stacks, or the
// first row and the one after the last.
struct Column {
  std::vector<std::int64_t> wide;
  std::vector<std::uint32_t> narrow, end;
};

struct Table {
  Form form;
  std::vector<Column> columns;  // by field
  std::size_t rows = 0;
};

// Texts by number; equal ones have the same number.
class Texts {
 public:
  std::uint32_t number(std::string_view text);
  std::string_view operator[](std::size_t number) const { return *texts_.at(number); }
  std::size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, std::uint32_t, KeyedHash, std::equal_to<>> numbers_;
  std::vector<std::string const*> texts_;  // the keys of `numbers_`
  std::uint32_t last_ = 0;                 // the number that was given last
};

class PickleReader {
 public:
  // read: adds the next bytes of the file, at most as many as given. size: how many there are.
  // old_text: UTF-8 of the line of an opcode S or V, nullopt for a broken one.
  using Read = std::function<void(std::string& data, std::size_t most)>;
  using OldText = std::function<std::optional<std::string>(char, std::string_view)>;

  // The rows of the first form are frames, and equal ones are one row. There are at most 16 forms.
  PickleReader(std::vector<Form> forms, std::uint64_t size, Read read, OldText old_text);

  // Reads the pickle, once. Throws PickleError.
  Value load();

  // Frees what is only needed to read and for `values`.
  void forget_values();

  std::vector<Table> const& tables() const { return tables_; }
  Texts const& texts() const { return texts_; }
  std::vector<Value> const& values(Value container) const {
    return containers_.at(container.index()).values;
  }
  // Pair 0 stands for none.
  std::pair<std::int64_t, std::int64_t> pair(std::size_t number) const;
  // Numbers of frames, innermost first. Stack 0 is empty.
  std::vector<std::uint32_t> stack(std::size_t number) const;

 private:
  // Values that can be referred to: by one place on the stack or in another container and one in
  // the memo, unless they are `shared`.
  struct Container {
    std::vector<Value> values;
    std::uint64_t slot = kNoSlot;  // in the memo
    bool shared = false;
  };
  // Where in the keys of a dict the fields of a table are.
  struct Places {
    std::optional<std::size_t> table;
    std::vector<int> place;  // by field: the number of its key, or -1
  };

  static constexpr std::size_t kMostKeys = 64;  // of a dict that can be a row
  static constexpr std::uint64_t kNoSlot = std::numeric_limits<std::uint64_t>::max();

  // The file
  std::string_view take(std::uint64_t count, std::uint64_t most);
  std::string_view line();
  template <class Number>
  Number number();
  std::uint64_t index_line();
  void need(std::size_t bytes);
  bool refill();
  std::uint64_t left() const { return size_ - before_ - at_; }
  [[noreturn]] void cut() const;
  [[noreturn]] void broken() const;
  [[noreturn]] void refuse(std::uint8_t op);

  // The stack and the memo
  void act(std::uint8_t op);
  void push(Value value) { stack_.push_back(value); }
  void push_text(Value::Kind kind, std::string_view text) { push({kind, texts_.number(text)}); }
  void push_long(std::string_view bytes);
  void push_digits(std::string_view line);
  void push_container(Value::Kind kind, std::size_t begin);
  void push_float(double value);
  std::size_t last(std::size_t count) const;
  Value pop();
  std::size_t pop_mark();
  Container* container(Value value);
  Value& memo(std::uint64_t place);
  void put(std::uint64_t place);
  void push_references();
  void push_shared(Value value);

  // Values that are complete (pickle_rows.cpp: rows)
  Value settled(Value value);
  void settle(std::size_t begin);
  void append(std::size_t begin);
  void set_items(std::size_t begin, bool complete);
  Value replace(Value old, Value value);
  std::optional<Value> as_row(std::vector<Value> const& items, std::size_t begin);
  std::optional<std::uint32_t> as_stack(std::vector<Value> const& values);
  std::optional<Value> as_pair(Value first, Value second);
  Places const& places(std::vector<Value> const& items, std::size_t begin);
  void add(Table& table, std::size_t field, Value const* value);
  [[noreturn]] void misfit(Table const& table, Field const& field, Value value) const;
  std::string shown(Value value) const;
  std::optional<std::int64_t> whole(Value value) const;

  Read read_;
  OldText old_text_;
  std::uint64_t size_, before_ = 0;  // bytes of the file, and those before the window
  std::string data_;                 // the window
  std::size_t at_ = 0;               // in the window
  std::uint64_t op_at_ = 0;          // of the opcode, in the file

  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Value> memo_;
  std::unordered_map<std::uint64_t, Value, KeyedHash> sparse_;  // places beyond the end of `memo_`
  std::vector<Container> containers_;
  std::vector<std::size_t> unused_;  // containers

  Texts texts_, pairs_, stacks_, frames_, shapes_;  // pairs and so on by their bytes
  std::vector<Places> places_;                      // by number of the shape
  std::string keys_;                                // of the dict that is read
  std::vector<std::uint32_t> rows_;                 // of the list that is read
  std::vector<Table> tables_;
};

}  // namespace allocbench
