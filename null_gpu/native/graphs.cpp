// native/graphs.cpp: graphs, and objects of the program that captured graphs keep alive.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

using Destroy = void (*)(void*);

// A user object is destroyed, by the function that it was made with, when the program, the graphs
// and the executable graphs have given back all references to it.
class UserObjects : public Only<UserObjects> {
 public:
  Handle make(void* value, Destroy destroy, unsigned references) {
    Handle const object = Machine::get().new_handle();
    std::lock_guard const lock(mutex_);
    objects_[object] = {value, destroy, references};
    return object;
  }

  // Adds references of the program. False if there is no such object.
  bool retain(Handle object, unsigned count) {
    std::lock_guard const lock(mutex_);
    auto const found = objects_.find(object);
    if (found == objects_.end()) return false;
    found->second.references += count;
    return true;
  }

  bool release(Handle object, unsigned count) {
    Object gone = {};
    {
      std::lock_guard const lock(mutex_);
      auto const found = objects_.find(object);
      if (found == objects_.end()) return false;
      found->second.references -= std::min(count, found->second.references);
      if (found->second.references > 0) return true;
      gone = found->second;
      objects_.erase(found);
    }
    gone.destroy(gone.value);  // it may call the runtime
    return true;
  }

  // Gives a graph references, new ones or those of the program. False if there is no such object.
  bool give(Handle graph, Handle object, unsigned count, bool move) {
    if (!move && !retain(object, count)) return false;
    std::lock_guard const lock(mutex_);
    if (!objects_.contains(object)) return false;
    kept_[graph][object] += count;
    return true;
  }

  bool take(Handle graph, Handle object, unsigned count) {
    {
      std::lock_guard const lock(mutex_);
      auto const kept = kept_.find(graph);
      if (kept == kept_.end() || !kept->second.contains(object)) return false;
      unsigned& references = kept->second[object];
      count = std::min(count, references);
      references -= count;
      if (references == 0) kept->second.erase(object);
    }
    return release(object, count);
  }

  // An executable graph keeps what its graph keeps.
  void share(Handle graph, Handle executable) {
    std::lock_guard const lock(mutex_);
    auto const kept = kept_.find(graph);
    if (kept == kept_.end()) return;
    auto const copy = kept->second;
    for (auto const& [object, count] : copy)
      if (auto const found = objects_.find(object); found != objects_.end())
        found->second.references += count;
    kept_[executable] = copy;
  }

  // The graph or executable graph is destroyed.
  void drop(Handle holder) {
    std::map<Handle, unsigned> dropped;
    {
      std::lock_guard const lock(mutex_);
      auto const kept = kept_.find(holder);
      if (kept == kept_.end()) return;
      dropped = std::move(kept->second);
      kept_.erase(kept);
    }
    for (auto const& [object, count] : dropped) release(object, count);
  }

 private:
  struct Object {
    void* value;
    Destroy destroy;
    unsigned references;
  };

  std::mutex mutex_;
  std::unordered_map<Handle, Object> objects_;
  std::unordered_map<Handle, std::map<Handle, unsigned>> kept_;  // by graph: objects, references
};

int done(bool found) { return found ? kSuccess : failed(kInvalidValue); }

}  // namespace

NULL_GPU_API int null_cudaUserObjectCreate(Handle* object, void* value, Destroy destroy,
                                           unsigned references, unsigned) {
  if (object == nullptr || destroy == nullptr || references == 0) return failed(kInvalidValue);
  *object = UserObjects::get().make(value, destroy, references);
  return kSuccess;
}

NULL_GPU_GIVES(cudaUserObjectRetain, (Handle object, unsigned count),
               done(UserObjects::get().retain(object, count)))
NULL_GPU_GIVES(cudaUserObjectRelease, (Handle object, unsigned count),
               done(UserObjects::get().release(object, count)))

NULL_GPU_API int null_cudaGraphRetainUserObject(Handle graph, Handle object, unsigned count,
                                                unsigned flags) {
  constexpr unsigned kMove = 1;  // cudaGraphUserObjectMove
  return done(UserObjects::get().give(graph, object, count, (flags & kMove) != 0));
}

NULL_GPU_GIVES(cudaGraphReleaseUserObject, (Handle graph, Handle object, unsigned count),
               done(UserObjects::get().take(graph, object, count)))
NULL_GPU_DOES(cudaGraphCreate, (Handle * graph, unsigned), *graph = Machine::get().new_handle())

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
NULL_GPU_ALIASES(null_cudaGraphInstantiate, null_cudaGraphInstantiateWithFlags);
NULL_GPU_DOES(cudaGraphExecDestroy, (Handle executable), UserObjects::get().drop(executable))

NULL_GPU_API int null_cudaGraphLaunch(Handle, Handle stream) {
  Streams::get().enqueue(stream);
  Values::get().forget_everything();
  ++Machine::get().kernels;
  return kSuccess;
}

// Nodes are only counted, so each call makes new handles.
NULL_GPU_API int null_cudaGraphGetNodes(Handle graph, Handle* nodes, Size* count) {
  Size const all = Streams::get().nodes(graph);
  for (Size node = 0; nodes != nullptr && node < std::min(*count, all); ++node)
    nodes[node] = Machine::get().new_handle();
  *count = all;
  return kSuccess;
}

NULL_GPU_API int null_cudaGraphAddNode(Handle* node, Handle graph) {
  *node = Machine::get().new_handle();
  Streams::get().add_node(graph);
  return kSuccess;
}
NULL_GPU_ALIASES(null_cudaGraphAddNode, null_cudaGraphAddNode_v2, null_cudaGraphAddEmptyNode);

// In CUDA 13 an array of edges precedes the count.
NULL_GPU_DOES(cudaGraphNodeGetDependencies, (Handle, Handle*, Size* third, Size* fourth),
              *(Machine::get().settings().cuda_version < 13000 ? third : fourth) = 0)
NULL_GPU_DOES(cudaGraphNodeGetType, (Handle, int* type), *type = 0)  // a kernel
NULL_GPU_ALIASES(null_cudaGraphCreate, null_cudaGraphConditionalHandleCreate);

// No graph of a null GPU has nodes that allocate memory.
NULL_GPU_DOES(cudaDeviceGetGraphMemAttribute, (int, int, std::uint64_t* value), *value = 0)
