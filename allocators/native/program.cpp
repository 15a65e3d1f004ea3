// program.cpp: a running program that gets its memory from an allocator.
// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "devices/simulated.hpp"

namespace allocbench {
namespace {

std::vector<Program const*>& started_programs() {
  static auto* const all = new std::vector<Program const*>;
  return *all;
}

// Throws SpecError for an allocator that no device can run. Uses no GPU, because the program has
// not chosen one yet.
void check(std::vector<Layer> const& layers, std::optional<Size> limit) {
  SimulatedDevice device(limit.value_or(Size{1} << 40), SimulatedDevice::kDefaultAlignment, {}, {});
  try {
    make(layers, device);
  } catch (Unavailable const&) {
    // Reported when the GPU is opened.
  }
}

// Nobody can catch an exception at exit, so a broken rule is shown.
void close_all() {
  for (Program const* program : started_programs())
    program->for_each([](ProgramMemory& memory) {
      try {
        memory.close();
      } catch (InvariantViolation const& violation) {
        std::fprintf(stderr, "allocbench: %s\n", violation.what());
      }
    });
}

// Closes all memories at exit. Exit functions run in reverse order of registration, and events must
// be destroyed before the devices close, so this must be called after the first device is opened.
void close_at_exit() {
  static bool const registered = std::atexit(close_all) == 0;
  if (!registered) throw DeviceError("the program cannot register another function to run at exit");
}

}  // namespace

Program& Program::start(std::vector<Layer> layers, std::optional<Size> limit, bool poison) {
  check(layers, limit);
  std::unique_ptr<Program> program(new Program(std::move(layers), limit, poison));
  started_programs().push_back(program.get());
  return *program.release();  // never deleted: see Program in program.hpp
}

ProgramMemory& Program::on(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices)
    throw SpecError("there is no CUDA device " + std::to_string(ordinal));
  if (ProgramMemory* const memory = find(ordinal)) return *memory;
  std::scoped_lock const guard(mutex_);
  auto& memory = memory_[static_cast<std::size_t>(ordinal)];
  if (memory == nullptr) {
    memory = new ProgramMemory(layers_, ordinal, limit_, poison_);
    close_at_exit();
  }
  return *memory;
}

ProgramMemory* Program::find(int ordinal) const {
  if (ordinal < 0 || ordinal >= kMostDevices) return nullptr;
  return memory_[static_cast<std::size_t>(ordinal)];
}

void Program::for_each(std::function<void(ProgramMemory&)> const& call) const {
  for (int ordinal = 0; ordinal < kMostDevices; ++ordinal)
    if (ProgramMemory* const memory = find(ordinal)) call(*memory);
}

}  // namespace allocbench
