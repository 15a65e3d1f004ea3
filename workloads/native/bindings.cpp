// bindings.cpp: the native parts of importers as the Python module allocbench.workloads._native.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "block_numbers.hpp"
#include "event_scanner.hpp"
#include "pairing.hpp"
#include "rmm_rows.hpp"
#include "trace_scan.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace allocbench {
namespace {

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {owned->data(), {owned->size()}, owner};
}

// A numpy array that shares the memory of a column of a run, and keeps the run alive.
template <class T>
auto shared(std::vector<T> EventRun::* column) {
  return [column](nb::handle run) {
    std::vector<T>& values = nb::cast<EventRun&>(run).*column;
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, run);
  };
}

template <class T>
using Array = nb::ndarray<T const, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<T const> view(Array<T> const& array) {
  return {array.data(), array.size()};
}

// Adds the arrays of consecutive events. Raises ValueError if they differ in length.
template <class Scan>
void add_events(Scan& scan, Array<std::uint8_t> const& op, Array<std::uint32_t> const& block,
                Array<std::uint64_t> const& size, Array<std::uint16_t> const& stream) {
  if (block.size() != op.size() || size.size() != op.size() || stream.size() != op.size())
    throw nb::value_error("the arrays differ in length");
  Events const events{view(op), view(block), view(size), view(stream)};
  nb::gil_scoped_release release;
  scan.add(events);
}

// Sums of bytes as Python integers.
nb::object to_int(Wide wide) {
  nb::object const high = nb::int_(static_cast<std::uint64_t>(wide >> 64));
  return (high << nb::int_(64)) | nb::int_(static_cast<std::uint64_t>(wide));
}

// The numbers that occurred, ascending, and how often each did.
auto sorted(Counts const& counts) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
  pairs.reserve(counts.distinct());
  counts.each(
      [&](std::uint64_t number, std::uint64_t count) { pairs.emplace_back(number, count); });
  std::ranges::sort(pairs);
  std::vector<std::uint64_t> numbers, times;
  for (auto const& [number, count] : pairs) {
    numbers.push_back(number);
    times.push_back(count);
  }
  return std::pair(to_numpy(std::move(numbers)), to_numpy(std::move(times)));
}

using OfPlace = nb::typed<nb::callable, int(int)>;
using OfOpcodes = nb::typed<nb::callable, int(nb::bytes)>;

std::string_view view(nb::bytes const& bytes) { return {bytes.c_str(), bytes.size()}; }

