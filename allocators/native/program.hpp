// program.hpp: a running program that gets its memory from an allocator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "program_memory.hpp"

namespace allocbench {

// A program exists until the process ends, because a library may allocate or free blocks after it
// has switched to another allocator. A program never waits for the GIL.
class Program {
 public:
  // `layers` are the wrappers, outermost first, and then the strategy. `limit` is in bytes and
  // holds for each GPU. `poison`: see ProgramMemory. Throws SpecError for an allocator that does
  // not exist. Does not call CUDA before the first request, so that a program can fork or choose
  // its GPUs first.
  static Program& start(std::vector<Layer> layers, std::optional<Size> limit, bool poison);

  // The memory on a GPU, created on first use. Throws SpecError if there is no such GPU and
  // DeviceError if it cannot be used.
  ProgramMemory& on(int ordinal);
  ProgramMemory* find(int ordinal) const;  // null if `on` has not created it
  void for_each(std::function<void(ProgramMemory&)> const& call) const;

 private:
  static constexpr int kMostDevices = 64;

  Program(std::vector<Layer> layers, std::optional<Size> limit, bool poison)
      : layers_(std::move(layers)), limit_(limit), poison_(poison) {}

  std::vector<Layer> layers_;
  std::optional<Size> limit_;
  bool poison_;
  std::mutex mutex_;  // of those who create a memory
  std::array<std::atomic<ProgramMemory*>, kMostDevices> memory_ = {};
};

}  // namespace allocbench
