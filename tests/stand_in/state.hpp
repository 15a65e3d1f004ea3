// tests/stand_in/state.hpp: the state of a stand-in for libcuda.so.1, for machines without a GPU.
// SPDX-License-Identifier: Apache-2.0
//
// Simulates two GPUs in host memory: addresses are real and can be written to. It counts outstanding
// resources, refuses requests beyond the capacity, and fails calls on demand. Streams can be told to
// hold back their work. Misuse (freeing memory that is not held, unmapping half a page, a call
// without a context or after the driver is gone) is an error, as with the real driver.
//
// STAND_IN_CAPACITY  bytes of each GPU (default 1 GiB)
// STAND_IN_FAIL      "cuMemAlloc_v2:3:700": the third call gives error 700
// STAND_IN_REPORT    a file for the outstanding resources when the process ends

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in {

constexpr int kDevices = 2;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoContext = 201;
constexpr int kNotReady = 600;
constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kPoolStep = std::size_t{32} << 20;

inline std::size_t up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

struct Pool {
  int device;
  std::uint64_t threshold = 0;
  std::size_t reserved = 0, used = 0;
};
struct Made {
  int device;
  std::size_t size;
  int mappings = 0;
  bool released = false;
};
struct Mapping {
  std::size_t size;
  unsigned long long memory;
  bool accessible = false;
};
struct Event {
  void* stream = nullptr;
  std::uint64_t work = 0;
};

struct Driver {
  std::recursive_mutex mutex;
  bool initialised = false;
  pid_t process = 0;
  std::size_t capacity = std::size_t{1} << 30;
  std::size_t used[kDevices] = {};
  int retained[kDevices] = {};
  std::map<unsigned long long, std::pair<std::size_t, int>> segments;
  std::map<unsigned long long, std::size_t> reservations;
  std::map<unsigned long long, Made> made;
  std::map<unsigned long long, Mapping> mappings;
  std::map<unsigned long long, std::pair<Pool*, std::size_t>> pooled;
  std::set<Pool*> pools;
  std::set<Event*> events;
  std::set<void*> streams;
  std::map<void*, std::uint64_t> queued, finished;  // work on a stream
  std::set<void*> held;                             // streams whose work is held back
  std::map<std::string, std::uint64_t> calls;
  std::string fail_name;
  std::uint64_t fail_at = 0;
  int fail_with = 0;
  unsigned long long next_handle = 1;

  Driver() {
    if (char const* text = std::getenv("STAND_IN_CAPACITY")) capacity = std::strtoull(text, 0, 10);
    if (char const* text = std::getenv("STAND_IN_FAIL")) {
      std::string const all = text;
      auto const first = all.find(':'), second = all.rfind(':');
      fail_name = all.substr(0, first);
      fail_at = std::strtoull(all.c_str() + first + 1, nullptr, 10);
      fail_with = std::atoi(all.c_str() + second + 1);
    }
  }
};

inline Driver& driver() {
  static Driver* const one = new Driver;
  return *one;
}
inline thread_local void* stack[64];
inline thread_local int depth = 0;

// The device of a context; a context is the address of its device number.
inline int contexts[kDevices] = {0, 1};
inline int device_of(void* context) { return *static_cast<int*>(context); }

// Counts the call; returns the error that it must give, or 0.
inline int entered(char const* name, bool in_context = true) {
  Driver& d = driver();
  std::uint64_t const at = ++d.calls[name];
  if (name == d.fail_name && (d.fail_at == 0 || at == d.fail_at)) return d.fail_with;
  if (!d.initialised || d.process != getpid()) return kNotInitialized;
  return in_context && depth == 0 ? kNoContext : 0;
}

inline int here() { return device_of(stack[depth - 1]); }

inline void* host(std::size_t size, int protection) {
  void* const at =
      mmap(nullptr, size + kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto const begin = reinterpret_cast<std::uintptr_t>(at), first = up(begin, kPage);
  if (first != begin) munmap(at, first - begin);
  auto const end = begin + size + kPage, last = up(first + size, 4096);
  if (end > last) munmap(reinterpret_cast<void*>(last), end - last);
  return reinterpret_cast<void*>(first);
}

inline void drop(unsigned long long memory) {
  Driver& d = driver();
  Made& one = d.made[memory];
  if (!one.released || one.mappings > 0) return;
  d.used[one.device] -= one.size;
  d.made.erase(memory);
}

inline void settle(Pool& pool, std::size_t keep) {
  Driver& d = driver();
  std::size_t const wanted =
      up(pool.used, kPoolStep) + up(std::min<std::size_t>(keep, pool.reserved), kPoolStep);
  if (wanted >= pool.reserved) return;
  d.used[pool.device] -= pool.reserved - wanted;
  pool.reserved = wanted;
}

inline void finish(void* stream) {
  Driver& d = driver();
  if (!d.held.contains(stream)) d.finished[stream] = d.queued[stream];
}

inline std::size_t outstanding(std::string const& kind) {
  Driver& d = driver();
  if (kind == "segments") return d.segments.size();
  if (kind == "reservations") return d.reservations.size();
  if (kind == "memory") return d.made.size();
  if (kind == "mappings") return d.mappings.size();
  if (kind == "pools") return d.pools.size();
  if (kind == "pooled") return d.pooled.size();
  if (kind == "events") return d.events.size();
  if (kind == "streams") return d.streams.size();
  if (kind == "contexts") return static_cast<std::size_t>(d.retained[0] + d.retained[1]);
  if (kind == "bytes") return d.used[0] + d.used[1];
  return ~std::size_t{0};
}

}  // namespace stand_in

#define BEGIN_ANYWHERE(name)                                 \
  std::scoped_lock const guard(driver().mutex);              \
  Driver& d = driver();                                      \
  if (int const error = entered(#name, false)) return error; \
  (void)d
#define BEGIN(name)                                   \
  std::scoped_lock const guard(driver().mutex);       \
  Driver& d = driver();                               \
  if (int const error = entered(#name)) return error; \
  (void)d
