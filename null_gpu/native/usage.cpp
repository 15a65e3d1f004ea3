// native/usage.cpp: the bytes of each card that the processes of a program use.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/usage.hpp"

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
    std::fprintf(stderr, "error: null GPU: no memory for the counters of its cards\n");
    std::_Exit(2);
  }
  table_ = static_cast<Table*>(table);
  reclaim(slot_);  // what an earlier owner of the slot left
}

bool Usage::take(int card, Size size, Size capacity) {
  if (!has_slot()) return false;
  auto& total = table_->total[card];
  for (bool first_try = true;; first_try = false) {
    Size used = total;
    while (used <= capacity && size <= capacity - used) {
      if (total.compare_exchange_weak(used, used + size)) {
        table_->of_slot[slot_][card] += size;
        held_ += size;
        return true;
      }
    }
    if (!first_try || file_ < 0) return false;
    reclaim_all();
  }
}

void Usage::give(int card, Size size) {
  if (!has_slot()) return;
  held_ -= size;
  table_->of_slot[slot_][card] -= size;
  table_->total[card] -= size;
}

Size Usage::used(int card) {
  if (file_ >= 0) reclaim_all();
  return table_->total[card];
}

bool Usage::has_slot() {
  if (getpid() == process_) return true;
  if (held_ != 0 || (file_ >= 0 && !take_slot())) return false;
  if (file_ >= 0) reclaim(slot_);
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
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return fcntl(file_, F_SETLK, &lock) == 0;
}

void Usage::reclaim(int slot) {
  for (int card = 0; card < kCards; ++card) {
    table_->total[card] -= table_->of_slot[slot][card].exchange(0);
  }
}

// A slot that can be locked belongs to no running process.
void Usage::reclaim_all() {
  for (int slot = 0; slot < kSlots; ++slot) {
    auto const& bytes = table_->of_slot[slot];
    bool const empty = std::ranges::none_of(bytes, [](auto const& used) { return used != 0; });
    if (empty || slot == slot_ || !set_lock(slot, F_WRLCK)) continue;
    reclaim(slot);
    set_lock(slot, F_UNLCK);
  }
}

}  // namespace allocbench::null_gpu
