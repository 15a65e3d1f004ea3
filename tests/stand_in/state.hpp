// tests/stand_in/state.hpp: the state of a stand-in for libcuda.so.1, for machines without a GPU.
// SPDX-License-Identifier: Apache-2.0
//
// Two GPUs whose memory is the host's: addresses are real and may be written to. It counts what is
// outstanding, refuses what exceeds the capacity, and fails calls on purpose. Streams hold their
// work back when told to. The rules of virtual memory and the bytes of pools are those of the null
// GPU. A wrong use is an error, as with the real driver:
//
// - a free of what is not held, an unmap of half a page, a call in no context, in a child process,
//   or after the driver was torn down at exit
// - an event recorded on a stream of another GPU's context
// - while a stream is captured: waiting for the GPU or for that stream, a query of an event that
// was
//   recorded in the capture, an asynchronous free there of memory that was not captured, and calls
//   that the thread's capture mode forbids. All of them make the capture invalid.
//
// What is freed asynchronously goes when its stream gets there. What a context still holds when it
// is released for the last time is gone, and counts as abandoned.
//
// CUDA_VISIBLE_DEVICES  read by cuInit, as the real driver does: numbers alone, no UUIDs
// STAND_IN_CAPACITY     bytes of each GPU (default 1 GiB)
// STAND_IN_FAIL         "cuMemAlloc_v2:3:700": the third call gives error 700
// STAND_IN_REPORT       a file that gets what is outstanding when the process ends

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "null_gpu/calls.hpp"
#include "null_gpu/pool_bytes.hpp"
#include "null_gpu/virtual_memory.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in {

namespace null_gpu = allocbench::null_gpu;

constexpr int kDevices = 2;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kDeinitialized = 4;
constexpr int kNoDevice = 100, kInvalidDevice = 101, kNoContext = 201, kInvalidHandle = 400;
constexpr int kNotReady = 600, kCaptureUnsupported = 900, kCaptureInvalidated = 901;
constexpr int kCapturedEvent = 907;
constexpr int kGlobalCapture = 0, kThreadLocalCapture = 1;  // a thread's third mode is relaxed
using null_gpu::kPage, null_gpu::round_up;

struct Pool {
  int device;
  null_gpu::PoolBytes bytes = {};
  std::set<int> accessible = {};
};
// A queue of work: device, handle, and the thread for a per-thread default stream, else 0.
using Queue = std::tuple<int, void*, std::uint64_t>;
struct Stream {
  int device;
  bool blocking;  // waits for the default stream, and the default stream for it
};
struct Event {
  int device;
  std::vector<std::pair<Queue, std::uint64_t>> work = {};  // all that must be done
  bool captured = false;
};
struct Pooled {
  Pool* pool;
  std::size_t size;
  bool freed = false;
  Queue queue = {};  // of the free, which has been reached when `work` is done
  std::uint64_t work = 0;
};
struct Capture {
  int device;
  int mode;
  std::uint64_t thread;
  bool invalid = false;
};

struct Driver {
  std::recursive_mutex mutex;
  bool initialized = false;
  bool over = false;  // at exit
  pid_t process = 0;
  std::vector<int> visible;  // GPUs by their ordinals
  std::size_t capacity = std::size_t{1} << 30;
  std::size_t used[kDevices] = {};
  int retained[kDevices] = {};
  std::map<unsigned long long, std::pair<std::size_t, int>> segments;
  null_gpu::VirtualMemory pages{[this](int device, std::size_t size) { used[device] -= size; }};
  std::map<unsigned long long, Pooled> pooled;
  std::set<Pool*> pools;
  std::set<Event*> events;
  std::map<void*, Stream> streams;
  std::map<Queue, std::uint64_t> queued, finished;  // work
  std::set<Queue> held;                             // whose work does not finish
  std::map<void*, Capture> captures;                // by stream
  std::size_t abandoned = 0;
  null_gpu::Calls calls;

