// replay_bindings.cpp: traces and replays for Python.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/allocator.hpp"
#include "replay.hpp"

namespace allocbench {
namespace {

using Columns = nb::typed<nb::dict, nb::str, nb::any>;  // of numpy arrays

// One numpy array for each field of a vector of records, by the field's name.
template <class Record, class... Fields>
Columns columns(std::vector<Record> const& records,
                std::pair<char const*, Fields Record::*>... fields) {
  Columns table;
  auto const add = [&]<class Field>(char const* name, Field Record::* field) {
    std::vector<Field> values;
    values.reserve(records.size());
    for (Record const& record : records) values.push_back(record.*field);
    table[name] = to_numpy(std::move(values));
  };
  (add(fields.first, fields.second), ...);
  return table;
}

// None if the replay recorded no detail.
std::optional<std::map<std::string, Columns>> to_tables(std::optional<Detail> const& detail) {
  if (!detail) return std::nullopt;
  return std::map<std::string, Columns>{
      {"envelope",
       columns(detail->envelope, std::pair("event", &Level::event),
               std::pair("requested", &Level::requested), std::pair("allocated", &Level::allocated),
               std::pair("reserved", &Level::reserved))},
      {"placements", columns(detail->placements, std::pair("address", &Extent::address),
                             std::pair("size", &Extent::size))},
      {"device_calls",
       columns(detail->device_calls, std::pair("event", &StampedCall::event),
               std::pair("kind", &StampedCall::kind), std::pair("refused", &StampedCall::refused),
               std::pair("address", &StampedCall::address), std::pair("size", &StampedCall::size),
               std::pair("seconds", &StampedCall::seconds))},
      {"free_blocks",
       columns(detail->free_blocks, std::pair("event", &FreeClass::event),
               std::pair("size_class", &FreeClass::size_class),
               std::pair("blocks", &FreeClass::blocks), std::pair("bytes", &FreeClass::bytes))}};
}

std::map<std::string, std::uint64_t> to_map(Counters const& counters) {
  return {counters.begin(), counters.end()};
}

// The arrays of a part of a trace, kept alive while it is replayed.
struct PartArrays {
  Array<std::uint8_t> op;
  Array<std::uint32_t> block;
  Array<std::uint64_t> size;
  Array<std::uint16_t> stream;
  Array<std::uint16_t> pool;
  Array<std::uint32_t> id;

  TracePart view_all() const {
    return {view(op), view(block), view(size), view(stream), view(pool), view(id)};
  }
};

// What is known before the first event: the same for all replays of a trace.
struct TraceStart {
  std::vector<HeldSegment> layout;
  std::vector<PoolTraits> pools;
};

// A trace with an iterable of PartArrays.
struct TraceParts {
  std::size_t events;
  nb::object parts;
  std::int64_t step_label;
  TraceStart start;
  std::vector<Change> changes;
};

// Reads a trace once, and keeps one part of it alive. Made and destroyed with the GIL.
class Reading {
 public:
  explicit Reading(TraceParts const& trace)
      : view_{trace.events,      trace.step_label, trace.start.layout,
              trace.start.pools, trace.changes,    [this] { return next(); }},
        iterator_(nb::iter(trace.parts)) {}
  Reading(Reading const&) = delete;
  Reading& operator=(Reading const&) = delete;

  TraceView const& view() const { return view_; }

 private:
  TracePart next() {
    nb::gil_scoped_acquire acquire;
    part_.reset();  // before the next one needs memory
    part_ = nb::steal(PyIter_Next(iterator_.ptr()));
    if (part_.is_valid()) return nb::cast<PartArrays const&>(part_).view_all();
    if (PyErr_Occurred()) throw nb::python_error();
    return {};
  }

