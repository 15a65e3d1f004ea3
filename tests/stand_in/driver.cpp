// tests/stand_in/driver.cpp: devices, contexts, streams and events of the stand-in, and its
// controls. SPDX-License-Identifier: Apache-2.0
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
                             "events", "streams", "contexts", "bytes"})
      std::fprintf(file, "%s %zu\n", kind, outstanding(kind));
    std::fclose(file);
  }
} report;

}  // namespace

// -- the tests' own calls

EXPORT std::size_t stand_in_outstanding(char const* kind) {
  std::scoped_lock const guard(driver().mutex);
  return outstanding(kind);
}
EXPORT std::uint64_t stand_in_calls(char const* name) {
  std::scoped_lock const guard(driver().mutex);
  return driver().calls[name];
}
// From now on, the `at`-th call of `name` (every call if 0) returns `error`; no call if `name` is
// empty.
EXPORT void stand_in_fail(char const* name, std::uint64_t at, int error) {
  std::scoped_lock const guard(driver().mutex);
  Driver& d = driver();
  d.fail_name = name;
  d.fail_at = at == 0 ? 0 : d.calls[name] + at;
  d.fail_with = error;
}
EXPORT void stand_in_set_capacity(std::size_t bytes) { driver().capacity = bytes; }
// Drops the remaining events, as when their context is destroyed.
EXPORT void stand_in_forget() {
  std::scoped_lock const guard(driver().mutex);
  driver().events.clear();
}
// Sets whether the work on a stream is held back.
EXPORT void stand_in_hold(void* stream, int hold) {
  std::scoped_lock const guard(driver().mutex);
  if (hold) {
    driver().held.insert(stream);
  } else {
    driver().held.erase(stream);
    finish(stream);
  }
}

// -- the driver's

EXPORT int cuInit(unsigned) {
  std::scoped_lock const guard(driver().mutex);
  Driver& d = driver();
  if (!d.initialised) {
    d.initialised = true;
    d.process = getpid();
  }
  return entered("cuInit", false);
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
      {201, "CUDA_ERROR_INVALID_CONTEXT"}, {600, "CUDA_ERROR_NOT_READY"},
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
  *count = kDevices;
  return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  BEGIN_ANYWHERE(cuDeviceGet);
  if (ordinal < 0 || ordinal >= kDevices) return 101;
  *device = ordinal;
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int length, int device) {
  BEGIN_ANYWHERE(cuDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in GPU %d", device);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int, int) {
  BEGIN_ANYWHERE(cuDeviceGetAttribute);
  *value = 1;
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
  if (--d.retained[device] == 0) d.streams.clear();  // they belong to the context
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
EXPORT int cuCtxPopCurrent_v2(void** context) {
  BEGIN(cuCtxPopCurrent_v2);
  *context = stack[--depth];
  return 0;
}
EXPORT int cuCtxSynchronize() {
  BEGIN(cuCtxSynchronize);
  for (auto const& [stream, work] : d.queued) d.finished[stream] = work;
  for (Pool* pool : d.pools) settle(*pool, pool->threshold);
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  BEGIN(cuStreamCreate);
  *stream = *d.streams.insert(std::malloc(1)).first;
  return 0;
}
EXPORT int cuStreamDestroy_v2(void* stream) {
  BEGIN(cuStreamDestroy_v2);
  if (d.streams.erase(stream) == 0) return kInvalidValue;
  std::free(stream);
  return 0;
}
EXPORT int cuEventCreate(Event** event, unsigned) {
  BEGIN(cuEventCreate);
  *event = *d.events.insert(new Event).first;
  return 0;
}
EXPORT int cuEventRecord(Event* event, void* stream) {
  BEGIN(cuEventRecord);
  if (!d.events.contains(event)) return kInvalidValue;
  event->stream = stream;
  event->work = ++d.queued[stream];
  finish(stream);
  return 0;
}
EXPORT int cuEventQuery(Event* event) {
  BEGIN_ANYWHERE(cuEventQuery);
  if (!d.events.contains(event)) return kInvalidValue;
  return event->work <= d.finished[event->stream] ? 0 : kNotReady;
}
EXPORT int cuEventSynchronize(Event* event) {
  BEGIN_ANYWHERE(cuEventSynchronize);
  if (!d.events.contains(event)) return kInvalidValue;
  d.finished[event->stream] = std::max(d.finished[event->stream], event->work);
  return 0;
}
EXPORT int cuEventDestroy_v2(Event* event) {
  BEGIN_ANYWHERE(cuEventDestroy_v2);
  if (d.events.erase(event) == 0) return kInvalidValue;
  delete event;
  return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  std::swap(current, *mode);
  return 0;
}
