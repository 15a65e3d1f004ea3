// pytorch_bindings.cpp: the rules of PyTorch's allocator, which readers and writers of its memory
// snapshots apply.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bindings.hpp"
#include "core/errors.hpp"
#include "pytorch/settings.hpp"

namespace allocbench {
namespace {

// Raises ValueError, because the exception of SpecErrors belongs to the other native module.
PytorchSettings read(std::map<std::string, std::string> options) {
  try {
    return PytorchSettings::read(Options("caching", PytorchSettings::options, std::move(options)),
                                 [] { return Size{0}; });
  } catch (SpecError const& error) {
    throw nb::value_error(error.what());
  }
}

}  // namespace

void bind_pytorch(nb::module_& m) {
  nb::class_<PytorchRules>(m, "PytorchRules", "What a version of PyTorch's allocator does.")
      .def_static(
          "of", [](std::string_view version) { return PytorchRules::of(version); }, "version"_a,
          "Those of a version such as 2.9.1+cu128, or of the newest known one for later versions; "
          "None for versions before 2.1 and for other texts.")
      .def(nb::init(), "Those that hold if no version is given.")
      .def_static("sets", &PytorchRules::sets,
                  "Those that differ, the oldest first: of the default version, or of the newest "
                  "one with the same rules.")
      .def_prop_ro("version", &PytorchRules::version, "for example 2.9")
      .def_prop_ro("since", &PytorchRules::since, "the oldest version with these rules")
      .def_prop_ro(
          "is_default", [](PytorchRules const& rules) { return rules.same_as({}); },
          "whether those of the default version are the same")
      .def_ro("variable", &PytorchRules::variable, "where PyTorch reads its settings")
      .def_prop_ro("lasting", &PytorchRules::lasting,
                   "The settings that stay when a program has PyTorch read others that do not name "
                   "them, and the values that restore their defaults; \"\" where there is none.")
      .def_ro("allocates_from_pools", &PytorchRules::allocates_from_pools,
              "whether a MemPool's own allocator is used with expandable_segments, too")
      .def_ro("names_pools", &PytorchRules::names_pools,
              "whether each event of a memory snapshot has the pool of its block");
  nb::class_<PytorchSettings>(m, "PytorchSettings", "Settings of PyTorch's allocator.")
      .def(
          "__init__",
          [](PytorchSettings* place, std::map<std::string, std::string> options) {
            new (place) PytorchSettings(read(std::move(options)));
          },
          "options"_a,
          "Those of options of `caching`. Raises ValueError for a value that is out of range.")
      .def("rounded", &PytorchSettings::rounded, "requested"_a,
           "Bytes allocated to a request, without the rest of a block that is not split.")
      .def_ro("large_segment", &PytorchSettings::large_segment,
              "bytes of a segment for requests below 10 MiB, or of an expandable page for all")
      .def_prop_ro(
          "max_split",
          [](PytorchSettings const& settings) {
            bool const limited = settings.max_split != PytorchSettings::kNoLimit;
            return limited ? std::optional(settings.max_split) : std::nullopt;
          },
          "bytes; None: no limit")
      .def_ro("collection_threshold", &PytorchSettings::collection_threshold, "0: never")
      .def_ro("expandable", &PytorchSettings::expandable, "whether new segments are expandable")
      .def_ro("divisions", &PytorchSettings::divisions,
              "steps between powers of two, by the power of two of a size in MiB; 0: none");
  m.attr("SMALL_REQUEST") = PytorchSettings::kSmall;
  m.attr("SMALL_SEGMENT") = PytorchSettings::kSmallSegment;
  m.attr("WITHOUT_POOLS") = PytorchRules{PytorchRules::kWithoutPools}.version();
  m.attr("WITHOUT_SETTINGS") = PytorchRules{PytorchRules::kWithoutSettings}.version();
  m.def("split_conf", &split_conf, "conf"_a,
        "The settings in a value of PYTORCH_ALLOC_CONF, as it writes them, in order; for an item "
        "without a colon, the item and an empty value.");
}

}  // namespace allocbench
