// event_scanner.cpp: reads the events of a memory snapshot from the opcodes of a pickle.
// SPDX-License-Identifier: Apache-2.0
#include "event_scanner.hpp"

#include <bit>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

namespace allocbench {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

struct Value {
  enum class Kind : std::uint8_t { kNone, kNumber, kConstant, kReference, kList, kTuple };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;     // a number, or the place in the memo that a reference names
  std::string_view text = {};  // the references of a list, the opcodes of a tuple
};

struct ScannedEvent {
  std::array<Value, kFields> value;
  std::vector<std::pair<Kept, std::string_view>> memoized;
  std::deque<std::string> joined;  // texts of lists that a frame divides
  std::size_t end = 0;
};

namespace {

using Kind = Value::Kind;

enum Op : std::uint8_t {
  kMark = '(',
  kAppend = 'a',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kEmptyList = ']',
  kSetItems = 'u',
  kEmptyDict = '}',
  kTuple1 = 0x85,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8a,
  kMemoize = 0x94,
  kFrame = 0x95,
};
constexpr std::size_t kMostDigits = 8;  // bytes of a number
constexpr std::size_t kMostInTuple = 3;

// A position in the data. The methods that read return false, or a value of no kind, if the data
// have another form or end too early.
class Cursor {
 public:
  Cursor(std::string_view data, std::size_t at, std::uint64_t left, std::deque<std::string>& joined)
      : data_(data), at_(at), left_(left), joined_(joined) {}

  std::size_t at() const { return at_; }

  bool skip(std::uint8_t op) {
    if (at_ >= data_.size() || byte(at_) != op) return false;
    ++at_;
    return true;
  }