  Driver() {
    if (char const* text = std::getenv("STAND_IN_CAPACITY")) capacity = std::strtoull(text, 0, 10);
    if (char const* text = std::getenv("STAND_IN_FAIL")) calls.fail(text);
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

inline int here() { return device_of(stack[depth - 1]); }

// Threads by number: 1 is the first that asks.
inline std::uint64_t this_thread() {
  static std::uint64_t threads = 0;
  static thread_local std::uint64_t const number = ++threads;
  return number;
}
inline thread_local int capture_mode = kGlobalCapture;

// Makes the captures that a call is forbidden by invalid; the error, or 0.
template <class Forbids>
int forbidden(Forbids forbids) {
  int error = 0;
  for (auto& [stream, capture] : driver().captures)
    if (forbids(capture)) {
      capture.invalid = true;
      error = kCaptureUnsupported;
    }
  return error;
}

// A call that CUDA names potentially unsafe: only a thread in relaxed mode may make it.
inline int unsafe() {
  return forbidden([](Capture const& capture) {
    if (capture.mode == kGlobalCapture) return capture_mode == kGlobalCapture;
    return capture.mode == kThreadLocalCapture && capture.thread == this_thread() &&
           capture_mode != 2;
  });
}

// Counts the call; the error that it shall give, or 0.
inline int entered(char const* name, bool in_context = true) {
  Driver& d = driver();
  if (int const error = d.calls.entered(name)) return error;
  if (d.over) return kDeinitialized;
  if (!d.initialized || d.process != getpid()) return kNotInitialized;
  return in_context && depth == 0 ? kNoContext : 0;
}

inline void* host(std::size_t size, int protection) {
  void* const at =
      mmap(nullptr, size + kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto const begin = reinterpret_cast<std::uintptr_t>(at), first = round_up(begin, kPage);
  if (first != begin) munmap(at, first - begin);
  auto const end = begin + size + kPage, last = round_up(first + size, 4096);
  if (end > last) munmap(reinterpret_cast<void*>(last), end - last);
  return reinterpret_cast<void*>(first);
}

// What a handle means to this thread in its context. The per-thread default stream is 2.
inline Queue queue_of(void* stream) {
  auto const handle = reinterpret_cast<std::uintptr_t>(stream);
  auto const made = driver().streams.find(stream);
  if (made != driver().streams.end()) return {made->second.device, stream, 0};
  if (handle == 2) return {here(), stream, this_thread()};
  return {handle <= 1 ? here() : 0, handle == 1 ? nullptr : stream, 0};
}

// Work that an event on a queue stands for: of the default stream, all that this waits for too.
inline std::vector<std::pair<Queue, std::uint64_t>> queued_on(Queue const& queue) {
  Driver& d = driver();
  std::vector<std::pair<Queue, std::uint64_t>> found = {{queue, d.queued[queue]}};
  auto const& [device, handle, thread] = queue;
  if (handle != nullptr) return found;
  for (auto const& [other, work] : d.queued) {
    auto const& [on, stream, of] = other;
    auto const made = d.streams.find(stream);
    if (on == device && (of != 0 || (made != d.streams.end() && made->second.blocking)))
      found.emplace_back(other, work);
  }
  return found;
}

// Blocks whose frees have been reached go back to their pools.
inline void reap() {
  Driver& d = driver();
  for (auto at = d.pooled.begin(); at != d.pooled.end();) {
    Pooled& block = at->second;
    if (!block.freed || block.work > d.finished[block.queue]) {
      ++at;
      continue;
    }
    munmap(reinterpret_cast<void*>(at->first), block.size);
    block.pool->bytes.used -= block.size;
    at = d.pooled.erase(at);
  }
}

inline void settle(Pool& pool, std::size_t keep) {
  reap();
  driver().used[pool.device] -= pool.bytes.shrink(keep);
}

inline void finish(Queue const& queue) {
  Driver& d = driver();
  if (!d.held.contains(queue)) d.finished[queue] = d.queued[queue];
  reap();
}

// What the context of a device held is gone.
void abandon(int device);

inline std::size_t outstanding(std::string const& kind) {
  Driver& d = driver();
  if (kind == "segments") return d.segments.size();
  if (kind == "reservations") return d.pages.counts().reservations;
  if (kind == "memory") return d.pages.counts().pieces;
  if (kind == "mappings") return d.pages.counts().mappings;
  if (kind == "pools") return d.pools.size();
  if (kind == "pooled") {
    auto const lives = [](auto const& each) { return !each.second.freed; };
    return static_cast<std::size_t>(std::count_if(d.pooled.begin(), d.pooled.end(), lives));
  }
  if (kind == "abandoned") return d.abandoned;
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
#define BEGIN_UNSAFE(name) \
  BEGIN(name);             \
  if (int const error = unsafe()) return error
