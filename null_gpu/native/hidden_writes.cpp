// native/hidden_writes.cpp: work on the GPU of which PyTorch does not know what it writes.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/hidden_writes.hpp"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "null_gpu/native/operators.hpp"
#include "null_gpu/native/thread_object.hpp"
#include "null_gpu/native/values.hpp"

namespace allocbench::null_gpu {

namespace {

struct Pointers {
  std::vector<Address> given;  // since the last launch on this thread
};

void* own_kernels[1];
void* other_kernels[1];

struct Others {
  std::mutex mutex;
  std::unordered_set<void const*> kernels;
  std::atomic<bool> any = false;
};
Others& others() {
  static Others* const all = new Others;
  return *all;
}

// Whether the library declares to PyTorch what its kernels write.
bool declares_writes(std::string_view path) {
  for (std::string_view const part : {"/libtorch", "/torchvision/_C", "/torchaudio/lib/"}) {
    if (path.find(part) != path.npos) return true;
  }
  return false;
}

}  // namespace

void pointer_given(Address address) { ThreadObject<Pointers>::get().given.push_back(address); }

void on_driver_launch() {
  auto& pointers = ThreadObject<Pointers>::get().given;
  if (!in_operator()) {
    if (pointers.empty()) Values::get().forget_everything();
    for (Address const address : pointers) Values::get().forget_followed_at(address);
  }
  pointers.clear();
}

void** handle_for_kernels(void const* binary) {
  Dl_info info;
  bool const found = dladdr(binary, &info) != 0 && info.dli_fname != nullptr;
  return found && declares_writes(info.dli_fname) ? own_kernels : other_kernels;
}

void add_kernel(void** handle, void const* function) {
  if (handle != other_kernels) return;
  std::lock_guard const lock(others().mutex);
  others().kernels.insert(function);
  others().any = true;
}

void on_launch(void const* function) {
  if (!others().any) return;
  std::lock_guard const lock(others().mutex);
  if (others().kernels.contains(function)) Values::get().forget_everything();
}

}  // namespace allocbench::null_gpu
