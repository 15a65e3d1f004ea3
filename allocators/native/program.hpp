// program.hpp: a running program whose memory comes from an allocator.
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

// Programs stay until the process ends: a library may free a block, or ask for one, after it was
// told to use another allocator. They never wait for Python's lock.
class Program {
 public:
  // The wrappers around the strategy come first in `layers`; `limit` is that of each GPU. Throws
  // SpecError when there is no driver or no such allocator.
  static Program& start(std::vector<Layer> layers, std::optional<Size> limit, bool poison);

  // The memory on a GPU, made when it is first asked for. Throws SpecError and DeviceError.
  ProgramMemory& on(int ordinal);
  ProgramMemory* made_on(int ordinal) const;  // or null
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
