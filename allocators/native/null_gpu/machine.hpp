// null_gpu/machine.hpp: the cards of the null machine, and what belongs to a thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "null_gpu/api.hpp"
#include "null_gpu/memory.hpp"

namespace allocbench::null_gpu {

// A card, as `cards.json` and the user describe it, and the versions that the program expects.
struct Settings {
  std::string name = "null GPU";
  int compute_capability = 90;
  int multiprocessors = 132;
  int shared_per_multiprocessor = 233472;
  int shared_per_block = 232448;  // the most that a kernel can opt in to
  int threads_per_multiprocessor = 2048;
  int blocks_per_multiprocessor = 32;
  int l2_bytes = 52428800;
  int bus_bits = 5120;
  int clock_khz = 1980000;
  int memory_clock_khz = 2619000;
  Size memory = Size{80} << 30;    // what the driver reports as total
  Size context = Size{512} << 20;  // of it, taken by the CUDA context of a process
  int count = 1;
  int cuda_version = 13000;
  int cudnn_version = 91002;
  int nccl_version = 22705;
  Size convolution_workspace = 0;
  int addresses_ascend = 0;    // whether later allocations lie above earlier ones
  std::string usage;           // file with the bytes in use, which all processes of a program share
  int convolution_copies = 0;  // whether tensors are transposed in the workspace
};

class Machine {
 public:
  // The machine of this process, made at the first call with what null_configure() was told.
  static Machine& get();

  Settings const& settings() const { return settings_; }
  int count() const { return static_cast<int>(devices_.size()); }
  bool has(int device) const { return device >= 0 && device < count(); }
  DeviceMemory& memory(int device) { return *devices_[device]; }
  // Which of the machine's cards a device of this process is (CUDA_VISIBLE_DEVICES).
  int card(int device) const { return cards_[device]; }
  // The device whose memory an address lies in, or -1.
  int device_of(void const* address) const;
  // Something opaque that is never given out twice.
  Handle new_handle();
  // Compute capability of the machine code that a kernel of PyTorch's wheels would run with.
  int kernel_version() const;
  // Blocks of a kernel that one multiprocessor can hold, with kRegisters a thread.
  int blocks_at_once(int threads, Size shared) const;

  std::atomic<std::uint64_t> kernels{0};

 private:
  explicit Machine(Settings settings);

  Settings settings_;
  Usage usage_;
  std::vector<std::unique_ptr<DeviceMemory>> devices_;
  std::vector<int> cards_;
  std::atomic<Address> handle_{0x5000};
};

inline constexpr int kRegisters = 32;  // of each thread of any kernel: nobody knows better

int current_device();
void set_current_device(int device);
DeviceMemory& current_memory();
// Returns a status of the runtime, and keeps it for cudaGetLastError if it is an error.
Status failed(Status status);
Status take_last_error();
Status last_error();

}  // namespace allocbench::null_gpu
