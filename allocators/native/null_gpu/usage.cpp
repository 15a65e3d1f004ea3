// null_gpu/usage.cpp: see usage.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/usage.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace allocbench::null_gpu {

Usage::Usage(std::string const& path) : process_(getpid()) {
  void* table = MAP_FAILED;
  if (!path.empty()) file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ >= 0 && ftruncate(file_, sizeof(Table)) == 0) {
    table = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  if (table == MAP_FAILED || !take_slot()) {
    slot_ = 0;
    if (file_ >= 0) close(file_);
    file_ = -1;
    table =
        mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (table == MAP_FAILED) {
    std::fprintf(stderr, "error: null GPU: no memory to count the bytes of its cards\n");
    std::_Exit(2);
  }
  table_ = static_cast<Table*>(table);
  take_back(slot_);  // what a process has left that had the slot before
}

bool Usage::take(int card, Size size, Size capacity) {
  if (!has_slot()) return false;
  auto& total = table_->total[card];
  for (bool again = true;; again = false) {
    Size used = total;
    while (used <= capacity && size <= capacity - used) {
      if (total.compare_exchange_weak(used, used + size)) {
        table_->of_slot[slot_][card] += size;
        held_ += size;
        return true;
      }
    }
    if (!again || file_ < 0) return false;
    take_back_all();
  }
}

void Usage::give(int card, Size size) {
  if (!has_slot()) return;
  held_ -= size;
  table_->of_slot[slot_][card] -= size;
  table_->total[card] -= size;
}

Size Usage::used(int card) {
  if (file_ >= 0) take_back_all();
  return table_->total[card];
}

bool Usage::has_slot() {
  if (getpid() == process_) return true;
  if (held_ != 0 || (file_ >= 0 && !take_slot())) return false;
  if (file_ >= 0) take_back(slot_);
  process_ = getpid();
  return true;
}

bool Usage::take_slot() {
  for (slot_ = 0; slot_ < kSlots; ++slot_) {
    if (set_lock(slot_, F_WRLCK)) return true;
  }
  return false;
}

bool Usage::set_lock(int slot, short type) {
  struct flock wanted{};
  wanted.l_type = type;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = slot;
  wanted.l_len = 1;
  return fcntl(file_, F_SETLK, &wanted) == 0;
}

void Usage::take_back(int slot) {
  for (int card = 0; card < kCards; ++card) {
    table_->total[card] -= table_->of_slot[slot][card].exchange(0);
  }
}

// A slot that can be locked belongs to nobody.
void Usage::take_back_all() {
  for (int slot = 0; slot < kSlots; ++slot) {
    auto const& bytes = table_->of_slot[slot];
    bool const empty = std::ranges::none_of(bytes, [](auto const& one) { return one != 0; });
    if (empty || slot == slot_ || !set_lock(slot, F_WRLCK)) continue;
    take_back(slot);
    set_lock(slot, F_UNLCK);
  }
}

}  // namespace allocbench::null_gpu
