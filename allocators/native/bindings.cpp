// bindings.cpp: the native core as the Python module allocbench.allocators._core.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "core/abilities.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "registry.hpp"
#include "strategies/external.hpp"
#include "wrappers/check.hpp"
#include "wrappers/record.hpp"

namespace allocbench {
namespace {

using Columns = nb::typed<nb::dict, nb::str, nb::any>;  // of numpy arrays

std::vector<Option> to_vector(std::span<Option const> options) {
  return {options.begin(), options.end()};
}

void bind_errors(nb::module_& m) {
  nb::exception<OutOfMemory>(m, "OutOfMemory", PyExc_MemoryError);
  nb::exception<BadFree>(m, "BadFree", PyExc_ValueError);
  nb::exception<InvariantViolation>(m, "InvariantViolation", PyExc_AssertionError);
  nb::exception<DeviceError>(m, "DeviceError", PyExc_RuntimeError);
  auto const spec_error = nb::exception<SpecError>(m, "SpecError", PyExc_ValueError);
  nb::exception<Unavailable>(m, "Unavailable", spec_error);
}

void bind_records(nb::module_& m) {
  nb::class_<Block>(m, "Block",
                    "Part of a segment. `requested` is 0 in a free block. All sizes are in bytes.")
      .def_ro("address", &Block::address)
      .def_ro("size", &Block::size)
      .def_ro("requested", &Block::requested)
      .def_prop_ro("allocated", &Block::allocated);
  nb::class_<Segment>(m, "Segment", "A range obtained from the device, tiled by its blocks.")
      .def_ro("address", &Segment::address)
      .def_ro("size", &Segment::size)
      .def_ro("blocks", &Segment::blocks);
  nb::class_<Stats>(m, "Stats", "Current and peak bytes, and counts of calls.")
      .def_prop_ro("requested", [](Stats const& stats) { return stats.requested.current; })
      .def_prop_ro("allocated", [](Stats const& stats) { return stats.allocated.current; })
      .def_prop_ro("reserved", [](Stats const& stats) { return stats.reserved.current; })
      .def_prop_ro("peak_requested", [](Stats const& stats) { return stats.requested.peak; })
      .def_prop_ro("peak_allocated", [](Stats const& stats) { return stats.allocated.peak; })
      .def_prop_ro("peak_reserved", [](Stats const& stats) { return stats.reserved.peak; })
      .def_ro("allocations", &Stats::allocations, "requests served")
      .def_ro("frees", &Stats::frees)
      .def_ro("failures", &Stats::failures, "requests refused")
      .def_ro("retries", &Stats::retries,
              "requests that first returned cached memory to the device");
  nb::class_<DeviceStats>(m, "DeviceStats",
                          "Counts of calls to a device, and their cost in seconds.")
      .def_ro("malloc_calls", &DeviceStats::malloc_calls)
      .def_ro("free_calls", &DeviceStats::free_calls)
      .def_ro("map_calls", &DeviceStats::map_calls)
      .def_ro("unmap_calls", &DeviceStats::unmap_calls)
      .def_ro("refused_calls", &DeviceStats::refused_calls, "mallocs and maps")
      .def_ro("seconds", &DeviceStats::seconds)
      .def_ro("calls_at_points", &DeviceStats::calls_at_points,
              "How many calls each point of the cost curves of a simulated device counts for: "
              "malloc, free, map, unmap. A call between two points counts for both in part.")
      .def_prop_ro("calls", &DeviceStats::calls);
  nb::class_<Option>(m, "Option", "A named option of a strategy.")
      .def_ro("name", &Option::name)
      .def_prop_ro("type", [](Option const& option) { return to_string(option.type); })
      .def_ro("default", &Option::fallback)
      .def_ro("help", &Option::help);
  nb::class_<StrategyInfo>(m, "StrategyInfo", "Description of a strategy.")
      .def_ro("name", &StrategyInfo::name)
      .def_ro("summary", &StrategyInfo::summary)
      .def_ro("worst_case", &StrategyInfo::worst_case)
      .def_ro("reference", &StrategyInfo::reference)
      .def_prop_ro("options", [](StrategyInfo const& info) { return to_vector(info.options); })
      .def_ro("candidate", &StrategyInfo::candidate, "may be recommended")
      .def_ro("keeps_free_blocks", &StrategyInfo::keeps_free_blocks)
      .def_ro("exemption", &StrategyInfo::exemption, "why largest_request is below the capacity")
      .def_ro("by_pool", &StrategyInfo::by_pool,
              "knows private pools; otherwise each has an instance of its own")
      .def_ro("from_driver_pool", &StrategyInfo::from_driver_pool,
              "needs a device whose driver has memory pools")
      .def(
          "largest_request",
          [](StrategyInfo const& info, Size capacity) { return info.largest_request(capacity); },
          "capacity"_a, "The largest request that an empty device of `capacity` bytes must serve.");
}

void bind_allocators(nb::module_& m) {
  nb::class_<Allocator>(m, "Allocator", "A strategy running on a device. Thread-safe.")
      .def(
          "allocate",
          [](Allocator& allocator, Size size, std::uint32_t stream, PoolId pool) {
            return allocator.allocate(size, in_pool(stream, pool));
          },
          "size"_a, "stream"_a = 0, "pool"_a = 0,
          nb::call_guard<nb::gil_scoped_release>(),  // it may wait for another thread
          "Returns the address of a block of at least `size` bytes; 0 for 0 bytes. Raises "
          "OutOfMemory.")
      .def(
          "deallocate",
          [](Allocator& allocator, Address address, std::uint32_t stream, PoolId pool) {
            allocator.deallocate(address, in_pool(stream, pool));
          },
          "address"_a, "stream"_a = 0, "pool"_a = 0,
          "Frees a block of a private pool, or of none (0). Address 0 is ignored. Raises BadFree, "
          "and changes nothing, for any other address.")
      .def(
          "trim",
          [](Allocator& allocator, PoolId pool) {
            if (pool == 0)
              allocator.trim();
            else
              serving_pools(allocator).trim_pool(pool);
          },
          "pool"_a = 0,
          "Gives wholly free segments back to the device: those outside of private pools and of "
          "released ones, or those of one pool, if it is released.")
      .def(
          "pool_event",
          [](Allocator& allocator, std::uint8_t op, PoolId pool) {
            if (op < static_cast<std::uint8_t>(Op::kPoolCreate) ||
                op > static_cast<std::uint8_t>(Op::kPoolRelease) || pool == 0)
              throw std::invalid_argument(
                  "an event of a private pool has an op from 4 to 9 and a pool above 0");
            serving_pools(allocator).pool_event(static_cast<Op>(op), pool);
          },
          "op"_a, "pool"_a,
          "Creates, enters, leaves or releases a private pool, or begins or ends a capture into "
          "it. Raises ValueError for any other op.")
      .def(
          "change_settings",
          [](Allocator& allocator, std::string const& conf) {
            live_settings(allocator).change_settings(conf);
          },
          "conf"_a,
          "Changes settings as torch.cuda.memory._set_allocator_settings(conf) does. Raises "
          "SpecError, and changes nothing, if it cannot.")
      .def(
          "change_memory_fraction",
          [](Allocator& allocator, double fraction) {
            live_settings(allocator).change_memory_fraction(fraction);
          },
          "fraction"_a,
          "Changes the limit as torch.cuda.memory.set_per_process_memory_fraction does. Raises "
          "SpecError, and changes nothing, if it cannot.")
      .def("reset_peaks", &Allocator::reset_peaks,
           "Sets the peak statistics to the current values.")
      .def("step", &Allocator::step, "Marks the start of a training or inference step.")
      .def("snapshot", &Allocator::snapshot, "The segments, in order of address.")
      .def("check", &Allocator::check, "Raises InvariantViolation with the rule that is broken.")
      .def("largest_free", &Allocator::largest_free, "Size of the largest free block in bytes.")
      .def("stats", &Allocator::stats)
      .def(
          "counters",
          [](Allocator const& allocator) {
            auto const counters = allocator.counters();
            return std::map<std::string, std::uint64_t>(counters.begin(), counters.end());
          },
          "Counters of this strategy, in addition to the common statistics.")
      .def_prop_ro("device", &Allocator::device, nb::rv_policy::reference_internal)
      .def_prop_ro("info", &Allocator::info, nb::rv_policy::reference);
  m.def("strategies", &strategies, nb::rv_policy::reference, "All strategies, sorted by name.");
  m.def("strategy", &strategy, "name"_a, nb::rv_policy::reference,
        "The strategy with a name. Raises SpecError.");
  m.def("unavailable", &unavailable, "info"_a, "device"_a,
        "The reason why a strategy cannot run on a device; empty if it can.");
  using NameAndOptions = std::pair<std::string, std::map<std::string, std::string>>;
  m.def(
      "make",
      [](std::vector<NameAndOptions> const& pairs, Device& device) {
        std::vector<Layer> layers;
        for (auto const& [name, options] : pairs) layers.push_back({name, options});
        auto allocator = make(layers, device);
        allocator->hold_at_fork();
        return allocator;
      },
      "layers"_a, "device"_a, nb::keep_alive<0, 2>(),
      "Creates an allocator. `layers`: (name, options) of the wrappers, outermost first, and of "
      "the strategy. Raises SpecError.");
  m.def("parse_bytes", &parse_bytes, "text"_a,
        "The number of bytes in a text such as '1.5 MiB'; None for any other text.");
  m.def("human_bytes", &human_bytes, "size"_a, "For example '1.50 GiB (1610612736 bytes)'.");
}

// What an object of a Python class may call, as long as its allocator exists.
struct PythonSource {
  SegmentSource* source;
};

nb::callable& class_finder() {
  static auto* finder = new nb::callable;  // outlives the interpreter
  return *finder;
}

// Calls need the GIL. An exception of the class becomes a SpecError, except for a MemoryError of
// `allocate`, which refuses the request.
class PythonAllocator final : public ExternalAllocator {
 public:
  PythonAllocator(std::string const& name, SegmentSource& source)
      : name_(name), handle_(std::make_shared<PythonSource>(&source)) {
    nb::gil_scoped_acquire const gil;
    nb::object const found = class_finder()(name);  // raises SpecError
    call("", [&] {
      object_ = found(handle_);
      return 0;
    });
  }
  ~PythonAllocator() override {
    nb::gil_scoped_acquire const gil;
    object_.reset();
    handle_->source = nullptr;
  }