// A Python function as one that returns nullopt where the function raises: the reader of all
// opcodes then reads the event, and raises the error.
template <class Number, class Key>
std::function<std::optional<Number>(Key)> meaning(nb::object find) {
  return [find = std::move(find)](Key key) -> std::optional<Number> {
    try {
      nb::object found;
      if constexpr (std::is_same_v<Key, std::string_view>)
        found = find(nb::bytes(key.data(), key.size()));
      else
        found = find(key);
      if constexpr (std::is_same_v<Number, Action>) {
        auto const [number, labeled] = nb::cast<std::pair<std::uint8_t, bool>>(found);
        return Action{number, labeled};
      } else {
        return nb::cast<Number>(found);
      }
    } catch (nb::python_error& error) {
      // Ctrl-C and the like are not about the event.
      if (!error.matches(PyExc_Exception)) throw;
      return std::nullopt;
    } catch (nb::cast_error const&) {
      return std::nullopt;
    }
  };
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Native parts of the importers.";
  nb::class_<EventRun>(m, "EventRun",
                       "Events in order: one element of each column per event. `end`: where in "
                       "the data the scanner stopped.")
      .def_ro("end", &EventRun::end)
      .def("__len__", [](EventRun const& run) { return run.action.size(); })
      .def_prop_ro("action", shared(&EventRun::action), nb::rv_policy::reference)
      .def_prop_ro("address", shared(&EventRun::address), nb::rv_policy::reference)
      .def_prop_ro("size", shared(&EventRun::size), nb::rv_policy::reference)
      .def_prop_ro("stream", shared(&EventRun::stream), nb::rv_policy::reference)
      .def_prop_ro("time", shared(&EventRun::time), nb::rv_policy::reference)
      .def_prop_ro("pool", shared(&EventRun::pool), nb::rv_policy::reference)
      .def_prop_ro("label", shared(&EventRun::label), nb::rv_policy::reference)
      .def_prop_ro(
          "kept",
          [](EventRun const& run) {
            std::vector<std::uint8_t> kept;
            kept.reserve(run.slots.size());
            for (Slot const& slot : run.slots) kept.push_back(static_cast<std::uint8_t>(slot.kept));
            return to_numpy(std::move(kept));
          },
          nb::rv_policy::automatic,
          "what each value is that the events add to the memo: 0 an event, 1 a list of references, "
          "2 a tuple")
      .def_prop_ro(
          "index",
          [](EventRun const& run) {
            std::vector<std::uint32_t> index;
            index.reserve(run.slots.size());
            for (Slot const& slot : run.slots) index.push_back(slot.index);
            return to_numpy(std::move(index));
          },
          nb::rv_policy::automatic,
          "of each of these values: of the event in the run, or for `EventScanner.text`");
  nb::class_<EventScanner>(m, "EventScanner", "Reads the events of a pickled memory snapshot.")
      .def(
          "__init__",
          [](EventScanner* self, std::vector<nb::bytes> const& keys,
             std::array<int, kFields> const& place) {
            std::vector<std::string> opcodes;
            for (nb::bytes const& key : keys) opcodes.emplace_back(view(key));
            for (int const at : place)
              if (at >= static_cast<int>(opcodes.size())) throw nb::index_error("no such key");
            new (self) EventScanner(std::move(opcodes), place);
          },
          "keys"_a, "place"_a,
          "keys: the opcodes of each key. place: the index of the keys of the action, the address, "
          "the size, the stream, the time, the frames and the pool, or -1.")
      .def(
          "scan",
          [](EventScanner& self, nb::bytes const& data, std::size_t begin, std::uint64_t left,
             nb::typed<nb::callable, std::pair<int, bool>(int)> action, OfOpcodes label,
             OfPlace label_at, OfOpcodes pool, OfPlace pool_at) {
            Meanings const meanings{meaning<Action, std::uint32_t>(std::move(action)),
                                    meaning<std::uint32_t, std::string_view>(std::move(label)),
                                    meaning<std::uint32_t, std::uint32_t>(std::move(label_at)),
                                    meaning<std::int32_t, std::string_view>(std::move(pool)),
                                    meaning<std::int32_t, std::uint32_t>(std::move(pool_at))};
            return self.scan(view(data), begin, left, meanings);
          },
          "data"_a, "begin"_a, "left"_a, "action"_a, "label"_a, "label_at"_a, "pool"_a, "pool_at"_a,
          "The events from a position on, up to the first one of another form. left: how many "
          "bytes of the file follow the data. The functions return numbers; an event for which one "
          "of them raises an exception ends the run. action: number, and whether there is a label, "
          "of the string at a place in the memo. label: of a list of references, given its "
          "opcodes. label_at: of the frames at a place in the memo. pool, pool_at: the same for "
          "the "
          "id of a pool, a tuple.")
      .def(
          "text",
          [](EventScanner const& self, std::uint32_t index) {
            std::string const& text = self.text(index);
            return nb::bytes(text.data(), text.size());
          },
          "index"_a, "The opcodes of a list or a tuple.")
      .def("forget", &EventScanner::forget,
           "Forgets what references mean, after the memo has changed.");
  nb::class_<RmmRows>(
      m, "RmmRows",
      "The rows of a log of RMM, one element of each column per row, two for a failed request.")
      .def(nb::init<>())
      .def(
          "read",
          [](RmmRows& self, nb::bytes const& lines) {
            std::string_view const text = view(lines);
            nb::gil_scoped_release release;
            return self.read(text);
          },
          "lines"_a, "Adds whole lines. Returns False if RMM does not write one of them like this.")
      .def_ro("failures", &RmmRows::failures, "failed requests")
      .def_ro_static("NOWHERE", &RmmRows::kNowhere, "address of a failed request")
      .def(
          "take",
          [](RmmRows& self) {
            return std::tuple(to_numpy(std::move(self.is_alloc)), to_numpy(std::move(self.address)),
                              to_numpy(std::move(self.size)), to_numpy(std::move(self.stream)),
                              to_numpy(std::move(self.time)));
          },
          "The columns is_alloc (0 or 1), address, size (bytes), stream and time (nanoseconds "
          "since "
          "midnight), once.");
  nb::class_<Pairs>(m, "Pairs", "Which events belong together; events are indices.")
      .def_ro("requests_for_nothing", &Pairs::requests_for_nothing)
      .def_ro("stray_frees", &Pairs::stray_frees)
      .def_ro("search_steps", &Pairs::search_steps,
              "places of the hash table that were visited, beyond the first one of each search")
      .def(
          "take",
          [](Pairs& self) {
            return std::tuple(to_numpy(std::move(self.begin)), to_numpy(std::move(self.from_start)),
                              to_numpy(std::move(self.left_out)), to_numpy(std::move(self.unfreed)),
                              to_numpy(std::move(self.still_alive)),
                              to_numpy(std::move(self.addresses)));
          },
          "The columns, once. For each event: begin, the event that began its block; from_start, "
          "whether it frees a block that was alive before all events; left_out, whether it is a "
          "request for no bytes or a free of no block. Then: unfreed, the allocs at the address of "
          "a block that is alive; still_alive, the alloc of that block for each of them; "
          "addresses, all of them once, in any order.");
  m.def(
      "pair_events",
      [](Array<std::uint8_t> is_alloc, Array<std::uint64_t> address, Array<std::uint64_t> size) {
        if (address.size() != is_alloc.size() || size.size() != is_alloc.size())
          throw nb::value_error("the arrays differ in length");
        nb::gil_scoped_release release;
        return pair_events(view(is_alloc), view(address), view(size));
      },
      "is_alloc"_a, "address"_a, "size"_a,
      "Which of the events that name blocks by address belong together. Raises ValueError if the "
      "arrays differ in length.");
  nb::class_<BlockNumbers>(m, "BlockNumbers",
                           "Gives the live blocks of a trace numbers that are used again after a "
                           "free, so that all are below the largest number of live blocks.")
      .def(nb::init<>())
      .def(
          "number",
          [](BlockNumbers& self, Array<std::uint8_t> op, Array<std::uint32_t> block) {
            if (block.size() != op.size()) throw nb::value_error("the arrays differ in length");
            std::vector<std::uint32_t> numbers(op.size());
            std::size_t valid = 0;
            {
              nb::gil_scoped_release release;
              valid = self.number(view(op), view(block), numbers);
            }
            return std::pair(to_numpy(std::move(numbers)), valid);
          },
          "op"_a, "block"_a,
          "The next events: the number of the block of each alloc and free, `block` of any other "
          "event; and the index of the first event that allocates a live block or frees one that "
          "is not, from which on there are no numbers, or the number of events.");
  nb::class_<TraceScan>(m, "TraceScan",
                        "What the features of a valid trace need. Blocks have "
                        "numbers below `most_blocks`; others raise ValueError.")
      .def(nb::init<std::int64_t, std::uint64_t>(), "step_label"_a, "most_blocks"_a)
      .def("add", &add_events<TraceScan>, "op"_a, "block"_a, "size"_a, "stream"_a,
           "Adds the next events.")
      .def("finish", &TraceScan::finish, "Call it once, after the last event.")
      .def_ro("events", &TraceScan::events)
      .def_ro("steps", &TraceScan::steps)
      .def_prop_ro("streams", &TraceScan::streams)
      .def_ro("live_peak", &TraceScan::live_peak)
      .def_ro("live_sum", &TraceScan::live_sum, "of the live blocks after each event")
      .def_prop_ro(
          "load_max", [](TraceScan const& scan) { return to_int(scan.load_max); },
          nb::sig("def load_max(self) -> int"))
      .def_ro("load_max_at", &TraceScan::load_max_at, "the first event with the maximum")
      .def_prop_ro(
          "load_sum", [](TraceScan const& scan) { return to_int(scan.load_sum); },
          nb::sig("def load_sum(self) -> int"), "of the live bytes after each event")
      .def(
          "sizes", [](TraceScan const& scan) { return sorted(scan.sizes); },
          "The distinct sizes of the allocs, ascending, and how many allocs have each.")
      .def(
          "lifetimes", [](TraceScan const& scan) { return sorted(scan.lifetimes); },
          "The distinct lifetimes, ascending, and how many blocks have each.")
      .def_ro("repeated", &TraceScan::repeated,
              "The sum of |S_k intersected with S_(k-1)|, where S_k is the multiset of the sizes "
              "requested in step k.")
      .def_ro("compared", &TraceScan::compared, "The sum of max(|S_k|, |S_(k-1)|).");
  nb::class_<HighLoad>(m, "HighLoad",
                       "Counts the events of a valid trace after which the live bytes are at least "
                       "a threshold.")
      .def(nb::init<double, std::uint64_t>(), "threshold"_a, "most_blocks"_a)
      .def("add", &add_events<HighLoad>, "op"_a, "block"_a, "size"_a, "stream"_a,
           "Adds the next events.")
      .def_ro("count", &HighLoad::count);
}

}  // namespace allocbench
