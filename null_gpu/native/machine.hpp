// native/machine.hpp: the cards of the null machine, and the state of each thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/memory.hpp"

namespace allocbench::null_gpu {

// The numbers of a card as described by `cards.json` and the user, and the library versions to
// report: type, name, default. Sizes are in bytes unless the name has another unit.
#define NULL_GPU_NUMBERS(NUMBER)                                                             \
  NUMBER(int, compute_capability, 90)                                                        \
  NUMBER(int, multiprocessors, 132)                                                          \
  NUMBER(int, shared_per_multiprocessor, 233472)                                             \
  NUMBER(int, shared_per_block, 232448) /* the most that a kernel can use after opting in */ \
  NUMBER(int, threads_per_multiprocessor, 2048)                                              \
  NUMBER(int, blocks_per_multiprocessor, 32)                                                 \
  NUMBER(int, l2_bytes, 52428800)                                                            \
  NUMBER(int, bus_bits, 5120)                                                                \
  NUMBER(int, clock_khz, 1980000)                                                            \
  NUMBER(int, memory_clock_khz, 2619000)                                                     \
  NUMBER(Size, memory, Size{80} << 30)   /* the total that the driver reports */             \
  NUMBER(Size, context, Size{512} << 20) /* used by the CUDA context of each process */      \
  NUMBER(int, count, 1)                                                                      \
  NUMBER(int, cuda_version, 13000)                                                           \
  NUMBER(int, cudnn_version, 91002)                                                          \
  NUMBER(int, nccl_version, 22705)                                                           \
  NUMBER(int, addresses_ascend, 0) /* 1: later allocations have higher addresses */          \
  NUMBER(int, late_events, 0)      /* 1: see Streams */

struct Settings {
#define NULL_GPU_MEMBER(type, name, value) type name = value;
  NULL_GPU_NUMBERS(NULL_GPU_MEMBER)
#undef NULL_GPU_MEMBER
  std::string name = "null GPU";
  std::string usage;  // the file in which the processes of a program count bytes in use
};

inline constexpr int kCudaOfDriver = 13000;
inline constexpr Address kFirstContext = 0xC000;
inline constexpr Address kFirstHandle = 0x5000;  // lower ones are those of default streams
// Handles are aligned like pointers: PyTorch stores its own numbers of streams as odd handles.
inline constexpr Address kHandleAlignment = 16;

class Machine {
 public:
  // The machine of this process. The first call creates it with the settings of null_configure().
  static Machine& get();

  Settings const& settings() const { return settings_; }
  // The newest CUDA that the driver supports. Drivers are as new as extensions need, or newer.
  int driver_version() const { return std::max(settings_.cuda_version, kCudaOfDriver); }
  int count() const { return static_cast<int>(devices_.size()); }
  bool has(int device) const { return device >= 0 && device < count(); }
  DeviceMemory& memory(int device) { return *devices_[device]; }
  // The number of the card that a device of this process stands for (CUDA_VISIBLE_DEVICES).
  int card(int device) const { return cards_[device]; }
  // Changes the bytes of every card.
  void resize(Size memory);
  // The device whose memory contains an address, or -1.
  int device_of(void const* address) const;
  // A unique handle that identifies the current device: see device_of().
  Handle new_handle();
  // The compute capability of the machine code in PyTorch's wheels that this card would run.
  int kernel_version() const;
  // The number of blocks that fit on one multiprocessor, with kRegisters per thread.
  int blocks_at_once(int threads, Size shared) const;

  std::atomic<std::uint64_t> kernels{0};

 private:
  explicit Machine(Settings settings);

  Settings settings_;
  Usage usage_;
  std::vector<std::unique_ptr<DeviceMemory>> devices_;
  std::vector<int> cards_;
  std::atomic<Address> handle_{kFirstHandle};
};

inline constexpr int kRegisters = 32;  // assumed per thread of every kernel

int current_device();
void set_current_device(int device);
// Whether this thread has a current context: see contexts.hpp.
bool has_context();
void leave_context();
// An object for each thread. Functions that run at exit call the driver after the objects of the
// main thread are destroyed: an object that is needed then is made again, and never destroyed.
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

// The device that was current when a handle was made; of a default stream, the current one.
int device_of(Handle handle);
DeviceMemory& current_memory();

// The value of a cudaDeviceAttr, whose number equals its CUdevice_attribute; 0 if it is unknown.
int attribute(int number, int device);
// A unique id of 16 bytes for each card, and a PCI bus id such as "0000:01:00.0".
void write_uuid(void* out, int device);
void write_bus_id(char* out, int size, int device);

// Counts a call of a function that can fail on purpose; returns the error that it must return.
Status entered(char const* function);
Status counted(char const* function);  // the same, once the settings of the machine are read
// Calls of functions fail: NAME:NUMBER or NAME:NUMBER:ERROR, several of them separated by commas.
// NUMBER counts the calls of NAME from now on; 0: each of them fails.
void fail_calls(std::string const& text);
// When this process ends, writes what it still holds of the driver: a line for each kind.
void report_at_exit(std::string const& path);
// Returns its argument, and keeps it for cudaGetLastError if it is an error.
Status failed(Status status);
Status take_last_error();
Status last_error();

}  // namespace allocbench::null_gpu
