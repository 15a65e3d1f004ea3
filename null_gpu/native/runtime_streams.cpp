// native/runtime_streams.cpp: streams, events and graphs.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/user_objects.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

Handle create_stream(int priority, bool blocking) {
  Contexts::get().use_runtime();
  return Streams::get().create(priority, blocking);
}

// Whether code of PyTorch's allocator is at an address. dladdr() can take milliseconds, so its
// answers are kept.
bool is_allocator(void const* code) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<void const*, bool>;
  std::lock_guard const lock(mutex);
  auto const [entry, is_new] = known.try_emplace(code);
  Dl_info info;
  if (is_new && dladdr(code, &info) != 0 && info.dli_fname != nullptr) {
    entry->second = std::string_view(info.dli_fname).find("/libc10_cuda.so") != std::string::npos;
  }
  return entry->second;
}

std::atomic<bool> allocator_asked = false;

}  // namespace

// Whether PyTorch's allocator has asked for an event. It does so before it reuses a block that the
// program used on another stream.
NULL_GPU_API int null_shared_blocks() { return allocator_asked; }

NULL_GPU_API int null_cudaStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  *stream = create_stream(priority, flags == kBlocking);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamCreateWithFlags(Handle* stream, unsigned flags) {
  *stream = create_stream(0, flags == kBlocking);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamCreate(Handle* stream) {
  *stream = create_stream(0, true);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamDestroy(Handle stream) {
  return failed(Streams::get().destroy(stream));
}

NULL_GPU_API int null_cudaStreamGetPriority(Handle stream, int* priority) {
  *priority = Streams::get().priority(stream);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamGetFlags(Handle, unsigned* flags) {
  *flags = 0;
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamGetId(Handle stream, unsigned long long* id) {
  *id = reinterpret_cast<Address>(stream);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamQuery(Handle stream) {
  return failed(Streams::get().query(stream));
}

NULL_GPU_API int null_cudaStreamSynchronize(Handle stream) {
  if (Status const status = entered_runtime("cudaStreamSynchronize")) return failed(status);
  if (Status const status = Streams::get().synchronize(stream)) return failed(status);
  PoolTable::get().synchronize(stream);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamWaitEvent(Handle stream, Handle event, unsigned) {
  return Streams::get().wait(stream, event);
}

NULL_GPU_API int null_cudaLaunchHostFunc(Handle stream, void (*call)(void*), void* argument) {
  if (!Streams::get().enqueue(stream)) call(argument);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamAddCallback(Handle stream, void (*call)(Handle, int, void*),
                                            void* argument, unsigned) {
  call(stream, kSuccess, argument);
  return kSuccess;
}

NULL_GPU_API int null_cudaEventCreateWithFlags(Handle* event, unsigned) {
  if (Status const status = entered_runtime("cudaEventCreateWithFlags")) return failed(status);
  *event = Streams::get().create_event();
  return kSuccess;
}

NULL_GPU_API int null_cudaEventCreate(Handle* event) {
  return null_cudaEventCreateWithFlags(event, 0);
}

NULL_GPU_API int null_cudaEventDestroy(Handle event) {
  return failed(Streams::get().destroy_event(event));
}

NULL_GPU_API int null_cudaEventRecord(Handle event, Handle stream) {
  return failed(Streams::get().record(event, stream));
}

NULL_GPU_API int null_cudaEventRecordWithFlags(Handle event, Handle stream, unsigned) {
  return failed(Streams::get().record(event, stream));
}

NULL_GPU_API int null_cudaEventQuery(Handle event) {
  if (!allocator_asked && is_allocator(__builtin_return_address(0))) allocator_asked = true;
  return failed(Streams::get().query_event(event));
}

NULL_GPU_API int null_cudaEventSynchronize(Handle event) {
  if (Status const status = Streams::get().synchronize_event(event)) return failed(status);
  PoolTable::get().synchronize();
  return kSuccess;
}

NULL_GPU_API int null_cudaEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  return failed(Streams::get().elapsed(milliseconds, begin, end));
}

NULL_GPU_API int null_cudaEventElapsedTime_v2(float* milliseconds, Handle begin, Handle end) {
  return null_cudaEventElapsedTime(milliseconds, begin, end);
}

NULL_GPU_API int null_cudaThreadExchangeStreamCaptureMode(int* mode) {
  exchange_capture_mode(mode);
  return kSuccess;
}

NULL_GPU_API int null_cudaStreamBeginCapture(Handle stream, int mode) {
  return failed(Streams::get().begin_capture(stream, static_cast<CaptureMode>(mode), nullptr));
}

NULL_GPU_API int null_cudaStreamBeginCaptureToGraph(Handle stream, Handle graph, void const*,
                                                    void const*, Size, int mode) {
  return failed(Streams::get().begin_capture(stream, static_cast<CaptureMode>(mode), graph));
}

NULL_GPU_API int null_cudaStreamEndCapture(Handle stream, Handle* graph) {
  return failed(Streams::get().end_capture(stream, graph));
}

NULL_GPU_API int null_cudaStreamIsCapturing(Handle stream, int* status) {
  *status = Streams::get().captured(stream).status;
  return kSuccess;
}

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

NULL_GPU_API int null_cudaStreamGetCaptureInfo_v3(Handle stream, int* status,
                                                  unsigned long long* id, Handle* graph,
                                                  void const** dependencies, void const** edges,
                                                  Size* count) {
  return null_cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, edges, count);
}

NULL_GPU_API int null_cudaStreamGetCaptureInfo_v2(Handle stream, int* status,
                                                  unsigned long long* id, Handle* graph,
                                                  void const** dependencies, Size* count) {
  return null_cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}

NULL_GPU_API int null_cudaStreamUpdateCaptureDependencies(Handle) { return kSuccess; }
NULL_GPU_API int null_cudaStreamUpdateCaptureDependencies_v2(Handle) { return kSuccess; }

NULL_GPU_API int null_cudaGraphCreate(Handle* graph, unsigned) {
  *graph = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphDestroy(Handle graph) {
  Streams::get().destroy_graph(graph);
  UserObjects::get().drop(graph);
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphInstantiate(Handle* executable, Handle graph, unsigned long long) {
  *executable = Machine::get().new_handle();
  UserObjects::get().share(graph, *executable);
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphInstantiateWithFlags(Handle* executable, Handle graph,
                                                    unsigned long long flags) {
  return null_cudaGraphInstantiate(executable, graph, flags);
}

NULL_GPU_API int null_cudaGraphExecDestroy(Handle executable) {
  UserObjects::get().drop(executable);
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphLaunch(Handle, Handle stream) {
  Streams::get().enqueue(stream);
  Values::get().forget_everything();
  ++Machine::get().kernels;
  return kSuccess;
}

// Nodes are only counted, so each call makes new handles.
NULL_GPU_API int null_cudaGraphGetNodes(Handle graph, Handle* nodes, Size* count) {
  Size const all = Streams::get().nodes(graph);
  if (nodes != nullptr) {
    for (Size node = 0; node < *count && node < all; ++node)
      nodes[node] = Machine::get().new_handle();
  }
  *count = all;
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphAddNode(Handle* node, Handle graph) {
  *node = Machine::get().new_handle();
  Streams::get().add_node(graph);
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphAddNode_v2(Handle* node, Handle graph) {
  return null_cudaGraphAddNode(node, graph);
}

NULL_GPU_API int null_cudaGraphAddEmptyNode(Handle* node, Handle graph) {
  return null_cudaGraphAddNode(node, graph);
}

// In CUDA 13 an array of edges precedes the count.
NULL_GPU_API int null_cudaGraphNodeGetDependencies(Handle, Handle*, Size* third, Size* fourth) {
  Size* const count = Machine::get().settings().cuda_version < 13000 ? third : fourth;
  *count = 0;
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphNodeGetType(Handle, int* type) {
  *type = 0;  // a kernel
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphConditionalHandleCreate(unsigned long long* handle) {
  *handle = reinterpret_cast<Address>(Machine::get().new_handle());
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphDebugDotPrint(Handle, char const*, unsigned) { return kSuccess; }
