// native/memory.cpp: the memory of a device, and CUDA's virtual memory.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/memory.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

Usage::Usage(std::string const& path) : process_(getpid()) {
  void* table = MAP_FAILED;
  if (!path.empty()) file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ >= 0 && ftruncate(file_, sizeof(Table)) == 0)
    table = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
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
  for (slot_ = 0; slot_ < kSlots; ++slot_)
    if (set_lock(slot_, F_WRLCK)) return true;
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
  for (int card = 0; card < kCards; ++card)
    table_->total[card] -= table_->of_slot[slot][card].exchange(0);
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

DeviceMemory::DeviceMemory(int device, int card, Size capacity, Size context, bool ascending,
                           Usage& usage)
    : usage_(usage), card_(card), capacity_(capacity), context_(context), ascending_(ascending) {
  Address const begin = kFirstAddress + device * kAddressesPerDevice;
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const mapped =
      mmap(wanted, kAddressesPerDevice, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != wanted) {
    std::fprintf(stderr, "error: null GPU: cannot reserve %llu GiB of addresses for device %d\n",
                 static_cast<unsigned long long>(kAddressesPerDevice >> 30), device);
    std::_Exit(2);
  }
  addresses_.join(begin, begin + kAddressesPerDevice);
}

Status DeviceMemory::allocate(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  ++requests_;
  Address const segment = pages_.allocate(size, [&](Size pages) { return take_pages(pages); });
  if (segment == 0) return kOutOfMemory;
  *address = segment;
  return kSuccess;
}

Status DeviceMemory::release(Address address) {
  std::lock_guard const lock(mutex_);
  bool const held = pages_.release(address, [&](Range pages) { give_pages(pages); });
  return held ? kSuccess : kInvalidValue;
}

std::size_t DeviceMemory::release_all() {
  std::lock_guard const lock(mutex_);
  auto const& segments = pages_.segments();
  std::size_t const number = segments.size();
  while (!segments.empty())
    pages_.release(segments.begin()->first, [&](Range pages) { give_pages(pages); });
  return number;
}

Status DeviceMemory::reserve(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  Size const rounded = round_up(size, kPage);
  Address const begin = take_addresses(rounded);
  if (begin == 0) return kOutOfMemory;
  reserved_[begin] = rounded;
  *address = begin;
  return kSuccess;
}

Status DeviceMemory::unreserve(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = reserved_.find(address);
  if (entry == reserved_.end()) return kInvalidValue;
  addresses_.join(address, address + entry->second);
  reserved_.erase(entry);
  return kSuccess;
}

Status DeviceMemory::take(Size size) {
  std::lock_guard const lock(mutex_);
  ++requests_;
  if (!count(size)) return kOutOfMemory;
  taken_ += size;
  return kSuccess;
}

void DeviceMemory::give(Size size) {
  std::lock_guard const lock(mutex_);
  taken_ -= size;
  uncount(size);
}

Range DeviceMemory::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  if (Range const segment = pages_.around(address); segment.size != 0) return segment;
  auto const reserved = around(reserved_, address);
  return reserved == reserved_.end() ? Range{} : Range{reserved->first, reserved->second};
}

Size DeviceMemory::free() {
  std::lock_guard const lock(mutex_);
  open_context();
  return capacity_ - std::min(capacity_, usage_.used(card_));
}

DeviceMemory::Counters DeviceMemory::counters() const {
  std::lock_guard const lock(mutex_);
  return {capacity_, used_, peak_, requests_, refused_};
}

DeviceMemory::Allocations DeviceMemory::allocations() const {
  std::lock_guard const lock(mutex_);
  Allocations found{pages_.segments().size(), taken_};
  for (auto const& [begin, requested] : pages_.segments()) found.requested += requested;
  return found;
}

void DeviceMemory::resize(Size capacity) {
  std::lock_guard const lock(mutex_);
  capacity_ = capacity;
}

// Memory with an address; 0 if the card or the addresses do not suffice.
Address DeviceMemory::take_pages(Size size) {
  if (!count(size)) return 0;
  Address const address = take_addresses(size);
  if (address == 0) uncount(size);
  return address;
}

