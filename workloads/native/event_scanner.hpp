// event_scanner.hpp: reads the events of a memory snapshot from the opcodes of a pickle.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keyed_hash.hpp"

namespace allocbench {

// A pickle of protocol 4 holds each event as a dict with the same keys:
//
//   } MEMOIZE (  KEY VALUE  KEY VALUE  ...  u
//
// A key is a reference to the memo. A value is a number, a constant, a reference, a list of
// references or a tuple of up to three of the others. Frames (of the pickle) may begin between
// items, also those of a list. The scanner reads such dicts and nothing else: it stops before the
// first one that has another form, a value that does not fit, or an end outside of the data.

template <class Value>
using ByNumber = std::unordered_map<std::uint32_t, Value, KeyedHash>;

// What of an event is read; the values of other keys are skipped.
enum Field { kAction, kAddress, kSize, kStream, kTime, kFrames, kPool, kFields };

// What a number of the memo stands for: an event, a list of references or a tuple.
enum class Kept : std::uint8_t { kEvent, kList, kTuple };
struct Slot {
  Kept kept;
  std::uint32_t index;  // of the event in its run, or of the text in Scanner::texts
};

// Events in order, one element of each column per event. `slots` are the values that the events
// add to the memo, in order.
struct EventRun {
  std::size_t end = 0;  // where in the data the scanner stopped
  std::vector<std::uint8_t> action;
  std::vector<std::int64_t> address, size, stream, time;
  std::vector<std::int32_t> pool;
  std::vector<std::uint32_t> label;
  std::vector<Slot> slots;
};

// The number of an action, and whether its events have a label.
struct Action {
  std::uint8_t number;
  bool labeled;
};

// What references and opcodes stand for. Each function may return nullopt, which ends the run
// before the event; its result is kept until `EventScanner::forget`. action: of the string at a
// place in the memo. label: the number of the frames in a list of references. label_at: that of the
// frames at a place in the memo. pool, pool_at: the same for the number of a pool's id, a tuple.
struct Meanings {
  std::function<std::optional<Action>(std::uint32_t)> action;
  std::function<std::optional<std::uint32_t>(std::string_view)> label;
  std::function<std::optional<std::uint32_t>(std::uint32_t)> label_at;
  std::function<std::optional<std::int32_t>(std::string_view)> pool;
  std::function<std::optional<std::int32_t>(std::uint32_t)> pool_at;
};

class EventScanner {
 public:
  // keys: the opcodes of each key, in order. place: for each Field, the index of its key or -1;
  // an action and a size are needed.
  EventScanner(std::vector<std::string> keys, std::array<int, kFields> const& place);

  // Reads events from `begin` on. left: how many bytes of the file follow the data.
  EventRun scan(std::string_view data, std::size_t begin, std::uint64_t left,
                Meanings const& meanings);

  // The opcodes of a list or a tuple that a slot stands for.
  std::string const& text(std::uint32_t index) const { return *texts_.at(index); }

  // Forgets what references mean, after the memo has changed.
  void forget();

 private:
  std::optional<std::uint32_t> kept(std::string_view text);
  bool append(struct ScannedEvent const& event, Meanings const& meanings, EventRun& run);

  std::vector<std::string> keys_;
  std::vector<int> field_;  // by key: the Field that it is, or -1
  std::array<bool, kFields> has_{};
  ByNumber<Action> actions_;           // by place in the memo
  ByNumber<std::uint32_t> labels_at_;  // by place in the memo
  ByNumber<std::uint32_t> labels_;     // by index of the text
  ByNumber<std::int32_t> pools_at_;    // by place in the memo
  ByNumber<std::int32_t> pools_;       // by index of the text
  std::unordered_map<std::string, std::uint32_t, KeyedHash, std::equal_to<>> indices_;
  std::vector<std::string const*> texts_;  // the keys of indices_
};

}  // namespace allocbench
