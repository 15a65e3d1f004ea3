// native/usage.hpp: the bytes of each card that the processes of a program use.
// SPDX-License-Identifier: Apache-2.0
//
// The counters are in a file that all processes map. Each process owns a slot in it by a file lock,
// which the operating system releases when the process ends for any reason. When a card is full,
// the bytes of processes that have ended are reclaimed.
#pragma once

#include <atomic>
#include <string>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

class Usage {
 public:
  // Creates the file if it does not exist. Counts only this process if the path is empty or the
  // file cannot be used.
  explicit Usage(std::string const& path);

  // Takes `size` bytes of a card; false if fewer are left of its capacity.
  bool take(int card, Size size, Size capacity);
  void give(int card, Size size);
  Size used(int card);  // bytes, by all processes

 private:
  static constexpr int kCards = 16;
  static constexpr int kSlots = 1024;
  struct Table {
    std::atomic<Size> total[kCards];
    std::atomic<Size> of_slot[kSlots][kCards];
  };
  static_assert(std::atomic<Size>::is_always_lock_free);

  // True if this process has a slot. A forked child takes a new one, but only if its parent held no
  // memory at the fork; otherwise the child cannot use the card, as with CUDA.
  bool has_slot();
  bool take_slot();
  // Locks or unlocks a slot (F_WRLCK, F_UNLCK); false if another process holds it.
  bool set_lock(int slot, short type);
  void reclaim(int slot);
  void reclaim_all();

  Table* table_;
  int file_ = -1;
  int slot_ = 0;
  int process_;
  std::atomic<Size> held_ = 0;  // bytes of this process on all cards
};

}  // namespace allocbench::null_gpu
