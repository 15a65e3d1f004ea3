// bindings.cpp: the native parts of importers as the Python module allocbench.workloads._native.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "events.hpp"
#include "rmm_rows.hpp"

namespace allocbench {

void bind_pickles(nb::module_& m);  // in pickle_bindings.cpp
void bind_pytorch(nb::module_& m);  // in pytorch_bindings.cpp

namespace {

// Adds the arrays of consecutive events. Raises ValueError if they differ in length.
template <class Scan>
void add_events(Scan& scan, Array<std::uint8_t> const& op, Array<std::uint32_t> const& block,
                Array<std::uint64_t> const& size, Array<std::uint16_t> const& stream) {
  if (block.size() != op.size() || size.size() != op.size() || stream.size() != op.size())
    throw nb::value_error("the arrays differ in length");
  TracePart const part{view(op), view(block), view(size), view(stream)};
  nb::gil_scoped_release release;
  scan.add(part);
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

std::string_view view(nb::bytes const& bytes) { return {bytes.c_str(), bytes.size()}; }

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Native parts of the importers.";
  bind_pickles(m);
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
          "since midnight), once.");
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
  bind_pytorch(m);
}

}  // namespace allocbench