void DeviceMemory::give_pages(Range range) {
  uncount(range.size);
  addresses_.join(range.begin, range.begin + range.size);
}

Address DeviceMemory::take_addresses(Size size) {
  auto const fits = [&](auto const& range) { return range.second - range.first >= size; };
  auto range = addresses_.end();
  if (ascending_) {
    range = std::ranges::find_if(addresses_, fits);
  } else if (auto const last = std::find_if(addresses_.rbegin(), addresses_.rend(), fits);
             last != addresses_.rend()) {
    range = std::prev(last.base());
  }
  return range == addresses_.end() ? 0 : addresses_.cut(range, size, !ascending_);
}

bool DeviceMemory::count(Size size) {
  if (!open_context() || !usage_.take(card_, size, capacity_)) {
    ++refused_;
    return false;
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  return true;
}

void DeviceMemory::uncount(Size size) {
  used_ -= size;
  usage_.give(card_, size);
}

// Counts the context of this process once; false if the card has no room for it.
bool DeviceMemory::open_context() {
  if (open_ || !usage_.take(card_, context_, capacity_)) return open_;
  used_ += context_;
  peak_ = std::max(peak_, used_);
  return open_ = true;
}

namespace {

constexpr char kAllocator[] = "libc10_cuda.so";

struct HeldOutside : Only<HeldOutside> {
  struct Block {
    int device;
    std::string library;
    Size size;
  };
  struct Held {
    std::map<std::string, Size> now, at_peak;  // bytes by library
    Size total = 0, peak = 0;
  };
  std::mutex mutex;
  std::unordered_map<Address, Block> blocks;
  std::array<Held, kMostDevices> of_device;
};

}  // namespace

std::string const& library_at(void const* code) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<void const*, std::string>;
  std::lock_guard const lock(mutex);
  auto const [entry, is_new] = known.try_emplace(code);
  Dl_info info;
  if (is_new && dladdr(code, &info) != 0 && info.dli_fname != nullptr)
    entry->second = std::filesystem::path(info.dli_fname).filename();
  return entry->second;
}

void allocated_outside(int device, Address address, Size size) {
  void* frames[16];
  int const count = backtrace(frames, 16);
  std::string const& own = library_at(frames[0]);
  std::string library;
  for (int frame = 0; frame < count; ++frame) {
    std::string const& found = library_at(frames[frame]);
    if (found == kAllocator) return;
    if (library.empty() && found != own) library = found;
  }
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  auto& held = all.of_device[device];
  held.now[library] += size;
  held.total += size;
  if (held.total > held.peak) {
    held.peak = held.total;
    held.at_peak = held.now;
  }
  all.blocks[address] = {device, library, size};
}

void released_outside(Address address) {
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  auto const found = all.blocks.find(address);
  if (found == all.blocks.end()) return;
  auto const& [device, library, size] = found->second;
  all.of_device[device].now[library] -= size;
  all.of_device[device].total -= size;
  all.blocks.erase(found);
}

VirtualMemory& virtual_memory() {
  static auto* instance =
      new VirtualMemory([](int device, Size size) { Machine::get().memory(device).give(size); });
  return *instance;
}

void VirtualMemory::reserved(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  reservations_[begin] = size;
}

Status VirtualMemory::unreserve(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  auto const entry = reservations_.find(begin);
  if (entry == reservations_.end() || entry->second != size) return kInvalidValue;
  auto const mapping = mappings_.lower_bound(begin);
  if (mapping != mappings_.end() && mapping->first < begin + size) return kInvalidValue;
  reservations_.erase(entry);
  return kSuccess;
}

VirtualMemory::Piece VirtualMemory::created(Size size, int device) {
  std::lock_guard const lock(mutex_);
  pieces_.emplace(++last_, Memory{size, device});
  return last_;
}

Status VirtualMemory::retain(Address address, Piece* piece) {
  std::lock_guard const lock(mutex_);
  auto const mapping = around(mappings_, address);
  if (mapping == mappings_.end()) return kInvalidValue;
  *piece = mapping->second.piece;
  ++pieces_.at(*piece).handles;
  return kSuccess;
}

