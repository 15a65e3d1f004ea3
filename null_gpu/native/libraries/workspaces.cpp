// native/libraries/workspaces.cpp: see workspaces.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/libraries/workspaces.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

namespace {

constexpr auto kRules = static_cast<Size>(Rule::kCount);
constexpr std::array<std::string_view, kRules> kNames{
    "convolution_workspace", "graph_workspace",      "rnn_workspace",      "rnn_reserve",
    "dropout_states",        "batch_norm_workspace", "ctc_loss_workspace", "solver_workspace",
    "sparse_workspace",      "fft_workspace",
};

struct Seen : Only<Seen> {
  std::mutex mutex;
  std::vector<WorkspaceUse> uses;
  std::array<std::uint64_t, kRules> without{};  // requests that were answered with 0 bytes
  Size most = 0;                                // bytes that one of these may ask for elsewhere
  std::uint64_t forgone = 0;                    // convolutions that did without their workspace
};

std::array<Assumption, kRules>& assumptions() {
  static std::array<Assumption, kRules> made;
  return made;
}

void add(Rule rule, Address address, Size bytes) {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  auto const time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  int const device = address == 0
                         ? current_device()
                         : Machine::get().device_of(reinterpret_cast<void const*>(address));
  std::lock_guard const lock(Seen::get().mutex);
  Seen::get().uses.push_back(
      {address, bytes, static_cast<std::uint64_t>(time), device, static_cast<int>(rule)});
}

}  // namespace

Assumption const& assumption(Rule rule) { return assumptions()[static_cast<Size>(rule)]; }

bool assume(std::string const& rule, std::string const& text) {
  auto const found = std::ranges::find(kNames, rule);
  if (found == kNames.end()) return false;
  char* end = nullptr;
  Size const bytes = std::strtoull(text.c_str(), &end, 10);
  bool const is_bytes = end != text.c_str() && *end == '\0';
  assumptions()[static_cast<Size>(found - kNames.begin())] = {is_bytes, is_bytes ? bytes : 0, text};
  return true;
}

Size asked(Rule rule, Size bytes) {
  bytes == 0 ? used_none(rule) : add(rule, 0, bytes);
  return bytes;
}

void used(Rule rule, void const* address, Size bytes) {
  if (address == nullptr || bytes == 0) return used_none(rule);
  add(rule, reinterpret_cast<Address>(address), bytes);
}

void used_none(Rule rule) {
  std::lock_guard const lock(Seen::get().mutex);
  ++Seen::get().without[static_cast<Size>(rule)];
}

void forgone() {
  std::lock_guard const lock(Seen::get().mutex);
  ++Seen::get().forgone;
}

void may_ask(Size bytes) {
  std::lock_guard const lock(Seen::get().mutex);
  Seen::get().most = std::max(Seen::get().most, bytes);
}

}  // namespace allocbench::null_gpu

// The names of the rules, with a space after each, in the order of their numbers.
NULL_GPU_API char const* null_workspace_rules() {
  using namespace allocbench::null_gpu;
  static std::string const names = [] {
    std::string made;
    for (auto const name : kNames) made += std::string(name) + ' ';
    return made;
  }();
  return names.c_str();
}

// How many requests of each rule were answered with 0 bytes.
NULL_GPU_API void null_workspaces_unknown(std::uint64_t* out) {
  using namespace allocbench::null_gpu;
  std::lock_guard const lock(Seen::get().mutex);
  std::ranges::copy(Seen::get().without, out);
}

// The bytes of the largest workspace that a request answered with 0 bytes may have.
NULL_GPU_API std::uint64_t null_workspace_bound() {
  using namespace allocbench::null_gpu;
  std::lock_guard const lock(Seen::get().mutex);
  return Seen::get().most;
}

// How many convolutions did without their workspace.
NULL_GPU_API std::uint64_t null_workspaces_forgone() {
  using namespace allocbench::null_gpu;
  std::lock_guard const lock(Seen::get().mutex);
  return Seen::get().forgone;
}

// Write the workspaces that were allocated so far, at most `count`; returns how many there are.
NULL_GPU_API std::uint64_t null_workspaces(allocbench::null_gpu::WorkspaceUse* out,
                                           std::uint64_t count) {
  using namespace allocbench::null_gpu;
  std::lock_guard const lock(Seen::get().mutex);
  auto const& uses = Seen::get().uses;
  std::copy_n(uses.begin(), std::min<Size>(count, uses.size()), out);
  return uses.size();
}