  Address allocate(Size requested, Stream stream) override {
    return call(".allocate", [&]() -> Address {
      try {
        nb::object const address = object_.attr("allocate")(requested, stream);
        return address.is_none() ? 0 : nb::cast<Address>(address);
      } catch (nb::python_error const& error) {
        if (error.matches(PyExc_MemoryError)) return 0;
        throw;
      }
    });
  }
  void free(Address address, Size, Stream) override {
    call(".free", [&] { return object_.attr("free")(address), 0; });
  }
  void trim() override {
    call(".trim", [&] {
      if (nb::hasattr(object_, "trim")) object_.attr("trim")();
      return 0;
    });
  }

 private:
  template <class Call>
  Address call(char const* method, Call made) {
    nb::gil_scoped_acquire const gil;
    try {
      return made();
    } catch (nb::python_error& error) {
      bool const exits = error.matches(PyExc_SystemExit) && error.type().ptr() != PyExc_SystemExit;
      if (exits || error.matches(PyExc_KeyboardInterrupt)) throw;  // a signal
      std::string const what = nb::cast<std::string>(nb::str(error.value()));
      throw SpecError(name_ + method + " raised " +
                      nb::cast<std::string>(error.type().attr("__name__")) + ": " + what);
    } catch (nb::cast_error const&) {
      throw SpecError(name_ + method + " returned no address");
    }
  }

