// null_gpu/usage.hpp: the bytes in use of each card, by all processes of a program.
// SPDX-License-Identifier: Apache-2.0
//
// They are in a file that the processes map. A process has a slot in it, which it holds with a lock
// of the file; the kernel ends the lock with the process, however that ends. What processes that
// are gone have left is taken back when a card is full.
#pragma once

#include <atomic>
#include <string>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

class Usage {
 public:
  // A file that may not exist yet; memory of this process alone where the path is empty, or where
  // the file cannot be used.
  explicit Usage(std::string const& path);

  // Whether a card has the bytes.
  bool take(int card, Size size, Size capacity);
  void give(int card, Size size);
  Size used(int card);

 private:
  static constexpr int kCards = 16;
  static constexpr int kSlots = 1024;
  struct Table {
    std::atomic<Size> total[kCards];
    std::atomic<Size> of_slot[kSlots][kCards];
  };
  static_assert(std::atomic<Size>::is_always_lock_free);

  // Whether this process has a slot. A child of a fork takes one of its own, unless its parent had
  // memory when it was forked: then the child cannot use it, as with CUDA.
  bool has_slot();
  bool take_slot();
  // Lock or unlock a slot; whether that was possible.
  bool set_lock(int slot, short type);
  void take_back(int slot);
  void take_back_all();

  Table* table_;
  int file_ = -1;
  int slot_ = 0;
  int process_;
  std::atomic<Size> held_ = 0;  // by this process, on all cards
};

}  // namespace allocbench::null_gpu
