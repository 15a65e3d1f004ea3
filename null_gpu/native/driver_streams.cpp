// native/driver_streams.cpp: the driver's streams, events and captures.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"

using namespace allocbench::null_gpu;

NULL_GPU_API int null_cuCtxSynchronize() {
  if (Status const status = entered_context("cuCtxSynchronize")) return status;
  if (Status const status = Streams::get().synchronize_all(current_device())) return status;
  PoolTable::get().synchronize();
  return kSuccess;
}

NULL_GPU_API int null_cuStreamCreate(Handle* stream, unsigned flags) {
  if (Status const status = entered_context("cuStreamCreate")) return status;
  *stream = Streams::get().create(0, flags == kBlocking);
  return kSuccess;
}

NULL_GPU_API int null_cuStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  if (Status const status = entered_context("cuStreamCreateWithPriority")) return status;
  *stream = Streams::get().create(priority, flags == kBlocking);
  return kSuccess;
}

NULL_GPU_API int null_cuStreamDestroy_v2(Handle stream) {
  if (Status const status = entered_context("cuStreamDestroy_v2")) return status;
  return Streams::get().destroy(stream);
}

NULL_GPU_API int null_cuStreamGetCtx(Handle stream, Handle* context) {
  if (Status const status = entered_context("cuStreamGetCtx")) return status;
  *context = reinterpret_cast<Handle>(kFirstContext + device_of(stream));
  return kSuccess;
}

NULL_GPU_API int null_cuStreamQuery(Handle stream) {
  if (Status const status = entered_context("cuStreamQuery")) return status;
  return Streams::get().query(stream);
}

NULL_GPU_API int null_cuStreamSynchronize(Handle stream) {
  if (Status const status = entered_context("cuStreamSynchronize")) return status;
  if (Status const status = Streams::get().synchronize(stream)) return status;
  PoolTable::get().synchronize(stream);
  return kSuccess;
}

NULL_GPU_API int null_cuStreamWaitEvent(Handle stream, Handle event, unsigned) {
  if (Status const status = entered_context("cuStreamWaitEvent")) return status;
  return Streams::get().wait(stream, event);
}

NULL_GPU_API int null_cuStreamBeginCapture_v2(Handle stream, int mode) {
  if (Status const status = entered_context("cuStreamBeginCapture_v2")) return status;
  return Streams::get().begin_capture(stream, static_cast<CaptureMode>(mode), nullptr);
}

NULL_GPU_API int null_cuStreamIsCapturing(Handle stream, int* capturing) {
  if (Status const status = entered_context("cuStreamIsCapturing")) return status;
  *capturing = Streams::get().captured(stream).status;
  return kSuccess;
}

NULL_GPU_API int null_cuStreamEndCapture(Handle stream, Handle* graph) {
  if (Status const status = entered_context("cuStreamEndCapture")) return status;
  return Streams::get().end_capture(stream, graph);
}

NULL_GPU_API int null_cuThreadExchangeStreamCaptureMode(int* mode) {
  exchange_capture_mode(mode);
  return kSuccess;
}

NULL_GPU_API int null_cuEventCreate(Handle* event, unsigned) {
  if (Status const status = entered_context("cuEventCreate")) return status;
  *event = Streams::get().create_event();
  return kSuccess;
}

NULL_GPU_API int null_cuEventRecord(Handle event, Handle stream) {
  if (Status const status = entered_context("cuEventRecord")) return status;
  return Streams::get().record(event, stream);
}

NULL_GPU_API int null_cuEventQuery(Handle event) {
  if (Status const status = entered_driver("cuEventQuery")) return status;
  return Streams::get().query_event(event);
}

NULL_GPU_API int null_cuEventSynchronize(Handle event) {
  if (Status const status = entered_driver("cuEventSynchronize")) return status;
  if (Status const status = Streams::get().synchronize_event(event)) return status;
  PoolTable::get().synchronize();
  return kSuccess;
}

NULL_GPU_API int null_cuEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  if (Status const status = entered_driver("cuEventElapsedTime")) return status;
  return Streams::get().elapsed(milliseconds, begin, end);
}

NULL_GPU_API int null_cuEventDestroy_v2(Handle event) {
  if (Status const status = entered_driver("cuEventDestroy_v2")) return status;
  return Streams::get().destroy_event(event);
}
