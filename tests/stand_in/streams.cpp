// tests/stand_in/streams.cpp: streams, events and captures of the stand-in.
// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

using namespace stand_in;

EXPORT int cuCtxSynchronize() {
  BEGIN(cuCtxSynchronize);
  int const device = here();
  if (int const error =
          forbidden([device](Capture const& capture) { return capture.device == device; }))
    return error;
  for (auto const& [queue, work] : d.queued)
    if (std::get<0>(queue) == device) d.finished[queue] = work;
  for (Pool* pool : d.pools)
    if (pool->device == device) settle(*pool, pool->bytes.threshold);
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  BEGIN(cuStreamCreate);
  *stream = std::malloc(1);
  d.streams[*stream] = Stream{here(), flags == 0};
  return 0;
}
EXPORT int cuStreamDestroy_v2(void* stream) {
  BEGIN(cuStreamDestroy_v2);
  if (d.streams.erase(stream) == 0) return kInvalidValue;
  std::free(stream);
  return 0;
}
EXPORT int cuStreamGetCtx(void* stream, void** context) {
  BEGIN(cuStreamGetCtx);
  *context = &contexts[std::get<0>(queue_of(stream))];
  return 0;
}
EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  BEGIN(cuStreamBeginCapture_v2);
  if (reinterpret_cast<std::uintptr_t>(stream) <= 1 || d.captures.contains(stream))
    return kCaptureUnsupported;
  d.captures[stream] = {std::get<0>(queue_of(stream)), mode, this_thread()};
  return 0;
}
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  BEGIN(cuStreamIsCapturing);
  auto const found = d.captures.find(stream);
  *status = found == d.captures.end() ? 0 : found->second.invalid ? 2 : 1;
  return 0;
}
EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  BEGIN(cuStreamEndCapture);
  auto const found = d.captures.find(stream);
  if (found == d.captures.end()) return kInvalidValue;
  bool const invalid = found->second.invalid;
  d.captures.erase(found);
  *graph = nullptr;
  return invalid ? kCaptureInvalidated : 0;
}
EXPORT int cuEventCreate(Event** event, unsigned) {
  BEGIN(cuEventCreate);
  *event = *d.events.insert(new Event{here()}).first;
  return 0;
}
EXPORT int cuEventRecord(Event* event, void* stream) {
  BEGIN(cuEventRecord);
  Queue const queue = queue_of(stream);
  if (!d.events.contains(event) || event->device != std::get<0>(queue)) return kInvalidHandle;
  event->captured = d.captures.contains(stream);
  if (event->captured) return 0;
  ++d.queued[queue];
  event->work = queued_on(queue);
  finish(queue);
  return 0;
}
EXPORT int cuEventQuery(Event* event) {
  BEGIN_ANYWHERE(cuEventQuery);
  if (!d.events.contains(event)) return kInvalidValue;
  if (event->captured) return kCapturedEvent;
  for (auto const& [queue, work] : event->work)
    if (work > d.finished[queue]) return kNotReady;
  return 0;
}
EXPORT int cuEventSynchronize(Event* event) {
  BEGIN_ANYWHERE(cuEventSynchronize);
  if (!d.events.contains(event)) return kInvalidValue;
  if (event->captured) return kCapturedEvent;
  for (auto const& [queue, work] : event->work)
    d.finished[queue] = std::max(d.finished[queue], work);
  reap();
  return 0;
}
EXPORT int cuEventDestroy_v2(Event* event) {
  BEGIN_ANYWHERE(cuEventDestroy_v2);
  if (d.events.erase(event) == 0) return kInvalidValue;
  delete event;
  return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(capture_mode, *mode);
  return 0;
}
