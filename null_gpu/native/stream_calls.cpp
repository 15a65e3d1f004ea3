// native/stream_calls.cpp: streams, events and captures, in the runtime and in the driver.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <utility>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"

using namespace allocbench::null_gpu;

namespace {

int create_stream(Handle* stream, int priority, bool blocking) {
  *stream = Streams::get().create(priority, blocking);
  return kSuccess;
}

int synchronize(Handle stream) {
  if (Status const status = Streams::get().synchronize(stream)) return status;
  PoolTable::get().synchronize(stream);
  return kSuccess;
}

int synchronize_event(Handle event) {
  if (Status const status = Streams::get().synchronize_event(event)) return status;
  PoolTable::get().synchronize();
  return kSuccess;
}

int synchronize_device() {
  if (Status const status = Streams::get().synchronize_all(current_device())) return status;
  PoolTable::get().synchronize();
  return kSuccess;
}

int is_capturing(Handle stream, int* status) {
  *status = Streams::get().captured(stream).status;
  return kSuccess;
}

int begin_capture(Handle stream, int mode, Handle graph) {
  return Streams::get().begin_capture(stream, static_cast<CaptureMode>(mode), graph);
}

std::atomic<bool> allocator_asked = false;

}  // namespace

// Whether PyTorch's allocator has asked for an event. It does so before it reuses a block that the
// program used on another stream.
NULL_GPU_API int null_shared_blocks() { return allocator_asked; }

// -- both

NULL_GPU_PAIR(cudaStreamDestroy, cuStreamDestroy_v2, entered_context, (Handle stream),
              Streams::get().destroy(stream))
NULL_GPU_PAIR(cudaStreamQuery, cuStreamQuery, entered_context, (Handle stream),
              Streams::get().query(stream))
NULL_GPU_PAIR(cudaStreamWaitEvent, cuStreamWaitEvent, entered_context,
              (Handle stream, Handle event, unsigned), Streams::get().wait(stream, event))
NULL_GPU_PAIR(cudaStreamBeginCapture, cuStreamBeginCapture_v2, entered_context,
              (Handle stream, int mode), begin_capture(stream, mode, nullptr))
NULL_GPU_PAIR(cudaStreamIsCapturing, cuStreamIsCapturing, entered_context,
              (Handle stream, int* status), is_capturing(stream, status))
NULL_GPU_PAIR(cudaStreamEndCapture, cuStreamEndCapture, entered_context,
              (Handle stream, Handle* graph), Streams::get().end_capture(stream, graph))
NULL_GPU_PAIR(cudaEventRecord, cuEventRecord, entered_context, (Handle event, Handle stream),
              Streams::get().record(event, stream))
NULL_GPU_ALIASES(null_cudaEventRecord, null_cudaEventRecordWithFlags);
NULL_GPU_PAIR(cudaEventSynchronize, cuEventSynchronize, entered_driver, (Handle event),
              synchronize_event(event))
NULL_GPU_PAIR(cudaEventElapsedTime, cuEventElapsedTime, entered_driver,
              (float* milliseconds, Handle begin, Handle end),
              Streams::get().elapsed(milliseconds, begin, end))
NULL_GPU_ALIASES(null_cudaEventElapsedTime, null_cudaEventElapsedTime_v2);
NULL_GPU_PAIR(cudaEventDestroy, cuEventDestroy_v2, entered_driver, (Handle event),
              Streams::get().destroy_event(event))

// -- the runtime

NULL_GPU_DOES(cudaStreamGetPriority, (Handle stream, int* priority),
              *priority = Streams::get().priority(stream))
NULL_GPU_DOES(cudaStreamGetFlags, (Handle, unsigned* flags), *flags = 0)
NULL_GPU_GIVES(cudaDeviceSynchronize, (),
               failed(entered_runtime("cudaDeviceSynchronize") ?: synchronize_device()))

NULL_GPU_API int null_cudaStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  Contexts::get().use_runtime();
  return create_stream(stream, priority, flags == kBlocking);
}

