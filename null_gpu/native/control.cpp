// native/control.cpp: what tests and the hook ask of the null GPU and tell it.
// SPDX-License-Identifier: Apache-2.0
//
// null_hold()         keeps the work of a stream from ending
// null_resize()       changes the memory of the cards
// null_calls(), null_fail(), null_slow(): counted calls, which fail or take a while
// null_outstanding()  counts what this process holds of the driver
// report=FILE         a setting: this process writes these counts to a file when it ends
//
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

namespace {

// Calls of functions by name: how many there were, and which fail on purpose.
class Calls : public Only<Calls> {
 public:
  // Counts a call; returns the error that it must return, or kSuccess. May take a while: see
  // slow().
  Status entered(char const* name) {
    double seconds = 0;
    {
      std::lock_guard const lock(mutex_);
      auto entry = functions_.find(name);  // makes no string, unlike the next line
      if (entry == functions_.end()) entry = functions_.try_emplace(name).first;
      Function& function = entry->second;
      std::uint64_t const number = ++function.calls;
      if (function.each != kSuccess) return function.each;
      auto const fails = function.fails.find(number);
      if (fails != function.fails.end()) return fails->second;
      seconds = function.seconds;
    }
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return kSuccess;
  }

  std::uint64_t count(std::string const& name) {
    std::lock_guard const lock(mutex_);
    return functions_[name].calls;
  }

  void fail(std::string const& text) {
    std::lock_guard const lock(mutex_);
    std::istringstream list(text);
    for (std::string entry; std::getline(list, entry, ',');) {
      std::istringstream parts(entry);
      std::string name, number, error;
      std::getline(parts, name, ':');
      std::getline(parts, number, ':');
      std::getline(parts, error);
      Function& function = functions_[name];
      std::uint64_t const call = std::strtoull(number.c_str(), nullptr, 10);
      Status const status = error.empty() ? kOutOfMemory : std::atoi(error.c_str());
      (call == 0 ? function.each : function.fails[function.calls + call]) = status;
    }
  }

  void fail_none() {
    std::lock_guard const lock(mutex_);
    for (auto& [name, function] : functions_) {
      function.each = kSuccess;
      function.fails.clear();
    }
  }

  void slow(std::string const& name, double seconds) {
    std::lock_guard const lock(mutex_);
    for (auto& [other, function] : functions_) function.seconds = 0;
    functions_[name].seconds = seconds;
  }

 private:
  struct Function {
    std::uint64_t calls = 0;
    Status each = kSuccess;                 // the error of every call
    std::map<std::uint64_t, Status> fails;  // the errors of calls by their numbers
    double seconds = 0;
  };

  std::mutex mutex_;
  std::map<std::string, Function, std::less<>> functions_;
};

// In the order of null_outstanding().
constexpr std::array kKinds{"segments", "reservations", "memory",   "mappings",
                            "pools",    "pooled",       "events",   "streams",
                            "contexts", "bytes",        "abandoned"};
using Outstanding = std::array<std::uint64_t, kKinds.size()>;

Outstanding outstanding() {
  auto& machine = Machine::get();
  std::uint64_t segments = 0, bytes = 0;
  for (int device = 0; device < machine.count(); ++device) {
    auto const allocations = machine.memory(device).allocations();
    segments += allocations.number;
    bytes += allocations.requested;
  }
  auto const pages = virtual_memory().counts();
  auto const pools = PoolTable::get().counts();
  auto const streams = Streams::get().counts();
  auto const& contexts = Contexts::get();
  auto const retained = static_cast<std::uint64_t>(contexts.retained());
  return {segments,       pages.reservations,  pages.pieces,
          pages.mappings, pools.pools,         pools.blocks,
          streams.events, streams.streams,     retained,
          bytes,          contexts.abandoned()};
}

// Writes the report when the library is unloaded: after everything that was registered to run at
// exit once it was loaded.
class Report {
 public:
  void write_to(std::string const& path) { path_ = path; }
  ~Report() {
    if (path_.empty() || Contexts::get().process() != getpid()) return;
    std::FILE* const file = std::fopen(path_.c_str(), "w");
    if (file == nullptr) return;
    Outstanding const counts = outstanding();
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind)
      std::fprintf(file, "%s %llu\n", kKinds[kind], static_cast<unsigned long long>(counts[kind]));
    std::fclose(file);
  }

 private:
  std::string path_;
};
Report report;

namespace fs = std::filesystem;
using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{1};

std::string content(fs::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether a thread runs or is ready to; false if it sleeps or has ended.
bool is_busy(fs::path const& thread) {
  std::string const stat = content(thread / "stat");
  auto const name_end = stat.rfind(')');  // "TID (NAME) STATE ..."
  return name_end != stat.npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'S';
}

bool any_busy(std::string_view prefix) {
  std::error_code failed;
  for (fs::directory_iterator thread("/proc/self/task", failed), end; !failed && thread != end;
       thread.increment(failed)) {
    auto const& path = thread->path();
    if (content(path / "comm").starts_with(prefix) && is_busy(path)) return true;
  }
  return false;
}

}  // namespace

Status counted(char const* function) { return Calls::get().entered(function); }
void fail_calls(std::string const& text) { Calls::get().fail(text); }
void report_at_exit(std::string const& path) { report.write_to(path); }

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

// How often this process has called a function that can fail on purpose.
NULL_GPU_API std::uint64_t null_calls(char const* function) { return Calls::get().count(function); }

// From now on, calls of functions fail as the text says (see fail_calls); none if it is empty.
NULL_GPU_API void null_fail(char const* text) {
  Calls::get().fail_none();
  fail_calls(text);
}

// From now on, each call of a function that can fail on purpose takes this long, and no call of the
// others.
NULL_GPU_API void null_slow(char const* function, double seconds) {
  Calls::get().slow(function, seconds);
}

// Writes eleven numbers: the allocations, the reservations, pieces and mappings of virtual memory,
// the pools and their blocks, the events and streams that exist, how often contexts are retained,
// the bytes that all of them asked for, and what was destroyed with a context.
NULL_GPU_API void null_outstanding(std::uint64_t* out) {
  for (std::uint64_t const count : outstanding()) *out++ = count;
}

// Holds a stream or releases it: see HeldStreams. `device` is that of a default stream.
NULL_GPU_API void null_hold(Handle stream, int device, int held) {
  Streams::get().hold(stream, device, held != 0);
}

// The bytes of each card, from now on.
NULL_GPU_API void null_resize(Size memory) { Machine::get().resize(memory); }

// Waits until every thread whose name starts with `prefix` sleeps, at most for `milliseconds`.
NULL_GPU_API void null_wait_for_threads(char const* prefix, int milliseconds) {
  auto const end = steady_clock::now() + std::chrono::milliseconds{milliseconds};
  while (any_busy(prefix) && steady_clock::now() < end) std::this_thread::sleep_for(kPause);
}
