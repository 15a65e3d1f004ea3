// program.cpp: a running program that gets its memory from an allocator.
// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "devices/simulated.hpp"

namespace allocbench {
namespace {

std::vector<Program const*>& started() {
  static auto* const all = new std::vector<Program const*>;
  return *all;
}

// Throws SpecError for an allocator that no device can run. Touches no GPU, because the program
// might not use the first one.
void check(std::vector<Layer> const& layers, std::optional<Size> limit) {
  SimulatedDevice device(limit.value_or(Size{1} << 40), SimulatedDevice::kDefaultAlignment, {}, {});
  try {
    make(layers, device);
  } catch (Unavailable const&) {
    // Reported when the GPU is opened.
  }
}

// Events go before the devices close, and both before the driver: what is registered later runs
// earlier. So this is called after the first device was opened.
void close_at_exit() {
  static bool const registered = std::atexit([] {
                                   for (Program const* each : started())
                                     each->for_each([](ProgramMemory& memory) { memory.close(); });
                                 }) == 0;
  if (!registered) throw DeviceError("no more functions can be registered to run at exit");
}

}  // namespace

Program& Program::start(std::vector<Layer> layers, std::optional<Size> limit, bool poison) {
  check(layers, limit);
  std::unique_ptr<Program> program(new Program(std::move(layers), limit, poison));
  started().push_back(program.get());
  return *program.release();  // never deleted: see Program in program.hpp
}

ProgramMemory& Program::on(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices)
    throw SpecError("there is no CUDA device " + std::to_string(ordinal));
  std::scoped_lock const guard(mutex_);
  auto& memory = memory_[static_cast<std::size_t>(ordinal)];
  if (!memory) {
    memory = std::make_unique<ProgramMemory>(layers_, ordinal, limit_, poison_);
    close_at_exit();
  }
  return *memory;
}

ProgramMemory* Program::made_on(int ordinal) const {
  if (ordinal < 0 || ordinal >= kMostDevices) return nullptr;
  std::scoped_lock const guard(mutex_);
  return memory_[static_cast<std::size_t>(ordinal)].get();
}

void Program::for_each(std::function<void(ProgramMemory&)> const& call) const {
  for (int ordinal = 0; ordinal < kMostDevices; ++ordinal)
    if (ProgramMemory* const memory = made_on(ordinal)) call(*memory);
}

}  // namespace allocbench
