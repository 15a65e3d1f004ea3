// native/user_objects.cpp: objects of the program that captured graphs keep alive.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/user_objects.hpp"

#include <algorithm>
#include <cstdint>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/runtime.hpp"

namespace allocbench::null_gpu {

UserObjects& UserObjects::get() {
  static auto* const instance = new UserObjects;
  return *instance;
}

Handle UserObjects::make(void* value, Destroy destroy, unsigned references) {
  Handle const object = Machine::get().new_handle();
  std::lock_guard const lock(mutex_);
  objects_[object] = {value, destroy, references};
  return object;
}

bool UserObjects::retain(Handle object, unsigned count) {
  std::lock_guard const lock(mutex_);
  auto const found = objects_.find(object);
  if (found == objects_.end()) return false;
  found->second.references += count;
  return true;
}

bool UserObjects::release(Handle object, unsigned count) {
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

bool UserObjects::give(Handle graph, Handle object, unsigned count, bool move) {
  if (!move && !retain(object, count)) return false;
  std::lock_guard const lock(mutex_);
  if (!objects_.contains(object)) return false;
  kept_[graph][object] += count;
  return true;
}

bool UserObjects::take(Handle graph, Handle object, unsigned count) {
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

void UserObjects::share(Handle graph, Handle executable) {
  std::lock_guard const lock(mutex_);
  auto const kept = kept_.find(graph);
  if (kept == kept_.end()) return;
  auto const copy = kept->second;
  for (auto const& [object, count] : copy) {
    if (auto const found = objects_.find(object); found != objects_.end())
      found->second.references += count;
  }
  kept_[executable] = copy;
}

void UserObjects::drop(Handle holder) {
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

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

namespace {

constexpr unsigned kMove = 1;  // cudaGraphUserObjectMove

int done(bool found) { return found ? kSuccess : failed(kInvalidValue); }

}  // namespace

NULL_GPU_API int null_cudaUserObjectCreate(Handle* object, void* value,
                                           UserObjects::Destroy destroy, unsigned references,
                                           unsigned) {
  if (object == nullptr || destroy == nullptr || references == 0) return failed(kInvalidValue);
  *object = UserObjects::get().make(value, destroy, references);
  return kSuccess;
}

NULL_GPU_API int null_cudaUserObjectRetain(Handle object, unsigned count) {
  return done(UserObjects::get().retain(object, count));
}

NULL_GPU_API int null_cudaUserObjectRelease(Handle object, unsigned count) {
  return done(UserObjects::get().release(object, count));
}

NULL_GPU_API int null_cudaGraphRetainUserObject(Handle graph, Handle object, unsigned count,
                                                unsigned flags) {
  return done(UserObjects::get().give(graph, object, count, (flags & kMove) != 0));
}

NULL_GPU_API int null_cudaGraphReleaseUserObject(Handle graph, Handle object, unsigned count) {
  return done(UserObjects::get().take(graph, object, count));
}

// No graph of a null GPU has nodes that allocate memory.
NULL_GPU_API int null_cudaDeviceGetGraphMemAttribute(int, int, std::uint64_t* value) {
  *value = 0;
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceSetGraphMemAttribute(int, int, void*) { return kSuccess; }