Status VirtualMemory::release(Piece piece) {
  std::lock_guard const lock(mutex_);
  auto const entry = pieces_.find(piece);
  if (entry == pieces_.end() || entry->second.handles == 0) return kInvalidValue;
  --entry->second.handles;
  free_unused(piece);
  return kSuccess;
}

Status VirtualMemory::map(Address begin, Size size, Piece piece) {
  std::lock_guard const lock(mutex_);
  auto const entry = pieces_.find(piece);
  if (entry == pieces_.end() || entry->second.handles == 0 || begin % kPage != 0)
    return kInvalidValue;
  if (entry->second.size != size) return kNotSupported;  // a part of a piece, or more than it
  auto const reserved = around(reservations_, begin);
  if (reserved == reservations_.end()) return kInvalidValue;
  auto const next = mappings_.lower_bound(begin);
  bool const overlaps =
      (next != mappings_.end() && next->first < begin + size) ||
      (next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.size > begin);
  if (begin + size > reserved->first + reserved->second || overlaps) return kInvalidValue;
  ++entry->second.mappings;
  mappings_.emplace(begin, Mapping{size, piece});
  return kSuccess;
}

Status VirtualMemory::unmap(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  if (!whole_mappings(begin, size)) return kInvalidValue;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first < begin + size;) {
    Piece const piece = mapping->second.piece;
    mapping = mappings_.erase(mapping);
    --pieces_.at(piece).mappings;
    free_unused(piece);
  }
  return kSuccess;
}

Status VirtualMemory::allow(Address begin, Size size, int device) {
  std::lock_guard const lock(mutex_);
  if (!whole_mappings(begin, size)) return kInvalidValue;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first < begin + size; ++mapping) {
    mapping->second.devices.insert(device);
  }
  return kSuccess;
}

bool VirtualMemory::allowed(Address address, int device) const {
  std::lock_guard const lock(mutex_);
  auto const mapping = around(mappings_, address);
  return mapping != mappings_.end() && mapping->second.devices.contains(device);
}

Range VirtualMemory::accessible(Address address) const {
  std::lock_guard const lock(mutex_);
  auto const mapping = around(mappings_, address);
  if (mapping == mappings_.end() || mapping->second.devices.empty()) return {};
  return {mapping->first, mapping->second.size};
}

bool VirtualMemory::reserved_at(Address begin) const {
  std::lock_guard const lock(mutex_);
  return reservations_.contains(begin);
}

bool VirtualMemory::mapped(Address begin, Size size) const {
  std::lock_guard const lock(mutex_);
  auto mapping = around(mappings_, begin);
  if (mapping == mappings_.end()) return false;
  Address end = mapping->first;
  for (; mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping)
    end += mapping->second.size;
  return end >= begin + size;
}

VirtualMemory::Counts VirtualMemory::counts() const {
  std::lock_guard const lock(mutex_);
  return {reservations_.size(), pieces_.size(), mappings_.size()};
}

bool VirtualMemory::whole_mappings(Address begin, Size size) const {
  Address end = begin;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping) {
    end += mapping->second.size;
  }
  return size != 0 && end == begin + size;
}

void VirtualMemory::free_unused(Piece piece) {
  auto const entry = pieces_.find(piece);
  if (entry->second.handles != 0 || entry->second.mappings != 0) return;
  Memory const memory = entry->second;
  pieces_.erase(entry);
  freed_(memory.device, memory.size);
}

}  // namespace allocbench::null_gpu

// What libraries held outside of PyTorch when it was most, on the device where it was most: for
// each library, its bytes, a space and its name in a line. The text is valid until the next call.
NULL_GPU_API char const* null_outside() {
  using namespace allocbench::null_gpu;
  static std::string text;
  auto& all = HeldOutside::get();
  std::lock_guard const lock(all.mutex);
  text.clear();
  auto const& most = *std::ranges::max_element(all.of_device, {}, &HeldOutside::Held::peak);
  for (auto const& [library, bytes] : most.at_peak)
    if (bytes != 0) text += std::to_string(bytes) + ' ' + library + '\n';
  return text.c_str();
}
