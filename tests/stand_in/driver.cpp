// tests/stand_in/driver.cpp: devices and contexts of the stand-in, and its controls.
// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

using namespace stand_in;

namespace {

// Runs when the library is unloaded, after everything that was created later.
struct Report {
  ~Report() {
    Driver& d = driver();
    char const* const path = std::getenv("STAND_IN_REPORT");
    if (path == nullptr || d.process != getpid()) return;
    std::FILE* const file = std::fopen(path, "w");
    for (char const* kind : {"segments", "reservations", "memory", "mappings", "pools", "pooled",
                             "events", "streams", "contexts", "bytes", "abandoned"})
      std::fprintf(file, "%s %zu\n", kind, outstanding(kind));
    std::fclose(file);
  }
} report;

Queue queue_named(void* stream, int device) {
  auto const made = driver().streams.find(stream);
  return {made != driver().streams.end() ? made->second.device : device, stream,
          reinterpret_cast<std::uintptr_t>(stream) == 2 ? this_thread() : 0};
}

std::vector<int> visible() {
  std::vector<int> found;
  char const* at = std::getenv("CUDA_VISIBLE_DEVICES");
  if (at == nullptr) at = "0,1";
  while (*at != 0) {
    char* end = nullptr;
    long const number = std::strtol(at, &end, 10);
    if (end == at || number < 0 || number >= kDevices) break;
    found.push_back(static_cast<int>(number));
    at = *end == ',' ? end + 1 : end;
  }
  return found;
}

}  // namespace

// -- the tests' own calls

EXPORT std::size_t stand_in_outstanding(char const* kind) {
  std::scoped_lock const guard(driver().mutex);
  return outstanding(kind);
}
EXPORT std::uint64_t stand_in_calls(char const* name) { return driver().calls.count(name); }
// From now on, the `at`-th call of `name` (every call if 0) returns `error`; no call if `name` is
// empty.
EXPORT void stand_in_fail(char const* name, std::uint64_t at, int error) {
  driver().calls.fail_none();
  if (*name != 0) driver().calls.fail(name, at, error);
}
EXPORT void stand_in_set_capacity(std::size_t bytes) { driver().capacity = bytes; }
// What was abandoned so far.
EXPORT void stand_in_forget() {
  std::scoped_lock const guard(driver().mutex);
  driver().abandoned = 0;
}
// Whether the work on a stream stays unfinished; a default stream is that of a device, and the
// per-thread one that of this thread.
EXPORT void stand_in_hold(void* stream, int hold, int device) {
  std::scoped_lock const guard(driver().mutex);
  Queue const queue = queue_named(stream, device);
  if (hold) {
    driver().held.insert(queue);
    ++driver().queued[queue];
  } else {
    driver().held.erase(queue);
    finish(queue);
  }
}

// Whether work on a stream is not finished.
EXPORT int stand_in_busy(void* stream, int device) {
  std::scoped_lock const guard(driver().mutex);
  Queue const queue = queue_named(stream, device);
  return driver().finished[queue] < driver().queued[queue];
}
// From now on each call of `name` takes so long; none when it is empty.
EXPORT void stand_in_slow(char const* name, double seconds) { driver().calls.slow(name, seconds); }
EXPORT void* stand_in_new_stream(int device) {
  std::scoped_lock const guard(driver().mutex);
  void* const stream = std::malloc(1);
  driver().streams[stream] = Stream{device, false};
  return stream;
}

// -- the driver's

EXPORT int cuInit(unsigned) {
  std::scoped_lock const guard(driver().mutex);
  Driver& d = driver();
  if (!d.initialized) {
    d.initialized = true;
    d.process = getpid();
    d.visible = visible();
    std::atexit([] { driver().over = true; });
  }
  if (int const error = entered("cuInit", false)) return error;
  return d.visible.empty() ? kNoDevice : 0;
}
EXPORT int cuDriverGetVersion(int* version) {
  *version = 12040;
  BEGIN_ANYWHERE(cuDriverGetVersion);
  return 0;
}
EXPORT int cuGetErrorName(int error, char const** name) {
  static std::map<int, char const*> const names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},   {4, "CUDA_ERROR_DEINITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"},       {101, "CUDA_ERROR_INVALID_DEVICE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"}, {400, "CUDA_ERROR_INVALID_HANDLE"},
      {600, "CUDA_ERROR_NOT_READY"},       {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {999, "CUDA_ERROR_UNKNOWN"}};
  auto const found = names.find(error);
  if (found == names.end()) return kInvalidValue;
  *name = found->second;
  return 0;
}
EXPORT int cuGetErrorString(int error, char const** text) {
  static std::map<int, char const*> const texts = {
      {1, "invalid argument"}, {2, "out of memory"}, {700, "an illegal memory access"}};
  auto const found = texts.find(error);
  if (found == texts.end()) return kInvalidValue;
  *text = found->second;
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  BEGIN_ANYWHERE(cuDeviceGetCount);
  *count = static_cast<int>(d.visible.size());
  return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  BEGIN_ANYWHERE(cuDeviceGet);
  if (ordinal < 0 || ordinal >= static_cast<int>(d.visible.size())) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int length, int device) {
  BEGIN_ANYWHERE(cuDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in GPU %d",
                d.visible.at(static_cast<std::size_t>(device)));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int, int) {
  BEGIN_ANYWHERE(cuDeviceGetAttribute);
  *value = 1;
  return 0;
}
EXPORT int cuDeviceGetUuid(char* uuid, int device) {
  BEGIN_ANYWHERE(cuDeviceGetUuid);
  for (int at = 0; at < 16; ++at) uuid[at] = static_cast<char>(at);
  uuid[15] = static_cast<char>(d.visible.at(static_cast<std::size_t>(device)));
  return 0;
}
EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  BEGIN_ANYWHERE(cuDeviceCanAccessPeer);
  *can = device != peer;
  return 0;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  BEGIN_ANYWHERE(cuDevicePrimaryCtxGetState);
  *flags = 0;
  *active = d.retained[device] > 0;
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  BEGIN_ANYWHERE(cuDeviceTotalMem_v2);
  *bytes = d.capacity;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN_ANYWHERE(cuDevicePrimaryCtxRetain);
  ++d.retained[device];
  *context = &contexts[device];
  return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  BEGIN_ANYWHERE(cuDevicePrimaryCtxRelease_v2);
  if (d.retained[device] == 0) return kNoContext;
  if (--d.retained[device] > 0) return 0;
  std::erase_if(d.streams, [device](auto const& each) { return each.second.device == device; });
  d.abandoned += std::erase_if(d.events, [device](Event* each) { return each->device == device; });
  abandon(device);
  return 0;
}
EXPORT int cuCtxGetCurrent(void** context) {
  BEGIN_ANYWHERE(cuCtxGetCurrent);
  *context = depth == 0 ? nullptr : stack[depth - 1];
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  BEGIN_ANYWHERE(cuCtxPushCurrent_v2);
  if (d.retained[device_of(context)] == 0) return kNoContext;
  stack[depth++] = context;
  return 0;
}
EXPORT int cuCtxSetCurrent(void* context) {
  BEGIN_ANYWHERE(cuCtxSetCurrent);
  if (context == nullptr) {
    depth = std::max(depth - 1, 0);
    return 0;
  }
  if (d.retained[device_of(context)] == 0) return kNoContext;
  stack[depth == 0 ? depth++ : depth - 1] = context;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  BEGIN(cuCtxPopCurrent_v2);
  *context = stack[--depth];
  return 0;
}
