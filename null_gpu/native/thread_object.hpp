// native/thread_object.hpp: an object for each thread, usable until the process ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace allocbench::null_gpu {

// Functions that run at exit call the driver after the objects of the main thread are destroyed. An
// object that is needed then is made again, and never destroyed.
template <class Value>
class ThreadObject {
 public:
  static Value& get() {
    if (value_ == nullptr) {
      value_ = new Value;
      static_cast<void>(&deleter_);  // constructs it, so that it is destroyed with the thread
    }
    return *value_;
  }

 private:
  struct Deleter {
    Deleter() = default;
    ~Deleter() {
      delete value_;
      value_ = nullptr;
    }
  };
  static inline thread_local Value* value_ = nullptr;
  static inline thread_local Deleter deleter_;
};

}  // namespace allocbench::null_gpu