NULL_GPU_GIVES(cudaStreamCreateWithFlags, (Handle * stream, unsigned flags),
               null_cudaStreamCreateWithPriority(stream, flags, 0))
NULL_GPU_GIVES(cudaStreamCreate, (Handle * stream),
               null_cudaStreamCreateWithPriority(stream, kBlocking, 0))
NULL_GPU_DOES(cudaStreamGetId, (Handle stream, unsigned long long* id),
              *id = reinterpret_cast<Address>(stream))
NULL_GPU_GIVES(cudaStreamSynchronize, (Handle stream),
               failed(entered_runtime("cudaStreamSynchronize") ?: synchronize(stream)))

NULL_GPU_API int null_cudaLaunchHostFunc(Handle stream, void (*call)(void*), void* argument) {
  if (!Streams::get().enqueue(stream)) call(argument);
  return kSuccess;
}

NULL_GPU_DOES(cudaStreamAddCallback,
              (Handle stream, void (*call)(Handle, int, void*), void* argument, unsigned),
              call(stream, kSuccess, argument))

NULL_GPU_API int null_cudaEventCreate(Handle* event) {
  if (Status const status = entered_runtime("cudaEventCreateWithFlags")) return failed(status);
  *event = Streams::get().create_event();
  return kSuccess;
}
NULL_GPU_ALIASES(null_cudaEventCreate, null_cudaEventCreateWithFlags);

NULL_GPU_API int null_cudaEventQuery(Handle event) {
  if (!allocator_asked && library_at(__builtin_return_address(0)) == "libc10_cuda.so")
    allocator_asked = true;
  return failed(Streams::get().query_event(event));
}

NULL_GPU_DOES(cudaThreadExchangeStreamCaptureMode, (int* mode),
              *mode = std::exchange(capture_mode, *mode))
NULL_GPU_ALIASES(null_cudaThreadExchangeStreamCaptureMode, null_cuThreadExchangeStreamCaptureMode);
NULL_GPU_GIVES(cudaStreamBeginCaptureToGraph,
               (Handle stream, Handle graph, void const*, void const*, Size, int mode),
               failed(begin_capture(stream, mode, graph)))

// The version with edges: CUDA 13 gives it this name, CUDA 12 the name with _v3.
NULL_GPU_API int null_cudaStreamGetCaptureInfo(Handle stream, int* status, unsigned long long* id,
                                               Handle* graph, void const** dependencies,
                                               void const** edges, Size* count) {
  auto const captured = Streams::get().captured(stream);
  *status = captured.status;
  if (id != nullptr) *id = captured.id;
  if (graph != nullptr) *graph = captured.graph;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return kSuccess;
}
NULL_GPU_ALIASES(null_cudaStreamGetCaptureInfo, null_cudaStreamGetCaptureInfo_v3);
NULL_GPU_GIVES(cudaStreamGetCaptureInfo_v2,
               (Handle stream, int* status, unsigned long long* id, Handle* graph,
                void const** dependencies, Size* count),
               null_cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr,
                                             count))

// -- the driver

NULL_GPU_RETURNS(cuCtxSynchronize, entered_context, (), synchronize_device())
NULL_GPU_RETURNS(cuStreamCreate, entered_context, (Handle * stream, unsigned flags),
                 create_stream(stream, 0, flags == kBlocking))
NULL_GPU_RETURNS(cuStreamCreateWithPriority, entered_context,
                 (Handle * stream, unsigned flags, int priority),
                 create_stream(stream, priority, flags == kBlocking))
NULL_GPU_CHECKED(cuStreamGetCtx, entered_context, (Handle stream, Handle* context),
                 *context = reinterpret_cast<Handle>(kFirstContext + device_of(stream)))
NULL_GPU_RETURNS(cuStreamSynchronize, entered_context, (Handle stream), synchronize(stream))
NULL_GPU_CHECKED(cuEventCreate, entered_context, (Handle * event, unsigned),
                 *event = Streams::get().create_event())
NULL_GPU_RETURNS(cuEventQuery, entered_driver, (Handle event), Streams::get().query_event(event))
