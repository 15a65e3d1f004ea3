// native/control.cpp: what tests ask of the null GPU and tell it.
// SPDX-License-Identifier: Apache-2.0
//
// null_hold()         keeps the work of a stream from ending
// null_resize()       changes the memory of the cards
// null_outstanding()  counts what this process holds of the driver
// report=FILE         a setting: this process writes these counts to a file when it ends
//
// null_calls(), null_fail() and null_slow() are in machine.cpp, because the option `fail` uses
// them.
#include "null_gpu/native/control.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/driver_memory.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

namespace {

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
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      std::fprintf(file, "%s %llu\n", kKinds[kind], static_cast<unsigned long long>(counts[kind]));
    }
    std::fclose(file);
  }

 private:
  std::string path_;
};
Report report;

}  // namespace

void report_at_exit(std::string const& path) { report.write_to(path); }

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

// Writes eleven numbers: the allocations, the reservations, pieces and mappings of virtual memory,
// the pools and their blocks, the events and streams that exist, how often contexts are retained,
// the bytes that all of them asked for, and what was destroyed with a context.
NULL_GPU_API void null_outstanding(std::uint64_t* out) {
  for (std::uint64_t const count : outstanding()) *out++ = count;
}

// Holds a stream or releases it: see held_streams.hpp. `device` is that of a default stream.
NULL_GPU_API void null_hold(Handle stream, int device, int held) {
  Streams::get().hold(stream, device, held != 0);
}

// The bytes of each card, from now on.
NULL_GPU_API void null_resize(Size memory) { Machine::get().resize(memory); }
