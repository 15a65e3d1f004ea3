// null_gpu/machine.cpp: see machine.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

namespace allocbench::null_gpu {

namespace {

thread_local int device_of_thread = 0;
thread_local Status error_of_thread = kSuccess;

Settings& told() {
  static Settings settings;
  return settings;
}

template <class Number>
std::function<void(Settings&, std::string const&)> number(Number Settings::* member) {
  return [member](Settings& settings, std::string const& text) {
    settings.*member = static_cast<Number>(std::strtoull(text.c_str(), nullptr, 10));
  };
}

std::map<std::string, std::function<void(Settings&, std::string const&)>> const& setters() {
  static std::map<std::string, std::function<void(Settings&, std::string const&)>> const made{
      {"name", [](Settings& settings, std::string const& text) { settings.name = text; }},
      {"usage", [](Settings& settings, std::string const& text) { settings.usage = text; }},
      {"compute_capability", number(&Settings::compute_capability)},
      {"multiprocessors", number(&Settings::multiprocessors)},
      {"shared_per_multiprocessor", number(&Settings::shared_per_multiprocessor)},
      {"shared_per_block", number(&Settings::shared_per_block)},
      {"threads_per_multiprocessor", number(&Settings::threads_per_multiprocessor)},
      {"blocks_per_multiprocessor", number(&Settings::blocks_per_multiprocessor)},
      {"l2_bytes", number(&Settings::l2_bytes)},
      {"bus_bits", number(&Settings::bus_bits)},
      {"clock_khz", number(&Settings::clock_khz)},
      {"memory_clock_khz", number(&Settings::memory_clock_khz)},
      {"memory", number(&Settings::memory)},
      {"context", number(&Settings::context)},
      {"count", number(&Settings::count)},
      {"cuda_version", number(&Settings::cuda_version)},
      {"cudnn_version", number(&Settings::cudnn_version)},
      {"nccl_version", number(&Settings::nccl_version)},
      {"convolution_workspace", number(&Settings::convolution_workspace)},
      {"addresses_ascend", number(&Settings::addresses_ascend)},
      {"convolution_copies", number(&Settings::convolution_copies)},
  };
  return made;
}

// The cards that CUDA_VISIBLE_DEVICES leaves: those before the first entry that names no card.
std::vector<int> visible(int count) {
  std::vector<int> cards;
  char const* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int card = 0; card < count; ++card) cards.push_back(card);
    return cards;
  }
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    char* end = nullptr;
    long const card = std::strtol(entry.c_str(), &end, 10);
    bool const valid = end != entry.c_str() && card >= 0 && card < count;
    if (!valid || std::ranges::find(cards, card) != cards.end()) break;
    cards.push_back(static_cast<int>(card));
  }
  return cards;
}

}  // namespace

Machine::Machine(Settings settings)
    : settings_(std::move(settings)),
      usage_(settings_.usage),
      cards_(visible(std::min(settings_.count, kMostDevices))) {
  for (int device = 0; device < static_cast<int>(cards_.size()); ++device) {
    devices_.push_back(std::make_unique<DeviceMemory>(device, cards_[device], settings_.memory,
                                                      settings_.context,
                                                      settings_.addresses_ascend != 0, usage_));
  }
}

Machine& Machine::get() {
  static Machine* machine = new Machine(told());  // threads may call until the process is gone
  return *machine;
}

int Machine::device_of(void const* address) const {
  auto const number = reinterpret_cast<Address>(address);
  if (number < kFirstAddress) return -1;
  Address const device = (number - kFirstAddress) / kAddressesPerDevice;
  return device < devices_.size() ? static_cast<int>(device) : -1;
}

Handle Machine::new_handle() { return reinterpret_cast<Handle>(handle_ += 16); }

int Machine::kernel_version() const {
  int const card = settings_.compute_capability;
  int best = card;
  for (int built : {70, 75, 80, 86, 90, 100, 120}) {
    if (built / 10 == card / 10 && built <= card) best = built;
  }
  return best;
}

int Machine::blocks_at_once(int threads, Size shared) const {
  constexpr int kWarp = 32, kRegisterFile = 65536, kSharedOfSystem = 1024;
  int const rounded = std::max(1, (threads + kWarp - 1) / kWarp) * kWarp;
  int blocks =
      std::min(settings_.threads_per_multiprocessor / rounded, settings_.blocks_per_multiprocessor);
  blocks = std::min(blocks, kRegisterFile / (kRegisters * rounded));
  if (shared != 0) {
    auto const room = static_cast<Size>(settings_.shared_per_multiprocessor);
    blocks = std::min(blocks, static_cast<int>(room / (shared + kSharedOfSystem)));
  }
  return std::max(blocks, 1);
}

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }
DeviceMemory& current_memory() { return Machine::get().memory(current_device()); }

Status failed(Status status) {
  if (status != kSuccess) error_of_thread = status;
  return status;
}
Status take_last_error() { return std::exchange(error_of_thread, kSuccess); }
Status last_error() { return error_of_thread; }

}  // namespace allocbench::null_gpu

// Lines of `key=value`, before the first call of CUDA. Returns how many were understood.
NULL_GPU_API int null_configure(char const* text) {
  using namespace allocbench::null_gpu;
  int understood = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto const equals = line.find('=');
    auto const found = setters().find(line.substr(0, equals));
    if (equals == std::string::npos || found == setters().end()) continue;
    found->second(told(), line.substr(equals + 1));
    ++understood;
  }
  return understood;
}

// What device 0 has seen: capacity, bytes in use, their peak, calls for memory, those refused,
// kernels.
NULL_GPU_API void null_counters(std::uint64_t* out) {
  using namespace allocbench::null_gpu;
  auto& machine = Machine::get();
  if (machine.count() == 0) return;
  auto const seen = machine.memory(0).seen();
  out[0] = seen.capacity;
  out[1] = seen.used;
  out[2] = seen.peak;
  out[3] = seen.requests;
  out[4] = seen.refused;
  out[5] = machine.kernels;
}
