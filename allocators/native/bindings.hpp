// bindings.hpp: helpers for the parts of the Python modules; functions for those of _core.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace allocbench {

template <class T>
using Array = nb::ndarray<T const, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
using NumpyArray = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
std::span<T const> view(Array<T> const& array) {
  return {array.data(), array.size()};
}

// A numpy array that owns the vector's memory.
template <class T>
NumpyArray<T> to_numpy(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return NumpyArray<T>(owned->data(), {owned->size()}, owner);
}

void bind_devices(nb::module_& m);
void bind_programs(nb::module_& m);
void bind_planners(nb::module_& m);
void bind_replay(nb::module_& m);

}  // namespace allocbench
