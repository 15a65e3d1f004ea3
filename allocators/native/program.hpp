// program.hpp: a running program that gets its memory from an allocator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "program_memory.hpp"

namespace allocbench {

// A program stays until the process ends, because a library may allocate or free a block after it
// has been told to use another allocator. Programs never wait for the GIL.
class Program {
 public:
  // The wrappers around the strategy come first in `layers`; `limit` is that of each GPU. Throws
  // SpecError when there is no such allocator. Nothing of CUDA is called before memory is asked
  // for: a program may first fork, or choose among its GPUs.
  static Program& start(std::vector<Layer> layers, std::optional<Size> limit, bool poison);

  // The memory on a GPU, created on first use. Throws SpecError and DeviceError.
  ProgramMemory& on(int ordinal);
  ProgramMemory* made_on(int ordinal) const;  // null if not created yet
  void for_each(std::function<void(ProgramMemory&)> const& call) const;

 private:
  static constexpr int kMostDevices = 64;

  Program(std::vector<Layer> layers, std::optional<Size> limit, bool poison)
      : layers_(std::move(layers)), limit_(limit), poison_(poison) {}

  std::vector<Layer> layers_;
  std::optional<Size> limit_;
  bool poison_;
  mutable std::mutex mutex_;
  std::array<std::unique_ptr<ProgramMemory>, kMostDevices> memory_;
};

}  // namespace allocbench