  TraceView view_;
  nb::object iterator_;
  nb::object part_;
};

}  // namespace

void bind_replay(nb::module_& m) {
  nb::class_<Moment>(m, "Moment", "The state of an allocator after an event, in bytes.")
      .def_ro("event", &Moment::event)
      .def_ro("requested", &Moment::requested)
      .def_ro("allocated", &Moment::allocated)
      .def_ro("reserved", &Moment::reserved)
      .def_ro("largest_free", &Moment::largest_free);
  nb::class_<PartArrays>(m, "PartArrays",
                         "Consecutive events of a trace: arrays with one element per event.")
      .def(nb::init<Array<std::uint8_t>, Array<std::uint32_t>, Array<std::uint64_t>,
                    Array<std::uint16_t>, Array<std::uint16_t>, Array<std::uint32_t>>(),
           "op"_a.noconvert(), "block"_a.noconvert(), "size"_a.noconvert(), "stream"_a.noconvert(),
           "pool"_a.noconvert(), "id"_a.noconvert());
  nb::class_<TraceStart>(m, "TraceStart", "What a trace has before its first event.")
      .def(nb::init<std::vector<HeldSegment>, std::vector<PoolTraits>>(), "layout"_a, "pools"_a);
  nb::class_<TraceParts>(m, "TraceParts",
                         "A trace. `parts`: an iterable of PartArrays, each with an element or "
                         "more, `events` elements in all.")
      .def(nb::init<std::size_t, nb::object, std::int64_t, TraceStart, std::vector<Change>>(),
           "events"_a, "parts"_a, "step_label"_a, "start"_a, "changes"_a);
  nb::class_<Change>(m, "Change", "What a program calls before an event of its trace.")
      .def(nb::init<std::size_t, bool, std::optional<std::string>, std::optional<double>>(),
           "event"_a, "trim"_a, "settings"_a.none(), "memory_fraction"_a.none());
  nb::class_<PoolTraits>(m, "PoolTraits", "What a program chose when it made a private pool.")
      .def(
          "__init__",
          [](PoolTraits* self, bool use_on_oom, bool no_split, std::uint64_t rank) {
            new (self) PoolTraits{use_on_oom, no_split, rank};
          },
          "use_on_oom"_a, "no_split"_a, "rank"_a);
  nb::class_<HeldSegment>(m, "HeldSegment", "A segment that a program held before its trace.")
      .def(
          "__init__",
          [](HeldSegment* self, Address address, Size size, Stream stream, bool small,
             Address reservation, std::uint64_t rank, bool of_bfc, PoolId pool,
             std::vector<std::tuple<Address, Size, Size>> const& blocks) {
            new (self) HeldSegment{
                {address, size, {}}, in_pool(stream, pool), small, reservation, rank, of_bfc};
            for (auto const& [at, bytes, requested] : blocks)
              self->segment.blocks.push_back({at, bytes, requested});
          },
          "address"_a, "size"_a, "stream"_a, "small"_a, "reservation"_a, "rank"_a, "of_bfc"_a,
          "pool"_a, "blocks"_a,
          "`blocks`: (address, size, requested) of those allocated, in order of address.");
  nb::class_<Measurement>(m, "Measurement", "The results of a replay. Sizes are in bytes.")
      .def_ro("max_load", &Measurement::max_load,
              "peak of the requested bytes of the blocks alive in the trace")
      .def_ro("peak", &Measurement::peak,
              "the event at which reserved bytes first reached their maximum")
      .def_ro("stats", &Measurement::stats, "after the last event")
      .def_ro("device", &Measurement::device, "after the last event")
      .def_prop_ro("counters",
                   [](Measurement const& measurement) { return to_map(measurement.counters); })
      .def_ro("internal_fragmentation_mean", &Measurement::internal_fragmentation_mean)
      .def_ro("external_fragmentation_mean", &Measurement::external_fragmentation_mean)
      .def_prop_ro("timeline",
                   [](Measurement const& measurement) {
                     return columns(measurement.timeline, std::pair("event", &Moment::event),
                                    std::pair("requested", &Moment::requested),
                                    std::pair("allocated", &Moment::allocated),
                                    std::pair("reserved", &Moment::reserved),
                                    std::pair("largest_free", &Moment::largest_free));
                   })
      .def_prop_ro("detail",
                   [](Measurement const& measurement) { return to_tables(measurement.detail); });

  m.def(
      "measure",
      [](TraceParts const& trace, Allocator& allocator, std::size_t samples,
         std::optional<nb::typed<nb::callable, void(Columns)>> placements, bool keep, bool detail) {
        PlacementSink sink;
        if (placements) {
          sink = [&placements](std::vector<BlockPlacement> const& part) {
            nb::gil_scoped_acquire acquire;
            (*placements)(columns(part, std::pair("block", &BlockPlacement::block),
                                  std::pair("segment", &BlockPlacement::segment),
                                  std::pair("offset", &BlockPlacement::offset),
                                  std::pair("size", &BlockPlacement::size),
                                  std::pair("requested", &BlockPlacement::requested),
                                  std::pair("step", &BlockPlacement::step)));
          };
        }
        Reading reading(trace);
        nb::gil_scoped_release release;
        return measure(reading.view(), allocator, samples, sink, keep, detail);
      },
      "trace"_a, "allocator"_a, "samples"_a, "placements"_a.none(), "keep"_a, "detail"_a,
      "Replays a trace. `samples`: approximate length of the timeline. `placements` is called with "
      "batches of columns. With `keep`, live blocks are not freed at the end. Raises ValueError "
      "for an invalid trace.");
  m.def(
      "time_pass",
      [](TraceParts const& trace, Allocator& allocator) {
        Reading reading(trace);
        nb::gil_scoped_release release;
        return time_pass(reading.view(), allocator);
      },
      "trace"_a, "allocator"_a, "Seconds per event of one replay of the whole trace.");
  m.def(
      "time_each",
      [](TraceParts const& trace, Allocator& allocator,
         nb::typed<nb::callable, void(NumpyArray<float>, NumpyArray<float>)> seen) {
        Reading reading(trace);
        LatencySink const sink = [&seen](Latencies latencies) {
          nb::gil_scoped_acquire acquire;
          seen(to_numpy(std::move(latencies.alloc)), to_numpy(std::move(latencies.free)));
        };
        nb::gil_scoped_release release;
        return time_each(reading.view(), allocator, sink);
      },
      "trace"_a, "allocator"_a, "seen"_a,
      "Calls `seen` for each part with the seconds of each alloc and of each free, without the "
      "cost of reading the timer. Returns that cost.");
  m.def(
      "failing_event",
      [](TraceParts const& trace, Allocator& allocator) {
        Reading reading(trace);
        nb::gil_scoped_release release;
        return failing_event(reading.view(), allocator);
      },
      "trace"_a, "allocator"_a,
      "The first event whose request fails, or None. The replay stops there.");
}

}  // namespace allocbench
