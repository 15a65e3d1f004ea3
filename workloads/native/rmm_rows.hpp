// rmm_rows.hpp: reads the rows of a log of RMM.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace allocbench {

// A position in the lines of a log. The methods return false if the text there has another form.
class RmmCursor {
 public:
  explicit RmmCursor(std::string_view lines) : lines_(lines) {}

  bool at_end() const { return lines_.empty(); }

  bool skip(std::string_view text) {
    if (!lines_.starts_with(text)) return false;
    lines_.remove_prefix(text.size());
    return true;
  }

  // A text that a reader of CSV takes as it is.
  bool skip_text() {
    std::size_t length = 0;
    while (length < lines_.size() && lines_[length] >= ' ' && lines_[length] <= '~' &&
           lines_[length] != ',' && lines_[length] != '"')
      ++length;
    lines_.remove_prefix(length);
    return length <= kLongestText;
  }

  // The last line may have no line break.
  bool end_line() {
    skip("\r");
    return skip("\n") || at_end();
  }

  bool time(std::int64_t& nanoseconds) {
    if (lines_.size() < kClock.size()) return false;
    for (std::size_t n = 0; n < kClock.size(); ++n)
      if (kClock[n] == '0' ? digit(lines_[n]) > 9 : lines_[n] != kClock[n]) return false;
    auto const two = [&](std::size_t at) {
      return std::int64_t{digit(lines_[at])} * 10 + digit(lines_[at + 1]);
    };
    std::int64_t const seconds = (two(0) * 60 + two(3)) * 60 + two(6);
    std::int64_t const microseconds = (two(9) * 100 + two(11)) * 100 + two(13);
    nanoseconds = (seconds * 1'000'000 + microseconds) * 1'000;
    lines_.remove_prefix(kClock.size());
    return true;
  }

  // A number of at most 2^63 - 1: hexadecimal with 0x, decimal, or (nil).
  bool number(std::uint64_t& value) {
    value = 0;
    if (lines_.starts_with('(')) return skip("(nil)");
    if (lines_.starts_with("0x") || lines_.starts_with("0X")) {
      lines_.remove_prefix(2);
      return digits<16, kMostHexDigits>(value, hex_digit);
    }
    return digits<10, kMostDigits>(value, digit);
  }

 private:
  static constexpr std::string_view kClock = "00:00:00.000000";  // 0 stands for a digit
  static constexpr std::size_t kMostHexDigits = 16, kMostDigits = 19;
  static constexpr std::size_t kLongestText = 64;  // of a field that is not read
  static constexpr std::uint64_t kMostNumber = std::numeric_limits<std::int64_t>::max();

  static unsigned digit(char letter) { return static_cast<unsigned char>(letter) - unsigned{'0'}; }

  // 16 or more for a letter that is no hexadecimal digit.
  static unsigned hex_digit(char letter) {
    if (unsigned const value = digit(letter); value <= 9) return value;
    unsigned const value = (static_cast<unsigned char>(letter) | 0x20u) - unsigned{'a'};
    return value <= 5 ? value + 10 : 16;
  }

  template <unsigned base, std::size_t most, class Digit>
  bool digits(std::uint64_t& value, Digit digit_of) {
    std::size_t count = 0;
    for (; count < lines_.size() && count <= most; ++count) {
      unsigned const next = digit_of(lines_[count]);
      if (next >= base) break;
      value = value * base + next;
    }
    lines_.remove_prefix(count);
    return count > 0 && count <= most && value <= kMostNumber;
  }

  std::string_view lines_;
};

// The rows of a log as RMM writes it:
//
//   2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0
//
// One element of each column per row, in order. time: nanoseconds since midnight. A failed request
// is a request, too: an alloc at kNowhere and its free, so two elements.
struct RmmRows {
  static constexpr std::size_t kShortestRow = 40;  // bytes, about; for the memory that is reserved
  static constexpr std::uint64_t kNowhere = std::uint64_t{1} << 63;  // no pointer is as large

  std::vector<std::uint8_t> is_alloc;
  std::vector<std::uint64_t> address, size;
  std::vector<std::int64_t> stream, time;
  std::uint64_t failures = 0;

  // Adds whole lines. Returns false if RMM does not write one of them like this; what was added is
  // then not defined.
  bool read(std::string_view lines) {
    std::size_t const most = is_alloc.size() + lines.size() / kShortestRow;
    if (most > is_alloc.capacity()) {
      is_alloc.reserve(2 * most);
      for (auto* column : {&address, &size}) column->reserve(2 * most);
      for (auto* column : {&stream, &time}) column->reserve(2 * most);
    }
    RmmCursor cursor(lines);
    while (!cursor.at_end()) {
      std::int64_t when = 0;
      std::uint64_t pointer = 0, bytes = 0, of = 0;
      if (!cursor.skip_text() || !cursor.skip(",") || !cursor.time(when) || !cursor.skip(","))
        return false;
      bool const fails = cursor.skip("allocate failure,");
      bool const allocates = fails || cursor.skip("allocate,");
      if (!allocates && !cursor.skip("free,") && !cursor.skip("deallocate,")) return false;
      if (!(fails ? cursor.skip_text() : cursor.number(pointer)) || !cursor.skip(",") ||
          !cursor.number(bytes) || !cursor.skip(",") || !cursor.number(of) || !cursor.end_line())
        return false;
      auto const add = [&](bool alloc) {
        is_alloc.push_back(alloc);
        address.push_back(fails ? kNowhere : pointer);
        size.push_back(bytes);
        stream.push_back(static_cast<std::int64_t>(of));
        time.push_back(when);
      };
      add(allocates);
      if (fails) add(false);
      failures += fails;
    }
    return true;
  }
};

}  // namespace allocbench
