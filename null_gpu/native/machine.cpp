// native/machine.cpp: the cards of the null machine, and the state of each thread.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/machine.hpp"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"

namespace allocbench::null_gpu {

namespace {

thread_local int device_of_thread = 0;
thread_local std::optional<bool> in_context;  // empty: this thread has not chosen one
thread_local Status error_of_thread = kSuccess;

// Sets what a line names; false if there is no such setting.
bool set(Settings& settings, std::string const& key, std::string const& text) {
#define NULL_GPU_SET(type, name, value) \
  if (key == #name)                     \
    return settings.name = static_cast<type>(std::strtoull(text.c_str(), nullptr, 10)), true;
  NULL_GPU_NUMBERS(NULL_GPU_SET)
#undef NULL_GPU_SET
  if (key == "name") return settings.name = text, true;
  if (key == "usage") return settings.usage = text, true;
  if (key == "fail") return fail_calls(text), true;
  if (key == "report") return report_at_exit(text), true;
  return assume(key, text);
}

// Returns the number of lines with a known key.
int configure(Settings& settings, char const* text) {
  int accepted = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto const equals = line.find('=');
    if (equals == std::string::npos) continue;
    accepted += set(settings, line.substr(0, equals), line.substr(equals + 1));
  }
  return accepted;
}

// The settings of null_configure(), and those in the environment of a process that finds the driver
// by its name: lines in ALLOCBENCH_NULL_DRIVER, of the same form.
Settings& configured() {
  static Settings& settings = *[] {
    auto* const made = new Settings;
    if (char const* const text = std::getenv("ALLOCBENCH_NULL_DRIVER")) configure(*made, text);
    return made;
  }();
  return settings;
}

// The cards that CUDA_VISIBLE_DEVICES lists, up to the first entry that is not the number of a card
// or repeats one; all cards if the variable is not set.
std::vector<int> visible_cards(int count) {
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
      cards_(visible_cards(std::min(settings_.count, kMostDevices))) {
  for (int device = 0; device < static_cast<int>(cards_.size()); ++device) {
    devices_.push_back(std::make_unique<DeviceMemory>(device, cards_[device], settings_.memory,
                                                      settings_.context,
                                                      settings_.addresses_ascend != 0, usage_));
  }
}

Machine& Machine::get() {
  // Never deleted, because threads may call until the process ends.
  static Machine* machine = new Machine(configured());
  return *machine;
}

void Machine::resize(Size memory) {
  settings_.memory = memory;
  for (auto& device : devices_) device->resize(memory);
}

int Machine::device_of(void const* address) const {
  auto const number = reinterpret_cast<Address>(address);
  if (number < kFirstAddress) return -1;
  Address const device = (number - kFirstAddress) / kAddressesPerDevice;
  return device < devices_.size() ? static_cast<int>(device) : -1;
}

Handle Machine::new_handle() {
  Address const first = handle_ += kHandleAlignment * kMostDevices;
  return reinterpret_cast<Handle>(first + kHandleAlignment * current_device());
}

int Machine::kernel_version() const {
  int const lowest = settings_.cuda_version >= 13000 ? 75 : 50;  // of builds for this CUDA
  int const capability = std::max(settings_.compute_capability, lowest);
  int best = capability;
  for (int built : {70, 75, 80, 86, 90, 100, 120})
    if (built / 10 == capability / 10 && built <= capability) best = built;
  return best;
}

int Machine::blocks_at_once(int threads, Size shared) const {
  constexpr int kWarp = 32, kRegisterFile = 65536, kSystemShared = 1024;
  int const rounded = std::max(1, (threads + kWarp - 1) / kWarp) * kWarp;
  int blocks =
      std::min(settings_.threads_per_multiprocessor / rounded, settings_.blocks_per_multiprocessor);
  blocks = std::min(blocks, kRegisterFile / (kRegisters * rounded));
  if (shared != 0) {
    auto const available = static_cast<Size>(settings_.shared_per_multiprocessor);
    blocks = std::min(blocks, static_cast<int>(available / (shared + kSystemShared)));
  }
  return std::max(blocks, 1);
}

int current_device() { return device_of_thread; }
void set_current_device(int device) {
  device_of_thread = device;
  in_context = true;
}
bool has_context() { return in_context ? *in_context : Contexts::get().uses_runtime(); }
void leave_context() {
  device_of_thread = 0;
  in_context = false;
}
int device_of(Handle handle) {
  auto const number = reinterpret_cast<Address>(handle);
  if (number < kFirstHandle) return current_device();
  return static_cast<int>(number / kHandleAlignment % kMostDevices);
}
DeviceMemory& current_memory() { return Machine::get().memory(current_device()); }

Status entered(char const* function) {
  configured();  // says which calls fail
  return counted(function);
}
Status failed(Status status) {
  if (status != kSuccess) error_of_thread = status;
  return status;
}
Status take_last_error() { return std::exchange(error_of_thread, kSuccess); }
Status last_error() { return error_of_thread; }

}  // namespace allocbench::null_gpu

// Takes lines of `key=value`; must be called before the first CUDA function. Returns the number of
// lines with a known key.
NULL_GPU_API int null_configure(char const* text) {
  using namespace allocbench::null_gpu;
  return configure(configured(), text);
}

// Writes six numbers about device 0: its capacity, the bytes in use and their peak, the requests
// for memory, the refused requests, and the kernels that were launched.
NULL_GPU_API void null_counters(std::uint64_t* out) {
  using namespace allocbench::null_gpu;
  auto& machine = Machine::get();
  if (machine.count() == 0) return;
  auto const counters = machine.memory(0).counters();
  out[0] = counters.capacity;
  out[1] = counters.used;
  out[2] = counters.peak;
  out[3] = counters.requests;
  out[4] = counters.refused;
  out[5] = machine.kernels;
}
