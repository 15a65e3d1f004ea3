// native/graphs.cpp: graphs, and objects of the program that captured graphs keep alive.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
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
// and the executable graphs have given back all references to it. That function may call the
// runtime, so it is called without the lock.
class UserObjects : public Only<UserObjects> {
 public:
  Handle make(void* value, Destroy destroy, unsigned references) {
    Handle const object = Machine::get().new_handle();
    std::lock_guard const lock(mutex_);
    held_[kProgram][object] = {std::shared_ptr<void>(value, destroy), references};
    return object;
  }

  // Adds references of a holder. False if the program has none to the object.
  bool add(Handle holder, Handle object, unsigned count) {
    std::lock_guard const lock(mutex_);
    auto const found = held_[kProgram].find(object);
    if (found == held_[kProgram].end()) return false;
    Reference& reference = held_[holder][object];
    reference = {found->second.value, reference.count + count};
    return true;
  }

  // False if the holder has no reference to the object.
  bool remove(Handle holder, Handle object, unsigned count) {
    Reference gone;
    std::lock_guard const lock(mutex_);
    auto const found = held_[holder].find(object);
    if (found == held_[holder].end()) return false;
    if (found->second.count > count) {
      found->second.count -= count;
    } else {
      gone = std::move(found->second);
      held_[holder].erase(found);
    }
    return true;
  }

  // An executable graph keeps what its graph keeps.
  void share(Handle graph, Handle executable) {
    std::lock_guard const lock(mutex_);
    if (auto const kept = held_.find(graph); kept != held_.end()) {
      auto const copy = kept->second;
      held_[executable] = copy;
    }
  }

  // The graph or executable graph is destroyed.
  void drop(Handle holder) {
    std::map<Handle, Reference> gone;
    std::lock_guard const lock(mutex_);
    if (auto kept = held_.extract(holder)) gone = std::move(kept.mapped());
  }

  static constexpr Handle kProgram = nullptr;  // as a holder

 private:
  struct Reference {
    std::shared_ptr<void> value;
    unsigned count = 0;
  };

  std::mutex mutex_;
  std::unordered_map<Handle, std::map<Handle, Reference>> held_;  // by holder, by object
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
               done(UserObjects::get().add(UserObjects::kProgram, object, count)))
NULL_GPU_GIVES(cudaUserObjectRelease, (Handle object, unsigned count),
               done(UserObjects::get().remove(UserObjects::kProgram, object, count)))

NULL_GPU_API int null_cudaGraphRetainUserObject(Handle graph, Handle object, unsigned count,
                                                unsigned flags) {
  constexpr unsigned kMove = 1;  // cudaGraphUserObjectMove
  auto& objects = UserObjects::get();
  bool const moves = (flags & kMove) != 0;
  return done(objects.add(graph, object, count) &&
              (!moves || objects.remove(UserObjects::kProgram, object, count)));
}

NULL_GPU_GIVES(cudaGraphReleaseUserObject, (Handle graph, Handle object, unsigned count),
               done(UserObjects::get().remove(graph, object, count)))
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