  bool skip(std::string_view text) {
    if (data_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  // Skips the beginning of a frame, if there is one. A frame must be in the file.
  bool skip_frame() {
    if (at_ >= data_.size() || byte(at_) != kFrame) return true;
    if (data_.size() - at_ < 9) return false;
    auto const length = copy<std::uint64_t>(at_ + 1);
    at_ += 9;
    return length <= left_ + (data_.size() - at_);
  }

  Value value() {
    std::size_t const begin = at_;
    if (skip(kEmptyList)) return list();
    Value const first = scalar();
    if (first.kind == Kind::kNone) return first;
    std::size_t const after = at_;
    for (std::size_t count = 1; count <= kMostInTuple; ++count) {
      if (at_ < data_.size() && byte(at_) == kTuple1 + count - 1) {
        ++at_;
        if (!skip(kMemoize)) return {};
        return {Kind::kTuple, 0, data_.substr(begin, at_ - 2 - begin)};
      }
      if (scalar().kind == Kind::kNone) break;
    }
    at_ = after;
    return first;
  }

 private:
  std::uint8_t byte(std::size_t at) const { return static_cast<std::uint8_t>(data_[at]); }

  template <class Number>
  Number copy(std::size_t at) const {
    Number number;
    std::memcpy(&number, data_.data() + at, sizeof number);
    return number;
  }

  template <class Number>
  Value fixed(Kind kind) {
    if (data_.size() - at_ < sizeof(Number)) return {};
    at_ += sizeof(Number);
    return {kind, static_cast<std::int64_t>(copy<Number>(at_ - sizeof(Number)))};
  }

  Value scalar() {
    if (at_ >= data_.size()) return {};
    switch (byte(at_++)) {
      case kBinGet:
        return fixed<std::uint8_t>(Kind::kReference);
      case kLongBinGet:
        return fixed<std::uint32_t>(Kind::kReference);
      case kBinInt1:
        return fixed<std::uint8_t>(Kind::kNumber);
      case kBinInt2:
        return fixed<std::uint16_t>(Kind::kNumber);
      case kBinInt:
        return fixed<std::int32_t>(Kind::kNumber);
      case kLong1:
        return number();
      case kNone:
      case kTrue:
      case kFalse:
        return {Kind::kConstant};
      default:
        return {};
    }
  }

  Value number() {
    if (at_ >= data_.size()) return {};
    std::size_t const length = byte(at_++);
    if (length == 0 || length > kMostDigits || data_.size() - at_ < length) return {};
    std::uint64_t bits = 0;
    std::memcpy(&bits, data_.data() + at_, length);
    at_ += length;
    unsigned const unused = static_cast<unsigned>(8 * (kMostDigits - length));
    return {Kind::kNumber, static_cast<std::int64_t>(bits << unused) >> unused};
  }

  // A list after its first opcode: empty, or of references.
  Value list() {
    if (!skip(kMemoize)) return {};
    std::size_t const empty = at_;
    if (skip(kMark)) {
      std::string_view const text = references();
      if (text.empty() || !skip(kAppends)) return {};
      return {Kind::kList, 0, text};
    }
    if (reference()) {
      std::size_t const end = at_;
      if (skip_frame() && skip(kAppend)) return {Kind::kList, 0, data_.substr(empty, end - empty)};
    }
    at_ = empty;
    return {Kind::kList, 0, data_.substr(empty, 0)};
  }

  // References without the frames between them.
  std::string_view references() {
    std::size_t begin = at_;
    std::string* parts = nullptr;
    while (true) {
      if (reference()) continue;
      std::string_view const part = data_.substr(begin, at_ - begin);
      bool const divided = at_ < data_.size() && byte(at_) == kFrame;
      if (!divided && parts == nullptr) return part;
      if (parts == nullptr) parts = &joined_.emplace_back();
      *parts += part;
      if (!divided) return *parts;
      if (!skip_frame()) return {};
      begin = at_;
    }
  }

  bool reference() {
    std::size_t const length = at_ >= data_.size()        ? 0
                               : byte(at_) == kLongBinGet ? 5
                               : byte(at_) == kBinGet     ? 2
                                                          : 0;
    if (length == 0 || data_.size() - at_ < length) return false;
    at_ += length;
    return true;
  }

  std::string_view data_;
  std::size_t at_;
  std::uint64_t left_;
  std::deque<std::string>& joined_;
};

// The event at a cursor; false if its form is another one.
bool read(Cursor& cursor, std::vector<std::string> const& keys, std::vector<int> const& field,
          ScannedEvent& event) {
  event.memoized.clear();
  event.joined.clear();
  if (!cursor.skip(kEmptyDict) || !cursor.skip(kMemoize) || !cursor.skip(kMark)) return false;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    if (!cursor.skip_frame() || !cursor.skip(keys[n]) || !cursor.skip_frame()) return false;
    Value const value = cursor.value();
    if (value.kind == Kind::kNone) return false;
    if (value.kind == Kind::kList) event.memoized.emplace_back(Kept::kList, value.text);
    if (value.kind == Kind::kTuple) event.memoized.emplace_back(Kept::kTuple, value.text);
    if (field[n] >= 0) event.value[static_cast<std::size_t>(field[n])] = value;
  }
  if (!cursor.skip_frame() || !cursor.skip(kSetItems)) return false;
  event.end = cursor.at();
  return true;
}

// What `find` returns for a key, which is called once for each key.
template <class Number, class Key>
std::optional<Number> once(ByNumber<Number>& known, std::uint32_t number,
                           std::function<std::optional<Number>(Key)> const& find, Key key) {
  if (auto const found = known.find(number); found != known.end()) return found->second;
  auto const meant = find(key);
  if (meant) known.emplace(number, *meant);
  return meant;
}

}  // namespace

EventScanner::EventScanner(std::vector<std::string> keys, std::array<int, kFields> const& place)
    : keys_(std::move(keys)), field_(keys_.size(), -1) {
  for (std::size_t field = 0; field < kFields; ++field) {
    has_[field] = place[field] >= 0;
    if (has_[field]) field_.at(static_cast<std::size_t>(place[field])) = static_cast<int>(field);
  }
}

EventRun EventScanner::scan(std::string_view data, std::size_t begin, std::uint64_t left,
                            Meanings const& meanings) {
  EventRun run;
  run.end = begin;
  ScannedEvent event;
  while (true) {
    Cursor cursor(data, run.end, left, event.joined);
    if (!cursor.skip_frame() || !read(cursor, keys_, field_, event) ||
        !append(event, meanings, run))
      break;
    run.end = event.end;
  }
  return run;
}

void EventScanner::forget() {
  actions_.clear();
  labels_at_.clear();
  labels_.clear();
  pools_at_.clear();
  pools_.clear();
}

// Adds an event to a run; false, with the run as it was, if the event has a value of another kind.
bool EventScanner::append(ScannedEvent const& event, Meanings const& meanings, EventRun& run) {
  auto const is = [&](Field field, Kind kind) { return event.value[field].kind == kind; };
  for (Field const field : {kAddress, kSize, kStream, kTime})
    if (has_[field] && !is(field, Kind::kNumber)) return false;
  if (!is(kAction, Kind::kReference)) return false;
  auto const action_at = static_cast<std::uint32_t>(event.value[kAction].number);
  auto const action = once(actions_, action_at, meanings.action, action_at);
  if (!action) return false;

  // The texts of a run are kept even if the event is not added: they are then read again.
  std::array<Slot, 8> slots;
  if (event.memoized.size() > slots.size()) return false;
  std::optional<std::uint32_t> frames, pool;
  for (std::size_t n = 0; n < event.memoized.size(); ++n) {
    auto const [what, text] = event.memoized[n];
    auto const index = kept(text);
    if (!index) return false;
    slots[n] = {what, *index};
    if (is(kFrames, Kind::kList) && text.data() == event.value[kFrames].text.data()) frames = index;
    if (is(kPool, Kind::kTuple) && text.data() == event.value[kPool].text.data()) pool = index;
  }
  std::int32_t pool_number = -1;
  if (has_[kPool]) {
    std::optional<std::int32_t> number;
    if (pool) number = once(pools_, *pool, meanings.pool, event.value[kPool].text);
    if (is(kPool, Kind::kReference)) {
      auto const at = static_cast<std::uint32_t>(event.value[kPool].number);
      number = once(pools_at_, at, meanings.pool_at, at);
    }
    if (!number) return false;
    pool_number = *number;
  }
  std::uint32_t label = 0;
  if (action->labeled && has_[kFrames]) {
    std::optional<std::uint32_t> number;
    if (frames) number = once(labels_, *frames, meanings.label, event.value[kFrames].text);
    if (is(kFrames, Kind::kReference)) {
      auto const at = static_cast<std::uint32_t>(event.value[kFrames].number);
      number = once(labels_at_, at, meanings.label_at, at);
    }
    if (!number) return false;
    label = *number;
  }
  auto const number = [&](Field field) { return has_[field] ? event.value[field].number : 0; };
  run.slots.push_back({Kept::kEvent, static_cast<std::uint32_t>(run.action.size())});
  run.slots.insert(run.slots.end(), slots.begin(), slots.begin() + event.memoized.size());
  run.action.push_back(action->number);
  run.address.push_back(number(kAddress));
  run.size.push_back(number(kSize));
  run.stream.push_back(number(kStream));
  run.time.push_back(number(kTime));
  run.pool.push_back(pool_number);
  run.label.push_back(label);
  return true;
}

// The index of a text in `texts_`; nullopt if there are too many.
std::optional<std::uint32_t> EventScanner::kept(std::string_view text) {
  if (auto const found = indices_.find(text); found != indices_.end()) return found->second;
  if (texts_.size() > std::numeric_limits<std::uint32_t>::max() / 4) return std::nullopt;
  auto const index = static_cast<std::uint32_t>(texts_.size());
  texts_.push_back(&indices_.emplace(text, index).first->first);
  return index;
}

}  // namespace allocbench
