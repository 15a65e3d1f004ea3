// native/user_objects.hpp: objects of the program that captured graphs keep alive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// A user object is destroyed, by the function that it was made with, when the program, the graphs
// and the executable graphs have given back all references to it.
class UserObjects {
 public:
  using Destroy = void (*)(void*);

  static UserObjects& get();

  Handle make(void* value, Destroy destroy, unsigned references);
  // Adds references of the program. False if there is no such object.
  bool retain(Handle object, unsigned count);
  bool release(Handle object, unsigned count);
  // Gives a graph references, new ones or those of the program. False if there is no such object.
  bool give(Handle graph, Handle object, unsigned count, bool move);
  bool take(Handle graph, Handle object, unsigned count);
  // An executable graph keeps what its graph keeps.
  void share(Handle graph, Handle executable);
  // The graph or executable graph is destroyed.
  void drop(Handle holder);

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

}  // namespace allocbench::null_gpu
