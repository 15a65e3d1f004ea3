// native/memory.cpp: what libraries hold outside of PyTorch, and the virtual memory of this
// process. SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/memory.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <filesystem>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

namespace {

constexpr char kAllocator[] = "libc10_cuda.so";

struct HeldOutside : Only<HeldOutside> {
  struct Block {
    int device;
    std::string library;
    Size size;
  };
  struct Held {
    std::map<std::string, Size> now, at_peak;  // bytes by library
    Size total = 0, peak = 0;
  };
  std::mutex mutex;
  std::unordered_map<Address, Block> blocks;
  std::array<Held, kMostDevices> of_device;
};

}  // namespace

std::string const& library_at(void const* code) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<void const*, std::string>;
  std::lock_guard const lock(mutex);
  auto const [entry, is_new] = known.try_emplace(code);
  Dl_info info;
  if (is_new && dladdr(code, &info) != 0 && info.dli_fname != nullptr)
    entry->second = std::filesystem::path(info.dli_fname).filename();
  return entry->second;
}

void allocated_outside(int device, Address address, Size size) {
  void* frames[16];
  int const count = backtrace(frames, 16);
  std::string const& own = library_at(frames[0]);
  std::string library;
  for (int frame = 0; frame < count; ++frame) {
    std::string const& found = library_at(frames[frame]);
    if (found == kAllocator) return;
    if (library.empty() && found != own) library = found;
  }
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  auto& held = all.of_device[device];
  held.now[library] += size;
  held.total += size;
  if (held.total > held.peak) {
    held.peak = held.total;
    held.at_peak = held.now;
  }
  all.blocks[address] = {device, library, size};
}

void released_outside(Address address) {
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  auto const found = all.blocks.find(address);
  if (found == all.blocks.end()) return;
  auto const& [device, library, size] = found->second;
  all.of_device[device].now[library] -= size;
  all.of_device[device].total -= size;
  all.blocks.erase(found);
}

VirtualMemory& virtual_memory() {
  static auto* instance =
      new VirtualMemory([](int device, Size size) { Machine::get().memory(device).give(size); });
  return *instance;
}

}  // namespace allocbench::null_gpu

// What libraries held outside of PyTorch when it was most, on the device where it was most: for
// each library, its bytes, a space and its name in a line. The text is valid until the next call.
NULL_GPU_API char const* null_outside() {
  using namespace allocbench::null_gpu;
  static std::string text;
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  text.clear();
  auto const& most = *std::ranges::max_element(all.of_device, {}, &HeldOutside::Held::peak);
  for (auto const& [library, bytes] : most.at_peak)
    if (bytes != 0) text += std::to_string(bytes) + ' ' + library + '\n';
  return text.c_str();
}
