// planner_bindings.cpp: the planners, for Python: from lifetimes and graphs to offsets.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings.hpp"
#include "core/errors.hpp"
#include "planners/arena_planner.hpp"
#include "planners/graph_plan.hpp"
#include "planners/planners.hpp"

namespace allocbench {
namespace {

using Report = std::optional<nb::typed<nb::callable, void(double, Size, Size)>>;
using Seconds = std::optional<nb::typed<nb::callable, double()>>;

// A planner runs without the GIL and calls this function periodically. A signal or an exception of
// `report` stops the planner.
SearchBudget search_budget(double time_limit, Report const& report) {
  return {time_limit, [&report](Progress const& progress) {
            nb::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (report) (*report)(progress.seconds, progress.height, progress.lower_bound);
            return true;
          }};
}

std::vector<Lifetime> lifetimes(Array<std::uint64_t> const& size, Array<std::uint32_t> const& first,
                                Array<std::uint32_t> const& last) {
  if (first.size() != size.size() || last.size() != size.size())
    throw SpecError("size, first and last must have equal lengths");
  std::vector<Lifetime> all;
  all.reserve(size.size());
  for (std::size_t block = 0; block < size.size(); ++block)
    all.push_back({size.data()[block], first.data()[block], last.data()[block]});
  return all;
}

void bind_plans(nb::module_& m) {
  nb::class_<PlannerInfo>(m, "PlannerInfo", "Description of a planner.")
      .def_ro("name", &PlannerInfo::name)
      .def_ro("summary", &PlannerInfo::summary)
      .def_ro("reference", &PlannerInfo::reference);
  m.def("planners", [] {
    auto const all = planners();
    return std::vector<PlannerInfo>(all.begin(), all.end());
  });
  m.def(
      "plan",
      [](std::string_view name, Array<std::uint64_t> size, Array<std::uint32_t> first,
         Array<std::uint32_t> last, Size alignment, double time_limit, Report const& report,
         Seconds const& clock) {
        auto const blocks = lifetimes(size, first, last);
        SearchBudget budget = search_budget(time_limit, report);
        if (clock)
          budget.clock = [&clock] {
            nb::gil_scoped_acquire acquire;
            return nb::cast<double>((*clock)());
          };
        BoundedPlan result;
        Size load;
        {
          nb::gil_scoped_release release;
          result = plan(name, blocks, alignment, budget);
          load = max_load(blocks);
        }
        return std::tuple(to_numpy(std::move(result.plan.offsets)), result.plan.height, load,
                          result.lower_bound);
      },
      "planner"_a, "size"_a.noconvert(), "first"_a.noconvert(), "last"_a.noconvert(), "alignment"_a,
      "time_limit"_a, "report"_a.none(), "clock"_a.none() = nb::none(),
      "Returns the offsets, the height, the maximum load and a lower bound, in bytes. A block is "
      "alive from `first` up to but not including `last`. `time_limit`: seconds. `report` is "
      "called with the seconds, the height and the lower bound. `clock` returns seconds and "
      "replaces the clock of the time limit. Raises SpecError.");
}

void bind_arena(nb::module_& m) {
  using Alloc = SimpleMemoryArena::Alloc;
  nb::class_<Alloc>(m, "ArenaAlloc", "A block placed in an arena.")
      .def_ro("offset", &Alloc::offset)
      .def_ro("size", &Alloc::size);
  nb::class_<SimpleMemoryArena>(
      m, "SimpleMemoryArena",
      "TFLite's arena: assigns offsets first and obtains one segment at commit.")
      .def(nb::init<Device&, Size>(), "device"_a, "alignment"_a = ArenaPlanner::kAlignment,
           nb::keep_alive<1, 2>())
      .def("allocate", &SimpleMemoryArena::allocate, "alignment"_a, "size"_a)
      .def("deallocate", &SimpleMemoryArena::deallocate, "block"_a, "Raises BadFree.")
      .def("commit", &SimpleMemoryArena::commit,
           "Obtains a segment as large as the high-water mark. Raises OutOfMemory.")
      .def("resolve", &SimpleMemoryArena::resolve, "block"_a,
           "The address of a block. Raises SpecError before `commit`.")
      .def("clear", &SimpleMemoryArena::clear, "Removes all blocks but keeps the segment.")
      .def_prop_ro("high_water_mark", &SimpleMemoryArena::high_water_mark)
      .def_prop_ro("committed_size", &SimpleMemoryArena::committed_size);
}

void bind_graphs(nb::module_& m) {
  nb::enum_<Placement>(m, "Placement")
      .value("ARENA", Placement::kArena)
      .value("PERSISTENT", Placement::kPersistent)
      .value("DYNAMIC", Placement::kDynamic)
      .value("NONE", Placement::kNone);
  nb::class_<Tensor>(m, "Tensor")
      .def(nb::init<Size, Placement>(), "bytes"_a, "placement"_a = Placement::kArena)
      .def_ro("bytes", &Tensor::bytes)
      .def_ro("placement", &Tensor::placement);
  nb::class_<Operator>(m, "Operator")
      .def(nb::init<std::vector<int>, std::vector<int>, std::vector<int>, std::string>(),
           "inputs"_a, "outputs"_a, "temporaries"_a = std::vector<int>{}, "name"_a = "");
  nb::class_<Graph>(m, "Graph", "Operators in execution order. Tensors are identified by index.")
      .def(nb::init<std::vector<Tensor>, std::vector<Operator>, std::vector<int>, std::vector<int>,
                    std::vector<int>>(),
           "tensors"_a, "operators"_a, "inputs"_a, "outputs"_a, "variables"_a = std::vector<int>{});
  nb::class_<GraphPlan>(m, "GraphPlan", "Offsets of the tensors of a graph. Sizes are in bytes.")
      .def_ro("offsets", &GraphPlan::offsets,
              "offset of each tensor in its arena; None if it has none")
      .def_ro("owners", &GraphPlan::owners,
              "the tensor whose memory each tensor uses: itself unless it is computed in place")
      .def_ro("arena_size", &GraphPlan::arena_size)
      .def_ro("persistent_arena_size", &GraphPlan::persistent_arena_size)
      .def_ro("lower_bound", &GraphPlan::lower_bound, "lower bound of arena_size");
  m.def(
      "plan_graph",
      [](Graph const& graph, std::string_view planner, bool preserve_inputs,
         bool preserve_intermediates, Size alignment, double time_limit, Report const& report) {
        nb::gil_scoped_release release;
        return plan_graph(planner, graph, {preserve_inputs, preserve_intermediates, alignment},
                          search_budget(time_limit, report));
      },
      "graph"_a, "planner"_a, "preserve_inputs"_a, "preserve_intermediates"_a, "alignment"_a,
      "time_limit"_a, "report"_a.none(), "Plans the arenas of a graph. Raises SpecError.");
  nb::class_<ArenaPlanner>(m, "ArenaPlanner", "TFLite's ArenaPlanner of 2018, with two arenas.")
      .def(nb::init<Device&, Graph, bool, bool, Size>(), "device"_a, "graph"_a,
           "preserve_inputs"_a = false, "preserve_intermediates"_a = false,
           "alignment"_a = ArenaPlanner::kAlignment, nb::keep_alive<1, 2>())
      .def("execute", &ArenaPlanner::execute, "first"_a, "last"_a,
           "Places the tensors of these operators. Raises SpecError or OutOfMemory.")
      .def("set_bytes", &ArenaPlanner::set_bytes, "tensor"_a, "size"_a,
           "Sets the size of a tensor that is not placed yet. Raises SpecError.")
      .def("offset", &ArenaPlanner::offset, "tensor"_a,
           "None if the tensor has not been placed in an arena.")
      .def("address", &ArenaPlanner::address, "tensor"_a,
           "0 if the tensor has not been placed in an arena.")
      .def_prop_ro("arena_size", &ArenaPlanner::arena_size)
      .def_prop_ro("persistent_arena_size", &ArenaPlanner::persistent_arena_size);
}

}  // namespace

void bind_planners(nb::module_& m) {
  bind_arena(m);
  bind_graphs(m);
  bind_plans(m);
}

}  // namespace allocbench
