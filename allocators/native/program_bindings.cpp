// program_bindings.cpp: running programs, for Python.
// SPDX-License-Identifier: Apache-2.0
#include <Python.h>  // before headers of the system
#include <dlfcn.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings.hpp"
#include "core/errors.hpp"
#include "program.hpp"

namespace allocbench {
namespace {

using Flow = ProgramMemory::Flow;
using Totals = ProgramMemory::Totals;
using ProgramStats = ProgramMemory::ProgramStats;

cuda::Stream stream_of(std::uintptr_t number) { return reinterpret_cast<cuda::Stream>(number); }

}  // namespace

void bind_programs(nb::module_& m) {
  nb::class_<Latency>(m, "Latency",
                      "The durations of many calls. Percentiles are at most 1/32 too high.")
      .def(nb::init<>())
      .def("add", &Latency::add, "ticks"_a,
           "Adds a call that took `ticks` of the processor's time stamp counter.")
      .def_prop_ro("count", &Latency::count)
      .def_prop_ro("mean", &Latency::mean, "seconds")
      .def_prop_ro("max", &Latency::max, "seconds")
      .def("percentile", &Latency::percentile, "share"_a,
           "The seconds that a share (0 to 1) of the calls does not exceed.");
  nb::class_<Flow>(m, "Flow", "A number of bytes or blocks over time.")
      .def_prop_ro("current", [](Flow const& flow) { return flow.gauge.current; })
      .def_prop_ro("peak", [](Flow const& flow) { return flow.gauge.peak; })
      .def_ro("gained", &Flow::gained, "sum of all increases since the last reset")
      .def_ro("lost", &Flow::lost, "sum of all decreases since the last reset");
  nb::class_<Totals>(m, "Totals", "Sums over all blocks, including those of captured graphs.")
      .def_ro("requested", &Totals::requested)
      .def_ro("allocated", &Totals::allocated)
      .def_ro("active", &Totals::active, "allocated, or freed but still in use")
      .def_ro("reserved", &Totals::reserved)
      .def_ro("graphs", &Totals::graphs, "reserved for captured graphs")
      .def_ro("allocated_blocks", &Totals::allocated_blocks)
      .def_ro("active_blocks", &Totals::active_blocks);
  nb::class_<ProgramStats>(m, "ProgramStats", "Statistics of a program's calls on one GPU.")
      .def_ro("totals", &ProgramStats::totals)
      .def_ro("alloc", &ProgramStats::alloc)
      .def_ro("free", &ProgramStats::free)
      .def_ro("failures", &ProgramStats::failures, "requests that failed after all retries")
      .def_ro("retries", &ProgramStats::retries,
              "retries after waiting for events or trimming memory of graphs")
      .def_ro("waiting", &ProgramStats::waiting, "freed blocks still in use on a stream")
      .def_ro("deferred", &ProgramStats::deferred, "frees that had to wait for a stream")
      .def_ro("gpu_free_at_start", &ProgramStats::gpu_free_at_start,
              "free bytes of the GPU, with the memory of all processes counted")
      .def_ro("gpu_free_least", &ProgramStats::gpu_free_least,
              "the lowest value at a new peak of reserved bytes");
  nb::class_<ProgramMemory>(m, "ProgramMemory",
                            "The memory of a running program on one GPU. Sizes are in bytes.")
      .def(
          "allocate",
          [](ProgramMemory& memory, Size size, std::uintptr_t stream) {
            std::string failure;
            Address const address = memory.allocate(size, stream_of(stream), failure);
            if (address == 0 && size != 0) throw OutOfMemory(failure);
            return address;
          },
          "size"_a, "stream"_a = 0, nb::call_guard<nb::gil_scoped_release>(),
          "Returns the address of a block for a CUDA stream handle. Raises OutOfMemory.")
      .def(
          "deallocate",
          [](ProgramMemory& memory, Address address) {
            if (!memory.deallocate(address))
              throw BadFree("free of an address that is not an allocated block");
          },
          "address"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Frees a block. Raises BadFree unless the address is an allocated block.")
      .def(
          "use_on",
          [](ProgramMemory& memory, Address address, std::uintptr_t stream) {
            memory.use_on(address, stream_of(stream));
          },
          "address"_a, "stream"_a, "Records that the block is used on a stream other than its own.")
      .def(
          "begin_capture",
          [](ProgramMemory& memory, ProgramMemory::GraphPool pool,
             std::vector<std::uintptr_t> const& streams) {
            memory.begin_capture(pool, [streams](cuda::Stream stream) {
              auto const handle = reinterpret_cast<std::uintptr_t>(stream);
              return std::ranges::find(streams, handle) != streams.end();
            });
          },
          "pool"_a, "streams"_a,
          "Starts a graph capture: requests on these streams get memory that belongs to the graph.")
      .def("end_capture", &ProgramMemory::end_capture, "pool"_a)
      .def("release", &ProgramMemory::release, "pool"_a,
           "Releases the graph's memory once its blocks are freed.")
      .def("trim", &ProgramMemory::trim, "Returns free memory to the GPU.")
      .def("step", &ProgramMemory::step, "Marks the start of a training or inference step.")
      .def("reset_peaks", &ProgramMemory::reset_peaks,
           "Sets the peak statistics to the current values.")
      .def("reset_counts", &ProgramMemory::reset_counts,
           "Sets `gained` and `lost` of all totals to 0.")
      .def("close", &ProgramMemory::close,
           "Returns all memory to the GPU, including live blocks. Later requests fail.")
      .def("stats", &ProgramMemory::stats, "The statistics of the program's calls.")
      .def_prop_ro("device", &ProgramMemory::device, nb::rv_policy::reference)
      .def_prop_ro("allocator", &ProgramMemory::allocator, nb::rv_policy::reference);
  nb::class_<Program>(m, "Program", "A running program that gets its memory from an allocator.")
      .def_static(
          "start",
          [](std::vector<std::pair<std::string, std::map<std::string, std::string>>> const& pairs,
             std::optional<Size> limit, bool poison) {
            std::vector<Layer> layers;
            for (auto const& [name, options] : pairs) layers.push_back({name, options});
            return &Program::start(std::move(layers), limit, poison);
          },
          "layers"_a, "limit"_a = nb::none(), "poison"_a = false, nb::rv_policy::reference,
          "`layers`: (name, options) of the wrappers, outermost first, and of the strategy. "
          "`limit`: bytes on each GPU. `poison`: fill freed memory with 0xFF. Raises SpecError.")
      .def("on", &Program::on, "ordinal"_a, nb::rv_policy::reference,
           "The memory on a GPU, created on first use. Raises SpecError or DeviceError.")
      .def(
          "memories",
          [](Program& program) {
            std::vector<ProgramMemory*> all;
            program.for_each([&](ProgramMemory& memory) { all.push_back(&memory); });
            return all;
          },
          nb::rv_policy::reference, "The memory on each GPU used so far.")
      .def_prop_ro("address",
                   [](Program& program) { return reinterpret_cast<std::uintptr_t>(&program); });
  m.def("serve_torch", &serve_torch, "program"_a.none(),
        "Routes PyTorch's allocations to this program from now on.");
  m.def("last_failure", &last_failure,
        "The reason why the last failed request of this thread through CuPy's entry point failed.");
  m.def(
      "entry_point",
      [](std::string const& name) {
        Dl_info library;
        if (dladdr(reinterpret_cast<void*>(&serve_torch), &library) == 0)
          throw std::runtime_error("cannot find the library of the native core");
        void* const handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        void* const function = handle == nullptr ? nullptr : dlsym(handle, name.c_str());
        if (function == nullptr) throw SpecError("no entry point is called '" + name + "'");
        return reinterpret_cast<std::uintptr_t>(function);
      },
      "name"_a, "The address of a C function for PyTorch or CuPy. Raises SpecError.");
}

}  // namespace allocbench