  std::string name_;
  std::shared_ptr<PythonSource> handle_;
  nb::object object_;
};

void bind_external(nb::module_& m) {
  auto const source = [](PythonSource& handle) -> SegmentSource& {
    if (handle.source == nullptr) throw SpecError("the allocator of this device has ended");
    return *handle.source;
  };
  nb::class_<PythonSource>(m, "SegmentSource", "Where an allocator of your own gets its segments.")
      .def(
          "malloc",
          [source](PythonSource& own, Size size) { return source(own).allocate_segment(size); },
          "size"_a, "A segment of `size` bytes: its address, or 0 if the device refuses.")
      .def(
          "free",
          [source](PythonSource& own, Address segment) {
            if (!source(own).free_segment(segment))
              throw BadFree("no segment begins at " + hex(segment));
          },
          "segment"_a, "Gives a segment back. Raises BadFree for any other address.")
      .def_prop_ro(
          "free_bytes", [source](PythonSource& own) { return source(own).room_for_segments(); },
          "The bytes that the device still has.")
      .def_prop_ro(
          "capacity", [source](PythonSource& own) { return source(own).capacity(); },
          "The bytes of the device.");
  m.def(
      "find_classes_with",
      [](nb::typed<nb::callable, nb::object(std::string)> finder) {
        class_finder() = std::move(finder);
        make_from_class = [](std::string const& name,
                             SegmentSource& from) -> std::unique_ptr<ExternalAllocator> {
          return std::make_unique<PythonAllocator>(name, from);
        };
      },
      "finder"_a, "`finder(name)` returns the class for the option `class` of `external`.");
}

template <class W>
W const& layer(Allocator const& allocator) {
  if (auto const* wrapper = find_layer<W>(allocator)) return *wrapper;
  std::string const name(W::wrapper.name);
  throw SpecError("the allocator has no '" + name + "' wrapper: create it with " + name +
                  ":of=..., outside any per_stream");
}

void bind_wrappers(nb::module_& m) {
  using Live = Check::Live;
  nb::class_<WrapperInfo>(m, "WrapperInfo", "Description of a wrapper.")
      .def_ro("name", &WrapperInfo::name)
      .def_ro("summary", &WrapperInfo::summary)
      .def_prop_ro("options", [](WrapperInfo const& info) { return to_vector(info.options); });
  nb::class_<Live>(m, "Live", "A live block, as recorded by the `check` wrapper.")
      .def_ro("block", &Live::block)
      .def_prop_ro("stream", [](Live const& live) { return without_pool(live.stream); })
      .def_ro("request", &Live::request, "number of requests before this one")
      .def_ro("step", &Live::step, "number of steps begun before this request");
  m.def("wrappers", &wrappers, nb::rv_policy::reference, "All wrappers, sorted by name.");
  m.def(
      "live", [](Allocator const& allocator) { return layer<Check>(allocator).live(); },
      "allocator"_a,
      "The live blocks, in the order of their requests. Raises SpecError without a `check` "
      "wrapper.");
  m.def(
      "recording",
      [](Allocator const& allocator) {
        Record::Recording recording = layer<Record>(allocator).recording();
        Columns table;
        table["op"] = to_numpy(std::move(recording.op));
        table["block"] = to_numpy(std::move(recording.block));
        table["size"] = to_numpy(std::move(recording.size));
        table["stream"] = to_numpy(std::move(recording.stream));
        table["pool"] = to_numpy(std::move(recording.pool));
        return table;
      },
      "allocator"_a, "The events so far, as columns. Raises SpecError without a `record` wrapper.");
}

}  // namespace
}  // namespace allocbench

NB_MODULE(_core, m) {
  m.doc() = "The native core of allocbench.";
  nb::set_leak_warnings(false);  // a program's allocator outlives the interpreter intentionally
  allocbench::bind_errors(m);
  allocbench::bind_records(m);
  allocbench::bind_devices(m);
  allocbench::bind_allocators(m);
  allocbench::bind_external(m);
  allocbench::bind_wrappers(m);
  allocbench::bind_replay(m);
  allocbench::bind_programs(m);
  allocbench::bind_planners(m);
}
