// device_bindings.cpp: the devices, for Python.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "devices/cuda.hpp"
#include "devices/simulated.hpp"

namespace allocbench {
namespace {

// The seconds of each successful call, in order.
struct CallCosts {
  std::vector<double> malloc;
  std::vector<double> free;
  std::vector<double> map;  // of one page
  std::vector<double> unmap;
};

// Makes each call `repeats` times with one size in bytes. Nothing else may use the device at the
// same time. Pages are mapped only if the size is a multiple of the device's granularity.
CallCosts measure_calls(Device& device, Size size, std::size_t repeats) {
  CallCosts costs;
  auto const timed = [&](std::vector<double>& seconds, auto call) {
    double const before = device.stats().seconds;
    auto const result = call();
    if (result) seconds.push_back(device.stats().seconds - before);
    return result;
  };
  for (std::size_t n = 0; n < repeats; ++n) {
    Address const segment = timed(costs.malloc, [&] { return device.allocate(size, &costs); });
    if (segment == 0) return costs;
    timed(costs.free, [&] {
      device.free(segment);
      return true;
    });
  }
  if (size % device.granularity() != 0) return costs;
  Address const reservation = device.reserve(size, &costs);
  for (std::size_t n = 0; n < repeats && reservation != 0; ++n) {
    if (!timed(costs.map, [&] { return device.map(reservation, size, size); })) break;
    timed(costs.unmap, [&] {
      device.unmap(reservation, size, size);
      return true;
    });
  }
  if (reservation != 0) device.unreserve(reservation);
  return costs;
}

}  // namespace

void bind_devices(nb::module_& m) {
  nb::class_<Device>(m, "Device", "The source of an allocator's segments. Sizes are in bytes.")
      .def_prop_ro("capacity", &Device::stated_capacity, "bytes")
      .def_prop_ro(
          "same_answers",
          [](Device const& device) {
            auto const [from, below] = device.same_answers();
            return std::pair(from, below);
          },
          "from which capacity to below which one everything asked so far has the same answers")
      .def_prop_ro("reserved", &Device::reserved, "bytes in segments, mapped pages and pools")
      .def_prop_ro("simulated", &Device::simulated)
      .def_prop_ro("cost_source", &Device::cost_source, "the origin of the costs in seconds")
      .def_prop_ro(
          "has_driver_pools",
          [](Device const& device) {
            auto const* pools = dynamic_cast<PoolDevice const*>(&device);
            return pools != nullptr && pools->has_driver_pools();
          },
          "has stream-ordered memory pools of the driver")
      .def(
          "close",
          [](Device& device) {
            std::size_t const left = device.close();
            if (left == 0) return;
            throw DeviceError(std::to_string(left) + " segments, pages or pools of " +
                              human_bytes(device.reserved()) + " could not be freed: " +
                              device.take_failure().value_or("unknown reason"));
          },
          "Frees everything that allocators hold and refuses all later requests. Raises "
          "DeviceError if anything cannot be freed.")
      .def("stats", &Device::stats);
  nb::class_<CudaDevice, Device>(m, "CudaDevice", "The memory of an NVIDIA GPU.")
      .def(nb::init<int, std::optional<Size>>(), "ordinal"_a = 0, "limit"_a = nb::none(),
           "`limit`: the most bytes to reserve. Raises SpecError or DeviceError.")
      .def_prop_ro("ordinal", &CudaDevice::ordinal)
      .def_prop_ro("name", &CudaDevice::name, "of the GPU")
      .def_prop_ro("total", &CudaDevice::total, "bytes of the GPU")
      .def_prop_ro("uuid", &CudaDevice::uuid, "of the GPU, as printed by nvidia-smi")
      .def_prop_ro("driver_version", &CudaDevice::driver_version, "12040 for CUDA 12.4")
      .def_prop_ro(
          "free_bytes",
          [](CudaDevice& device) {
            if (auto const free = device.free_bytes()) return *free;
            throw DeviceError(
                device.take_failure().value_or("the device was opened by another process"));
          },
          "Free bytes of the whole GPU, with the memory of all processes counted. Raises "
          "DeviceError.")
      .def("synchronize", nb::overload_cast<>(&CudaDevice::synchronize),
           "Waits until all work on the GPU has finished.");
  m.def(
      "measure_calls",
      [](Device& device, Size size, std::size_t repeats) {
        CallCosts costs;
        {
          nb::gil_scoped_release release;
          costs = measure_calls(device, size, repeats);
        }
        return std::map<std::string, std::vector<double>>{{"malloc", std::move(costs.malloc)},
                                                          {"free", std::move(costs.free)},
                                                          {"map", std::move(costs.map)},
                                                          {"unmap", std::move(costs.unmap)}};
      },
      "device"_a, "size"_a, "repeats"_a,
      "Makes each device call `repeats` times with `size` bytes. Returns the seconds of each call, "
      "by the name of the call.");
  m.def(
      "cuda_devices", [] { return cuda::Driver::get().devices; },
      "The number of GPUs that the driver reports. Raises SpecError if there is no driver.");
  nb::class_<SimulatedDevice, Device>(m, "SimulatedDevice",
                                      "A GPU's memory as a model: capacity, addresses and costs.")
      .def(
          "__init__",
          [](SimulatedDevice* self, Size capacity, Size alignment, bool up, std::string source,
             CostCurve malloc, CostCurve free, CostCurve map, CostCurve unmap,
             CostCurve pool_malloc, CostCurve pool_free, CostCurve pool_grow, CostCurve pool_shrink,
             std::uint64_t fail_call, std::optional<Size> fail_above, double fail_rate,
             std::uint64_t seed, Size page) {
            Faults faults{.fail_call = fail_call, .fail_rate = fail_rate, .seed = seed};
            if (fail_above) faults.fail_above = *fail_above;
            CostModel costs{std::move(source),
                            {std::move(malloc), std::move(free), std::move(map), std::move(unmap),
                             std::move(pool_malloc), std::move(pool_free), std::move(pool_grow),
                             std::move(pool_shrink)}};
            auto const order = up ? AddressOrder::kUp : AddressOrder::kDown;
            new (self) SimulatedDevice(capacity, alignment, std::move(costs), faults, order, page);
          },
          "capacity"_a, nb::kw_only(), "alignment"_a = SimulatedDevice::kDefaultAlignment,
          "up"_a = false, "source"_a = "none", "malloc"_a = CostCurve{}, "free"_a = CostCurve{},
          "map"_a = CostCurve{}, "unmap"_a = CostCurve{}, "pool_malloc"_a = CostCurve{},
          "pool_free"_a = CostCurve{}, "pool_grow"_a = CostCurve{}, "pool_shrink"_a = CostCurve{},
          "fail_call"_a = 0, "fail_above"_a = nb::none(), "fail_rate"_a = 0.0, "seed"_a = 0,
          "page"_a = 0,
          "Sizes are in bytes. `malloc` to `pool_shrink`: points (bytes, seconds) of the cost of "
          "each call, and of each page that a pool grows or shrinks by. `fail_*`: which mallocs "
          "and maps to refuse. `page`: the page size of segments; 0: they are not rounded. Raises "
          "SpecError.");
  nb::class_<RecordedDevice, SimulatedDevice>(
      m, "RecordedDevice", "A simulated device that repeats the answers of a recorded device.")
      .def(
          "__init__",
          [](RecordedDevice* self, Size capacity, Array<std::uint8_t> kind,
             Array<std::uint64_t> address, Array<std::uint64_t> size) {
            std::vector<Device::Call> calls;
            for (std::size_t call = 0; call < kind.size(); ++call)
              calls.push_back({static_cast<Device::CallKind>(view(kind)[call]), false,
                               view(address)[call], view(size)[call], 0});
            new (self) RecordedDevice(capacity, std::move(calls));
          },
          "capacity"_a, "kind"_a, "address"_a, "size"_a,
          "`kind`, `address`, `size`: the successful calls of the recording, in order. A kind is 0 "
          "for malloc, 1 for free, 2 for map and 3 for unmap.");
}

}  // namespace allocbench
